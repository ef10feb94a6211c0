"""The exchange of one host with the log: it takes in new entries, and lands the host's own transactions.

L1  One chain: an entry's first parent is the entry before it, and its number is one more. The log's ref is
    moved from an expected entry to a new one, and never forced.
L2  A host builds only on a head whose every entry it has read, and adds no origin that is in it.
L3  A transaction stops to wait only when its origin is read in the log.
L4  An entry changes only the paths of its transaction, all of them or none. A transaction that is set aside
    is whole in the second parent of its entry.
L5  The transactions of one host land in that host's order, but for what is kept back.
L7  Nothing is written but the repository of the log, which a fetch makes again, and the place in it.
L8  No decision depends on a clock, on the words of a server, or on another host.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import Refused
from editd.remote.entries import (
    LogEntry,
    SettledAside,
    Tentative,
    differences,
    hold_trees,
    read_aside,
    read_entry,
    read_queue,
    waiting_again,
    write_empty_queue,
    write_entry,
    write_settled,
    write_waiting,
)
from editd.remote.log_chain import FileChecks, Forked, commits_back, read_entries
from editd.remote.log_objects import LogObjects
from editd.remote.merged_tree import MergedTree
from editd.remote.own_history import commits_after, origin_of
from editd.remote.push_selection import LANDED_MAX, PushSelection, with_way_out
from editd.remote.replica import Replica, Step
from editd.remote.step_frames import TAKE_IN, frame_of_aside, frames_of_steps, session_at
from editd.remote.transport import Offline, Transport
from editd.store.commit_log import transaction_of_commit
from editd.store.git_objects import EMPTY_TREE, CommitObject, oid_of
from editd.store.history import store_of
from editd.store.transaction_record import parse
from editd.system.files import replace_file_durably
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.remote.entry_decoder import Outcome
    from editd.remote.member import Member
    from editd.store.git_objects import Oid
    from editd.system.frames import Frame
    from editd.values.transaction import Authorship, CommitId

LOGS = "refs/heads/editd/"  # a branch: only those are protected by a server's rules against force
STEPS_MAX = 200  # of one answer
STAYING_MAX = 100  # files that stay on this host that an answer names
WAITING_MAX = 100  # waiting transactions that an answer names
ASIDE_MAX = 50  # transactions set aside of one answer
LISTED_MAX = 1000  # entries of one answer, with their numbers on this host
PACKS_MAX = 50  # of the log's repository; more are combined
NAMED_MAX = 100  # unusable entries, and entries of a newer version, in the status
QUEUE_SECONDS = 5.0  # then anybody lands the queue of a host that does not
INCOMING = "refs/editd/incoming"
_QUEUES = "refs/editd/queues/"
REPAIRED = "_repaired"  # ends the name of a queue, and is in no name of a host


class NotLanded(Refused):
    """The server can be read, and took no push."""

    code = "io_error"


class CopyLost(Forked):
    """This host's copy of the log was deleted, and the server lacks the last entry that was taken in."""


class Overtaken(Exception):
    """Another host has moved the head of the log meanwhile."""


class Known(Struct, frozen=True):
    """The knowledge of the daemon about transactions that are set aside, and about entries of the log."""

    proposed: frozenset[CommitId]  # transactions set aside that have a proposal on this host
    settled: tuple[SettledAside, ...]  # this host's decisions
    listed: int  # the last entry whose number on this host the daemon knows


