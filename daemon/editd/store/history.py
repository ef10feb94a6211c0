"""The history: the committed transactions in their order, in the journal, in memory and in git.

A transaction is drafted (its objects have ids, in memory), committed (its record is durable: C1), and packed
(its objects are in git, and head names it) by a background process. Unpacked objects are served from memory.
Drafts can be reverted, newest first. A separate record aborts committed transactions (C4), so that `seq` has
no gaps (C6).
"""

from __future__ import annotations

import contextlib
import logging
import os
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, command_term, method_term, step_term
from editd.errors import ContentExcluded, ContentForgotten, HistoryDamaged, IoError, UnknownTransaction
from editd.store import transaction_record
from editd.store.acknowledged import NOBODY, read_acknowledged
from editd.store.commit_log import transaction_of_commit
from editd.store.excluded import ExcludedContents, LeftOut
from editd.store.forgotten import ForgottenContent, read_forgotten, write_forgotten
from editd.store.git_objects import (
    EMPTY_TREE,
    CommitObject,
    ObjectSource,
    Oid,
    PendingObjects,
    Trees,
    TreeUpdate,
    oid_of,
)
from editd.store.git_repository import (
    HistoryStart,
    open_store,
    own_objects,
    read_head,
    read_history_start,
    write_history_start,
)
from editd.store.index import NEVER, Index
from editd.store.journal import (
    SEGMENT_BYTES,
    Journal,
    JournalPosition,
    acknowledged_seq,
    frames,
    segments,
    select_committed,
)
from editd.store.journal_record import (
    EMPTY,
    Aborted,
    ChangeRecord,
    Committed,
    approval_record,
    attribution_record,
    change_record,
    content_of,
    excluded_record,
    excluded_versions,
    part_records,
    transaction_of,
)
from editd.store.large_objects import LARGE_BYTES, read_large
from editd.store.sync_state import (
    SyncedThrough,
    clear_sync_failed,
    has_sync_failed,
    mark_sync_failed,
    note_synced,
    read_synced,
)
from editd.store.transaction_record import commit_of, commit_oid, entries_of, touch_by
from editd.system.filesystem import folder_bytes
from editd.values.content import Change
from editd.values.transaction import Authorship, CommitId, Part, Seq, Transaction, entry_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from editd.store.journal import Frame
    from editd.values.content import Change, Entry, FileState, GitMode, Version
    from editd.values.path import WorkspacePath
    from editd.wire.messages import Kind

log = logging.getLogger(__name__)

_RECORD = attrgetter("record")
_NOTHING_LEFT_OUT: LeftOut = MappingProxyType({})
PRESSING_TRANSACTIONS = 200  # unpacked: a start repeats them in some 0.1 s
PRESSING_BYTES = 8 * 1024 * 1024  # unpacked, in memory
PENDING_BYTES_MAX = 128 * 1024 * 1024  # unpacked bytes in memory; above it, transactions wait for packing


def store_of(folder: str) -> str:
    """Return the path of the repository in a state folder."""
    return os.path.join(folder, "store.git")


class StoredObjects:
    """The objects of a store that is whole."""

    def __init__(self, store: str) -> None:
        """Open the repository. Raises HistoryDamaged."""
        self._store = store
        self._repository = _open_repository(store)
        self._own: pygit2.Odb | None = None  # opened when it is needed

    def read(self, oid: Oid) -> tuple[int, bytes]:
        try:
            if self.size(oid) >= LARGE_BYTES and (large := read_large(self._store, oid)) is not None:
                return large
            return self._repository.odb.read(pygit2.Oid(raw=oid))
        except (KeyError, pygit2.GitError):
            # libgit2 reports unreadable packs as missing objects, and hides the disk's error.
            try:
                os.listdir(os.path.join(self._store, "objects/pack"))
            except OSError as error:
                raise IoError(error, "The history cannot be read") from error
            return self._repository.odb.read(pygit2.Oid(raw=oid))

    def has(self, oid: Oid) -> bool:
        if self._own is None:
            self._own = own_objects(self._store)
        return pygit2.Oid(raw=oid) in self._own

    def size(self, oid: Oid) -> int:
        _, size = self._repository.odb.read_header(pygit2.Oid(raw=oid))
        return int(size)

    def close(self) -> None:
        self._repository.free()


class TransactionDraft(Struct, frozen=True, gc=False):
    """A transaction with its id and objects, not yet durable."""

    record: Committed
    transaction: Transaction
    notes: bytes
    excluded: LeftOut
    made: Sequence[Version]  # the versions in `excluded` that are kept only for this transaction
    _splice: TreeUpdate
    _head_before: Oid


