"""A tool call's arguments and its result, between the models' forms and the protocol's.

Arguments: any form with one plain meaning is accepted, others are refused. Models send a list as JSON text,
one edit in place of a list, or a number in quotes. An unknown name is never ignored: the refusal lists the
valid names and the nearest.

Results: a short text for the model, and the same as data for programs. A client may show its model either of
them, so each has all important facts. Texts that are not UTF-8 are `{"base64": …}` in the data, as in the
protocol, and have `�` in the text.
"""

from __future__ import annotations

import io
import json
import re
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from editd.wire import messages
from editd.wire.codec import convert, encode_json, plain
from editd.wire.messages import Transaction
from editd.words import Face, in_the_way, sentence
from editd_client.cli.output import LETTERS, one_line
from editd_client.errors import refusal, shorten
from editd_client.file_text import readable, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from editd.wire.messages import (
        ApplyResult,
        BlameLine,
        BlameResult,
        Change,
        DiffResult,
        FileResult,
        HeldBy,
        LeaseAcquireResult,
        LeaseListResult,
        LogResult,
        ProposalWaitResult,
        ReadResult,
        UndoResult,
    )  # fmt: skip
    from editd_client.errors import EditdError, Unreachable

EDITS: dict[str, type[messages.Edit]] = {
    "replace": messages.Replace,
    "write": messages.Write,
    "patch": messages.Patch,
    "delete": messages.Delete,
    "move": messages.Move,
    "chmod": messages.Chmod,
}
"""The operations of `apply_edits`, by name."""

SYNONYMS = {
    "create": "write", "add": "write", "overwrite": "write", "insert": "replace", "edit": "replace",
    "update": "replace", "modify": "replace", "str_replace": "replace", "search_replace": "replace",
    "remove": "delete", "rm": "delete", "rename": "move", "mv": "move", "diff": "patch",
    "apply_patch": "patch", "old_string": "old", "old_str": "old", "old_text": "old", "search": "old",
    "new_string": "new", "new_str": "new", "new_text": "new", "file": "path", "file_path": "path",
    "filename": "path", "text": "content", "contents": "content", "destination": "to", "new_path": "to",
    "start": "start_line", "end": "end_line",
}  # fmt: skip
"""Other systems' names for editd's arguments, which models use."""

SIMILARITY = 0.6

Typed = TypeVar("Typed", bound=messages.Params)


