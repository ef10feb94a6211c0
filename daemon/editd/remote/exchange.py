"""The exchange of one host with the log: a process that takes in new entries, and lands the host's own.

`python -m editd.remote.exchange STATE_FOLDER`, framed messages on stdin and stdout (`system.process`). The
daemon asks for one round at a time, and carries out the steps of the answer.

L1  One chain: an entry's first parent is the entry before it, and its number is one more. The log's ref is
    moved from an expected entry to a new one, and never forced.
L2  A host builds only on a head whose every entry it has read, and adds no origin that is in it.
L3  A transaction stops to wait only when its origin is read in the log.
L4  An entry changes only the paths of its transaction, all of them or none. A transaction that is set aside
    is whole in the second parent of its entry.
L5  The transactions of one host land in that host's order.
L7  Nothing is written but the repository of the log, which a fetch makes again, and the place in it.
L8  No decision depends on a clock, on the words of a server, or on another host.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import pygit2
from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Refused
from editd.remote.entries import (
    LogEntry,
    Tentative,
    hold_trees,
    read_entry,
    read_queue,
    write_baseline,
    write_empty_queue,
    write_entry,
    write_waiting,
)
from editd.remote.log_objects import LogObjects
from editd.remote.merged_tree import MergedTree
from editd.remote.replica import Replica, Step
from editd.remote.transport import Offline, Transport
from editd.store.git_objects import EMPTY_TREE, CommitObject, Trees, oid_of, tree_changes
from editd.store.history import store_of
from editd.store.transaction_record import parse, transaction_of_commit
from editd.system.files import replace_file_durably
from editd.system.process import Frame, exit_fast, read_frame, write_frame
from editd.values.content import Change, Entry
from editd.values.glob import Glob
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.store.git_objects import Oid
    from editd.values.transaction import CommitId

LOGS = "refs/heads/editd/"  # a branch: only those are protected by a server's rules against force
LANDED_MAX = 1000  # transactions of one push
STEPS_MAX = 200  # of one answer
STEP_BYTES_MAX = 16 * 1024 * 1024  # of content in one answer; a single step may be larger
QUEUE_SECONDS = 5.0  # then anybody lands the queue of a host that does not
NAMES_MAX = 100  # hosts of the same name
_INCOMING = "refs/editd/incoming"
_QUEUES = "refs/editd/queues/"


class Forked(Refused):
    """The log on the server does not continue the one that this host has taken in."""

    code = "conflict"


class Overtaken(Exception):
    """Another host has moved the head of the log meanwhile."""


class Place(Struct, frozen=True):
    """The choice of a log on a server, and the name of this host in it."""

    url: str
    ref: str
    host: str
    exclude: tuple[str, ...]

    @property
    def queues(self) -> str:
        """The folder of refs that has the hosts' queues."""
        return f"refs/editd/{self.ref.removeprefix('refs/').removeprefix('heads/editd/')}/queues/"

    def chooser(self) -> Callable[[WorkspacePath], bool]:
        """Return a predicate: whether a path may leave this host (L9)."""
        globs = [Glob.parse(text) for text in self.exclude]
        return lambda path: not any(glob.matches(path) for glob in globs)


