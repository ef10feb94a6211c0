"""The fake server of a log: a repository in memory, and the `git` that reaches it, in this process.

It replaces `run_git` of `editd.remote.transport`. A ref moves by compare and swap, as the options of a push
ask for it. `before` and `after` let something happen at each call.
"""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pygit2
from pygit2.enums import RepositoryOpenFlag

from editd.system.git_command import GitFailed

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "https://server.example/log.git"
LOG = "refs/heads/editd/log"
STALE = "Everything up-to-date"  # the opposite of what happened: no decision depends on the words (L8)
ALONE_TWICE = 2  # refused so often, a transaction may be kept back


@dataclass
class Server:
    """The server. `before` and `after` are called with the folder and the verb of each call of git."""

    folder: Path
    before: Callable[[str, str], None] = lambda _folder, _verb: None
    after: Callable[[str, str], None] = lambda _folder, _verb: None
    refused: Counter[str] = field(default_factory=Counter)  # origins whose push failed alone
    backup: dict[str, str] = field(default_factory=dict)
    moves: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.folder.exists():
            pygit2.init_repository(str(self.folder), bare=True)
            shutil.rmtree(self.folder / "hooks", ignore_errors=True)
        self._repository = opened(self.folder)

    def refs(self) -> dict[str, str]:
        """Return each ref with its commit."""
        names = self._repository.references
        return {name: str(names[name].target) for name in names}

    def set_refs(self, refs: dict[str, str]) -> None:
        """Have exactly these refs."""
        for name in self.refs().keys() - refs.keys():
            self._repository.references.delete(name)
        for name, commit in refs.items():
            self._repository.references.create(name, commit, force=True)

    def back_up_or_restore(self) -> bool:
        """Keep the refs, or have them as they were when they were kept; return whether they are restored."""
        if not self.backup:
            self.backup = self.refs()
            return False
        self.set_refs(self.backup)
        self.backup = {}
        return True

    # ── git ──

    def run_git(self, git_folder: str, verb: str, *arguments: str, **_more: object) -> bytes:
        """Do as `git_command.run_git`. Raises GitFailed."""
        words = list(arguments)
        options, others = words[: words.index("--")] if "--" in words else words, words
        others = words[words.index("--") + 2 :] if "--" in words else []
        if verb == "repack":
            return b""
        try:
            self.before(git_folder, verb)
        except GitFailed:
            if verb == "push":
                self._note_refusal(git_folder, options, others[0])
            raise
        output = {"ls-remote": self._list, "fetch": self._fetch, "push": self._push}[verb](
            git_folder, options, others
        )
        self.after(git_folder, verb)
        return output

    def _list(self, _folder: str, _options: list[str], patterns: list[str]) -> bytes:
        refs = {
            name: commit
            for name, commit in self.refs().items()
            if any(fnmatchcase(name, one) for one in patterns)
        }
        return "".join(f"{commit}\t{name}\n" for name, commit in sorted(refs.items())).encode()

    def _fetch(self, folder: str, _options: list[str], refspecs: list[str]) -> bytes:
        own, refs = opened(folder), self.refs()
        for refspec in refspecs:
            source, _, target = refspec.removeprefix("+").partition(":")
            if not source.endswith("*") and source not in refs:
                raise GitFailed(f"fatal: couldn't find remote ref {source}")
            prefix = source.removesuffix("*")
            for name, commit in refs.items():
                if name == source or (source.endswith("*") and name.startswith(prefix)):
                    copy_objects(self._repository, own, commit)
                    local = target.removesuffix("*") + name.removeprefix(prefix) if "*" in target else target
                    own.references.create(local, commit, force=True)
        return b""

    def _push(self, folder: str, options: list[str], refspecs: list[str]) -> bytes:
        (refspec,) = refspecs
        commit, _, ref = refspec.removeprefix("+").partition(":")
        now = self.refs().get(ref, "")
        expected = _lease_of(options)
        is_forced = refspec.startswith("+") or "--force" in options
        if expected is not None and now != expected:
            raise GitFailed(STALE)
        if commit:
            copy_objects(opened(folder), self._repository, commit)
        if expected is None and not is_forced and now and not self._follows(commit, now):
            raise GitFailed("! [rejected] (non-fast-forward)")
        if commit:
            self._repository.references.create(ref, commit, force=True)
        elif now:
            self._repository.references.delete(ref)
        self.moves.append(f"{Path(folder).parts[-4]}: {ref} {now[:8]} to {commit[:8]}")
        return b""

    def _follows(self, commit: str, earlier: str) -> bool:
        return commit == earlier or self._repository.descendant_of(commit, earlier)

    def _note_refusal(self, folder: str, options: list[str], refspec: str) -> None:
        """Note the origin of an entry that the server refuses alone, so that its host may keep it back."""
        commit, _, ref = refspec.removeprefix("+").partition(":")
        if ref != LOG or self.refs().get(ref) != _lease_of(options):
            return
        raw = opened(folder)[commit].peel(pygit2.Commit)
        if raw.parent_ids and str(raw.parent_ids[0]) == _lease_of(options):
            with contextlib.suppress(StopIteration):
                lines = iter(raw.message.splitlines())
                self.refused[next(one[8:] for one in lines if one.startswith("Origin: "))] += 1

    @property
    def kept_back(self) -> set[str]:
        """The origins of the transactions that a host may have kept back."""
        return {origin for origin, count in self.refused.items() if count >= ALONE_TWICE}


def _lease_of(options: list[str]) -> str | None:
    for option in options:
        if option.startswith("--force-with-lease="):
            return option.rpartition(":")[2]
    return None


def opened(folder: str | Path) -> pygit2.Repository:
    return pygit2.Repository(str(folder), RepositoryOpenFlag.NO_SEARCH)


def copy_objects(source: pygit2.Repository, target: pygit2.Repository, tip: str) -> None:
    """Copy a commit with all that it needs, as far as the target lacks it."""
    waiting = [pygit2.Oid(hex=tip)]
    while waiting:
        oid = waiting.pop()
        if oid in target.odb:
            continue
        kind, content = source.odb.read(oid)
        target.odb.write(kind, content)
        if int(kind) == int(pygit2.enums.ObjectType.COMMIT):
            head = content.partition(b"\n\n")[0].split(b"\n")
            waiting += [
                pygit2.Oid(hex=line.partition(b" ")[2].decode())
                for line in head
                if line.startswith((b"tree ", b"parent "))
            ]
        elif int(kind) == int(pygit2.enums.ObjectType.TREE):
            waiting += _entries_of(content)


def _entries_of(tree: bytes) -> list[pygit2.Oid]:
    oids: list[pygit2.Oid] = []
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        oids.append(pygit2.Oid(raw=tree[end + 1 : end + 21]))
        at = end + 21
    return oids
