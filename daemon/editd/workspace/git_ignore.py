"""The ignore rules of a user's repository, and the tracked files that they match. Uses libgit2."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct, field

from editd.edits.gitignore import Rule, rules_of
from editd.system.regular_files import open_regular, would_block
from editd.values.path import ways_down
from editd.workspace.git_preflight import has_no_fifo, opened_files
from editd.workspace.git_worktree import GitIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

DEEP_NAMES = 64
"""Least number of names in a path for applying the rules here instead of by libgit2.

libgit2 searches a `.gitignore` in every parent folder at each query. A walk below 400 folders spent 20
seconds on that, and one below 900 folders spent minutes.
"""
IGNORE_BYTES_MAX = 1024 * 1024  # read of a file with rules; git reads at most 100 MiB
FRESH_SECONDS = 0.01  # validity of a check that libgit2 can read a file


class IgnoreRules(Struct, frozen=True):
    """The ignore rules of one repository, queried by paths of the workspace."""

    repository: pygit2.Repository
    worktree: bytes  # its top, absolute
    top: bytes  # the work tree's folder in the workspace
    above: bytes  # if the work tree's top is above the workspace's root: the path in between
    opened: tuple[bytes, ...]  # the files that libgit2 opens besides each folder's `.gitignore`
    excludes: tuple[bytes, ...]  # those with ignore rules; a later file takes precedence
    _ignore_rules: dict[bytes, tuple[Rule, ...]] = field(default_factory=dict)  # by deep folder
    _readable: dict[bytes, tuple[float, bool]] = field(default_factory=dict)  # by folder: time and result

    @classmethod
    def of(cls, worktree: bytes, top: bytes, above: bytes) -> IgnoreRules | None:
        """Open the rules of the repository at `worktree`; None if it is broken or bare."""
        repository = _open(worktree)
        if repository is None:
            return None
        opened, configured = tuple(opened_files(worktree)), _excludes(repository)
        excludes = (
            *(configured or _ending_with(opened, b"git/ignore")),
            *_ending_with(opened, b"info/exclude"),
        )
        return cls(repository, worktree, top, above, (*opened, *configured), excludes)

    def inside(self, path: bytes) -> bytes:
        """Return the path relative to the work tree's top."""
        return path[len(self.top) + 1 :] if self.top else self.above + path

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether the rules match `path`. The caller checks first that git does not track it.

        libgit2 skips a `!` line unless an earlier pattern in the same file matches the path. If a file with
        rules is a FIFO, nothing is ignored: see `has_no_fifo`. The folders above `path` must not be ignored.
        """
        inside = self.inside(path)
        if inside.count(b"/") >= DEEP_NAMES:
            return self._ignores_deep(inside, is_folder=is_folder)
        if not self._is_readable(inside):
            return False
        # pygit2 accepts UTF-8 only; patterns with other bytes are rare.
        text = inside.decode("utf-8", "replace")
        try:
            return bool(self.repository.path_is_ignored(text + ("/" if is_folder else "")))
        except (pygit2.GitError, ValueError):
            return False  # an unreadable rule ignores nothing

    def _ignores_deep(self, inside: bytes, *, is_folder: bool) -> bool:
        path = inside.decode("utf-8", "replace")
        rules = self._rules_in(inside.rpartition(b"/")[0])
        last = next((rule for rule in reversed(rules) if rule.matches(path, is_folder=is_folder)), None)
        return last is not None and not last.is_negative

    def _rules_in(self, folder: bytes) -> tuple[Rule, ...]:
        """Return the rules in force in a folder; the last match decides. Each file is read once."""
        known = self._ignore_rules
        if b"" not in known:
            known[b""] = tuple(rule for path in self.excludes for rule in _rules_from(path, b""))
            known[b""] += _rules_from(os.path.join(self.worktree, b".gitignore"), b"")
        for way in ways_down(folder, known):
            own = _rules_from(os.path.join(self.worktree, way, b".gitignore"), way)
            known[way] = known[way.rpartition(b"/")[0]] + own if own else known[way.rpartition(b"/")[0]]
        return known[folder]

    def index(self) -> GitIndex | None:
        """Return the repository's current index; None if it is unusable."""
        return GitIndex.of(os.fsdecode(self.worktree))

    def tracks(self, path: bytes) -> bool:
        """Return whether git tracks this one file, even if the rules match it.

        Such queries are rare, and the result is almost always False: a search in the index's bytes is a
        hundred times faster than parsing it. Version 4 compresses the paths, so it is always parsed.
        """
        inside = self.inside(path)
        try:
            with open_regular(os.path.join(os.fsencode(self.repository.path or ""), b"index")) as file:
                raw = file.read()
        except OSError:
            return False
        if raw[4:8] != b"\0\0\0\4" and inside + b"\0" not in raw:
            return False
        index = self.index()
        return index is not None and index.is_tracked(inside, is_folder=False)

    def _is_readable(self, inside: bytes) -> bool:
        """Return whether libgit2 can read every file that it opens for this path, in each folder above it."""
        now = time.monotonic()
        folder = inside.rstrip(b"/").rpartition(b"/")[0]
        while True:
            checked_at, is_readable = self._readable.get(folder, (0.0, False))
            if now - checked_at > FRESH_SECONDS:
                is_readable = not would_block(os.path.join(self.worktree, folder, b".gitignore"))
                if is_readable and not folder:
                    is_readable = not any(map(would_block, self.opened))
                self._readable[folder] = now, is_readable
            if not (is_readable and folder):
                return is_readable
            folder = folder.rpartition(b"/")[0]


def _ending_with(paths: Iterable[bytes], end: bytes) -> list[bytes]:
    return [path for path in paths if path.endswith(b"/" + end)]


def _rules_from(path: bytes, folder: bytes) -> tuple[Rule, ...]:
    """Return the rules of one file for the paths in `folder`; none if it is unreadable or a FIFO."""
    try:
        with open_regular(path) as file:
            text = file.read(IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ()
    return rules_of(text.split("\n"), folder.decode("utf-8", "replace"))


def _excludes(repository: pygit2.Repository) -> tuple[bytes, ...]:
    """Return the path that `core.excludesFile` names, if it is set."""
    try:
        return (os.fsencode(os.path.expanduser(str(repository.config["core.excludesfile"]))),)
    except (KeyError, ValueError, pygit2.GitError):
        return ()


def _open(worktree: bytes) -> pygit2.Repository | None:
    """Open the repository at `worktree`; None if it is broken, bare, or no repository."""
    text = os.fsdecode(worktree)
    if not has_no_fifo(worktree):
        return None
    try:
        repository = pygit2.Repository(text, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
        is_here = repository.workdir is not None and os.path.samefile(repository.workdir, text)
    except (OSError, ValueError, pygit2.GitError):
        return _open_sha256(text)
    return repository if is_here else None


def _open_sha256(worktree: str) -> pygit2.Repository | None:
    """Return a stand-in for a SHA-256 repository, which libgit2 cannot open: it has the work tree's rules."""
    try:
        config = pygit2.Config(os.path.join(worktree, ".git/config"))
        if config["extensions.objectformat"] != "sha256":
            return None
    except (OSError, KeyError, ValueError, pygit2.GitError):
        return None
    repository = pygit2.Repository()
    repository.workdir = worktree
    return repository
