"""The store: a bare git repository that plain git can read, and that only the daemon writes.

Owns its layout: the folders, the head, the list of its packs, and the start of the history. Folders are 0700
and files 0600, because the history holds the content of the files, with their secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, command_term
from editd.errors import HistoryDamaged
from editd.store import transaction_record
from editd.store.git_objects import CommitObject, Oid, commit_content, oid_of
from editd.system.files import replace_file_durably, sync_path
from editd.system.flock import take
from editd.system.git_paths import users_git_files
from editd.system.regular_files import would_block
from editd.values.transaction import Authorship

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pygit2


# The head: the ref that names the newest packed transaction, moved durably, by the packing process alone.
#
# A plain loose ref, `refs/heads/history`, so that `git log` in the store just works.

REF = "refs/heads/history"
_LINE_BYTES = 41  # 40 hex digits and the end of the line


def read_head(store: str) -> bytes | None:
    """Return the id of the commit that the ref names (20 bytes), or None before the first commit.

    Raises HistoryDamaged for any other content.
    """
    path = os.path.join(store, REF)
    try:
        with open(path, "rb") as file:
            content = file.read(_LINE_BYTES + 1)
    except FileNotFoundError:
        return None
    line = content.removesuffix(b"\n")
    if len(content) != _LINE_BYTES or not set(line) <= set(b"0123456789abcdef"):
        raise HistoryDamaged(
            f"The history is damaged: {path} holds no commit's id.",
            hint=Advice(
                "No transaction is lost by this. ", command_term("check --repair"), " finds the newest one."
            ),
            data={"file": path},
        )
    return oid_of(line.decode("ascii"))


def move_head(store: str, commit: bytes) -> None:
    """Make the ref name `commit`, whose objects are durable already; durable on return."""
    path = os.path.join(store, REF)
    folder = os.path.dirname(path)
    os.makedirs(folder, 0o700, exist_ok=True)
    # The temporary is git's own lock file, so that git waits for it.
    replace_file_durably(path, commit.hex().encode("ascii") + b"\n", temporary=".lock")


# The start of the history after a compaction: the floor, the oldest transaction with all its content.
#
# Git's own `shallow` file names its commit, so that plain git begins the history there. For editd that
# commit is a baseline: its tree is known, its changes and all earlier ones are gone. Writing the file is
# the compaction. Before that everything is available, and afterwards nothing before the floor is read.

SHALLOW = "shallow"  # gitrepository-layout(5)


class HistoryStart(Struct, frozen=True):
    """The first transaction of the history; `commit` None means the baseline itself."""

    commit: Oid | None = None
    seq: int = 0
    time_us: int = 0  # of the compaction

    def apply_floor(self, oid: Oid, content: bytes) -> bytes:
        """Return an object's content, with the floor's commit as a baseline without a parent."""
        return as_baseline(content) if oid == self.commit else content


def as_baseline(content: bytes) -> bytes:
    """Return the commit object of a baseline with the tree, the number and the time of this one."""
    commit = CommitObject.decode(content)
    written = transaction_record.parse(commit.message)
    # Indexes hold this text, so it stays the same: a new text would look like damage.
    message = f"what was before is compacted, up to transaction {written.seq}"
    authorship = Authorship("outside", None, message)
    ident = transaction_record.ident("editd")
    composed = transaction_record.compose(written.seq, "baseline", authorship, written.time_us, [], [])
    return commit_content(commit.tree, [], ident, ident, written.time_us, composed)


def read_history_start(store: str) -> HistoryStart:
    """Read the floor of a store, without its number, which its commit has. Raises HistoryDamaged."""
    path = os.path.join(store, SHALLOW)
    try:
        with open(path, "rb") as file:
            line = file.read(42)
            time_us = os.fstat(file.fileno()).st_mtime_ns // 1000
    except FileNotFoundError:
        return HistoryStart()
    try:
        if len(line) != 41:
            raise ValueError("not one line with an id")
        return HistoryStart(oid_of(line.decode("ascii").removesuffix("\n")), 0, time_us)
    except ValueError:
        raise HistoryDamaged(
            f"The history is damaged: {path} names no commit, so the start of the history is unknown.",
            hint=Advice("Nothing was changed. Keep the state folder, and run ", command_term("check"), "."),
            data={"file": path},
        ) from None


def remove_partial(store: str) -> None:
    """Remove the temporary that a crash may have left. Only without a writer. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(store, SHALLOW + ".lock"))


