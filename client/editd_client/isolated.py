"""A command that runs apart from all others, in an overlay over the workspace; its changes become one edit.

The upper layer of the overlay has exactly the changes of the command, even if others work in the
workspace meanwhile. They are applied against the files at its beginning, merged, and checked like every
edit. Files that git ignores are left out, and so is `.git`. So are pipes, sockets and devices.

The history lacks some files: large ones that no edit has touched, and the contents of excluded files. Such a
file is taken as it is in the workspace, if nothing has changed it since the command began. Otherwise all
changes are refused, so that none is dropped unnoticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from editd.wire import messages
from editd_client.errors import EditdError, refusal, shorten
from editd_client.trial import ignored_paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from editd.wire.messages import AnyEdit
    from editd_client.client import Client

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OPAQUE = "user.overlay.opaque"  # Documentation/filesystems/overlayfs.rst: a folder that hides the one below


class Layer(Struct, frozen=True):
    """The content of an upper layer, by paths: files and symlinks, and the files and folders it hides."""

    written: tuple[str, ...]
    hidden: tuple[str, ...]


def layer_at(upper: str) -> Layer:
    """Read an upper layer. Raises OSError."""
    written: list[str] = []
    hidden: list[str] = []
    for folder, folders, names in os.walk(upper):
        inside = os.path.relpath(folder, upper)
        prefix = "" if inside == "." else inside + "/"
        if prefix and _is_opaque(folder):
            hidden.append(prefix.rstrip("/"))
        for name in [*names, *(one for one in folders if os.path.islink(os.path.join(folder, one)))]:
            status = os.lstat(os.path.join(folder, name))
            is_whiteout = stat.S_ISCHR(status.st_mode) and status.st_rdev == 0
            (hidden if is_whiteout else written).append(prefix + name)
    return Layer(tuple(sorted(written)), tuple(sorted(hidden)))


class Start(Struct, frozen=True):
    """The beginning of a command: the newest transaction, and the time by the clock of the file systems."""

    head: int
    time_ns: int


class LayerChanges(Struct, frozen=True):
    """The changes of a layer: the edits that make them, and the paths that are left out, by their reason."""

    edits: list[AnyEdit]
    left_out: dict[str, list[str]]


IGNORED = "git ignores them"
OF_NO_KIND = "they are neither files nor symlinks"


def changes_of(client: Client, root: str, upper: str, start: Start) -> LayerChanges:
    """Return the changes of a layer, on the files as of `start`.

    Raises EditdError, and OSError if the layer cannot be read.
    """
    layer = layer_at(upper)
    deleted = set(_hidden_files(root, layer))
    ignored = _ignored_paths(root, {*layer.written, *deleted})
    files = _FilesBefore(client, root, start)
    edits: list[AnyEdit] = []
    odd: list[str] = []
    for path in sorted(deleted - set(layer.written) - ignored):
        before = files.at(path)
        if before is not None:
            edits.append(messages.Delete(path=path, base=before.version))
        elif files.is_odd(path):
            odd.append(path)
    for path in layer.written:
        if path not in ignored:
            before = files.at(path)
            with _folder_of(upper, path) as (folder, name):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if _is_recordable(status):
                    edits += _file_edits(folder, name, status, path, before)
                else:
                    odd.append(path)
    files.check()
    left_out = {IGNORED: sorted(ignored), OF_NO_KIND: sorted(odd)}
    return LayerChanges(edits, {reason: paths for reason, paths in left_out.items() if paths})


@contextlib.contextmanager
def _folder_of(upper: str, path: str) -> Iterator[tuple[int, str]]:
    """Open the folder of a file in the layer, and yield it with the file's name.

    A process that the command has left behind may put a symlink into the layer at any time. No link is
    followed, so no file from outside of the layer is applied. Raises OSError.
    """
    *folders, name = path.split("/")
    descriptor = os.open(upper, FOLDER_FLAGS)
    try:
        for folder in folders:
            inner = os.open(folder, FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, name
    finally:
        os.close(descriptor)


def _file_edits(
    folder: int, name: str, status: os.stat_result, path: str, before: _FileBefore | None
) -> Iterator[AnyEdit]:
    """Yield the edits that make the file `name` of an open folder, as `path`. A change of its kind takes two.

    An unchanged mode is left out of the edit, so that a change of it by others stays.
    """
    base = None if before is None else before.version
    is_link = stat.S_ISLNK(status.st_mode)
    if before is not None and is_link != (before.target is not None):
        yield messages.Delete(path=path, base=base)
        before = base = None
    if is_link:
        target = os.readlink(name, dir_fd=folder)
        if before is None or before.target != target:
            yield messages.Symlink(path=path, target=target, base=base)
        return
    with os.fdopen(os.open(name, FILE_FLAGS, dir_fd=folder), "rb") as file:
        content = file.read()
    mode: Literal["100644", "100755"] = "100755" if status.st_mode & stat.S_IXUSR else "100644"
    version = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
    if before is None or (version, mode) != (before.version, before.mode):
        text = content.decode("utf-8", "surrogateescape")
        edit = messages.Write(path=path, content=text, base=base)
        is_same_mode = before is not None and before.mode == mode
        yield edit if is_same_mode else msgspec.structs.replace(edit, mode=mode)


class _FileBefore(Struct, frozen=True):
    """A file at the beginning of the command. `target` is that of a symlink, otherwise None."""

    version: str
    mode: messages.Mode
    target: str | None


WITHOUT_CONTENT = ("file_missing", "content_excluded", "content_forgotten")  # refusals of the history


class _FilesBefore:
    """The files of the workspace at the beginning of the command: from the history, otherwise as they are."""

    def __init__(self, client: Client, root: str, start: Start) -> None:
        self._client = client
        self._root = root
        self._start = start
        self._changed: list[str] = []
        self._too_large: dict[str, EditdError] = {}

    def at(self, path: str) -> _FileBefore | None:
        """Return the file at `path`, or None if there was none. `check` refuses what cannot be read here."""
        try:
            before = self._client.read(path, at=self._start.head)
        except EditdError as refused:
            if refused.name not in WITHOUT_CONTENT:
                raise
            return self._as_it_is(path)
        return _FileBefore(before.version, before.mode, before.content if before.kind == "symlink" else None)

    def is_odd(self, path: str) -> bool:
        """Return whether a pipe, a socket or a device is at `path`."""
        status = self._status(path)
        return status is not None and not stat.S_ISDIR(status.st_mode) and not _is_recordable(status)

    def check(self) -> None:
        """Raise EditdError, with every path that `at` could not read."""
        if self._changed:
            raise refusal(
                "stale",
                f"The history lacks the earlier content of files that changed while the command ran: "
                f"{shorten(self._changed)}.",
                hint="Run the command again.", data={"paths": self._changed},
            )  # fmt: skip
        if self._too_large:
            first = next(iter(self._too_large.values()))
            raise refusal(
                "too_large",
                f"The command changed files over the {first.data['bytes_max']} bytes that editd takes of one "
                f"file: {shorten(self._too_large)}.",
                hint="Run the command without --isolated, or raise `file_bytes_max`.",
                data=first.data | {"paths": list(self._too_large)},
            )  # fmt: skip

    def _as_it_is(self, path: str) -> _FileBefore | None:
        """Return the present file, if it is the one that the command has seen."""
        status = self._status(path)
        if status is None or not _is_recordable(status):
            return None
        if status.st_ctime_ns > self._start.time_ns:
            self._changed.append(path)
            return None
        try:
            (entry,) = self._client.stat([path]).files
        except EditdError as refused:
            if refused.name != "too_large":
                raise
            self._too_large[path] = refused
            return None
        if entry.version is None or entry.mode is None:  # gone by now, as the command or another wanted it
            return None
        is_link = entry.kind == "symlink"
        return _FileBefore(
            entry.version, entry.mode, os.readlink(os.path.join(self._root, path)) if is_link else None
        )

    def _status(self, path: str) -> os.stat_result | None:
        """Return the status of a present file, or None without one. A symlink in the path leads to none."""
        real = os.path.join(self._root, path)
        is_through_link = os.path.realpath(os.path.dirname(real)) != os.path.dirname(real)
        if is_through_link:
            return None
        try:
            return os.lstat(real)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _is_recordable(status: os.stat_result) -> bool:
    """Return whether the history can hold such a file."""
    return stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)


def _hidden_files(root: str, layer: Layer) -> Iterator[str]:
    """Yield the files of the workspace that a layer hides, by a whiteout or by a file in a folder's place."""
    hidden = set(layer.hidden)
    for path in (*layer.hidden, *layer.written):
        real = os.path.join(root, path)
        if os.path.islink(real) or not os.path.isdir(real):
            if path in hidden:
                yield path
            continue
        for folder, folders, names in os.walk(real):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in [*names, *links])


def _ignored_paths(root: str, paths: Collection[str]) -> set[str]:
    """Return the paths that git ignores, and git's own paths. Raises EditdError."""
    ignored = {path for path in paths if ".git" in path.split("/")}
    try:
        return ignored | ignored_paths(root, set(paths) - ignored)
    except OSError as error:
        raise refusal(
            "io_error", f"The ignore rules of the repository cannot be read: {error}",
            hint="Run `git status` in the workspace, and repair what it reports.",
        ) from error  # fmt: skip


def _is_opaque(folder: str) -> bool:
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False
