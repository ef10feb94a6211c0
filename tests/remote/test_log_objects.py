"""log_objects: an object is read only by the kind that its place in the log asks for."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.remote.log_objects import LogObjects
from editd.store.git_objects import EMPTY_TREE, oid_of
from editd.store.git_repository import create_store

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
