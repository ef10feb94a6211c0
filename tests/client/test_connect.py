"""Connecting, and what starting a daemon may come to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import TYPE_CHECKING

import pytest

from editd.config.paths import review_socket_path
from editd_client import connect as connecting
from editd_client.aio import AsyncClient
from editd_client.client import Client
from editd_client.connect import connect, connect_or_start, connect_owner
from editd_client.errors import EditdError, Unreachable
from editd_client.locate import Workspace
from support.crash_checks import wait_until
from support.reviewers import configure
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.workplace import Workplace


@pytest.fixture
def fake_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Workspace]:
    """A workspace whose `python -m editd` runs the given lines, with `said` the pipe to the client."""
    package, runtime, root = (tmp_path / name for name in ("path/editd", "run", "root"))
    for folder in (package, runtime / "editd", root):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.delenv("EDITD_SOCKET", raising=False)
    prologue = "import os, sys\nsaid = open(int(sys.argv[-1]), 'w')\n"

    def made(lines: str) -> Workspace:
        (package / "__main__.py").write_text(prologue + lines)
        return Workspace(str(root), "named")

    return made


def test_where_nobody_listens_there_is_no_connection(tmp_path: Path) -> None:
    assert connect(str(tmp_path / "none")) is None
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    assert connect(str(tmp_path / "dead")) is None


def test_a_client_as_the_owner_uses_the_reviewers_socket_if_there_is_one(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("EDITD_SOCKET", raising=False)

    async def path_of(client: AsyncClient) -> str | None:
        async with client:
            return (await client.status()).review_socket

    for configuration, path in (
        ('[review]\nsocket = "own"\n', review_socket_path(place.socket)),
        ("", None),
    ):
        configure(place, configuration)
        place.start().close()
        with Client.connect(str(place.root), start=False, as_owner=True) as client:
            assert client.status().review_socket == path
            place.stop()
            place.start().close()
            assert client.status().review_socket == path, "also on the next connection"
        assert asyncio.run(path_of(AsyncClient.connect(str(place.root), as_owner=True))) == path
        with Client.connect(str(place.root), start=False) as client:
            assert client.status().review_socket is None
        place.stop()


def test_a_listener_that_does_not_answer_has_no_reviewers_socket(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        stream = connect(str(tmp_path / "s"))
        assert stream is not None
        listener.accept()[0].close()
        with pytest.raises(Unreachable, match="does not answer"):
            connect_owner(str(tmp_path / "s"), stream)
        assert stream.fileno() == -1


def test_a_socket_whose_path_is_too_long_for_an_address_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    descriptor = os.open(folder, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{descriptor}/s")
        listener.listen()
        stream = connect(str(folder / "s"))
        assert stream is not None
        stream.close()
    os.close(descriptor)
    assert connect(str(tmp_path / ("gone" * 30) / "s")) is None


def test_a_full_backlog_is_waited_out_then_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "START_SECONDS_MAX", 0.1)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(0)
        with contextlib.ExitStack() as waiting, pytest.raises(Unreachable, match="accepts no connection"):
            _fill(str(tmp_path / "s"), waiting)


def _fill(path: str, waiting: contextlib.ExitStack) -> None:
    while True:
        stream = connect(path)
        assert stream is not None
        waiting.enter_context(stream)


def test_a_listener_of_another_user_is_not_spoken_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        uid = os.geteuid()
        if uid == 0:
            os.seteuid(65534)  # what it listens with is told at connect, as it was at listen
        try:
            if uid == 0:
                listener.listen()
        finally:
            if uid == 0:
                os.seteuid(0)
        if uid != 0:
            monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
        with pytest.raises(Unreachable, match="belongs to user"):
            connect(str(tmp_path / "s"))


def test_a_daemon_listens_at_a_socket_that_is_named_from_the_current_folder(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.runtime)
    for name, value in {**place.environment, "EDITD_SOCKET": "./s.sock"}.items():
        monkeypatch.setenv(name, value)
    with Client.connect(str(place.root)) as client:
        assert (place.runtime / "s.sock").is_socket()
        client.shutdown()


@pytest.fixture
def another(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder beside a workspace that has a daemon, with EDITD_SOCKET the socket of that one."""
    place.start().close()
    for name, value in {**place.environment, "EDITD_SOCKET": place.socket}.items():
        monkeypatch.setenv(name, value)
    folder = place.folder / "another"
    folder.mkdir()
    yield folder
    assert "stray" not in place.files()


