"""Git's objects, built in memory: ids by hashlib, trees by updating the folders on a path.

An edit costs the hashing of its own blob and of the trees on its path, for any number of files.
Writing loose objects, one file each, took a hundred times as long in a prototype.
Formats: git's Documentation/gitformat-index, `tree` and `commit` as git-hash-object takes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Literal, Protocol, cast

from msgspec import Struct

from editd.values.content import Entry, Version, mode_of
from editd.values.path import ways_down

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from editd.values.content import FileState, GitMode

Oid = bytes  # 20 bytes
oid_of = bytes.fromhex  # the id of a version or a commit, given in hex digits; no call frame
ObjectKind = Literal["blob", "tree", "commit"]
KINDS: dict[int, ObjectKind] = {1: "commit", 2: "tree", 3: "blob"}  # by their numbers in a pack
KIND_NUMBERS = {kind: number for number, kind in KINDS.items()}
EMPTY_TREE: Oid = oid_of("4b825dc642cb6eb9a060e54bf8d69288fbee4904")
_ENTRY = re.compile(rb"((?:(40000)|[0-7]+) ([^\0]+)\0.{20})", re.DOTALL)  # of a tree object
_ENTRIES = re.compile(rb"(?:[^\0]+\0.{20})*", re.DOTALL)
_ID_END = 21  # bytes after the start of the zero byte that ends the name
_FOLDER_MODE = 0o040000
_MODULE_MODE = b"160000"  # of a submodule, which is neither a file nor a folder here
_MODULE_KEY_END = b"\0"  # no name has it, and git sorts a submodule like a file
_USABLE_MODES = frozenset({b"100644", b"100755", b"120000", b"40000"})
_NO_SEQ = -1  # in place of a transaction
FOLDERS_KEPT_MAX = 8192  # decoded folders in memory; about 10 KB each with a hundred files


def object_id(kind: ObjectKind, content: bytes) -> Oid:
    """Return git's id of an object, a SHA-1."""
    digest = hashlib.sha1(b"%b %d\0" % (kind.encode(), len(content)))
    digest.update(content)  # without a copy of it
    return digest.digest()


class ObjectSource(Protocol):
    """The stored objects of a history, by their ids."""

    def read(self, oid: Oid) -> tuple[int, bytes]:
        """Return an object's type (gitformat-pack(5)) and its bytes.

        Raises KeyError if it is missing, pygit2.GitError if it is damaged, and IoError.
        """
        ...

    def has(self, oid: Oid) -> bool:
        """Return whether the store has the object itself; a borrowed one does not count."""
        ...

    def size(self, oid: Oid) -> int:
        """Return the number of an object's bytes. Raises as `read`."""
        ...

    def close(self) -> None: ...


class PendingObjects:
    """The objects that wait for packing, in memory, each with the last transaction that needs it."""

    def __init__(self) -> None:
        self.bytes = 0
        self._pending: dict[Oid, tuple[int, bytes]] = {}
        self._order: deque[tuple[int, Oid, int]] = deque()  # with the transaction that needed it before
        self._released = _NO_SEQ

    def hold(self, seq: int, objects: Iterable[tuple[Oid, bytes]]) -> None:
        """Keep objects until transaction `seq` is packed."""
        for oid, content in objects:
            known, size = self._pending.get(oid), len(content)
            self._order.append((seq, oid, _NO_SEQ if known is None else known[0]))  # first: `drop` follows it
            self._pending[oid] = (seq, content)
            if known is None:
                self.bytes += size

    def drop(self, seq: int) -> None:
        """Drop the objects that only transactions from `seq` on need, which are reverted."""
        while self._order and self._order[-1][0] >= seq:
            _, oid, before = self._order.pop()
            held, content = self._pending.get(oid, (_NO_SEQ, b""))
            if held < seq:
                continue  # an exception came before it was held
            if before > self._released:
                self._pending[oid] = (before, content)
            else:
                self.bytes -= len(content)
                del self._pending[oid]

    def get(self, oid: Oid) -> bytes | None:
        """Return an object's bytes; None if it does not wait for packing."""
        pending = self._pending.get(oid)
        return None if pending is None else pending[1]

    def release(self, seq: int) -> None:
        """Drop the objects that only transactions up to `seq` need."""
        self._released = seq
        while self._order and self._order[0][0] <= seq:
            _, oid, _ = self._order.popleft()
            pending = self._pending.get(oid)
            if pending is not None and pending[0] <= seq:
                del self._pending[oid]
                self.bytes -= len(pending[1])


