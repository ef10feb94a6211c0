"""One daemon for one folder, by whatever path it is reached, and whatever comes to stand at its path."""

from __future__ import annotations

import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from editd.system import flock
from editd_client.errors import EditdError
from support import machine
from support.crash_checks import transactions
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace


def start_another(place: Workplace, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return place.editd("--foreground", *argv, **variables)


def test_a_second_daemon_of_the_same_folder_through_a_bind_mount_is_refused(place: Workplace) -> None:
    other = place.folder / "other path"
    with place.start():
        daemon = place.process
        assert daemon is not None
        try:
            mount = machine.mounted(place.root, other, options="bind", kind="none")
            mount.__enter__()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"nothing can be mounted here: {error.stderr!r}")
        try:
            done = start_another(place, "-C", str(other))
        finally:
            mount.__exit__(None, None, None)
    assert done.returncode == 1
    assert f"has locked {other} as {place.root}" in done.stderr
    assert f"Process {daemon.pid} " in done.stderr
    assert f"`editctl -C {place.root}`" in done.stderr


def test_a_second_daemon_with_its_state_elsewhere_is_refused(place: Workplace) -> None:
    elsewhere = {name: str(place.folder / "elsewhere") for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR")}
    with place.start():
        done = start_another(place, "-C", str(place.root), **elsewhere)
    assert done.returncode == 1
    assert "has locked" in done.stderr
    assert "keep its state elsewhere" in done.stderr


def test_a_folder_that_a_program_has_locked_is_refused_at_once_and_the_program_named(
    place: Workplace,
) -> None:
    argv = ["flock", str(place.root), "sh", "-c", "echo locked; read ended"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as locking:
        assert locking.stdout is not None
        assert locking.stdout.readline() == b"locked\n"
        done = start_another(place, "-C", str(place.root))
        locking.communicate()
    assert done.returncode == 1
    assert f"Process {locking.pid} (flock) has locked {place.root}." in done.stderr
    assert "lock a file in the folder instead" in done.stderr
    place.start().close()
    place.stop()


def test_a_folder_that_is_locked_is_free_when_its_daemon_was_killed(place: Workplace) -> None:
    place.start().close()
    place.kill()
    with place.start() as client:
        client.apply([write("a", "1\n")])


def test_a_start_waits_for_a_child_that_still_holds_the_lock_of_a_killed_daemon(place: Workplace) -> None:
    """The child closes the lock's descriptor at its exec, and the daemon may be killed before that."""
    place.start().close()
    place.kill()
    lock = flock.take(str(place.state / "lock"))
    assert lock is not None
    timer = threading.Timer(0.3, lock.release)
    timer.start()
    try:
        with place.start() as client:
            assert client.status().head == 0
    finally:
        timer.join()


def test_a_clone_in_the_workspaces_place_is_told_of_and_taken_in_by_the_next_daemon(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "mine\n"), write("kept", "the same\n")])
        shutil.rmtree(place.root)
        place.write({"a": "of the clone\n", "kept": "the same\n"})
        for ask in (client.settle, lambda: client.apply([write("a", "2\n")])):
            with pytest.raises(EditdError, match=f"{place.root} is another folder now") as refused:
                ask()
            assert "editctl stop" in str(refused.value.hint)
            assert "No such file" not in refused.value.message
        assert f"{place.root} is another folder now" in str(client.status().reason)
    place.stop()
    with place.start() as client:
        client.settle()
        last = transactions(client)[-1]
        assert (last.kind, [change.path for change in last.files]) == ("outside", ["a"])
        assert client.read("a").content == "of the clone\n"
        client.undo(last.seq)
        assert client.read("a").content == "mine\n"
        assert client.check().problems == []
