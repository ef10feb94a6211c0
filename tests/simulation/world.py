"""A simulated world: a fake disk, a fake clock, and an engine that dies at any call and starts again.

    with world(seed) as here:
        here.start()

All is in one process and one thread, and depends on the seed alone. The engine is the product's, opened as
`harness` does. What libgit2 and SQLite touch is real, in a scratch folder in memory:

- libgit2 only reads. Each file of the store is copied for it (`mirror`), and copied anew after a power cut.
- SQLite writes the index, which is a cache. A kill leaves its file as it is. A power cut leaves it, or takes
  it away.

So a kill within a write of SQLite, and a power cut that tears its file, are not simulated.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import pickle
import secrets
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pygit2
import pytest

from editd.store.pack_cleanup import tidy
from editd.store.pack_worker import Packer
from editd.store.verify import verify_quick
from simulation.calls import Calls, Killed, in_force
from simulation.disk import FakeDisk, below, failure
from simulation.mirror import Mirror, copy, remove
from simulation.outsider import Outsider
from support.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.engine.engine import Engine

SEGMENT_BYTES = 2048  # a few edits, so that segments are turned, released and used again
SCRATCH = "/dev/shm" if os.path.isdir("/dev/shm") else None
FILES = {"shared/0.txt": "first\n", "shared/1.txt": "second\n", "other.txt": "third\n"}
START_US = 1_800_000_000_000_000
DATABASES = ("index.db",)


@dataclass
class FakeClock:
    """The clock of the world. It stands still but for `pass_`."""

    us: int = START_US

    def now_us(self) -> int:
        self.us += 1
        return self.us

    def monotonic(self) -> float:
        return (self.us - START_US) / 1e6

    def pass_(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)


@dataclass(slots=True)
class Start:
    """A world with its baseline: the disk, and the databases, to begin each history with."""

    disk: bytes
    databases: dict[str, bytes]


KILL, CUT, FAULT, OUTSIDE = "kill", "cut", "fault", "outside"


@dataclass(slots=True)
class Event:
    """An event at a call."""

    kind: str
    happen: Callable[[], None]
    calls: int = 0  # of the name that it waits for


@dataclass
class World:
    """One world. `at_call` has what happens at a call that changes the disk, by its number."""

    folder: Path
    chance: Random
    disk: FakeDisk
    clock: FakeClock = field(default_factory=FakeClock)
    count: int = 0
    at_call: dict[int, Event] = field(default_factory=dict)
    at_name: dict[str, list[Event]] = field(default_factory=dict)
    engine: Engine | None = None
    kills: int = 0
    cuts: int = 0
    faults: int = 0
    story: list[str] = field(default_factory=list)
    taken_back: list[bytes] = field(default_factory=list)  # contents of edits that were refused or aborted
    boots: int = 1

    def __post_init__(self) -> None:
        self.mirror = Mirror()
        self.calls = Calls(self.disk, str(self.folder), self._before, self.mirror)
        self.harness = Harness(self.folder, self.clock, segment_bytes=SEGMENT_BYTES)  # type: ignore[arg-type]
        self.disk.chance = self.chance
        self.outsider = Outsider(self.calls, b"workspace", tell=self.tell)
        self.packer: Packer | None = None
        self._parts = contextlib.ExitStack()
        self.opened = contextlib.ExitStack()  # of the real system, to be closed also after a kill

    def tell(self, text: str) -> None:
        """Add a line to the story, with the number of calls so far."""
        self.story.append(f"  {self.count}: {text}")

    def _before(self, name: str) -> None:
        self.count += 1
        waiting = self.at_name.get(name)
        if waiting:
            waiting[0].calls -= 1
            if not waiting[0].calls:
                waiting.pop(0).happen()
        event = self.at_call.pop(self.count, None)
        if event is not None:
            event.happen()

    def later(self, calls: int, kind: str, happen: Callable[[], None]) -> None:
        """Let something happen so many calls from now."""
        self.at_call[self.count + calls] = Event(kind, happen)

    def later_at(self, name: str, calls: int, kind: str, happen: Callable[[], None]) -> None:
        """Let something happen at a call of this name, so many of them from now."""
        self.at_name.setdefault(name, []).append(Event(kind, happen, calls))

    def drop(self, kind: str) -> None:
        """Let none of the later events of a kind happen."""
        for number in [number for number, event in self.at_call.items() if event.kind == kind]:
            del self.at_call[number]
        for name, events in self.at_name.items():
            self.at_name[name] = [event for event in events if event.kind != kind]

    def forget_events(self) -> None:
        self.at_call.clear()
        self.at_name.clear()

    @property
    def has_events(self) -> bool:
        return bool(self.at_call) or any(self.at_name.values())

    # ── life and death ──

    def start(self) -> None:
        """Start the engine, which recovers. Raises Killed, and the refusals of a start."""
        assert self.engine is None
        self.calls.live()
        self._parts = contextlib.ExitStack()
        self.packer = None
        try:
            self.engine = self.harness.open(parts=self._parts)
        except pygit2.GitError as error:  # of a salvage, which finds no packs on the real disk
            flaws = [damage.what for damage in verify_quick(str(self.harness.state))]
            raise AssertionError(f"the history is damaged after a crash: {flaws}") from error

    def die(self) -> None:
        """End the process as SIGKILL does: at this call, or between two."""
        self.calls.die()
        self.kills += 1
        self.tell("killed")
        raise Killed

    def cut(self) -> None:
        """Cut the power at this call."""
        self.calls.die()
        self.cuts += 1
        self.tell("no power")
        self.calls.boot += 1
        raise Killed

    def fail(self, number: int) -> None:
        """Let this call fail."""
        self.faults += 1
        self.tell(f"fails with {errno.errorcode[number]}")
        raise failure(number)

    def bury(self) -> None:
        """Close what the dead process had of the real system. After a power cut, lose what it takes."""
        self.calls.die()
        engine, self.engine = self.engine, None
        if engine is not None:
            close_real(engine)
        self.opened.close()
        self._parts.pop_all()
        if self.calls.boot > self.boots:
            self.boots = self.calls.boot
            self.disk.cut_power(self.chance)
            self.drop(OUTSIDE)
            self.outsider.lose(bytes(node.content) for _, node in below(self.disk.root) if node.is_file)
            self._follow_store()
            if self.chance.random() < 0.5:
                for name in DATABASES:
                    self._remove_database(name)
        self.calls.live()

    def close(self) -> None:
        """End the engine cleanly."""
        engine, self.engine = self.engine, None
        assert engine is not None
        engine.recorder.close()
        self._parts.close()

    def _remove_database(self, name: str) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            remove(str(self.folder / "state" / (name + suffix)))

    def _follow_store(self) -> None:
        try:
            store = self.disk.walk(self.disk.root, b"state/store.git")
        except OSError:
            return
        self.mirror.begin(store, str(self.folder / "state" / "store.git"))

    # ── the background ──

    def pack(self) -> Callable[[], None] | None:
        """Pack what is due, as the packing process does; return the note of it, for the engine."""
        engine = self.engine
        assert engine is not None
        due = engine.recorder.packing_due()
        if due is None:
            return None
        start, until, through = due
        if self.packer is None:
            tidy(os.path.join(engine.history.store, "objects", "pack"))
            self.packer = Packer(engine.history.folder)
        self.packer.pack(start, until, through)
        return lambda: engine.recorder.packed(through, until)

    # ── the start of a history ──

    def restore(self, start: Start) -> None:
        """Put the real part of a start in place."""
        state = self.folder / "state"
        remove(str(state))
        state.mkdir(parents=True)
        for name, content in start.databases.items():
            (state / name).write_bytes(content)
        self._follow_store()

    @contextlib.contextmanager
    def on_real_disk(self) -> Iterator[str]:
        """Yield the state folder with the journal on the real disk, for code that reads it by SQLite."""
        path = self.folder / "state" / "journal"
        copy(self.disk.walk(self.disk.root, b"state/journal"), str(path))
        self.calls.is_suspended = True
        try:
            yield str(self.folder / "state")
        finally:
            self.calls.is_suspended = False
            remove(str(path))

    def touched_path(self) -> str | None:
        """Return the path of the workspace that is being exchanged or moved; None if it is another's."""
        top = self.disk.walk(self.disk.root, b"workspace")
        folders = {id(node): path + b"/" for path, node in below(top) if node.is_folder} | {id(top): b""}
        for folder, name in self.calls.touched:
            if id(folder) in folders and not name.startswith(b"."):
                return os.fsdecode(folders[id(folder)] + name)
        return None

    def paths(self) -> list[bytes]:
        """Return every path in the workspace, folders and temporaries too."""
        return [path for path, _ in below(self.disk.walk(self.disk.root, b"workspace"))]

    def files(self) -> dict[str, bytes]:
        """Return each regular file of the workspace, temporaries too."""
        nodes = below(self.disk.walk(self.disk.root, b"workspace"))
        return {os.fsdecode(path): bytes(node.content) for path, node in nodes if node.is_file}


