"""Rarer disturbances of a random run: crafted entries, a server restored from a backup, hosts that leave."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd_client.errors import EditdError, Unreachable
from hostile_log import MORE_TRAILERS, TRAILERS, HostileLog

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from random_host import Host

OURS = ("internal_error", "broken")  # names of errors that no request may have
TRIES = 200  # of a step, beside hosts that push meanwhile and a git that fails
AWAY_SECONDS_MAX = 0.3
NAME_LENGTH_MAX = 255
KILL_SECONDS_MAX = 0.5
# Files that git's checks or a file system might refuse: name, mode, kind and content.
ODD_FILES = [
    (b".gitattributes", b"100644", "blob", b"* " + b"x" * 3000 + b"\n"),
    (b".gitmodules", b"100644", "blob", b'[submodule "x"]\n\tupdate = !touch x\n\tpath = x\n\turl = x\n'),
    (b".gitmodules", b"100644", "blob", b'[submodule "../x"]\n\tpath = -x\n\turl = --upload-pack=x\n'),
    (b".gitmodules", b"120000", "blob", b"f0"),
    (b"odd-mode", b"104755", "blob", b"odd mode\n"),
    (b"odd-group", b"100664", "blob", b"odd group\n"),
    (b"odd-link", b"120000", "blob", b"nowhere/at/all"),
    (b"odd-module", b"160000", "commit", b""),
    (b"odd\xc3\xa9 \xe2\x80\xae name", b"100644", "blob", b"odd name\n"),
    (b"odd-" + b"x" * 300, b"100644", "blob", b"too long a name\n"),
    (b".GIT", b"100644", "blob", b"a name of git\n"),
]
# Waiting transactions in the queue of a host that is none: the kind of object, and the content of a commit.
ODD_QUEUES = [
    ("blob", b"queue\n"), ("tree", b""),
    ("commit", b"tree {tree}\nauthor x <x@x> 0 +0000\ncommitter x <x@x> 0 +0000\n\nodd\n"),
    ("commit", b"tree {tree}\nauthor x <x@x> 0 +0000\ncommitter x <x@x> 0 +0000\n\nodd\n\nKind: edit\n"),
]  # fmt: skip


@dataclass
class Upsets:
    """The log of a run as somebody with access to its server can change it."""

    server: Path
    drawn: random.Random
    unusable: set[str] = field(default_factory=set)  # commits of crafted entries that no host can use
    lines: set[str] = field(default_factory=set)  # of crafted files
    is_restored: bool = False  # the server, once at least, so that hosts may be forked
    notes: list[str] = field(default_factory=list)  # of what was done, for the report of a failure

    # ── crafted entries ──

    def push_odd_entry(self) -> None:
        """Add a crafted entry to the log: one with an unusable trailer, or with odd files."""
        trailers, reason = "", None
        if self.drawn.random() < 0.7:
            trailers, reason = self.drawn.choice([*TRAILERS, *MORE_TRAILERS])
            trailers += "\n"
        log = HostileLog(self.server)
        log.unusable = self.unusable
        token = f"odd {self.drawn.getrandbits(48):x}\n"
        self.lines.add(token.strip())
        files = {b"odd-%d" % self.drawn.randrange(20): (b"100644", log.object("blob", token.encode()))}
        if self.drawn.random() < 0.5:
            name, mode, kind, content = self.drawn.choice(ODD_FILES)
            self.lines.update(content.decode().splitlines())
            files[name] = (mode, log.head if kind == "commit" else log.object(kind, content))
        for _ in range(TRIES):
            with contextlib.suppress(subprocess.CalledProcessError):  # a host was faster
                commit = log.add(files, trailers)
                if reason is not None:
                    self.unusable.add(commit)
                self.notes.append(f"{trailers!r} {[*files]} {commit}")
                return
        raise AssertionError("no entry can be added")

    def push_odd_queue(self) -> None:
        """Give a host that does not exist a queue of something that is no transaction."""
        log = HostileLog(self.server)
        kind, content = self.drawn.choice(ODD_QUEUES)
        tree = log.object("tree", b"")
        oid = log.object(kind, content.replace(b"{tree}", tree.encode()))
        branch = log.git("for-each-ref", "--format=%(refname)", "refs/heads/editd/").rpartition("/")[2]
        log.git("update-ref", f"refs/editd/{branch}/queues/evil", oid)
        self.lines.add("queue")

    # ── a server that is restored ──

    @property
    def _backup(self) -> Path:
        return self.server.with_name("backup.git")

    def forget_backup(self) -> None:
        """Forget the backup: a host that joins afterwards has nothing in common with it."""
        shutil.rmtree(self._backup, ignore_errors=True)

    def back_up_or_restore(self) -> None:
        """Copy the server, or have it as it was when it was copied."""
        if not self._backup.exists():
            self._copied(self.server, self._backup)
            return
        gone = self.server.with_name("lost.git")
        os.rename(self.server, gone)
        os.rename(self._backup, self.server)
        shutil.rmtree(gone, ignore_errors=True)  # a push may end there meanwhile
        self.is_restored = True
        self.notes.append("restored")

    @staticmethod
    def _copied(source: Path, target: Path) -> None:
        """Copy a repository in which others write, until a copy is whole."""
        for _ in range(TRIES):
            shutil.rmtree(target, ignore_errors=True)
            with contextlib.suppress(shutil.Error, OSError):
                shutil.copytree(source, target)
                check = ["git", "--git-dir", str(target), "fsck", "--connectivity-only"]
                if subprocess.run(check, capture_output=True, check=False).returncode == 0:
                    for left in target.rglob("*.lock"):
                        left.unlink()
                    return
        raise AssertionError("no copy is whole")


def repair(host: Host) -> bool:
    """Repair a host if it is forked; return whether it was."""
    if host.client.remote_status().state != "forked":
        return False
    attempt(host.client.remote_repair)
    return True


def leave_and_join(host: Host, url: str, drawn: random.Random) -> bool:
    """Have a host leave the log and join it again, with a kill on the way at times; return whether it left.

    It stays if a transaction of it is not in the log.
    """
    host.cut.unlink(missing_ok=True)
    host.client.remote_resume()
    try:
        host.client.remote_now(timeout=5)
        host.client.remote_leave()
    except EditdError as error:
        check_code(error)
        return False
    time.sleep(drawn.random() * AWAY_SECONDS_MAX)
    if drawn.random() < 0.3 and host.place.process is not None:
        delay = drawn.random() * KILL_SECONDS_MAX
        timer = threading.Timer(delay, host.place.process.send_signal, (signal.SIGKILL,))
        timer.start()
        with contextlib.suppress(Unreachable, EditdError):
            host.client.remote_join(url, take="log")
        timer.join()
        host.kill()
    for _ in range(TRIES):
        if host.client.remote_status().state != "none":
            return True
        attempt(lambda: host.client.remote_join(url, take="log"))
    raise AssertionError("a host cannot join again")


def attempt(request: Callable[[], object]) -> None:
    """Send a request that may be refused because of git's faults, and not because of ours."""
    try:
        request()
    except EditdError as error:
        check_code(error)


def check_code(error: EditdError) -> None:
    """Check that a refusal is the fault of no host."""
    assert error.name not in OURS, error


def is_possible(path: str) -> bool:
    """Return whether an editd writes files of this name."""
    return path != ".GIT" and len(path) <= NAME_LENGTH_MAX
