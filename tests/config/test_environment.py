"""environment: a daemon keeps the variables that servers need, and no token of the shell that starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.config.environment import drop_others, kept_environment
from editd.system.git_command import git_environment
from support.hosts import bare_repository
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "s", "GITHUB_TOKEN": "s", "GIT_TOKEN": "s", "ANTHROPIC_API_KEY": "s",
    "DATABASE_URL": "s", "PGPASSWORD": "s", "GIT_DIR": "/x", "GIT_EXTERNAL_DIFF": "x",
}  # fmt: skip
NEEDED = {
    "SSH_AUTH_SOCK": "/run/agent", "GIT_SSH": "ssh", "GIT_SSH_COMMAND": "ssh -v", "GIT_SSH_VARIANT": "ssh",
    "https_proxy": "http://proxy", "HTTPS_PROXY": "http://proxy", "no_proxy": "local", "ALL_PROXY": "socks5://x",
    "SSL_CERT_FILE": "/etc/ca", "GIT_SSL_CAINFO": "/etc/ca", "CURL_CA_BUNDLE": "/etc/ca",
    "KRB5CCNAME": "/tmp/krb", "KRB5_CONFIG": "/etc/krb", "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "user.mine", "GIT_CONFIG_VALUE_0": "yes", "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_TIME": "C", "TZ": "UTC", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x",
}  # fmt: skip
has_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="without /proc")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with workplace(tmp_path / "one", {"a.txt": "a\n"}) as made:
        yield made
        made.editctl("stop")


def variables_of(pid: str) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def children_of(pid: int) -> list[str]:
    done = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@has_proc
@pytest.mark.parametrize("way", [("-m", "editd_client", "start"), ("-m", "editd")])
def test_a_daemon_and_its_processes_have_no_token_of_their_first_client(
    place: Workplace, tmp_path: Path, way: tuple[str, ...]
) -> None:
    server = bare_repository(tmp_path / "server.git")
    place.variables |= SECRETS | NEEDED
    subprocess.run(
        [sys.executable, "-P", *way], cwd=place.root, env=place.environment, check=True, capture_output=True
    )
    with place.client() as client:
        client.remote_init(str(server))
        pid = client.status().pid
        shown = [variables_of(one) for one in (str(pid), *children_of(pid))]
        assert len(shown) > 1
        for variables in shown:
            assert not SECRETS.keys() & variables.keys()
            assert NEEDED.items() <= variables.items()
            assert variables["XDG_STATE_HOME"] == place.environment["XDG_STATE_HOME"]


@has_proc
def test_the_processes_of_a_daemon_in_the_foreground_have_no_token_of_its_shell(
    place: Workplace, tmp_path: Path
) -> None:
    server = bare_repository(tmp_path / "server.git")
    place.variables |= SECRETS | NEEDED
    place.is_forked = False
    with place.start() as client:
        client.remote_init(str(server))
        shown = [variables_of(one) for one in children_of(client.status().pid)]
        assert shown
        for variables in shown:
            assert not SECRETS.keys() & variables.keys()
            assert NEEDED.items() <= variables.items()


def test_the_others_are_dropped_and_git_gets_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    of_a_client = SECRETS | {"EDITD_TOKEN": "s", "EDITD_SESSION": "s", "EDITD_ACTOR": "x"}
    environment = of_a_client | NEEDED
    drop_others(environment)
    assert environment == NEEDED == kept_environment(of_a_client | NEEDED)
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    assert NEEDED.items() <= git_environment().items()
