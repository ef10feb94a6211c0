"""Git objects in memory: what git itself would have named them, at every step."""

from __future__ import annotations

import os
import random
import subprocess
from collections import deque
from typing import TYPE_CHECKING

import pytest

from editd.store.git_objects import (
    EMPTY_TREE,
    CommitObject,
    GitTree,
    Oid,
    PendingObjects,
    Trees,
    commit_content,
    object_id,
    oid_of,
    tree_changes,
    usable_tree,
)
from editd.values.content import EXECUTABLE, FILE, SYMLINK, Entry, Version
from support.seeds import seed

if TYPE_CHECKING:
    from pathlib import Path

    from editd.values.content import GitMode

# Names that sort differently as files and as folders, and one that looks like a tree's own bytes.
NAMES = ["a", "b", "a.b", "a-b", "a0", "d", "e x", "100644 a", "z", "\u00e9"]


def git_tree(folder: Path, files: dict[bytes, Oid]) -> str:
    """The tree that git makes of these files."""
    index = folder / "index"
    index.unlink(missing_ok=True)
    environment = {**os.environ, "GIT_DIR": str(folder), "GIT_INDEX_FILE": str(index)}
    lines = b"".join(b"100644 %b\t%b\0" % (oid.hex().encode(), path) for path, oid in files.items())
    command = ["git", "update-index", "-z", "--add", "--index-info"]
    subprocess.run(command, input=lines, env=environment, check=True)
    done = subprocess.run(
        ["git", "write-tree", "--missing-ok"], env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path)], check=True)
    return tmp_path


def file(oid: Oid) -> Entry:
    return Entry(FILE, Version(oid.hex()))


def test_after_any_changes_the_tree_is_the_one_that_git_makes(repository: Path) -> None:
    choose = random.Random(3)
    stored: dict[Oid, bytes] = {}
    trees, model = Trees(EMPTY_TREE, stored.__getitem__), dict[bytes, Oid]()
    for step in range(1500):
        changes = random_changes(choose, model)
        before = trees.root
        splice = trees.update((path, None if oid is None else file(oid)) for path, oid in changes.items())
        if choose.random() < 0.3:
            trees.revert(splice)
            assert trees.root == before
            continue
        stored.update(splice.trees)
        if choose.random() < 0.1:
            trees = Trees(splice.root, stored.__getitem__)  # as after a restart
        found = {
            path: oid_of(after.version) if after else None
            for path, _, after in changed(stored, before, trees.root)
        }
        assert found == {p: o for p, o in changes.items() if model.get(p) != o}
        for path, oid in changes.items():
            if oid is None:
                del model[path]
            else:
                model[path] = oid
        if step % 50 == 0:
            assert trees.root.hex() == git_tree(repository, model)


def changed(
    stored: dict[Oid, bytes], before: Oid, after: Oid
) -> list[tuple[bytes, Entry | None, Entry | None]]:
    return list(tree_changes(stored.__getitem__, before, after))


def random_changes(choose: random.Random, model: dict[bytes, Oid]) -> dict[bytes, Oid | None]:
    changes: dict[bytes, Oid | None] = {}
    for _ in range(choose.randint(1, 4)):
        path = "/".join(choose.choice(NAMES) for _ in range(choose.randint(1, 4))).encode()
        held = {p: o for p, o in (model | changes).items() if o is not None}
        if path in held and path not in changes and choose.random() < 0.5:
            changes[path] = None
        elif not any(p.startswith(path + b"/") or path.startswith(p + b"/") for p in held if p != path):
            changes[path] = object_id("blob", b"%d" % choose.randrange(50))
    return changes


def test_a_file_may_take_the_place_of_an_emptied_folder_and_back() -> None:
    stored: dict[Oid, bytes] = {}
    trees = Trees(EMPTY_TREE, stored.__getitem__)
    entry = file(object_id("blob", b""))
    stored.update(trees.update([(b"a/b", entry), (b"a/c/d", entry)]).trees)
    stored.update(trees.update([(b"a", entry), (b"a/b", None), (b"a/c/d", None)]).trees)
    assert trees.entry(b"a") == entry
    assert trees.folder(b"a") is None
    stored.update(trees.update([(b"a/b", entry), (b"a", None)]).trees)
    assert trees.entry(b"a") is None
    assert trees.entry(b"a/b") == entry


