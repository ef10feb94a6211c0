"""A user's git repository, read from its files: HEAD, stashes and locks, the index, and FIFOs among them.

Runs no git and no libgit2, and never writes.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from editd.system.git_paths import git_folder, users_git_files
from editd.system.regular_files import open_regular, would_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# The state of a user's git repository (HEAD, stashes, locks), read from its files without running git.
#
# editd records git's changes to the work tree as it records every outside change. The functions here
# describe the git command behind such a change.

LOCK_SECONDS_MAX = 60.0  # an older lock is left from a killed git, or its git waits for a person
LINKS_MAX = 5  # symbolic refs in one chain, as in git
REFLOG_BYTES = 64 * 1024  # read from its end; a line has some 200 bytes
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IN_PROGRESS = (b"rebase-merge", b"rebase-apply", b"sequencer")  # operations of several steps


class GitHead(Struct, frozen=True):
    """HEAD's branch and commit, and the stashes, newest last."""

    branch: str | None = None
    commit: str | None = None
    stashes: tuple[tuple[str, str], ...] = ()  # commit and message

    @classmethod
    def of(cls, folder: bytes) -> GitHead:
        """Read the state from the git folder of a work tree; unreadable parts are left out."""
        common = common_folder(folder)
        reference, commit = _follow(folder, common)
        branch = reference.removeprefix("refs/heads/") if reference.startswith("refs/heads/") else None
        return cls(branch, commit, tuple(_stashes(os.path.join(common, b"logs/refs/stash"))))


class HeadMove(Struct, frozen=True):
    """One line of a reflog."""

    before: str
    after: str
    message: str


def describe_move(before: GitHead, after: GitHead, steps: Sequence[HeadMove] = ()) -> str:
    """Return a sentence about the move of HEAD or the new or removed stash; "" if there is none.

    `steps` are the lines of HEAD's reflog, newest last. Making a commit changes no file, so if HEAD moved
    elsewhere after some commits, the sentence starts from the last of them.
    """
    if (before.branch, before.commit) != (after.branch, after.commit):
        start = _after_commits(before.commit, after.commit, steps)
        return f"HEAD moved from {_label(replace(before, commit=start))} to {_label(after)}"
    removed = [message for commit, message in before.stashes if (commit, message) not in after.stashes]
    added = [message for commit, message in after.stashes if (commit, message) not in before.stashes]
    if added:
        return f"Stashed: {added[-1]}"
    return f"Stash taken out: {removed[-1]}" if removed else ""


def head_moves(folder: bytes) -> list[HeadMove]:
    """Return the last moves of HEAD from its reflog in the git folder of a work tree, newest last."""
    return list(_reflog(os.path.join(folder, b"logs/HEAD")))


def is_locked(folder: bytes, now: float) -> bool:
    """Return whether git holds the lock of this work tree's index; `now` is the time of day."""
    try:
        return now - os.lstat(os.path.join(folder, b"index.lock")).st_mtime < LOCK_SECONDS_MAX
    except OSError:
        return False


def is_in_progress(folder: bytes) -> bool:
    """Return whether an operation of several steps, such as a rebase, is in progress."""
    return any(os.path.isdir(os.path.join(folder, name)) for name in _IN_PROGRESS)


def repository_above(root: bytes) -> bytes | None:
    """Return git's own folder of the work tree that contains the workspace, or None."""
    folder = root
    while (above := os.path.dirname(folder)) != folder:
        folder = above
        if os.path.lexists(os.path.join(folder, b".git")):
            return git_folder(os.path.join(folder, b".git"))
    return None


def common_folder(folder: bytes) -> bytes:
    """Return the folder with the branches: for a linked work tree, the main repository's (`commondir`)."""
    text = _text(os.path.join(folder, b"commondir")).strip()
    return os.path.normpath(os.path.join(folder, os.fsencode(text))) if text else folder


def _follow(folder: bytes, common: bytes) -> tuple[str, str | None]:
    """Return the last ref in the chain of symbolic refs from HEAD, and its commit."""
    name, git_dir = "HEAD", folder
    for _ in range(LINKS_MAX):
        text = _text(os.path.join(git_dir, os.fsencode(name))).strip() or _packed_ref(common, name)
        if not text.startswith("ref: "):
            return name, text if _COMMIT.fullmatch(text) else None
        name, git_dir = text[5:].strip(), common
    return name, None


def _packed_ref(common: bytes, name: str) -> str:
    for line in _text(os.path.join(common, b"packed-refs")).splitlines():
        commit, _, named = line.partition(" ")
        if named == name:
            return commit
    return ""


def _stashes(path: bytes) -> Iterator[tuple[str, str]]:
    return ((move.after, move.message) for move in _reflog(path))


def _reflog(path: bytes) -> Iterator[HeadMove]:
    for line in _text(path, from_end=REFLOG_BYTES).splitlines():
        head, _, message = line.partition("\t")
        words = head.split(" ")
        if len(words) > 2 and _COMMIT.fullmatch(words[1]):
            yield HeadMove(words[0], words[1], message)


def _after_commits(start: str | None, end: str | None, steps: Sequence[HeadMove]) -> str | None:
    """Return the last of the commits made in a row on `start`; `start` itself if that commit is `end`."""
    last = start
    since = max((index for index, step in enumerate(steps) if step.before == start), default=len(steps))
    for step in steps[since:]:
        if step.before != last or not step.message.startswith("commit"):
            return last
        last = step.after
    return start if last == end else last


def _text(path: bytes, *, from_end: int | None = None) -> str:
    """Return the text of one of git's files; "" if it is unreadable."""
    try:
        with open_regular(path) as file:
            if from_end is not None:
                file.seek(max(0, os.fstat(file.fileno()).st_size - from_end))
            return file.read().decode("utf-8", "replace")
    except (OSError, ValueError):  # a name in git's files may contain a NUL
        return ""