class GitTree(Struct, eq=False, gc=False):
    """One tree object, decoded so that an entry is found by bisection and replaced in place."""

    keys: list[bytes]  # git's sort keys: a folder's name ends with a slash
    entries: list[bytes]  # `mode name\0oid`

    @classmethod
    def decode(cls, raw: bytes) -> GitTree:
        """Parse a tree object. Raises ValueError if `raw` is no tree."""
        return cls.of(_parse_entries(raw))

    @classmethod
    def of(cls, parsed: Iterable[_ParsedEntry]) -> GitTree:
        """Return a folder with these entries, which are in git's order."""
        keys: list[bytes] = []
        entries: list[bytes] = []
        for entry, is_folder, name in parsed:
            keys.append(name + b"/" if is_folder else name)
            entries.append(entry)
        return cls(keys, entries)

    @classmethod
    def decode_with_modules(cls, raw: bytes) -> GitTree:
        """Parse a tree object whose submodules stay where they are, until a file or folder replaces them."""
        folder = cls.decode(raw)
        if _MODULE_MODE in raw:
            pairs = zip(folder.keys, folder.entries, strict=True)
            folder.keys = [
                key + _MODULE_KEY_END if entry.startswith(_MODULE_MODE) else key for key, entry in pairs
            ]
        return folder

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def is_empty(self) -> bool:
        """Whether the folder has neither a file nor a folder; its submodules do not count."""
        for key in self.keys:  # noqa: SIM110  # an expression costs two more calls an edit
            if not key.endswith(_MODULE_KEY_END):
                return False
        return True

    def file(self, name: bytes) -> Entry | None:
        """Return the entry of the file or symlink `name`, or None."""
        at = bisect_left(self.keys, name)
        return _entry(self.entries[at]) if at < len(self.keys) and self.keys[at] == name else None

    def folder(self, name: bytes) -> Oid | None:
        """Return the id of the folder `name`, or None."""
        key = name + b"/"
        at = bisect_left(self.keys, key)
        return self.entries[at][-20:] if at < len(self.keys) and self.keys[at] == key else None

    def files(self) -> dict[bytes, Entry]:
        """Return the files and symlinks by name."""
        return {
            key: _entry(entry)
            for key, entry in zip(self.keys, self.entries, strict=True)
            if not key.endswith((b"/", _MODULE_KEY_END))
        }

    def folders(self) -> dict[bytes, Oid]:
        """Return the ids of the folders by name."""
        pairs = zip(self.keys, self.entries, strict=True)
        return {key[:-1]: entry[-20:] for key, entry in pairs if key.endswith(b"/")}

    def put(self, name: bytes, mode: int, oid: Oid) -> None:
        """Set the entry of `name`, replacing a file, a folder or a submodule of that name."""
        key, other = (name, name + b"/")
        if mode == _FOLDER_MODE:
            key, other = other, key
        encoded = b"%o %b\0%b" % (mode, name, oid)
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            self.entries[at] = encoded
            return
        self.keys.insert(at, key)
        self.entries.insert(at, encoded)
        self._remove(other)
        self._remove(name + _MODULE_KEY_END)

    def remove_file(self, name: bytes) -> None:
        """Remove the file or symlink `name`; a folder of that name stays."""
        self._remove(name)

    def remove_folder(self, name: bytes) -> None:
        """Remove the folder `name`; a file of that name stays."""
        self._remove(name + b"/")

    def _remove(self, key: bytes) -> None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            del self.keys[at], self.entries[at]


