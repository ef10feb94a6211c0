"""A user's git repository, queried through libgit2: the clean files of its index, and its ignore rules.

Never writes to the repository.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct, field

from editd.edits.gitignore import Rule, rules_of
from editd.system.regular_files import open_regular, would_block
from editd.values.content import GitMode, Version, mode_of
from editd.values.path import ways_down
from editd.workspace.git_files import IndexEntry, IndexFile, has_no_fifo, opened_files, read_index_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# Git's index: the clean files of a user's repository, which editd need not read.
#
# A blob that `GitIndex.clean` returns has exactly the bytes on disk, and is in the object folders that
# `objects` names. In any doubt the result is None, and the caller reads the file. Never writes to the
# repository, and never refreshes its index.
#
# The blob of a clean file may have other bytes than the file, because git converts content. Line-end
# conversion is detected by size, however it is configured: each converted line end adds or removes a byte.
# The other conversions may keep the size, so libgit2 is queried for their attributes.
#
# The rules follow git's read-cache.c and convert.c.

RACY_NS = 50_000_000  # a file this young when the index was written may have changed in the same clock tick
RACY_COARSE_NS = 2_000_000_000  # the same for times in whole seconds, or two seconds (FAT)
CONVERTING = frozenset({"filter", "ident", "working-tree-encoding"})  # attributes; for line ends see above

_BLOCKED = frozenset({""})  # marks a blocking file: never query libgit2 then
_DOUBTFUL = 0xF000  # assume-unchanged, a stage, or extended flags: skip-worktree, intent-to-add
_GITLINK = 0o160000
_WORD = 0xFFFFFFFF
_SECOND_NS = 1_000_000_000
_BLOB = pygit2.enums.ObjectType.BLOB
_ALTERNATES_DEPTH_MAX = 5  # as in git and libgit2

# The user's repository may belong to another user. It may use extensions for refs or for missing objects
# that libgit2 does not support: we read neither.
pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, False)
pygit2.option(pygit2.enums.Option.SET_EXTENSIONS, ["partialclone", "refstorage"], 2)


class GitIndex:
    """The blob ids of a repository's clean files, by its index at the time of construction."""

    objects: list[str]
    """The absolute paths of the repository's object folder and of its alternates."""

    @classmethod
    def of(cls, worktree: str) -> GitIndex | None:
        """Read the index of the repository whose work tree's top is `worktree`.

        None if there is no repository, or if it is broken, bare, unreadable, or uses SHA-256.
        """
        if not has_no_fifo(os.fsencode(worktree), for_index=True):
            return None
        try:
            repository = pygit2.Repository(worktree, pygit2.enums.RepositoryOpenFlag.NO_SEARCH)
            if repository.workdir is None or not os.path.samefile(repository.workdir, worktree):
                return None
            return cls(repository)
        except (OSError, ValueError, pygit2.GitError):
            return None

    def __init__(self, repository: pygit2.Repository) -> None:
        """Read the repository's index. Raises OSError, ValueError or pygit2.GitError if it is broken."""
        self._repository = repository
        self._odb = repository.odb
        self._index = read_index_file(os.path.join(repository.path, "index"))
        self._paths = self._index.offsets.keys() | _shared_paths(repository.path, self._index)
        self._folders = _folders_of(self._paths)
        self._has_filemode = _is_set(repository.config, "core.filemode")
        self._has_ctime = _is_set(repository.config, "core.trustctime")
        common = _common_folder(repository.path)
        self.objects = list(dict.fromkeys(_object_folders(os.path.join(common, "objects"), 0)))
        # Entries of a split index (`link`) are incomplete, and no alternates file can contain a path with a
        # line feed.
        self._is_trusted = self._index.required.keys() <= {b"sdir"} and "\n" not in "".join(self.objects)
        self._top = os.fsencode(repository.workdir)
        outside = (_converting_in(file) for file in _attribute_files(repository.config, common))
        self._converting_everywhere = frozenset[str]().union(*outside)
        self._converting: dict[bytes, frozenset[str]] = {}  # by folder

    def is_tracked(self, path: bytes, *, is_folder: bool) -> bool:
        """Return whether git tracks this file; for a folder, a file in it, or the folder as a submodule."""
        if not is_folder:
            return path in self._paths
        if path in self._folders:
            return True
        offset = self._index.offsets.get(path)
        return offset is not None and self._index.entry(offset).mode == _GITLINK

    def clean(self, path: bytes, status: os.stat_result) -> tuple[GitMode, Version] | None:
        """Return the mode and version of a file by its lstat result; None if the file may have changed.

        `path` is relative to the work tree's top. The mode is the file's own, because git may be configured
        to ignore the executable bit (core.filemode).
        """
        offset = self._index.offsets.get(path)
        if offset is None or not self._is_trusted:
            return None
        entry = self._index.entry(offset)
        if (
            entry.flags & _DOUBTFUL
            or not self._is_same_file(entry, status)
            or self._is_racy(status)
            or not self._has_blob(entry.oid, status.st_size)
            or (stat.S_ISREG(status.st_mode) and self._is_converted(path))
        ):
            return None
        return mode_of(status.st_mode), Version(entry.oid.hex())

    def _is_same_file(self, entry: IndexEntry, status: os.stat_result) -> bool:
        """Return whether the lstat result matches the entry; a zero in the entry is unknown, so no match."""
        ctime_is_same = entry.ctime_s and entry.ctime_s * _SECOND_NS + entry.ctime_ns == status.st_ctime_ns
        return bool(
            entry.size == status.st_size
            and entry.mtime_s
            and entry.mtime_s * _SECOND_NS + entry.mtime_ns == status.st_mtime_ns
            and (ctime_is_same or not self._has_ctime)
            and entry.inode
            and entry.inode == status.st_ino & _WORD
            and entry.uid == status.st_uid & _WORD
            and entry.gid == status.st_gid & _WORD
            and self._is_same_mode(entry.mode, status.st_mode)
        )

    def _is_same_mode(self, mode: int, st_mode: int) -> bool:
        if stat.S_IFMT(mode) != stat.S_IFMT(st_mode):
            return False
        return mode == mode_of(st_mode) or (stat.S_ISREG(st_mode) and not self._has_filemode)

    def _is_racy(self, status: os.stat_result) -> bool:
        """Return whether a change after the index was written may have kept the times of so young a file."""
        youngest = max(status.st_mtime_ns, status.st_ctime_ns) if self._has_ctime else status.st_mtime_ns
        tick = RACY_NS if status.st_mtime_ns % _SECOND_NS else RACY_COARSE_NS
        return youngest + tick >= self._index.written_ns

    def _has_blob(self, oid: bytes, size: int) -> bool:
        """Return whether the repository has the blob, of the file's size: then no line end was converted."""
        try:
            kind, length = self._odb.read_header(pygit2.Oid(raw=oid))
        except (KeyError, pygit2.GitError):
            return False
        return bool(kind == _BLOB and length == size)

    def _is_converted(self, path: bytes) -> bool:
        """Return whether an attribute makes git convert more of the file than its line ends."""
        names = self._converting_near(path.rpartition(b"/")[0])
        if names >= _BLOCKED:
            return True
        for name in names:
            try:
                if self._repository.get_attr(path, name) not in (None, False):
                    return True
            except (ValueError, pygit2.GitError):
                return True
        return False

    def _converting_near(self, folder: bytes) -> frozenset[str]:
        """Return the names in `CONVERTING` that the attribute files for `folder` mention.

        Most mention none, which saves a slow query of libgit2.
        """
        unknown: list[bytes] = []
        while (names := self._converting.get(folder)) is None and folder:
            unknown.append(folder)
            folder = folder.rpartition(b"/")[0]
        if names is None:
            names = self._converting[b""] = self._converting_everywhere | self._converting_by(
                b".gitattributes"
            )
        for ancestor in reversed(unknown):
            names = self._converting[ancestor] = names | self._converting_by(ancestor + b"/.gitattributes")
        return names

    def _converting_by(self, path: bytes) -> frozenset[str]:
        absolute_path = os.path.join(self._top, path)
        if path in self._paths and not os.path.lexists(absolute_path):
            return CONVERTING  # then git reads it from the index (gitattributes(5)), and we do not
        return _converting_in(absolute_path)


