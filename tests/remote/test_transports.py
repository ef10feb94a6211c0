"""The exchange through real servers: sshd with one kept connection, and git http-backend with a password."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd_client.client import Client
from support.git_servers import git_server, missing
from support.hosts import exchange, hosts, until
from support.log_checker import log_of
from support.workplace import write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

EDITS = 20


@pytest.mark.long
def test_a_client_uses_the_socket_of_another_machine(tmp_path: Path, place: Workplace) -> None:
    if program := missing("ssh"):
        pytest.skip(f"{program} is missing")
    with git_server(tmp_path / "server", "ssh") as server, place.start():
        here = tmp_path / "work.sock"
        ssh = subprocess.Popen(
            ["ssh", "-N", "-L", f"{here}:{place.socket}", "work"], env={**os.environ, **server.variables}
        )
        try:
            until(here.exists, "ssh does not forward the socket")
            with Client(str(here)) as client:
                client.apply([write("a.txt", "over there\n")])
        finally:
            ssh.terminate()
            ssh.wait()
    assert place.files()["a.txt"] == b"over there\n"


@pytest.mark.long
@pytest.mark.parametrize("kind", ["ssh", "gitolite", "http"])
def test_hosts_exchange_through_a_real_server(tmp_path: Path, kind: str) -> None:
    if program := missing(kind):
        pytest.skip(f"{program} is missing")
    with (
        git_server(tmp_path / "server", kind) as server,
        hosts(tmp_path, 2, {"a.txt": "a\n"}, server=server) as (places, (one, other), _),
    ):
        one.remote_pause()
        for number in range(EDITS):
            one.apply([write(f"f{number}.txt", f"{number}\n")])
        exchange(other)
        assert server.traffic is not None
        before, connections = server.traffic.bytes, server.traffic.connections
        one.remote_resume()
        exchange(one, other)
        assert places[0].files() == places[1].files()
        assert len(log_of(server.repository)) == EDITS + 1
        status = one.remote_status()
        assert "secret" not in str(status.url)
        assert "secret" not in places[0].log()
        if kind != "http":
            assert server.traffic.connections - connections <= 2, "each call of git connects anew"
        print(
            f"{kind}: {(server.traffic.bytes - before) / EDITS:.0f} bytes a transaction, both ways and hosts"
        )


@pytest.mark.long
def test_the_access_rules_of_gitolite_are_kept(tmp_path: Path) -> None:
    if program := missing("gitolite"):
        pytest.skip(f"{program} is missing")
    with (
        git_server(tmp_path / "server", "gitolite") as server,
        hosts(tmp_path, 2, {"a.txt": "a\n"}, server=server) as (places, (one, other), _),
    ):
        # The key of the second host may only read from now on.
        config = tmp_path / "server" / "config"
        config.write_text(config.read_text().replace("/user_key", "/reader_key"))
        other.close()
        places[1].kill()
        for socket in (places[1].runtime / "editd").glob("ssh-*"):
            subprocess.run(["ssh", "-S", socket, "-O", "exit", "work"], check=False, capture_output=True)
        with places[1].start() as reader:
            reader.apply([write("mine.txt", "mine\n")])
            until(lambda: reader.remote_status().state == "refused", "it is not refused")
            assert "DENIED" in str(reader.remote_status().error)
            assert len(log_of(server.repository)) == 1
        one.close()
