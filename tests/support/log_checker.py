"""A walk over the log on the server, which is compared with what the clients were told (L1 to L6 and L9).

It reads the log with pygit2 and by its trailers alone, without the code that writes it.

L5 is checked for each host, as docs/hosts.md has it: the transactions of one host land in its order. One
that the server refuses is kept back, with those of its files, and later ones go on. So an entry may be late
only if it is connected by its files to one that may have been kept back. The caller names those: each was
alone in two pushes that the server refused.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pygit2

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass
class Acknowledged:
    """A transaction that a client was told of: the lines that it added to each file, and those it removed."""

    host: str
    id: str
    seq: int
    added: dict[str, str]
    removed: dict[str, str] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)  # the hosts that have it since a state folder was copied

    @property
    def paths(self) -> set[str]:
        return {*self.added, *self.removed}

    def is_of(self, host: str) -> bool:
        return host == self.host or host in self.copies


@dataclass
class Entry:
    number: int  # by its place in the log
    commit: pygit2.Commit
    before: pygit2.Tree | None
    tree: pygit2.Tree
    trailers: dict[str, str]
    is_unusable: bool = False  # its commit does not count: it has the files before it

    @property
    def origin(self) -> str:
        return self.trailers["Origin"]

    @property
    def is_applied(self) -> bool:
        return self.trailers["Outcome"] == "applied"

    @property
    def is_decision(self) -> bool:
        return self.trailers["Outcome"] == "decided"


@dataclass(frozen=True)
class Exempt:
    """The transactions that may be late in the log, or not in it yet."""

    kept_back: Collection[str] = ()  # may have been kept back, as the server refused them
    gone: Collection[str] = ()  # hosts that have not come back
    unusable: Collection[str] = ()  # commits of crafted entries that no host can use


NOTHING = Exempt()


def log_of(server: Path, unusable: Collection[str] = ()) -> list[Entry]:
    """Read the log, the oldest entry first. Its only branch has it. `unusable` names commits."""
    repository = pygit2.Repository(str(server))
    commit: pygit2.Commit | None = repository.references[_name_of(repository)].peel(pygit2.Commit)
    commits: list[pygit2.Commit] = []
    while commit is not None:
        commits.append(commit)
        commit = commit.parents[0] if commit.parents else None
    entries: list[Entry] = []
    before: pygit2.Tree | None = None
    for number, commit in enumerate(reversed(commits)):
        is_unusable = str(commit.id) in unusable
        tree = before if is_unusable and before is not None else commit.tree
        entries.append(Entry(number, commit, before, tree, _trailers(commit), is_unusable))
        before = tree
    return entries


def queued(server: Path) -> set[str]:
    """Return the origins in the queues of all hosts."""
    repository = pygit2.Repository(str(server))
    origins: set[str] = set()
    for name in repository.references:
        if name.startswith("refs/editd/") and not name.endswith("/evil"):  # that queue is crafted
            commit = repository.references[name].peel(pygit2.Commit)
            while commit.parents:
                origins.add(_trailers(commit)["Origin"])
                commit = commit.parents[0]
    return origins


def _name_of(repository: pygit2.Repository) -> str:
    (name,) = [name for name in repository.references if name.startswith("refs/heads/editd/")]
    return name


def _trailers(commit: pygit2.Commit) -> dict[str, str]:
    block = commit.raw_message.decode("utf-8", "replace").rstrip("\n").rpartition("\n\n")[2]
    return dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)


def check_log(
    server: Path,
    acknowledged: Sequence[Acknowledged],
    baseline: Mapping[str, bytes],
    files: Iterable[Mapping[str, bytes]],
    exempt: Exempt = NOTHING,
) -> list[Entry]:
    """Compare the log with all that was acknowledged, and with the files of all hosts; return the log."""
    entries = check_chain(server, acknowledged, exempt.unusable)
    known = {one.id: one for one in acknowledged}
    landed = {entry.origin: entry.number for entry in entries[1:] if not entry.is_unusable}
    _check_order(acknowledged, landed, exempt)
    awaited = {one.id for one in acknowledged if not {one.host, *one.copies} <= {*exempt.gone}}
    lost = awaited - landed.keys()
    assert not lost, f"L3: acknowledged and not in the log: {lost}"
    final = blobs(entries[-1].tree)
    for found in files:
        assert found == final, f"L6: the files differ from the log: {differing(found, final)}"
    _check_lines(entries, known, baseline, final)
    return entries


def check_chain(
    server: Path, acknowledged: Sequence[Acknowledged], unusable: Collection[str] = ()
) -> list[Entry]:
    """Check what holds of a log at any time, also while hosts exchange (L1, L2, L4); return the log."""
    entries = log_of(server, unusable)
    _check_moves(server, entries)
    usable = [entry for entry in entries if not entry.is_unusable]
    assert all(int(one.trailers["Number"]) == one.number for one in usable), "L1: the numbers have a gap"
    assert entries[0].trailers["Outcome"] == "baseline"
    origins = [entry.origin for entry in usable[1:]]
    assert len(origins) == len(set(origins)), "L2: an origin is twice in the log"
    known = {one.id: one for one in acknowledged}
    for entry in usable[1:]:
        _check_entry(entry, known.get(entry.origin))
    return entries


def keep_moves(server: Path) -> None:
    """Have the server note each move of the log, for `check_chain`."""
    pygit2.Repository(str(server)).config["core.logAllRefUpdates"] = "always"


def _check_moves(server: Path, entries: Sequence[Entry]) -> None:
    """Each move of the log's ref that the server has noted goes from an entry to a later one."""
    repository = pygit2.Repository(str(server))
    numbers = {str(entry.commit.id): entry.number for entry in entries}
    newest_first = [str(move.oid_new) for move in repository.references[_name_of(repository)].log()]
    head = str(entries[-1].commit.id)
    before = -1
    # Moves after that to the head came after `entries` were read.
    for commit in reversed(newest_first[newest_first.index(head) :] if head in newest_first else []):
        number = numbers.get(commit)
        assert number is not None, f"L1: {commit} was landed, and is not in the log"
        assert number > before, f"L1: the log was moved back to entry {number}"
        before = number


