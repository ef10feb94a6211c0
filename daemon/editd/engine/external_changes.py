"""The files as other programs leave them: the view of one turn, and the recording of external changes.

Content written by another program is recorded before editd changes the file. So the view compares each file
with the history, by hash. It puts a file that differs into `strangers`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct, field

from editd.errors import InUse, NotAFile, PathOutside, Refused, TooLarge
from editd.store.recorded_state import state_of
from editd.values.content import SYMLINK, Change, Entry, FileState, GitMode, Version
from editd.values.path import WorkspacePath, inner, ways_down
from editd.values.transaction import Authorship

if TYPE_CHECKING:
    from editd.store.history import History
    from editd.values.transaction import Transaction
    from editd.wire.messages import Kind
    from editd.workspace.reader import OpenFiles, WorkspaceReader
    from editd.workspace.writer import WorkspaceWriter


log = logging.getLogger(__name__)


def is_same(entry: Entry | None, state: FileState | None) -> bool:
    """Return whether a file has its recorded content and git mode, or is absent in both."""
    if entry is None or state is None:
        return entry is None and state is None
    return entry.version == state.version and entry.mode == state.mode


class DiskSnapshot(Struct):
    """A snapshot that reads each path once, at its first use."""

    tree: WorkspaceReader
    history: History
    quiet: bool = True  # do not read a file that is open for writing
    patient: bool = True  # raise InUse for such a file; otherwise read it anyway
    kept: OpenFiles | None = None  # gets the files that were read, still open
    yield_turn: Callable[[], None] | None = None  # called before each step, where others may use the engine
    drafted: dict[WorkspacePath, FileState | None] = field(default_factory=dict)
    strangers: dict[WorkspacePath, FileState | None] = field(default_factory=dict)

    def at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path`, links not followed. Raises NotAFile, InUse, PathOutside or TooLarge."""
        if self.yield_turn is not None:
            self.yield_turn()
        if path in self.drafted:
            return self.drafted[path]
        known = self.history.entry(path)
        try:
            state = self._read(path, known)
        except (NotAFile, PathOutside):
            if known is not None:  # the recorded file was replaced by a folder or by a symlink above it
                self.strangers[path] = None
            raise
        self.drafted[path] = state
        if is_same(known, state):
            self.strangers.pop(path, None)  # an earlier call may have found a folder there
        else:
            self.strangers[path] = state
        return state

    def file_at(self, path: WorkspacePath) -> FileState | None:
        """Return the state of `path`, or None for a folder or a path below a symlink.

        `WorkspaceWriter.check` verifies whether a file can take that path.
        """
        try:
            return self.at(path)
        except (NotAFile, PathOutside):
            return None

    def _read(self, path: WorkspacePath, known: Entry | None) -> FileState | None:
        """Read the file. Comparing it with content in memory is cheaper than hashing it."""
        guess = None if known is None else self.history.pending_content(known.version)
        try:
            file = self.tree.find(path, quiet=self.quiet, kept=self.kept)
        except InUse:
            if self.patient:
                raise
            file = self.tree.find(path)
        if file is not None and known is not None and file.content == guess:
            return FileState(file.content, file.mode, file.permissions, known.version)
        return None if file is None else file.state()

    def forget_strangers(self) -> None:
        """Forget the files that differ from the history. Their next use reads them again."""
        for path in self.strangers:
            self.drafted.pop(path, None)
        self.strangers.clear()

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        return self.tree.names(folder)

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path with every symlink followed. A regular file needs no resolving."""
        try:
            state = self.at(path)
        except (NotAFile, PathOutside, TooLarge):
            state = None
        return path if state is not None and state.mode != SYMLINK else self.tree.resolve(path)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return self.tree.resolve_folder(path)

    def link(self, path: WorkspacePath) -> str | None:
        """Return the target of the symlink at `path`, relative to its folder; None for anything else."""
        try:
            state = self.at(path)
        except (NotAFile, PathOutside, TooLarge):
            state = None
        if state is None or state.mode != SYMLINK:
            return None
        if not state.content.startswith(b"/"):
            return os.fsdecode(state.content)
        return "../" * path.text.count("/") + os.fsdecode(self.tree.inside(state.content, path))


# Reconciliation: compare the files that a scan or a notice reports with the history.


class Record(Protocol):
    """Records content found on disk, and returns the new transactions. Raises IoError."""

    def __call__(
        self, found: Mapping[WorkspacePath, FileState | None], message: str = ""
    ) -> list[Transaction]: ...


class Portion(NamedTuple):
    """The most that one transaction records of a bulk change, because requests wait for it."""

    files: int
    content_bytes: int


OUTSIDE_PORTION = Portion(250, 4 * 1024 * 1024)  # some 0.05 s
COMMAND_PORTION = Portion(5000, 32 * 1024 * 1024)  # some 1 s: a command is one transaction if it can be
WHOLE = Portion(sys.maxsize, sys.maxsize)  # a checkout, whose transaction says where HEAD moved
READ_BYTES_MAX = 16 * 1024 * 1024  # of contents in memory until they are recorded; others are read again


class UnreadState(NamedTuple):
    """A file whose content is read again when it is recorded."""

    version: Version
    size: int


class Reconciliation:
    """Files compared one by one, between other work of the engine, and recorded in portions at the end.

    A notice or a scan only names candidates. The content read here decides.
    """

    def __init__(
        self,
        tree: WorkspaceReader,
        history: History,
        record: Record,
    ) -> None:
        self._tree = tree
        self._history = history
        self._record = record
        self._found: dict[WorkspacePath, tuple[Entry | None, FileState | UnreadState | None]] = {}
        self._read_bytes = 0
        self.failed: list[str] = []  # paths that could not be read, and why

    def look(self, path: WorkspacePath) -> None:
        """Compare a file with the history. Keep a difference until `record`."""
        for stranger, state in self._compared(path).strangers.items():
            self._note(stranger, state)

    def _compared(self, path: WorkspacePath) -> DiskSnapshot:
        view = DiskSnapshot(self._tree, self._history, patient=False)
        try:
            view.at(path)
        except (NotAFile, PathOutside):
            pass  # The view has noted a recorded file as gone.
        except Refused as refusal:
            self.failed.append(f"{path.text}: {refusal.message}")
        return view

    def _note(self, path: WorkspacePath, state: FileState | None) -> None:
        kept: FileState | UnreadState | None = state
        if state is not None:
            self._read_bytes += len(state.content)
            if self._read_bytes > READ_BYTES_MAX:
                kept = UnreadState(state.version, len(state.content))
        self._found[path] = (self._history.entry(path), kept)

    @property
    def found(self) -> Collection[WorkspacePath]:
        """The files that are different."""
        return self._found.keys()

    def portions(self, most: Portion) -> Iterator[list[WorkspacePath]]:
        """Yield the differing files in portions, for one call of `record` each.

        Both ends of a possible move are in one portion.
        """
        portion: list[WorkspacePath] = []
        content_bytes, before = 0, None
        for version, path in self._by_moves():
            is_full = len(portion) >= most.files or content_bytes > most.content_bytes
            if is_full and (version is None or version != before):
                yield portion
                portion, content_bytes = [], 0
            portion.append(path)
            content_bytes += self.size(path)
            before = version
        if portion:
            yield portion

    def _by_moves(self) -> list[tuple[Version | None, WorkspacePath]]:
        """Return the files in their order, but files that may have moved last, by their versions."""
        versions: dict[WorkspacePath, Version] = {}
        gone: set[Version] = set()
        for path, (known, state) in self._found.items():
            if state is not None:
                versions[path] = state.version
            elif known is not None:
                versions[path] = known.version
                gone.add(known.version)
        moved = gone & {version for path, version in versions.items() if self._found[path][1] is not None}
        stay = [(None, path) for path in self._found if versions.get(path) not in moved]
        return [*stay, *sorted((version, path) for path, version in versions.items() if version in moved)]

    def is_new(self, path: WorkspacePath) -> bool:
        """Return whether a differing file is new to the history."""
        known, state = self._found[path]
        return known is None and state is not None

    def size(self, path: WorkspacePath) -> int:
        """Return the bytes of a differing file as it is now."""
        state = self._found[path][1]
        if state is None:
            return 0
        return state.size if isinstance(state, UnreadState) else len(state.content)

    def record(self, paths: Sequence[WorkspacePath] | None = None, message: str = "") -> list[Transaction]:
        """Record these differences, or all, in one transaction. Compare files edited meanwhile again.

        Raises IoError if the journal cannot be written. Nothing is recorded then.
        """
        found: dict[WorkspacePath, FileState | None] = {}
        paths = tuple(self._found) if paths is None else paths
        for path in paths:
            known, state = self._found[path]
            if isinstance(state, UnreadState) or self._history.entry(path) != known:
                found.update(self._compared(path).strangers)
            else:
                found[path] = state
        recorded = self._record(found, message)
        for path in paths:
            del self._found[path]
        return recorded


def suspects_in(
    history: History, folder: str, found: Mapping[bytes, tuple[GitMode, Version]]
) -> tuple[list[WorkspacePath], list[str]]:
    """Return the paths of one folder that differ in a scan and the history, and its recorded subfolders."""
    known, below = history.folder_at_head(folder, is_kept=False)
    prefix = os.fsencode(folder) + b"/" if folder else b""
    suspects = (
        []
        if known == found
        else [
            WorkspacePath(os.fsdecode(prefix + name))
            for name in known.keys() | found.keys()
            if known.get(name) != found.get(name)
        ]
    )
    return suspects, [os.fsdecode(prefix + name) for name in below]


def known_below(history: History, top: str) -> Iterator[WorkspacePath]:
    """Yield the recorded paths in and below a folder ("" for the root).

    Each folder is read when the iteration reaches it.
    """
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        files, below = history.folder_at_head(folder)
        prefix = folder + "/" if folder else ""
        waiting.extend(prefix + os.fsdecode(name) for name in below)
        yield from (WorkspacePath(prefix + os.fsdecode(name)) for name in files)


def sweep(files: WorkspaceWriter, history: History, strays: Iterable[bytes]) -> None:
    """Remove temporary files and folders of earlier daemons.

    A temporary file with unrecorded content is an edit that was never committed, or, after a crash, the only
    copy of another program's content. So the content is moved to lost and found.
    """
    for stray in strays:
        try:
            state = files.stray(stray)
            if state is not None and not history.is_safe(state.version):
                history.quarantine(state.version, state.content)
                log.warning("%s was left behind, and is kept as %s", os.fsdecode(stray), state.version)
            files.sweep(stray)
        except (Refused, OSError) as error:
            log.warning("a temporary file could not be removed: %s: %s", os.fsdecode(stray), error)
    files.remove_left_folders()


OUTSIDE = Authorship(actor="outside")


class AttributedChanges(NamedTuple):
    """Outside changes that become one transaction, of this kind and author."""

    kind: Kind
    authorship: Authorship
    changes: tuple[Change[FileState], ...]


OutsideAuthorship = Callable[[Sequence[Change[FileState]]], list[AttributedChanges] | None]
"""Divide outside changes by their authors; None if all of them are unknown."""

IsOurs = Callable[[WorkspacePath], bool]
"""Return whether the scan covers a path that no edit has touched."""


class ExternalChange(Struct, frozen=True):
    """Changes found on disk, by the kind of transaction that records them."""

    kind: Kind
    changes: tuple[Change[FileState], ...]


def external_changes(
    strangers: Mapping[WorkspacePath, FileState | None],
    history: History,
    is_ours: IsOurs,
) -> list[ExternalChange]:
    """Sort the states found on disk into files seen for the first time, and changes.

    A path is new to editd if neither the history nor the scan covered it: `is_ours` is false, because git
    ignores the file or it exceeded the budget of the baseline. It existed before editd, so it is recorded
    with kind `baseline`, and an undo never deletes it.
    """
    first_seen: list[Change[FileState]] = []
    changed: list[Change[FileState]] = []
    for path, state in sorted(strangers.items()):
        known = history.entry(path)
        if is_same(known, state):
            continue  # Recorded already, or absent in both.
        change = Change(path, state_of(known, history), state)
        is_first_seen = known is None and not is_ours(path)
        (first_seen if is_first_seen else changed).append(change)
    adoptions = [
        ExternalChange("baseline", tuple(first_seen)),
        ExternalChange("outside", _with_moves(changed)),
    ]
    if any(change.after is None for change in changed):
        adoptions.reverse()  # A deleted file may have made room for a new one.
    return [adoption for adoption in adoptions if adoption.changes]


def _with_moves(changes: Sequence[Change[FileState]]) -> tuple[Change[FileState], ...]:
    """Return the changes with moves: pairs of a deleted and a new file of the same, unique content."""
    gone: dict[tuple[Version, GitMode], list[WorkspacePath]] = {}
    come: dict[tuple[Version, GitMode], list[WorkspacePath]] = {}
    for change in changes:
        if change.after is not None and change.kind != "mode":
            come.setdefault((change.after.version, change.after.mode), []).append(change.path)
        elif change.before is not None and change.after is None:
            gone.setdefault((change.before.version, change.before.mode), []).append(change.path)
    moved = {to[0]: gone[key][0] for key, to in come.items() if len(to) == 1 and len(gone.get(key, ())) == 1}
    return tuple(Change(c.path, c.before, c.after, moved.get(c.path)) for c in changes)


def nested_paths(files: AbstractSet[WorkspacePath]) -> Iterator[WorkspacePath]:
    """Yield the files whose path has another of the files as a folder."""
    nested = inner({path.raw for path in files})
    yield from (path for path in files if path.raw in nested)


def blocked_by(files: Iterable[WorkspacePath], history: History) -> set[WorkspacePath]:
    """Return the recorded files that cannot exist together with `files`: those above and below them."""
    blocked: set[WorkspacePath] = set()
    above: dict[bytes, bool] = {b"": True}  # whether the history has files in the folder
    for path in files:
        blocked.update(known_below(history, path.text))
        for way in ways_down(path.raw.rpartition(b"/")[0], above):
            folder = WorkspacePath(os.fsdecode(way))
            is_known = above[way.rpartition(b"/")[0]]
            if is_known and history.entry(folder) is not None:
                blocked.add(folder)
            above[way] = is_known and history.has_folder(folder)
    return blocked


def find_displaced(
    view: DiskSnapshot,
    files: WorkspaceWriter,
    changes: Sequence[Change[FileState]],
    made: Sequence[WorkspacePath],
) -> None:
    """Note recorded files that are gone because a file took the place of a folder, or the reverse.

    `made` are the paths that `changes` create. Raises NotAFile if there is no room for `changes`, and
    InUse if the disk changes meanwhile.
    """
    in_the_way = blocked_by(made, view.history) - {change.path for change in changes}
    for path in in_the_way:
        with contextlib.suppress(Refused):  # `files.check` reports the files that are in the way
            view.file_at(path)
    if in_the_way - view.strangers.keys():
        files.check(changes)
        raise InUse(changes[0].path.text)
    present = {path for path, state in view.strangers.items() if state is not None}
    kept = present - {change.path for change in changes if change.after is None}
    afterwards = kept | {change.path for change in changes if change.after is not None}
    if clash := next(chain(nested_paths(present), nested_paths(afterwards)), None):
        if changes:
            files.check(changes)
            raise InUse(clash.text)
        for path in set(nested_paths(present)):  # The disk changed meanwhile. The watcher reports it.
            del view.strangers[path]
            present.discard(path)
    new = [path for path in present if view.history.entry(path) is None]
    view.strangers.update(dict.fromkeys(blocked_by(new, view.history)))
