"""A fake disk: a tree of nodes in memory, a log of changed names, and what a power cut leaves of both.

Follows ext4 with ordered data, and POSIX where that promises less:

- Changes of names, sizes that are cut, and modes become durable in their order. A power cut leaves a
  beginning of that order.
- fsync(2) of a folder makes every change up to the last one of that folder durable.
- fsync(2) of a file makes its bytes and its mode durable, and not its name. ext4 often keeps the name, too,
  and POSIX does not promise it.
- syncfs(2) makes everything durable. A write with RWF_DSYNC does so for the bytes of its file.
- A sync that fails loses the bytes that it was to write: a later one succeeds, and does not write them.
- A rename is whole or not there, in both folders.

A killed process loses its open files and nothing else.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from simulation.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

LINKS_MAX = 40
Names = list[tuple[Node, bytes, Node | None]]  # folder, name and its new node


def failure(number: int, name: object = None) -> OSError:
    return OSError(number, os.strerror(number), name)


@dataclass(slots=True, eq=False)
class Change:
    """One entry of the log: names that change together, or the mode of a node, or a mark in the order."""

    names: Names = field(default_factory=list)
    mode_of: Node | None = None
    mode: int = 0


class FakeDisk:
    """The file system. Each verb works on nodes, and raises the OSError of its system call."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * 1_000_000_000
        self._numbers = 1
        self.log: list[Change] = []
        self.committed = 0  # changes that are durable, and no longer in the log
        self.dirty: dict[int, Node] = {}
        self.umask = 0o022
        self.chance = Random(0)  # of what a failed sync has written
        self.root = self._node(stat.S_IFDIR | 0o755)
        self.root.safe_mode = self.root.mode

    @property
    def stamp(self) -> int:
        return self.committed + len(self.log)

    def tick(self, node: Node, *, is_written: bool = False) -> None:
        """Give a node the next time; no two changes have the same."""
        self.now_ns += 1000
        node.changed_ns = self.now_ns
        if is_written:
            node.written_ns = self.now_ns

    def _node(self, mode: int) -> Node:
        self._numbers += 1
        node = Node(self._numbers, mode)
        self.tick(node, is_written=True)
        return node

    # ── names ──

    def walk(self, start: Node, path: bytes, *, follows_last: bool = True, has_links: bool = True) -> Node:
        """Return the node at a path. Raises ENOENT, ENOTDIR, ELOOP."""
        node, links = start, 0
        try:  # mostly there is no symlink on the way
            for name in path.split(b"/"):
                node = node.entries[name]
                if node.is_link:
                    break
            else:
                return node
        except KeyError:
            node = start
        node, pending = start, [name for name in path.split(b"/") if name not in (b"", b".")]
        while pending:
            name = pending.pop(0)
            below = self.child(node, name)
            if below.is_link and (pending or follows_last):
                links += 1
                if not has_links or links > LINKS_MAX or below.target.startswith(b"/"):
                    raise failure(errno.ELOOP, path)
                pending = [part for part in below.target.split(b"/") if part not in (b"", b".")] + pending
                continue
            node = below
        return node

    def child(self, folder: Node, name: bytes) -> Node:
        if not folder.is_folder:
            raise failure(errno.ENOTDIR, name)
        if name in (b".", b""):
            return folder
        try:
            return folder.entries[name]
        except KeyError:
            raise failure(errno.ENOENT, name) from None

    def parent_of(self, start: Node, path: bytes) -> tuple[Node, bytes]:
        """Return the folder above a path, and the last name. Raises ENOENT, ENOTDIR."""
        above, _, name = path.rstrip(b"/").rpartition(b"/")
        folder = self.walk(start, above)
        if not folder.is_folder:
            raise failure(errno.ENOTDIR, path)
        return folder, name

    def _set(self, *names: tuple[Node, bytes, Node | None]) -> None:
        """Change names together, in memory and in the log."""
        for folder, name, node in names:
            if node is None:
                del folder.entries[name]
            else:
                folder.entries[name] = node
            self.tick(folder, is_written=True)
        self.log.append(Change(list(names)))

    def _drop(self, node: Node) -> None:
        node.links -= 1
        self.tick(node)

    # ── verbs ──

    def create(self, folder: Node, name: bytes, permissions: int) -> Node:
        node = self._node(stat.S_IFREG | (permissions & ~self.umask & 0o7777))
        node.safe_mode = node.mode
        self._set((folder, name, node))
        return node

    def make_folder(self, folder: Node, name: bytes, permissions: int) -> None:
        if name in folder.entries or name in (b"", b".", b".."):
            raise failure(errno.EEXIST, name)
        node = self._node(stat.S_IFDIR | (permissions & ~self.umask & 0o7777))
        node.safe_mode, node.links = node.mode, 2
        self._set((folder, name, node))
        folder.links += 1

    def make_link(self, folder: Node, name: bytes, target: bytes) -> None:
        if name in folder.entries:
            raise failure(errno.EEXIST, name)
        node = self._node(stat.S_IFLNK | 0o777)
        node.target, node.safe_mode = target, node.mode
        self._set((folder, name, node))

    def link(self, node: Node, folder: Node, name: bytes) -> None:
        if name in folder.entries:
            raise failure(errno.EEXIST, name)
        if node.is_folder:
            raise failure(errno.EPERM, name)
        node.links += 1
        self._set((folder, name, node))
        self.tick(node)

    def unlink(self, folder: Node, name: bytes) -> None:
        node = self.child(folder, name)
        if node.is_folder:
            raise failure(errno.EISDIR, name)
        self._set((folder, name, None))
        self._drop(node)

    def remove_folder(self, folder: Node, name: bytes) -> None:
        node = self.child(folder, name)
        if not node.is_folder:
            raise failure(errno.ENOTDIR, name)
        if node.entries:
            raise failure(errno.ENOTEMPTY, name)
        self._set((folder, name, None))
        node.links -= 2
        folder.links -= 1

    def rename(self, folder: Node, name: bytes, into: Node, other: bytes) -> None:
        """Rename over any file with the other name, as rename(2)."""
        node, target = self.child(folder, name), into.entries.get(other)
        if target is node:
            return
        self._refuse_cycle(node, into)
        if target is not None:
            if target.is_folder and (target is folder or any(one is folder for _, one in below(target))):
                raise failure(errno.ENOTEMPTY, name)
            if target.is_folder and not node.is_folder:
                raise failure(errno.EISDIR, name)
            if node.is_folder and not target.is_folder:
                raise failure(errno.ENOTDIR, name)
            if target.is_folder and target.entries:
                raise failure(errno.ENOTEMPTY, name)
        self._move(folder, name, into, other, node)
        if target is not None:
            self._drop(target)
            target.links -= target.is_folder
            into.links -= target.is_folder

    def move(self, folder: Node, name: bytes, into: Node, other: bytes) -> None:
        """Rename to a free name (RENAME_NOREPLACE)."""
        node = self.child(folder, name)
        if other in into.entries:
            raise failure(errno.EEXIST, name)
        self._refuse_cycle(node, into)
        self._move(folder, name, into, other, node)

    def _move(self, folder: Node, name: bytes, into: Node, other: bytes, node: Node) -> None:
        self._set((into, other, node), (folder, name, None))
        self.tick(node)
        if node.is_folder and folder is not into:
            folder.links -= 1
            into.links += 1

    def exchange(self, folder: Node, name: bytes, into: Node, other: bytes) -> None:
        """Exchange two names (RENAME_EXCHANGE)."""
        node, target = self.child(folder, name), self.child(into, other)
        if node is target:
            return
        self._refuse_cycle(node, into)
        self._refuse_cycle(target, folder)
        self._set((folder, name, target), (into, other, node))
        for moved in (node, target):
            self.tick(moved)
        moved_folders = int(target.is_folder) - int(node.is_folder)
        if folder is not into:
            folder.links += moved_folders
            into.links -= moved_folders

    def _refuse_cycle(self, node: Node, into: Node) -> None:
        if node.is_folder and (node is into or any(one is into for _, one in below(node))):
            raise failure(errno.EINVAL)

    def write(self, node: Node, offset: int, content: bytes) -> None:
        node.write(offset, bytes(content), self.stamp)
        self.dirty[node.number] = node
        self.tick(node, is_written=True)

    def cut(self, node: Node, size: int) -> None:
        node.cut(size, self.stamp)
        self.log.append(Change())
        self.dirty[node.number] = node
        self.tick(node, is_written=True)

    def set_mode(self, node: Node, permissions: int) -> None:
        node.mode = stat.S_IFMT(node.mode) | permissions
        self.log.append(Change(mode_of=node, mode=node.mode))
        self.tick(node)

    # ── durability ──

    def sync(self, node: Node) -> None:
        """fsync(2) of a file or folder."""
        if not node.is_folder:
            node.sync()
            self.dirty.pop(node.number, None)
            return
        last = max((at for at, change in enumerate(self.log) if _touches(change, node)), default=-1)
        self._commit(last + 1)

    def sync_all(self) -> None:
        """syncfs(2)."""
        for node in self.dirty.values():
            node.sync()
        self.dirty.clear()
        self._commit(len(self.log))

    def fail_to_sync(self, node: Node | None = None) -> None:
        """Fail in fsync(2) or, without a node, in syncfs(2): the kernel drops what it could not write."""
        for lost in list(self.dirty.values()) if node is None else [node] if node.is_file else []:
            lost.lose(self.chance)

    def _commit(self, count: int) -> None:
        for change in self.log[:count]:
            for folder, name, node in change.names:
                if node is None:
                    folder.safe_entries.pop(name, None)
                else:
                    folder.safe_entries[name] = node
            if change.mode_of is not None:
                change.mode_of.safe_mode = change.mode
        del self.log[:count]
        self.committed += count

    def cut_power(self, chance: Random) -> None:
        """Lose what was not durable: a part of it that a power cut can take."""
        kept = chance.choice((0, len(self.log), chance.randint(0, len(self.log))))
        commits = self.committed + kept
        left = {node.number: node.after_cut(commits, chance) for node in self.dirty.values()}
        self._commit(kept)
        self.log.clear()
        self.dirty.clear()
        for node in _all_durable(self.root):
            node.mode = node.safe_mode
            node.links = 2 if node.is_folder else 0
            node.content = bytearray(left.get(node.number, node.safe_content))
            node.safe_content = bytes(node.content)
            node.pending.clear()
            node.has_lost = False
            node.entries = dict(node.safe_entries)
        for node in _all_durable(self.root):
            for below in node.entries.values():
                if below.is_folder:
                    node.links += 1
                else:
                    below.links += 1


def _touches(change: Change, folder: Node) -> bool:
    return change.mode_of is folder or any(one is folder for one, _, _ in change.names)


def below(folder: Node, above: bytes = b"") -> Iterator[tuple[bytes, Node]]:
    """Yield everything below a folder, by its path from there."""
    for name, node in folder.entries.items():
        yield above + name, node
        if node.is_folder:
            yield from below(node, above + name + b"/")


def _all_durable(root: Node) -> list[Node]:
    """Return each node that the durable names lead to, once."""
    nodes, todo = {root.number: root}, [root]
    while todo:
        for node in todo.pop().safe_entries.values():
            if node.number not in nodes:
                nodes[node.number] = node
                todo.append(node)
    return list(nodes.values())
