"""Scope: the paths of the workspace that editd records, even before an edit touches them.

Out of scope are git's own folders, editd's temporaries, locks and swap files of editors, mounts that ignore
case or Unicode form in names, and ignored files. Without a git repository, folders of generated files are out
of scope instead. Tracked files are in scope even if they are ignored. An edit takes a path that is out of
scope into the history, but on a mount of that kind it is refused. Nested repositories and submodules have
their own rules. Inner workspaces are out of scope, and no edit is taken there.

`WeakerGuarantees` has the promises that the workspace's mounts cannot keep.
"""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from editd.errors import PermissionDenied, join_names
from editd.system import confinement
from editd.system.files import replace_file_durably
from editd.system.filesystem import missing_calls, open_folder
from editd.system.folded_names import folding_mounts
from editd.system.mounts import MountEvents, mount_of, mounts, mounts_below
from editd.system.native import NATIVE
from editd.system.proc import boot_id
from editd.values.path import PATH_BYTES_MAX, WorkspacePath, is_protected_name, ways_down
from editd.workspace.inner_workspaces import InnerWorkspaces
from editd.workspace.staged_change import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from editd.system.filesystem import Disk
    from editd.system.mounts import Mount
    from editd.workspace.git_worktree import GitIndex, IgnoreRules


# Folders of generated files, which need no undo. Used only without a git repository.
GENERATED = frozenset(
    {"node_modules", ".venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache",
     ".hypothesis", ".gradle", ".next", ".svelte-kit", ".terraform", ".direnv"}
)  # fmt: skip
_GENERATED_BESIDE = {"target": b"Cargo.toml", "build": b"build.gradle", "vendor": b"composer.json"}
_GENERATED_WITH = (b"CACHEDIR.TAG", b"pyvenv.cfg")  # marker files of such folders
# Locks and auto-save files of Emacs; swap files of Vim, and its test whether a folder is writable.
_EDITORS_OWN = re.compile(rb"\.#.*|#.*#|\..*\.sw[a-p]|4913", re.DOTALL)


