"""`editctl mv`: a file, moved or renamed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from editd_client.cli.apply_report import apply_edits
from editd_client.cli.options import AuthorOptions, authored, based, merging

if TYPE_CHECKING:
    from msgspec import UnsetType

    from editd.wire.messages import OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--overwrite", is_flag=True, help="Replace TO if it exists. The history keeps its content.")
@based
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    source: str,
    target: str,
    overwrite: bool,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Move or rename a file.

    If TO is a folder, the file goes into it under its own name. Creates missing folders.

    \b
    Examples:
      editctl mv draft.md docs/guide.md
      editctl mv util.py src/ -m "Into the package"
    """
    from editd.wire.messages import Move

    moved = invocation.path(source)
    to = target
    if target.endswith("/") or os.path.isdir(invocation.absolute(target)):
        to = os.path.join(target, os.path.basename(moved))
    edit = Move(path=moved, to=invocation.path(to), base=base, overwrite=overwrite)
    apply_edits(invocation, [edit], authorship, on_stale)
