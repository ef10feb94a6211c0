"""server.ownership: a socket bound without a race, and never taken from a live daemon."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from typing import TYPE_CHECKING

import pytest

from editd.errors import IoError, PermissionDenied
from editd.server.ownership import bind, serve

if TYPE_CHECKING:
    from pathlib import Path


def answers(path: str) -> bool:
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
            return True
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    finally:
        os.close(folder)


def test_the_folder_is_made_0700_and_the_socket_0600_whatever_the_umask(tmp_path: Path) -> None:
    path = str(tmp_path / "deeper" / "run" / "s")
    before = os.umask(0)
    try:
        with bind(path):
            assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            assert os.listdir(os.path.dirname(path)) == ["s"]
            assert answers(path)
    finally:
        os.umask(before)


def test_a_path_too_long_for_an_address_is_bound_all_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / ("d" * 200) / "s")
    with bind(path):
        assert answers(path)


def test_a_name_too_long_for_an_address_does_not_hide_who_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / ("s" * 200))
    with bind(path), pytest.raises(PermissionDenied, match="listens on"):
        bind(path)
    bind(path).close()


def test_a_live_socket_is_not_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "s")
    with bind(path):
        inode = os.stat(path).st_ino
        with pytest.raises(PermissionDenied, match="listens on") as refusal:
            bind(path)
        assert refusal.value.hint
        assert os.stat(path).st_ino == inode
        assert answers(path)


def test_a_live_socket_with_a_full_backlog_is_not_taken_over(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "s")
    os.mkdir(tmp_path / "run", 0o700)
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        waiting = []
        while True:
            client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            waiting.append(client)
            try:
                client.connect(path)
            except BlockingIOError:
                break
        with pytest.raises(PermissionDenied, match="listens on"):
            bind(path)
        for client in waiting:
            client.close()


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "s")
    bind(path).close()
    assert not answers(path)
    with bind(path):
        assert answers(path)
        assert os.listdir(tmp_path / "run") == ["s"]


def test_what_is_no_socket_is_not_replaced(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "run", 0o700)
    (tmp_path / "run" / "file").write_text("mine")
    (tmp_path / "run" / "link").symlink_to("file")
    for name in ("file", "link"):
        with pytest.raises(PermissionDenied, match="is not a socket"):
            bind(str(tmp_path / "run" / name))
    assert (tmp_path / "run" / "file").read_text() == "mine"


def test_a_folder_that_others_can_enter_is_refused_and_the_hint_says_what_to_do(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    os.chmod(folder, 0o750)
    with pytest.raises(PermissionDenied, match="0750") as refusal:
        bind(str(folder / "s"))
    assert "chmod 700" in refusal.value.hint
    assert list(folder.iterdir()) == []


def test_nobody_is_told_to_close_a_folder_that_is_for_all(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    os.chmod(folder, 0o1777)
    for path in (folder / "s", "/s"):
        with pytest.raises(PermissionDenied) as refusal:
            bind(str(path))
        assert refusal.value.hint == "Name a socket in a folder of your own in EDITD_SOCKET."


def test_a_folder_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(PermissionDenied, match="symbolic link"):
        bind(str(tmp_path / "link" / "s"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(0o700)
    os.chown(folder, 12345, -1)
    with pytest.raises(PermissionDenied, match="12345"):
        bind(str(folder / "s"))


def test_a_folder_that_cannot_be_made_is_an_error_of_the_operator(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IoError):
        bind(str(tmp_path / "file" / "run" / "s"))


def test_closing_the_server_leaves_the_name_to_its_owner(tmp_path: Path) -> None:
    path = str(tmp_path / "run" / "s")

    async def run() -> None:
        server = await serve(bind(path), asyncio.Protocol)
        assert answers(path)
        server.close()
        await server.wait_closed()

    asyncio.run(run())
    assert os.path.exists(path)