class History:
    """The one writer's view of the history. Opened after its baseline exists."""

    def __init__(
        self, folder: str, objects: ObjectSource, journal: Journal, index: Index, published: SyncedThrough
    ) -> None:
        """Put the history in the state folder `folder` together, without a transaction yet."""
        self.folder = folder
        self.store = store_of(folder)
        self.journal, self.index, self.published = journal, index, published
        self.floor = HistoryStart()  # the start of the history, if not the baseline
        self.forgotten: dict[Version, ForgottenContent] = {}
        """The contents that a person had removed."""
        self.excluded = ExcludedContents(folder, self.store)
        self.pending = PendingObjects()
        self.packed = Seq(0)
        self.hot: tuple[Committed, ...] = ()
        """The journal's transactions after head, for recovery; they took effect at the opening."""
        self.unsynced: tuple[Committed, ...] = ()
        """All transactions, packed or not, that may not be durable in the files."""
        self.is_in_doubt = False  # a sync failed: `unsynced` files may stay in the page cache only
        self.unlent: list[str] = []  # sentences about contents that the user's repository has no more
        self.concluded: list[Transaction] | None = None  # gets each transaction while a request is prepared
        self._objects = objects
        self._tried: dict[Oid, bytes] = {}  # the objects of a trial
        self._packed_bytes = 0
        self._head = self._packed_commit = NOBODY
        self._seq = 0
        self._trees = Trees(EMPTY_TREE, self._object_bytes)
        self._tail = JournalPosition(0, 0)

    @classmethod
    def open(cls, folder: str, *, segment_bytes: int = SEGMENT_BYTES) -> History:
        """Open the history in the state folder `folder`. Raises HistoryDamaged, IoError.

        `segment_bytes` is the size of new segments of the journal.
        """
        with contextlib.ExitStack() as opened:  # closes them again if the history is damaged
            objects = StoredObjects(store_of(folder))
            opened.callback(objects.close)
            journal = Journal(os.path.join(folder, "journal"), segment_bytes=segment_bytes)
            opened.callback(journal.close)
            index = Index(os.path.join(folder, "index.db"))
            opened.callback(index.close)
            published = SyncedThrough(folder)
            opened.callback(published.close)
            history = cls(folder, objects, journal, index, published)
            history._read_in()
            opened.pop_all()
        return history

    def _read_in(self) -> None:
        """Load head and the journal, and update the index. Raises HistoryDamaged."""
        self.measure()
        head = read_head(self.store)
        if head is None:
            raise self._damage_refusal("it has no head")
        self.floor = self._read_floor()
        self.forgotten = read_forgotten(self.store)
        self.excluded.open()
        self._begin_at(head)
        self._tail = JournalPosition(min(segments(self.journal.folder), default=0), 0)
        read = list(frames(self.journal.folder, self._tail))
        standing = sorted(select_committed(read).items())
        self._catch_up_index(standing)
        self._replay(read, standing)

    def _begin_at(self, head: Oid) -> None:
        """Take the packed transactions up to the commit `head`. Raises HistoryDamaged."""
        self._head = self._packed_commit = head
        self.packed = self._parse_message(head).seq
        self._seq = int(self.packed)
        self._trees = Trees(self._commit(head).tree, self._object_bytes)

    # ── queries ──

    @property
    def head(self) -> Seq:
        return Seq(self._seq)

    @property
    def head_commit(self) -> Oid:
        """The commit of the newest transaction, drafts included."""
        return self._head

    @property
    def tail(self) -> JournalPosition:
        """The journal position where packing continues, as far as it has reported."""
        return self._tail

    def weaker(self) -> list[str]:
        """Return sentences about contents that are lost, and about queries that fail at present."""
        flaw = self.index.flaw
        return [*self.unlent, *([] if flaw is None else [f"{flaw.text()} Edits stand meanwhile."])]

    def entry(self, path: WorkspacePath) -> Entry | None:
        """Return the entry of `path` after the newest transaction, drafts included."""
        return self._trees.entry(path.raw)

    def pending_content(self, version: Version) -> bytes | None:
        """Return the bytes of an unpacked version from memory; None for any other version."""
        return self.pending.get(oid_of(version))

    def content(self, version: Version) -> bytes | None:
        """Return the bytes of any recorded version, or None. Raises HistoryDamaged, IoError."""
        oid = oid_of(version)
        if (content := self._in_memory(oid)) is not None:
            return content
        if version in self.excluded.paths:
            kept = self.excluded.content(version)
            if kept is not None or not self._objects.has(oid):
                return kept
        if self.forgotten and self.is_forgotten(version):
            return None
        try:
            kind, content = self._read(oid)
        except KeyError:
            return None
        except pygit2.GitError as error:
            raise self._damage_refusal(f"the content {version} cannot be read") from error
        return content if kind == pygit2.enums.ObjectType.BLOB else None

    def is_forgotten(self, version: Version) -> bool:
        """Return whether this content was removed, and did not come back by a later transaction."""
        known = self.forgotten.get(version)
        if known is None or self._in_memory(oid_of(version)) is not None:
            return False
        return not known.is_gone or not self._objects.has(oid_of(version))

    def is_excluded(self, version: Version) -> bool:
        """Return whether this content of an excluded file was not kept, or is not kept any more."""
        oid = oid_of(version)
        return (
            version in self.excluded.paths
            and version not in self.excluded.kept
            and self._in_memory(oid) is None
            and not self._objects.has(oid)
        )

    def lacks_content_of(self, touch: Change[Entry]) -> bool:
        """Return whether this change was recorded without its contents, because its file is or was excluded.

        Another path may have the same version, and its own transaction then has the content.
        """
        versions = [side.version for side in (touch.before, touch.after) if side is not None]
        return any(self.excluded.is_named(one, touch.path) or self.is_excluded(one) for one in versions)

    def leaves_out(self, touch: Change[Entry]) -> bool:
        """Return whether this change must not go to a place that keeps its contents."""
        return self.excluded.rule.covers(touch.path) or self.lacks_content_of(touch)

    @property
    def has_gaps(self) -> bool:
        """Whether `is_dropped` may be true for any version."""
        return bool(self.forgotten or self.excluded.paths)

    def is_dropped(self, version: Version) -> bool:
        """Return whether the history names this content, and does not have it on purpose."""
        return self.is_forgotten(version) or self.is_excluded(version)

    def is_known(self, version: Version) -> bool:
        """Return whether the history has this content, or names it without having it on purpose."""
        return version in self.excluded.paths or self.is_safe(version)

    def is_safe(self, version: Version) -> bool:
        """Return whether a copy of this content may go: the history has it, or a person had it removed."""
        return version in self.forgotten or self.content(version) is not None

    def missing(self, version: Version) -> ContentForgotten | ContentExcluded | HistoryDamaged:
        """Return the refusal for a version without content."""
        if self.is_excluded(version):
            path = self.excluded.paths[version]
            return ContentExcluded(
                f"The content {version[:12]} of {path} is not in the history, because its file is excluded.",
                hint="It cannot be brought back. Leave its file out.",
                data={"version": version, "path": path},
            )
        known = self.forgotten.get(version)
        if known is None:
            return HistoryDamaged(
                f"The history no longer has the content {version[:12]}.",
                hint=Advice(
                    "Run ",
                    command_term("check"),
                    ". If only your repository had it, restore its git objects there.",
                ),
                data={"version": version},
            )
        time = transaction_record.rfc3339(known.time_us)
        return ContentForgotten(
            f"The content {version[:12]} ({known.size} bytes) was forgotten at {time} by {known.actor}.",
            hint="It cannot be brought back. Leave its file out.",
            data={"version": version, "size": known.size, "time": time, "actor": known.actor},
        )

    def size_of(self, version: Version) -> int:
        """Return the number of bytes of a recorded version, without reading them; 0 if it is missing."""
        oid = oid_of(version)
        content = self.pending.get(oid)
        if content is None:
            content = self._tried.get(oid)
        if content is not None:
            return len(content)
        if (kept := self.excluded.kept.get(version)) is not None:
            return kept.size
        try:
            return self._objects.size(oid)
        except (KeyError, pygit2.GitError):
            return 0

    def has_folder(self, path: WorkspacePath) -> bool:
        """Return whether there is a file below `path` after the newest transaction, drafts included."""
        return self._trees.folder(path.raw) is not None

    def folder_at_head(
        self, path: str, *, is_kept: bool = True
    ) -> tuple[dict[bytes, tuple[GitMode, Version]], list[bytes]]:
        """Return the files (with mode and version) and the subfolders of a folder at head.

        Unless `is_kept`, the folder does not stay in memory.
        """
        raw = os.fsencode(path)
        folder = self._trees.folder(raw) if is_kept else self._trees.peek(raw)
        if folder is None:
            return {}, []
        files: dict[bytes, tuple[GitMode, Version]] = {
            name: (entry.mode, entry.version) for name, entry in folder.files().items()
        }
        return files, list(folder.folders())

    def entry_at(self, path: WorkspacePath, seq: int) -> Entry | None:
        """Return the entry of `path` right after transaction `seq`."""
        if seq >= self._seq:
            return self.entry(path)
        earlier = self.index.touch_at(path, seq)
        if earlier is not None:
            return earlier[1].after
        later = self.index.touch_after(path, seq)
        return later[1].before if later is not None else self.entry(path)

    def find(self, reference: int | str) -> Transaction:
        """Return the transaction of a seq, an id or a unique prefix of one. Raises UnknownTransaction."""
        seq = reference if isinstance(reference, int) else self.seq_of(reference)
        transaction = self.index.transaction(seq)
        if 0 <= seq < self.floor.seq:
            raise self.compaction_refusal(reference)
        if transaction is None:
            raise UnknownTransaction(
                f"There is no transaction {reference}; the newest is {self._seq}.",
                hint=Advice(method_term("log"), " lists them."),
                data={"tx": reference, "head": self._seq},
            )
        return transaction

    def compaction_refusal(self, reference: int | str) -> UnknownTransaction:
        """Return the refusal of a compacted transaction."""
        floor = self.floor
        return UnknownTransaction(
            f"Transaction {reference} is compacted, as all before {floor.seq + 1} were at "
            f"{transaction_record.rfc3339(floor.time_us)}: it cannot be read or undone any more.",
            hint=f"The history begins with transaction {floor.seq}, as it left the files.",
            data={"tx": reference, "head": self._seq, "compacted": floor.seq},
        )

    def seq_of(self, reference: int | str) -> int:
        """Return the seq of an id, a unique prefix of one, or an entry. Raises UnknownTransaction.

        A seq is returned as it is, whether or not there is such a transaction.
        """
        if isinstance(reference, int):
            return reference
        if reference.isascii() and reference.isdigit() and len(reference) < 7:
            return int(reference)
        if reference.startswith("@"):
            return self._seq_of_entry(reference)
        prefix = reference.lower()
        is_id = set(prefix) <= set("0123456789abcdef")
        seqs = (self.index.by_id(prefix) or self.index.by_origin(prefix)) if is_id else []
        if len(seqs) == 1 and len(prefix) >= 4:
            return seqs[0]
        problem = "is the beginning of several ids" if len(seqs) > 1 else "names no transaction"
        raise UnknownTransaction(
            f"{reference!r} {problem}.",
            hint=Advice(
                "Give the seq, or at least four digits of the id, as ", method_term("log"), " shows them."
            ),
            data={"tx": reference, "head": self._seq},
        )

    def _seq_of_entry(self, reference: str) -> int:
        """Return the transaction of `@n`, an entry of the log that several hosts share."""
        number = entry_number(reference)
        entry = None if number is None else self.index.entry(number)
        if entry is None:
            raise UnknownTransaction(
                f"This host knows no entry {reference} of a log.",
                hint=Advice(
                    method_term("log"), " lists the transactions, with the numbers of their entries."
                ),
                data={"tx": reference, "head": self._seq},
            )
        seq, outcome = entry
        if seq is None:
            how = {
                "aside": "was set aside", "decided": "is a decision", "unusable": "cannot be used",
            }.get(outcome, "changed no file here")  # fmt: skip
            raise UnknownTransaction(
                f"Entry {reference} {how}, so this host has no transaction of it.",
                hint=Advice(step_term("set_aside")),
                data={"tx": reference, "head": self._seq},
            )
        return seq

    # ── drafting and committing ──

    def draft(
        self,
        kind: Kind,
        authorship: Authorship,
        time_us: int,
        changes: Sequence[Change[FileState]],
        *,
        undoes: Sequence[Seq] = (),
        parts: Sequence[Part] = (),
        claims: Sequence[Seq] = (),
        notes: bytes = b"",
        token: str = "",
        boot: bytes = b"",
        published_through: int = 0,
        excluded: LeftOut | None = None,
        made: Sequence[Version] = (),
    ) -> TransactionDraft:
        """Assign the next seq and commit id to `changes`. `self.head` refers to it from now on.

        `excluded` and `made` are from `keep_excluded`. Without them another program made the changes, and
        the contents of excluded files are only named.
        """
        seq = self._seq + 1
        records: list[ChangeRecord] = []
        touches: list[Change[Entry]] = []  # each equals `touch_of` of its record
        entries: list[tuple[bytes, FileState | None]] = []
        if excluded is None:
            excluded = self._excluded_contents(changes, is_kept=False)
        for change in changes:
            if excluded and self.excluded.rule.covers(change.path):
                record = excluded_record(change)
            else:
                is_known = change.before is None or self.index.is_touched(change.path)
                is_absent = change.before is not None and change.before.version in self.excluded.paths
                before = None if is_known and not is_absent else content_of(change.before)
                record = change_record(change, before, content_of(change.after))
            records.append(record)
            entries.append((record.path, change.after))
            touches.append(touch_by(change))
        splice, head_before = self._trees.update(entries), self._head
        try:
            commit = commit_oid(
                splice.root, head_before, seq, kind, authorship, time_us, touches, undoes, notes.decode(),
                parts, claims,
            )  # fmt: skip
            full_record = Committed(
                seq, commit[0], kind, authorship.actor, authorship.session, authorship.message,
                authorship.request_id, time_us, tuple(undoes), tuple(records), notes, token, boot,
                published_through, *(part_records(parts) if parts else ((), ())),
                approval_record(authorship.approval), attribution_record(authorship.attribution),
                tuple(claims), authorship.arrival, authorship.turn,
            )  # fmt: skip
            transaction = Transaction(
                Seq(seq), CommitId(commit[0].hex()), kind, authorship, time_us, tuple(touches), tuple(undoes),
                parts=tuple(parts), claims=tuple(claims),
            )  # fmt: skip
            self._head, self._seq = commit[0], seq
            self._hold(full_record, splice.trees, excluded)
            return TransactionDraft(full_record, transaction, notes, excluded, made, splice, head_before)
        except BaseException:  # also of a text that cannot be encoded
            self._go_back(splice, head_before, seq)
            raise

    def keep_excluded(
        self, changes: Sequence[Change[FileState]], time_us: int
    ) -> tuple[LeftOut, Sequence[Version]]:
        """Keep both contents of each excluded file, durably, before a new content is staged.

        Then a crash leaves no other copy of them that nothing knows. Return the contents that are left out of
        the record, and the newly kept contents. Raises IoError.
        """
        excluded = self._excluded_contents(changes, is_kept=True)
        if not excluded:
            return excluded, ()
        try:
            return excluded, self.excluded.keep(excluded, time_us, self._seq + 1)
        except OSError as error:
            raise IoError(error, "The contents of an excluded file cannot be kept") from error

    def _excluded_contents(self, changes: Sequence[Change[FileState]], *, is_kept: bool) -> LeftOut:
        """Return the contents of excluded files, without the empty one."""
        excluded: dict[Version, tuple[str, bytes | None]] = {}
        for change in changes:
            if self.excluded.rule.covers(change.path):
                for state in (change.before, change.after):
                    if state is not None and state.version != EMPTY:
                        content = content_of(state) if is_kept else None
                        excluded[state.version] = change.path.text, content
        return excluded

    def revert(self, drafts: Sequence[TransactionDraft]) -> None:
        """Discard these drafts, which must be the newest ones, in their order."""
        for draft in reversed(drafts):
            self._go_back(draft._splice, draft._head_before, draft.record.seq)

    def _go_back(self, splice: TreeUpdate, head: Oid, seq: int) -> None:
        """Return to the state before transaction `seq`, the newest one."""
        self._trees.revert(splice)
        self._head, self._seq = head, seq - 1
        self.pending.drop(seq)

    def commit(self, drafts: Sequence[TransactionDraft]) -> None:
        """Commit these drafts, the newest ones, with one sync: the commit point (C1).

        Raises OSError, after which the caller reverts the drafts, or JournalFailed if the commit is in doubt.
        """
        for draft in drafts:
            if draft.excluded:
                self.excluded.name(excluded_versions(draft.record))
        self.journal.append(tuple(map(_RECORD, drafts)))

    def abort(self, drafts: Sequence[TransactionDraft]) -> None:
        """Abort these committed drafts, the newest ones, which no client has seen (C4, C6)."""
        self.journal.append([Aborted(drafts[0].record.seq)])
        self.revert(drafts)

    def conclude(self, draft: TransactionDraft) -> None:
        """Index a draft that is committed and in the files, so that queries find it."""
        self.index.add(draft.transaction, draft.notes)
        if self.concluded is not None:
            self.concluded.append(draft.transaction)

    def note_published(self, draft: TransactionDraft) -> None:
        """Write down that all transactions up to this one are in the files."""
        self.published.note(draft.record.seq)

    @contextlib.contextmanager
    def trial(self) -> Iterator[Callable[[Sequence[Change[FileState]], Sequence[Seq], Sequence[Part]], None]]:
        """Yield a function that records a trial undo: its changes, and the transactions and parts it undoes.

        Inside the context, all queries answer as after the undo. Nothing is committed.
        """
        head, splices = self._seq, list[TreeUpdate]()
        with self.index.trial() as add:

            def record(
                changes: Sequence[Change[FileState]], undoes: Sequence[Seq], parts: Sequence[Part]
            ) -> None:
                splices.append(self._trees.update((change.path.raw, change.after) for change in changes))
                self._tried |= splices[-1].trees
                for state in (side for change in changes for side in (change.before, change.after)):
                    if state is not None:
                        self._tried[oid_of(state.version)] = state.content
                self._seq += 1
                touches = tuple(map(touch_by, changes))
                nobody = Authorship("", None, "", None)
                name = CommitId(f"{self._seq:040x}")
                add(Transaction(
                    Seq(self._seq), name, "undo", nobody, NEVER, touches, tuple(undoes), parts=tuple(parts)
                ))  # fmt: skip

            try:
                yield record
            finally:
                for splice in reversed(splices):
                    self._trees.revert(splice)
                self._seq = head
                self._tried.clear()

    # ── packing ──

    @property
    def is_backed_up(self) -> bool:
        """Whether so many bytes wait for packing that new transactions must wait."""
        return self.pending.bytes > PENDING_BYTES_MAX

    @property
    def is_pressing(self) -> bool:
        """Whether so much waits for packing that it need not wait for a long pause."""
        return self._seq - self.packed >= PRESSING_TRANSACTIONS or self.pending.bytes >= PRESSING_BYTES

    @property
    def is_half_full(self) -> bool:
        """Whether the rest of the room in the journal is for requests, and packing is urgent."""
        return self.pending.bytes > PENDING_BYTES_MAX // 2

    def note_packed(self, seq: int, tail: JournalPosition) -> None:
        """Record that all up to `seq` is durable in git, and that packing has read the journal to `tail`."""
        self.packed = Seq(seq)
        self._tail = tail
        self.measure()
        self.pending.release(seq)

    def take_over(self, transaction: Transaction) -> None:
        """Make a transaction the newest one that was packed without the journal (`first_scan`).

        All before it are packed.
        """
        self.reopen_packs()
        self._begin_at(bytes.fromhex(transaction.id))
        self.index.add(transaction)
        self.published.note(transaction.seq)

    def note_synced(self, seq: int) -> None:
        """Record that all up to `seq` is durable in the files; log a failure to record it.

        Also sync the mark, so that after a power cut it is no older than this.
        """
        try:
            note_synced(self.folder, seq)
            self.journal.sync_mark()
            if self.is_in_doubt:
                clear_sync_failed(self.folder)
                self.is_in_doubt = False
        except OSError as error:
            log.warning("the number of the last synced transaction could not be written: %s", error)

    def mark_sync_failed(self) -> None:
        """Record that a sync failed, so that the next start rewrites the unsynced files."""
        try:
            mark_sync_failed(self.folder)
        except OSError as error:
            log.critical("the failure of a sync could not be recorded: %s", error)

    def quarantine(self, version: Version, content: bytes) -> None:
        """Store content without a transaction, durably, as `strays/<version>`. Raises OSError."""
        folder = os.path.join(self.folder, "strays")
        os.makedirs(folder, 0o700, exist_ok=True)
        descriptor = os.open(
            os.path.join(folder, version), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    # ── compacting ──

    def _read_floor(self) -> HistoryStart:
        floor = read_history_start(self.store)
        return (
            floor if floor.commit is None else replace(floor, seq=int(self._parse_message(floor.commit).seq))
        )

    def compact(self, commit: CommitId) -> None:
        """Make this packed transaction the start of the history; earlier ones are no longer available.

        Durable on return. Raises OSError with nothing changed. `forget_compacted` updates the index.
        """
        oid = oid_of(commit)
        write_history_start(self.store, oid)
        self.floor = self._read_floor()
        self._index_floor(oid)

    def forget_compacted(self, transactions: int) -> bool:
        """Remove at most `transactions` compacted ones from the index; return whether there are more."""
        return self.index.forget(self.floor.seq, transactions)

    def begin_forgetting(self, contents: Sequence[ForgottenContent]) -> None:
        """Serve these contents no more, also after a crash. Durable on return.

        The caller removes them, and calls `end_forgetting`. Raises OSError with nothing changed.
        """
        forgotten = self.forgotten | {content.version: content for content in contents}
        write_forgotten(self.store, forgotten)
        self.forgotten = forgotten

    def stop_forgetting(self, versions: Collection[Version]) -> None:
        """Keep these contents after all, because a later transaction has written them. Raises OSError."""
        forgotten = {version: one for version, one in self.forgotten.items() if version not in versions}
        write_forgotten(self.store, forgotten)
        self.forgotten = forgotten

    def end_forgetting(self) -> None:
        """Record that the forgotten contents are removed. Raises OSError."""
        forgotten = {version: replace(one, is_gone=True) for version, one in self.forgotten.items()}
        write_forgotten(self.store, forgotten)
        self.forgotten = forgotten

    def reopen_packs(self) -> None:
        """Open the packs anew, because open packs that were deleted still use disk space."""
        self._objects.close()
        self._objects = StoredObjects(self.store)
        self.measure()

    def measure(self) -> None:
        """Measure the disk space of the packs."""
        self._packed_bytes = folder_bytes(os.path.join(self.store, "objects", "pack"))

    @property
    def disk_bytes(self) -> int:
        """The disk space of the history, with the bytes that wait for packing."""
        return self._packed_bytes + self.pending.bytes

    def _index_floor(self, commit: Oid) -> None:
        transaction, notes = self._transaction_of_commit(commit)
        self.index.begin_with(transaction, notes)

    def close(self) -> None:
        self.index.close()
        self.journal.close()
        self.published.close()
        self._objects.close()

    def _hold(
        self,
        record: Committed,
        trees: Mapping[Oid, bytes],
        excluded: LeftOut = _NOTHING_LEFT_OUT,
    ) -> None:
        """Keep the contents and the trees of a transaction in memory until they are packed."""
        objects = dict(trees)
        for version, (_, content) in excluded.items():
            if content is not None:
                objects[oid_of(version)] = content
        for change in record.changes:
            for side in (change.before, change.after):
                if side is not None and side.content is not None:
                    objects[side.version] = side.content
        self.pending.hold(record.seq, objects.items())

    # ── opening ──

    def _replay(self, read: Sequence[Frame], standing: Sequence[tuple[int, Committed]]) -> None:
        """Load the journal's transactions after head: the hot journal.

        `read` are its frames, `standing` the transactions in them that were not aborted, by seq.
        """
        for frame in read:
            self.journal.note(frame.end, max(record.seq for record in frame.records))
        for seq, record in standing:
            if self.floor.seq <= seq <= self.packed and self.index.id_of(seq) != record.commit.hex():
                raise self._damage_refusal(f"its journal has another transaction {seq} than its store")
        hot = [record for seq, record in standing if seq > self.packed]
        for record in hot:
            if record.seq != self._seq + 1:
                raise self._damage_refusal(f"its journal goes from transaction {self._seq} to {record.seq}")
            transaction = transaction_of(record)
            splice = self._trees.update(entries_of(transaction))
            commit, _ = commit_of(transaction, record.notes, splice.root, self._head)
            if commit != record.commit:
                raise self._damage_refusal(
                    f"transaction {record.seq} in its journal does not follow from the one before"
                )
            self._advance(record)
            self._hold(record, splice.trees)
            if record.seq > self._indexed:
                self.index.add(transaction, record.notes)
        self._compare_with_mark(read)
        if read:
            try:
                self.journal.acknowledge_found(read[-1])
            except OSError as error:
                raise IoError(error, "The journal cannot be synced") from error
        self.hot = tuple(hot)
        synced = read_synced(self.folder)
        if synced is None:
            synced = int(self.packed)
            self.note_synced(synced)
        self.unsynced = tuple(record for seq, record in standing if seq > min(synced, self.packed))
        self.is_in_doubt = has_sync_failed(self.folder)

    def _advance(self, record: Committed) -> None:
        """Make this transaction of the journal the newest one."""
        self._head, self._seq = record.commit, record.seq

    def _compare_with_mark(self, read: Sequence[Frame]) -> None:
        """Raise HistoryDamaged if a transaction is missing that was acknowledged."""
        mark = read_acknowledged(self.journal.folder)
        if mark is None:
            return
        acknowledged = acknowledged_seq(mark, read)
        if self._seq < acknowledged:
            raise self._damage_refusal(
                f"it ends with transaction {self._seq}, and was acknowledged up to {acknowledged}"
            )
        if acknowledged == mark.seq == self._seq and mark.commit not in (NOBODY, self._head):
            raise self._damage_refusal(f"its transaction {self._seq} is not the acknowledged one")

    def _catch_up_index(self, standing: Sequence[tuple[int, Committed]]) -> None:
        """Add the git commits up to the packed head that the index lacks.

        An index with other transactions than the store and the journal's `standing` ones is rebuilt.
        """
        if self.floor.commit is not None and self.index.first < self.floor.seq:
            self.index.forget(self.floor.seq)
        last = self.index.last
        if last >= 0 and not (
            self._is_ancestor(min(last, int(self.packed))) and self._has_no_other(standing)
        ):
            self.index.clear()
            last = -1
        lacking: list[Oid] = []
        oid: Oid | None = self._head
        while oid is not None and (last < 0 or self._parse_message(oid).seq > last):
            lacking.append(oid)
            oid = self._commit(oid).parent
        for oid in reversed(lacking):
            transaction, notes = self._transaction_of_commit(oid)
            self.index.add(transaction, notes)
        if self.floor.commit is not None:
            self._index_floor(self.floor.commit)
        self._indexed = max(last, self.packed)

    def _has_no_other(self, standing: Sequence[tuple[int, Committed]]) -> bool:
        """Return whether the index has only the journal's transactions above the packed head.

        With relaxed durability, a power cut may lose transactions that the index has already. Their numbers
        are then given to others.
        """
        commits = {seq: record.commit.hex() for seq, record in standing}
        return all(commits.get(seq) == known for seq, known in self.index.ids_above(int(self.packed)))

    def _is_ancestor(self, seq: int) -> bool:
        """Return whether the index's transaction `seq`, which is packed, belongs to this history.

        It may not, if an older state folder was restored.
        """
        known = self.index.id_of(seq)
        if known is None:
            return False
        if seq == self.packed:
            return known == self._packed_commit.hex()
        try:
            return self._parse_message(oid_of(known)).seq == seq
        except HistoryDamaged:
            return False

    def _transaction_of_commit(self, oid: Oid) -> tuple[Transaction, bytes]:
        """Read a transaction back from its commit: the trailers, and the difference of the trees."""
        try:
            return transaction_of_commit(self._object_bytes, oid)
        except ValueError as error:
            raise self._damage_refusal(f"commit {oid.hex()} is not one of editd's: {error}") from error

    def _parse_message(self, oid: Oid) -> transaction_record.ParsedMessage:
        try:
            return transaction_record.parse(self._commit(oid).message)
        except ValueError as error:
            raise self._damage_refusal(f"commit {oid.hex()} is not one of editd's: {error}") from error

    def _commit(self, oid: Oid) -> CommitObject:
        try:
            return CommitObject.decode(self._read(oid)[1])
        except (KeyError, ValueError, pygit2.GitError) as error:
            raise self._damage_refusal(f"commit {oid.hex()} cannot be read") from error

    def _damage_refusal(self, problem: str) -> HistoryDamaged:
        return HistoryDamaged(
            f"The history is damaged: {problem}.",
            hint=Advice("Nothing was changed. Keep the state folder, and run ", command_term("check"), "."),
            data={"file": self.store},
        )

    def _read(self, oid: Oid) -> tuple[int, bytes]:
        """Return an object's type and bytes from the store. Raises KeyError, pygit2.GitError, IoError."""
        kind, content = self._objects.read(oid)
        return kind, self.floor.apply_floor(oid, content)

    def _in_memory(self, oid: Oid) -> bytes | None:
        pending = self.pending.get(oid)
        return pending if pending is not None else self._tried.get(oid)

    def _object_bytes(self, oid: Oid) -> bytes:
        if (content := self._in_memory(oid)) is not None:
            return content
        try:
            return bytes(self._read(oid)[1])
        except (KeyError, pygit2.GitError) as error:
            raise self._damage_refusal(f"the object {oid.hex()} cannot be read") from error


def _open_repository(path: str) -> pygit2.Repository:
    try:
        return open_store(path)
    except pygit2.GitError as error:
        raise HistoryDamaged(f"The history cannot be opened: {error}.", data={"file": path}) from error