MODES: dict[bytes, GitMode] = {b"100644": FILE, b"100755": EXECUTABLE}


def any_entry(draw: random.Random) -> tuple[bytes, bytes]:
    """Return the mode and the id of a file; now and then the id has bytes that look like entries."""
    oids = draw.randbytes(20), bytes(20), b"100644 a\0" + draw.randbytes(11), b"\0aa 100755 b\0" + bytes(7)
    return draw.choice(sorted(MODES)), draw.choice(oids)


def test_two_trees_differ_in_the_files_that_only_one_has(is_long: bool) -> None:
    draw = random.Random(seed())
    for _ in range(20_000 if is_long else 2_000):
        old = {b"%c%d" % (draw.randrange(97, 99), draw.randrange(12)): any_entry(draw) for _ in range(15)}
        new = dict(old)
        for name in draw.choices(sorted(old), k=draw.randrange(1, 4)):
            change = draw.random()
            if change < 0.6:
                new[name] = any_entry(draw)
            elif (kept := new.pop(name, None)) is not None and change < 0.8:
                new[name[:-1] + b"z"] = kept
        trees = [
            b"".join(b"%b %b\0%b" % (mode, name, oid) for name, (mode, oid) in sorted(files.items()))
            for files in (old, new)
        ]
        stored: dict[Oid, bytes] = {b"1": trees[0], b"2": trees[1]}
        assert list(tree_changes(stored.__getitem__, b"1", b"2")) == [
            (name, *(side and Entry(MODES[side[0]], Version(side[1].hex())) for side in (before, after)))
            for name in sorted(old.keys() | new.keys())
            if (before := old.get(name)) != (after := new.get(name))
        ]


def test_a_tree_of_no_files_is_the_empty_tree() -> None:
    trees = Trees(EMPTY_TREE, dict[Oid, bytes]().__getitem__)
    trees.update([(b"a/b/c", file(bytes(20)))])
    assert trees.update([(b"a/b/c", None)]).root == EMPTY_TREE


def test_a_decoded_folder_encodes_to_the_same_bytes() -> None:
    raw = b"100644 a.b\0" + b"\x01" * 20 + b"40000 a\0" + b"\x02" * 20 + b"120000 b\0" + b"\x20" * 20
    folder = GitTree.decode(raw)
    assert b"".join(folder.entries) == raw
    assert folder.folders() == {b"a": b"\x02" * 20}
    assert folder.files() == {
        b"a.b": Entry(FILE, Version("01" * 20)),
        b"b": Entry(SYMLINK, Version("20" * 20)),
    }


def test_git_reads_the_commits(repository: Path) -> None:
    content = commit_content(
        EMPTY_TREE, [], "A U Thor <a@b.invalid>", "editd <e@b.invalid>", 5_000_000, "é\n\nSeq: 1\n"
    )
    done = subprocess.run(
        ["git", "--git-dir", str(repository), "hash-object", "-t", "commit", "-w", "--stdin"],
        input=content, capture_output=True, check=True,
    )  # fmt: skip
    assert oid_of(done.stdout.decode()) == object_id("commit", content)
    assert CommitObject.decode(content) == CommitObject(EMPTY_TREE, None, "é\n\nSeq: 1\n")


