"""The publish worker: a process that commits the work of a session or a range to the user's repository.

`python -m editd.engine.publish_worker ROOT STATE_FOLDER`, framed messages on stdin and stdout
(`system.frames`). `request_of` makes a request. The answer is `{commit, branch, left_out}`, or
`{refused, message, hint, data}`, which `refusal_in` reads.

It writes objects, one branch, and the index if that branch is checked out. It writes nothing else. The
commit's tree is the tree of the tip with each run merged into it (`engine.queries`). A change that the
branch already has is not merged again.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import pygit2
from msgspec import Struct
from pygit2.enums import ObjectType, Option

from editd.advice import Advice, argument_term, method_term
from editd.edits.merge import merge_states
from editd.engine.git_branch import (
    TRAILER,
    advance,
    check_index,
    commits_since,
    converting_attribute,
    ends_of,
    find_branch,
    held_index,
    open_repository,
    put_into_index,
    to_blob,
    unreadable_index,
)
from editd.engine.published_steps import CommittedFile, PresentFile, RunSteps, has_already
from editd.engine.queries import PathChanges, format_ranges
from editd.errors import (
    Conflict,
    HistoryDamaged,
    InvalidParams,
    IoError,
    NoChange,
    PermissionDenied,
    Refused,
    join_names,
)
from editd.store.git_objects import EMPTY_TREE, Trees
from editd.store.git_repository import open_store
from editd.store.transaction_record import ident
from editd.system.frames import Frame, read_frame, write_frame
from editd.system.git_command import GitFailed, GitMissing, run_git
from editd.values.content import EXECUTABLE, FILE, Entry, FileState, GitMode, Version
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from editd.engine.git_branch import Branch, BranchCommit

_LINK = 0o160000
_PERSON = re.compile(r"\s*([^<>\n\0]*[^<>\n\0\s])\s*<([^<>\n\0\s]+)>\s*")
_TRAILER = re.compile(r"[A-Za-z][A-Za-z0-9-]*: \S.*")


Life = Sequence[tuple[int, Entry | None]]
"""The transactions of all authors that changed a path, rising, each with the file after it."""


class Publication(Struct, frozen=True):
    """A request to publish: the runs, and the metadata of the commit."""

    runs: tuple[PathChanges, ...]
    message: str
    branch: str | None
    author: str | None  # `NAME <MAIL>`
    actors: tuple[str, ...]
    reviewers: tuple[str, ...]  # the actors who approved a transaction's proposal
    login: str  # the user's login name, which is an actor's name, too
    trailers: tuple[str, ...]
    since: int  # the time of the first transaction, in seconds
    dry_run: bool = False
    trials: tuple[tuple[PathChanges, ...], ...] = ()  # runs to try: the answer has which of them merge
    lives: Mapping[WorkspacePath, Life] = MappingProxyType({})
    excluded: tuple[str, ...] = ()  # paths whose contents the history does not keep
    present: Mapping[WorkspacePath, Entry | None] = MappingProxyType({})  # files that changed after their run


def request_of(publication: Publication) -> Frame:
    """Return the frame of a request."""
    return {
        "runs": _plain_runs(publication.runs), "trials": [_plain_runs(runs) for runs in publication.trials],
        "lives": [[path.text, [(seq, _plain(entry)) for seq, entry in life]]
                  for path, life in publication.lives.items()],
        "since": publication.since, "dry_run": publication.dry_run,
        "message": publication.message, "branch": publication.branch,
        "author": publication.author, "actors": list(publication.actors), "login": publication.login,
        "reviewers": list(publication.reviewers), "trailers": list(publication.trailers),
        "excluded": list(publication.excluded),
        "present": [[path.text, _plain(entry)] for path, entry in publication.present.items()],
    }  # fmt: skip


def refusal_in(answer: Frame) -> Refused | None:
    """Return the refusal of an answer, or None."""
    if "refused" not in answer:
        return None
    refusal = Refused(answer["message"], hint=answer["hint"], data=answer["data"])
    return refusal.revise(code=answer["refused"])


def publish(root: str, folder: str, wanted: Publication) -> Frame:
    """Make the commit and return the answer. Raises Refused: then only unreachable objects were written."""
    repository = open_repository(root)
    branch = find_branch(repository, wanted.branch)
    author, committer = _people(repository, wanted.author)
    inside = os.path.relpath(os.path.realpath(root), os.path.realpath(repository.workdir))
    prefix = "" if inside == "." else inside + "/"

    everything = (*wanted.runs, *(run for runs in wanted.trials for run in runs))
    commits = commits_since(branch, wanted.since, sorted({seq for run in everything for seq in run.seqs}))

    def merge_runs(runs: Sequence[PathChanges]) -> BranchMerge:
        store = open_store(os.path.join(folder, "store.git"))
        merge = BranchMerge(branch, store, prefix, commits, wanted.lives, wanted.present)
        merge.left_out.update(run.path.text for run in runs if run.path.text in wanted.excluded)
        for run in runs:
            merge.carry_out(run)
        return merge

    if wanted.trials:
        return {"clean": [_is_clean(merge_runs, runs) for runs in wanted.trials]}
    merge = merge_runs(wanted.runs)
    changes = merge.changes()
    if not changes:
        raise _nothing_new(wanted, branch, merge.left_out, merge.removals())
    message = _message(wanted, author, merge.seqs, is_login=wanted.author is None)
    answer: Frame = {
        "commit": "", "branch": branch.name, "left_out": sorted(merge.left_out),
        "transactions": sorted(merge.seqs), "files": merge.summary(changes), "message": message,
    }  # fmt: skip
    if wanted.dry_run:
        check_index(branch)
        return answer
    entries = _entries(repository, changes)
    with held_index(branch) as index:
        tree = _tree(branch, entries)
        parents = [] if branch.tip is None else [branch.tip]
        commit = repository.create_commit(None, author, committer, message, tree, parents)
        if index is not None:
            put_into_index(index, entries)
        advance(branch, commit, message.partition("\n")[0], committer)
    return answer | {"commit": str(commit)}


@dataclass
class BranchMerge:
    """The files of the branch's tip, with runs merged into them one after another."""

    branch: Branch
    store: pygit2.Repository
    prefix: str  # of the workspace in the repository's work tree
    commits: Sequence[BranchCommit]  # parents first
    lives: Mapping[WorkspacePath, Life]
    present: Mapping[WorkspacePath, Entry | None]

    files: dict[str, FileState | None] = field(default_factory=dict)  # by their path in the repository
    left_out: set[str] = field(default_factory=set)  # excluded paths, and paths that `git add` would not add
    seqs: set[int] = field(default_factory=set)  # the transactions that changed something here
    now: dict[WorkspacePath, PresentFile] = field(default_factory=dict)  # of `present`

    def __post_init__(self) -> None:
        self._tip = Trees(self.branch.tree or EMPTY_TREE, self._tree_bytes)

    def carry_out(self, run: PathChanges) -> None:
        """Merge one run into the files. Raises Conflict if it does not merge cleanly."""
        path = self.prefix + run.path.text
        if self._is_left_out(run.path, path):
            return
        states: Sequence[FileState | None] = [self._state(path, state) for state in run.states]
        commits = [self._file_in(run, commit) for commit in self.commits]
        begun = self._count_published(run, states, commits)
        seqs, states = self._in_force(run, run.seqs[begun:], states[begun:], commits)
        if not seqs:
            return
        source = None if run.source is None or begun else self.prefix + run.source.text
        at = path if source is None or (self._now(source) is None and self._now(path) is not None) else source
        ours = self._now(at)
        made, start = self._merge(run, states, ours)
        if made != ours or at != path:
            self.seqs |= set(seqs[start:])
        if at != path:
            self.seqs.add(run.seqs[0])  # the move, even if the content is the same after it
            if self._now(path) is not None:
                raise _collision(run.path, f"{run.path} already exists on {self.branch.name}.")
            self.files[at] = None
        self.files[path] = made

    def changes(self) -> dict[str, FileState | None]:
        """Return the files that differ from the tip. Raises Conflict if a file and a folder share a path."""
        changed = {path: state for path, state in self.files.items() if state != self._on_tip(path)}
        for path, state in changed.items():
            if state is not None:
                self._check_place(path, changed)
        return changed

    def removals(self) -> dict[str, list[int]]:
        """Return the transactions that a later one took out of a file, by the file's path."""
        return {path.text: now.seqs for path, now in self.now.items() if now.seqs}

    def summary(self, changes: Mapping[str, FileState | None]) -> list[dict[str, Any]]:
        """Return the kind of change of each path, with the numbers of added and removed lines."""
        rows: list[dict[str, Any]] = []
        for path, state in sorted(changes.items()):
            before = self._on_tip(path)
            change = "added" if before is None else "deleted" if state is None else "modified"
            patch = pygit2.Patch.create_from(
                b"" if before is None else before.content, b"" if state is None else state.content
            )
            is_binary = patch.delta.is_binary
            _, added, removed = patch.line_stats
            rows.append(
                {
                    "path": path.removeprefix(self.prefix), "change": change,
                    "added": None if is_binary else added, "removed": None if is_binary else removed,
                }
            )  # fmt: skip
        return rows

    def _count_published(
        self, run: PathChanges, states: Sequence[FileState | None], commits: Iterable[CommittedFile]
    ) -> int:
        """Return how many steps of the run are in the branch's commits."""
        path = self.prefix + run.path.text
        life = self.lives.get(run.path, ())
        steps = RunSteps(
            run.seqs,
            states,
            [states[0], *(self._state(path, entry) for seq, entry in life if seq < run.seqs[0])],
            [(seq, self._state(path, entry)) for seq, entry in life if seq >= run.seqs[0]],
        )
        return steps.count_steps(commits)

    def _in_force(
        self,
        run: PathChanges,
        seqs: Sequence[int],
        states: Sequence[FileState | None],
        commits: Iterable[CommittedFile],
    ) -> tuple[Sequence[int], Sequence[FileState | None]]:
        """Return the steps of a run without the steps that a later transaction took out of the file.

        On a branch that is not checked out, the files may lack a step because they belong to another branch.
        There a step is left out only if the branch has a revert of the file, too.
        """
        is_here = self.branch.is_current or any(
            one.before != one.after or one.makes_move for commit in commits for one in commit.reverted
        )
        if not seqs or run.path not in self.present or not is_here:
            return seqs, states
        entry = self.present[run.path]
        now = self.now.setdefault(run.path, PresentFile(self._state(self.prefix + run.path.text, entry)))
        if run.source is None or len(seqs) < len(run.seqs):
            return now.in_force(seqs, states)
        if entry is None:
            now.seqs += seqs
            return (), states[:1]
        later, made = now.in_force(seqs[1:], states[1:])
        return [seqs[0], *later], [states[0], *made]

    def _file_in(self, run: PathChanges, of: BranchCommit) -> CommittedFile:
        """Return the run's file in a commit and its parent. Blobs are read only if the commit concerns it."""
        path = self.prefix + run.path.text
        tree, former = (Trees(oid, self._tree_bytes) for oid in of.trees)
        is_moved = was_moved = True
        if run.source is not None:
            source = os.fsencode(self.prefix + run.source.text)
            is_moved, was_moved = tree.entry(source) is None, former.entry(source) is None
        named = of.named.intersection(run.seqs)
        before = after = None
        name = os.fsencode(path)
        if named or tree.entry(name) != former.entry(name):
            before, after = self._in_tree(former, path), self._in_tree(tree, path)
        reverted = tuple(self._file_in(run, one) for one in of.reverted)
        return CommittedFile(before, after, is_moved, is_moved and not was_moved, frozenset(named), reverted)

    def _merge(
        self, run: PathChanges, states: Sequence[FileState | None], ours: FileState | None
    ) -> tuple[FileState | None, int]:
        """Return `ours` with the run merged in, and the index of the run's state that `ours` already has."""
        path, first, last = run.path, states[0], states[-1]
        has = (at for at in range(len(states) - 1, 0, -1) if has_already(first, ours, states[at]))
        position = len(states) - 1 - states[::-1].index(ours) if ours in states else next(has, 0)
        start = states[position]
        if ours is None and start is not None and last != start:
            raise _collision(
                path,
                f"{path} was changed, but {self.branch.name} has no such file.",
                "Commit the file first, or also publish the transaction that created it.",
            )
        return merge_states(start, ours, last, path=path.text), position

    def _is_left_out(self, path: WorkspacePath, full: str) -> bool:
        """Return whether `git add` skips the path: a new ignored file, or a file of a nested repository."""
        if path.text in self.left_out:
            return True
        repository = self.branch.repository
        above = [full[:position] for position, letter in enumerate(full) if letter == "/"]
        inner = (os.path.join(repository.workdir, folder, ".git") for folder in above)
        is_out = any(map(os.path.lexists, inner)) or any(self._mode(folder) == _LINK for folder in above)
        if is_out or (self._on_tip(full) is None and _is_ignored(repository, full)):
            self.left_out.add(path.text)
            return True
        converted = converting_attribute(repository, full)
        if converted is not None:
            raise PermissionDenied(
                f"{path} has the attribute `{converted}`, and editd runs no git filters.",
                hint="Commit the file with git, and publish a range without it.",
                data={"path": path.text},
            )
        return False

    def _now(self, path: str) -> FileState | None:
        return self.files[path] if path in self.files else self._on_tip(path)

    def _on_tip(self, path: str) -> FileState | None:
        return self._in_tree(self._tip, path)

    def _in_tree(self, tree: Trees, path: str) -> FileState | None:
        entry = tree.entry(os.fsencode(path))
        if entry is None or entry.mode == _LINK:
            return None
        blob = self.branch.repository.get(entry.version)
        if not isinstance(blob, pygit2.Blob):
            raise InvalidParams(
                f"The repository lacks the blob of {path}, as in a partial clone.",
                hint=f"Fetch it with `git show HEAD:{path}`.",
            )
        return FileState(blob.data, _mode_of(entry.mode))

    def _mode(self, path: str) -> int | None:
        entry = self._tip.entry(os.fsencode(path))
        return None if entry is None else entry.mode

    def _state(self, path: str, entry: Entry | None) -> FileState | None:
        """Return the recorded state, with line ends as `git add` converts them."""
        if entry is None:
            return None
        blob = self.store.get(entry.version)
        if not isinstance(blob, pygit2.Blob):
            raise HistoryDamaged(f"The history no longer has the content {entry.version[:12]}.")
        state = FileState(blob.data, entry.mode, version=entry.version)
        if state.is_symlink:
            return state
        repository, known = self.branch.repository, self._on_tip(path)
        added = to_blob(state.content, ends_of(repository, path), None if known is None else known.content)
        return state if added is state.content else FileState(added, entry.mode)

    def _check_place(self, path: str, changed: Mapping[str, FileState | None]) -> None:
        """Raise Conflict if a folder of the path is a file on the branch, or the path is a folder there."""
        for position, letter in enumerate(path):
            above = path[:position]
            if letter == "/" and self._now(above) is not None:
                raise _collision(WorkspacePath(path), f"{above} is a file on {self.branch.name}.")
        folder = self._tip.folder(os.fsencode(path))
        if folder is not None and any(
            f"{path}/{name}" not in changed for name in self._names(os.fsencode(path))
        ):
            raise _collision(WorkspacePath(path), f"{path} is a folder on {self.branch.name}.")

    def _names(self, path: bytes) -> list[str]:
        """Return all files below a folder of the tip, relative to it."""
        folder = self._tip.folder(path)
        assert folder is not None
        names = [os.fsdecode(name) for name in folder.files()]
        for name in folder.folders():
            names += [f"{os.fsdecode(name)}/{below}" for below in self._names(path + b"/" + name)]
        return names

    def _tree_bytes(self, oid: bytes) -> bytes:
        return bytes(self.branch.repository.read(pygit2.Oid(raw=oid))[1])