class WorkspaceScope:
    """Applies the repositories' ignore rules as of its construction."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(os.path.realpath(root))
        self._rules: dict[bytes, IgnoreRules | None] = {}
        self._folding: frozenset[bytes] | None = None
        self._states: dict[bytes, tuple[IgnoreRules | None, bool]] = {}
        self._cursor = _FolderCursor(self._root)
        self._inner = InnerWorkspaces(os.fsdecode(self._root))
        self._served: frozenset[bytes] | None = None  # inner workspaces with a history or a mark
        self.inner: set[bytes] = set()  # the inner workspaces that were left out

    def is_in(self, path: WorkspacePath) -> bool:
        """Return whether this path is in scope. For single paths; a walk calls `takes` folder by folder."""
        raw = path.raw
        if len(raw) > PATH_BYTES_MAX:
            return False
        rules, is_taken = self._state_of(raw.rpartition(b"/")[0])
        if is_taken and self.takes(raw, rules, is_folder=False):
            return True
        *folders, _ = ways_down(raw, ())
        is_kept_out = self.is_kept_out(raw) or any(self.is_kept_out(way, is_folder=True) for way in folders)
        return rules is not None and not is_kept_out and rules.tracks(raw)

    def _state_of(self, folder: bytes) -> tuple[IgnoreRules | None, bool]:
        """Return the rules in force in a folder, and whether it is in scope.

        For a folder out of scope, return the rules that exclude it.
        """
        if b"" not in self._states:
            self._states[b""] = self.rules(b"", None), True
        for way in ways_down(folder, self._states):
            rules, is_taken = self._states[way.rpartition(b"/")[0]]
            is_taken = is_taken and self.takes(way, rules, is_folder=True)
            self._states[way] = (self.rules(way, rules) if is_taken else rules), is_taken
        return self._states[folder]

    def takes(self, path: bytes, rules: IgnoreRules | None, *, is_folder: bool) -> bool:
        """Return whether `path` is in scope, if its folder is, under `rules` (None: no git repository)."""
        if self.is_kept_out(path, is_folder=is_folder):
            return False
        if not is_folder and _EDITORS_OWN.fullmatch(path.rpartition(b"/")[2]):
            return False
        if rules is None:
            return not (is_folder and self._is_generated(path))
        return not rules.ignores(path, is_folder=is_folder)

    def is_kept_out(self, path: bytes, *, is_folder: bool = False) -> bool:
        """Return whether `path` is never in scope.

        That is by its name, as a mount that ignores case or form, or as an inner workspace.
        """
        if self._folding is None:
            self._folding = frozenset(folding_mounts(self._root, mounts()))
        if path in self._folding or is_never_ours(path.rpartition(b"/")[2]):
            return True
        if is_folder and self._is_inner(path):
            self.inner.add(path)
            return True
        return False

    def _is_inner(self, folder: bytes) -> bool:
        if self._served is None:
            self._served = frozenset(self._inner.served_folders())
        above, _, name = folder.rpartition(b"/")
        has_git = self._cursor.has(above, name + b"/.git")
        return folder in self._served or (has_git and self._inner.is_one(folder))

    def rules(self, folder: bytes, above: IgnoreRules | None) -> IgnoreRules | None:
        """Return the rules in force in `folder`: its own repository's, or `above` if it is no top of one."""
        if folder not in self._rules:
            self._rules[folder] = self._own_rules(folder)
        return self._rules[folder] or above

    def _own_rules(self, folder: bytes) -> IgnoreRules | None:
        if not self._cursor.has(folder, b".git"):
            return None if folder else self._rules_above()
        return _rules_of(os.path.join(self._root, folder) if folder else self._root, folder, b"")

    def _rules_above(self) -> IgnoreRules | None:
        """Return the rules of a repository around the workspace; None if that one ignores it as a whole."""
        worktree = self._root
        while (above := os.path.dirname(worktree)) != worktree:
            worktree = above
            if not os.path.lexists(os.path.join(worktree, b".git")):
                continue
            rules = _rules_of(worktree, b"", os.path.relpath(self._root, worktree) + b"/")
            if rules is not None:
                return None if rules.ignores(b"", is_folder=False) else rules
        return None

    def _is_generated(self, path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        text = os.fsdecode(name)
        if text in GENERATED:
            return True
        sign = _GENERATED_BESIDE.get(text)
        if sign is not None and self._cursor.has(above, sign):
            return True
        return any(self._cursor.has(path, sign) for sign in _GENERATED_WITH)


def scope_predicate(root: str, uncovered: frozenset[bytes]) -> Callable[[WorkspacePath], bool]:
    """Return whether the scan covers a path, by the current ignore rules."""
    scope = WorkspaceScope(root)
    return lambda path: path.raw not in uncovered and scope.is_in(path)


class _FolderCursor:
    """An open descriptor of the last queried folder below the root.

    A folder below it is opened relative to it. So a walk downwards costs one step for each folder, at any
    depth.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._folder = b""
        self._descriptor = -1

    def __del__(self) -> None:
        self._close()

    def has(self, folder: bytes, name: bytes) -> bool:
        """Return whether a folder contains `name`, of any kind."""
        try:
            self._move_to(folder)
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return os.path.lexists(os.path.join(self._root, folder, name))
            return False
        return True

    def _move_to(self, folder: bytes) -> None:
        if self._descriptor >= 0 and folder == self._folder:
            return
        is_below = self._descriptor >= 0 and folder.startswith(self._folder + b"/")
        inside = folder[len(self._folder) + 1 :] if is_below else os.path.join(self._root, folder)
        opened = os.open(inside, NATIVE.folder_flags, dir_fd=self._descriptor if is_below else None)
        self._close()
        self._folder, self._descriptor = folder, opened

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_never_ours(name: bytes) -> bool:
    """Return whether this name is out of scope in every folder: git's own, or a temporary of editd."""
    return is_temporary(name) or is_protected_name(os.fsdecode(name))


def _rules_of(worktree: bytes, top: bytes, above: bytes) -> IgnoreRules | None:
    """Call `IgnoreRules.of`. Without a repository, libgit2 is not loaded: half of a scan worker's start."""
    from editd.workspace.git_worktree import IgnoreRules

    return IgnoreRules.of(worktree, top, above)


# The paths that the baseline left out because of its budget: not recorded until an edit touches them.

_UNCAPTURED_FILE = "uncovered"


def load_uncovered(folder: str) -> frozenset[bytes]:
    """Return the paths saved in the state folder `folder`."""
    try:
        with open(os.path.join(folder, _UNCAPTURED_FILE), "rb") as file:
            return frozenset(file.read().split(b"\0")) - {b""}
    except FileNotFoundError:
        return frozenset()


def save_uncovered(folder: str, paths: frozenset[bytes]) -> None:
    """Save the paths durably, so that such a file is never recorded as newly created. Raises OSError."""
    replace_file_durably(os.path.join(folder, _UNCAPTURED_FILE), b"\0".join(sorted(paths)))


# Hidden folders: folders with recorded files over which a file system was mounted later.
#
# Their files exist but cannot be seen, so they are not recorded as deleted. The files on the mount are
# different files, unknown to the history. The state folder has a list of the mounts that are part of the
# workspace. A mount that is not in this list was made while no daemon ran.
#
# Inner workspaces are alike: recorded files may be in them, and belong to another workspace now.

_MOUNTS_FILE = "mounts"  # of the file in the state folder


class HiddenFolders:
    """The hidden folders of one workspace."""

    def __init__(self, root: str, state: str, has_files: Callable[[WorkspacePath], bool]) -> None:
        """Compare the mounts below `root` with the list in the state folder `state`.

        `has_files` returns whether the history has a file at or below a path. If there is no list yet, the
        present mounts hide nothing.
        """
        self.inner = InnerWorkspaces(root)
        self._root = os.fsencode(root)
        self._path = os.path.join(state, _MOUNTS_FILE)
        self._has_files = has_files
        self._events = MountEvents()
        self._known: set[tuple[bytes, int]] = set()  # path and number
        self._folders: set[bytes] = set()
        self._lock = threading.Lock()
        now = self._current()
        saved = self._saved_mounts()
        self._store(now, {path for path, _ in now if saved is not None and path not in saved})

    def close(self) -> None:
        """Stop watching the mounts."""
        self._events.close()

    def folder_over(self, path: WorkspacePath) -> str:
        """Return the hidden folder that contains `path`; "" if none does."""
        self._refresh()
        raw = path.raw
        for folder in self._folders:
            if raw == folder or raw.startswith(folder + b"/"):
                return os.fsdecode(folder)
        return ""

    def refuse(self, path: WorkspacePath) -> None:
        """Raise PermissionDenied if `path` is in a hidden folder or an inner workspace."""
        if b"/" in path.raw:
            self.inner.refuse(path)
        self._refresh()
        if self._folders and (folder := self.folder_over(path)):
            raise PermissionDenied(
                f"{path} is hidden: a file system was mounted over {folder}.",
                hint=f"Unmount {folder}. To record the files on the mount instead, delete the hidden files, "
                "then mount it again.",
                data={"path": path.text},
            )

    def descriptions(self) -> list[str]:
        """Return a sentence for each hidden folder."""
        self._refresh()
        return [
            f"{os.fsdecode(folder)} is hidden by a file system that was mounted over it: editd records "
            "nothing in it until you unmount that file system."
            for folder in sorted(self._folders)
        ]

    def _refresh(self) -> None:
        with self._lock:  # the engine may work in a thread during a `status` request
            if not self._events.events():
                return
            now = self._current()
            self._store(now, {path for path, _ in now - self._known})

    def _store(self, now: set[tuple[bytes, int]], new: set[bytes]) -> None:
        """Store which of the new mounts hide recorded files, and save the list of the others."""
        paths = {path for path, _ in now}
        hiding = {path for path in new if self._has_files(WorkspacePath(os.fsdecode(path)))}
        self._folders = (self._folders & paths) | hiding
        self._known = now
        shown = paths - self._folders
        if shown != self._saved_mounts():
            with suppress(OSError):  # At the next start, an unsaved mount hides its own files.
                replace_file_durably(self._path, b"\0".join(sorted(shown)))

    def _saved_mounts(self) -> set[bytes] | None:
        """Return the mounts in the saved list; None if there is none."""
        try:
            with open(self._path, "rb") as file:
                return set(file.read().split(b"\0")) - {b""}
        except OSError:
            return None

    def _current(self) -> set[tuple[bytes, int]]:
        return {(path, mount.number) for path, mount in mounts_below(self._root, mounts()).items()}


# The folders to watch: those in scope, and those with recorded files out of scope.
#
# The watcher's thread queries it folder by folder from the root down; `add` is called from another thread.

FRESH_SECONDS = 1.0  # how long the ignore rules are cached
FRESH_SHARE = 10  # so many times longer for each second spent on applying them, deep in a tree


class WatchSet:
    def __init__(self, root: str) -> None:
        self._root = root
        self._also: frozenset[bytes] = frozenset()
        self._renew()

    def add(self, folders: Iterable[bytes]) -> set[bytes]:
        """Add these folders and those above them; return the topmost of the new ones."""
        new: set[bytes] = set()
        also = set(self._also)
        for folder in folders:
            missing = ways_down(folder, also)
            new.update(missing[:1])
            also.update(missing)
        self._also = frozenset(also)
        return new

    def has(self, folder: bytes) -> bool:
        """Return whether this folder is to be watched."""
        if folder in self._also:
            return True
        began = time.monotonic()
        if began - self._renewed_at > FRESH_SECONDS * max(1.0, FRESH_SHARE * self._spent_seconds):
            self._renew()
        is_in = self._is_in_scope(folder)
        self._spent_seconds += time.monotonic() - began
        return is_in or folder in self._scope.inner  # whose `.git` may go

    def renew(self) -> None:
        """Apply the ignore rules and the repositories as they are now. Called in the watcher's thread."""
        self._renew()

    def _renew(self) -> None:
        self._scope = WorkspaceScope(self._root)
        self._indexes: dict[bytes, GitIndex | None] = {}
        self._known: dict[bytes, tuple[IgnoreRules | None, bool]] = {
            b"": (self._scope.rules(b"", None), True)
        }
        self._renewed_at = time.monotonic()
        self._spent_seconds = 0.0

    def _is_in_scope(self, folder: bytes) -> bool:
        if len(folder) > PATH_BYTES_MAX:
            return False
        for way in ways_down(folder, self._known):
            rules, is_in = self._known[way.rpartition(b"/")[0]]
            is_in = is_in and self._is_taken(way, rules)
            self._known[way] = (self._scope.rules(way, rules) if is_in else rules), is_in
        return self._known[folder][1]

    def _is_taken(self, folder: bytes, rules: IgnoreRules | None) -> bool:
        if self._scope.takes(folder, rules, is_folder=True):
            return True
        if rules is None or self._scope.is_kept_out(folder, is_folder=True):
            return False
        if rules.worktree not in self._indexes:
            self._indexes[rules.worktree] = rules.index()
        index = self._indexes[rules.worktree]
        return index is not None and index.is_tracked(rules.inside(folder), is_folder=True)


# Weaker guarantees: the promises that a workspace's file systems cannot keep, as sentences for `status`.
#
# Reads the mounts at each call, because they change while the daemon runs.


_NO_PROC = (
    "The mounts cannot be listed, because /proc is missing: whether the files are on a disk of this machine, "
    "and whether other file systems are mounted below, is unknown."
)
_NO_BOOT_ID = (
    "The boot id cannot be read: each start recovers as after a power cut. If another program has meanwhile "
    "put back, emptied or truncated a file of the newest edits, the file gets the content of its edit again."
)
_ELSEWHERE = (
    "The state folder is on another file system than the workspace: if a program opens a file at the moment "
    "of its replacement, editd may miss its write."
)
_IN_PLACE = (
    "such a file is written in place. A reader may see half of an edit, a power cut may leave one, and "
    "a write of another program in the same moment may be lost."
)
_RENAMING = (
    "The configuration has files published by a check and a rename: "
    "a save by another program between the two is lost."
)
_OTHER_MOUNT = (
    "another mount: if a program opens a file there at the moment of its replacement, editd may miss "
    "its write."
)
_TWO_SIDED = (
    "shared with others: their writes raise no events, so `settle` and a scan every 30 seconds find them. "
    "Leases do not detect that they are writing."
)
_OF_A_SERVER = "on a shared file system: an edit is as durable as the server of that file system makes it."
_VOLATILE = "not durable: the next shutdown or crash of the machine deletes it, even after a sync."
_FOLDING_ROOT = (
    "The workspace is on a file system that takes two spellings for one name, such as README.md and "
    "readme.md: editd uses the disk's spelling. An event may name a file by another, so `settle` and a "
    "scan every 30 seconds find the changes of other programs."
)
_FOLDING = "and out of scope: files such as README.md and readme.md are one file there"


_OF_THE_SYSTEM = {  # whether the system has the calls for it
    "This system reports no changes of files: editd finds other programs' changes at an edit of the file, at "
    "`settle`, and by a scan every 30 seconds.": NATIVE.has_inotify,
    "This system does not name the program at the other end of a socket: only the permissions of the socket "
    "keep other users out, and an agent may approve its own proposals.": NATIVE.peer_credentials is not None,
    "Extended attributes and ACLs cannot be read here: a file loses them when it is edited.": (
        NATIVE.lists_attributes is not None
    ),
    "Processes that a hook or a check leaves behind cannot all be found, and may go on.": (
        NATIVE.prctl is not None
    ),
}


class WeakerGuarantees:
    """The promises that one workspace cannot have."""

    def __init__(
        self, disk: Disk, state: str, *, publish: str = "exchange", in_place: Sequence[str] = ()
    ) -> None:
        self._disk = disk
        self._in_place = tuple(in_place)
        self._is_renaming = publish == "rename"
        known = mounts()
        with disk.folder(b"") as root, open_folder(state) as folder:
            self.is_state_beside = os.fstat(root.descriptor).st_dev == os.fstat(folder.descriptor).st_dev
            self._mount = mount_of(root.descriptor, known)
            self._state_mount = mount_of(folder.descriptor, known)

    def facts(self, known: list[Mount] | None) -> dict[str, Any]:
        """Return the system, the kind of file system, and the names of the missing system calls."""
        missing = missing_calls(self._disk) + ([] if known is not None else ["/proc"])
        return {
            "name": NATIVE.system,
            "file_system": None if self._mount is None else self._mount.kind,
            "missing": missing,
        }

    def weaker(self, known: list[Mount] | None) -> list[str]:
        """Return a sentence for each promise that is weaker here than on a local disk.

        `known` is the result of `mounts`, which one `status` reads once. If a thread is busy, each system
        call waits for Python's lock.
        """
        sentences = list(self._disk.weaker)
        if self._is_renaming:
            sentences.append(_RENAMING)
        if self._in_place:
            sentences.append(f"{', '.join(self._in_place)}: {_IN_PLACE}")
        if self._disk.is_folding:
            sentences.append(_FOLDING_ROOT)
        if not self.is_state_beside:
            sentences.append(_ELSEWHERE)
        if not boot_id():
            sentences.append(_NO_BOOT_ID)
        sentences += [sentence for sentence, has_it in _OF_THE_SYSTEM.items() if not has_it]
        sentences += confinement.missing()
        if known is None:
            return [*sentences, _NO_PROC]
        if (mount := self._mount) is not None:
            sentences += [f"The workspace ({mount.kind}) is {fault}" for fault in _faults_of(mount)]
        if (mount := self._state_mount) is not None:
            faults = _faults_of(mount, if_shared=_OF_A_SERVER)
            sentences += [f"The history ({mount.kind}) is {fault}" for fault in faults]
        return sentences + list(self._of_mounts_below(known))

    def describe_uncovered(self, known: list[Mount] | None) -> list[str]:
        """Return sentences about the mounts left out because of their file system."""
        folding = folding_mounts(self._disk.root, known)
        return [f"{_some(folding)} {_is_or_are(folding)} another file system {_FOLDING}."] if folding else []

    def is_deaf(self, is_watched: Callable[[bytes], bool]) -> bool:
        """Return whether a write to a watched folder may raise no event, or one with another spelling."""
        if self._disk.is_folding or (self._mount is not None and self._mount.is_two_sided):
            return True
        below = mounts_below(self._disk.root, mounts())
        return any(mount.is_two_sided and is_watched(path) for path, mount in below.items())

    def _of_mounts_below(self, known: list[Mount]) -> Iterator[str]:
        folding = folding_mounts(self._disk.root, known)
        below = mounts_below(self._disk.root, known)
        faults: dict[str, list[bytes]] = {}
        for path, mount in sorted(below.items()):
            if path not in folding:
                for fault in (_OTHER_MOUNT, *_faults_of(mount)):
                    faults.setdefault(fault, []).append(path)
        for fault, paths in faults.items():
            yield f"{_some(paths)} {_is_or_are(paths)} {fault}"


def _faults_of(mount: Mount, if_shared: str = _TWO_SIDED) -> Iterator[str]:
    if mount.is_two_sided:
        yield if_shared
    if mount.is_volatile:
        yield _VOLATILE


def _some(paths: Iterable[bytes]) -> str:
    return join_names([os.fsdecode(path) for path in sorted(paths)])


def _is_or_are(paths: Sequence[bytes] | dict[bytes, str]) -> str:
    return "is" if len(paths) == 1 else "are"
