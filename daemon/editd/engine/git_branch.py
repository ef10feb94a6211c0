"""A branch of the user's repository, and the way to add a commit to it as `git commit` does.

The working tree and other branches are never changed. If the branch is checked out, its index is updated as
well. git's own `index.lock` protects the index from before the comparison with HEAD until the branch has
moved, so that no git command interferes. A crash leaves the same state as a crash of `git commit`.
Git hooks are not run, and the commit is not signed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
from graphlib import TopologicalSorter
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

import pygit2
from msgspec import Struct
from pygit2.enums import FileMode, RepositoryState, SortMode

from editd.advice import Advice, argument_term, command_term
from editd.engine.queries import numbers_in
from editd.errors import Conflict, InvalidParams, IoError, join_names
from editd.store.git_objects import EMPTY_TREE
from editd.system.git_command import work_tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.values.content import Entry

LOCK_SECONDS = 2.0  # to wait for another git command
SHOWN_MAX = 20  # staged paths that a refusal names
SYMBOLIC_MAX = 5  # symbolic references in a chain, as in git
LINES_BYTES_MAX = 1 << 20  # of a file with the state of a git operation
_HEADS = "refs/heads/"
SKEW_SECONDS = 86400  # tolerance for a clock that was set back
TRAILER = "Editd-Transactions"
_NAMED = re.compile(rf"^{TRAILER}:(.*)$", re.MULTILINE)
_REVERTED = re.compile(r"^This reverts commit ([0-9a-f]{7,40})\b", re.MULTILINE)  # `--reference` shortens it
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
}  # all other states are rebases
_EXTENSIONS = {
    "'link'": ("split", "git update-index --no-split-index"),
    "'sdir'": ("sparse", "git sparse-checkout reapply --no-sparse-index"),
}  # index extensions that libgit2 cannot read, by their name in its error


class Branch(Struct, frozen=True):
    """A branch that gets a new commit. `tip` is None for a branch without a commit."""

    repository: pygit2.Repository
    name: str
    tip: pygit2.Oid | None
    reference: pygit2.Reference | None  # at lookup time: the branch only moves from this value
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
    """Open the repository that has the folder `root`. Raises InvalidParams if there is none to write to."""
    work_tree = work_tree_of(root)
    if work_tree is None:
        raise InvalidParams(
            "The workspace is in no git repository.",
            hint="Create one with `git init`. The history of editd does not need it.",
        )
    try:
        repository = pygit2.Repository(work_tree.git_folder)
    except (pygit2.GitError, ValueError) as error:
        reason = str(error).rpartition(": ")[2]
        raise InvalidParams(
            f"editd cannot write to this kind of repository: {reason}.",
            hint=Advice("Apply the work with ", command_term("diff A..B | git apply --index"), "."),
        ) from error
    if repository.workdir is None:
        raise InvalidParams("The repository is bare: it has no work tree.")
    return repository


def find_branch(repository: pygit2.Repository, named: str | None) -> Branch:
    """Return the branch `named`, existing or new, or the checked-out branch.

    Raises InvalidParams if git refuses the name, and the refusals of `check_free`.
    """
    head = _resolve(repository, "HEAD")
    if named is not None:
        if not _is_name(named):
            raise InvalidParams(
                f"{named!r} is not a valid branch name.",
                hint="Choose a name that `git check-ref-format --branch` accepts.",
            )
        full = _resolve(repository, _HEADS + named)
    else:
        full = head
    if not full.startswith(_HEADS):
        _check_no_operation(repository)
        raise InvalidParams(
            "HEAD is detached: no branch is checked out.",
            hint=Advice("Name an existing or new ", argument_term("branch"), ", or check one out."),
        )
    reference = repository.references.get(full)
    is_current = full == head
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
    """Raise Conflict or InvalidParams if git uses the branch, in this worktree or another.

    The end of a rebase or a bisect would lose the commit, and the index of another worktree would not be
    updated. `git branch -f` refuses the same cases. Call this again before the branch moves, because git may
    have changed its state in the meantime.
    """
    repository, full = branch.repository, _HEADS + branch.name
    if branch.is_current:
        _check_no_operation(repository)
        if _resolve(repository, "HEAD") != full:
            raise Conflict(
                f"{branch.name} is no longer checked out.", hint="Publish again.", data={"files": []}
            )
    for git_folder, folder in _worktrees(repository):
        for word, refs, command in (
            ("rebase", _rebase_branches(git_folder), "rebase --abort"),
            ("bisect", _bisect_branches(git_folder), "bisect reset"),
        ):
            if full in refs:
                raise Conflict(
                    f"A {word} of {branch.name} is under way in {folder}.",
                    hint=f"Finish it, end it with `git -C {folder} {command}`, or publish to another branch.",
                    data={"files": []},
                )
        is_own = os.path.realpath(git_folder) == os.path.realpath(repository.path)
        head = _line(git_folder, "HEAD").removeprefix("ref: ")
        if (not is_own or not branch.is_current) and _resolve(repository, head) == full:
            raise InvalidParams(
                f"{branch.name} is checked out in another worktree, {folder}. "
                "The index there would be outdated.",
                hint="Publish from that worktree, or to another branch.",
            )


def unreadable_index(error: Exception) -> InvalidParams | None:
    """Return the refusal if `error` comes from an index that only git can read."""
    for extension, (word, command) in _EXTENSIONS.items():
        if extension in str(error):
            return InvalidParams(
                f"The index is {word}, and editd cannot read such an index.",
                hint=f"Convert it with `{command}`.",
            )
    return None


def check_index(branch: Branch) -> None:
    """Raise Conflict if `held_index` would raise it. Takes no lock."""
    if branch.is_current:
        index = pygit2.Index(os.path.join(branch.repository.path, "index"))
        index.read()
        _check_clean(branch, index)


class BranchCommit(Struct, frozen=True):
    """A commit of a branch, by what `publish` needs of it."""

    trees: tuple[bytes, bytes]  # the commit's own and that of its first parent
    named: frozenset[int] = frozenset()  # the transactions in its trailers
    reverted: tuple[BranchCommit, ...] = ()  # the commits that its message reverts


def commits_since(branch: Branch, since: int, seqs: Sequence[int]) -> list[BranchCommit]:
    """Return the commits of the branch from a time on, in seconds, parents first.

    `seqs` are the transactions to look for in trailers. Reverted commits are only in their revert.
    """
    commits: list[BranchCommit] = []
    reverted: tuple[str, ...] = ()
    for commit in reversed(_parents_first(branch, since)):
        if str(commit.id).startswith(reverted):
            continue
        message = commit.raw_message.decode("utf-8", "replace")
        names = _REVERTED.findall(message)
        named = set[int]().union(*(numbers_in(spans, seqs) for spans in _NAMED.findall(message)))
        taken_back = [one for name in names if (one := _commit(branch.repository, name)) is not None]
        commits.append(
            BranchCommit(
                _trees(commit), frozenset(named), tuple(BranchCommit(_trees(one)) for one in taken_back)
            )
        )
        reverted += tuple(names)
    return commits[::-1]


def _parents_first(branch: Branch, since: int) -> list[pygit2.Commit]:
    """Return the commits from a time on. Times alone give no order: commits of one second have the same."""
    if branch.tip is None:
        return []
    walk = branch.repository.walk(branch.tip, SortMode.TIME)
    recent = list(takewhile(lambda commit: commit.commit_time >= since - SKEW_SECONDS, walk))
    by_id = {commit.id: commit for commit in reversed(recent)}
    parents = {oid: [one for one in commit.parent_ids if one in by_id] for oid, commit in by_id.items()}
    return [by_id[oid] for oid in TopologicalSorter(parents).static_order()]


def _commit(repository: pygit2.Repository, name: str) -> pygit2.Commit | None:
    """Return a commit, or None if the repository lacks it or a short name is ambiguous."""
    try:
        commit = repository.get(name)
    except ValueError:
        return None
    return commit if isinstance(commit, pygit2.Commit) else None


def _trees(commit: pygit2.Commit) -> tuple[bytes, bytes]:
    parent = commit.parents[0] if commit.parents else None
    return bytes(commit.tree_id.raw), EMPTY_TREE if parent is None else bytes(parent.tree_id.raw)


@contextlib.contextmanager
def held_index(branch: Branch) -> Iterator[pygit2.Index | None]:
    """Lock the index and yield it. It is saved when the block ends without an exception.

    Yields None if the branch is not checked out. Raises Conflict if the index differs from HEAD.
    """
    if not branch.is_current:
        yield None
        return
    path = os.path.join(branch.repository.path, "index")
    lock = _lock(path)
    try:
        index = pygit2.Index(lock)
        index.read()
        _check_clean(branch, index)
        yield index
        with contextlib.suppress(FileNotFoundError):  # libgit2 has replaced the lock file
            shutil.copymode(path, lock)
        os.rename(lock, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(lock)
        raise


def put_into_index(index: pygit2.Index, changes: Mapping[bytes, Entry | None]) -> None:
    """Set these paths to their entries in the new commit, and write the locked index.

    Sizes and times are left for git to fill in. Called before the branch moves, so that a failure leaves the
    branch as it is. See `held_index`.
    """
    for path, entry in changes.items():
        if entry is None:
            index.remove(os.fsdecode(path))
    for path, entry in changes.items():
        if entry is not None:
            index.add(
                pygit2.IndexEntry(os.fsdecode(path), pygit2.Oid(hex=entry.version), FileMode(entry.mode))
            )
    index.write()


def advance(branch: Branch, commit: pygit2.Oid, subject: str, who: pygit2.Signature) -> None:
    """Move the branch to `commit`, with a line in the reflog.

    Raises Conflict if the branch has moved meanwhile, and IoError if another git command keeps it locked.
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
                    f"Another git command has locked the branch {branch.name}",
                    hint=f"Wait for it to end. If no git command is running, remove {lock}.",
                ) from error
            time.sleep(0.02)
        except (pygit2.GitError, ValueError) as error:
            raise Conflict(
                f"The branch {branch.name} cannot be moved: {error}.",
                hint="Publish again. It starts from the branch's present commit.",
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
    """Return the lock file that made libgit2 fail, if it exists."""
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
    """Raise InvalidParams if an existing branch is a folder of `name`, or `name` of an existing branch."""
    names = list(repository.branches.local)
    above = (name[:position] for position, letter in enumerate(name) if letter == "/")
    taken = next((other for other in above if other in names), None) or next(
        (other for other in names if other.startswith(f"{name}/")), None
    )
    if taken is not None:
        raise InvalidParams(
            f"The branch {taken} exists, so the branch {name} cannot be created.", hint="Choose another name."
        )


def _is_name(name: str) -> bool:
    """Return whether `name` is a valid branch name that git reads as nothing else."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    is_other = name == "HEAD" or name.startswith("-") or "\0" in name or _OBJECT_ID.fullmatch(name)
    return not is_other and pygit2.reference_is_valid_name(_HEADS + name)


def _resolve(repository: pygit2.Repository, name: str) -> str:
    """Return the final target of a symbolic reference. For any other name, return it unchanged."""
    for _ in range(SYMBOLIC_MAX):
        reference = repository.references.get(name) if name else None
        target = None if reference is None else reference.raw_target
        if not isinstance(target, str | bytes):
            break
        name = _text(target)
    return name


def _worktrees(repository: pygit2.Repository) -> Iterator[tuple[str, str]]:
    """Yield the git folder and the work tree of each worktree with its own HEAD, the main one first."""
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


def _rebase_branches(git_folder: str) -> list[str]:
    """Return the branches that a rebase in this worktree will move at its end."""
    refs = [_line(git_folder, f"rebase-{kind}/head-name") for kind in ("merge", "apply")]
    return refs + _lines(git_folder, "rebase-merge/update-refs")[::3]  # two object ids follow each


def _bisect_branches(git_folder: str) -> list[str]:
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
        head_tree = branch.repository[pygit2.Oid(raw=tree)]
        assert isinstance(head_tree, pygit2.Tree)
        deltas = head_tree.diff_to_index(index).deltas
        staged = sorted({delta.new_file.path for delta in deltas})
    if staged or index.conflicts is not None:
        raise Conflict(
            f"The index differs from HEAD: {join_names(staged) or 'a merge is not finished'}.",
            hint="Commit it, unstage it with `git restore --staged .`, or publish to a new branch.",
            data={"files": [{"path": path} for path in staged[:SHOWN_MAX]]},
        )


def _lock(path: str) -> str:
    """Create git's lock file with a copy of the index. Return its name. Raises IoError after a time."""
    lock = path + ".lock"
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            break
        except FileExistsError as error:
            if time.monotonic() > until:
                raise IoError(
                    error,
                    "Another git command has locked the index",
                    hint=f"Wait for it to end. If no git command is running, remove {lock}.",
                ) from error
            time.sleep(0.02)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_index_bytes(path))
    except BaseException:
        os.unlink(lock)
        raise
    return lock


