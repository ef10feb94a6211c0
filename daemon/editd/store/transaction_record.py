"""The commit of a transaction: its message, its identities and its objects. See `journal_record`, too.

The message of a commit is text for `git log`, and its last paragraph is editd's, for any message of the
author: `Key: value` lines as in git-interpret-trailers. A value that is not plain printable text is
written as JSON.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.store.git_objects import Oid, commit_content, object_id
from editd.values.content import Change, Entry, FileState
from editd.values.path import WorkspacePath
from editd.values.transaction import (
    Approval,
    Arrival,
    Attribution,
    Authorship,
    CommitId,
    Part,
    Seq,
    Transaction,
    TurnMark,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.wire.messages import Kind


_PLAIN = re.compile(r"[ -!#-\[\]-~\u00a1-\ud7ff\ue000-\U0010ffff]+")  # printable, no quote, no backslash
_TURN_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_IDENT = re.compile(r"[<>\n\r\0]")
_FIRST_SCAN = "First-Scan"
_APPROVED = ("Approved-By", "Approved-Session", "Approved-Rule")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERBS = {"added": "add", "modified": "edit", "deleted": "delete", "renamed": "move", "mode": "chmod"}
EDITD = "editd <editd@editd.invalid>"  # the committer of all; the author is the actor
SUBJECT_CHARACTERS = 72  # the limit of a subject line in git's own documentation


class ParsedMessage(Struct, frozen=True):
    """The part of a transaction that its commit message records."""

    seq: Seq
    kind: Kind
    authorship: Authorship
    time_us: int
    undoes: tuple[Seq, ...]
    parts: tuple[Part, ...]  # for those in `undoes` that are undone only in part: these paths
    moves: tuple[tuple[str, str], ...]  # from, to
    permissions: tuple[tuple[str, int], ...]  # of paths whose bits git's mode does not record
    notes: str
    claims: tuple[Seq, ...] = ()
    is_first_scan: bool = False  # the rest of the baseline, whose files count as there from the beginning


def compose(
    seq: int,
    kind: Kind,
    authorship: Authorship,
    time_us: int,
    touches: Sequence[Change[Entry]],
    undoes: Sequence[int],
    notes: str = "",
    parts: Sequence[Part] = (),
    claims: Sequence[int] = (),
) -> str:
    """Return the whole message; without an author's message its subject is a summary."""
    body = authorship.message.replace("\0", "").strip("\n") or summary(kind, touches, undoes)
    lines = [f"Seq: {seq}", f"Kind: {kind}", f"Actor: {_value(authorship.actor)}"]
    if authorship.message == "":
        lines.append("Message: none")
    elif body != authorship.message:
        lines.append(f"Message: {_json(authorship.message)}")
    if authorship.session is not None:
        lines.append(f"Session: {_value(authorship.session)}")
    if authorship.request_id is not None:
        lines.append(f"Request: {_value(authorship.request_id)}")
    lines += () if authorship.turn is None else _turn_trailers(authorship.turn)
    if authorship.approval is not None:
        lines += _approval_trailers(authorship.approval)
    if authorship.attribution is not None:
        lines.append("By: path" if authorship.attribution.is_by_path else "By: time")
        lines += [f"Candidate: {_value(name)}" for name in authorship.attribution.candidates]
    if authorship.arrival is not None:
        lines += _arrival_trailers(authorship.arrival)
    if undoes:
        lines += _undo_lines(undoes, parts)
    if claims:
        lines += [f"Claims: {claimed}" for claimed in claims]
    lines.append(f"Time: {rfc3339(time_us)}")
    for touch in touches:
        if touch.source is not None:
            lines.append(f"Moved: {_json([touch.source.text, touch.path.text])}")
        after = touch.after
        if after is not None and after.permissions not in (None, 0o644, 0o755, 0o777):
            lines.append(f"Permissions: {after.permissions:04o} {_value(touch.path.text)}")
    if notes:
        lines.append(f"Notes: {notes}")
    return body + "\n\n" + "\n".join(lines) + "\n"


def parse(message: str) -> ParsedMessage:
    """Read a message back. Raises ValueError if it is not one of editd's."""
    body, _, block = message.rstrip("\n").rpartition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in block.split("\n"):
        key, separator, value = line.partition(": ")
        if not separator:
            raise ValueError(f"not a trailer: {line!r}")
        fields.setdefault(key, []).append(value)
    try:
        message_field = fields.get("Message", [None])[0]
        text = body if message_field is None else "" if message_field == "none" else _read(message_field)
        return ParsedMessage(
            Seq(int(fields["Seq"][0])),
            fields["Kind"][0],  # type: ignore[arg-type]  # written by compose from a Kind
            Authorship(
                _read(fields["Actor"][0]),
                _read(fields["Session"][0]) if "Session" in fields else None,
                text,
                _read(fields["Request"][0]) if "Request" in fields else None,
                _approval(fields),
                _attribution(fields),
                _arrival(fields),
                _turn(fields),
            ),
            microseconds(fields["Time"][0]),
            tuple(dict.fromkeys(Seq(int(value.partition(" ")[0])) for value in fields.get("Undoes", []))),
            _parts(fields.get("Undoes", []), fields.get("Hunks", [])),
            tuple(map(_parse_move, fields.get("Moved", []))),
            tuple(
                (_read(path), int(bits, 8))
                for bits, _, path in (value.partition(" ") for value in fields.get("Permissions", []))
            ),
            fields.get("Notes", [""])[0],
            tuple(Seq(int(value)) for value in fields.get("Claims", [])),
            _FIRST_SCAN in fields,
        )
    except (KeyError, RecursionError) as error:
        raise ValueError(f"a trailer is missing, or cannot be read: {error}") from error