def _nothing_new(
    wanted: Publication, branch: Branch, left_out: set[str], taken_out: Mapping[str, Sequence[int]]
) -> NoChange:
    if taken_out:
        seqs = sorted({seq for each in taken_out.values() for seq in each})
        shown = join_names(sorted(taken_out))
        return NoChange(
            f"Nothing to publish: a later change took {format_ranges(seqs)} out of {shown},"
            f" and {branch.name} already has all other changes.",
            hint=Advice(
                "Undo the later change, and publish again: ",
                method_term("log"),
                " lists the transactions of a path.",
            ),
            data={"left_out": sorted(left_out), "taken_out": seqs},
        )
    paths = sorted(left_out)
    shown = join_names(paths)
    ignores = "git ignores, or `history.exclude` leaves out," if wanted.excluded else "git ignores"
    if all(run.path.text in left_out for run in wanted.runs):
        return NoChange(
            f"{ignores} all changed files: {shown}.",
            hint="Add an ignored file with `git add -f`. Commit the files of a nested repository there.",
            data={"left_out": paths},
        )
    reason = f"already has all other changes, and {ignores} {shown}" if paths else "already has all changes"
    return NoChange(f"Nothing to publish: {branch.name} {reason}.", data={"left_out": paths})


def _is_ignored(repository: pygit2.Repository, path: str) -> bool:
    # libgit2 accepts only UTF-8. Patterns rarely have other bytes.
    return bool(repository.path_is_ignored(os.fsencode(path).decode("utf-8", "replace")))