class Exchange:
    """One host's exchange, from the first look at its history to the last."""

    def __init__(self, folder: str, place: Place, taken: str, through: int, head: str) -> None:
        """`taken` and `through` are the entry and the transaction at which the host joined."""
        self._place = place
        self._path = os.path.join(folder, "remote", "taken.json")
        self.objects = LogObjects(shared_of(folder), store_of(folder))
        self._transport = Transport(self.objects.shared, place.url)
        self._landed: dict[CommitId, int] = {}  # all origins in the log, with their numbers
        self._chain: dict[Oid, int] = {}  # all entries of the log
        self._hosts: dict[str, int] = {}  # the last entry of each
        self._queues: dict[str, Oid] = {}
        self._queues_read: dict[Oid, list[Tentative]] = {}
        self._unlanded_since: float | None = None
        self._joined = through
        with contextlib.suppress(FileNotFoundError):
            with open(self._path, encoding="utf-8") as file:
                saved = json.load(file)
            taken, through = saved["taken"], saved["through"]
        self._saved = (taken, through)
        entries = self._entries_back(oid_of(taken), None)
        for entry in entries:
            self._note(entry)
        self._head = entries[-1]
        self._replica = Replica(self.objects, place.host, self._head, place.chooser())
        self._waiting_after: list[Oid] = []  # of this host's history, until the log has been read
        self._seen = self._joined  # the last transaction that is followed
        self._begin(oid_of(head), through)

    def _begin(self, head: Oid, through: int) -> None:
        """Read this host's history since it joined, with the waiting transactions."""
        for commit in self._commits_back(head, self._joined):
            written = parse(CommitObject.decode(self.objects.read(commit)).message)
            self._seen = int(written.seq)
            if written.seq > through:
                self._waiting_after.append(commit)
                continue
            arrival = written.authorship.arrival
            if arrival is None:
                transaction = transaction_of_commit(self.objects.read, commit)[0]
                if transaction.kind == "baseline":
                    self._replica.held.update(touch.path for touch in transaction.touches)
                elif transaction.id in self._landed:
                    self._replica.name(transaction.seq, transaction.id)
                else:
                    self._replica.wait_for(transaction)
            elif arrival.origin is None:
                self._replica.set_aside(written.undoes)
            else:
                self._replica.name(written.seq, arrival.origin)
        self._replica.merge_all()

    # ── one round ──

    def round(self, head: Oid, *, may_land: bool) -> Frame:
        """Follow this host's history to `head`, then take in new entries, or land waiting transactions."""
        answer: Frame = {"state": "current", "error": None, "again": False, "steps": []}
        try:
            if self._waiting_after:
                self._look()  # the history may have arrivals whose entries are not here yet
            self._follow(head)
            self._look()
            steps = self._replica.plan(STEPS_MAX)
            self._save()
            if not steps and may_land and self._has_work():
                self._land()
                steps = self._replica.plan(STEPS_MAX)
                self._save()
                answer["again"] = bool(self._replica.waiting)
            answer["steps"] = self._frames(steps)
            answer["again"] = answer["again"] or bool(steps)
        except Overtaken:
            answer["again"] = True
        except Forked as refusal:
            answer |= {"state": "forked", "error": refusal.message}
        except Offline as refusal:
            answer |= {"state": "offline", "error": refusal.message}
        return answer | self._status()

    def _follow(self, head: Oid) -> None:
        """Read this host's history up to `head`. Raises HistoryDamaged."""
        for commit in [*self._waiting_after, *self._commits_back(head, self._seen)]:
            transaction = transaction_of_commit(self.objects.read, commit)[0]
            self._replica.follow(transaction)
            self._seen = int(transaction.seq)
        self._waiting_after.clear()

    def _status(self) -> Frame:
        waiting = self._replica.waiting
        return {
            "number": self._replica.taken.number,
            "head": self._head.number,
            "tentative": len(waiting),
            "seen": self._seen,
            "oldest_us": waiting[0].time_us if waiting else None,
            "needed": waiting[0].seq if waiting else self._seen,
            "aside": sum(one.is_aside for one in waiting),
            "held": sorted(path.text for path in self._replica.held),
            "hosts": self._hosts,
        }

    def _has_work(self) -> bool:
        """Return whether there is something to land: own work, or that of a host that leaves it for long."""
        if self._replica.waiting:
            return True
        if not self._queued():
            self._unlanded_since = None
            return False
        now = time.monotonic()
        self._unlanded_since = now if self._unlanded_since is None else self._unlanded_since
        return now - self._unlanded_since > QUEUE_SECONDS

    # ── taking in ──

    def _look(self) -> None:
        """Read new entries and queues from the server. Raises Offline, Forked."""
        refs = self._transport.heads(self._place.ref, self._place.queues + "*")
        head = refs.pop(self._place.ref, None)
        queues = {name.removeprefix(self._place.queues): oid for name, oid in refs.items()}
        if head is None:
            raise Forked(f"The log {self._place.ref} is not on the server any more.")
        if head in self._chain and head != self._head.commit:
            self._transport.push(self._head.commit, self._place.ref, head)  # it was restored to an older one
            head = self._head.commit
        others = {name: oid for name, oid in queues.items() if name != self._place.host}
        if head == self._head.commit and others == self._queues:
            return
        self._transport.fetch(
            f"+{self._place.ref}:{_INCOMING}", f"+{self._place.queues}*:{_QUEUES}*"
        )  # fmt: skip
        self._queues = others
        if head != self._head.commit:
            self._take_over(head)

    def _take_over(self, head: Oid) -> None:
        """Add the entries up to `head` to those that are to be taken in. Raises Forked."""
        for entry in self._entries_back(head, self._head):
            self._note(entry)
            self._replica.incoming.append(entry)
            self._head = entry

    def _entries_back(self, head: Oid, known: LogEntry | None) -> list[LogEntry]:
        """Read the entries from behind the known one to `head`, the oldest first. Raises Forked (L1)."""
        entries: list[LogEntry] = []
        commit: Oid | None = head
        while commit is not None and (known is None or commit != known.commit):
            try:
                entry, commit = read_entry(self.objects.read, commit)
            except (ValueError, KeyError) as error:
                raise Forked(f"The log has a commit that is none of its entries: {error}.") from error
            if known is not None and entry.number <= known.number:
                break
            entries.append(entry)
        first = entries[-1].number - 1 if entries else 0
        if (known is None and first != -1) or (known is not None and (commit != known.commit)):
            raise Forked("The log on the server does not continue the one that this host has.")
        entries.reverse()
        start = entries[0].number if entries else 0
        if [entry.number for entry in entries] != list(range(start, start + len(entries))):
            raise Forked("The numbers of the log are not in order.")
        if known is not None and entries and start != known.number + 1:
            raise Forked("The numbers of the log are not in order.")
        return entries

    def _note(self, entry: LogEntry) -> None:
        self._chain[entry.commit] = entry.number
        self._hosts[entry.arrival.host] = entry.number
        origin = entry.arrival.origin
        if origin is not None:
            if origin in self._landed:
                raise Forked(f"Transaction {origin} is twice in the log.")
            self._landed[origin] = entry.number

    def _commits_back(self, head: Oid, seq: int) -> list[Oid]:
        """Return the commits of this host's history after transaction `seq`, the oldest first.

        Compacted ones are left out: none of them waits.
        """
        commits: list[Oid] = []
        commit: Oid | None = head
        while commit is not None:
            try:
                decoded = CommitObject.decode(self.objects.read(commit))
            except KeyError:
                if commits:
                    break
                raise
            if parse(decoded.message).seq <= seq:
                break
            commits.append(commit)
            commit = decoded.parent
        commits.reverse()
        return commits

    def _save(self) -> None:
        """Write down how far the log is taken in. All of it is in this host's history."""
        place = (self._replica.taken.commit.hex(), self._seen)
        if place != self._saved:
            content = json.dumps({"taken": place[0], "through": place[1]})
            replace_file_durably(self._path, content.encode())
            self._saved = place

    def _frames(self, steps: Sequence[Step]) -> list[Frame]:
        frames: list[Frame] = []
        room = STEP_BYTES_MAX
        for step in steps:
            made = self._frames_of(step)
            room -= sum(len(change[3] or b"") for frame in made for change in frame["changes"])
            if room < 0 and frames:
                break
            frames += made
        return frames

    def _frames_of(self, step: Step) -> list[Frame]:
        entry, arrival = step.entry, step.entry.arrival
        frames: list[Frame] = []
        place = {"number": arrival.number, "host": arrival.host, "time_us": arrival.time_us}
        if step.taken_back:
            seqs = sorted(one.seq for one in step.lost)
            shown = ", ".join(map(str, seqs))
            author = {
                "actor": "editd", "session": None, "attribution": None,
                "message": f"Set aside {shown}: no merge with entry {arrival.number} of {arrival.host}",
            }  # fmt: skip
            frames.append(
                place | author
                | {"kind": "undo", "origin": None, "undoes": seqs, "parts": [],
                   "changes": _change_frames(self.objects, step.taken_back)}
            )  # fmt: skip
        if step.changes:
            said = entry.message.authorship
            evidence = said.attribution
            seqs_by_position = [self._replica.seqs.get(origin) for origin in entry.undone]
            frames.append(
                place
                | {
                    "kind": entry.message.kind,
                    "origin": arrival.origin,
                    "actor": said.actor,
                    "session": None if said.session is None else f"{said.session}@{arrival.host}",
                    "message": said.message,
                    "attribution": None
                    if evidence is None
                    else [evidence.is_by_path, list(evidence.candidates)],
                    "undoes": [seq for seq in seqs_by_position if seq is not None],
                    "parts": [
                        [seqs_by_position[part.seq - 1], part.path.text, list(part.hunks)]
                        for part in entry.message.parts
                        if part.seq <= len(seqs_by_position) and seqs_by_position[part.seq - 1] is not None
                    ],
                    "changes": _change_frames(self.objects, step.changes),
                }
            )
        return frames

    # ── landing ──

    def _queued(self) -> list[Tentative]:
        """Return the transactions in the queues of other hosts that are not in the log."""
        queued: list[Tentative] = []
        for host in sorted(self._queues):
            with contextlib.suppress(ValueError, KeyError):  # only its own host lands a damaged queue
                queued += [
                    one for one in self._queue_at(self._queues[host]) if one.origin not in self._landed
                ]
        return queued

    def _queue_at(self, head: Oid) -> list[Tentative]:
        """Read a queue, once. Raises ValueError, KeyError."""
        if head not in self._queues_read:
            if len(self._queues_read) > 2 * len(self._queues):
                self._queues_read.clear()
            self._queues_read[head] = read_queue(self.objects.read, head)
        return self._queues_read[head]

    def _land(self) -> None:
        """Land the waiting transactions, and those of the queues, by one swap. Raises Overtaken, Offline."""
        seen = {one.origin for one in self._replica.waiting}
        queued: list[Tentative] = []
        for one in self._queued():
            if one.origin not in seen:  # two queues have the same, if a state folder was copied
                seen.add(one.origin)
                queued.append(one)
        tree = MergedTree(self.objects, self._head.tree)
        head, number = self._head.commit, self._head.number
        for one in [*queued, *self._replica.waiting][:LANDED_MAX]:
            number += 1
            is_applied = not one.is_aside and tree.merge(one.changes)
            if is_applied:
                for change in one.changes:
                    entry = tree.entry(change.path)
                    if entry is not None:
                        self.objects.share(entry.version)
                hold_trees(self.objects, tree.root, tree.trees)
                tree.trees.clear()
            head = write_entry(self.objects, one, number, head, tree.root, is_applied=is_applied)
        self.objects.write()
        expected = self._head.commit
        try:
            self._transport.push(head, self._place.ref, expected)
        except Offline:
            now = self._transport.heads(self._place.ref).get(self._place.ref)
            if now == expected:
                raise
            if now != head:  # else it is ours: the reply was lost
                self._help()
                raise Overtaken from None
        self._take_over(head)

    def _help(self) -> None:
        """Put the waiting transactions into this host's own queue, so that the next winner lands them."""
        head = write_empty_queue(self.objects, self._place.host)
        for one in self._replica.waiting[:LANDED_MAX]:
            head = write_waiting(self.objects, one, head)
        self.objects.write()
        self._transport.overwrite(head, self._place.queues + self._place.host)

    def close(self) -> None:
        self.objects.close()


