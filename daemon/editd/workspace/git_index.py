"""Git's index: which files of the user's repository are clean, and so need not be read.

Owns the rules of trust. What is returned is the blob of the very bytes on disk, and is in the object
folders that `objects` names; at the least doubt the answer is None, and the caller reads the file.
Never writes to the repository, and never refreshes its index.

A blob need not hold the file's bytes, since git may convert between the two. Line ends, wherever they
are configured, are told by size: each converted one is a byte more or less. The other conversions keep
the size at times, so their attributes are asked for.

Rules: read-cache.c and convert.c of git.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pygit2

from editd.system.regular_file import open_regular, would_block
from editd.values.content import GitMode, Version, mode_of
from editd.workspace.fifo_guard import has_no_fifo
from editd.workspace.git_index_file import IndexEntry, IndexFile, read_index_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RACY_NS = 50_000_000  # a file this young when the index was written may have changed in the same tick since
RACY_COARSE_NS = 2_000_000_000  # the same where times are whole seconds, or FAT's two
CONVERTING = frozenset({"filter", "ident", "working-tree-encoding"})  # the attributes; line ends see above

_UNTOLD = frozenset({""})  # what no attribute is called: libgit2 is not to be asked for any
_DOUBTFUL = 0xF000  # assume-unchanged, a stage, or extended flags: skip-worktree, intent-to-add
_GITLINK = 0o160000
_WORD = 0xFFFFFFFF
_SECOND_NS = 1_000_000_000
_BLOB = pygit2.enums.ObjectType.BLOB
_ALTERNATES_DEPTH_MAX = 5  # as in git and libgit2

# The user's repository may belong to somebody else, and keep its refs, or objects that it has not got,
# in ways that libgit2 does not know: we read neither.
pygit2.option(pygit2.enums.Option.SET_OWNER_VALIDATION, False)
pygit2.option(pygit2.enums.Option.SET_EXTENSIONS, ["partialclone", "refstorage"], 2)


class GitIndex:
    """Blob ids of files that are clean in one of the user's repositories, by its index as it is when made."""

    objects: list[str]
    """The folders that hold the blobs: the repository's and those that it borrows from, absolute."""

    @classmethod
    def of(cls, worktree: str) -> GitIndex | None:
        """The index of the repository whose work tree's top is the folder `worktree`.

        None where there is none or it tells nothing: broken, bare, unreadable, or named by SHA-256.
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
        """Raises OSError, ValueError or pygit2.GitError where the repository is broken."""
        self._repository = repository
        self._odb = repository.odb
        self._index = read_index_file(os.path.join(repository.path, "index"))
        self._paths = self._index.places.keys() | _shared_paths(repository.path, self._index)
        self._folders = _folders_of(self._paths)
        self._has_filemode = _is_set(repository.config, "core.filemode")
        self._has_ctime = _is_set(repository.config, "core.trustctime")
        common = _common_folder(repository.path)
        self.objects = list(dict.fromkeys(_object_folders(os.path.join(common, "objects"), 0)))
        # In a split index (`link`) no entry stands for itself, and no alternates file can name a line feed.
        self._is_trusted = self._index.required.keys() <= {b"sdir"} and "\n" not in "".join(self.objects)
        self._top = os.fsencode(repository.workdir)
        outside = (_converting_in(place) for place in _attribute_files(repository.config, common))
        self._converting_everywhere = frozenset[str]().union(*outside)
        self._converting: dict[bytes, frozenset[str]] = {}  # by folder

    def is_tracked(self, path: bytes, *, is_folder: bool) -> bool:
        """Whether git tracks this file; or a file in this folder, or the folder as a submodule."""
        if not is_folder:
            return path in self._paths
        if path in self._folders:
            return True
        place = self._index.places.get(path)
        return place is not None and self._index.entry(place).mode == _GITLINK

    def clean(self, path: bytes, found: os.stat_result) -> tuple[GitMode, Version] | None:
        """The mode and version of a file of which lstat says `found`, or None: not known to be clean.

        `path` is relative to the work tree's top. The mode is the file's own, for git may be told to
        pass over the executable bit (core.filemode).
        """
        place = self._index.places.get(path)
        if place is None or not self._is_trusted:
            return None
        entry = self._index.entry(place)
        if (
            entry.flags & _DOUBTFUL
            or not self._is_same_file(entry, found)
            or self._is_racy(found)
            or not self._has_blob(entry.oid, found.st_size)
            or (stat.S_ISREG(found.st_mode) and self._is_converted(path))
        ):
            return None
        return mode_of(found.st_mode), Version(entry.oid.hex())

    def _is_same_file(self, entry: IndexEntry, found: os.stat_result) -> bool:
        """Whether nothing has happened to the file since git looked; zeros are what git did not know."""
        ctime_is_same = entry.ctime_s and entry.ctime_s * _SECOND_NS + entry.ctime_ns == found.st_ctime_ns
        return bool(
            entry.size == found.st_size
            and entry.mtime_s
            and entry.mtime_s * _SECOND_NS + entry.mtime_ns == found.st_mtime_ns
            and (ctime_is_same or not self._has_ctime)
            and entry.inode
            and entry.inode == found.st_ino & _WORD
            and entry.uid == found.st_uid & _WORD
            and entry.gid == found.st_gid & _WORD
            and self._is_same_mode(entry.mode, found.st_mode)
        )

    def _is_same_mode(self, mode: int, st_mode: int) -> bool:
        if stat.S_IFMT(mode) != stat.S_IFMT(st_mode):
            return False
        return mode == mode_of(st_mode) or (stat.S_ISREG(st_mode) and not self._has_filemode)

    def _is_racy(self, found: os.stat_result) -> bool:
        """Whether the file was so young when the index was written that its times may not tell a change."""
        youngest = max(found.st_mtime_ns, found.st_ctime_ns) if self._has_ctime else found.st_mtime_ns
        tick = RACY_NS if found.st_mtime_ns % _SECOND_NS else RACY_COARSE_NS
        return youngest + tick >= self._index.written_ns

    def _has_blob(self, oid: bytes, size: int) -> bool:
        """Whether the repository has the blob, and it is as long as the file: no line end was converted."""
        try:
            kind, length = self._odb.read_header(pygit2.Oid(raw=oid))
        except (KeyError, pygit2.GitError):
            return False
        return bool(kind == _BLOB and length == size)

    def _is_converted(self, path: bytes) -> bool:
        """Whether an attribute lets git convert more of the file than its line ends."""
        names = self._converting_near(path.rpartition(b"/")[0])
        if names >= _UNTOLD:
            return True
        for name in names:
            try:
                if self._repository.get_attr(path, name) not in (None, False):
                    return True
            except (ValueError, pygit2.GitError):
                return True
        return False

    def _converting_near(self, folder: bytes) -> frozenset[str]:
        """Which of `CONVERTING` any attribute file for `folder` mentions: mostly none, and asking is slow."""
        unknown: list[bytes] = []
        while (found := self._converting.get(folder)) is None and folder:
            unknown.append(folder)
            folder = folder.rpartition(b"/")[0]
        if found is None:
            found = self._converting[b""] = self._converting_everywhere | self._converting_by(
                b".gitattributes"
            )
        for here in reversed(unknown):
            found = self._converting[here] = found | self._converting_by(here + b"/.gitattributes")
        return found

    def _converting_by(self, path: bytes) -> frozenset[str]:
        place = os.path.join(self._top, path)
        if path in self._paths and not os.path.lexists(place):
            return CONVERTING  # it is taken from the index then (gitattributes(5)), and we do not look there
        return _converting_in(place)


def _shared_paths(folder: str, index: IndexFile) -> Iterable[bytes]:
    """The paths in the part that a split index shares, with those that were deleted since."""
    link = index.required.get(b"link", b"")[:20]  # the other part's name, zeros where there is none
    if not any(link):
        return ()
    return read_index_file(os.path.join(folder, f"sharedindex.{link.hex()}")).places


def _folders_of(paths: Iterable[bytes]) -> set[bytes]:
    """Every folder that one of the paths is in, however deep."""
    folders: set[bytes] = set()
    for parent in {path.rpartition(b"/")[0] for path in paths}:
        folder = parent
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition(b"/")[0]
    return folders


def _is_set(config: pygit2.Config, name: str) -> bool:
    """A setting that holds where nothing else is said, or nothing that can be read: more is compared then."""
    try:
        return bool(config.get_bool(name))
    except (KeyError, ValueError, pygit2.GitError):
        return True


def _common_folder(folder: str) -> str:
    """Where a linked worktree's repository keeps what it shares (gitrepository-layout(5)); else itself."""
    try:
        with open_regular(os.path.join(folder, "commondir")) as file:
            return os.path.join(folder, os.fsdecode(file.read().rstrip(b"\r\n")))
    except FileNotFoundError:
        return folder