class Exchange:
    """One host's exchange, from the first look at its history to the last."""

    def __init__(self, folder: str, member: Member, first: str, through: int, head: str) -> None:
        """The host joined when `first` was the last entry, and `through` its last transaction.

        Raises Offline if the log's repository is missing, and cannot be fetched; CopyLost if the server
        lacks what was taken in.
        """
        self._member = member
        self._path = progress_file(folder)
        self.objects = LogObjects(shared_of(folder), store_of(folder))
        self._transport = transport_of(self.objects, folder, member)
        self.landed: dict[CommitId, int] = {}  # all origins in the log, with their numbers
        self.chain: dict[Oid, int] = {}  # all entries of the log
        self._hosts: dict[str, int] = {}  # the last entry of each
        self._entries: list[tuple[CommitId | None, Outcome]] = []  # by their numbers
        self.unusable: dict[int, LogEntry] = {}
        self._newer: dict[int, LogEntry] = {}  # with parts that this version does not know
        self._version = 1  # of the format, which all entries together need
        self._checks = FileChecks()
        self._in_part: dict[CommitId, tuple[str, ...]] = {}  # the paths of a part
        self._aside: dict[CommitId, LogEntry] = {}  # without a decision
        self._settled: dict[CommitId, LogEntry] = {}  # the first decision about each
        self._relisted: list[int] = []  # entries that have their own transaction here only now
        self._queues: dict[str, Oid] = {}
        self._is_log_there = False  # on the server, as far as the last question has told
        self._queues_read: dict[Oid, list[Tentative]] = {}
        self._unlanded_since: float | None = None
        self._selection = PushSelection()
        self._must_look = True  # otherwise the next push may do without, because it fails if others landed
        self._joined, taken = through, first
        with contextlib.suppress(FileNotFoundError):
            with open(self._path, encoding="utf-8") as file:
                saved = json.load(file)
            taken, through = saved["taken"], saved["through"]
            if "checked" in saved:
                self._checks = FileChecks(saved["checked"], dict(saved["unusable_files"]))
        self._saved: tuple[str, int] | None = None
        self._fetch_missing(oid_of(taken))
        commits, _ = commits_back(self.objects, oid_of(taken), ())
        entries = read_entries(self.objects, commits, None, {}, self._checks)
        for entry in entries:
            self._note(entry)
        self._head = entries[-1]
        self._is_chosen = member.chooser()
        self.replica = Replica(self.objects, member.host, self._head, self._is_chosen)
        self.replica.held |= {WorkspacePath.parse(path): seq for path, seq in member.held}
        for path, since, until in member.released:
            self.replica.released.setdefault(WorkspacePath.parse(path), []).append((since, until))
        self._returned: deque[int] = deque(maxlen=NAMED_MAX)  # transactions that returned files to the log's
        self._waiting_after: list[Oid] = []  # of this host's history, until the log has been read
        self._seen = self._joined  # the last transaction that is followed
        self._first = self.chain.get(oid_of(first), 0)  # the last entry when this host joined
        self._unlisted_after = self._first  # no earlier entry is a transaction of this host
        self._staying = set(self._staying_in(oid_of(head)))  # files of this host that no other host gets
        self._begin(oid_of(head), through)
        for entry in entries:
            self.replica.name_second_undo(entry)

    def _fetch_missing(self, taken: Oid) -> None:
        """Fetch the log if its repository was deleted (L7). Raises Offline, CopyLost."""
        if self.objects.has(taken):
            return
        self._fetch()
        if not self.objects.has(taken):
            raise CopyLost(
                "This host's copy of the log was deleted, and the server lacks its last entry.",
                hint=Advice(command_term("remote repair"), " goes on from the last entry that both have."),
            )

    def _staying_in(self, commit: Oid) -> Iterator[WorkspacePath]:
        """Yield the files of a commit of this host's history that never leave it."""
        tree = CommitObject.decode(self.objects.commit(commit)).tree
        for path, _, _ in differences(self.objects, EMPTY_TREE, tree):
            if not self._is_chosen(path):
                yield path

    def _begin(self, head: Oid, through: int) -> None:
        """Read this host's history since it joined, with the waiting transactions."""
        commits = commits_after(self.objects, head, self._joined)
        last = CommitObject.decode(self.objects.commit(commits[0])).parent if commits else head
        if last is not None and self._member.earlier is not None:
            self._name_earlier(last, self._member.earlier)
        for commit in commits:
            written = parse(CommitObject.decode(self.objects.commit(commit)).message)
            self._seen = int(written.seq)
            if written.seq > through:
                self._waiting_after.append(commit)
                continue
            last = commit
            origin = origin_of(commit, written)
            if origin is None:
                self._note_returned(written.seq, written.authorship)
                self.replica.set_aside(written.undoes)
            elif origin in self.landed:
                self.replica.name(written.seq, origin, written.undoes)
            else:  # it waits; another host's waits only if the log has lost it: see `repair`
                transaction = transaction_of_commit(self.objects.history, commit)[0]
                if transaction.kind == "baseline":
                    self.replica.hold(transaction)
                else:
                    self.replica.wait_for(transaction)
        self.replica.merge_all()
        if last is not None:
            self.replica.take_files(last)

    def _name_earlier(self, head: Oid, earliest: int) -> None:
        """Name the transactions of this host that the log has from an earlier time of the host in it."""
        for commit in commits_after(self.objects, head, earliest - 1):
            written = parse(CommitObject.decode(self.objects.commit(commit)).message)
            origin = origin_of(commit, written)
            if origin is not None and origin in self.landed:
                self.replica.name(written.seq, origin, written.undoes)
                self._unlisted_after = min(self._unlisted_after, self.landed[origin] - 1)

    # ── one round ──

    def round(self, head: Oid, known: Known, *, may_land: bool, is_retry: bool = False) -> Frame:
        """Follow this host's history to `head`, then take in new entries, or land waiting transactions.

        A retry sends again what the server has refused.
        """
        if is_retry:
            self._selection.send_again()
        answer: Frame = {"state": "current", "error": None, "again": False, "push": None}
        steps: list[Step] = []
        try:
            if self._waiting_after:
                self._look()  # the history may have arrivals whose entries are not here yet
            self._follow(head)
            self.objects.forget()  # the history has all that the files hold
            if self._must_look or not (may_land and self._ready()):
                self._look()
            steps = self._plan()
            if not steps and may_land and self._has_work(known):
                answer["push"] = "refused"  # until it is done
                self._land(self._to_settle(known))
                answer["push"] = "landed"
                steps = self._plan()
                answer["again"] = bool(self._ready())
            elif not steps:
                self._combine_packs()
        except Overtaken:
            answer["again"] = True
        except Forked as refusal:
            answer |= {"state": "forked", "error": refusal.message}
        except NotLanded as refusal:
            answer |= {"state": "refused", "error": refusal.message, "again": self._selection.is_searching}
        except Offline as refusal:
            answer |= {"state": "offline", "error": refusal.message}
        if (reasons := self._selection.reasons) and answer["state"] == "current":
            answer |= {"state": "refused", "error": next(iter(reasons.values()))}
        answer["steps"] = frames_of_steps(self.objects, steps, self.replica.seqs, self._shared_of)
        answer |= self._news(known) | {"pushes": self._transport.pushes}
        self._transport.pushes = 0
        answer["again"] = bool(answer["again"] or steps or len(answer["asides"]) == ASIDE_MAX)
        return answer | self._status()

    def _shared_of(self, origin: CommitId) -> tuple[str, ...]:
        """Return the paths that the log has of a transaction of this host; none if it has all of them."""
        shared = self._in_part.get(origin, ())
        return shared if shared and self.objects.history_has(oid_of(origin)) else ()

    def _plan(self) -> list[Step]:
        steps = self.replica.plan(STEPS_MAX)
        self._save()
        return steps

    def repair(self, head: Oid) -> None:
        """Prepare to follow the log on the server although it does not continue the known log.

        A log that is gone is made again. Otherwise this host goes back to the last entry that both have, so
        that all it has taken in since waits to be landed, unless it is in the log. The exchange has to be
        opened anew. Raises Offline, Forked if the logs have nothing in common.
        """
        self._follow(head)
        now = self._transport.heads(self._member.ref).get(self._member.ref)
        if now is None:
            self._transport.push(self._head.commit, self._member.ref, None)
            return
        self._fetch()
        _, common = commits_back(self.objects, now, self.chain)
        if common is None:
            raise Forked(
                "The log on the server has no entry in common with this host's log.",
                hint="Leave the log, and join this one.",
            )
        self._queue_lost(self.chain[common])
        if self.chain[common] < self.replica.taken.number:
            self._write_progress(common.hex(), self._seen)

    def _queue_lost(self, number: int) -> None:
        """Queue the entries behind `number` that no transaction of this host has. Raises Offline.

        Most are set aside. Their own hosts may have left the log, so anybody lands them.
        """
        taken = self.entries_from(number + 1, self.tree_at(number))
        lost = [entry for entry in (*taken, *self.replica.incoming) if not self.replica.has(entry)]
        if not lost:
            return
        queue = self._member.host + REPAIRED
        head = write_empty_queue(self.objects, queue)
        for entry in lost:
            head = write_waiting(self.objects, waiting_again(self.objects, entry), head)
        self.objects.write()
        self._transport.overwrite(head, self._member.queues + queue)

    def _follow(self, head: Oid) -> None:
        """Read this host's history up to `head`."""
        for commit in [*self._waiting_after, *commits_after(self.objects, head, self._seen)]:
            transaction = transaction_of_commit(self.objects.history, commit)[0]
            arrival, taken = transaction.authorship.arrival, self.replica.taken.number
            self.replica.follow(transaction)
            if arrival is not None and arrival.origin is not None and arrival.number <= taken:
                self._relisted.append(arrival.number)
            self._seen = int(transaction.seq)
            self._note_returned(transaction.seq, transaction.authorship)
            for touch in transaction.touches:
                if touch.after is None:
                    self._staying.discard(touch.path)
                elif not self._is_chosen(touch.path):
                    self._staying.add(touch.path)
        self._waiting_after.clear()

    def _note_returned(self, seq: int, author: Authorship) -> None:
        """Note a transaction of the exchange itself that returned files to the log's."""
        is_step = author.arrival is not None and author.arrival.origin is None
        if is_step and author.message.startswith(TAKE_IN):
            self._returned.append(int(seq))

    def catch_up(self, head: Oid) -> None:
        """Follow this host's history to `head` without a server: its arrivals were fetched before.

        Raises Forked.
        """
        fetched = self.objects.pointed(INCOMING)
        if fetched is not None and fetched not in self.chain:
            with contextlib.suppress(Forked):  # then the history has nothing of it
                self._take_over(fetched)
        self._follow(head)
        self.objects.forget()
        self.replica.plan(1)  # takes in the entries of this host's own transactions

    def _status(self) -> Frame:
        waiting, oldest, reasons = self.replica.waiting, self.replica.waiting.first, self._selection.reasons
        return {
            "number": self.replica.taken.number,
            "head": self._head.number,
            "tentative": len(waiting),
            "seen": self._seen,
            "waiting": [one.seq for one in islice(waiting, WAITING_MAX)],
            "oldest_us": None if oldest is None else oldest.time_us,
            "needed": self._seen if oldest is None else oldest.seq,
            "aside": len(self._open_asides()) + sum(one.is_aside for one in waiting),
            "returned": list(self._returned),
            "kept_back": [
                [
                    one.seq,
                    reasons[one.origin],
                    one.authorship.actor,
                    one.authorship.session,
                    sorted(change.path.text for change in one.changes),
                ]
                for one in waiting
                if one.origin in reasons
            ],
            "stays": sorted(path.text for path in self._staying)[:STAYING_MAX],
            "held": sorted(path.text for path in self.replica.held),
            "held_since": {path.text: seq for path, seq in self.replica.held.items()},
            "held_alone": self.replica.held_alone(),
            "hosts": self._hosts,
            "version": self._version,
            "unusable": [
                {"number": one.number, "host": one.arrival.host or None, "reason": one.problem}
                for one in _last(self.unusable)
            ],
            "unusable_entries": len(self.unusable),
            "newer": [
                {"number": one.number, "host": one.arrival.host, "reason": one.newer}
                for one in _last(self._newer)
            ],
            "newer_entries": len(self._newer),
        }

    def entries_from(self, number: int, tree: Oid) -> Iterator[LogEntry]:
        """Yield the entries that are taken in, from one on, which has `tree` before it."""
        last = self.replica.taken.number
        for position, commit in enumerate(islice(self.chain, number, last + 1), number):
            entry = self.unusable.get(position) or read_entry(self.objects, commit, position, tree)
            yield entry
            tree = entry.tree

    def tree_at(self, number: int) -> Oid:
        """Return the files of the log after an entry; an unusable one has those before it."""
        if number in self.unusable:
            return self.unusable[number].tree
        commit = next(islice(self.chain, number, None))
        return CommitObject.decode(self.objects.commit(commit)).tree

    def _news(self, known: Known) -> Frame:
        """Return what the daemon does not know of the entries that are taken in."""
        taken = self.replica.taken.number
        decided = {one.about for one in known.settled}
        new = (one for one in self._open_asides() if one.arrival.origin not in known.proposed | decided)
        asides: list[Frame] = []
        for entry in islice(new, ASIDE_MAX):
            with contextlib.suppress(ValueError, KeyError):  # a damaged one has no proposal
                aside = read_aside(self.objects, entry)
                asides.append(frame_of_aside(self.objects, aside, entry.number, self.replica.is_shared))
        settled = [self._settled_frame(about) for about in sorted(known.proposed | decided)]
        first = max(known.listed, self._unlisted_after) + 1
        listed: list[list[object]] = []
        for number in (*self._relisted, *range(first, min(taken + 1, first + LISTED_MAX))):
            origin, outcome = self._entries[number]
            seq = None if origin is None else self.replica.seqs.get(origin)
            listed.append([number, seq, origin, outcome])
        self._relisted.clear()
        return {"asides": asides, "settled": [one for one in settled if one is not None], "listed": listed}

    def _open_asides(self) -> list[LogEntry]:
        """Return the entries set aside, as far as taken in, about which no host has decided."""
        return [one for one in self._aside.values() if one.number <= self.replica.taken.number]

    def _settled_frame(self, about: CommitId) -> Frame | None:
        """Return the decision about a transaction that was set aside here, once it is taken in."""
        taken, entry = self.replica.taken.number, self._settled.get(about)
        if entry is not None and entry.number <= taken:
            author = entry.message.authorship
            session, host = author.session, entry.arrival.host
            return {
                "origin": about, "state": entry.state, "number": entry.number, "host": host,
                "actor": author.actor, "session": session_at(session, host), "message": author.message,
            }  # fmt: skip
        if about in self._aside or entry is not None or self.landed.get(about, taken + 1) > taken:
            return None
        # It was set aside on this host alone, and another host had landed it.
        return {
            "origin": about, "state": "moot", "number": self.landed[about], "host": self._member.host,
            "actor": "editd", "session": None, "message": "It has landed.",
        }  # fmt: skip

    def _to_settle(self, known: Known) -> list[SettledAside]:
        """Return the decisions of this host that the log lacks."""
        return self._selection.sendable_decisions(
            one for one in known.settled if one.about not in self._settled
        )

    def _has_work(self, known: Known) -> bool:
        """Return whether there is work to land: this host's, or work that another host leaves for long."""
        if self._ready() or any(one.about in self._aside for one in self._to_settle(known)):
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
        is_fetched = self._transport.is_by_ssh and self._is_log_there
        refs = self._fetched_refs() if is_fetched else self._refs()
        head = refs.pop(self._member.ref, None)
        queues = {name.removeprefix(self._member.queues): oid for name, oid in refs.items()}
        if head is None:
            raise Forked(
                f"The log {self._member.ref} is not on the server any more.",
                hint=Advice("If the URL is right, ", command_term("remote repair"), " makes it again."),
            )
        if head in self.chain and head != self._head.commit:
            self._transport.push(self._head.commit, self._member.ref, head)  # it was restored to an older one
            head = self._head.commit
        others = {name: oid for name, oid in queues.items() if name != self._member.host}
        if head != self._head.commit or others != self._queues:
            if not is_fetched:
                self._fetch()
            self._queues = others
            if head != self._head.commit:
                self._take_over(head)
        self._must_look = False  # after a failure, a host that may be forked looks again before it pushes

    def _refs(self) -> dict[str, Oid]:
        """Return the log and the queues on the server. Raises Offline."""
        refs = self._transport.heads(self._member.ref, self._member.queues + "*")
        self._is_log_there = self._member.ref in refs
        return refs

    def _fetched_refs(self) -> dict[str, Oid]:
        """Return the log and the queues on the server, and fetch what is new of them. Raises Offline.

        Over ssh a session costs more than a question, and this is one instead of two. After a failure the
        next look asks for the refs alone, because a log that is gone fails like a server that is.
        """
        self._is_log_there = False
        self._fetch()
        self._is_log_there = True
        refs = self.objects.pointed_below(_QUEUES)
        queues = {self._member.queues + name.removeprefix(_QUEUES): oid for name, oid in refs.items()}
        head = self.objects.pointed(INCOMING)
        return queues if head is None else queues | {self._member.ref: head}

    def _fetch(self) -> None:
        self._transport.fetch(f"+{self._member.ref}:{INCOMING}", f"+{self._member.queues}*:{_QUEUES}*")

    def _take_over(self, head: Oid) -> None:
        """Add the entries up to `head` to the incoming entries. Raises Forked (L1)."""
        commits, known = commits_back(self.objects, head, self.chain)
        if known != self._head.commit:
            raise Forked(
                "The log on the server does not continue this host's log.",
                hint=Advice(command_term("remote repair"), " lands what it lacks."),
            )
        for entry in read_entries(self.objects, commits, self._head, self.landed, self._checks):
            self._note(entry)
            self.replica.incoming.append(entry)
            self._head = entry

    def _note(self, entry: LogEntry) -> None:
        self.chain[entry.commit] = entry.number
        origin = entry.arrival.origin
        self._entries.append((origin, entry.outcome))
        if entry.problem:
            self.unusable[entry.number] = entry
            return
        self._hosts[entry.arrival.host] = entry.number
        self._version = max(self._version, entry.needs)
        if entry.newer:
            self._newer[entry.number] = entry
        if origin is not None:
            self.landed[origin] = entry.number
            if entry.arrival.shared:
                self._in_part[origin] = entry.arrival.shared
        if entry.outcome == "aside" and origin is not None:
            self._aside[origin] = entry
        if entry.about is not None and entry.about not in self._settled:
            self._settled[entry.about] = entry
            self._aside.pop(entry.about, None)

    def _save(self) -> None:
        """Write down how far the log is taken in. All of it is in this host's history."""
        progress = (self.replica.taken.commit.hex(), self._seen)
        if progress != self._saved:
            self._write_progress(*progress)

    def _write_progress(self, taken: str, through: int) -> None:
        checks = self._checks.up_to(self.chain[oid_of(taken)])
        content = json.dumps(
            {
                "taken": taken, "through": through,
                "checked": checks.through, "unusable_files": list(checks.problems.items()),
            }
        )  # fmt: skip
        replace_file_durably(self._path, content.encode())
        self._saved = taken, through

    # ── landing ──

    def _ready(self) -> list[Tentative]:
        return self._selection.sendable(self.replica.waiting)

    def _queued(self) -> list[Tentative]:
        """Return the transactions in the queues of other hosts that are not in the log."""
        queued: list[Tentative] = []
        for host in sorted(self._queues):
            with contextlib.suppress(ValueError, KeyError):  # only its own host lands a damaged queue
                queued += [one for one in self._queue_at(self._queues[host]) if one.origin not in self.landed]
        return queued

    def _queue_at(self, head: Oid) -> list[Tentative]:
        """Read a queue, once. Raises ValueError, KeyError."""
        if head not in self._queues_read:
            if len(self._queues_read) > 2 * len(self._queues):
                self._queues_read.clear()
            self._queues_read[head] = read_queue(self.objects, head)
        return self._queues_read[head]

    def _land(self, decisions: Sequence[SettledAside]) -> None:
        """Land the waiting transactions, the queued transactions, and decisions, by one swap.

        Raises Overtaken, NotLanded, Offline.
        """
        self._must_look = True
        seen = {one.origin for one in self.replica.waiting}
        queued: list[Tentative] = []
        for one in self._queued():
            # Two queues have the same transaction if a state folder was copied.
            if one.origin not in seen and not self._selection.is_refused(one.origin):
                seen.add(one.origin)
                queued.append(one)
        tree = MergedTree(self.objects, self._head.tree)
        head, number = self._head.commit, self._head.number
        batch = [*queued, *self._ready()][: self._selection.batch]
        self._selection.is_searching = False
        for one in batch:
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
        for decision in decisions:
            if decision.about in self._aside:
                number += 1
                head = write_settled(self.objects, decision, number, head, tree.root)
        self.objects.write()
        expected = self._head.commit
        try:
            self._transport.push(head, self._member.ref, expected)
        except Offline as refusal:
            now = self._transport.heads(self._member.ref).get(self._member.ref)
            if now == expected:
                words = with_way_out(refusal.message)
                self._selection.note_refused(batch, words)
                raise NotLanded(words) from refusal
            if now != head:  # otherwise it is ours: the reply was lost
                self._look()  # a forked host helps nobody
                self._help()
                raise Overtaken from None
        self._selection.note_landed()
        self.objects.point(INCOMING, head)  # so that the next fetch does not bring it again
        self._take_over(head)

    def _help(self) -> None:
        """Put the waiting transactions into this host's own queue, so that the next winner lands them."""
        head = write_empty_queue(self.objects, self._member.host)
        for one in [one for one in self._ready() if one.origin not in self.landed][:LANDED_MAX]:
            head = write_waiting(self.objects, one, head)
        self.objects.write()
        with contextlib.suppress(Offline):  # the next try to land shows whether the server can be reached
            self._transport.overwrite(head, self._member.queues + self._member.host)

    def _combine_packs(self) -> None:
        """Combine the packs of the log's repository if there are many: each landing has made one."""
        if self.objects.packs > PACKS_MAX:
            with contextlib.suppress(Offline):  # by a git that is too old for it: the log is only slower
                self._transport.combine_packs()
            self.objects.reopen()

    def close(self) -> None:
        self.objects.close()


def _last(entries: Mapping[int, LogEntry]) -> list[LogEntry]:
    """Return the newest of some entries, which the status names."""
    return list(entries.values())[-NAMED_MAX:]


def transport_of(objects: LogObjects, folder: str, member: Member) -> Transport:
    """Return the way to the server of a member, for a state folder. Raises InvalidParams."""
    return Transport(objects.shared, member.url, member.sockets, os.path.dirname(folder))


def shared_of(folder: str) -> str:
    """Return the path of the log's repository in a state folder."""
    return os.path.join(folder, "remote", "log.git")


def progress_file(folder: str) -> str:
    """Return the file of a state folder that says how far the log is taken in."""
    return os.path.join(folder, "remote", "taken.json")