def _is_clean(
    merge_runs: Callable[[Sequence[PathChanges]], BranchMerge], runs: Sequence[PathChanges]
) -> bool:
    try:
        merge_runs(runs)
    except Conflict:
        return False
    return True


def _collision(path: WorkspacePath, message: str, hint: str = "") -> Conflict:
    return Conflict(
        message, hint=hint or "Resolve that on the branch first.", data={"files": [{"path": path.text}]}
    )


def _entries(
    repository: pygit2.Repository, changes: Mapping[str, FileState | None]
) -> dict[bytes, Entry | None]:
    """Write the blobs. Return the tree entry of each path."""
    return {
        os.fsencode(path): None
        if state is None
        else Entry(state.mode, Version(str(repository.create_blob(state.content))))
        for path, state in changes.items()
    }


def _tree(branch: Branch, changes: Mapping[bytes, Entry | None]) -> pygit2.Oid:
    repository = branch.repository
    trees = Trees(branch.tree or EMPTY_TREE, lambda oid: bytes(repository.read(pygit2.Oid(raw=oid))[1]))
    splice = trees.update(changes.items())
    for raw in splice.trees.values():
        repository.write(ObjectType.TREE, raw)
    if splice.root == EMPTY_TREE:
        repository.write(ObjectType.TREE, b"")
    return pygit2.Oid(raw=splice.root)


