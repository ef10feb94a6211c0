"""Git servers for the exchange between hosts: a folder, sshd, gitolite, and git http-backend behind lighttpd.

Each is on loopback, with keys and passwords of its own. `traffic` counts the bytes that pass.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.hosts import bare_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATH = f"{os.environ['PATH']}:/usr/sbin"
BACKEND = "/usr/lib/git-core/git-http-backend"
SSHD_FOLDER = "/run/sshd"  # Debian's service makes it, and sshd does not start without it
WAIT_SECONDS = 10

SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv SHLVL=2
"""  # with this level bash reads no `.bashrc`, which may take longer than git

SSH = """\
Host {host}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/{key}
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking accept-new
"""
KEYS = {"work": "user_key", "reader": "reader_key"}  # by the host of the configuration
GITOLITE_SHELL = "/usr/share/gitolite3/gitolite-shell"
GITOLITE = """\
repo work
    RW  refs/heads/editd/ = user_key
    RW+ refs/editd/       = user_key
    R                     = reader_key
"""
LIGHTTPD = """\
server.modules = ("mod_auth", "mod_authn_file", "mod_setenv", "mod_cgi", "mod_alias")
server.document-root = "{folder}"
server.bind = "127.0.0.1"
server.port = {port}
server.errorlog = "{folder}/errors"
alias.url = ("/git" => "{backend}")
setenv.set-environment = ("GIT_PROJECT_ROOT" => "{folder}", "GIT_HTTP_EXPORT_ALL" => "1")
cgi.assign = ("" => "")
auth.backend = "plain"
auth.backend.plain.userfile = "{folder}/users"
auth.require = ("" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
"""


@dataclass
class GitServer:
    """A repository, its URL, and the variables that a daemon needs to reach it."""

    repository: Path
    url: str
    variables: dict[str, str] = field(default_factory=dict)
    traffic: Traffic | None = None


class Traffic:
    """A port that passes all on to another one, and counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self.connections = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._to))
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.bytes += len(data)
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


def missing(kind: str) -> str | None:
    """Return the program or folder that a kind of server needs and that is not here."""
    program = {"folder": "git", "ssh": "sshd", "gitolite": "sshd", "http": "lighttpd"}[kind]
    if shutil.which(program, path=PATH) is None:
        return program
    needed = {"http": [BACKEND], "ssh": [SSHD_FOLDER], "gitolite": [GITOLITE_SHELL, SSHD_FOLDER]}.get(
        kind, []
    )
    return next((path for path in needed if not os.path.exists(path)), None)


@contextlib.contextmanager
def git_server(folder: Path, kind: str) -> Iterator[GitServer]:
    """Start a server of this kind, `folder`, `ssh`, `gitolite` or `http`, with an empty repository.

    With gitolite, the host `reader` of the ssh configuration may only read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    repository = bare_repository(folder / "work.git")
    if kind == "folder":
        yield GitServer(repository, str(repository))
        return
    with contextlib.ExitStack() as stack:
        port = _free_port()
        process = _start_lighttpd(folder, port) if kind == "http" else _start_sshd(folder, port, kind)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        _wait_for(port, process)
        traffic = Traffic(port)
        stack.callback(traffic.close)
        if kind != "http":
            known = {"folder": folder, "port": traffic.port, "user": _user()}
            hosts = [SSH.format(host=host, key=key, **known) for host, key in KEYS.items()]
            (folder / "config").write_text("".join(hosts))
            shim = folder / "bin" / "ssh"
            shim.parent.mkdir()
            shim.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
            shim.chmod(0o755)
            variables = {"PATH": f"{shim.parent}:{os.environ['PATH']}"}
            if kind == "gitolite":
                repository = folder / "repositories" / "work.git"
            yield GitServer(
                repository, "work:work" if kind == "gitolite" else f"work:{repository}", variables, traffic
            )
        else:
            url = f"http://ann:secret@127.0.0.1:{traffic.port}/git/work.git"
            yield GitServer(repository, url, {}, traffic)


def _start_sshd(folder: Path, port: int, kind: str) -> subprocess.Popen[bytes]:
    for key in ("host_key", *KEYS.values()):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    allowed = (folder / "user_key.pub").read_text()
    if kind == "gitolite":
        _set_up_gitolite(folder)
        command = f'command="HOME={folder} {GITOLITE_SHELL} '
        allowed = "".join(
            f'{command}{key}" {(folder / key).with_suffix(".pub").read_text()}' for key in KEYS.values()
        )
    (folder / "authorized_keys").write_text(allowed)
    (folder / "sshd_config").write_text(SSHD.format(folder=folder, port=port))
    sshd = shutil.which("sshd", path=PATH)
    assert sshd is not None
    log = (folder / "sshd_log").open("wb")
    return subprocess.Popen([sshd, "-D", "-e", "-f", folder / "sshd_config"], stderr=log)


def _set_up_gitolite(folder: Path) -> None:
    """Make gitolite's repositories in the folder, with a rule for each key."""
    environment = {**os.environ, "HOME": str(folder)}
    rules = folder / ".gitolite" / "conf" / "gitolite.conf"
    for argv in (["setup", "-pk", "user_key.pub"], ["compile"]):
        subprocess.run(["gitolite", *argv], cwd=folder, env=environment, check=True, capture_output=True)
        rules.write_text(GITOLITE)


def _start_lighttpd(folder: Path, port: int) -> subprocess.Popen[bytes]:
    (folder / "users").write_text("ann:secret\n")
    text = LIGHTTPD.format(folder=folder, port=port, backend=BACKEND)
    (folder / "lighttpd.conf").write_text(text)
    lighttpd = shutil.which("lighttpd", path=PATH)
    assert lighttpd is not None
    return subprocess.Popen([lighttpd, "-D", "-f", folder / "lighttpd.conf"])


def _user() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, "the server has ended"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise AssertionError("the server does not answer")
