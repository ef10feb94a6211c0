"""Another program on the fake disk: it saves in place or by a rename, deletes, and writes late.

It makes its calls as the kernel would let it: an open for writing waits until a lease of the daemon's ends.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd.values.content import version_of
from simulation.calls import Open

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from simulation.calls import Calls
    from simulation.node import Node


@dataclass
class Outsider:
    """Another program, and what it has written. `owed` is the last save of each path."""

    calls: Calls
    top: bytes  # the workspace's folder on the fake disk
    number: int = 0
    contents: dict[str, bytes] = field(default_factory=dict)  # by their versions, and what a power cut left
    touched: set[str] = field(default_factory=set)  # paths
    owed: dict[str, str] = field(default_factory=dict)  # path → version
    deleted: set[str] = field(default_factory=set)
    gone: list[Node] = field(default_factory=list)  # files that it has replaced or removed
    tell: Callable[[str], None] = print
    waiting: list[tuple[Node, Callable[[], None]]] = field(default_factory=list)
    held: list[tuple[str, Open]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.calls.on_lease_end = self._wake

    def content(self, path: str, node: Node) -> bytes:
        """Return what to write next into a file. It is owed, unless the file was taken away by it."""
        self.number += 1
        content = f"of another program {self.number}\n".encode() * (1 + self.number % 3)
        self.contents[version_of(content)] = content
        self.touched.add(path)
        self.tell(f"another program: its content {self.number} for {path}, file {node.number}")
        if node not in self.gone:
            self.owed[path] = version_of(content)
        return content

    def node(self, path: str) -> Node | None:
        """Return the file at a path, as open(2) finds it."""
        try:
            return self.calls.disk.walk(self.calls.disk.root, self.top + b"/" + path.encode())
        except OSError:
            return None

    def save(self, path: str) -> None:
        """Write the file in place, or make it."""
        node = self.node(path)
        if node is None:
            self.save_by_rename(path)
        else:
            self.write_to(node, path)

    def write_to(self, node: Node, path: str) -> None:
        """Write a file that was found before, wherever it is now."""
        if not node.is_file or (path in self.owed and any(one is node for one, _ in self.waiting)):
            return
        leases = [one for one in node.opened if isinstance(one, Open) and one.lease != fcntl.F_UNLCK]
        if not leases:
            self._write(node, self.content(path, node))
            return
        for lease in leases:
            lease.is_lease_broken = True
        content = self.content(path, node)
        self.waiting.append((node, lambda: self._write(node, content)))

    def _write(self, node: Node, content: bytes) -> None:
        self.calls.disk.cut(node, 0)
        self.calls.disk.write(node, 0, content)

    def _wake(self, node: Node) -> None:
        """Let those go on who wait for the lease of a file."""
        if any(isinstance(one, Open) and one.lease != fcntl.F_UNLCK for one in node.opened):
            return
        for one, write in [entry for entry in self.waiting if entry[0] is node]:
            self.waiting.remove((one, write))
            write()

    def save_by_rename(self, path: str) -> None:
        """Write a new file, and rename it over the old one."""
        disk = self.calls.disk
        try:
            folder, name = disk.parent_of(disk.root, self.top + b"/" + path.encode())
        except OSError:
            return
        if name in folder.entries and not folder.entries[name].is_file:
            return
        temporary = b"." + name + b".tmp"
        node = disk.create(folder, temporary, 0o644)
        disk.write(node, 0, self.content(path, node))
        self.gone += [folder.entries[name]] if name in folder.entries else []
        disk.rename(folder, temporary, folder, name)

    def delete(self, path: str) -> None:
        disk, node = self.calls.disk, self.node(path)
        if node is None:
            return
        self.gone.append(node)
        self.tell(f"another program: removes {path}")
        folder, name = disk.parent_of(disk.root, self.top + b"/" + path.encode())
        disk.unlink(folder, name)
        self.owed.pop(path, None)
        self.deleted.add(path)
        self.touched.add(path)

    def hold(self, path: str) -> None:
        """Open a file for writing, and keep it open."""
        node = self.node(path)
        if node is None or not node.is_file:
            return
        if not any(isinstance(one, Open) and one.lease != fcntl.F_UNLCK for one in node.opened):
            self.held.append((path, self.calls.open_node(node, os.O_RDWR)))

    def let_go(self) -> None:
        """Write the files that are held open, and close them."""
        for path, opened in self.held:
            self._write(opened.node, self.content(path, opened.node))
            opened.node.opened.remove(opened)
        self.held.clear()

    def lose(self, files: Iterable[bytes]) -> None:
        """End with the machine: what was not synced may be gone, or torn in these contents of files."""
        for content in files:
            whole = content.rstrip(b"\0")
            if any(one.startswith(whole) for one in self.contents.values()):
                self.contents[version_of(content)] = content
        self.deleted |= self.touched
        for _, opened in self.held:
            opened.node.opened.remove(opened)
        self.owed.clear()
        self.held.clear()
        self.waiting.clear()
