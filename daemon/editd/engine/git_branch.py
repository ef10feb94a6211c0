"""A branch of the user's repository: its tip, and putting one commit on it as `git commit` does.

The working tree is never touched, nor any other branch. Of the branch that is checked out the index
follows: it is held by git's own `index.lock` from before it is compared with HEAD until the branch
has moved, so that no git command comes in between. A crash leaves what a `git commit` would.
Hooks are not run and nothing is signed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
from typing import TYPE_CHECKING

import pygit2
from msgspec import Struct
from pygit2.enums import FileMode, RepositoryState, SortMode

from editd.engine.net_changes import numbers_in
from editd.errors import Conflict, InvalidParams, IoError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.store.git_objects import TreeEntry

LOCK_SECONDS = 2.0  # for a git command that has the index; most have it for less
SHOWN_MAX = 20  # staged paths that a refusal names
SYMBOLIC_MAX = 5  # steps from one reference to the next, as in git
LINES_BYTES_MAX = 1 << 20  # of a file in which git notes what it is doing
_HEADS = "refs/heads/"
SKEW_SECONDS = 86400  # that the clock may have been set back since
TRAILER = "Editd-Transactions"
_NAMED = re.compile(rf"^{TRAILER}:(.*)$", re.MULTILINE)
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{40})", re.MULTILINE)
_LOCK = re.compile(r"failed to lock file '(.*\.lock)'")
_OBJECT_ID = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_OPERATIONS = {
    RepositoryState.MERGE: "merge",
    RepositoryState.REVERT: "revert",
    RepositoryState.REVERT_SEQUENCE: "revert",
    RepositoryState.CHERRYPICK: "cherry-pick",
    RepositoryState.CHERRYPICK_SEQUENCE: "cherry-pick",
    RepositoryState.BISECT: "bisect",
    RepositoryState.APPLY_MAILBOX: "`git am`",
    RepositoryState.APPLY_MAILBOX_OR_REBASE: "`git am` or rebase",
}  # the others are rebases
_EXTENSIONS = {
    "'link'": ("split", "git update-index --no-split-index"),
    "'sdir'": ("sparse", "git sparse-checkout reapply --no-sparse-index"),
}  # of an index, as libgit2 names those that it cannot read


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
    """Return the branch `named`, new or old, or the one that is checked out.

    Raises InvalidParams if git takes no branch of that name, and as `check_free` does.
    """
    here = _resolved(repository, "HEAD")
    if named is not None:
        if not _is_name(named):
            raise InvalidParams(
                f"{named!r} is no name for a branch.",
                hint="Choose one that `git check-ref-format --branch` takes.",
            )
        full = _resolved(repository, _HEADS + named)
    else:
        full = here
    if not full.startswith(_HEADS):
        _check_no_operation(repository)
        raise InvalidParams(
            "HEAD is detached: no branch is checked out.",
            hint="Name a `branch`, new or old, or check one out.",
        )
    reference = repository.references.get(full)
    is_current = full == here
    tip: pygit2.Oid | None = None
    if reference is not None:
        tip = reference.peel(pygit2.Commit).id
    else:
        _check_room(repository, full.removeprefix(_HEADS))
        if not is_current and not repository.head_is_unborn:
            tip = repository.head.peel(pygit2.Commit).id
    branch = Branch(repository, full.removeprefix(_HEADS), tip, reference, is_current)
    check_free(branch)
    return branch


def check_free(branch: Branch) -> None:
    """Raise a refusal if git has plans of its own for the branch, in this worktree or in another one.

    The end of a rebase or a bisect would lose the commit, and the index of another worktree would not
    follow. `git branch -f` refuses the same. Call it again before the branch moves, because git may have
    come in between.
    """
    repository, full = branch.repository, _HEADS + branch.name
    if branch.is_current:
        _check_no_operation(repository)
        if _resolved(repository, "HEAD") != full:
            raise Conflict(
                f"{branch.name} is no longer checked out.", hint="Publish again.", data={"files": []}
            )
    for git_folder, folder in _worktrees(repository):
        for word, refs, command in (
            ("rebase", _rebased(git_folder), "rebase --abort"),
            ("bisect", _bisected(git_folder), "bisect reset"),
        ):
            if full in refs:
                raise Conflict(
                    f"A {word} of {branch.name} is under way in {folder}.",
                    hint=f"Finish it (`git -C {folder} {command}` ends it), or publish to another branch.",
                    data={"files": []},
                )
        is_own = os.path.realpath(git_folder) == os.path.realpath(repository.path)
        head = _line(git_folder, "HEAD").removeprefix("ref: ")
        if (not is_own or not branch.is_current) and _resolved(repository, head) == full:
            raise InvalidParams(
                f"{branch.name} is checked out in another worktree, {folder}, whose index would not follow.",
                hint="Publish from there, or to another branch.",
            )


def unreadable_index(error: Exception) -> InvalidParams | None:
    """Return the refusal if libgit2 has met an index that only git itself can read."""
    for extension, (word, command) in _EXTENSIONS.items():
        if extension in str(error):
            return InvalidParams(
                f"The index is {word}, and editd cannot read such an index.",
                hint=f"`{command}` makes it an ordinary one.",
            )
    return None


def check_index(branch: Branch) -> None:
    """Raise Conflict if `held_index` would, without a lock."""
    if branch.is_current:
        index = pygit2.Index(os.path.join(branch.repository.path, "index"))
        index.read()
        _check_clean(branch, index)


def commits_naming(branch: Branch, seqs: Sequence[int], since: int) -> list[tuple[pygit2.Commit, set[int]]]:
    """Return the branch's commits whose trailers name some of these transactions, the oldest first.

    A commit that was reverted is left out. None can be older than `since`, in seconds: that is when the
    first of the transactions was made.
    """
    found: list[tuple[pygit2.Commit, set[int]]] = []
    if branch.tip is None:
        return found
    reverted: set[str] = set()
    for commit in branch.repository.walk(branch.tip, SortMode.TIME):
        if commit.commit_time < since - SKEW_SECONDS:
            break
        if str(commit.id) in reverted:
            continue
        message = commit.raw_message.decode("utf-8", "replace")
        reverted |= set(_REVERTED.findall(message))
        named = set[int]().union(*(numbers_in(spans, seqs) for spans in _NAMED.findall(message)))
        if named:
            found.append((commit, named))
    return found[::-1]


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
        with contextlib.suppress(FileNotFoundError):  # libgit2 has put a file of its own there
            shutil.copymode(place, lock)
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
    """Move the branch to `commit`, with a line in the reflog.

    Raises Conflict if the branch has moved itself, and IoError if another git command keeps it locked.
    """
    branch.repository.set_ident(who.name, who.email)
    until = time.monotonic() + LOCK_SECONDS
    while True:
        check_free(branch)
        try:
            _move(branch, commit, f"publish: {subject}")
        except OSError as error:
            lock = _lock_named_by(error)
            if lock is None:
                raise
            if time.monotonic() > until:
                raise IoError(
                    FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)),
                    f"Another git command has the branch {branch.name}",
                    hint=f"Wait for it to end; if there is none, remove {lock}.",
                ) from error
            time.sleep(0.02)
        except (pygit2.GitError, ValueError) as error:
            raise Conflict(
                f"The branch {branch.name} could not be moved: {error}.",
                hint="Publish again: it starts from where the branch is then.",
                data={"files": []},
            ) from error
        else:
            return


def _move(branch: Branch, commit: pygit2.Oid, line: str) -> None:
    if branch.reference is None:
        branch.repository.create_reference_direct(_HEADS + branch.name, commit, force=False, message=line)
    else:
        branch.reference.set_target(commit, line)


def _lock_named_by(error: OSError) -> str | None:
    """Return the lock file of another git command if libgit2 failed because of one."""
    named = _LOCK.search(str(error))
    return named[1] if named is not None and os.path.lexists(named[1]) else None


def _check_no_operation(repository: pygit2.Repository) -> None:
    """Raise Conflict if a merge, a rebase or the like is under way in this worktree."""
    state = repository.state()
    if state != RepositoryState.NONE:
        raise Conflict(
            f"A {_OPERATIONS.get(state, 'rebase')} is under way in the repository.",
            hint="Finish it, or publish to another branch.",
            data={"files": []},
        )


def _check_room(repository: pygit2.Repository, name: str) -> None:
    """Raise InvalidParams if one of the two names, an old and the new one, is a folder of the other."""
    names = list(repository.branches.local)
    above = (name[:place] for place, letter in enumerate(name) if letter == "/")
    taken = next((other for other in above if other in names), None) or next(
        (other for other in names if other.startswith(f"{name}/")), None
    )
    if taken is not None:
        raise InvalidParams(
            f"There is a branch {taken}, so there cannot be a branch {name}.", hint="Choose another name."
        )


def _is_name(name: str) -> bool:
    """Return whether git takes `name` for a branch, and for nothing else."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    is_other = name == "HEAD" or name.startswith("-") or "\0" in name or _OBJECT_ID.fullmatch(name)
    return not is_other and pygit2.reference_is_valid_name(_HEADS + name)


