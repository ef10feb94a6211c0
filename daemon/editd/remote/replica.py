"""The state of one host: the log as far as it is taken in, and the transactions that are not in it yet.

`files` is the tree that the host's files are to hold: the log's, with the host's own transactions merged into
it in their order, except transactions set aside (L6). It follows from the two sequences alone, so it is
the same after a restart. An entry is taken in when its effect on the files is in the host's history.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Conflict
from editd.remote.entries import LogEntry, Tentative, changes_of, differences
from editd.remote.entry_decoder import as_text
from editd.remote.marked_text import MarkedText, marked, with_entry
from editd.remote.merged_tree import MergedTree, is_equal
from editd.remote.waiting_list import WaitingList
from editd.store.git_objects import CommitObject, Trees, oid_of
from editd.values.content import SYMLINK, Change, Entry

MARKED_MIN = 4  # waiting transactions of a file with marks
MARKED_MAX = 1000  # files with marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.remote.log_objects import LogObjects
    from editd.store.git_objects import Oid
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, CommitId, Part, Transaction

    Entries = Mapping[WorkspacePath, Entry | None]


class Step(Struct, frozen=True):
    """The effect of an entry on the files of this host, as up to two transactions of its history.

    The first takes back `lost`, the work of this host that does not merge with the entry. The second is the
    entry itself. Both may be without changes: `lost` may have none together, and without each undo hosts
    would differ in the undone transactions.
    """

    entry: LogEntry
    lost: tuple[Tentative, ...]
    taken_back: tuple[Change[Entry], ...]
    changes: tuple[Change[Entry], ...]
    is_undo: bool = False  # of transactions that this host has, and not a second one
    is_catch_up: bool = False  # of files behind the log; the entry is the last one that is taken in
    undos: tuple[LogEntry, ...] = ()  # that counted as an undo of this host, and do not any more

    @property
    def has_effect(self) -> bool:
        """Whether the entry becomes a transaction of this host's history."""
        return bool(self.changes) or self.is_undo

    @property
    def is_empty(self) -> bool:
        return not self.lost and not self.undos and not self.has_effect

    @classmethod
    def catching_up(cls, taken: LogEntry, changes: Iterable[Change[Entry]]) -> Step:
        """Return the step that brings files which are behind to the state of the log."""
        return cls(taken, (), (), tuple(changes), is_catch_up=True)


class _Before(Struct, frozen=True):
    """The state before an entry was taken in, to return to it."""

    taken: LogEntry
    own: Tentative | None  # no longer waits
    files: Entries
    lost: tuple[Tentative, ...]
    marked: Mapping[WorkspacePath, MarkedText | None] = MappingProxyType({})


