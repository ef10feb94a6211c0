"""Which folder is the workspace, and where its socket lies."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from editd.config.runtime_folder import socket_folder
from editd.errors import PermissionDenied
from editd.server.ownership import WorkspacePaths
from editd_client.errors import EditdError
from editd_client.locate import find_workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("EDITD_WORKSPACE", "EDITD_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_the_workspace_is_the_git_top_level_above(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    found = find_workspace(start=str(inner))
    assert (found.root, found.found) == (os.path.realpath(tmp_path / "project"), "git")


def test_a_git_file_marks_a_linked_worktree_as_well(tmp_path: Path) -> None:
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: /elsewhere\n")
    assert find_workspace(start=str(tmp_path / "tree" / "a")).root == os.path.realpath(tmp_path / "tree")


def test_without_git_it_is_the_folder_itself(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    found = find_workspace(start=str(tmp_path / "plain"))
    assert (found.root, found.found) == (os.path.realpath(tmp_path / "plain"), "here")


def test_what_is_named_comes_first_then_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("named", "told", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("EDITD_WORKSPACE", str(tmp_path / "told"))
    start = str(tmp_path / "here")
    assert find_workspace(start=start).root == os.path.realpath(tmp_path / "told")
    assert find_workspace(str(tmp_path / "named"), start).root == os.path.realpath(tmp_path / "named")


def test_one_folder_by_two_names_is_one_workspace(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = find_workspace(str(tmp_path / "real")), find_workspace(str(tmp_path / "link"))
    assert real.id == link.id
    assert real.id == hashlib.sha256(os.fsencode(real.root)).hexdigest()[:16]


@pytest.mark.parametrize("name", ["/", "HOME", "pwd"])
def test_the_root_and_home_folders_are_refused(name: str) -> None:
    import pwd

    folder = {"HOME": os.environ["HOME"], "pwd": pwd.getpwuid(os.getuid()).pw_dir}.get(name, name)
    if not os.path.isdir(folder):
        pytest.skip(f"{folder} does not exist here")
    with pytest.raises(EditdError, match="editd does not own") as raised:
        find_workspace(folder)
    assert raised.value.name == "permission_denied"
    assert "--workspace" in raised.value.hint


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, code in (("file", "not_a_file"), ("nothing", "file_missing")):
        with pytest.raises(EditdError) as raised:
            find_workspace(str(tmp_path / name))
        assert raised.value.name == code


def test_the_socket_is_looked_for_in_the_protocols_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = find_workspace(str(tmp_path))
    usual = f"/run/user/{os.getuid()}"
    if os.path.isdir(usual):
        assert workspace.socket_path == f"{usual}/editd/{workspace.id}.sock"
    else:
        folder = f"/tmp/editd-{os.getuid()}"
        assert workspace.socket_path == f"{folder}/{workspace.id}.sock"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/a")
    assert workspace.socket_path == f"/a/editd/{workspace.id}.sock"
    monkeypatch.setenv("EDITD_SOCKET", "/b.sock")
    assert workspace.socket_path == "/b.sock"


@pytest.mark.parametrize("named", ["", "run", "./run"])
def test_an_empty_or_relative_runtime_folder_is_none(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    without = socket_folder()
    monkeypatch.setenv("XDG_RUNTIME_DIR", named)
    assert socket_folder() == without


def test_a_relative_socket_is_one_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDITD_SOCKET", "./run/../s.sock")
    assert find_workspace().socket_path == f"{tmp_path}/s.sock"


@pytest.mark.parametrize("variable", ["XDG_RUNTIME_DIR", "XDG_STATE_HOME", "EDITD_SOCKET"])
@pytest.mark.parametrize("value", ["", "run", "./run/../s", "/run"])
def test_the_daemon_looks_where_we_do(
    variable: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    (tmp_path / "w").mkdir()
    ours, its = find_workspace("w"), WorkspacePaths.of("w")
    assert (its.socket, its.state) == (ours.socket_path, ours.state_folder)


def test_the_state_lies_where_the_user_keeps_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = find_workspace(str(tmp_path))
    assert workspace.state_folder == f"{os.environ['HOME']}/.local/state/editd/{workspace.id}"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert workspace.state_folder == f"/state/editd/{workspace.id}"
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert workspace.state_folder == f"{os.environ['HOME']}/.local/state/editd/{workspace.id}"


def test_a_current_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(EditdError, match="no longer exists"):
        find_workspace()


@pytest.mark.parametrize("by", ["-C", "EDITD_WORKSPACE"])
def test_a_named_folder_means_the_git_top_level_above_it(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    folder = str(tmp_path / "project" / "src")
    if by == "EDITD_WORKSPACE":
        monkeypatch.setenv(by, folder)
    found = find_workspace(folder if by == "-C" else None, start=str(tmp_path))
    assert found.root == os.path.realpath(tmp_path / "project") == WorkspacePaths.of(folder).root
    assert find_workspace(folder, nested=True).root == folder == WorkspacePaths.of(folder, exact=True).root


def test_a_named_folder_in_a_home_that_is_a_repository_is_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "home" / ".git").mkdir()
    (tmp_path / "home" / "project").mkdir()
    folder = str(tmp_path / "home" / "project")
    assert find_workspace(folder).root == folder == WorkspacePaths.of(folder).root


def test_client_and_daemon_agree_on_what_a_home_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/var/lib/postgresql is owned by its system user: the client refused it, the daemon took it."""
    import pwd

    def is_refused_by_client(folder: str) -> bool:
        try:
            find_workspace(folder)
        except EditdError:
            return True
        return False

    def is_refused_by_daemon(folder: str) -> bool:
        try:
            WorkspacePaths.of(folder)
        except PermissionDenied:
            return True
        return False

    homes = sorted({entry.pw_dir for entry in pwd.getpwall() if os.path.isdir(entry.pw_dir)})
    homes = [home for home in homes if home == "/" or not tmp_path.is_relative_to(home)]  # the state is there
    assert [is_refused_by_client(home) for home in homes] == [is_refused_by_daemon(home) for home in homes]
    service = tmp_path / "service"
    service.mkdir()
    entry = pwd.struct_passwd(("service", "x", os.getuid(), 0, "", str(service), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert is_refused_by_client(str(service))
    assert is_refused_by_daemon(str(service))