def _people(repository: pygit2.Repository, author: str | None) -> tuple[pygit2.Signature, pygit2.Signature]:
    """Return author and committer with the present time. Raises InvalidParams."""
    seconds = int(time.time())
    minutes = (time.localtime(seconds).tm_gmtoff or 0) // 60

    def signature(name: str, mail: str) -> pygit2.Signature:
        return pygit2.Signature(name, mail, seconds, minutes)

    settings = _user_settings(repository)
    user = None
    if all(settings.values()):
        user = signature(settings["user.name"] or "", settings["user.email"] or "")
    if author is None:
        if user is None:
            faults = [
                f"{name} is {'empty' if value == '' else 'not configured'}"
                for name, value in settings.items()
                if not value
            ]
            raise InvalidParams(
                f"git has no author for a commit: {' and '.join(faults)}.",
                hint=Advice(
                    "Run `git config user.name NAME` and `git config user.email MAIL`, or name an ",
                    argument_term("author"),
                    ".",
                ),
            )
        return user, user
    match = _PERSON.fullmatch(author)
    if match is None:
        raise InvalidParams(f"{author[:200]!r} is not a valid author.", hint="Write it as `NAME <MAIL>`.")
    named = signature(match[1], match[2])
    return named, user or named


def _user_settings(repository: pygit2.Repository) -> dict[str, str | None]:
    """Return the name and the mail of git's user. Raises InvalidParams.

    Git itself reads them, because libgit2 ignores the variables of git's configuration, such as
    GIT_CONFIG_GLOBAL. Without git, libgit2 reads the files.
    """
    settings: dict[str, str | None] = {"user.name": None, "user.email": None}
    try:
        listing = run_git(
            repository.path, "config", "--null", "--get-regexp", r"^user\.(name|email)$", statuses=(0, 1)
        )
    except GitMissing:
        config = repository.config
        return {name: str(config[name]) if name in config else None for name in settings}
    except GitFailed as error:
        raise InvalidParams(
            f"The configuration of git cannot be read: {error}", hint="Repair it, and retry."
        ) from error
    for entry in listing.decode("utf-8", "replace").split("\0"):
        name, _, value = entry.partition("\n")
        if name in settings:
            settings[name] = value
    return settings


