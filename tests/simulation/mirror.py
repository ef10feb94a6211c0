"""Copies of a part of the fake disk on the real one, for libgit2, which reads files by itself.

libgit2 only reads: the product writes packs, heads and manifests itself. So each file below a mirrored folder
is copied when it gets a name, and again when it is synced or closed.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.node import Node

# Those of the real system, also while the fake ones are in force.
_open, _write, _close, _mkdir, _unlink, _rmdir = os.open, os.write, os.close, os.mkdir, os.unlink, os.rmdir
_lstat, _listdir = os.lstat, os.listdir


class Mirror:
    """The copy of one folder of the fake disk."""

    def __init__(self) -> None:
        self._folders: dict[int, str] = {}  # by the numbers of their nodes

    def begin(self, folder: Node, path: str) -> None:
        """Copy a folder to `path`, and follow it from now on."""
        self._folders.clear()
        remove(path)
        self._copy(folder, path)

    def put(self, folder: Node, name: bytes, node: Node | None) -> None:
        """Follow the change of a name in a folder; `node` None: it is gone."""
        above = self._folders.get(folder.number)
        if above is None:
            return
        path = os.path.join(above, os.fsdecode(name))
        if node is not None:
            self._copy(node, path)
        else:
            remove(path)

    def update(self, node: Node) -> None:
        """Copy the content of a file to each of its copies."""
        for path in node.mirrors:
            _write_file(path, bytes(node.content))

    def _copy(self, node: Node, path: str) -> None:
        if node.is_folder:
            _mkdir(path, 0o700)
            self._folders[node.number] = path
            for name, below in node.entries.items():
                self._copy(below, os.path.join(path, os.fsdecode(name)))
        elif node.is_file:
            node.mirrors = {path}
            _write_file(path, bytes(node.content))


def copy(node: Node, path: str) -> None:
    """Copy a file or a folder to the real disk, without following it."""
    if node.is_folder:
        _mkdir(path, 0o700)
        for name, below in node.entries.items():
            copy(below, os.path.join(path, os.fsdecode(name)))
    elif node.is_file:
        _write_file(path, bytes(node.content))


def remove(path: str) -> None:
    """Remove a file or a folder with all below it from the real disk, if it is there."""
    try:
        is_folder = stat.S_ISDIR(_lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_folder:
        _unlink(path)
        return
    for name in _listdir(path):
        remove(os.path.join(path, name))
    _rmdir(path)


def _write_file(path: str, content: bytes) -> None:
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    _write(descriptor, content)
    _close(descriptor)
