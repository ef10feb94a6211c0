"""The decoder of a log entry: each field with its type, its range and its size.

Anybody who may push to the repository may write any bytes into a commit, so nothing of a commit is used
before it has passed here. A commit that does not pass is an unusable entry. The bytes of the commit alone
decide, so all hosts with this version of the decoder refuse the same entries.

The trailer `Needs` names the version of the format that an entry needs, and without it that is version 1.
A reader with an older version ignores trailers that it does not know, and takes an unknown kind as an edit.
So a `Turn` or `Model` without the right form is left out, and makes no entry unusable: older hosts use it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Refused
from editd.store.git_objects import oid_of
from editd.store.transaction_record import parse
from editd.values.path import WorkspacePath
from editd.values.proposal import TRANSITIONS, UNSETTLED
from editd.values.transaction import CommitId, TurnMark
from editd.wire.messages import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.store.git_objects import Oid
    from editd.store.transaction_record import ParsedMessage
    from editd.values.transaction import Arrival, Authorship

Outcome = Literal["baseline", "applied", "aside", "decided", "unusable"]  # the last is never written

VERSION = 1  # the newest format of entries that this editd understands, and the format of its own entries
TIME_US_END = 253_402_300_800 * 1_000_000  # the year 10000
PERMISSIONS_MAX = 0o777  # set-user-id, set-group-id and sticky bits never come from a log
ENTRY_BYTES_MAX = 64 * 1024 * 1024
NAME_LENGTH_MAX = 2000  # of an actor, a session, an id of a request, a rule, a candidate
MESSAGE_LENGTH_MAX = 200_000  # twice a message of a client
LISTED_MAX = 200_000  # times that one trailer may occur
REASON_LENGTH_MAX = 200

_PARENTS: Mapping[str, int] = {"baseline": 0, "applied": 1, "aside": 2, "decided": 1}
_KINDS = frozenset(get_args(Kind))
_DECISIONS = frozenset(TRANSITIONS) - UNSETTLED
_UNTEXTUAL = re.compile("[\\0\ud800-\udfff]")
_HEAD = re.compile(
    rb"tree ([0-9a-f]{40})\n((?:parent [0-9a-f]{40}\n)*)author [^\n]*\ncommitter [^\n]*(?:\n[^\n]+)*\n\n"
)

# The forms of the trailers. `parse` of `store.transaction_record` then reads them.
_NUMBER = r"(?:0|[1-9]\d{0,14})"
_NUMBERS = rf"{_NUMBER}(?:,{_NUMBER})*"
_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
_OID = r"[0-9a-f]{40}"
_TEXT = r'(?:"[^\n]*"|[^"\n][^\n]*)'
_WORD = r"[a-z][a-z-]{0,39}"


class _Trailer(Struct, frozen=True):
    """The form of one trailer, and how often it may occur."""

    form: re.Pattern[str]
    most: int = 1


def _once(form: str) -> _Trailer:
    return _Trailer(re.compile(form))


def _listed(form: str) -> _Trailer:
    return _Trailer(re.compile(form), LISTED_MAX)


_TRAILERS: Mapping[str, _Trailer] = {
    "Seq": _once(_NUMBER), "Kind": _once(_WORD), "Actor": _once(_TEXT), "Message": _once(rf"none|{_TEXT}"),
    "Session": _once(_TEXT), "Request": _once(_TEXT), "Time": _once(_TIME),
    "Proposal": _once(rf"{_NUMBER} {_NUMBER} (?:{_NUMBERS})?"), "Approved-By": _once(_TEXT),
    "Approved-Session": _once(_TEXT), "Approved-Rule": _once(_TEXT), "Modified": _once(_TEXT),
    "By": _once("path|time"), "Candidate": _listed(_TEXT),
    "Number": _once(_NUMBER), "Host": _once(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,253}[A-Za-z0-9])?"),
    "Made": _once(_TIME), "Origin": _once(_OID), "Outcome": _once(_WORD), "Needs": _once(_NUMBER),
    "Undoes": _listed(rf"{_NUMBER}(?: {_TEXT})?"), "Hunks": _listed(rf"{_NUMBER} {_NUMBERS} {_TEXT}"),
    "Undone": _listed(_OID), "Claims": _listed(_NUMBER),
    "Moved": _listed(r"\[[^\n]*\]"), "Permissions": _listed(rf"[0-7]{{4}} {_TEXT}"),
    "Shared": _listed(_TEXT), "Decides": _once(_OID), "Decision": _once(_WORD),
}  # fmt: skip
_REQUIRED = ("Seq", "Kind", "Actor", "Time", "Number", "Host", "Made", "Outcome")


class Unusable(ValueError):
    """An entry that does not pass, with the reason; `host` is its host, as far as that can be read."""

    def __init__(self, reason: str, host: str = "") -> None:
        super().__init__(_printable(reason))
        self.host = host

    @property
    def reason(self) -> str:
        return str(self)


class EntryFields(Struct, frozen=True):
    """The fields of a commit that has passed. Only a decision has `about` and `decision`."""

    tree: Oid
    parents: tuple[Oid, ...]
    message: ParsedMessage
    arrival: Arrival
    outcome: Outcome
    undone: tuple[CommitId, ...]
    about: CommitId | None = None
    decision: str = ""
    needs: int = 1  # the version of the format
    newer: str = ""  # what this version does not know of it, in words


def decode_entry(content: bytes, number: int) -> EntryFields:
    """Decode the commit of an entry, which has this number by its place in the log. Raises Unusable."""
    fields = _decoded(content)
    host, own_number = fields.arrival.host, fields.arrival.number
    if own_number != number:
        raise Unusable(f"its number is {own_number}, and its place in the log is {number}", host)
    expected = _PARENTS[fields.outcome]
    if len(fields.parents) != expected:
        raise Unusable(f"it has {len(fields.parents)} parents instead of {expected}", host)
    if (fields.outcome == "baseline") != (number == 0):
        raise Unusable(f"its outcome is {fields.outcome}, and its number {number}", host)
    return fields


def decode_waiting(content: bytes) -> EntryFields:
    """Decode the commit of a transaction that waits for its place in the log. Raises Unusable."""
    fields = _decoded(content)
    if fields.outcome not in ("applied", "aside"):
        raise Unusable("it is not a transaction that waits", fields.arrival.host)
    return fields


def as_text(authorship: Authorship) -> Authorship:
    """Return an authorship whose texts pass: a NUL or a byte that is not UTF-8 is shown as unknown."""
    approval, attribution = authorship.approval, authorship.attribution
    if approval is not None:
        names = (approval.actor, approval.session, approval.rule)
        actor, session, rule = (None if name is None else _as_text(name) for name in names)
        approval = replace(approval, actor=actor, session=session, rule=rule)
    if attribution is not None:
        attribution = replace(attribution, candidates=tuple(map(_as_text, attribution.candidates)))
    own, request, turn = authorship.session, authorship.request_id, authorship.turn
    if turn is not None and turn.model is not None:
        turn = replace(turn, model=_as_text(turn.model))
    return replace(
        authorship, actor=_as_text(authorship.actor), message=_as_text(authorship.message),
        session=None if own is None else _as_text(own),
        request_id=None if request is None else _as_text(request),
        approval=approval, attribution=attribution, turn=turn,
    )  # fmt: skip


def _as_text(text: str) -> str:
    return _UNTEXTUAL.sub("\N{REPLACEMENT CHARACTER}", text)


def _decoded(content: bytes) -> EntryFields:
    if len(content) > ENTRY_BYTES_MAX:
        raise Unusable(f"its commit has more than {ENTRY_BYTES_MAX} bytes")
    head = _HEAD.match(content)
    if head is None:
        raise Unusable("its commit has not the head of a commit")
    parents = tuple(oid_of(line[7:].decode()) for line in head[2].splitlines())
    try:
        text = content[head.end() :].decode()
    except UnicodeDecodeError as error:
        raise Unusable("its message is not UTF-8") from error
    return _fields_of(text, oid_of(head[1].decode()), parents)


def _fields_of(text: str, tree: Oid, parents: tuple[Oid, ...]) -> EntryFields:
    """Decode a message. Raises Unusable."""
    trailers = _trailers(text)
    host = trailers["Host"][0]
    try:
        message = _with_valid_turn(parse(text))
        fields = _checked(message, trailers, tree, parents)
    except Unusable as error:
        raise Unusable(error.reason, host) from error
    except ValueError as error:
        raise Unusable(f"a trailer cannot be read: {error}", host) from error
    return fields


def _with_valid_turn(message: ParsedMessage) -> ParsedMessage:
    """Return a message without a model that a database or an answer cannot hold."""
    turn = message.authorship.turn
    if turn is None or turn.model is None:
        return message
    if len(turn.model) <= NAME_LENGTH_MAX and _UNTEXTUAL.search(turn.model) is None:
        return message
    return replace(message, authorship=replace(message.authorship, turn=TurnMark(turn.number)))


def _trailers(text: str) -> dict[str, list[str]]:
    """Return the known trailers of a message, each in its form. Raises Unusable."""
    if "\0" in text:
        raise Unusable("its message has a NUL")
    trailers: dict[str, list[str]] = {}
    for line in text.rstrip("\n").rpartition("\n\n")[2].split("\n"):
        key, separator, value = line.partition(": ")
        if not separator:
            raise Unusable(f"not a trailer: {line[:100]!r}")
        trailers.setdefault(key, []).append(value)
    host = trailers.get("Host", [""])[0]
    host = host if _TRAILERS["Host"].form.fullmatch(host) else ""
    for key, trailer in _TRAILERS.items():
        values = trailers.get(key, ())
        if len(values) > trailer.most:
            raise Unusable(f"it has {len(values)} trailers {key}", host)
        for value in values:
            if trailer.form.fullmatch(value) is None:
                raise Unusable(f"its {key} has another form: {value[:100]!r}", host)
    for key in _REQUIRED:
        if key not in trailers:
            raise Unusable(f"it has no {key}", host)
    return trailers


def _checked(
    message: ParsedMessage, trailers: Mapping[str, Sequence[str]], tree: Oid, parents: tuple[Oid, ...]
) -> EntryFields:
    """Return the fields of a message whose trailers have their forms. Raises Unusable."""
    arrival, needs = message.authorship.arrival, int(trailers.get("Needs", ["1"])[0])
    assert arrival is not None, "the number and the host are required"
    outcome, newer = trailers["Outcome"][0], []
    if needs > VERSION:
        newer.append(f"version {needs} of the log")
    if outcome not in _PARENTS:
        if needs <= VERSION:
            raise Unusable(f"it has the unknown outcome {outcome!r}")
        newer.append(f"the outcome {outcome}")
        outcome, parents = "applied", parents[:1]
    if (arrival.origin is None) != (outcome == "baseline"):
        raise Unusable("it has no Origin" if arrival.origin is None else "a baseline has no Origin")
    if (message.kind == "baseline") != (outcome == "baseline") or message.kind == "claim":
        raise Unusable(f"its kind is {message.kind}, and its outcome {outcome}")
    if message.kind not in _KINDS:
        newer.append(f"the kind {message.kind}")
        message = replace(message, kind="edit")
    undone = tuple(map(CommitId, trailers.get("Undone", ())))
    _check_times(message, arrival)
    _check_texts(message)
    _check_paths(message, arrival)
    _check_undoing(message, len(undone))
    about, decision = None, ""
    if outcome == "decided":
        about, decision = _decided(trailers)
    return EntryFields(
        tree, parents, message, arrival, cast("Outcome", outcome), undone, about, decision, needs,
        " and ".join(newer),
    )  # fmt: skip


def _decided(trailers: Mapping[str, Sequence[str]]) -> tuple[CommitId, str]:
    """Return the transaction that a decision is about, and the decision. Raises Unusable."""
    if "Decides" not in trailers or "Decision" not in trailers:
        raise Unusable("it is a decision about nothing")
    decision = trailers["Decision"][0]
    if decision not in _DECISIONS:
        raise Unusable(f"it has the unknown decision {decision!r}")
    return CommitId(trailers["Decides"][0]), decision


def _check_times(message: ParsedMessage, arrival: Arrival) -> None:
    if not all(0 <= time_us < TIME_US_END for time_us in (message.time_us, arrival.time_us)):
        raise Unusable("it has a time before 1970 or after 9999")


def _check_texts(message: ParsedMessage) -> None:
    """Check that a database and an answer can hold each text, and its length."""
    for text, length_max in _texts(message):
        if len(text) > length_max:
            raise Unusable(f"it has a text of {len(text)} characters; {length_max} are the most")
        if _UNTEXTUAL.search(text) is not None:
            raise Unusable("it has a text with a NUL or a surrogate")
    if not message.authorship.actor:
        raise Unusable("it has no actor")


def _texts(message: ParsedMessage) -> Iterator[tuple[str, int]]:
    """Yield each text, with the most characters that it may have."""
    author = message.authorship
    yield author.message, MESSAGE_LENGTH_MAX
    names = [author.actor, author.session, author.request_id]
    if author.approval is not None:
        names += [author.approval.actor, author.approval.session, author.approval.rule]
    if author.attribution is not None:
        names += author.attribution.candidates
    for name in names:
        if name is not None:
            yield name, NAME_LENGTH_MAX


def _check_paths(message: ParsedMessage, arrival: Arrival) -> None:
    paths = [*arrival.shared, *(path for moved in message.moves for path in moved)]
    paths += [path for path, _ in message.permissions]
    paths += [part.path.text for part in message.parts]
    for path in paths:
        try:
            WorkspacePath.parse(path)
        except Refused as error:
            raise Unusable(f"it has an impossible path: {error.message}") from error


def _check_undoing(message: ParsedMessage, undone: int) -> None:
    """Check that an undo names only transactions that it lists, by their positions from 1."""
    if any(not 1 <= position <= undone for position in message.undoes):
        raise Unusable("it undoes a transaction that it does not name")
    if any(0 in part.hunks for part in message.parts):
        raise Unusable("it undoes hunk 0")


def _printable(reason: str) -> str:
    """Return a reason that can be shown, in one line."""
    text = json.dumps(reason)[1:-1] if not reason.isascii() or not reason.isprintable() else reason
    return text if len(text) <= REASON_LENGTH_MAX else text[: REASON_LENGTH_MAX - 1] + "…"