def _message(wanted: Publication, author: pygit2.Signature, seqs: Iterable[int], *, is_login: bool) -> str:
    """Return the message with trailers: co-authors, reviewers, and the transactions in editd's history."""
    own = {author.name, author.email} | ({wanted.login} if is_login else set())
    trailers = [f"Co-authored-by: {ident(actor)}" for actor in wanted.actors if actor not in own]
    for reviewer in wanted.reviewers:
        name = f"{author.name} <{author.email}>" if reviewer in own else ident(reviewer)
        trailers.append(f"Reviewed-by: {name}")
    trailers += (*wanted.trailers, f"{TRAILER}: {format_ranges(seqs)}")
    body = wanted.message.strip()
    above, _, last = body.rpartition("\n\n")
    is_block = bool(above) and all(map(_TRAILER.fullmatch, last.split("\n")))
    return body + ("\n" if is_block else "\n\n") + "\n".join(trailers) + "\n"


def _mode_of(mode: int) -> GitMode:
    """Return a mode as git writes it today. A tip may have older modes (100664)."""
    if mode & 0o170000 != 0o100000:
        return cast("GitMode", mode)
    return EXECUTABLE if mode & 0o100 else FILE


def _plain(entry: Entry | None) -> tuple[int, str] | None:
    return None if entry is None else (entry.mode, entry.version)


