"""The result of a tool call: a short text for the model, and the same as data for programs.

A client may show its model either of them, so each has all important facts. Texts that are not
UTF-8 are `{"base64": …}` in the data, as in the protocol, and have `�` in the text.
"""

from __future__ import annotations

import io
import json
import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.wire.codec import convert, encode_json
from editd.wire.messages import Transaction
from editd_client.cli.output import LETTERS, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from editd.wire.messages import (
        ApplyResult,
        BlameLine,
        BlameResult,
        Change,
        DiffResult,
        FileResult,
        LeaseAcquireResult,
        LeaseListResult,
        LogResult,
        ReadResult,
        UndoResult,
    )  # fmt: skip
    from editd_client.errors import EditdError, Unreachable

DIFF_CHARACTERS_MAX = 50_000  # some 15,000 tokens; a larger diff has to be requested by path
REFUSAL_CHARACTERS_MAX = 4_000  # of a diff or a passage that explains a refusal
IN_OUR_TOOLS = (
    # words of a refusal for a program, and their replacement for a model
    (r"on_conflict: force", "force: true"),
    (r", or use on_conflict: skip to undo only what fits", ""),
    (r"on_stale: merge", 'on_stale: "merge"'),
    (r"[Rr]ead it and give its version as base, or use force to overwrite any content",
     "Read it with read_file first"),
    (r"Read it and give its version as base, or edit it", "Read it with read_file, and edit it"),
    (r"Choose another path, or use overwrite", "Choose another path, or delete that file in the same call"),
    (r"Give its version as base to put the link in its place", "Delete it in the same call"),
    (r"Leave own_only out to undo the work of others, too",
     "Ask the user to run `editctl undo`, or to start the server with `editctl mcp --may-undo-others`"),
    (r"It was opened with `unread: reject`", "It has to read a file before it edits it"),
    (r"`lease\.list`", "`lease` with action: list"),
    (r"`lease\.acquire` with `wait`", "`lease` with action: acquire and `wait`"),
    (r"`show` with tx \d*", "`log`"),
    (r"Use `write` to", "Use `apply_edits` with op: write to"),
    (r"`write` makes a file", "`apply_edits` with op: write makes a file"),
    (r"with `(write|delete)`", r"with op: \1"),
    (r"as `read` and `stat` give it", "as read_file gives it"),
    (r"`hello \{session, token\}`", "EDITD_SESSION and EDITD_TOKEN in the server's environment"),
    (r"(Attach it with|Give) the token that `session\.open` returned: ", "Give the token of the session: "),
    (r"Open it with `session\.open`.*|`session\.open` opens .*", "Start the server again."),
)  # fmt: skip
PLAIN = io.StringIO()  # a stream that is no terminal, so without colours


class ToolResult(Struct, frozen=True):
    """One text or several, the data, and whether it is a refusal."""

    texts: tuple[str, ...]
    data: dict[str, Any]
    is_refusal: bool = False


def answer(*texts: str, **data: Any) -> ToolResult:
    """Return a result with these texts and this data, in a form that every JSON parser accepts."""
    return ToolResult(tuple(map(_readable, texts)), json.loads(encode_json(data)))


# ── Done ──────────────────────────────────────────────────────────────────────────────────────


def applied(result: ApplyResult, *, is_dry_run: bool = False, says: str | None = None) -> ToolResult:
    """Return the result of an edit.

    `says` is the reply of a dialect's tool in its own words, and the first text. The second has the
    warnings, and the authors of changes since the files were read.
    """
    data: dict[str, Any] = {} if says is None else {"answer": says}
    data["transaction"] = None if result.transaction is None else result.transaction.seq
    data["files"] = [_file(file) for file in result.files]
    if result.merged:
        data["merged"] = result.merged
    warnings = [*result.warnings, *(warning for file in result.files for warning in file.warnings)]
    if warnings:
        data["warnings"] = warnings
    if changed := [{"path": file.path, **_maker(tx)} for file in result.files for tx in _changed_by(file)]:
        data["changed_by"] = changed
    if is_dry_run:
        data["diff"] = _cut(_diff_of(result.files), DIFF_CHARACTERS_MAX)
    if says is not None:
        spoken = "\n".join((*_news(result.files), *_spoken(warnings)))
        return answer(says, *([spoken] if spoken else []), **data)
    return answer("\n".join(_report(result, warnings, is_dry_run=is_dry_run)), **data)


