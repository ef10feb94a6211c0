"""The checker of the random runs: faults that are put into a log on purpose are found, each by its rule."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pygit2
import pytest
from pygit2.enums import FileMode

from hosts import exchange, hosts
from log_checker import Acknowledged, blobs, check_log, log_of
from workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from log_checker import Entry

    Made = tuple[Path, list[Acknowledged], list[dict[str, bytes]]]

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a": LINES, "b": LINES}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A log with two applied entries of two files each, and one that is set aside."""
    with hosts(tmp_path_factory.mktemp("log"), 2, FILES) as (places, (one, other), server):
        known = [edited(one, "host0", 1), edited(one, "host0", 5)]
        exchange(one)
        other.remote_pause()
        known.append(edited(one, "host0", 9))
        exchange(one)
        known.append(edited(other, "host1", 9))
        other.remote_resume()
        exchange(one, other)
        yield server, known, [place.files() for place in places]


def edited(client: Client, host: str, number: int) -> Acknowledged:
    """Replace a line in both files."""
    line, token = f"line {number}", f"{host} {number}"
    done = client.apply([replace(path, f"{line}\n", f"{token}\n") for path in FILES]).transaction
    assert done is not None
    return Acknowledged(host, done.id, done.seq, dict.fromkeys(FILES, token), dict.fromkeys(FILES, line))


class Rewriter:
    """A copy of the log, in which a fault is made."""

    def __init__(self, server: Path) -> None:
        self.repository = pygit2.Repository(str(server))
        self.entries = log_of(server)
        (self._ref,) = [name for name in self.repository.references if name.startswith("refs/heads/editd/")]

    def write(self, entries: list[Entry], trees: dict[int, pygit2.Oid] | None = None) -> None:
        """Make the log anew of these entries, with other trees for some of them by their numbers."""
        parent: pygit2.Oid | None = None
        for number, entry in enumerate(entries):
            commit = entry.commit
            message = commit.message.replace(f"\nNumber: {entry.number}\n", f"\nNumber: {number}\n")
            more = [one.id for one in commit.parents[1:]]
            tree = (trees or {}).get(entry.number, commit.tree.id)
            parents = ([] if parent is None else [parent]) + more
            parent = self.repository.create_commit(
                None, commit.author, commit.committer, message, tree, parents
            )
        assert parent is not None
        self.repository.references.create(self._ref, parent, force=True)

    def with_text(self, number: int, path: str, before: str, after: str) -> pygit2.Oid:
        """Return the tree of an entry with another text in one of its files."""
        files = self.entries[number].commit.tree
        content = blobs(files)[path].replace(before.encode(), after.encode())
        builder = self.repository.TreeBuilder(files.id)
        builder.insert(path, self.repository.create_blob(content), FileMode.BLOB)
        return builder.write()


def lose(log: Rewriter) -> None:
    log.write([entry for entry in log.entries if entry.number != 2])


def land_twice(log: Rewriter) -> None:
    log.write([*log.entries, log.entries[1]], {1: log.entries[-1].commit.tree.id})


def land_half(log: Rewriter) -> None:
    log.write(log.entries, {1: log.with_text(1, "b", "host0 1\n", "line 1\n")})


def apply_what_is_set_aside(log: Rewriter) -> None:
    log.write(log.entries, {4: log.entries[2].commit.tree.id})


def swap(log: Rewriter) -> None:
    first, one, other, *rest = log.entries
    earlier = log.with_text(2, "a", "host0 1\n", "line 1\n")
    log.write([first, other, one, *rest], {2: earlier, 1: other.commit.tree.id})


def overwrite(log: Rewriter) -> None:
    """Let the last entry bring back a line of the beginning."""
    tree = log.with_text(3, "a", "host0 1\n", "line 1\n")
    log.write(log.entries, {3: tree, 4: tree})


def test_a_log_without_a_fault_passes(made: Made) -> None:
    server, known, files = made
    entries = check_log(server, known, {path: text.encode() for path, text in FILES.items()}, files)
    assert [entry.is_applied for entry in entries[1:]] == [True, True, True, False]


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lose, "L3: acknowledged and not in the log"),
        (land_twice, "L2: an origin is twice"),
        (land_half, "L4: entry 1 is half of its transaction"),
        (apply_what_is_set_aside, "L4: entry 4 is not applied and changes"),
        (swap, "L5: entry 2 is too late"),
        (overwrite, "L6: the files differ"),
    ],
)
def test_a_fault_in_a_log_is_found(
    made: Made, tmp_path: Path, fault: Callable[[Rewriter], None], rule: str
) -> None:
    server, known, files = made
    copy = shutil.copytree(server, tmp_path / "server.git")
    fault(Rewriter(copy))
    with pytest.raises(AssertionError, match=rule):
        check_log(copy, known, {path: text.encode() for path, text in FILES.items()}, files)