def compose_first_scan(seq: int, authorship: Authorship, time_us: int) -> str:
    """Return the message of the transaction that records the rest of the baseline (`store.first_scan`).

    An older editd ignores the last trailer, and lists each file of the commit as a change.
    """
    return compose(seq, "baseline", authorship, time_us, [], []) + f"{_FIRST_SCAN}: whole\n"


@functools.lru_cache(maxsize=256)
def ident(actor: str) -> str:
    """Return git's `Name <mail>` for an actor; RFC 2606 reserves the domain, so it has no owner."""
    name = _IDENT.sub("", actor).strip(" .,:;\"'\\") or "unknown"
    local = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or "unknown"
    return f"{name} <{local}@editd.invalid>"


def summary(kind: Kind, touches: Sequence[Change[Entry]], undoes: Sequence[int] = ()) -> str:
    """Return a subject for a transaction without a message: `edit src/main.c and 2 more`."""
    if undoes:
        seqs = ", ".join(map(str, undoes))
        return _short(f"{kind} {seqs}")
    if not touches:
        return kind
    names = touches if len(touches) == 1 else _without_sources(touches)
    first = names[0]
    act = _VERBS[first.kind]
    for touch in names[1:]:
        if _VERBS[touch.kind] != act:
            act = "edit"
            break
    shown = first.path.text
    if not shown.isprintable() or "\\" in shown:
        shown = shown.encode("unicode_escape", "surrogatepass").decode("ascii")
    prefix = "" if kind == "edit" else f"{kind}: "
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    text = f"{prefix}{act} {shown}{more}"
    return text if len(text) <= SUBJECT_CHARACTERS else _short(text.removesuffix(more), more)


def _without_sources(touches: Sequence[Change[Entry]]) -> Sequence[Change[Entry]]:
    """Return the touches without the old paths of moved files."""
    moved = {touch.source for touch in touches}
    return [touch for touch in touches if touch.after is not None or touch.path not in moved] or touches


@functools.lru_cache(maxsize=16)  # the commit, the reply and the event of a transaction have its time
def rfc3339(time_us: int) -> str:
    """Format the time as RFC 3339 in UTC with microseconds."""
    seconds, fraction = divmod(time_us, 1_000_000)
    return f"{_second(seconds)}.{fraction:06d}Z"


@functools.lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    """Format a second; cached, because strftime costs as much as hashing a file and edits come in bursts."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def microseconds(text: str) -> int:
    """Convert an RFC 3339 time to microseconds since the epoch. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _turn_trailers(turn: TurnMark) -> list[str]:
    """Return the trailers of an agent's turn."""
    lines = [f"Turn: {turn.number}"]
    return lines if turn.model is None else [*lines, f"Model: {_value(turn.model)}"]


def _turn(fields: Mapping[str, Sequence[str]]) -> TurnMark | None:
    """Parse the trailers of an agent's turn; None if there are none, or if they have another form."""
    number = fields.get("Turn", [""])[0]
    if _TURN_NUMBER.fullmatch(number) is None:
        return None
    try:
        return TurnMark(int(number), _read(fields["Model"][0]) if "Model" in fields else None)
    except ValueError:
        return TurnMark(int(number))


def _approval_trailers(approval: Approval) -> list[str]:
    """Return the trailers of an approval."""
    lines = []
    if approval.proposal is not None:
        hunks = ",".join(map(str, approval.hunks))
        lines.append(f"Proposal: {approval.proposal} {approval.revision} {hunks}")
    for key, text in zip(_APPROVED, (approval.actor, approval.session, approval.rule), strict=True):
        if text is not None:
            lines.append(f"{key}: {_value(text)}")
    if approval.is_modified:
        lines.append("Modified: by the reviewer")
    return lines


def _approval(fields: Mapping[str, Sequence[str]]) -> Approval | None:
    """Parse the trailers of an approval; None if there are none."""
    actor, session, rule = (_read(fields[key][0]) if key in fields else None for key in _APPROVED)
    is_modified = "Modified" in fields
    if "Proposal" not in fields:
        is_approved = actor is not None or rule is not None
        return Approval(None, None, (), actor, session, rule, is_modified) if is_approved else None
    number, revision, hunks = fields["Proposal"][0].split(" ")
    numbers = tuple(map(int, hunks.split(","))) if hunks else ()
    return Approval(int(number), int(revision), numbers, actor, session, rule, is_modified)


