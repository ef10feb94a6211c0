"""The user's git, and ssh as the user has set it up."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.remote.transport import Offline, Transport
from support.git_servers import GitServer
from support.hosts import bare_repository, exchange, hosts, until
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

# It answers `ssh -G HOST` with the test's configuration, and otherwise runs the command here.
SSH = """#!/bin/sh
if [ "$1" = -G ]; then cat "{folder}/config"; exit; fi
echo "$*" >> "{folder}/calls"
for process in $PPID "$(cut -d ' ' -f 4 "/proc/$PPID/stat")"; do
    tr '\\0' ' ' < "/proc/$process/cmdline" >> "{folder}/callers"
done
for command; do :; done
exec sh -c "$command"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an `ssh` of the test's own, first in the PATH."""
    program = tmp_path / "ssh"
    program.write_text(SSH.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("GIT_SSH", "GIT_SSH_COMMAND"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def options_used(folder: Path, config: str) -> str:
    """Return the command line with which git calls ssh, if the user's ssh has this configuration."""
    (folder / "config").write_text(config)
    server = bare_repository(folder / "server.git")
    own = bare_repository(folder / "own.git")
    assert Transport(str(own), f"ssh://me@server{server}", "/run/me", str(folder)).heads("refs/heads/*") == {}
    return (folder / "calls").read_text()


def test_ssh_asks_nothing_and_keeps_its_connection(folder: Path) -> None:
    used = options_used(folder, "controlmaster false\n")
    assert "BatchMode=yes" in used
    assert "ControlPath=/run/me/ssh-%C" in used


def test_the_users_own_connection_is_used(folder: Path) -> None:
    used = options_used(folder, "controlmaster auto\ncontrolpath /run/user/1/ssh\n")
    assert "BatchMode=yes" in used
    assert "ControlPath" not in used


def test_the_users_own_command_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_SSH_COMMAND", "ssh -o Mine=1")
    assert "BatchMode" not in options_used(folder, "")


def test_a_url_with_a_password_is_shown_without_it(tmp_path: Path) -> None:
    own = bare_repository(tmp_path / "own.git")
    with pytest.raises(Offline) as caught:
        Transport(str(own), "http://me:secret@127.0.0.1:1/work.git", "/run/me", str(tmp_path)).heads(
            "refs/heads/*"
        )
    assert "secret" not in caught.value.message


def test_the_refs_of_a_folder_are_those_that_git_lists(tmp_path: Path) -> None:
    server = bare_repository(tmp_path / "server.git")
    git = ["git", "--git-dir", str(server), "-c", "user.name=x", "-c", "user.email=x@x"]
    tree = (
        subprocess.run([*git, "mktree"], input=b"", capture_output=True, check=True).stdout.decode().strip()
    )
    made = subprocess.run(
        [*git, "commit-tree", "-m", "x", tree], capture_output=True, text=True, check=True
    ).stdout.strip()
    for name in ("refs/heads/editd/a", "refs/editd/a/queues/one", "refs/editd/a/queues/other"):
        subprocess.run([*git, "update-ref", name, made], check=True)
    subprocess.run([*git, "pack-refs", "--all"], check=True)
    own = bare_repository(tmp_path / "own.git")
    histories = tmp_path / "histories"
    histories.mkdir()
    wanted = ("refs/heads/editd/a", "refs/editd/a/queues/*")
    found = [
        Transport(str(own), url, "/run/me", str(histories)).heads(*wanted)
        for url in (str(server), f"file://{server}")
    ]
    assert found[0] == found[1]
    assert len(found[0]) == 3


def test_over_ssh_one_session_asks_for_news_and_fetches_them(folder: Path) -> None:
    (folder / "config").write_text("")
    repository = bare_repository(folder / "server.git")
    server = GitServer(repository, f"work:{repository}", {"PATH": os.environ["PATH"]})
    with hosts(folder, 2, {"a.txt": "a\n"}, server=server) as (places, (one, other), _):
        exchange(one, other)
        callers = folder / "callers"
        callers.write_text("")
        one.apply([write("b.txt", "b\n")])
        exchange(one, other)
        assert places[0].files() == places[1].files()
        words = set(callers.read_text().split())
        assert words & {"fetch", "push", "ls-remote"} == {"fetch", "push"}
        git = ["git", "-C", str(repository)]
        told = [*git, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"]
        log, head = subprocess.run(told, capture_output=True, text=True, check=True).stdout.split()
        subprocess.run([*git, "update-ref", "-d", log], check=True)
        until(lambda: other.remote_status().state == "forked", "it does not notice that the log is gone")
        subprocess.run([*git, "update-ref", log, head], check=True)
        one.apply([write("b.txt", "more\n")])
        exchange(one, other)
        assert places[0].files() == places[1].files()