def test_a_usable_tree_has_only_gits_modes_and_no_submodule() -> None:
    oid = b"o" * 20
    good = b"".join(b"%b %b\0%b" % (mode, name, oid) for mode, name in [(b"100644", b"a"), (b"40000", b"b")])
    assert usable_tree(good) == good
    odd = [
        (b"104755", b"a", b"100755"), (b"100664", b"b", b"100644"), (b"040000", b"c", b"40000"),
        (b"160000", b"d", None), (b"140000", b"e", None), (b"120777", b"f", b"120000"),
        (b"777777777777777777777", b"g", None), (b"0100600", b"h", b"100644"),
    ]  # fmt: skip
    raw = b"".join(b"%b %b\0%b" % (mode, name, oid) for mode, name, _ in odd)
    expected = [(mode, name) for _, name, mode in odd if mode is not None]
    assert usable_tree(raw) == b"".join(b"%b %b\0%b" % (mode, name, oid) for mode, name in expected)
    names = [(b"100644", b"b"), (b"100644", b"a"), (b"40000", b"a"), (b"100644", b"c/d"), (b"100644", b"b")]
    once = b"100644 a\0%b100644 b\0%b" % (oid, oid)
    assert usable_tree(b"".join(b"%b %b\0%b" % (mode, name, oid) for mode, name in names)) == once
    kept = [(b"160000", b"d"), (b"140000", b"e"), (b"160644", b"f")]
    raw = b"".join(b"%b %b\0%b" % (mode, name, oid) for mode, name in kept)
    assert usable_tree(raw, keeps_modules=True) == b"160000 d\0" + oid
    for broken in (b"x", good[:-1], good + b"100644 z"):
        with pytest.raises(ValueError, match="not a tree"):
            usable_tree(broken)


def test_a_submodule_stays_until_a_file_or_a_folder_replaces_it_or_its_folder_is_empty() -> None:
    module, entry = b"160000 m\0" + b"m" * 20, file(object_id("blob", b""))
    inner, stored = object_id("tree", module), {object_id("tree", module): module}
    root = b"40000 d\0" + inner + module
    stored[object_id("tree", root)] = root

    def after(*changes: tuple[bytes, Entry | None]) -> Trees:
        trees = Trees(object_id("tree", root), stored.__getitem__)
        for change in changes:
            stored.update(trees.update([change]).trees)
        return trees

    def names(*changes: tuple[bytes, Entry | None]) -> list[bytes]:
        return [one[: one.index(b"\0")] for one in GitTree.decode(stored[after(*changes).root]).entries]

    shown = after().folder(b"")
    assert shown is not None
    assert (shown.file(b"m"), shown.folder(b"m"), shown.files()) == (None, None, {})
    assert names((b"a", entry), (b"m.a", entry)) == [b"100644 a", b"40000 d", b"160000 m", b"100644 m.a"]
    assert names((b"m", entry)) == [b"40000 d", b"100644 m"]
    assert names((b"m/a", entry)) == [b"40000 d", b"40000 m"]
    assert names((b"m", None)) == [b"40000 d", b"160000 m"]
    assert module in stored[after((b"d/a", entry)).folder(b"").folder(b"d")]  # type: ignore[union-attr, index]
    assert names((b"d/a", entry), (b"d/a", None)) == [b"160000 m"]


def test_an_object_waits_until_the_last_transaction_that_needs_it_is_packed() -> None:
    pending = PendingObjects()
    needed = Oid(b"n" * 20)
    for seq in (1, 2, 3):
        pending.hold(seq, [(needed, b"needed")])
    pending.release(1)
    pending.drop(3)
    assert (pending.get(needed), pending.bytes) == (b"needed", 6)
    pending.release(2)
    assert (pending.get(needed), pending.bytes) == (None, 0)


class FailingOrder(deque[tuple[int, Oid, int]]):
    """The order of the held objects, without memory for one more."""

    is_late = False  # whether the object is in the order when it fails

    def append(self, value: tuple[int, Oid, int]) -> None:
        if self.is_late:
            super().append(value)
        raise MemoryError


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_an_object_whose_holding_fails_is_as_before_once_it_is_dropped(
    *, is_late: bool, is_known: bool
) -> None:
    pending, oid = PendingObjects(), object_id("blob", b"text")
    if is_known:
        pending.hold(1, [(oid, b"text")])
    before = pending.bytes, pending.get(oid)
    pending._order = FailingOrder(pending._order)
    pending._order.is_late = is_late
    with pytest.raises(MemoryError):
        pending.hold(2, [(oid, b"text")])
    pending.drop(2)
    assert (pending.bytes, pending.get(oid)) == before
    pending.release(1)
    assert (pending.bytes, pending.get(oid)) == (0, None)