def _attribution(fields: Mapping[str, Sequence[str]]) -> Attribution | None:
    """Parse the trailers of an attribution; None if there are none."""
    if "By" not in fields:
        return None
    return Attribution(fields["By"][0] == "path", tuple(map(_read, fields.get("Candidate", []))))


def _arrival_trailers(arrival: Arrival) -> list[str]:
    """Return the trailers of a transaction that the log of all hosts has, too."""
    lines = [
        f"Number: {arrival.number}",
        f"Host: {_value(arrival.host)}",
        f"Made: {rfc3339(arrival.time_us)}",
    ]
    lines += [f"Shared: {_value(path)}" for path in arrival.shared]
    return lines if arrival.origin is None else [*lines, f"Origin: {arrival.origin}"]


def _arrival(fields: Mapping[str, Sequence[str]]) -> Arrival | None:
    """Parse the place in the log of all hosts; None if there is none."""
    if "Number" not in fields:
        return None
    origin = CommitId(fields["Origin"][0]) if "Origin" in fields else None
    return Arrival(
        int(fields["Number"][0]), _read(fields["Host"][0]), origin, microseconds(fields["Made"][0]),
        tuple(map(_read, fields.get("Shared", []))),
    )  # fmt: skip


def _undo_lines(undoes: Sequence[int], parts: Sequence[Part]) -> list[str]:
    """Return a line for each transaction that is undone whole, and for each undone path of the others.

    A path with only some hunks undone also has a line with their numbers.
    """
    if not parts:
        return list(map("Undoes: {}".format, undoes))
    paths: dict[int, list[str]] = {}
    for part in parts:
        paths.setdefault(part.seq, []).append(f"Undoes: {part.seq} {_value(part.path.text)}")
    lines = [line for undone in undoes for line in paths.get(undone, [f"Undoes: {undone}"])]
    return lines + [
        f"Hunks: {part.seq} {','.join(map(str, part.hunks))} {_value(part.path.text)}"
        for part in parts
        if part.hunks
    ]


def _parts(undoes: Sequence[str], hunks: Sequence[str]) -> tuple[Part, ...]:
    """Parse the undone paths, with the hunks of the partly undone ones."""
    numbers: dict[tuple[str, str], tuple[int, ...]] = {}
    for value in hunks:
        seq, listed, path = value.split(" ", 2)
        numbers[seq, path] = tuple(map(int, listed.split(",")))
    return tuple(
        Part(Seq(int(seq)), WorkspacePath(_read(path)), numbers.get((seq, path), ()))
        for seq, _, path in (value.partition(" ") for value in undoes)
        if path
    )


def _short(text: str, more: str = "") -> str:
    room = SUBJECT_CHARACTERS - len(more)
    return (text if len(text) <= room else text[: room - 1] + "…") + more


def _value(text: str) -> str:
    plain = _PLAIN.fullmatch(text) is not None and text == text.strip()
    return text if plain else _json(text)


def _read(value: str) -> str:
    return str(json.loads(value)) if value.startswith('"') else value


def _parse_move(value: str) -> tuple[str, str]:
    """Parse a pair of paths. Raises ValueError."""
    match json.loads(value):
        case [str() as source, str() as target]:
            return source, target
        case _:
            raise ValueError(f"not two paths: {value[:100]}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


# The objects of a transaction: its commit, and its entries in the trees.


def commit_oid(
    tree: Oid,
    parent: Oid,
    seq: int,
    kind: Kind,
    authorship: Authorship,
    time_us: int,
    touches: Sequence[Change[Entry]],
    undoes: Sequence[int],
    notes: str,
    parts: Sequence[Part] = (),
    claims: Sequence[int] = (),
) -> tuple[Oid, bytes]:
    """Return the id and the bytes of a transaction's commit object, purely from its record and tree."""
    message = compose(seq, kind, authorship, time_us, touches, undoes, notes, parts, claims)
    content = commit_content(tree, [parent], ident(authorship.actor), EDITD, time_us, message)
    return object_id("commit", content), content


def commit_of(transaction: Transaction, notes: bytes, tree: Oid, parent: Oid) -> tuple[Oid, bytes]:
    """Return the id and the bytes of a recorded transaction's commit object."""
    return commit_oid(
        tree, parent, transaction.seq, transaction.kind, transaction.authorship, transaction.time_us,
        transaction.touches, transaction.undoes, notes.decode(), transaction.parts, transaction.claims,
    )  # fmt: skip


def entries_of(transaction: Transaction) -> Iterator[tuple[bytes, Entry | None]]:
    """Yield the entries that the trees have after the transaction; None for a path that is gone."""
    return ((touch.path.raw, touch.after) for touch in transaction.touches)


def touch_by(change: Change[FileState]) -> Change[Entry]:
    """Return a planned change as a transaction has it."""
    before, after = change.before, change.after
    return Change(
        change.path,
        None if before is None else Entry(before.mode, before.version, before.permissions),
        None if after is None else Entry(after.mode, after.version, after.permissions),
        change.source,
    )
