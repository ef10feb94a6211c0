"""client.units: the units of a workspace are such as systemd reads them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from editd_client.cli import systemd
from editd_client.cli.systemd import Units, escape_path
from editd_client.errors import EditdError
from editd_client.locate import Workspace
from support.workplace import TOP

if TYPE_CHECKING:
    from pathlib import Path

PATHS = [
    "/home/ann/src/project",
    "/srv/a b/c-d/e_f:g.h",
    "/.hidden/.also",
    "/.",
    "/ä/日本/%i/$HOME/\\x2d/~+,;'\"",
    "/home/ann/100%",
    os.fsdecode(b"/home/\xff\xfe/\x01"),
    "/",
]


@pytest.mark.skipif(shutil.which("systemd-escape") is None, reason="systemd-escape is not installed")
@pytest.mark.parametrize("path", [path for path in PATHS if path != "/."])
def test_a_path_is_escaped_as_systemd_escapes_it(path: str) -> None:
    asked = subprocess.run(["systemd-escape", "--path", "--", path], capture_output=True, check=True)
    assert escape_path(path) == os.fsdecode(asked.stdout).rstrip("\n")


def test_a_path_that_is_too_long_for_a_unit_is_refused_by_how_much() -> None:
    assert Units.of(Workspace("/" + "a" * 239, "named")).instance == "a" * 239
    with pytest.raises(EditdError, match="by 1 characters") as refused:
        Units.of(Workspace("/" + "a" * 240, "named"))
    assert "without a unit" in (refused.value.hint or "")


def test_the_drop_ins_say_where_clients_look_and_where_the_history_is(tmp_path: Path) -> None:
    workspace = Workspace(str(tmp_path), "named")
    of_one = Units.of(workspace)
    files = of_one.files({})
    assert f"ListenStream=%t/editd/{workspace.id}.sock\n" in files[f"{of_one.socket}.d/workspace.conf"]
    assert "Environment" not in files[f"{of_one.service}.d/workspace.conf"]
    assert os.path.dirname(workspace.state_folder) in files[f"{of_one.service}.d/workspace.conf"]

    files = of_one.files({"XDG_STATE_HOME": '/s 1/100%/"q"', "EDITD_SOCKET": "/run/50%.sock"})
    assert "ListenStream=/run/50%%.sock\n" in files[f"{of_one.socket}.d/workspace.conf"]
    assert 'Environment="XDG_STATE_HOME=/s 1/100%%/\\"q\\""\n' in files[f"{of_one.service}.d/workspace.conf"]
    with pytest.raises(EditdError, match="cannot hold"):
        of_one.files({"XDG_STATE_HOME": "/state\nExecStart=/bin/evil"})


def test_a_workspaces_own_name_adds_no_line_to_a_unit(tmp_path: Path) -> None:
    root = tmp_path / "a\nExecStart=:evil\\"
    root.mkdir()
    for name, content in Units.of(Workspace(str(root), "named")).files({}).items():
        assert "\nExecStart=:evil" not in content, name
        assert "\\\n" not in content, "no comment goes on in the next line"


def test_a_linked_worktree_may_be_published_from(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q", "main"], cwd=tmp_path, check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], cwd=tmp_path / "main", check=True)
    subprocess.run([*git, "worktree", "add", "-q", "../other"], cwd=tmp_path / "main", check=True)
    of_other = Units.of(Workspace(str(tmp_path / "other"), "git"))
    written = of_other.files({})[f"{of_other.service}.d/workspace.conf"]
    assert f"ReadWritePaths=-{(tmp_path / 'main' / '.git').resolve()}\n" in written


def test_the_service_names_the_editd_of_this_installation() -> None:
    service = Units.of(Workspace("/srv/x", "named")).files({})[systemd.SERVICE]
    assert f"ExecStart=:{sys.executable} -P -m editd --foreground -C %f\n" in service
    assert service.count("ExecStart=") == 1


def test_the_wheel_has_the_units_and_the_manual(tmp_path: Path, is_long: bool) -> None:
    if not is_long:
        pytest.skip("a wheel is built in the long form: `pytest --long`")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(tmp_path), str(TOP)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "installed")
    for name in (systemd.SERVICE, systemd.SOCKET, systemd.REMOTE):
        installed = tmp_path / "installed/editd_client/systemd" / name
        assert installed.read_text() == systemd.template(name)
    for page in ("man1/editd.1", "man1/editctl.1", "man7/editd.7"):
        assert any(name.endswith(f".data/data/share/man/{page}") for name in names), page
    asked = "from editd_client.cli import systemd; print(systemd.template('editd@.socket'))"
    done = subprocess.run(
        [sys.executable, "-c", asked], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, check=True,
    )  # fmt: skip
    assert b"FileDescriptorName=editd" in done.stdout
