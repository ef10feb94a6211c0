"""Scope: the paths of the workspace that editd records, even before an edit touches them.

Out of scope are git's own folders, editd's temporaries, locks and swap files of editors, mounts that ignore
case or Unicode form in names, and ignored files. Without a git repository, folders of generated files are out
of scope instead. Tracked files are in scope even if they are ignored. An edit takes a path that is out of
scope into the history, but on a mount of that kind it is refused. Nested repositories and submodules have
their own rules. Inner workspaces are out of scope, and no edit is taken there.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from editd.system.folded_names import folding_mounts
from editd.system.mounts import mounts
from editd.system.native import NATIVE
from editd.values.path import PATH_BYTES_MAX, WorkspacePath, is_protected_name, ways_down
from editd.workspace.inner_workspaces import InnerWorkspaces
from editd.workspace.staged_change import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.workspace.git_ignore import IgnoreRules


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
    from editd.workspace.git_ignore import IgnoreRules

    return IgnoreRules.of(worktree, top, above)