def _entry(encoded: bytes) -> Entry:
    mode = int(encoded[: encoded.index(b" ")], 8)
    return Entry(cast("GitMode", mode), Version(encoded[-20:].hex()))  # the user's git may have older modes


class TreeUpdate(Struct, frozen=True, gc=False):
    """The effect of a transaction on the trees: the new root, the new objects, and the state before."""

    root: Oid
    trees: dict[Oid, bytes]
    _folders: dict[bytes, GitTree | None]  # the folders before, to revert the update
    _root_before: Oid

    @property
    def folders(self) -> list[bytes]:
        """The paths of the changed folders."""
        return list(self._folders)


class Trees:
    """The newest tree, with only the folders in memory that edits touch."""

    def __init__(self, root: Oid, read: Callable[[Oid], bytes]) -> None:
        """Start from `root`. `read` returns a tree object's bytes by its id; it may raise KeyError."""
        self.root = root
        self._read = read
        self._folders: dict[bytes, GitTree | None] = {}  # None: there is no such folder

    def entry(self, path: bytes) -> Entry | None:
        """Return the file or symlink at `path`; None for a folder or nothing."""
        above, _, name = path.rpartition(b"/")
        folder = self._folders[above] if above in self._folders else self.folder(above)
        return None if folder is None else folder.file(name)

    def folder(self, path: bytes) -> GitTree | None:
        """Return the folder at `path` (b"" is the root), read at its first use."""
        if path in self._folders:
            return self._folders[path]
        if b"" not in self._folders:
            self._folders[b""] = _decode_tree(self._read, self.root)
        for way in ways_down(path, self._folders):
            folder = self._subfolder(way)
            if folder is None and len(self._folders) > FOLDERS_KEPT_MAX:
                return None
            self._folders[way] = folder
        return self._folders[path]

    def peek(self, path: bytes) -> GitTree | None:
        """Return the folder at `path` without keeping it, for a walk over all folders."""
        if not path or path in self._folders:
            return self.folder(path)
        self.folder(path.rpartition(b"/")[0])
        return self._subfolder(path)

    def _subfolder(self, path: bytes) -> GitTree | None:
        """Read the folder at `path`, whose parent is in memory."""
        above, _, name = path.rpartition(b"/")
        folder = self._folders.get(above)  # a missing folder is not always kept
        oid = None if folder is None else folder.folder(name)
        return None if oid is None else _decode_tree(self._read, oid)

    def update(self, changes: Iterable[tuple[bytes, Entry | FileState | None]]) -> TreeUpdate:
        """Apply `changes` to the tree: each a path and its new state, None for a removal."""
        if len(self._folders) > FOLDERS_KEPT_MAX:
            self._folders.clear()
        before: dict[bytes, GitTree | None] = {}
        ordered = list(changes)
        if len(ordered) > 1:
            ordered.sort(key=lambda change: change[1] is not None)  # removals first, to make room
        trees: dict[Oid, bytes] = {}
        root_before = self.root
        try:
            for path, state in ordered:
                above, _, name = path.rpartition(b"/")
                folder = self._editable(above, before)
                if state is None:
                    folder.remove_file(name)
                else:
                    folder.put(name, state.mode, oid_of(state.version))
            self.root = self._close(before, trees)
            return TreeUpdate(self.root, trees, before, root_before)
        except BaseException:  # if a folder cannot be read, all of them stay unchanged
            self.root = root_before
            self._restore(before)
            raise

    def revert(self, splice: TreeUpdate) -> None:
        """Revert `splice`, which must be the newest update."""
        self.root = splice._root_before
        self._restore(splice._folders)

    def _restore(self, folders: Mapping[bytes, GitTree | None]) -> None:
        for path, folder in folders.items():
            if folder is None:
                self._folders.pop(path, None)
            else:
                self._folders[path] = folder

    def _editable(self, path: bytes, before: dict[bytes, GitTree | None]) -> GitTree:
        """Return the folder at `path`, copied once for this update; create missing folders."""
        ways: list[bytes] = []
        above = path
        while above not in before:
            ways.append(above)
            if not above:
                break
            above = above.rpartition(b"/")[0]
        for way in reversed(ways):
            folder = before[way] = self._folders[way] if way in self._folders else self.folder(way)
            known = (folder.keys, folder.entries) if folder is not None else ((), ())
            self._folders[way] = GitTree(list(known[0]), list(known[1]))
        editable = self._folders[path]
        assert editable is not None
        return editable

    def _close(self, changed: dict[bytes, GitTree | None], trees: dict[Oid, bytes]) -> Oid:
        """Hash the changed folders, each before its parent; return the root's id."""
        root = EMPTY_TREE
        for path in reversed(changed):  # `_editable` adds a folder after its parent
            folder = self._folders[path]
            assert folder is not None
            raw = b"".join(folder.entries)
            oid = object_id("tree", raw)
            if not path:
                root = oid
                if oid != EMPTY_TREE:
                    trees[oid] = raw
                continue
            above, _, name = path.rpartition(b"/")
            parent = self._folders[above]
            assert parent is not None
            if not folder.is_empty:
                trees[oid] = raw
                parent.put(name, _FOLDER_MODE, oid)
            else:
                del self._folders[path]
                parent.remove_folder(name)
        return root if changed else self.root


