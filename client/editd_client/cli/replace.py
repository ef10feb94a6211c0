"""`editctl replace`: exact text for exact text."""

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
@click.argument("texts", nargs=-1, metavar="[OLD] [NEW]")
@click.option("--old-file", type=click.File("rb"), help="File with the text OLD; `-` is standard input.")
@click.option("--new-file", type=click.File("rb"), help="File with the text NEW; `-` is standard input.")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, help="Exact number of occurrences of OLD (default: 1)."
)
@based
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    path: str,
    texts: tuple[str, ...],
    old_file: IO[bytes] | None,
    new_file: IO[bytes] | None,
    count: int,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Replace exact text in a file.

    If the file has OLD more or less often than --count, nothing is changed, and the refusal names the
    places or the nearest text. Text from a file is used to its last byte, its final newline included.
    Put `--` before a text that begins with a dash.

    \b
    Examples:
      editctl replace src/app.py "timeout = 5" "timeout = 30" -m "Slow networks"
      editctl replace README.md colour color --count 3
      editctl replace src/app.py --old-file before.txt --new-file after.txt
      editctl replace notes.txt -- "- old item" "- new item"
    """
    from editd.wire.messages import Replace

    rest = list(texts)
    if len(rest) != (old_file is None) + (new_file is None):
        raise click.UsageError(
            "Give OLD and NEW once each: as an argument, or with --old-file or --new-file."
        )
    old = rest.pop(0) if old_file is None else _text(old_file)
    new = rest.pop(0) if new_file is None else _text(new_file)
    edit = Replace(path=invocation.path(path), old=old, new=new, count=count, base=base)
    apply_edits(invocation, [edit], authorship, on_stale)


def _text(file: IO[bytes]) -> str:
    return file.read().decode("utf-8", "surrogateescape")