def _label(head: GitHead) -> str:
    short = head.commit[:7] if head.commit else "nothing"
    return f"{short} ({head.branch})" if head.branch else short


# Git's index file, parsed and never written: entries by path, and required extensions.
#
# Format: gitformat-index(5), versions 2 to 4. All paths are parsed at once, an entry when it is requested.
# `GitIndex` decides which entries can be trusted.

_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">10I20sH")
_EXTENSION = struct.Struct(">4sI")
_CHECKSUM_BYTES = 20
_FLAGS_AT = _ENTRY.size - 2
_IS_EXTENDED = 0x40  # in the first byte of the flags: two more bytes of them follow


class IndexEntry(NamedTuple):
    """An entry as stored: numbers are cut to 32 bits, and zero if the writer did not know them."""

    ctime_s: int
    ctime_ns: int
    mtime_s: int
    mtime_ns: int
    device: int
    inode: int
    mode: int
    uid: int
    gid: int
    size: int
    oid: bytes
    flags: int


class IndexFile(Struct, frozen=True):
    """An index file at one moment."""

    raw: bytes
    written_ns: int  # its mtime
    offsets: dict[bytes, int]  # by path, the offset of its entry; in a conflict, of the last stage
    required: dict[bytes, bytes]  # by signature, the extensions that a reader must support

    def entry(self, offset: int) -> IndexEntry:
        return IndexEntry._make(_ENTRY.unpack_from(self.raw, offset))


def read_index_file(path: str) -> IndexFile:
    """Read the index at `path`; empty if there is no such file.

    Raises OSError, and ValueError if the file is damaged or has an unknown version.
    """
    try:
        with open_regular(path) as file:
            raw, written_ns = file.read(), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return IndexFile(b"", 0, {}, {})
    try:
        offsets, required = _parse(raw)
    except (struct.error, IndexError) as error:
        raise ValueError("the index is cut short") from error
    return IndexFile(raw, written_ns, offsets, required)


def _parse(raw: bytes) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
    signature, version, count = _HEADER.unpack_from(raw)
    if signature != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index of a known version")
    body, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if any(checksum) and hashlib.sha1(body).digest() != checksum:  # zeros with index.skipHash
        raise ValueError("the index is damaged")
    offsets: dict[bytes, int] = {}
    end = _HEADER.size
    for path, offset, end in (_compressed_entries if version == 4 else _padded_entries)(body, count):  # noqa: B007  # the last `end` is used below
        offsets[path] = offset
    return offsets, dict(_required_extensions(body, end))


def _padded_entries(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield path, offset and end of each entry (versions 2 and 3), padded with NULs to a multiple of 8."""
    offset = _HEADER.size
    for _ in range(count):
        name = offset + _ENTRY.size + (2 if body[offset + _FLAGS_AT] & _IS_EXTENDED else 0)
        name_end = body.index(b"\0", name)
        end = offset + (name_end - offset + 8 & ~7)
        yield body[name:name_end], offset, end
        offset = end


def _compressed_entries(body: bytes, count: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield path, offset and end of each entry (version 4).

    An entry has the number of bytes to cut off the previous path, encoded as a pack's offset delta, and the
    bytes to append.
    """
    offset, path = _HEADER.size, b""
    for _ in range(count):
        name = offset + _ENTRY.size + (2 if body[offset + _FLAGS_AT] & _IS_EXTENDED else 0)
        dropped = body[name] & 0x7F
        while body[name] & 0x80:
            name += 1
            dropped = (dropped + 1 << 7) | body[name] & 0x7F
        name_end = body.index(b"\0", name + 1)
        path = path[: len(path) - dropped] + body[name + 1 : name_end]
        yield path, offset, name_end + 1
        offset = name_end + 1


def _required_extensions(body: bytes, offset: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the extensions from `offset` on that a reader must support: the first letter is lower case."""
    while offset < len(body):
        signature, size = _EXTENSION.unpack_from(body, offset)
        offset += _EXTENSION.size
        if not signature[:1].isupper():
            yield signature, body[offset : offset + size]
        offset += size
    if offset != len(body):
        raise ValueError("the index is cut short")


# A check that libgit2 can open a user's repository without blocking at a FIFO.
#
# libgit2 opens files unchecked, and open(2) of a FIFO without a writer never returns. A file that becomes a
# FIFO between this check and libgit2's open still blocks the daemon: no program does that by accident.

# See gitrepository-layout(5). A linked work tree has some in its own folder, and some in the common one.
_OPENED = (b"HEAD", b"config", b"config.worktree", b"commondir", b"gitdir", b"shallow", b"info/exclude",
           b"info/grafts")  # fmt: skip
_OPENED_FOR_INDEX = (b"index", b"info/attributes", b"objects/info/alternates")


def has_no_fifo(worktree: bytes, *, for_index: bool = False) -> bool:
    """Return whether no file of the repository at the top of `worktree` is a FIFO or similar.

    `for_index`: check also the files that libgit2 reads for the index and for attributes.
    """
    return not any(map(would_block, opened_files(worktree, for_index=for_index)))


def opened_files(worktree: bytes, *, for_index: bool = False) -> Iterator[bytes]:
    """Yield the paths of the files that libgit2 opens in this repository, existing or not."""
    yield from users_git_files()
    yield os.path.join(worktree, b".git")
    folder = git_folder(os.path.join(worktree, b".git"))
    if folder is None:
        return
    for git_dir in dict.fromkeys((folder, common_folder(folder))):
        for name in _OPENED + (_OPENED_FOR_INDEX if for_index else ()):
            yield os.path.join(git_dir, name)