def write_history_start(store: str, commit: Oid) -> None:
    """Make `commit` the start of the history, atomically; durable on return. Raises OSError."""
    replace_file_durably(
        os.path.join(store, SHALLOW), commit.hex().encode("ascii") + b"\n", temporary=".lock"
    )


# The manifest: the list of the packs of the history, so that a missing pack is detected at once.
#
# Written, durably, before head names a commit in a new pack, and before a combined pack is removed. So
# every listed pack exists. An unlisted pack is left from a crash, and harmless.
#
# One line for each pack, with its name and size; one line for each object lost in damage; the commit with
# which a compacted history begins; and the SHA-1 of all before.

MANIFEST = "manifest"
_LOCK = "packs.lock"  # beside the store
COMPACTING = "compacting"  # the same, while a compaction is under way
_STAYING = "packs.staying"
FIRST_SCAN = "first-scan"  # folder beside the store, for the unfinished pack of the baseline
_HEAD = b"editd manifest 1\n"


class Manifest(Struct, frozen=True):
    packs: dict[str, int]  # name without suffix, and the bytes of the pack
    lost: frozenset[bytes]  # ids of objects that a repair could not bring back
    floor: bytes | None = None  # the first commit of the history, possibly the previous one


@contextlib.contextmanager
def exclusive_lock(store: str) -> Iterator[None]:
    """Hold the lock for adding or removing packs, one thread of one process at a time. Raises OSError.

    Packing, repacking and compaction take it, and each lists all packs. Never enter it twice, nor for long:
    packing waits.
    """
    with _take_lock(store, _LOCK):
        yield


@contextlib.contextmanager
def shared_lock(store: str) -> Iterator[None]:
    """Hold while verifying or removing packs: no existing pack is removed meanwhile. Raises OSError.

    Acquire before `exclusive_lock`, never inside it. So a verification never delays packing, however long it
    takes.
    """
    with _take_lock(store, _STAYING):
        yield


@contextlib.contextmanager
def _take_lock(store: str, name: str) -> Iterator[None]:
    flock = take(os.path.join(os.path.dirname(store), name), wait=True)
    assert flock is not None
    try:
        yield
    finally:
        flock.release()


def write_manifest(
    store: str, *, without: Collection[str] = (), lost: frozenset[bytes] | None = None
) -> None:
    """List every complete pack except `without`. `lost` None keeps the list of lost objects.

    Raises OSError, HistoryDamaged.
    """
    if lost is None:
        manifest = read_manifest(store)
        lost = frozenset() if manifest is None else manifest.lost
    lines = [f"pack {name} {size}\n" for name, size in sorted(packs_in(store).items()) if name not in without]
    lines += [f"lost {oid.hex()}\n" for oid in sorted(lost)]
    floor = read_history_start(store).commit
    lines += [] if floor is None else [f"floor {floor.hex()}\n"]
    body = _HEAD + "".join(lines).encode()
    replace_file_durably(
        os.path.join(store, MANIFEST), body + hashlib.sha1(body).hexdigest().encode() + b"\n"
    )


def drop_packs(store: str, names: Collection[str]) -> None:
    """Remove these packs, after updating the manifest; inside both locks. Raises OSError, HistoryDamaged."""
    write_manifest(store, without=names)
    folder = os.path.join(store, "objects", "pack")
    for name in names:
        for suffix in (".idx", ".pack"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name + suffix))
    sync_path(folder)


def add_pack(store: str, folder: str, name: str) -> None:
    """Move a durable pack with its index from `folder` into the store; durable on return. Raises OSError.

    The next manifest lists it.
    """
    packs = os.path.join(store, "objects", "pack")
    with exclusive_lock(store):
        for suffix in (".pack", ".idx"):  # the index last: without it git ignores the pack
            os.rename(os.path.join(folder, name + suffix), os.path.join(packs, name + suffix))
        sync_path(packs)