def _check_entry(entry: Entry, known: Acknowledged | None) -> None:
    assert entry.before is not None
    changed = {
        path
        for delta in entry.before.diff_to_tree(entry.tree).deltas
        if not _is_same(delta.old_file, delta.new_file)
        for path in (delta.old_file.path, delta.new_file.path)
    }
    if not entry.is_applied:
        assert not changed, f"L4: entry {entry.number} is not applied and changes {changed}"
        if entry.is_decision:
            return
        whole = blobs(entry.commit.parents[1].tree)
        if known is not None:
            for path, line in known.added.items():
                assert line in lines_of(whole[f"after/{path}"]), f"L4: entry {entry.number} lacks a line"
        return
    assert len(entry.commit.parents) == 1
    if known is None:
        return
    assert changed <= known.added.keys() | known.removed.keys(), f"L4: entry {entry.number} changes {changed}"
    after = blobs(entry.tree)
    for path, line in known.added.items():
        assert line in lines_of(after[path]), f"L4: entry {entry.number} is half of its transaction"
    for path, line in known.removed.items():
        assert line not in lines_of(after.get(path, b"")), f"L4: entry {entry.number} removed only a part"


def _is_same(before: pygit2.DiffFile, after: pygit2.DiffFile) -> bool:
    """Return whether a file is the same but for a mode that only a crafted entry has, such as 104755."""
    kinds = {(file.mode & 0o170000, file.mode & 0o100) for file in (before, after)}
    return before.id == after.id and len(kinds) == 1


def _check_order(acknowledged: Sequence[Acknowledged], landed: Mapping[str, float], exempt: Exempt) -> None:
    """Each host's transactions are in its order, but for those that are kept back (L5).

    One of a host that is gone, and that is not in the log yet, comes after all others.
    """
    for host in {host for one in acknowledged for host in (one.host, *one.copies)}:
        awaited = [
            one for one in acknowledged if one.is_of(host) and (one.id in landed or host in exempt.gone)
        ]
        chain = sorted(awaited, key=lambda one: one.seq)
        first_later = math.inf  # the first entry among the later transactions
        for one in reversed(chain):
            number = landed.get(one.id, math.inf)
            if number > first_later:
                waiting = [other for other in chain if landed.get(other.id, math.inf) > first_later]
                is_excused = one.id in _connected(waiting, exempt.kept_back)
                assert is_excused, f"L5: entry {number} is too late"
            first_later = min(first_later, number)


def _connected(waiting: Iterable[Acknowledged], kept_back: Collection[str]) -> set[str]:
    """Return those that are kept back, and those that have a file in common with one of them, and so on."""
    left = list(waiting)
    reached = [one for one in left if one.id in kept_back]
    paths = {path for one in reached for path in one.paths}
    excused = {one.id for one in reached}
    while more := [one for one in left if one.id not in excused and one.paths & paths]:
        excused |= {one.id for one in more}
        paths |= {path for one in more for path in one.paths}
    return excused


def _check_lines(
    entries: Sequence[Entry],
    known: Mapping[str, Acknowledged],
    baseline: Mapping[str, bytes],
    final: Mapping[str, bytes],
) -> None:
    """Each line of the beginning and of an applied entry is there, unless an applied entry removed it."""
    expected = {path: set(lines_of(content)) for path, content in baseline.items()}
    for entry in entries[1:]:
        one = None if entry.is_unusable else known.get(entry.origin)
        if one is not None and entry.is_applied:
            for path, line in one.removed.items():
                expected[path].discard(line)
            for path, line in one.added.items():
                expected.setdefault(path, set()).add(line)
    for path, lines in expected.items():
        missing = lines - set(lines_of(final.get(path, b"")))
        assert not missing, f"lines of {path} were lost: {missing}"


def objects_of(server: Path) -> bytes:
    """Return all objects of a repository, those too that no ref needs."""
    return subprocess.run(
        ["git", "--git-dir", server, "cat-file", "--batch", "--batch-all-objects", "--unordered"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip


def unknown_lines(server: Path, known: Collection[str]) -> set[str]:
    """Return the lines on the server that are not known, also of files that no ref needs (L9)."""
    repository = pygit2.Repository(str(server))
    found: set[str] = set()
    for oid in repository:
        if isinstance(content := repository[oid], pygit2.Blob):
            found.update(lines_of(content.data))
    return found.difference(known)


def blobs(tree: pygit2.Tree, prefix: str = "") -> dict[str, bytes]:
    """Return all files of a tree by their paths."""
    found: dict[str, bytes] = {}
    for entry in tree:
        if isinstance(entry, pygit2.Tree):
            found |= blobs(entry, f"{prefix}{entry.name}/")
        elif isinstance(entry, pygit2.Blob):
            found[f"{prefix}{entry.name}"] = entry.data
    return found


def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> list[str]:
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))


def lines_of(content: bytes) -> list[str]:
    return content.decode().splitlines()