def check_arguments(tool: str, schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of editd's own tool, in the form of its schema.

    Raises EditdError (`invalid_params`) for an unknown or missing name.
    """
    known = schema["properties"]
    arguments = {name: value for name, value in values.items() if value is not None}  # null means left out
    for name in arguments:
        if name not in known:
            hint = f"It takes {', '.join(known) or 'no argument'}."
            raise _refusal(f"{tool} has no argument `{name}`.", name, hint=nearest(name, known) + hint)
    for name in schema.get("required", ()):
        if name not in arguments:
            raise _refusal(f"{tool} needs the argument `{name}`.", name)
    return {name: _fit(value, known[name]) for name, value in arguments.items()}


def edits_of(edits: object, schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the edits of a call, with operations and fields checked against `schema`, for one edit.

    Raises EditdError (`invalid_params`) with the valid names and the nearest.
    """
    if not isinstance(edits, list):
        raise _refusal("`edits` must be a list of edits.", "edits", hint=_ops())
    return [_edit(edit, f"edits[{number}]", schema["properties"]) for number, edit in enumerate(edits)]


def to_request(arguments: Mapping[str, Any], kind: type[Typed]) -> Typed:
    """Return the arguments as that request. Raises EditdError (`invalid_params`) with the field's name."""
    try:
        return convert(arguments, kind)
    except msgspec.ValidationError as error:
        fact, _, path = str(error).partition(" - at `$.")
        field = path.removesuffix("`")
        where = f" (argument `{field}`)" if field else ""
        raise _refusal(f"{fact}{where}.", field) from None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, and a space; empty if none is near."""
    names = list(known)
    near = [SYNONYMS[name]] if SYNONYMS.get(name) in names else get_close_matches(name, names, 1, SIMILARITY)
    return f"Did you mean `{near[0]}`? " if near else ""


def _edit(sent: object, where: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    edit = _from_json(sent)
    if not isinstance(edit, dict):
        raise _refusal(f"`{where}` must be an object with `op`.", where, hint=_ops())
    op = edit.get("op")
    if not isinstance(op, str) or op not in EDITS:
        fact = (
            f"There is no operation {op!r}, as in `{where}.op`."
            if "op" in edit
            else f"`{where}` has no `op`."
        )
        hint = nearest(op, EDITS) if isinstance(op, str) else ""
        raise _refusal(fact, f"{where}.op", hint=hint + _ops())
    fields = {field.encode_name: field.required for field in msgspec.structs.fields(EDITS[op])}
    shown = [name for name in properties if name in fields]
    # Null means left out, but a null `base` means that there is no such file.
    edit = {name: value for name, value in edit.items() if value is not None or name not in properties}
    for name in edit:
        if name != "op" and name not in fields:
            hint = f"{nearest(name, shown)}The operation {op} takes {', '.join(shown)}."
            raise _refusal(f"`{where}`: {op} has no field `{name}`.", f"{where}.{name}", hint=hint)
    for name, is_required in fields.items():
        if is_required and name not in edit:
            hint = f"The operation {op} takes {', '.join(shown)}."
            raise _refusal(f"`{where}`: {op} needs `{name}`.", f"{where}.{name}", hint=hint)
    return {name: _fit(value, properties.get(name, {})) for name, value in edit.items()}


def _fit(value: object, schema: Mapping[str, Any]) -> object:
    """Return the value in the type of its schema, if its text or its shape makes that clear."""
    match schema.get("type"), value:
        case "array", str():
            content = _from_json(value)
            is_text = content is value and schema.get("items", {}).get("type") == "string"
            return [content] if is_text or isinstance(content, dict) else content
        case "array", dict():
            return [value]
        case "integer", str() if re.fullmatch(r"-?\d{1,18}", value):
            return int(value)
        case "integer", float() if value.is_integer():
            return int(value)
        case "number", str() if re.fullmatch(r"-?\d{1,18}(\.\d{1,9})?", value):
            return float(value)
        case "boolean", "true" | "True" | "false" | "False":
            return value in ("true", "True")
        case _:
            return value


def _from_json(value: object) -> object:
    """Return the object or list that a text holds as JSON; otherwise the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            document = json.loads(value)
            json.dumps(document, ensure_ascii=False).encode()
            return plain(document, from_json=True)
        except UnicodeEncodeError as error:
            raise _refusal(
                f"A text has half of a surrogate pair, \\u{ord(error.object[error.start]):04x}.", "",
                hint="Send both halves, or the character itself.",
            ) from None  # fmt: skip
        except (ValueError, RecursionError):
            return value
    return value


def _ops() -> str:
    return f"The operations are {', '.join(EDITS)}."


def _refusal(message: str, field: str, *, hint: str = "") -> EditdError:
    return refusal("invalid_params", message, hint=hint, data={"field": field} if field else {})


def unknown_name(kind: str, name: str, known: Sequence[str]) -> EditdError:
    """Return the refusal of an unknown name of this kind."""
    hint = f"{nearest(name, known)}There are {', '.join(known)}."
    return refusal("invalid_params", f"There is no {kind} {name!r}.", hint=hint)


DIFF_CHARACTERS_MAX = 50_000  # some 15,000 tokens; a larger diff has to be requested by path
REFUSAL_CHARACTERS_MAX = 4_000  # of a diff or a passage that explains a refusal
FILES_MAX = 10  # named in a question
PLAIN = io.StringIO()  # a stream that is no terminal, so without colours


class ToolResult(Struct, frozen=True):
    """One text or several, the data, and whether it is a refusal."""

    texts: tuple[str, ...]
    data: dict[str, Any]
    is_refusal: bool = False


def answer(*texts: str, **data: Any) -> ToolResult:
    """Return a result with these texts and this data, in a form that every JSON parser accepts."""
    return ToolResult(tuple(map(readable, texts)), json.loads(encode_json(data)))


# ── Done ──────────────────────────────────────────────────────────────────────────────────────


def proposal(result: ProposalWaitResult) -> ToolResult:
    """Return the state of a proposal, with what has landed of it and the reviewers' words."""
    seqs = [made.seq for made in result.transactions]
    text = [f"Proposal {result.proposal.proposal} is {_STATES.get(result.state, result.state)}."]
    text += [one_line(made, PLAIN) for made in result.transactions]
    text += _review_lines(result.reviewer_diff, result.comments)
    return answer(
        "\n".join(text),
        proposal=result.proposal.proposal,
        state=result.state,
        view=result.proposal.view,
        transaction=seqs[-1] if seqs else None,
        files=[_file(file) for file in result.files],
        comments=result.comments,
        reviewer_diff=_cut(result.reviewer_diff, DIFF_CHARACTERS_MAX),
    )


def edit_result(result: ApplyResult, *, is_dry_run: bool = False, says: str | None = None) -> ToolResult:
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
    if changed := [{"path": file.path, **_maker(tx)} for file in result.files for tx in _changers_of(file)]:
        data["changed_by"] = changed
    if is_dry_run:
        data["diff"] = _cut(_diff_of(result.files), DIFF_CHARACTERS_MAX)
    if isinstance(result.proposal, messages.ProposedResult):
        data |= {name: getattr(result.proposal, name) for name in ("proposal", "state", "view")}
    if says is not None:
        spoken = "\n".join((*_news(result.files), *_warning_lines(warnings)))
        return answer(says, *([spoken] if spoken else []), **data)
    return answer("\n".join(_report(result, warnings, is_dry_run=is_dry_run)), **data)


def undo_result(result: UndoResult, *, is_dry_run: bool) -> ToolResult:
    """Return the effect of an undo, a redo or a rollback, or the conflicts of a dry run."""
    conflicts = result.conflicts if isinstance(result.conflicts, list) else []
    effect = edit_result(result, is_dry_run=is_dry_run)
    if isinstance(result.by_time, list) and result.by_time:
        by_time = [f"Found while a command ran: {one.path} in {one.seq}." for one in result.by_time]
        effect = answer("\n".join((*effect.texts, *by_time)), **effect.data, by_time=result.by_time)
    if not conflicts:
        return effect
    lines = [
        f"{one.path}, {in_the_way(one.blocking)}"
        + (f"; undo {_numbers(one.needs)} first." if one.needs else ".")
        for one in conflicts
    ]
    return answer("\n".join((*effect.texts, *lines)), **effect.data, conflicts=conflicts)


def content(result: ReadResult, start_line: int | None, end_line: int | None) -> ToolResult:
    """Return a file: one text about it, and one with its content."""
    facts = [result.path, f"version {result.version}", f"{result.size} bytes"]
    facts += [_lines(result, start_line or 1, end_line)] if start_line or end_line else []
    facts += [f"encoding {result.encoding}"] if result.encoding not in (None, "utf-8") else []
    facts += ["symlink"] if result.kind == "symlink" else []
    facts += [f"line ends {result.eol}"] if result.eol in ("crlf", "cr", "mixed") else []
    data = {name: getattr(result, name) for name in ("path", "version", "size", "encoding", "eol")}
    text = data["content"] = text_of(result)
    if isinstance(result.lines, int):
        data["lines"] = result.lines
    told = ", ".join(facts)
    if isinstance(result.unsaved, list):
        data["unsaved"] = result.unsaved
        told += (
            f"\nThere are unsaved changes in {' and '.join(map(_holder, result.unsaved))}; this is the file."
        )
    return answer(told, text, **data)


def _holder(held: HeldBy) -> str:
    """Return who holds a file unsaved, with up to ten ranges of lines."""
    lines = held.lines if isinstance(held.lines, list) else []
    ranges = [sorted({one.start_line, one.end_line}) for one in lines[:10]]
    shown = ", ".join("-".join(map(str, ends)) for ends in ranges)
    word = "line" if shown.isdigit() else "lines"
    return f"{held.client} ({word} {shown})" if shown else held.client


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


def line(transaction: Transaction) -> str:
    """Return a transaction in one line."""
    return one_line(transaction, PLAIN)


def transaction(made: Transaction, diff: str) -> str:
    """Return a transaction with its changes."""
    files = [f" {LETTERS[file.change]} {_path_text(file)}" for file in made.files]
    return readable("\n".join([line(made), *files, "", _cut(diff, DIFF_CHARACTERS_MAX)]).rstrip() + "\n")


def diff(result: DiffResult) -> ToolResult:
    shown = readable(_cut(result.diff, DIFF_CHARACTERS_MAX))
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


def lease(result: LeaseAcquireResult, title: str) -> ToolResult:
    text = f"{title} {result.lease}, until {result.expires}."
    return answer(text, lease=result.lease, token=result.token, expires=result.expires)


def leases(result: LeaseListResult) -> ToolResult:
    lines = [f"{it.lease} {it.session}: {' '.join(it.paths)}, until {it.expires}" for it in result.leases]
    return answer("\n".join(lines) or "No leases.", leases=result.leases, waiting=result.waiting)


# ── Refused ───────────────────────────────────────────────────────────────────────────────────


def refusal_result(error: EditdError) -> ToolResult:
    """Return a refusal: its message, and the data that helps with the next try."""
    message = error.text(Face.MCP)
    text = "\n".join((message, *_particulars(error)))
    details = {name: value for name, value in error.data.items() if name != "advice"}
    if error.hint:
        details["hint"] = sentence(error.advice, Face.MCP)
    data = answer(error=error.name, code=error.code, message=message, data=details).data
    return ToolResult((readable(text),), data, is_refusal=True)


def question(outcome: ToolResult) -> str | None:
    """Return the reason of a refusal that a person may override: the work is another author's."""
    data = outcome.data.get("data")
    is_others = isinstance(data, dict) and {"seq", "by", "session"} <= set(data)
    is_refused = outcome.is_refusal and outcome.data.get("error") == "permission_denied"
    return str(outcome.data["message"]) if is_refused and is_others else None


def files_of(preview: ToolResult) -> str:
    """Return the files that a dry run would change, in a line."""
    return shorten([str(file["path"]) for file in preview.data.get("files", ())], FILES_MAX)


def unreachable(error: Unreachable) -> ToolResult:
    """Return the result if no daemon answers; the call may or may not have been carried out."""
    text = error.text(Face.MCP)
    data = answer(error="unreachable", code=None, message=text, data={}).data
    return ToolResult((readable(text),), data, is_refusal=True)


def _particulars(error: EditdError) -> Iterator[str]:
    data = error.data
    if error.name == "stale":
        for transaction in convert(data.get("changed_by", []), list[Transaction]):
            yield f"Changed by {one_line(transaction, PLAIN)}"
        yield from _passage(data.get("diff"))
    if error.name == "conflict":
        for file in data.get("files", ()):
            blocking = file.get("blocking", ())
            yield f"{file.get('path')}" + (f", {in_the_way(blocking)}" if blocking else "")
    nearest = data.get("nearest")
    if isinstance(nearest, dict):
        yield f"Nearest passage, line {nearest.get('start_line')}:"
        yield from _passage(nearest.get("text"))


def _passage(text: object) -> Iterator[str]:
    if isinstance(text, str) and text:
        yield _cut(text, REFUSAL_CHARACTERS_MAX)


# ── Parts of the results ──────────────────────────────────────────────────────────────────────


def _report(result: ApplyResult, warnings: Sequence[str], *, is_dry_run: bool) -> Iterator[str]:
    waiting = result.proposal if isinstance(result.proposal, messages.ProposedResult) else None
    if is_dry_run:
        yield "Dry run: nothing was changed."
        if isinstance(result.would_propose, messages.ProposedResult):
            yield f"This would wait for review (rule: {result.would_propose.rule})."
    elif waiting is not None and result.transaction is None:
        yield _waits(waiting)
        yield from _warning_lines(warnings)
        return
    elif result.transaction is None:
        yield "Nothing to change."
    else:
        yield one_line(result.transaction, PLAIN)
    for file in result.files:
        if file.change is not None:
            yield f" {LETTERS[file.change]} {_path_text(file)}"
    yield from _approval(result)
    yield from (f"Merged with the current content: {path}" for path in result.merged)
    yield from _news(result.files)
    yield from _warning_lines(warnings)
    if is_dry_run:
        yield from _passage(_cut(_diff_of(result.files), DIFF_CHARACTERS_MAX))


def _waits(waiting: messages.ProposedResult) -> str:
    number = waiting.proposal
    checks = ", ".join(waiting.lands_after)
    itself = f"It lands by itself once {checks} has passed. " if checks else ""
    return (
        f"Proposal {number} waits for review (rule: {waiting.rule}). Nothing is written. {itself}Go on with "
        f'other work; proposal_status {{"proposal": {number}, "wait": 50}} tells more.'
    )


def _approval(result: ApplyResult) -> Iterator[str]:
    """Yield who approved an edit that had waited, and what the reviewer changed."""
    by = result.approved_by
    if not isinstance(by, messages.ApprovedBy):
        return
    if by.actor is None:
        if isinstance(result.proposal, messages.ProposedResult):
            yield f"The rule {by.rule} let it land after its check."
        return
    changed = result.reviewer_diff if isinstance(result.reviewer_diff, str) else ""
    yield f"Approved by {by.actor} with changes:" if changed else f"Approved by {by.actor}."
    yield from _review_lines(changed, result.comments if isinstance(result.comments, list) else [])


def _review_lines(changed: str, comments: Iterable[messages.ReviewComment]) -> Iterator[str]:
    """Yield the reviewer's diff, and the comments."""
    yield from _passage(changed)
    for comment in comments:
        where = f" on {comment.path}" if comment.path else ""
        yield f"{comment.by.actor}{where}: {comment.text}"


_STATES = {
    "open": "open: not decided yet",
    "draft": "a draft",
    "partly": "decided: a part of it has landed, and the rest was rejected",
    "moot": "settled: others have made all of its changes",
}


def _warning_lines(warnings: Iterable[str]) -> Iterator[str]:
    return (f"Warning: {warning}" for warning in warnings)


def _news(files: Iterable[FileResult]) -> Iterator[str]:
    """Yield the changes by others since the files were read; the edit keeps them."""
    for file in files:
        for transaction in _changers_of(file):
            yield f"{file.path} was changed since you read it, by {one_line(transaction, PLAIN)}"


def _changers_of(file: FileResult) -> Sequence[Transaction]:
    return file.changed_by if isinstance(file.changed_by, list) else ()


def _maker(transaction: Transaction) -> dict[str, Any]:
    return {name: getattr(transaction, name) for name in ("seq", "kind", "actor", "session", "message")}


def _path_text(file: FileResult | Change) -> str:
    return f"{file.from_} -> {file.path}" if isinstance(file.from_, str) else file.path


def _file(file: FileResult | Change) -> dict[str, Any]:
    entry = {"path": file.path, "change": file.change, "version": file.version}
    return {**entry, "from": file.from_} if isinstance(file.from_, str) else entry


def _entry(transaction: Transaction) -> dict[str, Any]:
    names = ("seq", "kind", "actor", "session", "message", "time", "undoes", "undone_by")
    entry = {name: getattr(transaction, name) for name in names}
    return {**entry, "files": [{"path": file.path, "change": file.change} for file in transaction.files]}


def _diff_of(files: Iterable[FileResult]) -> str:
    return readable("".join(file.diff for file in files if isinstance(file.diff, str)))


def _ranges(lines: Iterable[BlameLine]) -> Iterator[dict[str, Any]]:
    for (seq, actor, session, time), group in groupby(
        lines, key=lambda line: (line.seq, line.actor, line.session, line.time)
    ):
        numbers = [line.line for line in group]
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