class Replica:
    """The log and the waiting transactions of one host."""

    def __init__(
        self,
        objects: LogObjects,
        host: str,
        taken: LogEntry,
        is_shared: Callable[[WorkspacePath], bool],
    ) -> None:
        """`taken` is the last entry that is taken in; paths that are not shared are left out everywhere."""
        self.host = host
        self.taken = taken
        self.waiting = WaitingList()
        self.incoming: deque[LogEntry] = deque()
        self.seqs: dict[CommitId, int] = {}  # of the transactions in this host's history, by their origin
        self.held: dict[WorkspacePath, int] = {}  # kept out of the exchange, from this transaction on
        self.released: dict[WorkspacePath, list[tuple[int, int]]] = {}  # held after a transaction, up to one
        self._behind: set[WorkspacePath] = set()  # not as in the log yet, and of no waiting transaction
        self._origins: dict[int, CommitId] = {}
        self._undoers: dict[int, int] = {}  # the last undo of each, by their seqs
        self._second_undos: dict[int, list[LogEntry]] = {}  # by the seq of the undo as which they count
        self._marked: dict[WorkspacePath, MarkedText] = {}  # of files with many waiting transactions
        self._objects = objects
        self._is_chosen = is_shared
        self.files = MergedTree(objects, taken.tree)

    def is_shared(self, path: WorkspacePath) -> bool:
        return path not in self.held and self._is_chosen(path)

    def _was_held(self, path: WorkspacePath, seq: int) -> bool:
        """Return whether a path was held at a transaction of this host, and is not any more."""
        return any(since < seq <= until for since, until in self.released.get(path, ()))

    def hold(self, baseline: Transaction) -> None:
        """Keep files out of the exchange that git ignores here, and that others have at the same paths."""
        seq = int(baseline.seq)
        for touch in baseline.touches:
            if not any(until >= seq for _, until in self.released.get(touch.path, ())):
                self.held[touch.path] = seq
            elif self.is_shared(touch.path):
                self._leave_behind(touch.path, touch.after)

    def held_alone(self) -> list[str]:
        """Return the held paths at which the log has no file."""
        landed = Trees(self.taken.tree, self._objects.tree)
        return [path.text for path in self.held if landed.entry(path.raw) is None]

    # ── this host's history ──

    def has(self, entry: LogEntry) -> bool:
        """Return whether an entry needs no host to land it again: it is a transaction here, or a decision."""
        origin = entry.arrival.origin
        seq = None if origin is None else self.seqs.get(origin)
        is_here = seq is not None and self._origins.get(seq) == origin
        return is_here or bool(entry.problem) or entry.about is not None

    def name(self, seq: int, origin: CommitId, undoes: Iterable[int]) -> None:
        """Note the origin of a transaction of this host's history, and the transactions that it undoes."""
        self.seqs[origin] = seq
        self._origins[seq] = origin
        self._undoers.update(dict.fromkeys(undoes, seq))

    def name_second_undo(self, entry: LogEntry) -> None:
        """Use the number of an earlier undo of the same transactions for one without an effect here.

        Then a redo of either is one of both.
        """
        origin, first = entry.arrival.origin, self._first_undo(entry)
        if origin is not None and origin not in self.seqs and first is not None:
            self.seqs[origin] = first
            self._second_undos.setdefault(first, []).append(entry)

    def _first_undo(self, entry: LogEntry) -> int | None:
        """Return the earlier undo of all that an entry undoes, if there is one in force."""
        undoers = {self._undoer(self.seqs.get(one, -1)) for one in entry.undone}
        return undoers.pop() if len(undoers) == 1 and entry.outcome == "applied" else None

    def _is_undo(self, entry: LogEntry) -> bool:
        """Return whether another host's entry undoes transactions of this host that are not undone."""
        is_known = any(origin in self.seqs for origin in entry.undone)
        return is_known and entry.outcome == "applied" and self._first_undo(entry) is None

    def _undoer(self, seq: int) -> int | None:
        """Return the last undo of a transaction, if that is not undone itself."""
        undoers: list[int] = []
        while (by := self._undoers.get(seq)) is not None:
            undoers.append(by)
            seq = by
        return undoers[0] if len(undoers) % 2 else None

    def _forget_second_undo(self, origin: CommitId) -> None:
        """Count an undo separately that has counted as an earlier undo."""
        for entries in self._second_undos.values():
            entries[:] = [entry for entry in entries if entry.arrival.origin != origin]

    def wait_for(self, transaction: Transaction) -> Tentative | None:
        """Add a transaction to the waiting list; return None if it has nothing to share.

        It is this host's, or another host's that the log has lost (`Exchange.repair`).
        """
        arrival, authorship = transaction.authorship.arrival, _to_send(transaction.authorship)
        origin, host, time_us, is_part = transaction.id, self.host, transaction.time_us, False
        if arrival is not None and arrival.origin is not None:
            origin, host, time_us, is_part = (
                arrival.origin,
                arrival.host,
                arrival.time_us,
                bool(arrival.shared),
            )
        changes = tuple(
            touch
            for touch in transaction.touches
            if transaction.seq <= self.held.get(touch.path, transaction.seq) and self._is_chosen(touch.path)
            if not self._was_held(touch.path, transaction.seq)
        )
        is_only_here = not changes and arrival is None  # as an undo of files that stay here
        self.name(transaction.seq, origin, () if is_only_here else transaction.undoes)
        if not changes:
            return None
        undone = tuple(self._origins[seq] for seq in transaction.undoes if seq in self._origins)
        waiting = Tentative(
            origin, host, transaction.kind, authorship, time_us, changes, undone,
            self._parts(transaction, undone), transaction.seq,
            is_part=is_part or len(changes) < len(transaction.touches),
        )  # fmt: skip
        self.waiting.add(waiting)
        for change in changes:
            self._marked.pop(change.path, None)
        return waiting

    def set_aside(self, seqs: Iterable[int]) -> None:
        """Mark waiting transactions as set aside, as this host's history has it."""
        chosen = set(seqs)
        for one in self.waiting:
            one.is_aside = one.is_aside or one.seq in chosen

    def follow(self, transaction: Transaction) -> None:
        """Take the next transaction of this host's history.

        Files that do not follow from the log are taken as they are, and return to the log's when nothing of
        this host waits for them: a merge in another order, after a repair, may have another result.
        """
        arrival = transaction.authorship.arrival
        if arrival is None and transaction.kind == "baseline":
            self.hold(transaction)
            return
        if arrival is None:
            waiting = self.wait_for(transaction)
            if waiting is not None:
                self.files.merge(waiting.changes)
        elif arrival.origin is None:
            self.set_aside(transaction.undoes)
            undone = set(transaction.undoes)
            lost = [one for one in self.waiting if one.seq in undone]
            self._merge_again(change.path for one in lost for change in one.changes)
            for touch in transaction.touches:
                if touch.path in self._behind:
                    self.files.put([(touch.path, touch.after)])
        else:
            self.name(transaction.seq, arrival.origin, transaction.undoes)
            if arrival.number <= self.taken.number:
                self._forget_second_undo(arrival.origin)
            while self.incoming and self.incoming[0].number <= arrival.number:
                entry = self.incoming.popleft()
                self._take(entry)
                self.name_second_undo(entry)
        for touch in transaction.touches:
            is_same = is_equal(self.files.entry(touch.path), touch.after)
            if self.is_shared(touch.path) and (not is_same or self._was_held(touch.path, transaction.seq)):
                self._leave_behind(touch.path, touch.after)

    def _leave_behind(self, path: WorkspacePath, entry: Entry | None) -> None:
        """Take a file as this host has it, until it is that of the log again."""
        self._behind.add(path)
        self._marked.pop(path, None)
        self.files.put([(path, entry)])

    def take_files(self, commit: Oid) -> None:
        """Take the files as a commit of this host's history has them.

        Those of waiting transactions were merged into each entry as it came, and a merge of each into the
        last one may differ. Others were held, or did not follow from the log (`follow`).
        """
        root = CommitObject.decode(self._objects.commit(commit)).tree
        held = Trees(root, self._objects.tree)
        paths = {change.path for one in self.waiting for change in one.changes}
        self.files.put((path, held.entry(path.raw)) for path in sorted(paths) if self.is_shared(path))
        for path, _, entry in differences(self._objects, self.taken.tree, root):
            if self.is_shared(path) and not is_equal(self.files.entry(path), entry):
                self._leave_behind(path, entry)

    def merge_all(self) -> None:
        """Merge all that wait into the tree of the log, as far as they merge.

        After a repair, the log may lack entries that a waiting transaction depends on, until they land again.
        A transaction is set aside when it lands, and by a transaction of this host's history.
        """
        self._marked.clear()
        self.files = MergedTree(self._objects, self.taken.tree)
        self.files.merge_each(one for one in self.waiting if not one.is_aside)

    # ── the log ──

    def plan(self, steps_max: int) -> list[Step]:
        """Take in entries without an effect on the files; return the steps of the next ones that have one.

        The steps are not taken: `follow` does that, when they are in this host's history.
        """
        if catch_up := self._catch_up():
            return [Step.catching_up(self.taken, catch_up)]
        steps: list[Step] = []
        tried: list[_Before] = []
        unnamed: set[CommitId | None] = set()  # origins that change their seq or their undo with the steps
        has_second = False  # undos without an effect that are not named yet
        entries = list(self.incoming)
        for entry in entries:
            if steps and (len(steps) >= steps_max or not unnamed.isdisjoint(entry.undone)):
                break
            step, before = self._take(entry)
            if has_second and (step.lost or step.undos):
                tried.append(before)
                break
            has_second = has_second or (bool(entry.undone) and step.is_empty)
            if steps or not step.is_empty:
                tried.append(before)
                unnamed.update((entry.arrival.origin, *entry.undone))
                unnamed.update(undo.arrival.origin for undo in step.undos)
                if not step.is_empty:
                    steps.append(step)
            else:
                has_second = False
                self.incoming.popleft()
                self.name_second_undo(entry)
        self._go_back(tried)
        if not self.waiting and not self._behind and not steps:
            self.merge_all()  # without the trees in memory
        return steps

    def _catch_up(self) -> list[Change[Entry]]:
        """Return the changes that bring files which are behind to the state of the log."""
        landed = Trees(self.taken.tree, self._objects.tree)
        changes: list[Change[Entry]] = []
        for path in sorted(self._behind):
            now, wanted = self.files.entry(path), landed.entry(path.raw)
            if is_equal(now, wanted):
                self._behind.discard(path)
            elif self.waiting.is_free(path):
                changes.append(Change(path, now, wanted))
        return changes

    def _take(self, entry: LogEntry) -> tuple[Step, _Before]:
        """Take in an entry, and return its effect."""
        own = self.waiting.get(entry.arrival.origin)
        changes = [
            change
            for change in changes_of(self._objects, entry.tree_before, entry.tree, entry.message)
            if self.is_shared(change.path)
        ]
        before = _Before(self.taken, own, {}, ())
        self.taken = entry
        is_first = own is not None and self.waiting.is_first(own)
        if own is not None:
            self.waiting.remove(own)
            if is_first and self._is_as_merged(own, entry, changes, ()):
                return Step(entry, (), (), (), undos=self._separate_undos(own, changes)), before
        elif (apart := self._merged_apart(changes)) is not None:
            return self._take_apart(before, entry, changes, *apart)
        paths = {change.path for change in (*changes, *(() if own is None else own.changes))}
        paths, dependent = self.waiting.connected(paths)
        if own is not None and not is_first and self._is_as_merged(own, entry, changes, dependent):
            return Step(entry, (), (), (), undos=self._separate_undos(own, changes)), before
        old = {path: self.files.entry(path) for path in paths}
        landed = Trees(entry.tree, self._objects.tree)
        self.files.put((path, landed.entry(path.raw)) for path in sorted(paths))
        lost = self.files.merge_each(one for one in dependent if not one.is_aside)
        for one in lost:
            one.is_aside = True
        kept = [one for one in dependent if not one.is_aside]
        newly_aside, known = tuple(lost), {path: self._marked.pop(path, None) for path in paths}
        for change in changes:
            self._mark(change.path, landed)
        if own is not None and not own.is_aside:
            if entry.outcome == "aside":
                lost.insert(0, own)
            else:
                kept = sorted([own, *kept], key=lambda one: one.seq)  # after a repair it may be a later one
        new = {path: self.files.entry(path) for path in paths}
        middle = self._without(entry, kept, paths) if lost else old
        written = [path for path in sorted(paths) if self.is_shared(path)]
        taken_back, made = _changes(written, old, middle, ()), _changes(written, middle, new, changes)
        is_undo = own is None and self._is_undo(entry)
        undos = tuple(undo for one in lost for undo in self._second_undos.get(one.seq, ()))
        if own is not None and own not in lost:
            undos += self._separate_undos(own, changes)
        step = Step(entry, tuple(lost), taken_back, made, is_undo, undos=undos)
        return step, replace(before, files=old, lost=newly_aside, marked=known)

    def _merged_apart(
        self, changes: Sequence[Change[Entry]]
    ) -> tuple[dict[WorkspacePath, Entry | None], dict[WorkspacePath, MarkedText]] | None:
        """Return the files with an entry that is apart from all lines touched here, and their marked texts.

        None if that is not known. The time does not grow with the number of waiting transactions.
        """
        files: dict[WorkspacePath, Entry | None] = {}
        texts: dict[WorkspacePath, MarkedText] = {}
        for change in changes:
            path, before, after = change.path, change.before, change.after
            if self.waiting.is_free(path):
                files[path] = after
                continue
            text, ours = self._marked.get(path), self.files.entry(path)
            if text is None or before is None or after is None or ours is None or before.mode != after.mode:
                return None
            try:
                merged = self.files.merged(change, ours)
            except Conflict:
                return None
            assert merged is not None, "no side is a deletion"
            contents = (self._objects.blob(oid_of(one.version)) for one in (before, after, merged))
            text_after = with_entry(text, *contents)
            if text_after is None:
                return None
            files[path], texts[path] = merged, text_after
        return files, texts

    def _take_apart(
        self,
        before: _Before,
        entry: LogEntry,
        changes: Sequence[Change[Entry]],
        files: Mapping[WorkspacePath, Entry | None],
        texts: Mapping[WorkspacePath, MarkedText],
    ) -> tuple[Step, _Before]:
        """Take in an entry of another host by the result of `_merged_apart`."""
        old = {path: self.files.entry(path) for path in files}
        known = {path: self._marked[path] for path in texts}
        self.files.put(files.items())
        self._marked |= texts
        step = Step(entry, (), (), _changes(sorted(files), old, files, changes), self._is_undo(entry))
        return step, replace(before, files=old, marked=known)

    def _mark(self, path: WorkspacePath, landed: Trees) -> None:
        """Mark the lines that the waiting transactions have touched in a file, if these are many."""
        waiting = [one for one in self.waiting.at(path) if not one.is_aside]
        now = landed.entry(path.raw)
        if len(waiting) < MARKED_MIN:
            return
        if len(self._marked) >= MARKED_MAX:
            self._marked.clear()
        states = [now]
        for one in waiting:
            for change in one.changes:
                if change.path == path:
                    now = self.files.merged(change, now)
                    states.append(now)
        if all(state is not None and state.mode != SYMLINK for state in states):
            contents = (self._objects.blob(oid_of(state.version)) for state in states if state is not None)
            self._marked[path] = marked(contents)

    def _separate_undos(self, own: Tentative, changes: Sequence[Change[Entry]]) -> tuple[LogEntry, ...]:
        """Return the entries that counted as this undo, if the undo has landed with its own effect."""
        return tuple(self._second_undos.get(own.seq, ())) if changes else ()

    def _without(
        self, entry: LogEntry, kept: Iterable[Tentative], paths: Iterable[WorkspacePath]
    ) -> dict[WorkspacePath, Entry | None]:
        """Return the files before an entry, with no other waiting transactions than those `kept`."""
        tree = MergedTree(self._objects, entry.tree_before)
        tree.merge_each(kept)
        return {path: tree.entry(path) for path in paths}

    def _go_back(self, tried: Sequence[_Before]) -> None:
        """Return to the state before some entries, the oldest first."""
        for before in reversed(tried):
            for one in before.lost:
                one.is_aside = False
            self.files.put(before.files.items())
            for path, text in before.marked.items():
                self._marked.pop(path, None)
                if text is not None:
                    self._marked[path] = text
            self.taken = before.taken
        self.waiting.put_back(before.own for before in tried if before.own is not None)

    def _merge_again(self, paths: Iterable[WorkspacePath]) -> None:
        """Merge the waiting transactions into these paths, and all that depends on them, once more."""
        joined, dependent = self.waiting.connected(paths)
        for path in joined:
            self._marked.pop(path, None)
        landed = Trees(self.taken.tree, self._objects.tree)
        self.files.put((path, landed.entry(path.raw)) for path in sorted(joined))
        self.files.merge_each(one for one in dependent if not one.is_aside)

    def _is_as_merged(
        self,
        own: Tentative,
        entry: LogEntry,
        changes: Sequence[Change[Entry]],
        dependent: Sequence[Tentative],
    ) -> bool:
        """Return whether an entry is its transaction as merged here, so that the files stay the same."""
        if (
            own.is_aside
            or entry.outcome != "applied"
            or any(one.seq < own.seq and not one.is_aside for one in dependent)
        ):
            return False
        if _landed_as_made(own, changes):
            return True
        paths = {change.path for change in own.changes}
        tree, landed = MergedTree(self._objects, entry.tree_before), Trees(entry.tree, self._objects.tree)
        return (
            all(change.path in paths for change in changes)
            and tree.merge(own.changes)
            and all(is_equal(tree.entry(path), landed.entry(path.raw)) for path in paths)
        )

    def _parts(self, transaction: Transaction, undone: tuple[CommitId, ...]) -> tuple[Part, ...]:
        positions = {self.seqs[origin]: number for number, origin in enumerate(undone, 1)}
        return tuple(
            replace(part, seq=positions[part.seq]) for part in transaction.parts if part.seq in positions
        )