def read_manifest(store: str) -> Manifest | None:
    """Return the manifest; None if an earlier version wrote none. Raises HistoryDamaged."""
    path = os.path.join(store, MANIFEST)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    body, checksum = content[:-41], content[-41:]
    if hashlib.sha1(body).hexdigest().encode() + b"\n" != checksum or not body.startswith(_HEAD):
        raise HistoryDamaged(
            f"The history is damaged: {path} has a wrong checksum, so a pack may be missing.",
            hint=Advice("No transaction is lost by this. ", command_term("check --repair"), " rebuilds it."),
            data={"file": path},
        )
    lines = [line.split(" ") for line in body[len(_HEAD) :].decode().splitlines()]
    floors = [oid_of(line[1]) for line in lines if line[0] == "floor"]
    return Manifest(
        {line[1]: int(line[2]) for line in lines if line[0] == "pack"},
        frozenset(oid_of(line[1]) for line in lines if line[0] == "lost"),
        floors[0] if floors else None,
    )


def packs_in(store: str) -> dict[str, int]:
    """Return the packs that have an index, with their sizes."""
    folder = os.path.join(store, "objects", "pack")
    packs: dict[str, int] = {}
    with os.scandir(folder) as entries:
        names = {entry.name: entry for entry in entries}
    for name, entry in names.items():
        stem, _, suffix = name.rpartition(".")
        if suffix == "pack" and f"{stem}.idx" in names:
            packs[stem] = entry.stat().st_size
    return packs


CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = true
[gc]
\tauto = 0
"""
_DESCRIPTION = "The history that editd keeps of one workspace: one commit for each transaction.\n"
# Each after its parent. No `hooks` folder: the content of the store never makes a program run.
_FOLDERS = ("", "objects", "objects/pack", "objects/info", "refs", "refs/heads")


def open_store(path: str) -> pygit2.Repository:
    """Open the store, without the user's configuration if reading that would block. Raises GitError."""
    import pygit2  # late, because `create_store` needs no libgit2
    from pygit2.enums import ConfigLevel, RepositoryOpenFlag

    if not any(map(would_block, users_git_files())):
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    # The search path is global to the process, but no other thread opens a user's repository meanwhile.
    search_path = pygit2.settings.search_path
    levels = (ConfigLevel.SYSTEM, ConfigLevel.XDG, ConfigLevel.GLOBAL)
    before = [(level, search_path[level]) for level in levels]
    try:
        for level, _ in before:
            search_path[level] = ""
        return pygit2.Repository(path, RepositoryOpenFlag.NO_SEARCH)
    finally:
        for level, folders in before:
            search_path[level] = folders


def own_objects(store: str) -> pygit2.Odb:
    """Return the objects of the store's own packs, without borrowed ones."""
    import pygit2

    odb = pygit2.Odb()
    odb.add_backend(pygit2.OdbBackendPack(os.path.join(store, "objects")), 1)
    return odb


def borrowed_folders(store: str) -> list[str]:
    """Return the `objects` folders of the user's repositories that the store may read."""
    try:
        with open(os.path.join(store, "objects/info/alternates"), "rb") as file:
            return [os.fsdecode(line) for line in file.read().split(b"\n") if line]
    except FileNotFoundError:
        return []


def is_store(path: str) -> bool:
    """Return whether `create_store` was completed there."""
    return os.path.exists(os.path.join(path, "HEAD"))


def create_store(path: str) -> None:
    """Create the repository, durably; existing parts stay. Raises OSError.

    The parent folder of `path` must exist. HEAD is written last: to git, a folder without it is no
    repository. So after a crash, a second call completes it.
    """
    for folder in _FOLDERS:
        with contextlib.suppress(FileExistsError):
            os.mkdir(os.path.join(path, folder), 0o700)
    for folder in reversed(_FOLDERS):
        sync_path(os.path.join(path, folder))
    sync_path(os.path.dirname(os.path.abspath(path)))
    replace_file_durably(os.path.join(path, "config"), CONFIG.encode())
    replace_file_durably(os.path.join(path, "description"), _DESCRIPTION.encode())
    replace_file_durably(os.path.join(path, "HEAD"), f"ref: {REF}\n".encode())


def borrow(path: str, objects: Sequence[str]) -> None:
    """Let the store read the objects of the user's repositories, given by their `objects` folders.

    The contents that a transaction touches are copied first, so no undo depends on this. The new list
    replaces the old one. Raises OSError.
    """
    lines = [f"{folder}\n" for folder in objects if can_borrow(folder)]
    replace_file_durably(os.path.join(path, "objects/info/alternates"), os.fsencode("".join(lines)))


def can_borrow(folder: str) -> bool:
    """Return whether a line of `alternates` can name this folder (gitrepository-layout(5)): most can."""
    return "\n" not in folder and not folder.startswith(('"', "#"))