def tree_content(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a tree object's bytes. `entries` are git's sort keys with the entries, as in `GitTree`."""
    return b"".join(entry for _, entry in sorted(entries))


TreeChange = tuple[bytes, Entry | None, Entry | None]
"""A path with its entries before and after; None where it has no file."""


def tree_changes(read: Callable[[Oid], bytes], before: Oid, after: Oid) -> Iterator[TreeChange]:
    """Yield the files and symlinks that differ between two trees. Ignores moves."""
    waiting = [(b"", before, after)]
    while waiting:
        prefix, before, after = waiting.pop()
        if before == after:
            continue
        old, new = _differing(read, before, after)
        old_files, new_files = old.files(), new.files()
        for name in sorted(old_files.keys() | new_files.keys()):
            yield prefix + name, old_files.get(name), new_files.get(name)
        old_folders, new_folders = old.folders(), new.folders()
        waiting.extend(
            (prefix + name + b"/", old_folders.get(name, EMPTY_TREE), new_folders.get(name, EMPTY_TREE))
            for name in sorted(old_folders.keys() | new_folders.keys(), reverse=True)
        )


def usable_tree(raw: bytes, *, keeps_modules: bool = False) -> bytes:
    """Return a tree object's bytes with only the modes that editd writes, by git's own rule for others.

    An entry of another kind is left out, also a submodule unless `keeps_modules`. So is a name with a slash,
    and a name that is there already. Raises ValueError if `raw` is no tree.
    """
    parsed = _parse_entries(raw)
    is_usual = all(entry[: entry.index(b" ")] in _USABLE_MODES for entry, _, _ in parsed)
    if is_usual and _has_usual_names(parsed):
        return raw
    usable: dict[bytes, tuple[bytes, bytes]] = {}
    for entry, _, name in parsed:
        is_kept = keeps_modules and entry.startswith(_MODULE_MODE + b" ")
        mode = _MODULE_MODE if is_kept else _usable_mode(entry)
        if mode is not None and b"/" not in name:
            key = name + b"/" if mode == b"40000" else name
            usable.setdefault(name, (key, mode + entry[entry.index(b" ") :]))
    return tree_content(usable.values())


def _has_usual_names(parsed: Sequence[_ParsedEntry]) -> bool:
    """Return whether the names of a tree are in git's order, each once and without a slash."""
    names = [name for _, _, name in parsed]
    keys = [name + b"/" if is_folder else name for _, is_folder, name in parsed]
    return len(set(names)) == len(names) and sorted(keys) == keys and b"/" not in b"".join(names)


def _usable_mode(entry: bytes) -> bytes | None:
    """Return the mode of an entry as editd writes it; None for another kind."""
    mode = int(entry[: entry.index(b" ")], 8)
    if mode == _FOLDER_MODE:
        return b"40000"
    kind = mode & ~0o7777
    if kind not in (stat.S_IFREG, stat.S_IFLNK):
        return None
    return b"%o" % mode_of(mode)


_ParsedEntry = tuple[bytes, bytes, bytes]
"""An entry of a tree object: all of it, the mode if it is a folder's, and the name."""


def _parse_entries(raw: bytes) -> list[_ParsedEntry]:
    parsed: list[_ParsedEntry] = _ENTRY.findall(raw)
    if sum([len(entry) for entry, _, _ in parsed]) != len(raw):
        raise ValueError("not a tree object")
    return parsed


def _differing(read: Callable[[Oid], bytes], before: Oid, after: Oid) -> tuple[GitTree, GitTree]:
    """Return two folders without the entries that both have: most of them in successive trees."""
    old, new = _parsed_difference(*(b"" if oid == EMPTY_TREE else read(oid) for oid in (before, after)))
    shared = {entry for entry, _, _ in old} & {entry for entry, _, _ in new}
    return (
        GitTree.of(parsed for parsed in old if parsed[0] not in shared),
        GitTree.of(parsed for parsed in new if parsed[0] not in shared),
    )


def _parsed_difference(old: bytes, new: bytes) -> tuple[list[_ParsedEntry], list[_ParsedEntry]]:
    """Parse the entries of two trees, without most of those at the same bytes in both."""
    if len(old) == len(new) and old != new:
        with contextlib.suppress(ValueError):  # an entry of one ends within an entry of the other
            start, end = _differing_entries(old, new)
            return _parse_entries(old[start:end]), _parse_entries(new[start:end])
    return _parse_entries(old), _parse_entries(new)


def _differing_entries(old: bytes, new: bytes) -> tuple[int, int]:
    """Return where the entries of `old` begin and end that have all bytes in which `new` differs.

    The trees have the same length, and differ. Raises ValueError if `old` is no tree.
    """
    bits = int.from_bytes(old, "big") ^ int.from_bytes(new, "big")
    first = len(old) - (bits.bit_length() + 7) // 8
    last = len(old) - ((bits & -bits).bit_length() + 7) // 8
    before = _ENTRIES.match(old, 0, first)
    assert before is not None
    start = end = before.end()
    while end <= last:
        end = old.index(b"\0", end) + _ID_END
    return start, end


def _decode_tree(read: Callable[[Oid], bytes], oid: Oid) -> GitTree:
    return GitTree([], []) if oid == EMPTY_TREE else GitTree.decode_with_modules(read(oid))


class CommitObject(Struct, frozen=True):
    """The parts of a commit object that the history uses."""

    tree: Oid
    parent: Oid | None
    message: str

    @classmethod
    def decode(cls, content: bytes) -> CommitObject:
        """Parse a commit object. Raises ValueError if `content` is no commit."""
        head, _, message = content.partition(b"\n\n")
        lines = head.split(b"\n")
        if not lines[0].startswith(b"tree "):
            raise ValueError("not a commit object")
        parent = lines[1][7:] if lines[1:] and lines[1].startswith(b"parent ") else b""
        return cls(
            oid_of(lines[0][5:].decode("ascii")),
            oid_of(parent.decode("ascii")) if parent else None,
            message.decode("utf-8", "surrogateescape"),
        )


def commit_content(
    tree: Oid, parents: Sequence[Oid], author: str, committer: str, time_us: int, message: str
) -> bytes:
    """Return a commit object's bytes. `author` and `committer` are `Name <mail>`; the time is UTC."""
    seconds = time_us // 1_000_000
    lines = [f"tree {tree.hex()}"]
    for parent in parents:
        lines.append(f"parent {parent.hex()}")  # noqa: PERF401  # there is one
    lines += [f"author {author} {seconds} +0000", f"committer {committer} {seconds} +0000", "", message]
    return "\n".join(lines).encode("utf-8", "surrogateescape")
