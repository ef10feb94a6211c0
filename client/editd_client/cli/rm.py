"""`editctl rm`: delete files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli.apply_report import apply_edits
from editd_client.cli.options import AuthorOptions, authored, based, merging

if TYPE_CHECKING:
    from msgspec import UnsetType

    from editd.wire.messages import OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@based
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    paths: tuple[str, ...],
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Delete files.

    Deletes all of them or none. Deletes a symbolic link itself, not its target. The history keeps
    the deleted content, and `editctl undo` brings it back.

    \b
    Examples:
      editctl rm old.py
      editctl rm src/a.py src/b.py -m "Both moved to the library"
    """
    from editd.wire.messages import Delete

    if len(paths) > 1 and isinstance(base, str | None):
        raise click.UsageError("--base needs exactly one path.")
    edits = [Delete(path=invocation.path(path), base=base) for path in paths]
    apply_edits(invocation, edits, authorship, on_stale)