def _resolved(repository: pygit2.Repository, name: str) -> str:
    """Return the reference that a symbolic one stands for in the end, or `name` itself."""
    for _ in range(SYMBOLIC_MAX):
        reference = repository.references.get(name) if name else None
        target = None if reference is None else reference.raw_target
        if not isinstance(target, str | bytes):
            break
        name = _text(target)
    return name


def _worktrees(repository: pygit2.Repository) -> Iterator[tuple[str, str]]:
    """Yield the git folder and the folder of each worktree that has its own HEAD, the main one first."""
    own = os.path.realpath(repository.path)
    common = os.path.normpath(os.path.join(own, _line(own, "commondir") or "."))
    config = repository.config
    if own == common:
        yield own, os.path.normpath(repository.workdir)
    elif "core.bare" not in config or not config.get_bool("core.bare"):
        yield common, os.path.dirname(common) if os.path.basename(common) == ".git" else common
    linked = os.path.join(common, "worktrees")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for name in sorted(os.listdir(linked)):
            git_folder = os.path.join(linked, name)
            yield git_folder, os.path.dirname(_line(git_folder, "gitdir")) or git_folder


def _rebased(git_folder: str) -> list[str]:
    """Return the branches that a rebase in this worktree will move at its end."""
    refs = [_line(git_folder, f"rebase-{kind}/head-name") for kind in ("merge", "apply")]
    return refs + _lines(git_folder, "rebase-merge/update-refs")[::3]  # then two object ids


def _bisected(git_folder: str) -> list[str]:
    """Return the branch that the end of a bisect in this worktree will check out."""
    return [_HEADS + _line(git_folder, "BISECT_START").removeprefix(_HEADS)]


def _line(folder: str, name: str) -> str:
    return next(iter(_lines(folder, name)), "")


def _lines(folder: str, name: str) -> list[str]:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return os.fsdecode(file.read(LINES_BYTES_MAX)).splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []


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
