"""A walk over the log on the server, which is compared with what the clients were told (L1 to L6).

It reads the log with pygit2 and by its trailers alone, without the code that writes it.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pygit2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass
class Acknowledged:
    """A transaction that a client was told of: the lines that it added to each file, and those it removed."""

    host: str
    id: str
    seq: int
    added: dict[str, str]
    removed: dict[str, str] = field(default_factory=dict)


@dataclass
class Entry:
    number: int
    commit: pygit2.Commit
    before: pygit2.Tree | None
    trailers: dict[str, str]

    @property
    def origin(self) -> str:
        return self.trailers["Origin"]

    @property
    def is_applied(self) -> bool:
        return self.trailers["Outcome"] == "applied"

    @property
    def is_decision(self) -> bool:
        return self.trailers["Outcome"] == "decided"


def log_of(server: Path) -> list[Entry]:
    """Read the log, the oldest entry first. Its only branch has it."""
    repository = pygit2.Repository(str(server))
    (name,) = [name for name in repository.references if name.startswith("refs/heads/editd/")]
    commit = repository.references[name].peel(pygit2.Commit)
    entries: list[Entry] = []
    while True:
        block = commit.message.rstrip("\n").rpartition("\n\n")[2]
        trailers = dict(line.split(": ", 1) for line in block.split("\n"))
        parents = commit.parents
        before = parents[0].tree if parents else None
        entries.append(Entry(int(trailers["Number"]), commit, before, trailers))
        if not parents:
            break
        commit = parents[0]
    entries.reverse()
    return entries


def check_log(
    server: Path,
    acknowledged: Sequence[Acknowledged],
    baseline: Mapping[str, bytes],
    files: Iterable[Mapping[str, bytes]],
) -> list[Entry]:
    """Compare the log with all that was acknowledged, and with the files of all hosts; return the log."""
    entries = log_of(server)
    assert [entry.number for entry in entries] == list(range(len(entries))), "L1: the numbers have a gap"
    assert entries[0].trailers["Outcome"] == "baseline"
    origins = [entry.origin for entry in entries[1:]]
    assert len(origins) == len(set(origins)), "L2: an origin is twice in the log"
    lost = {one.id for one in acknowledged} - set(origins)
    assert not lost, f"L3: acknowledged and not in the log: {lost}"
    known = {one.id: one for one in acknowledged}
    for entry in entries[1:]:
        _check_entry(entry, known.get(entry.origin))
    _check_order(entries, known)
    final = blobs(entries[-1].commit.tree)
    for found in files:
        assert found == final, f"L6: the files differ from the log: {differing(found, final)}"
    _check_lines(entries, known, baseline, final)
    return entries


def _check_entry(entry: Entry, known: Acknowledged | None) -> None:
    assert entry.before is not None
    changed = {
        path
        for delta in entry.before.diff_to_tree(entry.commit.tree).deltas
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
    after = blobs(entry.commit.tree)
    for path, line in known.added.items():
        assert line in lines_of(after[path]), f"L4: entry {entry.number} is half of its transaction"
    for path, line in known.removed.items():
        assert line not in lines_of(after.get(path, b"")), f"L4: entry {entry.number} removed only a part"


def _check_order(entries: Sequence[Entry], known: Mapping[str, Acknowledged]) -> None:
    """Each host's transactions are in its order, but for one that was kept back: others of its files wait."""
    newest: dict[tuple[str, str], int] = defaultdict(int)
    for entry in entries[1:]:
        if (one := known.get(entry.origin)) is not None:
            for path in one.added.keys() | one.removed.keys():
                assert one.seq > newest[one.host, path], f"L5: entry {entry.number} is too late"
                newest[one.host, path] = one.seq


def _check_lines(
    entries: Sequence[Entry],
    known: Mapping[str, Acknowledged],
    baseline: Mapping[str, bytes],
    final: Mapping[str, bytes],
) -> None:
    """Each line of the beginning and of an applied entry is there, unless an applied entry removed it."""
    expected = {path: set(lines_of(content)) for path, content in baseline.items()}
    for entry in entries[1:]:
        one = known.get(entry.origin)
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
