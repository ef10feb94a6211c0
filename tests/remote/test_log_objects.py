"""log_objects: an object is read only by the kind that its place in the log asks for."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.remote.entries import Tentative, read_queue, write_empty_queue, write_waiting
from editd.remote.log_objects import LogObjects
from editd.store.git_objects import EMPTY_TREE, oid_of
from editd.store.git_repository import create_store
from editd.values.content import SYMLINK, Change, Entry, GitMode, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId

if TYPE_CHECKING:
    from pathlib import Path


def test_an_object_of_another_kind_is_refused_before_and_after_it_is_written(tmp_path: Path) -> None:
    store = tmp_path / "store.git"
    create_store(str(store))
    objects = LogObjects(str(tmp_path / "log.git"), str(store))
    blob = objects.put("blob", b"text\n")
    tree = objects.put("tree", b"100644 a\0" + blob)
    who = b"x <x@x> 0 +0000"
    commit = objects.put(
        "commit", b"tree %b\nauthor %b\ncommitter %b\n\nx\n" % (tree.hex().encode(), who, who)
    )
    reads = {"blob": objects.blob, "tree": objects.tree, "commit": objects.commit}
    kinds = {"blob": blob, "tree": tree, "commit": commit}
    for _ in range(2):
        for name, read in reads.items():
            for kind, oid in kinds.items():
                if kind == name:
                    assert read(oid)
                    continue
                with pytest.raises(ValueError, match=f"a {kind} .* in the place of a {name}"):
                    read(oid)
        objects.write()
        objects.reopen()
    assert objects.tree(EMPTY_TREE) == b""
    with pytest.raises(KeyError):
        objects.blob(b"x" * 20)
    git = ["git", "--git-dir", str(tmp_path / "log.git")]
    made = subprocess.run(
        [*git, "mktag"], input=b"object %b\ntype blob\ntag t\ntagger %b\n\nx\n" % (blob.hex().encode(), who),
        capture_output=True, check=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"a tag .* in the place of a commit"):
        objects.commit(oid_of(made.stdout.decode().strip()))
    objects.close()


@pytest.mark.parametrize(
    ("mode", "content", "reason"),
    [(SYMLINK, b"a\0b", "no file system can have the link"), (0o100644, None, "in the place of a blob")],
)
def test_a_queued_transaction_with_a_file_that_no_host_can_have_is_landed_by_no_host(
    tmp_path: Path, mode: GitMode, content: bytes | None, reason: str
) -> None:
    """It would land as unusable, so its origin would not be in the log, and each host would land it again."""
    store = tmp_path / "store.git"
    create_store(str(store))
    objects = LogObjects(str(tmp_path / "log.git"), str(store))
    oid = objects.put("tree", b"") if content is None else objects.put("blob", content)
    change = Change(WorkspacePath("a"), None, Entry(mode, Version(oid.hex())))
    waiting = Tentative(CommitId("ab" * 20), "h", "edit", Authorship("ann"), 1_789_997_600_000_000, (change,))
    head = write_waiting(objects, waiting, write_empty_queue(objects, "h"))
    with pytest.raises(ValueError, match=reason):
        read_queue(objects, head)
    objects.close()
