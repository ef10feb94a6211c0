"""The commit message of a transaction: what a person reads in `git log`, and what editd reads back.

The last paragraph is ours, whatever the author's own message holds: `Key: value` lines as
git-interpret-trailers knows them. A value that is not plain printable text is written as JSON.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, Kind, Part, Seq, Touch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN = re.compile(r"[ -!#-\[\]-~\u00a1-\ud7ff\ue000-\U0010ffff]+")  # printable, no quote, no backslash
_IDENT = re.compile(r"[<>\n\r\0]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERBS = {"added": "add", "modified": "edit", "deleted": "delete", "renamed": "move", "mode": "chmod"}
SUBJECT_CHARACTERS = 72  # what git's own documentation asks of a subject line, at most


class ParsedMessage(Struct, frozen=True):
    """What a commit message tells of its transaction, beside the tree."""

    seq: Seq
    kind: Kind
    authorship: Authorship
    time_us: int
    undoes: tuple[Seq, ...]
    parts: tuple[Part, ...]  # of those in `undoes` that are undone only in part: these paths
    moves: tuple[tuple[str, str], ...]  # from, to
    permissions: tuple[tuple[str, int], ...]  # of paths whose bits git's mode does not tell
    notes: str


def compose(
    seq: int,
    kind: Kind,
    authorship: Authorship,
    time_us: int,
    touches: Sequence[Touch],
    undoes: Sequence[int],
    notes: str = "",
    parts: Sequence[Part] = (),
) -> str:
    """The whole message, with a subject of our own where the author gave none."""
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
    lines += _undone(undoes, parts)
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
    """Read a message back. Raises ValueError where it is not one of ours."""
    body, _, block = message.rstrip("\n").rpartition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in block.split("\n"):
        key, separator, value = line.partition(": ")
        if not separator:
            raise ValueError(f"not a trailer: {line!r}")
        fields.setdefault(key, []).append(value)
    try:
        said = fields.get("Message", [None])[0]
        text = body if said is None else "" if said == "none" else json.loads(said)
        return ParsedMessage(
            Seq(int(fields["Seq"][0])),
            fields["Kind"][0],  # type: ignore[arg-type]  # written by compose from a Kind
            Authorship(
                _read(fields["Actor"][0]),
                _read(fields["Session"][0]) if "Session" in fields else None,
                text,
                _read(fields["Request"][0]) if "Request" in fields else None,
            ),
            microseconds(fields["Time"][0]),
            tuple(dict.fromkeys(Seq(int(value.partition(" ")[0])) for value in fields.get("Undoes", []))),
            _parts(fields.get("Undoes", []), fields.get("Hunks", [])),
            tuple((moved[0], moved[1]) for moved in map(json.loads, fields.get("Moved", []))),
            tuple(
                (_read(path), int(bits, 8))
                for bits, _, path in (value.partition(" ") for value in fields.get("Permissions", []))
            ),
            fields.get("Notes", [""])[0],
        )
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"a trailer is missing: {error}") from error


@functools.lru_cache(maxsize=256)
def ident(actor: str) -> str:
    """Git's `Name <mail>` for an actor; the domain is reserved by RFC 2606, so it is nobody's."""
    name = _IDENT.sub("", actor).strip(" .,:;\"'\\") or "unknown"
    local = re.sub(r"[^A-Za-z0-9._+-]+", "-", name).strip("-.") or "unknown"
    return f"{name} <{local}@editd.invalid>"


def summary(kind: Kind, touches: Sequence[Touch], undoes: Sequence[int] = ()) -> str:
    """A subject for a transaction without a message: `edit src/main.c and 2 more`."""
    if undoes:
        what = ", ".join(str(seq) for seq in undoes)
        return _short(f"{kind} {what}")
    if not touches:
        return kind
    moved = {touch.source for touch in touches}
    names = [touch for touch in touches if touch.after is not None or touch.path not in moved] or touches
    first = names[0]
    verbs = {_VERBS[touch.kind] for touch in names}
    act = verbs.pop() if len(verbs) == 1 else "edit"
    shown = first.path.text
    if not shown.isprintable() or "\\" in shown:
        shown = shown.encode("unicode_escape", "surrogatepass").decode("ascii")
    prefix = "" if kind == "edit" else f"{kind}: "
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return _short(f"{prefix}{act} {shown}", more)


def rfc3339(time_us: int) -> str:
    """The time as RFC 3339 in UTC with microseconds."""
    seconds, fraction = divmod(time_us, 1_000_000)
    return f"{_second(seconds)}.{fraction:06d}Z"


@functools.lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    """A second's text: edits come in bursts, and strftime costs as much as a hash of the file."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def microseconds(text: str) -> int:
    """Microseconds since the epoch of an RFC 3339 time. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _undone(undoes: Sequence[int], parts: Sequence[Part]) -> list[str]:
    """A line for each transaction that is undone as a whole, and for each path of the others.

    A path of which only some hunks are undone has a line with their numbers too.
    """
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
    """The paths of transactions that are undone, and the hunks of those that are undone only so far."""
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


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)
