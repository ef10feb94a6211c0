"""A workspace of a test's own with a real daemon on it: real socket, real git, real SIGKILL."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Replace, Write
from editd_client.client import Client
from editd_client.trial import NoOverlay, run_in_overlay
from support.file_systems import mounted_kind
from support.fork_server import Forked, run_forked, server
from support.without import feature_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOP = Path(__file__).resolve().parents[2]
START_SECONDS = 30
SEGMENT_BYTES = 64 * 1024  # of the journal: a segment of the usual size costs 8 MiB of writes
KEPT = ("PATH", "LANG", "PYTHONPATH", "TMPDIR", "EDITD_SYSTEM")
FILE_SYSTEM_VARIABLE = "EDITD_TEST_FILE_SYSTEM"
"""The kind of file system in which each workspace is made, by `file_systems` (default: that of TMPDIR)."""


@dataclass
class Workplace:
    """A folder with a workspace in it, and everything that its daemon keeps."""

    folder: Path
    runtime: Path  # short, since other people's clients do not all know their way round 107 bytes
    process: subprocess.Popen[bytes] | Forked | None = None
    variables: dict[str, str] = field(default_factory=dict)
    launcher: tuple[str, ...] = ()  # a program that starts the daemon, by its arguments
    is_forked: bool = True  # by the fork server, which is faster; if not, it and its processes are exec'ed
    options: tuple[str, ...] = ()  # more for the daemon's command line
    python: str = sys.executable  # of a daemon that is not forked
    segment_bytes: int | None = SEGMENT_BYTES  # of the journal; None: the daemon's own size

    @property
    def root(self) -> Path:
        return self.folder / "workspace"

    @property
    def id(self) -> str:
        return hashlib.sha256(os.fsencode(self.root.resolve())).hexdigest()[:16]

    @property
    def state(self) -> Path:
        return self.folder / "state" / "editd" / self.id

    @property
    def store(self) -> Path:
        return self.state / "store.git"

    @property
    def socket(self) -> str:
        return str(self.runtime / "editd" / f"{self.id}.sock")

    @property
    def environment(self) -> dict[str, str]:
        """What a user's shell would have, with an empty home and our folders."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        paths = [str(TOP / "daemon"), str(TOP / "client"), kept.get("PYTHONPATH", "")]
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "HOME": str(self.folder / "home"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            **self.variables,
        }

    def start(self) -> Client:
        """Start the daemon, wait until it answers, and return a client of it."""
        assert self.process is None or self.process.poll() is not None, "it runs already"
        reading, writing = os.pipe()
        arguments = ["-C", str(self.root), "--ready-fd", str(writing), *self.options]
        if self.segment_bytes is not None and self.python == sys.executable:  # another may be an older editd
            arguments += ["--segment-bytes", str(self.segment_bytes)]
        prefix = self._forked_prefix()
        if prefix is not None:
            argv = [*prefix, "-m", "editd", *arguments]
            descriptors = {number: number for number in (0, 1, 2, writing)}
            self.process = server().start(argv, self.environment, descriptors)
        else:
            argv = [*self.launcher, self.python, "-m", "editd", *arguments]
            self.process = subprocess.Popen(argv, env=self.environment, pass_fds=[writing])
        os.close(writing)
        with os.fdopen(reading) as pipe:
            said = pipe.readline().strip()
        assert said == "ready", f"{said!r}\n{self.log()}"
        return self.client()

    def _forked_prefix(self) -> list[str] | None:
        """Return the arguments of a forked daemon before its own; None if the daemon is to be exec'ed."""
        if not self.is_forked or not self.launcher:
            return [] if self.is_forked else None
        if feature := feature_of(self.launcher):
            return ["--without", feature]
        interpreter, *words = self.launcher
        program = Path(words[0]) if words else Path()
        if (
            interpreter == sys.executable
            and program.parent == TOP / "tests" / "support"
            and program.stem.endswith("_daemon")
        ):
            return ["-m", f"support.{program.stem}", *words[1:], self.python]
        return None

    def skip_without_overlay(self) -> None:
        """Skip the test if this user cannot put an overlay over the workspace."""
        with tempfile.TemporaryDirectory(dir=self.folder) as layers:
            try:
                run_in_overlay(str(self.root), layers, ["true"])
            except NoOverlay:
                pytest.skip("no overlay for an unprivileged user here")

    @contextlib.contextmanager
    def unnoticed(self) -> Iterator[None]:
        """Stop the daemon meanwhile, so that it sees only the result, however slow the machine is."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def make_portable(self) -> None:
        """Have the daemon use nothing beyond POSIX. The fork server has chosen its system already."""
        self.variables["EDITD_SYSTEM"] = "portable"
        self.is_forked = False

    def client(self) -> Client:
        """One that sends each request once, so that tests see what the daemon does, and not its client."""
        return Client(self.socket, reconnect=False)

    def editctl(
        self, *words: str, folder: str = "", stdin: str = "", **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `editctl` in a folder of the workspace to its end; its daemon may outlive it."""
        return self._run("editd_client", words, folder, stdin, variables)

    def editd(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a daemon that is to end by itself, such as one that is refused."""
        return self._run("editd", words, "", "", variables)

    def _run(
        self, module: str, words: Sequence[str], folder: str, stdin: str, variables: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        argv, environment = ["-P", "-m", module, *words], {**self.environment, **variables}
        content = stdin.encode("utf-8", "surrogateescape")
        if self.is_forked:
            done = run_forked(argv, environment=environment, folder=self.root / folder, stdin=content)
        else:
            done = subprocess.run(
                [self.python, *argv], env=environment, cwd=self.root / folder, input=content,
                capture_output=True, check=False,
            )  # fmt: skip
        out, err = (stream.decode("utf-8", "surrogateescape") for stream in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(list(words), done.returncode, out, err)

    def provide_editctl(self) -> Path:
        """Return a folder for a PATH, with an `editctl` in it."""
        folder = self.folder / "bin"
        if not folder.exists():
            folder.mkdir()
            server().write_shim(folder / "editctl")
        return folder

    def kill(self) -> None:
        """SIGKILL, as the out-of-memory killer does it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(START_SECONDS)

    def stop(self) -> None:
        """SIGTERM, and wait for a clean end."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(START_SECONDS) == 0, self.log()

    def terminate(self) -> None:
        """SIGTERM to the daemon that holds the lock, which another program may have started."""
        pid = int((self.state / "lock").read_text().split()[0])
        ended = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGTERM)
            assert select.select([ended], [], [], START_SECONDS)[0], self.log()
        finally:
            os.close(ended)

    def end(self) -> None:
        """However things stand, leave no process behind."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            self.process.wait(START_SECONDS)

    def log(self) -> str:
        try:
            return (self.state / "log").read_text()
        except FileNotFoundError:
            return "(no log)"

    def files(self) -> dict[str, bytes]:
        """Every regular file of the workspace by its path, `.git` left out."""
        return dict(files_below(self.root))

    def write(self, files: Mapping[str, bytes | str]) -> None:
        """Write files from outside, as anybody might."""
        for path, content in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content.encode() if isinstance(content, str) else content)

    def git(self, *argv: str, store: bool = False) -> str:
        """Run git in the workspace, or on the history, and return what it prints."""
        where = ["--git-dir", str(self.store)] if store else ["-C", str(self.root)]
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        done = subprocess.run(
            ["git", *where, *identity, *argv], env=self.environment, capture_output=True, check=True
        )
        return done.stdout.decode("utf-8", "surrogateescape")


@contextlib.contextmanager
def workplace(folder: Path, files: Mapping[str, bytes | str] | None = None) -> Iterator[Workplace]:
    for name in ("workspace", "home", "config"):
        (folder / name).mkdir(parents=True)
    kind = os.environ.get(FILE_SYSTEM_VARIABLE)
    mount = mounted_kind(kind, folder / "workspace", folder) if kind else contextlib.nullcontext()
    with tempfile.TemporaryDirectory(prefix="editd-run-") as runtime, mount:
        place = Workplace(folder, Path(runtime))
        place.write(files or {})
        try:
            yield place
        finally:
            place.end()


def files_below(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents; a file that a running daemon removes meanwhile is left out."""
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not path.is_symlink() and ".git" not in Path(name).parts:
            with contextlib.suppress(FileNotFoundError):
                yield name, path.read_bytes()


def write(path: str, content: str, **more: object) -> Write:
    """A blind write, unless more is said."""
    return Write(path=path, content=content, **({"force": True} | more))  # type: ignore[arg-type]


def replace(path: str, old: str, new: str, **more: object) -> Replace:
    return Replace(path=path, old=old, new=new, **more)  # type: ignore[arg-type]