# The beginning: the first host makes the log, and others join it.


def begin_log(folder: str, place: Place, head: Oid, time_us: int) -> Frame:
    """Make the log with this host's files as entry 0. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        tree = _shared_tree(objects, CommitObject.decode(objects.read(head)).tree, place.chooser())
        objects.write()
        objects.share_all(tree)
        commit = write_baseline(objects, tree, place.host, time_us)
        objects.write()
        transport = Transport(objects.shared, place.url)
        transport.push(commit, place.ref, None)
        host = _claim(objects, transport, place)
        return {"taken": commit.hex(), "ref": place.ref, "host": host, "number": 0}
    finally:
        objects.close()


def count_files(folder: str, place: Place, head: Oid) -> Frame:
    """Count the files that this host would send to begin a log."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        is_shared = place.chooser()
        root = CommitObject.decode(objects.read(head)).tree
        sizes = [
            objects.size(oid_of(entry.version))
            for path, _, entry in _differences(objects, EMPTY_TREE, root)
            if entry is not None and is_shared(path)
        ]
        return {"files": len(sizes), "bytes": sum(sizes)}
    finally:
        objects.close()


def join_log(folder: str, place: Place, head: Oid) -> Frame:
    """Compare this host's files with the log, and take a name in it. Raises Offline, Forked.

    The answer has the steps that make the files those of the log, and the paths at which files of this host
    would be replaced or deleted.
    """
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        transport = Transport(objects.shared, place.url)
        refs = transport.heads(place.ref or LOGS + "*")
        if len(refs) != 1:
            known = ", ".join(sorted(refs)) or "none"
            raise Forked(f"The repository must have one log, and has {known}.", hint="Name one with `--ref`.")
        ref = next(iter(refs))
        place = replace(place, ref=ref)
        transport.fetch(f"+{ref}:{_INCOMING}")
        try:
            entry, _ = read_entry(objects.read, refs[ref])
        except ValueError as error:
            raise Forked(f"{ref} is not a log of editd: {error}.") from error
        is_shared = place.chooser()
        mine = CommitObject.decode(objects.read(head)).tree
        changes = [
            Change(path, old, new)
            for path, old, new in _differences(objects, mine, entry.tree)
            if is_shared(path)
        ]
        return {
            "taken": entry.commit.hex(), "ref": ref, "number": entry.number,
            "host": place.host,
            "differs": [change.path.text for change in changes if change.before is not None],
            "changes": _change_frames(objects, changes),
        }  # fmt: skip
    finally:
        objects.close()


