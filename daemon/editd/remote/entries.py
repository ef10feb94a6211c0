"""The commits of the log: its entries, and the transactions that wait for their place in it.

An entry is a commit with the whole tree. Its message is that of a transaction (`store.transaction_record`),
with the entry's number for its seq, and with two more trailers: `Outcome`, and an `Undone` for each
transaction that it takes back. `Undoes` and `Hunks` name these by their position from 1.

A decision about a transaction that was set aside is an entry that changes no file. It has the trailers
`Decides`, with the origin of the transaction, and `Decision`.

A transaction that waits is a commit with two folders: `before` has the touched files as their author had
them, and `after` as the author left them. An entry that is set aside has that commit as its second parent.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Literal, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Refused
from editd.store.git_objects import (
    EMPTY_TREE,
    CommitObject,
    Oid,
    Trees,
    commit_content,
    object_id,
    tree_changes,
)
from editd.store.transaction_record import EDITD, ParsedMessage, compose, ident, parse
from editd.values.content import Change, Entry
from editd.values.path import WorkspacePath
from editd.values.transaction import Arrival, Authorship, CommitId, Part
from editd.wire.messages import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.remote.log_objects import LogObjects

Outcome = Literal["baseline", "applied", "aside", "decided"]
OUTCOMES = frozenset({"baseline", "applied", "aside", "decided"})
TIME_US_END = 253_402_300_800 * 1_000_000  # the year 10000
_KINDS = frozenset(get_args(Kind))
PERMISSIONS = 0o777  # of a file that comes out of the log
_BEFORE, _AFTER = b"before/", b"after/"
_NOT_AN_ENTRY = "it is not an entry of the log"


class Tentative(Struct, eq=False):
    """A transaction that its host has acknowledged and that is not in the log yet."""

    origin: CommitId
    host: str
    kind: Kind
    authorship: Authorship
    time_us: int
    changes: tuple[Change[Entry], ...]
    undone: tuple[CommitId, ...] = ()  # the transactions that it takes back
    parts: tuple[Part, ...] = ()  # of those taken back in part; the `seq` is a position in `undone` from 1
    seq: int = 0  # on this host; 0 for that of another host
    is_aside: bool = False  # it does not merge with earlier entries, and stays so


class SettledAside(Struct, frozen=True):
    """The decision of one host about a transaction that was set aside, for all hosts."""

    about: CommitId
    state: str  # of the proposal, by `values.proposal.ProposalState`
    host: str
    authorship: Authorship
    time_us: int

    @property
    def origin(self) -> CommitId:
        """The id of the entry: the same again if it is sent again."""
        return CommitId(object_id("blob", f"{self.host} settles {self.about}".encode()).hex())


class LogEntry(Struct, frozen=True):
    """One entry of the log. `about` and `state` are those of a decision."""

    commit: Oid
    tree: Oid
    tree_before: Oid
    message: ParsedMessage
    arrival: Arrival
    outcome: Outcome
    undone: tuple[CommitId, ...]
    about: CommitId | None = None
    state: str = ""

    @property
    def number(self) -> int:
        return self.arrival.number


def write_entry(
    objects: LogObjects, waiting: Tentative, number: int, parent: Oid, tree: Oid, *, is_applied: bool
) -> Oid:
    """Write the entry of a transaction; one that is set aside keeps the tree. Return the commit."""
    parents = [parent] if is_applied else [parent, write_waiting(objects, waiting)]
    message = _message(waiting, number, "applied" if is_applied else "aside")
    author = ident(waiting.authorship.actor)
    return objects.put("commit", commit_content(tree, parents, author, EDITD, waiting.time_us, message))


def write_baseline(objects: LogObjects, tree: Oid, host: str, time_us: int) -> Oid:
    """Write entry 0, with the files of the host that begins the log. Return the commit."""
    author = Authorship("editd", message="Begin the log", arrival=Arrival(0, host, None, time_us))
    message = compose(0, "baseline", author, time_us, [], []) + "Outcome: baseline\n"
    return objects.put("commit", commit_content(tree, [], EDITD, EDITD, time_us, message))


def write_settled(objects: LogObjects, settled: SettledAside, number: int, parent: Oid, tree: Oid) -> Oid:
    """Write the entry of a decision, which keeps the tree. Return the commit."""
    arrival = Arrival(number, settled.host, settled.origin, settled.time_us)
    authorship = replace(settled.authorship, arrival=arrival)
    message = compose(number, "edit", authorship, settled.time_us, [], [])
    message += f"Outcome: decided\nDecides: {settled.about}\nDecision: {settled.state}\n"
    author = ident(settled.authorship.actor)
    return objects.put("commit", commit_content(tree, [parent], author, EDITD, settled.time_us, message))


def write_waiting(objects: LogObjects, waiting: Tentative, parent: Oid | None = None) -> Oid:
    """Write a transaction that waits, whole, behind those that wait before it. Return the commit."""
    trees = Trees(EMPTY_TREE, objects.tree)
    sides: list[tuple[bytes, Entry | None]] = []
    for change in waiting.changes:
        for folder, state in ((_BEFORE, change.before), (_AFTER, change.after)):
            if state is not None:
                objects.share(state.version)
                sides.append((folder + change.path.raw, state))
    update = trees.update(sides)
    hold_trees(objects, update.root, update.trees)
    message = _message(waiting, 0, "aside" if waiting.is_aside else "applied")
    parents = [] if parent is None else [parent]
    author = ident(waiting.authorship.actor)
    return objects.put(
        "commit", commit_content(update.root, parents, author, EDITD, waiting.time_us, message)
    )


def write_empty_queue(objects: LogObjects, host: str) -> Oid:
    """Write the commit with which the queue of a host begins. Return it."""
    hold_trees(objects, EMPTY_TREE, {})
    return objects.put("commit", commit_content(EMPTY_TREE, [], EDITD, EDITD, 0, f"queue of {host}\n"))


def hold_trees(objects: LogObjects, root: Oid, trees: dict[Oid, bytes]) -> None:
    """Hold the new trees of an update, also an empty root."""
    for oid, content in trees.items():
        objects.put_tree(oid, content)
    if root == EMPTY_TREE:
        objects.put_tree(root, b"")


def read_entry(objects: LogObjects, commit: Oid) -> tuple[LogEntry, Oid | None]:
    """Read an entry of the log, and return it with its first parent. Raises ValueError."""
    decoded = CommitObject.decode(objects.commit(commit))
    message, trailers = _parsed(decoded.message)
    arrival, outcome = message.authorship.arrival, trailers.get("Outcome", [""])[0]
    if arrival is None or outcome not in OUTCOMES or (outcome == "decided" and "Decides" not in trailers):
        raise ValueError(_NOT_AN_ENTRY)
    parent = decoded.parent
    before = EMPTY_TREE if parent is None else CommitObject.decode(objects.commit(parent)).tree
    entry = LogEntry(
        commit, decoded.tree, before, message, arrival, cast("Outcome", outcome), _undone(trailers),
        next(map(CommitId, trailers.get("Decides", ())), None), trailers.get("Decision", [""])[0],
    )  # fmt: skip
    return entry, parent


def changes_of(
    objects: LogObjects, before: Oid, after: Oid, message: ParsedMessage
) -> Iterator[Change[Entry]]:
    """Yield the changes between two trees. A path that editd does not write is left out.

    So are bits that give a file another user's or group's rights.
    """
    sources = {target: source for source, target in message.moves}
    bits = dict(message.permissions)
    for path, old, new in differences(objects, before, after):
        source = sources.get(path.text)
        try:
            moved_from = None if source is None else WorkspacePath.parse(source)
        except Refused:
            continue
        permissions = bits.get(path.text)
        known = None if permissions is None else permissions & PERMISSIONS
        after_state = None if new is None else replace(new, permissions=known)
        yield Change(path, old, after_state, moved_from)


def differences(
    objects: LogObjects, before: Oid, after: Oid
) -> Iterator[tuple[WorkspacePath, Entry | None, Entry | None]]:
    """Yield the paths at which two trees differ. A path that editd does not write is left out."""
    for raw, old, new in tree_changes(objects.tree, before, after):
        with contextlib.suppress(Refused):
            yield WorkspacePath.parse(os.fsdecode(raw)), old, new


def read_queue(objects: LogObjects, head: Oid) -> list[Tentative]:
    """Read the transactions that wait in the queue of a host, in its order. Raises ValueError."""
    waiting: list[Tentative] = []
    commit: Oid | None = head
    while commit is not None:
        decoded = CommitObject.decode(objects.commit(commit))
        if decoded.parent is None and decoded.message.startswith("queue of "):
            break
        waiting.append(_read_waiting(objects, decoded))
        commit = decoded.parent
    waiting.reverse()
    return waiting


def read_aside(objects: LogObjects, entry: LogEntry) -> Tentative:
    """Read the whole transaction of an entry that is set aside. Raises ValueError."""
    head = objects.commit(entry.commit).partition(b"\n\n")[0]
    parents = [line[7:] for line in head.split(b"\n") if line.startswith(b"parent ")]
    if len(parents) != 2:
        raise ValueError(_NOT_AN_ENTRY)
    return _read_waiting(objects, CommitObject.decode(objects.commit(bytes.fromhex(parents[1].decode()))))


def _read_waiting(objects: LogObjects, decoded: CommitObject) -> Tentative:
    message, trailers = _parsed(decoded.message)
    arrival = message.authorship.arrival
    if arrival is None or arrival.origin is None:
        raise ValueError("it is not a transaction that waits")
    folders = Trees(decoded.tree, objects.tree).folder(b"")
    known = {} if folders is None else folders.folders()
    before, after = known.get(b"before", EMPTY_TREE), known.get(b"after", EMPTY_TREE)
    changes = sorted(changes_of(objects, before, after, message), key=lambda change: change.path.raw)
    return Tentative(
        arrival.origin, arrival.host, message.kind, replace(message.authorship, arrival=None),
        message.time_us, tuple(changes), _undone(trailers), message.parts,
        is_aside=trailers.get("Outcome") == ["aside"],
    )  # fmt: skip


def flaw_of(waiting: Tentative) -> str | None:
    """Return the reason for which no host could read an entry of this transaction; None without one."""
    try:
        _parsed(_message(waiting, 1, "applied"))
    except ValueError as error:
        return f"No host could read it: {error}."
    return None


def _message(waiting: Tentative, number: int, outcome: Outcome) -> str:
    arrival = Arrival(number, waiting.host, waiting.origin, waiting.time_us)
    positions = range(1, len(waiting.undone) + 1)
    text = compose(
        number, waiting.kind, replace(waiting.authorship, arrival=arrival), waiting.time_us, waiting.changes,
        positions, parts=waiting.parts,
    )  # fmt: skip
    return text + f"Outcome: {outcome}\n" + "".join(f"Undone: {origin}\n" for origin in waiting.undone)


def _undone(trailers: Mapping[str, Sequence[str]]) -> tuple[CommitId, ...]:
    return tuple(map(CommitId, trailers.get("Undone", ())))


def _parsed(text: str) -> tuple[ParsedMessage, dict[str, list[str]]]:
    """Parse a message, and return it with all its trailers. Raises ValueError."""
    trailers: dict[str, list[str]] = {}
    for line in text.rstrip("\n").rpartition("\n\n")[2].split("\n"):
        key, _, value = line.partition(": ")
        trailers.setdefault(key, []).append(value)
    message = parse(text)
    _check_values(message)
    return message, trailers


def _check_values(message: ParsedMessage) -> None:
    """Check the values that a history can hold, and an answer can show. Raises ValueError."""
    arrival = message.authorship.arrival
    times = (message.time_us, message.time_us if arrival is None else arrival.time_us)
    if message.kind not in _KINDS:
        raise ValueError(f"it has the unknown kind {message.kind!r}")
    if not all(0 <= time_us < TIME_US_END for time_us in times):
        raise ValueError("it has a time before 1970 or after 9999")
