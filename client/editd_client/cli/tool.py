"""`editctl tool`: call an edit tool of another system."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any

import click

from editd_client.cli.apply_report import apply_edits
from editd_client.cli.options import AuthorOptions, authored, based, merging

if TYPE_CHECKING:
    from msgspec import UnsetType

    from editd.wire.messages import OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("dialect")
@click.argument("tool")
@click.option(
    "--args", "text", metavar="JSON", help="Arguments of the tool, one JSON object. `-` is standard input."
)
@click.option("--args-file", "file", type=click.File("rb"), help="File with the arguments.")
@based
@merging
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    dialect: str,
    tool: str,
    text: str | None,
    file: IO[bytes] | None,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Call an edit tool of another system, such as Cline's.

    `editctl dialects` lists the tools, and `editctl dialects DIALECT` their arguments. Prints the
    tool's own answer, then the changes. Paths in the arguments are relative to the workspace's
    root, or absolute if the tool wants that.

    \b
    Examples:
      editctl tool gemini replace --args '{"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}'
      editctl tool roo search_and_replace --args '{"path": "a.js", "search": "var", "replace": "let"}'
      editctl tool codex apply_patch --args-file call.json --dry-run
    """
    from editd.wire.messages import Tool

    edit = Tool(dialect=dialect, tool=tool, args=_arguments(text, file), base=base)
    apply_edits(invocation, [edit], authorship, on_stale)


def _arguments(text: str | None, file: IO[bytes] | None) -> dict[str, Any]:
    """Return the JSON object from the command line. Raises a usage error for anything else."""
    from editd.wire.codec import decode_json, plain
    from editd.wire.errors import Malformed

    if (text is None) == (file is None):
        raise click.UsageError("Give the tool's arguments once, with --args or --args-file.")
    if file is not None:
        document = file.read()
    else:
        assert text is not None
        document = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        value = plain(decode_json(document), from_json=True)
    except Malformed as error:
        raise click.UsageError(error.error.message) from error
    if not isinstance(value, dict):
        raise click.UsageError("The tool's arguments must be one JSON object.")
    return value
