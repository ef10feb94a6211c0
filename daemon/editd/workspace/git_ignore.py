"""Rules: what one of the user's repositories ignores, and what of that it tracks all the same. By libgit2."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct, field

from editd.edits.gitignore import Rule, rules_of
from editd.system.regular_file import open_regular, would_block
from editd.values.path import ways_down
from editd.workspace.fifo_guard import has_no_fifo, opened_files
from editd.workspace.git_index import GitIndex

if TYPE_CHECKING:
    from collections.abc import Iterable

DEEP_NAMES = 64
"""In a path, from which on the rules are applied here. libgit2 looks for a `.gitignore` in every folder above
for each single question: below 400 folders a walk took 20 seconds for them, and below 900 minutes.
"""
IGNORE_BYTES_MAX = 1024 * 1024  # read of a file with rules; git reads no more than 100 MiB
FRESH_SECONDS = 0.01  # for so long, a file that libgit2 could read is taken to be one still

# The user's repository may belong to somebody else; we only read it.
pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, False)


class IgnoreRules(Struct, frozen=True):
    """What one repository ignores, asked by paths of the workspace."""

    repository: pygit2.Repository
    place: bytes  # the work tree's top, absolute
    top: bytes  # the work tree's folder in the workspace
    above: bytes  # where the work tree's top lies above the workspace's root: the root's path in it
    opened: tuple[bytes, ...]  # what libgit2 opens to judge a path, beside each folder's `.gitignore`
    excludes: tuple[bytes, ...]  # those of them that hold rules; a later file's have the last word
    _ignore_rules: dict[bytes, tuple[Rule, ...]] = field(default_factory=dict)  # in force, by deep folder
    _readable: dict[bytes, tuple[float, bool]] = field(default_factory=dict)  # by folder: when it was looked

    @classmethod
    def of(cls, place: bytes, top: bytes, above: bytes) -> IgnoreRules | None:
        """Those of the repository with its work tree's top at `place`; None where it is broken, or bare."""
        repository = _open(place)
        if repository is None:
            return None
        opened, configured = tuple(opened_files(place)), _excludes(repository)
        excludes = (*(configured or _named_in(opened, b"git/ignore")), *_named_in(opened, b"info/exclude"))
        return cls(repository, place, top, above, (*opened, *configured), excludes)

    def inside(self, path: bytes) -> bytes:
        """The path as this repository names it."""
        return path[len(self.top) + 1 :] if self.top else self.above + path

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """What git's rules say; that tracked files are never ignored is for the caller to know.

        libgit2 leaves out a `!` line that brings back what only another file's pattern ignores. Where one
        of the files with the rules is a FIFO, nothing is ignored: see `openable`. The folders above `path`
        are not ignored, as the caller knows.
        """
        inside = self.inside(path)
        if inside.count(b"/") >= DEEP_NAMES:
            return self._deep_ignores(inside, is_folder=is_folder)
        if not self._is_readable(inside):
            return False
        # libgit2 takes no other bytes; patterns rarely name them.
        text = inside.decode("utf-8", "replace")
        try:
            return bool(self.repository.path_is_ignored(text + ("/" if is_folder else "")))
        except (pygit2.GitError, ValueError):
            return False  # a rule that cannot be read hides nothing

    def _deep_ignores(self, inside: bytes, *, is_folder: bool) -> bool:
        path = inside.decode("utf-8", "replace")
        rules = self._rules_in(inside.rpartition(b"/")[0])
        last = next((rule for rule in reversed(rules) if rule.matches(path, is_folder=is_folder)), None)
        return last is not None and not last.is_negative

    def _rules_in(self, folder: bytes) -> tuple[Rule, ...]:
        """The rules in force in a folder, read once; the last that matches decides."""
        known = self._ignore_rules
        if b"" not in known:
            known[b""] = tuple(rule for path in self.excludes for rule in _rules_from(path, b""))
            known[b""] += _rules_from(os.path.join(self.place, b".gitignore"), b"")
        for way in ways_down(folder, known):
            own = _rules_from(os.path.join(self.place, way, b".gitignore"), way)
            known[way] = known[way.rpartition(b"/")[0]] + own if own else known[way.rpartition(b"/")[0]]
        return known[folder]

    def index(self) -> GitIndex | None:
        """The repository's index as it is now; None where it tells nothing."""
        return GitIndex.of(os.fsdecode(self.place))

    def tracks(self, path: bytes) -> bool:
        """Does git track this one file, though it ignores it?

        Few such are asked for, and almost none is tracked: a search in the index tells that a hundred times
        faster than reading it. Version 4 does not write all names out.
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
        """Whether libgit2 can read what it opens for this path, that is in each folder on the way."""
        now = time.monotonic()
        folder = inside.rstrip(b"/").rpartition(b"/")[0]
        while True:
            then, is_readable = self._readable.get(folder, (0.0, False))
            if now - then > FRESH_SECONDS:
                is_readable = not would_block(os.path.join(self.place, folder, b".gitignore"))
                if is_readable and not folder:
                    is_readable = not any(map(would_block, self.opened))
                self._readable[folder] = now, is_readable
            if not (is_readable and folder):
                return is_readable
            folder = folder.rpartition(b"/")[0]


def _named_in(paths: Iterable[bytes], end: bytes) -> list[bytes]:
    return [path for path in paths if path.endswith(b"/" + end)]


def _rules_from(path: bytes, folder: bytes) -> tuple[Rule, ...]:
    """The rules of one file for the paths in `folder`; none where it cannot be read, or is a FIFO."""
    try:
        with open_regular(path) as file:
            text = file.read(IGNORE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ()
    return rules_of(text.split("\n"), folder.decode("utf-8", "replace"))


def _excludes(repository: pygit2.Repository) -> tuple[bytes, ...]:
    """The file of `core.excludesFile`."""
    try:
        return (os.fsencode(os.path.expanduser(str(repository.config["core.excludesfile"]))),)
    except (KeyError, ValueError, pygit2.GitError):
        return ()


def _open(place: bytes) -> pygit2.Repository | None:
    """The repository with its work tree's top at `place`; None where it is broken, bare, or no git's."""
    text = os.fsdecode(place)
    if not has_no_fifo(place):
        return None
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
