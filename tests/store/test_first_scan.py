"""A history that begins before its baseline is whole: what the scan adds, and a crash at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.store import first_scan
from editd.store.git_objects import EMPTY_TREE, Trees
from editd.store.git_repository import add_pack, create_store
from editd.store.history import History
from editd.store.pack_writer import PackWriter
from editd.store.verify_history import verify_full
from editd.values.content import Change, Entry, FileState
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, Seq

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from editd.store.git_objects import Oid
    from editd.values.transaction import Transaction
    from editd.wire.messages import Kind

NOW_US = 1_700_000_000_000_000
BEFORE, AFTER = FileState(b"before\n"), FileState(b"after\n")


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    create_store(str(tmp_path / "store.git"))
    first_scan.begin(str(tmp_path), NOW_US)
    history = History.open(str(tmp_path))
    yield history
    history.close()


def record(history: History, path: str, before: FileState | None, after: FileState | None) -> None:
    kind: Kind = "edit" if before is not None or after is AFTER else "baseline"
    change = Change(WorkspacePath(path), before, after)
    draft = history.draft(kind, Authorship("someone"), NOW_US + history.head + 1, [change])
    history.commit([draft])
    history.conclude(draft)


def scanned(history: History, files: Mapping[str, FileState]) -> Oid:
    """Put a pack into the store, as the scan does, and return its tree."""
    made = f"{history.folder}/made"
    writer = PackWriter(made)
    entries = []
    for path, state in files.items():
        writer.add("blob", state.content)
        entries.append((path.encode(), Entry(state.mode, state.version)))
    splice = Trees(EMPTY_TREE, dict[bytes, bytes]().__getitem__).update(entries)
    writer.add("tree", b"", EMPTY_TREE)
    for oid, raw in splice.trees.items():
        writer.add("tree", raw, oid)
    name = writer.finish()
    assert name is not None
    add_pack(history.store, made, name)
    return splice.root


def complete(history: History, files: Mapping[str, FileState]) -> Transaction:
    return first_scan.complete(history, scanned(history, files), NOW_US + 1000)


def held(history: History, path: str, seq: int | None = None) -> bytes | None:
    at = int(history.head) if seq is None else seq
    entry = history.entry_at(WorkspacePath(path), at)
    return None if entry is None else history.content(entry.version)


def test_the_files_of_the_scan_count_as_there_from_the_beginning(history: History) -> None:
    record(history, "a", None, BEFORE)
    record(history, "a", BEFORE, AFTER)
    made = complete(history, {"a": BEFORE, "b": BEFORE, "below/c": BEFORE})
    assert (made.seq, made.kind, made.touches) == (3, "baseline", ())
    assert (held(history, "a", 1), held(history, "a")) == (BEFORE.content, AFTER.content)
    assert held(history, "b", 0) == held(history, "below/c", 1) == held(history, "b") == BEFORE.content
    record(history, "b", BEFORE, AFTER)
    assert (held(history, "b", 0), held(history, "b")) == (BEFORE.content, AFTER.content)


def test_a_file_that_is_gone_for_the_history_does_not_come_back_with_the_scan(history: History) -> None:
    record(history, "a", None, BEFORE)
    record(history, "a", BEFORE, None)
    complete(history, {"a": BEFORE, "b": BEFORE})
    assert (held(history, "a"), held(history, "b")) == (None, BEFORE.content)


@pytest.mark.parametrize(("edited", "found"), [("a", "a/b"), ("a/b", "a")])
def test_an_edited_file_takes_the_place_of_a_folder_or_file_that_the_scan_has_seen(
    history: History, edited: str, found: str
) -> None:
    record(history, edited, None, AFTER)
    complete(history, {found: BEFORE, "other": BEFORE})
    assert (held(history, edited), held(history, found)) == (AFTER.content, None)


def test_an_empty_workspace_has_an_empty_rest(history: History) -> None:
    assert complete(history, {}).seq == 1
    history.index.flush()
    assert verify_full(history.folder) == ([], False)


def test_a_reopened_history_and_a_rebuilt_index_are_the_same(history: History, tmp_path: Path) -> None:
    record(history, "a", None, BEFORE)
    made = complete(history, {"a": BEFORE, "b": BEFORE})
    record(history, "b", BEFORE, AFTER)
    history.index.flush()
    assert verify_full(history.folder, int(made.seq)) == ([], False)
    (tmp_path / "index.db").unlink()
    again = History.open(str(tmp_path))
    assert again.head == 3
    assert again.index.transaction(made.seq) == made
    assert (held(again, "b", 1), held(again, "b")) == (BEFORE.content, AFTER.content)
    again.close()


def test_the_history_is_pending_until_its_last_part_is_recorded(history: History, tmp_path: Path) -> None:
    assert first_scan.is_pending(history.folder)
    made = complete(history, {"a": BEFORE})
    assert not first_scan.is_pending(history.folder)
    (tmp_path / "scanning").write_text(f"{made.id}\n")  # as a crash right after the move of head leaves it
    assert not first_scan.is_pending(history.folder)
    assert not (tmp_path / "scanning").exists()
    (tmp_path / "scanning").write_text("0" * 40 + "\n")  # as a crash right before it
    assert first_scan.is_pending(history.folder)


def test_a_missing_content_of_the_rest_is_named_as_one_of_the_baseline(history: History) -> None:
    lost = FileState(b"lost\n")
    tree = Trees(EMPTY_TREE, dict[bytes, bytes]().__getitem__)
    splice = tree.update([(b"lost", Entry(lost.mode, lost.version))])
    writer = PackWriter(f"{history.folder}/made")
    for oid, raw in splice.trees.items():
        writer.add("tree", raw, oid)
    name = writer.finish()
    assert name is not None
    add_pack(history.store, f"{history.folder}/made", name)
    made = first_scan.complete(history, splice.root, NOW_US + 1000)
    assert made.seq == Seq(1)
    problems, is_damaged = verify_full(history.folder)
    assert not is_damaged
    assert "The baseline's content of lost" in problems[0]