def _shared_paths(folder: str, index: IndexFile) -> Iterable[bytes]:
    """Return the paths in the shared part of a split index, including paths that were deleted since."""
    link = index.required.get(b"link", b"")[:20]  # the name of the shared part; zeros if there is none
    if not any(link):
        return ()
    return read_index_file(os.path.join(folder, f"sharedindex.{link.hex()}")).offsets


def _folders_of(paths: Iterable[bytes]) -> set[bytes]:
    """Return every folder above one of the paths."""
    folders: set[bytes] = set()
    for parent in {path.rpartition(b"/")[0] for path in paths}:
        folder = parent
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    return folders


def _is_set(config: pygit2.Config, name: str) -> bool:
    """Return a boolean setting. A missing or unreadable one is True: then more is compared."""
    try:
        return bool(config.get_bool(name))
    except (KeyError, ValueError, pygit2.GitError):
        return True


def _common_folder(folder: str) -> str:
    """Return the folder that linked work trees share (gitrepository-layout(5)); `folder` for others."""
    try:
        with open_regular(os.path.join(folder, "commondir")) as file:
            return os.path.join(folder, os.fsdecode(file.read().rstrip(b"\r\n")))
    except FileNotFoundError:
        return folder


def _object_folders(folder: str, depth: int) -> Iterator[str]:
    """Yield the object folder and its alternates, recursively."""
    folder = os.path.realpath(folder)
    yield folder
    try:
        with open_regular(os.path.join(folder, "info", "alternates")) as file:
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines:
        # libgit2 skips quoted lines, too, and so never returns a blob from such a folder.
        if line and not line.startswith((b"#", b'"')) and depth < _ALTERNATES_DEPTH_MAX:
            yield from _object_folders(os.path.join(folder, os.fsdecode(line)), depth + 1)


def _attribute_files(config: pygit2.Config, common: str) -> Iterator[str]:
    """Yield the attribute files outside the work tree that libgit2 reads (gitattributes(5))."""
    yield os.path.join(common, "info", "attributes")
    if "core.attributesfile" in config:
        yield os.path.expanduser(str(config["core.attributesfile"]))
    levels = pygit2.enums.ConfigLevel
    for level, name in ((levels.XDG, "attributes"), (levels.SYSTEM, "gitattributes")):
        for folder in pygit2.option(pygit2.enums.Option.GET_SEARCH_PATH, level).split(":"):
            if folder:
                yield os.path.join(folder, name)


def _converting_in(path: str | bytes) -> frozenset[str]:
    """Return which of `CONVERTING` an attribute file mentions; all if it exists and is unreadable.

    `_BLOCKED` if libgit2 would block at a FIFO.
    """
    try:
        if would_block(path):
            return _BLOCKED
        with open_regular(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError:
        return CONVERTING
    return frozenset(name for name in CONVERTING if name.encode() in content)


# The ignore rules of a user's repository, and the tracked files that they match. Uses libgit2.

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
