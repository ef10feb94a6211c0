"""Public reports about undo, history and git in tools that let agents edit files; one test for each.

Each docstring names the report: the repository and its number. Through the real socket, and real git.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Write
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.socket_attacks import Siege

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workplace import Workplace


def refused(ask: Callable[..., object], *given: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        ask(*given, **more)
    return refusal.value


FILES = 5_000
UNDO_SECONDS_MAX, MEMORY_TIMES_MAX = 2.0, 1.2


def test_the_undo_of_a_mass_deletion_takes_minutes(place: Workplace, is_long: bool) -> None:
    """An undo of 1,000 files took 68.91 s (anomalyco/opencode#47029).

    `tests/engine/test_changes_by_time.py` counts the work, without a clock.
    """
    count = FILES if is_long else 500
    files = {f"d/{number // 100}/{number}": f"{number}\n" * 50 for number in range(count)}
    place.write(files)
    with place.start() as client:
        client.settle()
        name = client.exec_begin("rm -r d", session="agent").exec
        shutil.rmtree(place.root / "d")
        client.exec_end(name, 0)
        assert place.process is not None
        daemon = Siege(place, place.process.pid)
        before = daemon.memory()
        began = time.monotonic()
        assert len(client.rollback("agent").files) == count
        seconds = time.monotonic() - began
        assert place.files() == {path: text.encode() for path, text in files.items()}
        if is_long:
            assert seconds < UNDO_SECONDS_MAX
            wait_until(lambda: daemon.memory() < MEMORY_TIMES_MAX * before, "memory is given back")


def test_what_is_taken_back_is_told_in_one_screen(place: Workplace) -> None:
    """Its messages listed every file of node_modules."""
    names = [f"{number:03}" for number in range(300)]
    with place.start() as client:
        client.settle()
        place.write(dict.fromkeys(names, "a person's"))
        client.settle()
        name = client.exec_begin("rm *", session="agent").exec
        for path in names:
            (place.root / path).unlink()
        client.exec_end(name, 0)
        refusal = refused(client.rollback, "agent")
    assert refusal.name == "nothing_to_undo"
    assert "009 (" in refusal.message
    assert " and 290 more." in refusal.message


def test_an_install_and_an_uninstall_of_one_agent_are_not_its_own(place: Workplace) -> None:
    """I had tried the package first. So the agent's install and uninstall of it were taken for mine."""
    package = {f"node_modules/p/{number}.js": "x" for number in range(20)}
    place.write({"package.json": "{}", "index.js": "1"})
    with place.start() as client:
        client.settle()
        place.write(package)
        client.settle()
        shutil.rmtree(place.root / "node_modules")
        client.settle()
        for command, made in (("npm install p", package), ("npm uninstall p", {"index.js": "2"})):
            name = client.exec_begin(command, session="agent").exec
            shutil.rmtree(place.root / "node_modules", ignore_errors=True)
            place.write(made)
            client.exec_end(name, 0)
        result = client.rollback("agent")
    assert result.warnings == []
    assert [file.path for file in result.files] == ["index.js"]
    assert place.files() == {"package.json": b"{}", "index.js": b"1"}


def test_a_nested_repository_switches_the_checkpoints_off(place: Workplace) -> None:
    """A repository inside the project disabled the checkpoints (RooCodeInc/Roo-Code#8433)."""
    place.write({"backend/a.py": "a\n", "frontend/b.ts": "b\n"})
    for name in ("backend", "frontend"):
        place.git("init", "-q", name)
    with place.start() as client:
        client.settle()
        made = client.exec_begin("sed -i s/a/x/ */*", session="agent").exec
        place.write({"backend/a.py": "x\n", "frontend/b.ts": "x\n"})
        client.exec_end(made, 0)
        client.rollback("agent")
    assert place.files() == {"backend/a.py": b"a\n", "frontend/b.ts": b"b\n"}


def test_a_git_file_and_a_link_out_of_the_project_are_taken_for_the_wrong_tree(
    place: Workplace, tmp_path: Path
) -> None:
    """Submodules and worktrees went unseen, and links led outside (RooCodeInc/Roo-Code#11340)."""
    outside = tmp_path / "outside"
    outside.mkdir()
    place.git("init", "-qb", "main")
    place.write({"a.txt": "a\n"})
    place.git("add", "-A")
    place.git("commit", "-qm", "first")
    place.git("worktree", "add", "-q", "wt", "-b", "side")
    place.git("worktree", "add", "-q", str(outside / "wt"), "-b", "other")
    (place.root / "link").symlink_to(outside)
    place.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(place.root), "sub")
    with place.start() as client:
        client.apply([Write(path="sub/a.txt", content="agent\n", force=True)])
        client.undo()
        assert "linked worktree" in refused(client.apply, [Write(path="wt/a.txt", content="")]).message
        left_out = [line for line in client.status().uncovered if "worktree" in line]
        assert [line.split(" ")[0] for line in left_out] == ["wt"]
    assert (place.root / "sub/a.txt").read_text() == "a\n"