def _index_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:  # gitformat-index: version 2, no entries
        empty = b"DIRC" + (2).to_bytes(4, "big") + (0).to_bytes(4, "big")
        return empty + hashlib.sha1(empty).digest()


def _text(name: str | bytes) -> str:
    return os.fsdecode(name)


# Line ends as `git add` converts them, by a file's attributes and core.autocrlf.
# The rules are from git's convert.c (`convert_attrs`, `crlf_to_git`).
# `converting_attribute` detects the others.

Ends = Literal["as they are", "text", "auto"]

_HARMLESS = frozenset(b"\b\t\n\x0c\r\x1b")
_ODD = bytes({*range(32), 127} - _HARMLESS)


def converting_attribute(repository: pygit2.Repository, path: str) -> str | None:
    """Return the attribute that makes git convert more than line ends, or None."""
    for name in ("filter", "working-tree-encoding", "ident"):
        value = _attribute(repository, path, name)
        if value not in (None, False):
            return name if value is True else f"{name}={value}"
    return None


def ends_of(repository: pygit2.Repository, path: str) -> Ends:
    """Return how `git add` converts the line ends of the file at `path`."""
    text, eol = _attribute(repository, path, "text"), _attribute(repository, path, "eol")
    if text is None:
        older = _attribute(repository, path, "crlf")
        text = older if older in (True, False, "input") else None
    if text is False:
        return "as they are"
    if text == "auto":
        return "auto"
    if text in (True, "input") or eol in ("lf", "crlf"):
        return "text"
    return "auto" if _autocrlf(repository) else "as they are"


