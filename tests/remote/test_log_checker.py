"""The checker of the random runs: faults that are put into a log on purpose are found, each by its rule."""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

import pygit2
import pytest
from pygit2.enums import FileMode

from support.hosts import exchange, hosts
from support.log_checker import Acknowledged, Exempt, blobs, check_log, keep_moves, log_of, unknown_lines
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.log_checker import Entry

    Made = tuple[Path, list[Acknowledged], list[dict[str, bytes]]]

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a": LINES, "b": LINES, "c": LINES}
BASELINE = {path: text.encode() for path, text in FILES.items()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """A log with three applied entries of two files each, one that is set aside, and one of another file."""
    with hosts(tmp_path_factory.mktemp("log"), 2, FILES) as (places, (one, other), server):
        keep_moves(server)
        known = [edited(one, "host0", 1), edited(one, "host0", 5)]
        exchange(one)
        other.remote_pause()
        known.append(edited(one, "host0", 9))
        exchange(one)
        known.append(edited(other, "host1", 9))
        other.remote_resume()
        exchange(one, other)
        known.append(edited(one, "host0", 3, "c"))
        exchange(one, other)
        yield server, known, [place.files() for place in places]


def edited(client: Client, host: str, number: int, paths: str = "ab") -> Acknowledged:
    """Replace a line in some files."""
    line, token = f"line {number}", f"{host} {number}"
    done = client.apply([replace(path, f"{line}\n", f"{token}\n") for path in paths]).transaction
    assert done is not None
    return Acknowledged(host, done.id, done.seq, dict.fromkeys(paths, token), dict.fromkeys(paths, line))


class Rewriter:
    """A copy of the log, in which a fault is made."""

    def __init__(self, server: Path) -> None:
        self._folder = server
        self.repository = pygit2.Repository(str(server))
        self.entries = log_of(server)
        (self._ref,) = [name for name in self.repository.references if name.startswith("refs/heads/editd/")]

    def write(self, entries: list[Entry], trees: dict[int, pygit2.Oid] | None = None) -> None:
        """Make the log anew of these entries, with other trees for some of them by their numbers.

        The server notes no move of the log any more.
        """
        (self._folder / "logs" / self._ref).unlink()
        self.repository.config["core.logAllRefUpdates"] = False
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

    def force(self, commit: pygit2.Oid) -> None:
        self.repository.references[self._ref].set_target(commit)

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
    """Let a later entry bring back a line of the beginning."""
    tree = log.with_text(3, "a", "host0 1\n", "line 1\n")
    log.write(log.entries, {3: tree, 4: tree, 5: log.with_text(5, "a", "host0 1\n", "line 1\n")})


def move_back(log: Rewriter) -> None:
    """Move the log to an earlier entry, and forward again."""
    log.force(log.entries[2].commit.id)
    log.force(log.entries[-1].commit.id)


def land_on_an_older_head(log: Rewriter) -> None:
    """Replace the last entry, which was landed, by another one."""
    last = log.entries[-1].commit
    message = last.message.replace("\nMade: ", "\nMade: 1")
    log.force(
        log.repository.create_commit(
            None, last.author, last.committer, message, last.tree.id, [one.id for one in last.parents]
        )
    )


def test_a_log_without_a_fault_passes(made: Made) -> None:
    server, known, files = made
    entries = check_log(server, known, BASELINE, files)
    assert [entry.is_applied for entry in entries[1:]] == [True, True, True, False, True]


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (lose, "L3: acknowledged and not in the log"),
        (land_twice, "L2: an origin is twice"),
        (land_half, "L4: entry 1 is half of its transaction"),
        (apply_what_is_set_aside, "L4: entry 4 is not applied and changes"),
        (swap, "L5: entry 2 is too late"),
        (overwrite, "L6: the files differ"),
        (move_back, "L1: the log was moved back to entry 2"),
        (land_on_an_older_head, "L1: .* was landed, and is not in the log"),
    ],
)
def test_a_fault_in_a_log_is_found(
    made: Made, tmp_path: Path, fault: Callable[[Rewriter], None], rule: str
) -> None:
    server, known, files = made
    copy = shutil.copytree(server, tmp_path / "server.git")
    fault(Rewriter(copy))
    with pytest.raises(AssertionError, match=rule):
        check_log(copy, known, BASELINE, files)


def test_an_order_that_is_not_that_of_the_host_is_found_also_in_other_files(made: Made) -> None:
    server, known, files = made
    first, *others, last = known
    wrong = [first, *others, dataclasses.replace(last, seq=0)]
    with pytest.raises(AssertionError, match="L5: entry 5 is too late"):
        check_log(server, wrong, BASELINE, files, Exempt(kept_back={first.id}))
    check_log(server, wrong, BASELINE, files, Exempt(kept_back={last.id}))


def test_a_transaction_of_a_host_that_is_gone_may_be_missing_but_no_earlier_one(made: Made) -> None:
    server, known, files = made
    first, second, *_ = known
    unlanded = dataclasses.replace(known[-1], id="0" * 40, seq=1000)
    exempt = Exempt(gone={"host0"})
    check_log(server, [*known, unlanded], BASELINE, files, exempt)
    with pytest.raises(AssertionError, match="L3: acknowledged and not in the log"):
        check_log(server, [*known, unlanded], BASELINE, files)
    earlier = dataclasses.replace(unlanded, seq=first.seq)
    with pytest.raises(AssertionError, match="L5: entry inf is too late"):
        check_log(server, [earlier, *known[1:]], BASELINE, files, exempt)
    assert second.seq > earlier.seq


def test_a_line_that_nobody_has_sent_is_found_in_all_objects(made: Made, tmp_path: Path) -> None:
    server, known, _ = made
    lines = {*LINES.splitlines(), *(line for one in known for line in one.added.values())}
    assert unknown_lines(server, lines) == set()
    copy = shutil.copytree(server, tmp_path / "server.git")
    pygit2.Repository(str(copy)).create_blob(b"line 1\nnobody has sent it\n")
    assert unknown_lines(copy, lines) == {"nobody has sent it"}
