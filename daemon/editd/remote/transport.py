"""The user's own `git`, which reaches the server with the user's credentials, proxies and configuration.

It asks nothing: without an answer it fails, and its words go to the status. No text of a server is
interpreted. After any failure of a push, the caller reads the head of the log (L8).
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pygit2
import pygit2.enums

from editd.errors import Refused
from editd.store.git_objects import Oid, oid_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GIT_SECONDS_MAX = 120.0  # of one call; then it is killed, and tried again later
ASK_SECONDS_MAX = 10.0  # of a question about the user's configuration
SOCKET_BYTES_MAX = 108  # of the path of a socket: unix(7)
SOCKET_BYTES_MORE = 40 - len("%C") + len(".") + 16  # the hash in its name, and ssh's temporary suffix
WORDS_MAX = 400  # characters of git's own words
_SETTINGS = (
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("protocol.version", "2"),
    ("fetch.unpackLimit", "100"),
    ("fetch.fsckObjects", "true"),
    ("pack.threads", "1"),
    ("core.hooksPath", os.devnull),
)
_OF_A_REPOSITORY = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
)


class Offline(Refused):
    """Git did not reach the server, or the server refused."""

    code = "io_error"


class Transport:
    """One repository on a server, reached from the repository of the log."""

    def __init__(self, shared: str, url: str, sockets: str) -> None:
        """`sockets` is a folder with a short path, for the connection that ssh keeps."""
        self._shared = shared
        self.url = url
        self._sockets = sockets
        self._ssh = ""  # the command for ssh, once it is known

    @property
    def is_by_ssh(self) -> bool:
        """Whether git reaches the server by ssh."""
        return ssh_host(self.url) is not None

    def heads(self, *patterns: str) -> dict[str, Oid]:
        """Return the refs on the server that match. Raises Offline.

        Those of a folder are read without a process, because a host asks for them several times a second.
        """
        with contextlib.suppress(pygit2.GitError, KeyError, ValueError):
            if os.path.isdir(self.url):
                return _refs_of(self.url, patterns)
        listed = self._run("ls-remote", "--", self.url, *patterns)
        return {name: oid_of(oid) for oid, _, name in (line.partition("\t") for line in listed.splitlines())}

    def fetch(self, *refspecs: str) -> None:
        """Bring refs and their objects here. Raises Offline."""
        self._run("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--", self.url, *refspecs)

    def push(self, commit: Oid, ref: str, expected: Oid | None) -> None:
        """Move a ref from `expected` to `commit`; None is no such ref. Raises Offline."""
        lease = "" if expected is None else expected.hex()
        self._run(
            "push", "-q", "--porcelain", f"--force-with-lease={ref}:{lease}", "--", self.url,
            f"{commit.hex()}:{ref}",
        )  # fmt: skip

    def overwrite(self, commit: Oid, ref: str) -> None:
        """Set a ref that nobody else writes. Raises Offline."""
        self._run("push", "-q", "--porcelain", "--", self.url, f"+{commit.hex()}:{ref}")

    def combine_packs(self) -> None:
        """Combine the small packs of the repository of the log. Raises Offline if git cannot."""
        self._run("repack", "-q", "-d", "--geometric=2")

    def _run(self, *arguments: str) -> str:
        argv = ["git", "--git-dir", self._shared, *arguments]
        try:
            done = subprocess.run(
                argv, env=self._environment(), stdin=subprocess.DEVNULL, capture_output=True,
                timeout=GIT_SECONDS_MAX, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise Offline("There is no `git` in the PATH of the daemon.", hint="Install git.") from None
        except OSError as error:
            raise Offline(f"git could not be started: {error}.") from error
        except subprocess.TimeoutExpired:
            raise Offline(f"git {arguments[0]} did not end within {GIT_SECONDS_MAX:g} s.") from None
        if done.returncode:
            words = (done.stderr + done.stdout).decode("utf-8", "replace").strip()
            raise Offline(f"git {arguments[0]} failed: {words[-WORDS_MAX:] or done.returncode}")
        return done.stdout.decode("utf-8", "surrogateescape")

    def _environment(self) -> dict[str, str]:
        """Return the user's environment without the variables that name a repository."""
        kept = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
        kept |= {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
        first = int(kept.get("GIT_CONFIG_COUNT", "0"))
        for number, (key, value) in enumerate(_SETTINGS, first):
            kept[f"GIT_CONFIG_KEY_{number}"], kept[f"GIT_CONFIG_VALUE_{number}"] = key, value
        kept["GIT_CONFIG_COUNT"] = str(first + len(_SETTINGS))
        if not kept.keys() & {"GIT_SSH_COMMAND", "GIT_SSH"} and (host := ssh_host(self.url)):
            self._ssh = self._ssh or self._ssh_command(host, kept)
            kept["GIT_SSH_COMMAND"] = self._ssh
        return kept

    def _ssh_command(self, host: str, environment: Mapping[str, str]) -> str:
        """Return the user's command for ssh, which asks nothing and keeps its connection for a minute.

        The user's own `core.sshCommand` and `ControlMaster` have precedence.
        """
        own = _output_of(["git", "--git-dir", self._shared, "config", "core.sshCommand"], environment)
        if own.strip():
            return own.strip()
        words = ["ssh", "-o", "BatchMode=yes"]
        known = _output_of(["ssh", "-G", host], environment).split("\n")
        socket = os.path.join(self._sockets, "ssh-%C")
        is_set_up = any(line.startswith(("controlpath /", "controlmaster auto")) for line in known)
        if not is_set_up and len(os.fsencode(socket)) + SOCKET_BYTES_MORE < SOCKET_BYTES_MAX:
            words += ["-o", "ControlMaster=auto", "-o", f"ControlPath={socket}", "-o", "ControlPersist=60"]
        return shlex.join(words)


def ssh_host(url: str) -> str | None:
    """Return the host of a URL that git reaches by ssh, with the user; None for any other URL."""
    for scheme in ("ssh://", "git+ssh://", "ssh+git://"):
        if url.startswith(scheme):
            return url.removeprefix(scheme).partition("/")[0].partition(":")[0] or None
    host, colon, _ = url.partition(":")
    is_short_form = colon and "/" not in host and not url.startswith(f"{host}://")
    return host if is_short_form else None


def _output_of(argv: list[str], environment: Mapping[str, str]) -> str:
    """Return the output of a program; nothing if it fails."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
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
