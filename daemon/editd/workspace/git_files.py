"""The state of a user's git repository (HEAD, stashes, locks), read from its files without running git.

editd records git's changes to the work tree as it records every outside change. The functions here
describe the git command behind such a change.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.system.git_paths import git_folder
from editd.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