def undone(result: UndoResult, *, is_dry_run: bool) -> ToolResult:
    """Return the effect of an undo, a redo or a rollback, or the conflicts of a dry run."""
    conflicts = result.conflicts if isinstance(result.conflicts, list) else []
    found = applied(result, is_dry_run=is_dry_run)
    if not conflicts:
        return found
    in_the_way = [
        f"In the way in {one.path}: {_numbers(one.blocking)}"
        + (f"; undo {_numbers(one.needs)} first." if one.needs else ".")
        for one in conflicts
    ]
    return answer("\n".join((*found.texts, *in_the_way)), **found.data, conflicts=conflicts)


def content(result: ReadResult, start_line: int | None, end_line: int | None) -> ToolResult:
    """Return a file: one text about it, and one with its content."""
    facts = [result.path, f"version {result.version}", f"{result.size} bytes"]
    facts += [_lines(result, start_line or 1, end_line)] if start_line or end_line else []
    facts += ["not text"] if result.encoding is None else []
    facts += ["symlink"] if result.kind == "symlink" else []
    facts += [f"line ends {result.eol}"] if result.eol in ("crlf", "cr", "mixed") else []
    data = {name: getattr(result, name) for name in ("path", "version", "size", "encoding", "eol", "content")}
    if isinstance(result.lines, int):
        data["lines"] = result.lines
    return answer(", ".join(facts), result.content, **data)


def _lines(result: ReadResult, first: int, last: int | None) -> str:
    """Return the range of the lines, and their total number."""
    total = result.lines if isinstance(result.lines, int) else 0
    if first > total:
        return f"line {first} is past the end: it has {total} line{'' if total == 1 else 's'}"
    end = total if last is None else min(last, total)
    return f"line {first} of {total}" if first == end else f"lines {first}-{end} of {total}"


def log(result: LogResult) -> ToolResult:
    lines = [one_line(transaction, PLAIN) for transaction in result.transactions] or ["No transactions."]
    if result.more:
        lines.append(f"There are older ones: before={result.transactions[-1].seq}.")
    entries = [_entry(transaction) for transaction in result.transactions]
    return answer("\n".join(lines), transactions=entries, more=result.more)


def diff(result: DiffResult) -> ToolResult:
    shown = _cut(result.diff, DIFF_CHARACTERS_MAX)
    files = [_file(file) for file in result.files]
    return answer(shown or "No differences.", diff=shown, files=files)


def blame(path: str, result: BlameResult, start_line: int | None, end_line: int | None) -> ToolResult:
    """Return the authors of the lines, with neighbours of one transaction joined."""
    wanted = [line for line in result.lines if (start_line or 1) <= line.line <= (end_line or line.line)]
    ranges = list(_ranges(wanted))
    lines = [
        f"{one['start_line']}-{one['end_line']}: {one['seq']} {one['actor']}"
        + (f" in {one['session']}" if one["session"] else "")
        + f", {one['time'][:19]}Z"
        for one in ranges
    ]
    return answer("\n".join(lines) or "No lines.", path=path, version=result.version, lines=ranges)


def lease(result: LeaseAcquireResult, what: str) -> ToolResult:
    text = f"{what} {result.lease}, until {result.expires}."
    return answer(text, lease=result.lease, token=result.token, expires=result.expires)


def leases(result: LeaseListResult) -> ToolResult:
    lines = [f"{it.lease} {it.session}: {' '.join(it.paths)}, until {it.expires}" for it in result.leases]
    return answer("\n".join(lines) or "No leases.", leases=result.leases, waiting=result.waiting)


# ── Refused ───────────────────────────────────────────────────────────────────────────────────


def refused(error: EditdError) -> ToolResult:
    """Return a refusal: its message, and the data that helps with the next try."""
    message = spoken_here(error.message)
    text = "\n".join((message, *_particulars(error)))
    details = {**error.data, "hint": spoken_here(error.hint)} if error.hint else error.data
    data = answer(error=error.name, code=error.code, message=message, data=details).data
    return ToolResult((_readable(text),), data, is_refusal=True)


def spoken_here(text: str) -> str:
    """Return a refusal's text with the tools and arguments of MCP in place of the protocol's."""
    for spoken, here in IN_OUR_TOOLS:
        text = re.sub(spoken, here, text)
    return text


