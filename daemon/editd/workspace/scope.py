"""Scope: which paths of the workspace editd looks after without being asked.

Out of scope are git's own folders, our temporaries, the locks and swap files of editors, mounts that take
two spellings for one name, what git ignores, and, where no git says anything, what is commonly generated.
What git tracks is in although it is ignored. A path that is out comes in when an edit touches it, but no edit
is taken on those mounts. Nested repositories and submodules each speak for their own files.
"""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from editd.system.name_collisions import folding_mounts
from editd.values.path import PATH_BYTES_MAX, WorkspacePath, is_protected_name, ways_down
from editd.workspace.staged_change import is_temporary

if TYPE_CHECKING:
    from editd.workspace.git_ignore import IgnoreRules

# What a build or an install makes again, and nobody wants undone. Only where no git says what is ignored.
GENERATED = frozenset(
    {"node_modules", ".venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache",
     ".hypothesis", ".gradle", ".next", ".svelte-kit", ".terraform", ".direnv"}
)  # fmt: skip
_GENERATED_BESIDE = {"target": b"Cargo.toml", "build": b"build.gradle", "vendor": b"composer.json"}
_GENERATED_WITH = (b"CACHEDIR.TAG", b"pyvenv.cfg")  # a folder that holds one of these says so itself
# Of Emacs a lock and what it saves by itself; of Vim a swap file, and what it tries a folder out with.
_EDITORS_OWN = re.compile(rb"\.#.*|#.*#|\..*\.sw[a-p]|4913", re.DOTALL)

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


class WorkspaceScope:
    """Decides by the repositories' ignore rules as they are when it is made."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(os.path.realpath(root))
        self._rules: dict[bytes, IgnoreRules | None] = {}
        self._folding: frozenset[bytes] | None = None
        self._places: dict[bytes, tuple[IgnoreRules | None, bool]] = {}
        self._way = _Way(self._root)

    def is_in(self, path: WorkspacePath) -> bool:
        """Is this path looked after? For a single path; walking asks `takes` folder by folder."""
        raw = path.raw
        if len(raw) > PATH_BYTES_MAX:
            return False
        rules, is_taken = self._place(raw.rpartition(b"/")[0])
        if is_taken and self.takes(raw, rules, is_folder=False):
            return True
        is_kept_out = any(map(self.is_kept_out, ways_down(raw, ())))
        return rules is not None and not is_kept_out and rules.tracks(raw)

    def _place(self, folder: bytes) -> tuple[IgnoreRules | None, bool]:
        """The rules that hold in a folder, and whether it is in; of one that is out, those that say so."""
        if b"" not in self._places:
            self._places[b""] = self.rules(b"", None), True
        for way in ways_down(folder, self._places):
            rules, is_taken = self._places[way.rpartition(b"/")[0]]
            is_taken = is_taken and self.takes(way, rules, is_folder=True)
            self._places[way] = (self.rules(way, rules) if is_taken else rules), is_taken
        return self._places[folder]

    def takes(self, path: bytes, rules: IgnoreRules | None, *, is_folder: bool) -> bool:
        """Is `path`, in a folder that is in and where `rules` hold, in too? None: no git says anything."""
        if self.is_kept_out(path):
            return False
        if not is_folder and _EDITORS_OWN.fullmatch(path.rpartition(b"/")[2]):
            return False
        if rules is None:
            return not (is_folder and self._is_generated(path))
        return not rules.ignores(path, is_folder=is_folder)

    def is_kept_out(self, path: bytes) -> bool:
        """Is `path` out of scope whatever git says? Because of its name, or as a mount that folds names."""
        if self._folding is None:
            self._folding = frozenset(folding_mounts(self._root))
        return path in self._folding or is_never_ours(path.rpartition(b"/")[2])

    def rules(self, folder: bytes, above: IgnoreRules | None) -> IgnoreRules | None:
        """The rules that hold in `folder`: its own repository's if it is one's top, else those from above."""
        if folder not in self._rules:
            self._rules[folder] = self._own_rules(folder)
        return self._rules[folder] or above

    def _own_rules(self, folder: bytes) -> IgnoreRules | None:
        if not self._way.has(folder, b".git"):
            return None if folder else self._rules_above()
        return _rules_of(os.path.join(self._root, folder) if folder else self._root, folder, b"")

    def _rules_above(self) -> IgnoreRules | None:
        """The workspace may be a folder in a repository: of one that ignores it whole, nothing is asked."""
        place = self._root
        while (above := os.path.dirname(place)) != place:
            place = above
            if not os.path.lexists(os.path.join(place, b".git")):
                continue
            rules = _rules_of(place, b"", os.path.relpath(self._root, place) + b"/")
            if rules is not None:
                return None if rules.ignores(b"", is_folder=False) else rules
        return None

    def _is_generated(self, path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        text = os.fsdecode(name)
        if text in GENERATED:
            return True
        sign = _GENERATED_BESIDE.get(text)
        if sign is not None and self._way.has(above, sign):
            return True
        return any(self._way.has(path, sign) for sign in _GENERATED_WITH)


class _Way:
    """The way from the root to the folder asked for last, which is kept open.

    A folder below it is reached from there. So a walk down costs one step for each folder, however deep.
    """

    def __init__(self, root: bytes) -> None:
        self._root = root
        self._folder = b""
        self._descriptor = -1

    def __del__(self) -> None:
        self._close()

    def has(self, folder: bytes, name: bytes) -> bool:
        """Return whether a folder holds `name`, whatever that is."""
        try:
            self._go_to(folder)
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                return os.path.lexists(os.path.join(self._root, folder, name))
            return False
        return True

    def _go_to(self, folder: bytes) -> None:
        if self._descriptor >= 0 and folder == self._folder:
            return
        is_below = self._descriptor >= 0 and folder.startswith(self._folder + b"/")
        inside = folder[len(self._folder) + 1 :] if is_below else os.path.join(self._root, folder)
        opened = os.open(inside, _FOLDER, dir_fd=self._descriptor if is_below else None)
        self._close()
        self._folder, self._descriptor = folder, opened

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_never_ours(name: bytes) -> bool:
    """Is this a name that is out of scope wherever it stands: git's own, or a temporary of ours?"""
    return is_temporary(name) or is_protected_name(os.fsdecode(name))


def _rules_of(place: bytes, top: bytes, above: bytes) -> IgnoreRules | None:
    """`Rules.of`. Where there is no git, libgit2 is not loaded: half of the time to start a survey."""
    from editd.workspace.git_ignore import IgnoreRules

    return IgnoreRules.of(place, top, above)
