"""The surveying process on a workspace of a test's own, and the user's git in it."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from editd.system.frames import read_frame, write_frame
from support.fork_server import run_forked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

DAEMON = Path(__file__).resolve().parents[2] / "daemon"
OLD_SECONDS = 100  # as old as files must be for git, and for us, to believe their times


@dataclass
class Ground:
    """A workspace and a state folder; git and the survey run with a home of their own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for made in (self.root, self.state, self.home):
            made.mkdir(parents=True, exist_ok=True)

    @property
    def root(self) -> Path:
        return self.folder / "workspace"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def store(self) -> Path:
        return self.state / "store.git"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "XDG_"))}
        return {**kept, "HOME": str(self.home), "PYTHONPATH": str(DAEMON), **self.variables}

    def git(self, *argv: str, at: str | Path = "", content: bytes = b"") -> str:
        """Run git as the user would, in a folder of the workspace; return what it prints."""
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        done = subprocess.run(
            ["git", *identity, "-c", "protocol.file.allow=always", *argv],
            cwd=self.root / at, env=self.environment, input=content, capture_output=True, check=True,
        )  # fmt: skip
        return os.fsdecode(done.stdout).strip()

    def write(self, files: Mapping[str | bytes, bytes | str], at: str = "") -> None:
        """Write files, with the folders that they need, long ago."""
        for path, content in files.items():
            target = os.path.join(os.fsencode(self.root / at), os.fsencode(path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "wb") as file:
                file.write(os.fsencode(content))

    def commit(self, at: str | Path = "") -> None:
        """Commit everything, and let the index be older than no file is young."""
        self.git("add", "-A", at=at)
        self.git("commit", "-q", "--no-verify", "-m", "all", at=at)
        self.age_index(at)

    def age_index(self, at: str | Path = "") -> None:
        """Make the index as young as though the files had been written long before it."""
        index = Path(self.git("rev-parse", "--absolute-git-dir", at=at)) / "index"
        found = index.stat()
        later = found.st_mtime_ns + OLD_SECONDS * 1_000_000_000
        os.utime(index, ns=(later, later))

    def survey(self, *requests: Mapping[str, Any], under: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Run a surveying process, ask it, and return all that it answers. `under` execs it by a command."""
        words = ["-m", "editd.engine.scan_worker", str(self.root), str(self.state)]
        asked = io.BytesIO()
        for request in requests:
            write_frame(asked, dict(request))
        if under:
            done = subprocess.run(
                [*under, sys.executable, *words], env=self.environment, input=asked.getvalue(),
                stdout=subprocess.PIPE, check=True,
            )  # fmt: skip
        else:
            done = run_forked(words, environment=self.environment, folder="/", stdin=asked.getvalue())
            assert done.returncode == 0, done.stderr.decode()
        answers = io.BytesIO(done.stdout)
        return list(iter(lambda: read_frame(answers), None))

    def baseline(self, under: Sequence[str] = (), exclude: Sequence[str] = ()) -> dict[str, Any]:
        """Take the baseline, and let the store's head name it, as the daemon does."""
        request = {"do": "baseline", "time": 1_700_000_000_000_000, "exclude": [list(exclude), []]}
        *_, told = self.survey(request, under=under)
        self.git_in_store("update-ref", "refs/heads/history", told["baseline"])
        return told

    def scan(self, under: Sequence[str] = ()) -> tuple[dict[bytes, tuple[int, str]], dict[str, Any]]:
        """Scan once; return mode and version of what was found, and the last frame."""
        *folders, done = self.survey({"do": "scan", "id": 7}, under=under)
        assert {frame["id"] for frame in (*folders, done)} == {7}
        found = {
            os.fsencode(os.path.join(frame["folder"], name)): (mode, version)
            for frame in folders
            for name, mode, version in frame["files"]
        }
        return found, done

    def git_in_store(self, *argv: str) -> str:
        return self.git("--git-dir", str(self.store), *argv)

    def recorded(self) -> dict[bytes, tuple[int, str]]:
        """Mode and version of every path in the baseline's tree, as git reads it."""
        listed = os.fsencode(self.git_in_store("ls-tree", "-r", "-z", "history"))
        return dict(_row(row) for row in listed.split(b"\0") if row)

    def on_disk(self, *left_out: str) -> dict[bytes, tuple[int, str]]:
        """Mode and version of every file there is, `.git` left out, and what begins with `left_out`."""
        omitted = tuple(map(os.fsencode, left_out))
        return {path: state for path, state in self._on_disk() if not omitted or not path.startswith(omitted)}

    def _on_disk(self) -> Iterator[tuple[bytes, tuple[int, str]]]:
        top = os.fsencode(self.root)
        for folder, folders, names in os.walk(top):
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            folders[:] = [name for name in folders if name != b".git" and name not in links]
            for name in (name for name in [*names, *links] if name != b".git"):
                place = os.path.join(folder, name)
                yield os.path.relpath(place, top), self._state(place)

    def _state(self, place: bytes) -> tuple[int, str]:
        if os.path.islink(place):
            mode, content = 0o120000, os.readlink(place)
        else:
            mode = 0o100755 if os.stat(place).st_mode & 0o100 else 0o100644
            with open(place, "rb") as file:
                content = file.read()
        return mode, hashlib.sha1(b"blob %d\0%b" % (len(content), content)).hexdigest()


def everything_below(folder: Path) -> dict[str, tuple[int, ...] | tuple[bytes, int, int, int]]:
    """Every byte and every time of a folder: what must be the same after we have read in it."""
    found: dict[str, tuple[int, ...] | tuple[bytes, int, int, int]] = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        at = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (content, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
    return found


def _row(row: bytes) -> tuple[bytes, tuple[int, str]]:
    told, _, path = row.partition(b"\t")
    mode, _kind, oid = told.decode().split(" ")
    return path, (int(mode, 8), oid)