def claim_name(folder: str, place: Place) -> Frame:
    """Take a name in the log that no other host has. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        return {"host": _claim(objects, Transport(objects.shared, place.url), place)}
    finally:
        objects.close()


def _claim(objects: LogObjects, transport: Transport, place: Place) -> str:
    """Make the queue of this host, under the first name that is free. Return the name. Raises Offline."""
    taken = {name.removeprefix(place.queues) for name in transport.heads(place.queues + "*")}
    for number in range(1, NAMES_MAX):
        host = place.host if number == 1 else f"{place.host}-{number}"
        if host in taken:
            continue
        commit = write_empty_queue(objects, host)
        objects.write()
        try:
            transport.push(commit, place.queues + host, None)
        except Offline:
            if place.queues + host not in transport.heads(place.queues + host):
                raise
            continue
        return host
    raise Offline(f"{NAMES_MAX} hosts are called {place.host}.", hint="Set `host` in `[remote]`.")


def _shared_tree(objects: LogObjects, root: Oid, is_shared: Callable[[WorkspacePath], bool]) -> Oid:
    """Return the tree without the paths that must not leave this host."""
    trees = Trees(root, objects.read)
    left_out = [path for path, _, _ in _differences(objects, EMPTY_TREE, root) if not is_shared(path)]
    update = trees.update((path.raw, None) for path in left_out)
    hold_trees(objects, update.root, update.trees)
    return update.root


def _differences(
    objects: LogObjects, before: Oid, after: Oid
) -> Iterator[tuple[WorkspacePath, Entry | None, Entry | None]]:
    """Yield the paths at which two trees differ. A path that editd does not write is left out."""
    for raw, old, new in tree_changes(objects.read, before, after):
        with contextlib.suppress(Refused):
            yield WorkspacePath.parse(os.fsdecode(raw)), old, new


def _change_frames(objects: LogObjects, changes: Iterable[Change[Entry]]) -> list[list[Any]]:
    """Return each change: path, mode and version before, mode and permissions after, content, source."""
    return [
        [
            change.path.text,
            None if change.before is None else [change.before.mode, change.before.version],
            None if change.after is None else [change.after.mode, change.after.permissions],
            None if change.after is None else objects.read(oid_of(change.after.version)),
            None if change.source is None else change.source.text,
        ]
        for change in changes
    ]


def shared_of(folder: str) -> str:
    """Return the path of the log's repository in a state folder."""
    return os.path.join(folder, "remote", "log.git")


