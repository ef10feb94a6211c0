"""The way to the server: the user's own `git`, with the user's credentials, proxies and configuration.

It asks nothing: without an answer it fails, and its words go to the status. No text of a server is
interpreted. After any failure of a push, the caller reads the head of the log (L8).

The address is checked before each call, because a folder may have become a link meanwhile. The hooks of a
server in a folder run only if they are the user's own and outside of all workspaces.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import subprocess
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pygit2
import pygit2.enums

from editd.errors import Refused
from editd.remote.server_address import ServerAddress, workspaces_in
from editd.store.git_objects import Oid, oid_of
from editd.system.git_command import (
    GitFailed,
    GitMissing,
    git_environment,
    receiver_without_hooks,
    run_git,
)
from editd.system.real_paths import ThroughProcess, is_within, real_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.remote.server_address import ServerRepository

ASK_SECONDS_MAX = 10.0  # of a question about the user's configuration
SOCKET_BYTES_MAX = 108  # of the path of a socket: unix(7)
SOCKET_BYTES_MORE = 40 - len("%C") + len(".") + 16  # the hash in its name, and ssh's temporary suffix
# Git does not check objects that it fetches. A refused one would stop a host for good, and each version of
# git refuses others. `log_objects` and `entries` check each object that they read, alike on all hosts. Files
# such as `.gitmodules` are only files here: git never reads them from a log as configuration.
_SETTINGS = (
    ("protocol.version", "2"),
    ("fetch.unpackLimit", "100"),
    ("fetch.fsckObjects", "false"),
    ("pack.threads", "1"),
)


class Offline(Refused):
    """Git did not reach the server, or the server refused."""

    code = "io_error"


class Transport:
    """One repository on a server, reached from the repository of the log."""

    def __init__(self, shared: str, url: str, sockets: str, histories: str) -> None:
        """`sockets` is a folder with a short path, for the connection that ssh keeps.

        `histories` has the state folders of all workspaces. Raises InvalidParams for a URL of no server.
        """
        self._shared = shared
        self._address = ServerAddress.parse(url)
        self._sockets = sockets
        self._histories = histories
        self._ssh = ""  # the command for ssh, once it is known
        self.pushes = 0  # that were tried

    @property
    def is_by_ssh(self) -> bool:
        """Whether git reaches the server by ssh."""
        return self._address.ssh_host is not None

    def heads(self, *patterns: str) -> dict[str, Oid]:
        """Return the refs on the server that match. Raises Offline, InvalidParams.

        Those of a folder are read without a process, because a host asks for them several times a second.
        """
        server = self._server()
        if server is not None and not self._address.is_by_git:
            with contextlib.suppress(pygit2.GitError, KeyError, ValueError):
                return _refs_of(server.folder, patterns)
        listed = self._run("ls-remote", "--", self._address.target(server), *patterns)
        return {name: oid_of(oid) for oid, _, name in (line.partition("\t") for line in listed.splitlines())}

    def fetch(self, *refspecs: str) -> None:
        """Bring refs and their objects here. Raises Offline, InvalidParams."""
        url = self._address.target(self._server())
        self._run("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--", url, *refspecs)

    def push(self, commit: Oid, ref: str, expected: Oid | None) -> None:
        """Move a ref from `expected` to `commit`; None is no such ref. Raises Offline, InvalidParams."""
        lease = "" if expected is None else expected.hex()
        self._push(f"--force-with-lease={ref}:{lease}", f"{commit.hex()}:{ref}")

    def overwrite(self, commit: Oid, ref: str) -> None:
        """Set a ref that no other host writes. Raises Offline, InvalidParams."""
        self._push("--no-force-with-lease", f"+{commit.hex()}:{ref}")

    def remove(self, ref: str, expected: Oid) -> None:
        """Remove a ref that names `expected`. Raises Offline, InvalidParams."""
        self._push(f"--force-with-lease={ref}:{expected.hex()}", f":{ref}")

    def combine_packs(self) -> None:
        """Combine the small packs of the repository of the log. Raises Offline if git cannot."""
        self._run("repack", "-q", "-d", "--geometric=2")

    def _push(self, lease: str, refspec: str) -> None:
        self.pushes += 1
        server = self._server()
        receiver = [] if server is None or self._are_hooks_own(server) else [_WITHOUT_HOOKS]
        self._run(
            "push", "-q", "--porcelain", lease, *receiver, "--", self._address.target(server), refspec
        )  # fmt: skip

    def _server(self) -> ServerRepository | None:
        return self._address.repository(self._histories)

    def _are_hooks_own(self, server: ServerRepository) -> bool:
        """Return whether the repository and its hooks belong to the user, outside of all workspaces."""
        try:
            if not server.is_own:
                return False
            hooks, files = _hooks_of(server.folder)
            return all(map(self._is_own_file, hooks)) and not any(map(self._is_in_workspace, files))
        except (OSError, ThroughProcess, GitFailed, GitMissing, ValueError):
            return False

    def _is_own_file(self, path: str) -> bool:
        return os.stat(real_path(path)).st_uid == os.geteuid() and not self._is_in_workspace(path)

    def _is_in_workspace(self, path: str) -> bool:
        """Return whether clients may write the file: it, or another name of it, may be in a workspace."""
        real = real_path(path)
        with contextlib.suppress(FileNotFoundError):  # a configuration may include a missing file
            status = os.stat(real)
            has_other_name = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
            if has_other_name and status.st_uid == os.geteuid():
                return True
        return any(is_within(real, root) for root in workspaces_in(self._histories))

    def _run(self, verb: str, *arguments: str) -> str:
        try:
            output = run_git(
                self._shared, verb, *arguments, settings=_SETTINGS, variables=self._ssh_variables()
            )
        except GitMissing:
            raise Offline("There is no `git` in the PATH of the daemon.", hint="Install git.") from None
        except GitFailed as failure:
            raise Offline(str(failure)) from failure
        return output.decode("utf-8", "surrogateescape")

    def _ssh_variables(self) -> dict[str, str]:
        """Return the command for ssh, unless the user has set one, or the server needs none."""
        host = self._address.ssh_host
        if host is None or os.environ.keys() & {"GIT_SSH_COMMAND", "GIT_SSH"}:
            return {}
        self._ssh = self._ssh or self._ssh_command(host)
        return {"GIT_SSH_COMMAND": self._ssh}

    def _ssh_command(self, host: str) -> str:
        """Return the user's command for ssh, which asks nothing and keeps its connection for a minute.

        The user's own `core.sshCommand` and `ControlMaster` have precedence.
        """
        with contextlib.suppress(GitFailed, GitMissing):
            own = run_git(self._shared, "config", "core.sshCommand", seconds=ASK_SECONDS_MAX)
            if own.strip():
                return os.fsdecode(own.strip())
        words = ["ssh", "-o", "BatchMode=yes"]
        known = _output_of(["ssh", "-G", host]).split("\n")
        socket = os.path.join(self._sockets, "ssh-%C")
        is_set_up = any(line.startswith(("controlpath /", "controlmaster auto")) for line in known)
        if not is_set_up and len(os.fsencode(socket)) + SOCKET_BYTES_MORE < SOCKET_BYTES_MAX:
            words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={socket}", "-o", "ControlPersist=60"]
        return shlex.join(words)


_WITHOUT_HOOKS = f"--receive-pack={receiver_without_hooks()}"


def _hooks_of(folder: str) -> tuple[list[str], list[str]]:
    """Return the hooks of a repository with their folder, and the files of its configuration.

    Git reads the configuration, because libgit2 does not know each kind of `includeIf`. A file counts also if
    its condition does not hold now. Raises OSError, GitFailed, GitMissing.
    """
    named, files = "hooks", []
    listed = run_git(folder, "config", "--null", "--show-origin", "--list", seconds=ASK_SECONDS_MAX)
    words = os.fsdecode(listed).split("\0")
    for origin, setting in zip(words[::2], words[1::2], strict=False):
        if not origin.startswith("file:"):
            continue  # our own settings, which the receiver of a push does not get
        file = os.path.join(folder, origin.removeprefix("file:"))
        key, _, value = setting.partition("\n")
        files.append(file)
        if key == "core.hookspath":
            named = value
        elif key == "include.path" or (key.startswith("includeif.") and key.endswith(".path")):
            files.append(os.path.join(os.path.dirname(file), os.path.expanduser(value)))
    hooks = os.path.join(folder, os.path.expanduser(named))
    if not os.path.lexists(hooks):
        return [], files
    return [hooks, *(os.path.join(hooks, name) for name in os.listdir(hooks))], files


def _output_of(argv: list[str]) -> str:
    """Return the output of a program; nothing if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, env=git_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=ASK_SECONDS_MAX, check=False,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""
    return ""


def _refs_of(folder: str, patterns: Sequence[str]) -> dict[str, Oid]:
    """Read the refs of a repository in a folder. Raises pygit2.GitError."""
    repository = pygit2.Repository(folder, pygit2.enums.RepositoryOpenFlag.BARE)
    try:
        return {
            name: oid_of(str(repository.references[name].resolve().target))
            for name in repository.references
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }
    finally:
        repository.free()
