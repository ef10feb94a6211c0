"""The printing of a refusal: the fact, the next step, and the part of its data for a person.

As text on standard error, or with `--json` as one JSON document on standard output.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from editd_client.cli.output import diff_lines, echo, json_text, one_line, paint, plain
from editd_client.cli.stdio import print_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.errors import EditdError, Unreachable

AT_THE_SHELL = (
    # words of a hint for a program, and their replacement at the shell; in this order
    (r"on_stale: merge", "--merge"),
    (r"on_conflict: force", "--force"),
    (r"on_conflict: skip", "--what-fits"),
    (r"count: ", "--count "),
    (r"as base, or use force", "as --base, or use --force"),
    (r"use overwrite", "use --overwrite"),
    (r"Use include_published", "Use --include-published"),
    (r"`(author|branch)`|(?<=with )`(wait)`", r"--\1\2"),
    (r"`hello {session, token}`", "EDITD_TOKEN"),
    (r"Attach to it with `hello` and its token", "Set EDITD_SESSION and EDITD_TOKEN to use it"),
    (r"`session.open` opens one and .*", '`eval "$(editctl session open NAME)"` opens one for this shell.'),
    (r"`read` and `stat` give it", "`editctl read --json` gives it"),
    (r"`show` with tx (\d+) and `hunks`", r"`editctl show \1 --hunks`"),
    (r"in `paths`", "with --path"),
    (r"`show` with tx (\d+)", r"`editctl show \1`"),
    (r" Paths are relative to the workspace's root\.", ""),
    (r"`delete`", "`editctl rm`"),
    (r"`(session|lease)[._](\w+)`", r"`editctl \1 \2`"),
    (r"`(log|read|restore|status|write)`", r"`editctl \1`"),
)


def print_refusal(error: EditdError, *, as_json: bool) -> None:
    """Print the refusal and the next step on standard error, or as a JSON document."""
    if as_json:
        _say_json_error(error.code, error.name, error.message, error.data)
        return
    message = error.message.removesuffix(error.hint).rstrip()
    print_error(_title("editctl: ", "red") + plain(message, but="\n\t"))
    _tell_hint(error.hint)
    for line in _particulars(error):
        print_error(line)


def print_unreachable(error: Unreachable, *, as_json: bool) -> None:
    """Print that there is no daemon, in the same two forms."""
    if as_json:
        _say_json_error(None, "unreachable", f"{error.message} {error.hint}".strip(), {})
        return
    print_error(_title("editctl: ", "red") + plain(error.message))
    _tell_hint(error.hint)


def _tell_hint(hint: str) -> None:
    for spoken, at_the_shell in AT_THE_SHELL:
        hint = re.sub(spoken, at_the_shell, hint)
    if hint:
        print_error(_title("hint: ", "yellow") + plain(hint, but="\n\t"))


def _particulars(error: EditdError) -> Iterator[str]:
    """Yield the part of a refusal's data for a person."""
    data = error.data
    if error.name == "stale":
        yield from _changes_since(data)
    if error.name == "conflict":
        for file in data.get("files", ()):
            yield from _collisions(file)
    nearest = data.get("nearest")
    if isinstance(nearest, dict):
        yield f"nearest passage, line {nearest.get('start_line')}:"
        yield from ("  " + plain(line, but="\t") for line in str(nearest.get("text", "")).splitlines())


def _collisions(file: dict[str, Any]) -> Iterator[str]:
    """Yield the blocking transactions of a file, and the lines in conflict."""
    blocking = ", ".join(str(seq) for seq in file.get("blocking", ()))
    yield f"  {plain(str(file.get('path')))}" + (f": changed since by {blocking}" if blocking else "")
    for hunk in file.get("hunks", ()):
        yield from diff_lines(hunk, sys.stderr)


def _changes_since(data: dict[str, Any]) -> Iterator[str]:
    """Yield the transactions since the base of a stale edit, and their diff."""
    from editd.wire.codec import convert
    from editd.wire.messages import Transaction

    for transaction in convert(data.get("changed_by", []), list[Transaction]):
        yield f"changed by {one_line(transaction, sys.stderr)}"
    yield from diff_lines(data.get("diff") or "", sys.stderr)


def _title(word: str, colour: str) -> str:
    return paint(word, colour, bold=True, stream=sys.stderr)


def _say_json_error(code: int | None, name: str, message: str, data: dict[str, Any]) -> None:
    echo(json_text({"error": {"code": code, "name": name, "message": message, "data": data}}))
