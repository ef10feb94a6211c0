"""workspace.in_place: a named file keeps its inode, and a killed or refused write leaves a whole content."""

from __future__ import annotations

import stat
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from editd.system.filesystem import Disk
from editd.values.content import EXECUTABLE, FileState
from editd.workspace.in_place import is_partly_written
from editd.workspace.publish import ConcurrentWrite
from editd.workspace.replaced_files import Quarantine
from editd.workspace.writer import WorkspaceWriter
from support.working_files import NEW, OLD, THEIRS, change, commit_and_publish, held, put

if TYPE_CHECKING:
    from pathlib import Path

LONG = FileState(b"a longer content than the others")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    put(made, {"named": OLD, "other": OLD})
    return made


@pytest.fixture
def files(root: Path) -> WorkspaceWriter:
    replaced = Quarantine(str(root.parent / "replaced"))
    return WorkspaceWriter(Disk(str(root)), replaced=replaced, in_place=["named"])


def test_a_named_file_keeps_its_inode_whatever_its_length_and_mode(
    root: Path, files: WorkspaceWriter
) -> None:
    inode = (root / "named").stat().st_ino
    states = [OLD, LONG, NEW, FileState(b"", EXECUTABLE), OLD]
    for before, after in pairwise(states):
        changes = [change("named", before, after), change("other", before, after)]
        files.check(changes)
        staging = files.stage(changes, files.token(changes))
        commit_and_publish(files, staging)
        files.finish(staging)
        assert held(root) == {"named": after, "other": after}
        assert (root / "named").stat().st_ino == inode
    assert (root / "other").stat().st_ino != inode


def test_a_new_content_has_no_privileges_also_if_the_daemon_runs_as_root(
    root: Path, files: WorkspaceWriter
) -> None:
    """The attack: an edit gives a setuid program another content. The kernel lets root keep the bit."""
    (root / "named").chmod(0o6755)
    before, after = FileState(OLD.content, EXECUTABLE), FileState(NEW.content, EXECUTABLE)
    changes = [change("named", before, after)]
    staging = files.stage(changes, files.token(changes))
    commit_and_publish(files, staging)
    files.finish(staging)
    assert stat.S_IMODE((root / "named").stat().st_mode) == 0o755


def test_a_file_that_another_program_has_changed_is_not_overwritten(
    root: Path, files: WorkspaceWriter
) -> None:
    changes = [change("named", OLD, NEW)]
    staging = files.stage(changes, files.token(changes))
    put(root, {"named": THEIRS})
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(root) == {"named": THEIRS, "other": OLD}


def test_a_later_change_that_fails_takes_the_written_content_back(root: Path, files: WorkspaceWriter) -> None:
    changes = [change("named", OLD, LONG), change("other", OLD, NEW)]
    staging = files.stage(changes, files.token(changes))
    put(root, {"other": THEIRS})
    inode = (root / "named").stat().st_ino
    with pytest.raises(ConcurrentWrite):
        commit_and_publish(files, staging)
    files.discard(staging)
    assert held(root) == {"named": OLD, "other": THEIRS}
    assert (root / "named").stat().st_ino == inode


@pytest.mark.parametrize("length", [1, 2, len(LONG.content) - 1, len(LONG.content)])
def test_recovery_completes_the_write_of_a_killed_daemon(
    root: Path, files: WorkspaceWriter, length: int
) -> None:
    for before, after in ((OLD, LONG), (LONG, OLD)):
        written = min(length, len(after.content))
        torn = after.content[:written] + before.content[written:]
        assert is_partly_written(torn, before.content, after.content)
        (root / "named").write_bytes(torn)
        inode = (root / "named").stat().st_ino
        assert files.put(change("named", before, after).path, after, [before], "0" * 16)
        assert held(root)["named"] == after
        assert (root / "named").stat().st_ino == inode


def test_recovery_leaves_the_content_of_another_program(root: Path, files: WorkspaceWriter) -> None:
    (root / "named").write_bytes(THEIRS.content)
    assert not files.put(change("named", OLD, NEW).path, NEW, [OLD], "0" * 16)
    assert held(root)["named"] == THEIRS
