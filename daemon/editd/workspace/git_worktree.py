"""Git's index: the clean files of a user's repository, which editd need not read.

A blob that `GitIndex.clean` returns has exactly the bytes on disk, and is in the object folders that
`objects` names. In any doubt the result is None, and the caller reads the file. Never writes to the
repository, and never refreshes its index.

The blob of a clean file may have other bytes than the file, because git converts content. Line-end
conversion is detected by size, however it is configured: each converted line end adds or removes a byte.
The other conversions may keep the size, so libgit2 is queried for their attributes.

The rules follow git's read-cache.c and convert.c.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pygit2

from editd.system.regular_files import open_regular, would_block
from editd.values.content import GitMode, Version, mode_of
from editd.workspace.git_index_file import IndexEntry, IndexFile, read_index_file
from editd.workspace.git_preflight import has_no_fifo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


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