def _to_send(authorship: Authorship) -> Authorship:
    """Return an authorship without the numbers and names that only this host knows."""
    approval, arrival, session = authorship.approval, authorship.arrival, authorship.session
    if approval is not None and approval.proposal is not None:
        approval = replace(approval, proposal=None, revision=None, hunks=())
    if arrival is not None and session is not None:
        session = session.removesuffix(f"@{arrival.host}")
    return as_text(replace(authorship, approval=approval, arrival=None, session=session))


def _landed_as_made(own: Tentative, changes: Iterable[Change[Entry]]) -> bool:
    """Return whether these are exactly its author's changes."""
    landed = {change.path: change for change in changes}
    return len(landed) == len(own.changes) and all(
        change.path in landed
        and is_equal(landed[change.path].before, change.before)
        and is_equal(landed[change.path].after, change.after)
        for change in own.changes
    )


def _changes(
    paths: Iterable[WorkspacePath], before: Entries, after: Entries, known: Iterable[Change[Entry]]
) -> tuple[Change[Entry], ...]:
    """Return the differences, with the moves and permissions of the `known` changes as far as they fit."""
    by_path = {change.path: change for change in known}
    differing = [path for path in paths if not is_equal(before[path], after[path])]
    changes: list[Change[Entry]] = []
    for path in differing:
        old, new, like = before[path], after[path], by_path.get(path)
        source = None
        if like is not None and old is None and like.source in differing and after[like.source] is None:
            source = like.source
        if like is not None and is_equal(new, like.after):
            new = like.after
        changes.append(Change(path, old, new, source))
    return tuple(changes)
