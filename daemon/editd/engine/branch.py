"""A branch of the user's repository: its tip, and putting one commit on it as `git commit` does.

The working tree is never touched, nor any other branch. Of the branch that is checked out the index
follows: it is held by git's own `index.lock` from before it is compared with HEAD until the branch
has moved, so that no git command comes in between. A crash leaves what a `git commit` would.
Hooks are not run and nothing is signed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from pygit2.enums import FileMode, RepositoryState

from editd.errors import Conflict, InvalidParams, IoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd.store.objects import TreeEntry

LOCK_SECONDS = 2.0  # for a git command that has the index; most have it for less
SHOWN_MAX = 20  # staged paths that a refusal names
_HEADS = "refs/heads/"


class Branch(Struct, frozen=True):
    """Where a commit is to go. `tip` is None for a branch without a commit."""

    repository: pygit2.Repository
    name: str
    tip: pygit2.Oid | None
    reference: pygit2.Reference | None  # as it was when it was looked up: it moves from there only
    is_current: bool

    @property
    def tree(self) -> bytes | None:
        """The id of the tip's tree."""
        if self.tip is None:
            return None
        commit = self.repository[self.tip]
        assert isinstance(commit, pygit2.Commit), "a branch names a commit"
        return bytes(commit.tree_id.raw)


def open_repository(root: str) -> pygit2.Repository:
    """The repository that the folder `root` is in. Raises InvalidParams where there is none to write to."""
    found = pygit2.discover_repository(root)
    if found is None:
        raise InvalidParams(
            "The workspace is in no git repository.",
            hint="`git init` makes one; the history is safe without.",
        )
    try:
        repository = pygit2.Repository(found)
    except (pygit2.GitError, ValueError) as error:
        reason = str(error).rpartition(": ")[2]
        raise InvalidParams(
            f"The repository is of a kind that editd does not write to: {reason}.",
            hint="`editctl diff A..B | git apply --index` brings the work into it.",
        ) from error
    if repository.workdir is None:
        raise InvalidParams("The repository is bare, and has no work tree that this could be.")
    return repository


def find_branch(repository: pygit2.Repository, named: str | None) -> Branch:
    """The branch of that name, which is new where there is none; the one checked out for None."""
    head = repository.references.get("HEAD")
    current = head.raw_target if head is not None else None
    here = _text(current) if isinstance(current, str | bytes) else None
    if named is None:
        if here is None or not here.startswith(_HEADS):
            raise InvalidParams(
                "HEAD is detached: no branch is checked out.",
                hint="Name a `branch`, new or old, or check one out.",
            )
        full = here
    else:
        full = _HEADS + named
        if named.startswith("-") or not pygit2.reference_is_valid_name(full):
            raise InvalidParams(f"{named!r} is no name for a branch.")
    reference = repository.references.get(full)
    is_current = full == here
    tip: pygit2.Oid | None = None
    if reference is not None:
        _check_elsewhere(repository, full, is_current)
        tip = reference.peel(pygit2.Commit).id
    elif not is_current and not repository.head_is_unborn:
        tip = repository.head.peel(pygit2.Commit).id
    return Branch(repository, full.removeprefix(_HEADS), tip, reference, is_current)


def check_quiet(branch: Branch) -> None:
    """Raises Conflict where a merge, a rebase or the like is under way on the branch checked out."""
    state = branch.repository.state()
    if branch.is_current and state != RepositoryState.NONE:
        raise Conflict(
            f"A {state.name.lower().replace('_', ' ')} is under way in the repository.",
            hint="Finish it, or publish to another branch.",
            data={"files": []},
        )


@contextlib.contextmanager
def held_index(branch: Branch) -> Iterator[pygit2.Index | None]:
    """The index of the branch checked out, locked and equal to HEAD; it takes effect at a clean end.

    None for another branch. Raises Conflict where the index holds something that HEAD does not.
    """
    if not branch.is_current:
        yield None
        return
    place = os.path.join(branch.repository.path, "index")
    lock = _locked(place)
    try:
        index = pygit2.Index(lock)
        index.read()
        _check_clean(branch, index)
        yield index
        os.rename(lock, place)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
        raise


def put_into_index(index: pygit2.Index, changes: Mapping[bytes, TreeEntry | None]) -> None:
    """Make exactly these paths be what the new commit holds; sizes and times are for git to look up.

    It is written here, while the branch can still stay where it is; see `held_index`.
    """
    for path, entry in changes.items():
        if entry is None:
            index.remove(os.fsdecode(path))
    for path, entry in changes.items():
        if entry is not None:
            index.add(pygit2.IndexEntry(os.fsdecode(path), pygit2.Oid(raw=entry.oid), FileMode(entry.mode)))
    index.write()


def advance(branch: Branch, commit: pygit2.Oid, subject: str, who: pygit2.Signature) -> None:
    """Move the branch to `commit`, with a line in the reflog. Raises Conflict where it has moved itself."""
    said = f"publish: {subject}"
    branch.repository.set_ident(who.name, who.email)
    try:
        if branch.reference is None:
            branch.repository.create_reference_direct(_HEADS + branch.name, commit, force=False, message=said)
        else:
            branch.reference.set_target(commit, said)
    except (pygit2.GitError, ValueError) as error:
        raise Conflict(
            f"The branch {branch.name} could not be moved: {error}.",
            hint="Publish again: it starts from where the branch is then.",
            data={"files": []},
        ) from error


def _check_elsewhere(repository: pygit2.Repository, full: str, is_current: bool) -> None:
    found = repository.lookup_branch(full.removeprefix(_HEADS))
    if found is not None and not is_current and found.is_checked_out():
        raise InvalidParams(
            f"{found.branch_name} is checked out in another worktree, whose index would not follow.",
            hint="Publish from there, or to another branch.",
        )


def _check_clean(branch: Branch, index: pygit2.Index) -> None:
    tree = branch.tree
    if tree is None:
        staged = [entry.path for entry in index]
    else:
        there = branch.repository[pygit2.Oid(raw=tree)]
        assert isinstance(there, pygit2.Tree)
        deltas = there.diff_to_index(index).deltas
        staged = sorted({delta.new_file.path for delta in deltas})
    if staged or index.conflicts is not None:
        more = f" and {len(staged) - 3} more" if len(staged) > 3 else ""
        raise Conflict(
            f"The index is not as HEAD is: {', '.join(staged[:3]) or 'a merge is not finished'}{more}.",
            hint="Commit or unstage that (`git restore --staged .`), or publish to a new branch.",
            data={"files": [{"path": path} for path in staged[:SHOWN_MAX]]},
        )


def _locked(place: str) -> str:
    """Take git's lock on the index: the new file beside it, with what the index holds."""
    lock = place + ".lock"
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            break
        except FileExistsError as error:
            if time.monotonic() > until:
                raise IoError(
                    error,
                    "Another git command has the index",
                    hint=f"Wait for it to end; if there is none, remove {lock}.",
                ) from error
            time.sleep(0.02)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_index_bytes(place))
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(place, lock)
    except BaseException:
        os.unlink(lock)
        raise
    return lock


def _index_bytes(place: str) -> bytes:
    try:
        with open(place, "rb") as file:
            return file.read()
    except FileNotFoundError:  # gitformat-index: version 2, no entries
        empty = b"DIRC" + (2).to_bytes(4, "big") + (0).to_bytes(4, "big")
        return empty + hashlib.sha1(empty).digest()


def _text(name: str | bytes) -> str:
    return os.fsdecode(name)
