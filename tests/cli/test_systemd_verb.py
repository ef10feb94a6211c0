"""`editctl systemd`, and the daemon as systemd's own tools start it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd_client.cli.systemd import Units
from editd_client.locate import Workspace
from support.supervisor import supervised
from support.workplace import START_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]

# A `systemctl` that answers and writes down what it was told.
SYSTEMCTL = """#!/bin/sh
shift
echo "$*" >> "$HOME/told"
case $1 in
is-system-running) echo running ;;
is-enabled) echo enabled ;;
is-active) echo active ;;
start | enable) test ! -e "$HOME/broken" || { echo "Job failed." >&2; exit 1; } ;;
esac
"""


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def editctl(place: Workplace) -> Run:
    place.variables["EDITD_WORKSPACE"] = str(place.root)

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = place.editctl(*words)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def manager(place: Workplace) -> Path:
    """The `systemctl` above comes first in the PATH; what it was told is in the file returned."""
    folder = place.folder / "bin"
    folder.mkdir()
    (folder / "systemctl").write_text(SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    place.variables["PATH"] = f"{folder}:{os.environ['PATH']}"
    return place.folder / "home" / "told"


def units_of(place: Workplace) -> Units:
    return Units.of(Workspace(str(place.root), "named"))


def test_install_writes_the_units_and_enables_the_socket_and_uninstall_leaves_nothing(
    editctl: Run, place: Workplace, manager: Path
) -> None:
    folder, units = place.folder / "config/systemd/user", units_of(place)
    assert editctl("systemd", "status", code=3).stdout.startswith("units       not installed")
    editctl("systemd", "install", "--now")
    told = manager.read_text().splitlines()
    assert told[-2:] == ["daemon-reload", f"enable --now {units.socket}"]
    assert {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} == {
        "editd@.service", "editd@.socket", *units.own_files(),
    }  # fmt: skip
    assert json.loads(editctl("systemd", "status", "--json").stdout)["installed"]
    editctl("systemd", "uninstall")
    told = manager.read_text().splitlines()
    assert [line for line in told if not line.startswith("is-")][-3:] == [
        f"disable --now {units.socket}", f"stop {units.service}", "daemon-reload",
    ]  # fmt: skip
    assert list(folder.iterdir()) == []


def test_a_workspace_in_a_log_or_with_the_option_gets_the_drop_in_for_remotes(
    editctl: Run, place: Workplace, manager: Path
) -> None:
    assert not manager.exists()
    folder, units = place.folder / "config/systemd/user", units_of(place)
    drop_in = folder / units.remote_file
    editctl("systemd", "install")
    assert not drop_in.exists()
    editctl("systemd", "install", "--remote")
    text = drop_in.read_text()
    assert "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6" in text
    editctl("systemd", "install")
    assert drop_in.read_text() == text, "it stays as it was"
    editctl("systemd", "uninstall")
    assert list(folder.iterdir()) == []
    place.state.mkdir(parents=True)
    (place.state / "remote.json").write_text("{}")
    editctl("systemd", "install")
    assert drop_in.read_text() == text
    (place.state / "remote.json").unlink()


def test_the_templates_stay_while_another_workspace_needs_them(
    editctl: Run, place: Workplace, manager: Path
) -> None:
    assert not manager.exists()
    other = place.folder / "other"
    other.mkdir()
    editctl("systemd", "install")
    editctl("-C", str(other), "systemd", "install")
    editctl("systemd", "uninstall")
    folder = place.folder / "config/systemd/user"
    assert (folder / "editd@.service").exists()
    editctl("-C", str(other), "systemd", "uninstall")
    assert list(folder.iterdir()) == []


def test_where_no_systemd_answers_install_says_what_to_run(editctl: Run, place: Workplace) -> None:
    place.variables["PATH"] = "/nowhere"
    done = editctl("systemd", "install", "--now")
    assert "hint: no systemd answers here." in done.stderr
    assert f"systemctl --user enable --now '{units_of(place).socket}'" in done.stderr
    run = json.loads(editctl("systemd", "install", "--json").stdout)["run"]
    assert run[0] == "systemctl --user daemon-reload"


def test_what_systemd_refuses_is_told(editctl: Run, manager: Path) -> None:
    (manager.parent / "broken").touch()
    done = editctl("systemd", "install", code=3)
    assert "Job failed." in done.stderr


@needs("systemd-analyze")
@pytest.mark.parametrize("name", ["plain", "with space and 100% $HOME", "ä-'\"\\"])
def test_the_units_as_installed_are_what_systemd_verifies(
    editctl: Run, place: Workplace, manager: Path, name: str
) -> None:
    root = place.folder / name
    root.mkdir()
    editctl("-C", str(root), "systemd", "install", "--remote")
    assert manager.exists()
    units = Units.of(Workspace(str(root), "named"))
    folder = place.folder / "config/systemd/user"
    # man: the pages are where `pip install` puts them, which need not be where man looks.
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", "--recursive-errors=no", "--man=no",
         str(folder / units.socket), str(folder / units.service)],
        env=place.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@needs("systemd-socket-activate")
def test_systemd_starts_the_daemon_for_the_first_client(editctl: Run, place: Workplace) -> None:
    os.makedirs(os.path.dirname(place.socket), 0o700)
    waiting = subprocess.Popen(
        ["systemd-socket-activate", "--listen", place.socket, "--fdname=editd",
         "-E", "PYTHONPATH", *(f"--setenv={name}" for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")),
         sys.executable, "-P", "-m", "editd", "--foreground", "-C", str(place.root)],
        env=place.environment, stderr=subprocess.PIPE,
    )  # fmt: skip
    place.process = waiting
    assert waiting.stderr is not None
    with waiting.stderr as said:
        assert b"Listening on" in said.readline()
        status = json.loads(editctl("status", "--json").stdout)
        assert status["pid"] == waiting.pid, "the one that systemd has started, and no other"
        editctl("stop")
        assert waiting.wait(START_SECONDS) == 0
        assert os.path.exists(place.socket), "the socket is systemd's"
        said.read()


def test_stop_ends_it_and_the_next_editctl_is_served_by_the_unit(editctl: Run, place: Workplace) -> None:
    with supervised(place) as unit:
        unit.start()
        unit.hear("READY=1")
        editctl("stop")
        unit.hear("STOPPING=1")
        assert unit.process is not None
        assert unit.process.wait(START_SECONDS) == 0
        unit.start()
        assert json.loads(editctl("start", "--json").stdout)["pid"] == unit.process.pid
        unit.end()


def test_where_the_unit_is_gone_editctl_starts_a_daemon_itself(editctl: Run, place: Workplace) -> None:
    with supervised(place) as unit:
        unit.start()
        unit.hear("READY=1")
        unit.end()
    assert os.path.exists(place.socket), "nobody listens there any more, and that is no hindrance"
    try:
        status = json.loads(editctl("start", "--json").stdout)
        assert unit.process is not None
        assert status["pid"] != unit.process.pid
    finally:
        editctl("stop")


def test_units_that_cannot_be_written_are_told_as_that(editctl: Run, place: Workplace) -> None:
    (place.folder / "config" / "systemd").write_text("no folder\n")
    done = editctl("systemd", "install", code=3)
    assert done.stderr.startswith("editctl: The units cannot be written: ")
