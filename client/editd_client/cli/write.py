"""`editctl write`: write a whole file."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from editd_client.cli.apply_report import apply_edits
from editd_client.cli.options import AuthorOptions, authored, based, merging

if TYPE_CHECKING:
    from msgspec import UnsetType

    from editd.wire.messages import OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("path")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--force", is_flag=True, help="Overwrite the current content. The history keeps it.")
@click.option("--executable/--not-executable", default=None, help="Mode of the file (default: unchanged).")
@based
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    path: str,
    file: IO[bytes],
    force: bool,
    executable: bool | None,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Write a whole file.

    The content comes from FILE or standard input. To overwrite a file, give the version that you
    have seen (--base), or --force. So no change is overwritten unseen.

    \b
    Examples:
      editctl write src/new.py draft.py -m "A first draft"
      date | editctl write stamp.txt --force
      editctl write notes.txt new.txt --base "$(git hash-object notes.txt)"
      editctl write bin/run run.sh --executable --base none
    """
    from msgspec import UNSET

    from editd.wire.messages import Write

    edit = Write(
        path=invocation.path(path, for_new=True),
        content=file.read().decode("utf-8", "surrogateescape"),
        base=base,
        mode=UNSET if executable is None else "100755" if executable else "100644",
        force=force,
    )
    apply_edits(invocation, [edit], authorship, on_stale)
