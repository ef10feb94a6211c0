"""Rules: what one of the user's repositories ignores, and what of that it tracks all the same. By libgit2."""

from __future__ import annotations

import os
import time

import pygit2
from msgspec import Struct, field

from editd.system.plain import may_wait, open_plain
from editd.workspace.gitindex import GitIndex
from editd.workspace.openable import is_openable, opened_files

FRESH_SECONDS = 0.01  # for so long, a file that libgit2 could read is taken to be one still

# The user's repository may belong to somebody else; we only read it.
pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, False)


class Rules(Struct, frozen=True):
    """What one repository ignores, asked by paths of the workspace."""

    repository: pygit2.Repository
    place: bytes  # the work tree's top, absolute
    top: bytes  # the work tree's folder in the workspace
    above: bytes  # where the work tree's top lies above the workspace's root: the root's path in it
    opened: tuple[bytes, ...]  # what libgit2 opens to judge a path, beside each folder's `.gitignore`
    _readable: dict[bytes, tuple[float, bool]] = field(default_factory=dict)  # by folder: when it was looked

    @classmethod
    def of(cls, place: bytes, top: bytes, above: bytes) -> Rules | None:
        """Those of the repository with its work tree's top at `place`; None where it is broken, or bare."""
        repository = _open(place)
        if repository is None:
            return None
        return cls(repository, place, top, above, (*opened_files(place), *_excludes(repository)))

    def inside(self, path: bytes) -> bytes:
        """The path as this repository names it."""
        return path[len(self.top) + 1 :] if self.top else self.above + path

    def ignores(self, path: bytes, *, is_folder: bool) -> bool:
        """What git's rules say; that tracked files are never ignored is for the caller to know.

        libgit2 leaves out a `!` line that brings back what only another file's pattern ignores. Where one
        of the files with the rules is a FIFO, nothing is ignored: see `openable`.
        """
        inside = self.inside(path)
        if not self._is_readable(inside):
            return False
        # libgit2 takes no other bytes; patterns rarely name them.
        text = inside.decode("utf-8", "replace")
        try:
            return bool(self.repository.path_is_ignored(text + ("/" if is_folder else "")))
        except (pygit2.GitError, ValueError):
            return False  # a rule that cannot be read hides nothing

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
            with open_plain(os.path.join(os.fsencode(self.repository.path or ""), b"index")) as file:
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
                is_readable = not may_wait(os.path.join(self.place, folder, b".gitignore"))
                if is_readable and not folder:
                    is_readable = not any(map(may_wait, self.opened))
                self._readable[folder] = now, is_readable
            if not (is_readable and folder):
                return is_readable
            folder = folder.rpartition(b"/")[0]


def _excludes(repository: pygit2.Repository) -> tuple[bytes, ...]:
    """The file of `core.excludesFile`."""
    try:
        return (os.fsencode(os.path.expanduser(str(repository.config["core.excludesfile"]))),)
    except (KeyError, ValueError, pygit2.GitError):
        return ()


def _open(place: bytes) -> pygit2.Repository | None:
    """The repository with its work tree's top at `place`; None where it is broken, bare, or no git's."""
    text = os.fsdecode(place)
    if not is_openable(place):
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
