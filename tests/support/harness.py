"""An engine in this process, over a real state folder: real journal, real git, real files.

The clock and the disk are the test's own, so a state that needs a race, a fault or a crash takes a few
lines. A daemon process proves the same more slowly, and only where a race happens to fall right.
"""

from __future__ import annotations

import contextlib
import io
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from editd.engine.commands import Apply
from editd.engine.engine import Engine
from editd.engine.recorder import Recorder
from editd.engine.scan_worker import ScanWorker
from editd.errors import Refused
from editd.server.ownership import open_disk
from editd.store.excluded import append_excluded
from editd.store.git_repository import move_head, write_manifest
from editd.store.pack_worker import Packer
from editd.store.salvage import open_history
from editd.system.filesystem import Disk, ignore_lease_signal
from editd.values.content import Version
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, Outcome
from editd.wire import messages
from editd.workspace.reader import WorkspaceReader
from editd.workspace.replaced_files import Quarantine
from editd.workspace.staged_change import CreatedDirs
from editd.workspace.writer import WorkspaceWriter
from support.workplace import SEGMENT_BYTES, files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from editd.engine.commands import Result, Write
    from editd.values.transaction import Transaction

FILE_BYTES_MAX = 64 << 20
BASELINE_US = 1_700_000_000_000_000

ignore_lease_signal()  # as the daemon does when it starts


@dataclass
class FakeClock:
    """A clock whose time of day the test sets; its monotonic time is the machine's."""

    us: int | None = None  # None: the machine's

    def now_us(self) -> int:
        return time.time_ns() // 1000 if self.us is None else self.us

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class Harness:
    """A workspace and a state folder; `engine` and `killed` open an engine on them, as often as asked."""

    folder: Path
    clock: FakeClock = field(default_factory=FakeClock)
    root: Path = Path()  # (default: a folder beside the state)
    excluded: ExcludedPaths = field(default_factory=ExcludedPaths)
    segment_bytes: int = SEGMENT_BYTES

    def __post_init__(self) -> None:
        self.root = self.root if self.root.name else self.folder / "workspace"
        for made in (self.root, self.state):
            made.mkdir(parents=True, exist_ok=True)

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def store(self) -> Path:
        return self.state / "store.git"

    def write(self, files: Mapping[str, str]) -> None:
        """Write files from outside, as any other program might."""
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def files(self) -> dict[str, str]:
        """Return the text of each regular file in the workspace by its path."""
        return {name: content.decode() for name, content in files_below(self.root)}

    def baseline(self, files: Mapping[str, str] | None = None) -> None:
        """Write these files and record them as transaction 0, as the scanning process does."""
        self.write(files or {})
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):  # for the frames of its progress
            taken = ScanWorker(str(self.root), str(self.state)).baseline(BASELINE_US, self.excluded)
        append_excluded(str(self.store), [(Version(one), path) for one, path in taken["excluded"]])
        write_manifest(str(self.store))
        move_head(str(self.store), bytes.fromhex(taken["baseline"]))

    def open(
        self,
        *,
        make_disk: Callable[[str], Disk] = open_disk,
        is_ours: Callable[[WorkspacePath], bool] = lambda _path: True,
        boot: bytes = b"",
        parts: contextlib.ExitStack | None = None,
    ) -> Engine:
        """Open the history and recover, as the daemon does when it starts.

        With another `boot` than before, what was not synced may be torn, as after a power cut.
        `parts` closes the folders and files that the engine keeps open until its process ends.
        """
        parts = contextlib.ExitStack() if parts is None else parts
        disk = make_disk(str(self.root))
        parts.callback(disk.close)
        replaced = Quarantine(str(self.state / "replaced"))
        parts.callback(replaced.close)
        made_folders = CreatedDirs(str(self.state / "folders"))
        parts.callback(made_folders.close)
        files = WorkspaceWriter(disk, replaced=replaced, made_folders=made_folders)
        tree = WorkspaceReader(disk, file_bytes_max=FILE_BYTES_MAX)
        history = open_history(str(self.state), segment_bytes=self.segment_bytes)
        history.excluded.rule = self.excluded
        recorder = Recorder(
            history, tree, files, self.clock, lambda: is_ours, disk.is_root_in_place, mount=boot
        )
        return Engine(recorder)

    @contextlib.contextmanager
    def engine(self, **more: object) -> Iterator[Engine]:
        """Open an engine that ends cleanly. `more` goes to `open`."""
        with contextlib.ExitStack() as parts:
            engine = self.open(parts=parts, **more)  # type: ignore[arg-type]
            parts.callback(engine.recorder.close)
            yield engine

    @contextlib.contextmanager
    def killed(self, **more: object) -> Iterator[Engine]:
        """Open an engine that leaves everything as a SIGKILL would."""
        with contextlib.ExitStack() as parts:
            engine = self.open(parts=parts, **more)  # type: ignore[arg-type]
            parts.callback(engine.history.close)
            parts.callback(engine.recorder.hidden.close)
            yield engine

    def crash(self, *requests: Write) -> None:
        """Carry out these requests, each in a turn of its own, and end as by SIGKILL."""
        with self.killed() as engine:
            for request in requests:
                done(engine, request)


def path_of(text: str) -> WorkspacePath:
    return WorkspacePath.parse(text)


def write(path: str, text: str) -> messages.Write:
    """Return a write of the whole file that asks for no base."""
    return messages.Write(path=path, content=text, force=True)


def apply(
    *edits: messages.AnyEdit, session: str | None = None, request_id: str | None = None, message: str = ""
) -> Apply:
    """Return the request to apply these edits."""
    return Apply(tuple(edits), Authorship("somebody", session, message, request_id), "connection 1")


def answer(engine: Engine, request: Write) -> Result:
    """Carry out one request in a turn of its own, and return its result."""
    (result,) = engine.run_batch([request])
    return result


def done(engine: Engine, request: Write) -> Transaction:
    """Carry out one request that must succeed, and return its transaction."""
    result = answer(engine, request)
    assert isinstance(result, Outcome), result
    assert result.transaction is not None
    return result.transaction


def refused(engine: Engine, request: Write) -> Refused:
    """Carry out one request that must be refused, and return the refusal."""
    result = answer(engine, request)
    assert isinstance(result, Refused), result
    return result


def pack(engine: Engine) -> None:
    """Put everything that is committed into git, as the packing process does."""
    due = engine.recorder.packing_due()
    if due is not None:
        start, until, through = due
        Packer(engine.history.folder).pack(start, until, through)
        engine.recorder.packed(through, until)


def sync(engine: Engine) -> None:
    """Sync the workspace's files, as the background task does."""
    engine.recorder.sync_files(engine.history.head)
    engine.recorder.files_synced(engine.history.head)


def names_below(root: Path) -> list[str]:
    """Return each file and folder in the workspace by its path, temporaries too."""
    return sorted(os.path.relpath(path, root) for path in root.rglob("*"))