@pytest.mark.parametrize("start", [True, False])
def test_a_socket_of_another_workspace_is_refused(place: Workplace, another: Path, start: bool) -> None:
    with pytest.raises(EditdError, match=f"serves {place.root}, not {another}") as refused:
        Client.connect(str(another), start=start)
    assert refused.value.name == "path_outside"
    assert "EDITD_SOCKET" in refused.value.hint
    with Client.connect(str(place.root), start=start) as client:
        client.apply([write("here", "x\n")])
    assert "here" in place.files()


def test_a_socket_that_becomes_another_workspaces_is_refused_from_then_on(
    place: Workplace, another: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = tmp_path / "either"
    monkeypatch.setenv("EDITD_SOCKET", str(at))
    with Client.connect(str(another)) as theirs, Client.connect(str(another), start=False) as waiting:
        theirs.apply([write("first", "x\n")])
        theirs.shutdown()
        wait_until(lambda: not at.exists(), "the daemon ends")
        at.symlink_to(place.socket)
        for client in (theirs, waiting) * 2:
            with pytest.raises(EditdError, match=f"serves {place.root}") as refused:
                client.apply([write("stray", "x\n")])
            assert refused.value.name == "path_outside"


@pytest.mark.parametrize("start", [True, False])
def test_a_socket_of_another_workspace_is_refused_to_who_awaits(another: Path, start: bool) -> None:
    async def stray() -> None:
        client = AsyncClient.connect(str(another), start=start)
        for _ in range(2):
            with pytest.raises(EditdError, match="EDITD_SOCKET") as refused:
                await client.apply([write("stray", "x\n")])
            assert refused.value.name == "path_outside"
        await client.close()

    asyncio.run(stray())


def test_a_socket_names_the_workspace_where_nothing_else_does(
    place: Workplace, another: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(another)
    monkeypatch.delenv("EDITD_WORKSPACE", raising=False)
    with Client.connect() as client:
        assert client.status().root == str(place.root)


def test_a_repository_that_git_ignores_is_its_own_workspace_for_a_client_of_a_variable(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write({".gitignore": "trees/\n", "trees/one/a": "1\n"})
    inner = place.root / "trees" / "one"
    place.git("init", "-q", ".")
    place.git("init", "-q", str(inner))
    for name, value in {**place.environment, "EDITD_WORKSPACE": str(inner)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("EDITD_SOCKET", raising=False)
    monkeypatch.chdir(place.folder)
    place.start().close()
    with Client.connect() as client:
        assert client.status().root == os.path.realpath(inner)
        client.shutdown()


def test_a_daemon_that_ends_before_it_is_ready_is_told_with_its_log(
    fake_daemon: Callable[[str], Workspace],
) -> None:
    workspace = fake_daemon("sys.exit(1)\n")
    with pytest.raises(Unreachable, match="was not ready") as raised:
        connect_or_start(workspace)
    assert workspace.state_folder in raised.value.hint


def test_what_a_daemon_says_as_it_refuses_is_passed_on(fake_daemon: Callable[[str], Workspace]) -> None:
    with pytest.raises(Unreachable, match=r"^The history is damaged\.$"):
        connect_or_start(fake_daemon("print('error The history is damaged.', file=said, flush=True)\n"))


def test_a_daemon_that_is_busy_but_never_answers_is_given_up(
    fake_daemon: Callable[[str], Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "START_SECONDS_MAX", 0.3)
    with pytest.raises(Unreachable, match="none answers at") as raised:
        connect_or_start(fake_daemon("print('busy', file=said, flush=True)\n"))
    assert "XDG_RUNTIME_DIR" in raised.value.hint


def test_a_slow_start_is_told_once(
    fake_daemon: Callable[[str], Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "SAY_SECONDS", 0.0)
    told: list[str] = []
    with pytest.raises(Unreachable):
        connect_or_start(fake_daemon("sys.exit(1)\n"), on_wait=lambda: told.append("starting"))
    assert told == ["starting"]


def test_the_daemon_imports_nothing_from_the_current_folder(
    fake_daemon: Callable[[str], Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = fake_daemon("import queue\nprint('error', queue.__file__, file=said, flush=True)\n")
    (tmp_path / "root" / "queue.py").write_text("")
    monkeypatch.chdir(tmp_path / "root")
    with pytest.raises(Unreachable) as raised:
        connect_or_start(workspace)
    assert str(tmp_path) not in raised.value.message