# The process.


class Worker:
    """The process of one daemon. The exchange is opened by its first round."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._exchange: Exchange | None = None

    def answer(self, asked: Frame) -> Frame:
        """Answer one request. A failure is `{failed, hint}`, and leaves nothing open."""
        place = Place(asked["url"], asked["ref"], asked["host"], tuple(asked["exclude"]))
        head = oid_of(asked["head"])
        try:
            match asked["do"]:
                case "init":
                    return begin_log(self._folder, place, head, asked["time_us"])
                case "count":
                    return count_files(self._folder, place, head)
                case "join":
                    return join_log(self._folder, place, head)
                case "claim":
                    return claim_name(self._folder, place)
                case _:
                    if self._exchange is None:
                        self._exchange = Exchange(
                            self._folder, place, asked["taken"], asked["through"], asked["head"]
                        )
                    return self._exchange.round(head, may_land=asked["may_land"])
        except Refused as refusal:
            self._forget()
            return {"failed": refusal.message, "hint": refusal.hint}
        except (OSError, KeyError, ValueError, pygit2.GitError) as error:
            self._forget()
            return {"failed": f"The exchange failed: {type(error).__name__}: {error}.", "hint": ""}

    def _forget(self) -> None:
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


def main(arguments: Sequence[str]) -> None:
    worker = Worker(arguments[0])
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        try:
            write_frame(sys.stdout.buffer, worker.answer(asked))
        except BrokenPipeError:
            break
    exit_fast()


if __name__ == "__main__":
    main(sys.argv[1:])
