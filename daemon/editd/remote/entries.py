"""The commits of the log: its entries, and the transactions that wait for their place in it.

An entry is a commit with the whole tree. Its message is a transaction's (`store.transaction_record`),
with the entry's number for its seq, and with two more trailers: `Outcome`, and an `Undone` for each
transaction that it takes back. `Undoes` and `Hunks` name these by their position from 1.

A decision about a transaction that was set aside is an entry that changes no file. It has the trailers
`Decides`, with the origin of the transaction, and `Decision`. `entry_decoder` has the forms of all trailers.

A transaction that waits is a commit with two folders: `before` has the touched files as their author had
them, and `after` as the author left them. An entry that is set aside has that commit as its second parent.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Refused
from editd.remote.entry_decoder import (
    PERMISSIONS_MAX,
    VERSION,
    Outcome,
    Unusable,
    decode_entry,
    decode_waiting,
)
from editd.remote.log_objects import WrongKind
from editd.remote.transport import Offline
from editd.store.git_objects import (
    EMPTY_TREE,
    CommitObject,
    Oid,
    Trees,
    commit_content,
    object_id,
    tree_changes,
)
from editd.store.transaction_record import EDITD, ParsedMessage, compose, ident
from editd.values.content import SYMLINK, Change, Entry
from editd.values.path import WorkspacePath, is_link_target
from editd.values.transaction import Arrival, Authorship, CommitId, Part, Seq

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.remote.log_objects import LogObjects
    from editd.wire.messages import Kind

_BROKEN = "Set the log on the server back to the entry before it."
_LAST_NUMBER = 10**14  # no log has as many entries
_BEFORE, _AFTER = b"before/", b"after/"


class Tentative(Struct, eq=False):
    """A transaction that its host has acknowledged and that is not in the log yet."""

    origin: CommitId
    host: str
    kind: Kind
    authorship: Authorship
    time_us: int
    changes: tuple[Change[Entry], ...]
    undone: tuple[CommitId, ...] = ()  # the transactions that it takes back
    parts: tuple[Part, ...] = ()  # of partial undos; the `seq` is a position in `undone` from 1
    seq: int = 0  # on this host; 0 for another host's
    is_aside: bool = False  # it does not merge with earlier entries, and stays so
    is_part: bool = False  # further files of it stay on its host


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
    """One entry of the log. Only a decision has `about` and `state`.

    `tree` has the files of the log after it, and `tree_before` those before it. They are the trees of its
    commit and of the commit before. An unusable entry changes no file: the tree of its commit does not count.
    """

    commit: Oid
    tree: Oid
    tree_before: Oid
    message: ParsedMessage
    arrival: Arrival
    outcome: Outcome
    undone: tuple[CommitId, ...]
    about: CommitId | None = None
    state: str = ""
    problem: str = ""  # the reason why it is unusable
    needs: int = 1  # the version of the format
    newer: str = ""  # what this version does not know of it, in words

    @property
    def number(self) -> int:
        return self.arrival.number


def write_entry(
    objects: LogObjects, waiting: Tentative, number: int, parent: Oid, tree: Oid, *, is_applied: bool
) -> Oid:
    """Write the entry of a transaction; one that is set aside keeps the tree. Return the commit."""
    parents = [parent] if is_applied else [parent, write_waiting(objects, waiting)]
    return objects.put("commit", _entry_content(waiting, number, parents, tree))


def _entry_content(waiting: Tentative, number: int, parents: Sequence[Oid], tree: Oid) -> bytes:
    message = _message(waiting, number, "applied" if len(parents) == 1 else "aside")
    author = ident(waiting.authorship.actor)
    return commit_content(tree, parents, author, EDITD, waiting.time_us, message)


def write_baseline(objects: LogObjects, tree: Oid, host: str, time_us: int) -> Oid:
    """Write entry 0, with the files of the host that begins the log. Return the commit."""
    author = Authorship("editd", message="Begin the log", arrival=Arrival(0, host, None, time_us))
    message = compose(0, "baseline", author, time_us, [], []) + _outcome("baseline")
    return objects.put("commit", commit_content(tree, [], EDITD, EDITD, time_us, message))


def write_settled(objects: LogObjects, settled: SettledAside, number: int, parent: Oid, tree: Oid) -> Oid:
    """Write the entry of a decision, which keeps the tree. Return the commit."""
    return objects.put("commit", _settled_content(settled, number, parent, tree))


def _settled_content(settled: SettledAside, number: int, parent: Oid, tree: Oid) -> bytes:
    arrival = Arrival(number, settled.host, settled.origin, settled.time_us)
    authorship = replace(settled.authorship, arrival=arrival)
    message = compose(number, "edit", authorship, settled.time_us, [], [])
    message += _outcome("decided") + f"Decides: {settled.about}\nDecision: {settled.state}\n"
    author = ident(settled.authorship.actor)
    return commit_content(tree, [parent], author, EDITD, settled.time_us, message)


def write_waiting(objects: LogObjects, waiting: Tentative, parent: Oid | None = None) -> Oid:
    """Append a whole transaction to the queue that ends with `parent`. Return the commit."""
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


def write_empty_queue(objects: LogObjects, host: str, mark: str = "") -> Oid:
    """Write the first commit of a host's queue. Return it.

    The `mark` shows a host that joins that the queue is its own.
    """
    hold_trees(objects, EMPTY_TREE, {})
    message = f"queue of {host}\n" + (f"\n{mark}\n" if mark else "")
    return objects.put("commit", commit_content(EMPTY_TREE, [], EDITD, EDITD, 0, message))


def hold_trees(objects: LogObjects, root: Oid, trees: dict[Oid, bytes]) -> None:
    """Hold the new trees of an update, also an empty root."""
    for oid, content in trees.items():
        objects.put_tree(oid, content)
    if root == EMPTY_TREE:
        objects.put_tree(root, b"")


def read_entry(objects: LogObjects, commit: Oid, number: int, tree_before: Oid) -> LogEntry:
    """Read the entry with this number, behind these files. Raises Unusable, KeyError."""
    fields = decode_entry(objects.commit(commit), number)
    return LogEntry(
        commit, fields.tree, tree_before, fields.message, fields.arrival, fields.outcome, fields.undone,
        fields.about, fields.decision, "", fields.needs, fields.newer,
    )  # fmt: skip


def unusable_entry(commit: Oid, number: int, tree: Oid, error: Unusable) -> LogEntry:
    """Return the entry of a commit that does not pass: it keeps its place, and changes nothing."""
    message = ParsedMessage(Seq(number), "edit", Authorship(""), 0, (), (), (), (), "")
    arrival = Arrival(number, error.host, None, 0)
    return LogEntry(commit, tree, tree, message, arrival, "unusable", (), problem=error.reason)


def check_files(objects: LogObjects, entry: LogEntry) -> None:
    """Check the files that an entry changes, or would change if it were not set aside.

    Git itself has checked that all objects are there, but not the kinds of those that this host had before.
    On other hosts it refuses the log, so a wrong kind stops all alike. Raises Unusable, KeyError, Offline.
    """
    try:
        _check_difference(objects, entry.tree_before, entry.tree)
        if entry.outcome == "aside":
            _check_states(objects, read_aside(objects, entry))
    except WrongKind as error:
        raise Offline(f"Entry {entry.number} of the log is broken: {error}.", hint=_BROKEN) from error
    except ValueError as error:
        raise Unusable(str(error), entry.arrival.host) from error


def _check_difference(objects: LogObjects, before: Oid, after: Oid) -> None:
    for path, _, new in differences(objects, before, after):
        _check_file(objects, path, new)


def _check_states(objects: LogObjects, waiting: Tentative) -> None:
    for change in waiting.changes:
        for state in (change.before, change.after):
            _check_file(objects, change.path, state)


def _check_file(objects: LogObjects, path: WorkspacePath, state: Entry | None) -> None:
    """Check that a file has a content, and that a file system can have the link. Raises ValueError."""
    if state is None:
        return
    if state.mode != SYMLINK:
        objects.check_blob(bytes.fromhex(state.version))
        return
    if not is_link_target(objects.blob(bytes.fromhex(state.version))):
        raise ValueError(f"no file system can have the link {path.text!r}")


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
        moved_from = None if source is None else WorkspacePath.parse(source)
        permissions = bits.get(path.text)
        known = None if permissions is None else permissions & PERMISSIONS_MAX
        after_state = None if new is None else replace(new, permissions=known)
        yield Change(path, old, after_state, moved_from)


def differences(
    objects: LogObjects, before: Oid, after: Oid
) -> Iterator[tuple[WorkspacePath, Entry | None, Entry | None]]:
    """Yield the paths that differ between two trees. A path that editd does not write is left out."""
    for raw, old, new in tree_changes(objects.tree, before, after):
        with contextlib.suppress(Refused):
            yield WorkspacePath.parse(os.fsdecode(raw)), old, new


def read_queue(objects: LogObjects, head: Oid) -> list[Tentative]:
    """Read the transactions that wait in the queue of a host, in its order. Raises ValueError, KeyError."""
    waiting: list[Tentative] = []
    commit: Oid | None = head
    while commit is not None:
        content = objects.commit(commit)
        decoded = CommitObject.decode(content)
        if decoded.parent is None and decoded.message.startswith("queue of "):
            break
        waiting.append(_read_waiting(objects, content))
        _check_states(objects, waiting[-1])
        commit = decoded.parent
    waiting.reverse()
    return waiting


def read_aside(objects: LogObjects, entry: LogEntry) -> Tentative:
    """Read the whole transaction of an entry that is set aside. Raises ValueError, KeyError."""
    fields = decode_entry(objects.commit(entry.commit), entry.number)
    return _read_waiting(objects, objects.commit(fields.parents[1]))


def waiting_again(objects: LogObjects, entry: LogEntry) -> Tentative:
    """Return the transaction of an entry that a log has lost. Raises ValueError, KeyError."""
    if entry.outcome == "aside":
        return replace(read_aside(objects, entry), is_aside=True)
    message, arrival = entry.message, entry.arrival
    assert arrival.origin is not None, "the first entry is in common"
    changes = tuple(changes_of(objects, entry.tree_before, entry.tree, message))
    return Tentative(
        arrival.origin, arrival.host, message.kind, replace(message.authorship, arrival=None),
        message.time_us, changes, entry.undone, message.parts, is_part=bool(arrival.shared),
    )  # fmt: skip


def _read_waiting(objects: LogObjects, content: bytes) -> Tentative:
    fields = decode_waiting(content)
    message, arrival = fields.message, fields.arrival
    assert arrival.origin is not None, "only a baseline has none"
    folders = Trees(fields.tree, objects.tree).folder(b"")
    known = {} if folders is None else folders.folders()
    before, after = known.get(b"before", EMPTY_TREE), known.get(b"after", EMPTY_TREE)
    changes = sorted(changes_of(objects, before, after, message), key=lambda change: change.path.raw)
    return Tentative(
        arrival.origin, arrival.host, message.kind, replace(message.authorship, arrival=None),
        message.time_us, tuple(changes), fields.undone, message.parts, is_aside=fields.outcome == "aside",
        is_part=bool(arrival.shared),
    )  # fmt: skip


def flaw_of(work: Tentative | SettledAside) -> str | None:
    """Return the reason why no host could use an entry of this work; None without one.

    The entry is written in its largest form, and read as other hosts read it.
    """
    try:
        if isinstance(work, SettledAside):
            content = _settled_content(work, _LAST_NUMBER, EMPTY_TREE, EMPTY_TREE)
        else:
            content = _entry_content(work, _LAST_NUMBER, [EMPTY_TREE] * 2, EMPTY_TREE)
        decode_entry(content, _LAST_NUMBER)
    except Unusable as error:
        return f"No host could use its entry: {error.reason}."
    except UnicodeEncodeError:
        return "No host could use its entry: it has a text with a surrogate."
    return None


def _message(waiting: Tentative, number: int, outcome: Outcome) -> str:
    shared = tuple(change.path.text for change in waiting.changes) if waiting.is_part else ()
    arrival = Arrival(number, waiting.host, waiting.origin, waiting.time_us, shared)
    positions = range(1, len(waiting.undone) + 1)
    text = compose(
        number, waiting.kind, replace(waiting.authorship, arrival=arrival), waiting.time_us,
        list(map(_without_privileges, waiting.changes)), positions, parts=waiting.parts,
    )  # fmt: skip
    return text + _outcome(outcome) + "".join(f"Undone: {origin}\n" for origin in waiting.undone)


def _outcome(outcome: Outcome) -> str:
    return f"Outcome: {outcome}\nNeeds: {VERSION}\n"


def _without_privileges(change: Change[Entry]) -> Change[Entry]:
    """Return a change without the permission bits that never leave a host."""
    after = change.after
    if after is None or after.permissions is None or after.permissions <= PERMISSIONS_MAX:
        return change
    return replace(change, after=replace(after, permissions=after.permissions & PERMISSIONS_MAX))
