"""A command that runs apart from all others, in an overlay over the workspace; its changes become one edit.

The upper layer of the overlay has exactly the changes of the command, even if others work in the
workspace meanwhile. They are applied against the files at its beginning, merged, and checked like every
edit. Files that git ignores are left out, and so is `.git`.
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
from editd_client.errors import EditdError, refusal
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


def edits_of(client: Client, root: str, upper: str, head: int) -> tuple[list[AnyEdit], list[str]]:
    """Return the edits that make the changes of a layer, on the files as of `head`, and the left out paths.

    Raises EditdError, and OSError if the layer cannot be read.
    """
    layer = layer_at(upper)
    deleted = set(_hidden_files(root, layer))
    left_out = _ignored(root, {*layer.written, *deleted})
    edits: list[AnyEdit] = []
    for path in sorted(deleted - set(layer.written) - left_out):
        before = _before(client, path, head)
        if before is not None:
            edits.append(messages.Delete(path=path, base=before.version))
    for path in layer.written:
        if path not in left_out:
            before = _before(client, path, head)
            with _folder_of(upper, path) as (folder, name):
                edits += _written(folder, name, path, before)
    return edits, sorted(left_out)


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


def _written(folder: int, name: str, path: str, before: messages.ReadResult | None) -> Iterator[AnyEdit]:
    """Yield the edits that make the file `name` of an open folder, as `path`. A change of its kind takes two.

    An unchanged mode is left out of the edit, so that a change of it by others stays.
    """
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    base = None if before is None else before.version
    is_link = stat.S_ISLNK(status.st_mode)
    if not is_link and not stat.S_ISREG(status.st_mode):
        return  # a socket or a pipe
    if before is not None and is_link != (before.kind == "symlink"):
        yield messages.Delete(path=path, base=base)
        before = base = None
    if is_link:
        target = os.readlink(name, dir_fd=folder)
        if before is None or before.content != target:
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


def _before(client: Client, path: str, head: int) -> messages.ReadResult | None:
    """Return a file right after transaction `head`, or None if it was not there."""
    try:
        return client.read(path, at=head)
    except EditdError as refused:
        if refused.name == "file_missing":
            return None
        raise


def _hidden_files(root: str, layer: Layer) -> Iterator[str]:
    """Yield the files of the workspace that a layer hides."""
    for path in layer.hidden:
        real = os.path.join(root, path)
        if os.path.islink(real) or not os.path.isdir(real):
            yield path
            continue
        for folder, folders, names in os.walk(real):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in [*names, *links])


def _ignored(root: str, paths: Collection[str]) -> set[str]:
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
