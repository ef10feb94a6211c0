"""Scope: which paths of the workspace editd looks after without being asked.

Out of scope are git's own folders, our temporaries, the locks and swap files of editors, what git
ignores, and, where no git says anything, what is commonly generated. What git tracks is in all the
same. A path that is out comes in when an edit touches it. Nested repositories and submodules each
speak for their own files.
"""

from __future__ import annotations

import os
import re

import pygit2
from msgspec import Struct

from editd.values.path import WorkspacePath, is_protected_name
from editd.workspace.gitindex import GitIndex
from editd.workspace.item import is_temporary

# What a build or an install makes again, and nobody wants undone. Only where no git says what is ignored.
GENERATED = frozenset(
    {"node_modules", ".venv", "__pycache__", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache",
     ".hypothesis", ".gradle", ".next", ".svelte-kit", ".terraform", ".direnv"}
)  # fmt: skip
_GENERATED_BESIDE = {"target": "Cargo.toml", "build": "build.gradle", "vendor": "composer.json"}
_GENERATED_WITH = ("CACHEDIR.TAG", "pyvenv.cfg")  # a folder that holds one of these says so itself
# Of Emacs a lock and what it saves by itself; of Vim a swap file, and what it tries a folder out with.
_EDITORS_OWN = re.compile(rb"\.#.*|#.*#|\..*\.sw[a-p]|4913", re.DOTALL)

# The user's repository may belong to somebody else; we only read it.
pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, False)


class Rules(Struct, frozen=True):
    """What one repository ignores, asked by paths of the workspace."""

    repository: pygit2.Repository
    place: bytes  # the work tree's top, absolute
    top: bytes  # the work tree's folder in the workspace
    above: bytes  # where the work tree's top lies above the workspace's root: the root's path in it

    def inside(self, path: bytes) -> bytes:
        """The path as this repository names it."""
        return path[len(self.top) + 1 :] if self.top else self.above + path

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """What git's rules say; that tracked files are never ignored is for the caller to know.

        libgit2 leaves out a `!` line that brings back what only another file's pattern ignores.
        """
        # libgit2 takes no other bytes; patterns rarely name them.
        text = self.inside(path).decode("utf-8", "replace")
        try:
            return bool(self.repository.path_is_ignored(text + ("/" if is_folder else "")))
        except (pygit2.GitError, ValueError):
            return False  # a rule that cannot be read hides nothing


class Scope:
    """Decides by the repositories' ignore rules as they are when it is made."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(os.path.realpath(root))
        self._rules: dict[bytes, Rules | None] = {}

    def is_in(self, path: WorkspacePath) -> bool:
        """Is this path looked after? For a single path; walking asks `takes` folder by folder."""
        names = path.raw.split(b"/")
        rules = self.rules(b"", None)
        for depth in range(1, len(names) + 1):
            here, is_folder = b"/".join(names[:depth]), depth < len(names)
            if not self.takes(here, rules, is_folder=is_folder):
                is_kept_out = any(map(is_never_ours, names))
                return not is_kept_out and rules is not None and _is_tracked(path.raw, rules)
            if is_folder:
                rules = self.rules(here, rules)
        return True

    def takes(self, path: bytes, rules: Rules | None, *, is_folder: bool) -> bool:
        """Is `path`, in a folder that is in and where `rules` hold, in too? None: no git says anything."""
        if is_never_ours(path.rpartition(b"/")[2]):
            return False
        if not is_folder and _EDITORS_OWN.fullmatch(path.rpartition(b"/")[2]):
            return False
        if rules is None:
            return not (is_folder and self._is_generated(path))
        return not rules.ignores(path, is_folder=is_folder)

    def rules(self, folder: bytes, above: Rules | None) -> Rules | None:
        """The rules that hold in `folder`: its own repository's if it is one's top, else those from above."""
        if folder not in self._rules:
            self._rules[folder] = self._own_rules(folder)
        return self._rules[folder] or above

    def _own_rules(self, folder: bytes) -> Rules | None:
        place = os.path.join(self._root, folder) if folder else self._root
        if not os.path.lexists(os.path.join(place, b".git")):
            return None if folder else self._rules_above()
        repository = _open(place)
        return None if repository is None else Rules(repository, place, folder, b"")

    def _rules_above(self) -> Rules | None:
        """The workspace may be a folder in a repository: of one that ignores it whole, nothing is asked."""
        place = self._root
        while (above := os.path.dirname(place)) != place:
            place = above
            repository = _open(place) if os.path.lexists(os.path.join(place, b".git")) else None
            if repository is not None:
                rules = Rules(repository, place, b"", os.path.relpath(self._root, place) + b"/")
                return None if rules.ignores(b"", is_folder=False) else rules
        return None

    def _is_generated(self, path: bytes) -> bool:
        above, _, name = path.rpartition(b"/")
        text = os.fsdecode(name)
        if text in GENERATED:
            return True
        sign = _GENERATED_BESIDE.get(text)
        if sign is not None and self._exists(above, sign):
            return True
        return any(self._exists(path, sign) for sign in _GENERATED_WITH)

    def _exists(self, folder: bytes, name: str) -> bool:
        return os.path.lexists(os.path.join(self._root, folder, os.fsencode(name)))


def is_never_ours(name: bytes) -> bool:
    """Is this a name that is out of scope wherever it stands: git's own, or a temporary of ours?"""
    return is_temporary(name) or is_protected_name(os.fsdecode(name))


def _open(place: bytes) -> pygit2.Repository | None:
    """The repository with its work tree's top at `place`; None where it is broken, bare, or no git's."""
    text = os.fsdecode(place)
    try:
        repository = pygit2.Repository(text, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        is_here = repository.workdir is not None and os.path.samefile(repository.workdir, text)
    except (OSError, ValueError, pygit2.GitError):
        return _open_sha256(text)
    return repository if is_here else None


def _open_sha256(place: str) -> pygit2.Repository | None:
    """A stand-in for a repository whose objects libgit2 cannot read: it knows the work tree's rules."""
    try:
        config = pygit2.Config(os.path.join(place, ".git/config"))
        if config["extensions.objectformat"] != "sha256":
            return None
    except (OSError, KeyError, ValueError, pygit2.GitError):
        return None
    repository = pygit2.Repository()
    repository.workdir = place
    return repository


def _is_tracked(path: bytes, rules: Rules) -> bool:
    """Does git track this one file, though it ignores it?

    Few such are asked for, and almost none is tracked: a search in the index tells that a hundred times
    faster than reading it. Version 4 does not write all names out.
    """
    inside = rules.inside(path)
    try:
        with open(os.path.join(os.fsencode(rules.repository.path or ""), b"index"), "rb") as file:
            raw = file.read()
    except OSError:
        return False
    if raw[4:8] != b"\0\0\0\4" and inside + b"\0" not in raw:
        return False
    index = GitIndex.of(os.fsdecode(rules.place))
    return index is not None and index.is_tracked(inside, is_folder=False)