def _entry(plain: Sequence[Any] | None) -> Entry | None:
    return None if plain is None else Entry(plain[0], Version(plain[1]))


def _plain_runs(runs: Iterable[PathChanges]) -> list[Any]:
    return [
        [run.path.text, [_plain(state) for state in run.states], run.seqs, run.source and run.source.text]
        for run in runs
    ]


def _runs(plain: list[Any]) -> tuple[PathChanges, ...]:
    return tuple(
        PathChanges(
            WorkspacePath(path),
            tuple(map(_entry, states)),
            tuple(seqs),
            None if source is None else WorkspacePath(source),
        )
        for path, states, seqs, source in plain
    )


def _publication(frame: Frame) -> Publication:
    runs, trials = _runs(frame.pop("runs")), tuple(_runs(plain) for plain in frame.pop("trials"))
    actors, reviewers, trailers = (tuple(frame.pop(name)) for name in ("actors", "reviewers", "trailers"))
    lives = {
        WorkspacePath(path): [(seq, _entry(state)) for seq, state in life]
        for path, life in frame.pop("lives")
    }
    excluded = tuple(frame.pop("excluded"))
    present = {WorkspacePath(path): _entry(state) for path, state in frame.pop("present")}
    return Publication(
        runs,
        lives=lives,
        actors=actors,
        reviewers=reviewers,
        trailers=trailers,
        trials=trials,
        excluded=excluded,
        present=present,
        **frame,
    )


def answer(root: str, folder: str, request: Frame) -> Frame:
    """Carry out one request. Return its answer, which may be a refusal."""
    try:
        return publish(root, folder, _publication(request))
    except Refused as refusal:
        return _refusal_frame(refusal)
    except (pygit2.GitError, OSError, KeyError, ValueError) as error:
        if (unreadable := unreadable_index(error)) is not None:
            return _refusal_frame(unreadable)
        problem = "The repository could not be read or written"
        if any(os.strerror(number) in str(error) for number in (errno.EACCES, errno.EPERM)):
            return _refusal_frame(
                PermissionDenied(f"{problem}: {error}.", hint="Make the repository writable for your user.")
            )
        return _refusal_frame(IoError(OSError(str(error)), problem, hint="Run `git fsck` to find the cause."))


def _refusal_frame(refusal: Refused) -> dict[str, Any]:
    return {
        "refused": refusal.code,
        "message": refusal.message,
        "hint": refusal.advice.to_plain(),
        "data": refusal.data,
    }


def main() -> None:
    """Serve requests until stdin closes."""
    pygit2.option(Option.ENABLE_FSYNC_GITDIR, True)
    pygit2.option(Option.SET_EXTENSIONS, ["partialclone"], 1)
    root, folder = sys.argv[1:3]
    while (request := read_frame(sys.stdin.buffer)) is not None:
        write_frame(sys.stdout.buffer, answer(root, folder, request))


if __name__ == "__main__":
    main()