def to_blob(content: bytes, ends: Ends, known: bytes | None) -> bytes:
    """Return the blob that `git add` makes of `content`. `known` is the present blob of the path."""
    if ends == "as they are" or b"\r\n" not in content:
        return content
    has_crlf = known is not None and b"\r\n" in known and not is_binary(known)
    if ends == "auto" and (has_crlf or is_binary(content)):
        return content
    return content.replace(b"\r\n", b"\n")


def is_binary(content: bytes) -> bool:
    """Return git's guess: a NUL, a CR without LF, or too many unprintable bytes."""
    if b"\0" in content or content.count(b"\r") != content.count(b"\r\n"):
        return True
    body = content[:-1] if content.endswith(b"\x1a") else content  # an end-of-file mark of DOS is ignored
    odd = len(body) - len(body.translate(None, _ODD))
    printable = len(body) - odd - body.count(b"\r") - body.count(b"\n")
    return printable >> 7 < odd


def _attribute(repository: pygit2.Repository, path: str, name: str) -> str | bool | None:
    value: str | bool | None = repository.get_attr(os.fsencode(path), name)
    return value


def _autocrlf(repository: pygit2.Repository) -> bool:
    if "core.autocrlf" not in repository.config:
        return False
    value = str(repository.config["core.autocrlf"]).lower()
    return value == "input" or bool(repository.config.get_bool("core.autocrlf"))
