"""`editctl patch`: changes from a unified diff."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import click

from editd_client.cli.apply_report import apply_edits
from editd_client.cli.options import AuthorOptions, authored, merging

if TYPE_CHECKING:
    from editd.wire.messages import OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--fuzz",
    type=click.IntRange(min=0),
    default=0,
    help="Number of context lines that may differ (default: 0).",
)
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation, file: IO[bytes], fuzz: int, authorship: AuthorOptions, on_stale: OnStale | None
) -> None:
    """Apply a patch to any number of files.

    Applies all of it or none. FILE (default: standard input) is a unified diff or the output of
    `git diff`. Its paths are relative to the workspace's root.

    \b
    Examples:
      editctl patch fix.diff -m "The fix from the mailing list"
      git diff HEAD~1 | editctl patch --dry-run
      editctl diff 12..15 | editctl -C ../other patch --fuzz 1
    """
    from editd.wire.messages import Patch

    edit = Patch(patch=file.read().decode("utf-8", "surrogateescape"), fuzz=fuzz)
    apply_edits(invocation, [edit], authorship, on_stale)