def _object_folders(folder: str, depth: int) -> Iterator[str]:
    """The object folder and those that it borrows from, which may borrow in turn."""
    folder = os.path.realpath(folder)
    yield folder
    try:
        with open_regular(os.path.join(folder, "info", "alternates")) as file:
            lines = file.read().split(b"\n")
    except OSError:
        return
    for line in lines:
        # A quoted line is passed over by libgit2 too, so no blob is taken from there.
        if line and not line.startswith((b"#", b'"')) and depth < _ALTERNATES_DEPTH_MAX:
            yield from _object_folders(os.path.join(folder, os.fsdecode(line)), depth + 1)


def _attribute_files(config: pygit2.Config, common: str) -> Iterator[str]:
    """The attribute files outside the work tree, where libgit2 looks for them (gitattributes(5))."""
    yield os.path.join(common, "info", "attributes")
    if "core.attributesfile" in config:
        yield os.path.expanduser(str(config["core.attributesfile"]))
    levels = pygit2.enums.ConfigLevel
    for level, name in ((levels.XDG, "attributes"), (levels.SYSTEM, "gitattributes")):
        for folder in pygit2.option(pygit2.enums.Option.GET_SEARCH_PATH, level).split(":"):
            if folder:
                yield os.path.join(folder, name)


def _converting_in(place: str | bytes) -> frozenset[str]:
    """Which of `CONVERTING` an attribute file mentions; all, where it is there and cannot be read.

    `_UNTOLD` where libgit2 would wait for whoever opens it to write.
    """
    try:
        if would_block(place):
            return _UNTOLD
        with open_regular(place) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError:
        return CONVERTING
    return frozenset(name for name in CONVERTING if name.encode() in content)