def close_real(engine: Engine) -> None:
    """Close what a killed engine has of the real system, without writing anything."""
    engine.history.index._database.close()  # `close` would write what a kill loses
    engine.history._objects.close()
    engine.recorder.hidden.close()


@contextlib.contextmanager
def deterministic(clock: FakeClock, seed: object) -> Iterator[None]:
    """Let tokens come from a seed, and sleep on the fake clock, until the block ends."""
    tokens, number = Random(f"{seed} tokens"), itertools.count()

    def token_hex(size: int | None = None) -> str:
        bits = 8 * (size or 32)
        return f"{tokens.getrandbits(bits - 16) << 16 | next(number):0{bits // 4}x}"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(secrets, "token_hex", token_hex)
        patched.setattr(time, "sleep", clock.pass_)
        yield


class Worlds:
    """A scratch folder, and the start of all histories in it."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="editd-world-", dir=SCRATCH)) / "world"
        self.folder.mkdir()
        self._start = self._made()

    def _made(self) -> Start:
        """Take the baseline of a workspace, and stop cleanly after the first start."""
        world = World(self.folder, Random(0), FakeDisk())
        world.disk.make_folder(world.disk.root, b"state", 0o700)
        world.restore(Start(b"", {}))
        with deterministic(world.clock, 0), in_force(world.calls):
            for made in (world.harness.root, world.harness.store):
                made.mkdir(parents=True, exist_ok=True)
            world._follow_store()
            world.harness.baseline(FILES)
            world.start()
            world.close()
        world.disk.sync_all()
        state = self.folder / "state"
        databases = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
        return Start(pickle.dumps(world.disk), databases)

    @contextlib.contextmanager
    def world(self, seed: object) -> Iterator[World]:
        """Yield a world at its start, with its calls in force."""
        made = World(self.folder, Random(f"{seed} world"), pickle.loads(self._start.disk))
        made.restore(self._start)
        with deterministic(made.clock, seed), in_force(made.calls):
            try:
                yield made
            finally:
                if made.engine is not None:
                    made.calls.die()
                    close_real(made.engine)

    def close(self) -> None:
        shutil.rmtree(self.folder.parent)


@contextlib.contextmanager
def worlds() -> Iterator[Worlds]:
    """Yield a scratch folder for worlds, and remove it afterwards."""
    made = Worlds()
    try:
        yield made
    finally:
        made.close()