def unreachable(error: Unreachable) -> ToolResult:
    """Return the result if no daemon answers; the call may or may not have been carried out."""
    text = f"{error.message} {error.hint}".strip()
    data = answer(error="unreachable", code=None, message=text, data={}).data
    return ToolResult((_readable(text),), data, is_refusal=True)


def _particulars(error: EditdError) -> Iterator[str]:
    data = error.data
    if error.name == "stale":
        for transaction in convert(data.get("changed_by", []), list[Transaction]):
            yield f"Changed by {one_line(transaction, PLAIN)}"
        yield from _passage(data.get("diff"))
    if error.name == "conflict":
        for file in data.get("files", ()):
            blocking = file.get("blocking", ())
            yield f"{file.get('path')}" + (f": in the way are {_numbers(blocking)}" if blocking else "")
    nearest = data.get("nearest")
    if isinstance(nearest, dict):
        yield f"Nearest passage, line {nearest.get('start_line')}:"
        yield from _passage(nearest.get("text"))


def _passage(text: object) -> Iterator[str]:
    if isinstance(text, str) and text:
        yield _cut(text, REFUSAL_CHARACTERS_MAX)


# ── Parts of the results ──────────────────────────────────────────────────────────────────────


def _report(result: ApplyResult, warnings: Sequence[str], *, is_dry_run: bool) -> Iterator[str]:
    if is_dry_run:
        yield "Dry run: nothing was changed."
    elif result.transaction is None:
        yield "Nothing to change."
    else:
        yield one_line(result.transaction, PLAIN)
    for file in result.files:
        if file.change is not None:
            yield f" {LETTERS[file.change]} {_moved(file)}"
    yield from (f"Merged with the current content: {path}" for path in result.merged)
    yield from _news(result.files)
    yield from _spoken(warnings)
    if is_dry_run:
        yield from _passage(_cut(_diff_of(result.files), DIFF_CHARACTERS_MAX))


def _spoken(warnings: Iterable[str]) -> Iterator[str]:
    return (f"Warning: {warning}" for warning in warnings)


def _news(files: Iterable[FileResult]) -> Iterator[str]:
    """Yield the changes by others since the files were read; the edit keeps them."""
    for file in files:
        for transaction in _changed_by(file):
            yield f"{file.path} was changed since you read it, by {one_line(transaction, PLAIN)}"


def _changed_by(file: FileResult) -> Sequence[Transaction]:
    return file.changed_by if isinstance(file.changed_by, list) else ()


def _maker(transaction: Transaction) -> dict[str, Any]:
    return {name: getattr(transaction, name) for name in ("seq", "kind", "actor", "session", "message")}


def _moved(file: FileResult | Change) -> str:
    return f"{file.from_} -> {file.path}" if isinstance(file.from_, str) else file.path


def _file(file: FileResult | Change) -> dict[str, Any]:
    said = {"path": file.path, "change": file.change, "version": file.version}
    return {**said, "from": file.from_} if isinstance(file.from_, str) else said


def _entry(transaction: Transaction) -> dict[str, Any]:
    names = ("seq", "kind", "actor", "session", "message", "time", "undoes", "undone_by")
    said = {name: getattr(transaction, name) for name in names}
    return {**said, "files": [{"path": file.path, "change": file.change} for file in transaction.files]}


def _diff_of(files: Iterable[FileResult]) -> str:
    return "".join(file.diff for file in files if isinstance(file.diff, str))


def _ranges(lines: Iterable[BlameLine]) -> Iterator[dict[str, Any]]:
    for (seq, actor, session, time), found in groupby(
        lines, key=lambda line: (line.seq, line.actor, line.session, line.time)
    ):
        numbers = [line.line for line in found]
        yield {
            "start_line": numbers[0], "end_line": numbers[-1],
            "seq": seq, "actor": actor, "session": session, "time": time,
        }  # fmt: skip


def _numbers(seqs: Iterable[int]) -> str:
    return ", ".join(map(str, seqs)) or "nothing"


def _cut(text: str, characters_max: int) -> str:
    if len(text) <= characters_max:
        return text
    left_out = len(text) - characters_max
    return f"{text[:characters_max]}\n… {left_out} more characters: ask for fewer paths"


def _readable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
