"""Standing: where one of the user's repositories stands, read from its files; no git is run.

What git does to the work tree is recorded as any outside change is; this tells what git called it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.system.regular_file import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOCK_SECONDS_MAX = 60.0  # an older lock was left by a git that died, or by one that waits for a person
LINKS_MAX = 5  # of one symbolic ref to the next, as git itself
REFLOG_BYTES = 64 * 1024  # of its end: a line is some 200 bytes long
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IN_PROGRESS = (b"rebase-merge", b"rebase-apply", b"sequencer")  # what takes several steps


class GitHead(Struct, frozen=True):
    """HEAD's branch and commit, and what is stashed, newest last, as git calls it."""

    branch: str | None = None
    commit: str | None = None
    stashes: tuple[tuple[str, str], ...] = ()  # commit and message

    @classmethod
    def of(cls, folder: bytes) -> GitHead:
        """Read it from git's own folder of a work tree; what cannot be read is left out."""
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
    """What happened in between, in a sentence; nothing where HEAD and the stashes are what they were.

    `steps` are those of HEAD, the newest last. A commit that was made first changes no file, so HEAD moved
    from there.
    """
    if (before.branch, before.commit) != (after.branch, after.commit):
        start = _after_commits(before.commit, after.commit, steps)
        return f"HEAD moved from {_named(replace(before, commit=start))} to {_named(after)}"
    taken = [said for commit, said in before.stashes if (commit, said) not in after.stashes]
    added = [said for commit, said in after.stashes if (commit, said) not in before.stashes]
    if added:
        return f"Stashed: {added[-1]}"
    return f"Stash taken out: {taken[-1]}" if taken else ""


def head_moves(folder: bytes) -> list[HeadMove]:
    """Return the last steps of HEAD in git's own folder of a work tree, the newest last."""
    return list(_steps(os.path.join(folder, b"logs/HEAD")))


def is_locked(folder: bytes, now: float) -> bool:
    """Whether git is at work on the index of this work tree; `now` is the time of day."""
    try:
        return now - os.lstat(os.path.join(folder, b"index.lock")).st_mtime < LOCK_SECONDS_MAX
    except OSError:
        return False


def is_in_progress(folder: bytes) -> bool:
    """Whether git is amid something of several steps, such as a rebase."""
    return any(os.path.isdir(os.path.join(folder, name)) for name in _IN_PROGRESS)


def common_folder(folder: bytes) -> bytes:
    """Where the branches are: of a linked work tree, the main one's folder (gitrepository-layout(5))."""
    text = _text(os.path.join(folder, b"commondir")).strip()
    return os.path.normpath(os.path.join(folder, os.fsencode(text))) if text else folder


def _follow(folder: bytes, common: bytes) -> tuple[str, str | None]:
    """The last symbolic name that HEAD leads to, and the commit."""
    name, place = "HEAD", folder
    for _ in range(LINKS_MAX):
        text = _text(os.path.join(place, os.fsencode(name))).strip() or _packed(common, name)
        if not text.startswith("ref: "):
            return name, text if _COMMIT.fullmatch(text) else None
        name, place = text[5:].strip(), common
    return name, None


def _packed(common: bytes, name: str) -> str:
    for line in _text(os.path.join(common, b"packed-refs")).splitlines():
        commit, _, named = line.partition(" ")
        if named == name:
            return commit
    return ""


def _stashes(path: bytes) -> Iterator[tuple[str, str]]:
    return ((step.after, step.message) for step in _steps(path))


def _steps(path: bytes) -> Iterator[HeadMove]:
    for line in _text(path, from_end=REFLOG_BYTES).splitlines():
        head, _, said = line.partition("\t")
        words = head.split(" ")
        if len(words) > 2 and _COMMIT.fullmatch(words[1]):
            yield HeadMove(words[0], words[1], said)


def _after_commits(start: str | None, end: str | None, steps: Sequence[HeadMove]) -> str | None:
    """Return the last commit of those made one after another on `start`, unless the last step is one."""
    made = start
    since = max((index for index, step in enumerate(steps) if step.before == start), default=len(steps))
    for step in steps[since:]:
        if step.before != made or not step.message.startswith("commit"):
            return made
        made = step.after
    return start if made == end else made


def _text(path: bytes, *, from_end: int | None = None) -> str:
    """What a file of git's holds; nothing where it cannot be read."""
    try:
        with open_regular(path) as file:
            if from_end is not None:
                file.seek(max(0, os.fstat(file.fileno()).st_size - from_end))
            return file.read().decode("utf-8", "replace")
    except (OSError, ValueError):  # a name that git wrote may hold a NUL
        return ""


def _named(standing: GitHead) -> str:
    short = standing.commit[:7] if standing.commit else "nothing"
    return f"{short} ({standing.branch})" if standing.branch else short
