"""Pairs of events: a fault, a kill or an outside save at one call, and another one at a later call.

A child of the test runs the engine, and the events happen at two calls that reach the disk. The test then
starts the engine again, as after a crash, and verifies P1 to P4. Each transaction is whole in the history or
absent, acknowledged ones are present, refused ones are absent, and no saved content is lost. Segments are
small, so that their borders are crossed. The long form has 4,000 pairs.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from editd.engine.commands import Undo
from editd.engine.external_changes import sweep
from editd.engine.undo_selection import ByTransaction
from editd.errors import Broken, Refused
from editd.store.verify import verify_quick
from editd.system import filesystem
from editd.values.content import version_of
from editd.values.transaction import Authorship, Outcome
from support import seeds
from support.edit_messages import chmod, delete, move
from support.harness import Harness, apply, pack, path_of, sync, write
from support.workplace import files_below

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd.engine.commands import Write
    from editd.engine.engine import Engine

PAIRS, PAIRS_LONG = 16, 4000
EVERY = 3  # the short form takes one of so many calls of a recovery, by the seed
SMALL_SEGMENT_BYTES = 8192
KILL, EIO, ENOSPC, SAVE = "kill", "EIO", "ENOSPC", "save"
BOOT = b"another"  # a different boot from the preparation
EVENTS = (KILL, EIO, ENOSPC, SAVE)
SAVED = "a"  # the file that another program also saves
STRUCK = (  # calls of the module os that change something
    "write", "pwrite", "writev", "pwritev", "fsync", "fdatasync", "rename", "replace", "unlink", "rmdir",
    "mkdir", "ftruncate", "fchmod", "link", "symlink", "posix_fallocate", "utime",
)  # fmt: skip
STRUCK_IN_C = ("_renameat2", "_syncfs")  # calls of system.filesystem that the module os lacks


# ── the events, in the child ──


@dataclass
class Strikes:
    """The events of a run, by the number of the call before which each happens."""

    root: Path
    planned: dict[int, str]
    calls: int = 0
    is_armed: bool = False

    def install(self) -> None:
        """Make every call of this process run `count` first."""
        for name in STRUCK:
            setattr(os, name, self._struck(getattr(os, name)))
        for name in STRUCK_IN_C:
            setattr(filesystem, name, self._struck_in_c(getattr(filesystem, name)))

    def count(self) -> int | None:
        """Count one call, and carry out its event. Return the errno with which the call fails."""
        if not self.is_armed:
            return None
        self.calls += 1
        event = self.planned.get(self.calls)
        if event == KILL:
            os._exit(-signal.SIGKILL & 0xFF)
        if event == SAVE:
            self.is_armed = False
            save(self.root, f"saved before call {self.calls}\n")
            self.is_armed = True
        return getattr(errno, event) if event in (EIO, ENOSPC) else None

    def _struck(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*words: Any, **more: Any) -> Any:
            number = self.count()
            if number is not None:
                raise OSError(number, os.strerror(number))
            return call(*words, **more)

        return struck

    def _struck_in_c(self, call: Callable[..., int]) -> Callable[..., int]:
        def struck(*words: Any) -> int:
            number = self.count()
            if number is not None:
                ctypes.set_errno(number)
                return -1
            return call(*words)

        return struck


def save(root: Path, text: str) -> None:
    """Save `SAVED` as an editor does. Note the new content, and the replaced content of its own."""
    target = root / SAVED
    replaced = target.read_text() if target.exists() else None
    with (root.parent / "saved").open("a") as file:
        file.write(json.dumps([text, replaced]) + "\n")
    aside = root / "being-saved~"
    aside.write_text(text)
    aside.rename(target)


# ── scenarios ──


@dataclass(frozen=True)
class Scenario:
    """The requests during the events, after `before` was done without any."""

    before: tuple[Write, ...]
    requests: tuple[Write, ...]
    is_packed: bool = False  # packed and synced after each request
    is_cut: bool = False  # the events happen in the recovery from a power cut after `before`


FILES = {"a": "a\n", "b": "b\n" * 50, "folder/c": "c\n", "folder/d": "d\n", "e": "e\n"}
ONE = apply(write("a", "one\n"), message="one")
MANY = apply(
    write("a", "many\n"), write("new/deep/f", "f\n"), delete(path_of("folder/c")),
    move(path_of("folder/d"), path_of("moved/d")), chmod(path_of("e"), executable=True),
    message="many",
)  # fmt: skip
SWAP = apply(
    delete(path_of("folder/c")), delete(path_of("folder/d")), write("folder", "file\n"),
    message="swap",
)  # fmt: skip
LARGE = tuple(apply(write("a", f"{n} " * 1500), message=f"large {n}") for n in range(3))
SCENARIOS = {
    "one file": Scenario((), (ONE,)),
    "five files": Scenario((), (MANY,)),
    "a file in the place of a folder": Scenario((), (SWAP,)),
    "an undo": Scenario((MANY,), (Undo(Authorship("me", None, "undo"), "connection 1", ByTransaction(1)),)),
    "segments that fill": Scenario((), LARGE, is_packed=True),
    "packing": Scenario((), (ONE, MANY), is_packed=True),
    "recovery": Scenario((ONE, MANY), (), is_cut=True),
    "recovery of an undo": Scenario(
        (MANY, Undo(Authorship("me", None, "undo"), "connection 1", ByTransaction(1))), (), is_cut=True
    ),
}


@dataclass(frozen=True)
class Ran:
    """The report of a child: the number of calls, and the answers to requests."""

    calls: int
    answers: dict[str, bool]  # by message: done, or refused


def run(place: Harness, scenario: Scenario, planned: dict[int, str]) -> Ran:
    """Run a scenario with its events in a child, and read its report."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reading)
            _run_struck(place, scenario, Strikes(place.root, planned), writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = [json.loads(line) for line in pipe]
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL & 0xFF), f"the child failed: {told}"
    answers = {answer["message"]: answer["done"] for answer in told if "message" in answer}
    return Ran(max((answer.get("calls", 0) for answer in told), default=0), answers)


def _run_struck(place: Harness, scenario: Scenario, strikes: Strikes, writing: int) -> None:
    write_line, exit_now = os.write, os._exit
    strikes.install()
    strikes.is_armed = scenario.is_cut
    try:
        engine = place.open(boot=BOOT)
    except (Refused, OSError):
        exit_now(0)  # The next start repeats a failed recovery.
    strikes.is_armed = True
    for request in scenario.requests:
        (result,) = engine.run_batch([request])
        if isinstance(result, Broken):
            break  # The answer says that the state is in doubt until the next start.
        said = {"message": request.authorship.message, "done": isinstance(result, Outcome)}
        strikes.is_armed = False
        write_line(writing, json.dumps(said).encode() + b"\n")
        strikes.is_armed = True
        if scenario.is_packed and engine.recorder.broken is None:
            _in_the_background(engine)
    strikes.is_armed = False
    write_line(writing, json.dumps({"calls": strikes.calls}).encode() + b"\n")
    exit_now(0)


def _in_the_background(engine: Engine) -> None:
    """Pack and sync. A failure has no effect except a later retry."""
    try:
        pack(engine)
        engine.recorder.sync_files(engine.history.head)
        engine.recorder.files_synced(engine.history.head)
    except Refused:
        return
    except OSError as error:
        engine.recorder.sync_failed(error)


# ── the checks afterwards ──


def verify(place: Harness, scenario: Scenario, ran: Ran) -> None:
    """Start the engine again, and compare history, files and answers."""
    messages = [request.authorship.message for request in (*scenario.before, *scenario.requests)]
    with place.engine(boot=BOOT) as engine:
        assert engine.recorder.broken is None
        adopt_all(engine, place)
        recorded = [engine.history.index.transaction(seq) for seq in range(1, int(engine.history.head) + 1)]
        made = [one.authorship.message for one in recorded if one is not None and one.kind != "outside"]
        assert len(recorded) == len([one for one in recorded if one is not None])
        assert sorted(set(made)) == sorted(made), "a request took effect twice"
        assert set(made) <= set(messages)
        for request in scenario.before:
            assert request.authorship.message in made, "an acknowledged transaction is missing"
        for message, is_done in ran.answers.items():
            assert (message in made) == is_done, (message, is_done, made)
        strays = [os.fsencode(path) for path, _ in files_below(place.root) if ".editd-" in path]
        sweep(engine.files, engine.history, strays)  # as the daemon does
        found = [content for _, content in files_below(place.state / "strays")]
        for text in saved(place):
            is_recorded = engine.history.content(version_of(text.encode())) is not None
            assert is_recorded or text.encode() in found, f"lost: {text}"
        for path, content in files_below(place.root):
            if ".editd-" in path or path.endswith("~"):
                continue
            entry = engine.history.entry(path_of(path))
            assert entry is not None, path
            assert entry.version == version_of(content), path
        pack(engine)
        sync(engine)
    assert verify_quick(str(place.state)) == []
    with place.engine(boot=BOOT) as engine:
        assert engine.recorder.broken is None


def adopt_all(engine: Engine, place: Harness) -> None:
    """Record the present files, as a scan does after each start."""
    inspection = engine.recorder.inspect()
    known = set(FILES) | {"new/deep/f", "moved/d", "folder"}
    known |= {path for path, _ in files_below(place.root) if ".editd-" not in path and "~" not in path}
    for path in sorted(known):
        inspection.look(path_of(path))
    inspection.record()


def saved(place: Harness) -> set[str]:
    """Return the content that another program saved, without content that it replaced itself."""
    kept = place.folder / "saved"
    saves = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    return {text for text, _ in saves} - {replaced for _, replaced in saves}


# ── the test ──


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for each scenario, prepared without events. Each pair gets a copy."""
    top = tmp_path_factory.mktemp("pairs")
    for name, scenario in SCENARIOS.items():
        place = Harness(top / name, segment_bytes=SMALL_SEGMENT_BYTES)
        place.baseline(FILES)
        place.crash(*scenario.before)
        if scenario.is_cut:  # Only the journal and the baseline had reached the disk.
            shutil.rmtree(place.root)
            place.write(FILES)
    return top


def copied(prepared: Path, name: str, folder: Path) -> Harness:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared / name, folder, symlinks=True)
    return Harness(folder, segment_bytes=SMALL_SEGMENT_BYTES)


@pytest.mark.long  # the gate has `tests/simulation`, whose histories have such pairs
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", SCENARIOS)
def test_two_things_at_once_lose_nothing_and_leave_nothing_half_there(
    prepared: Path, tmp_path: Path, name: str, is_long: bool
) -> None:
    scenario = SCENARIOS[name]
    seed = random.randrange(1 << 32) if is_long else seeds.seed()
    print(f"seed {seed}")
    chance = random.Random(seed)
    calls = run(copied(prepared, name, tmp_path / "place"), scenario, {}).calls
    assert calls > 5
    for _ in range((PAIRS_LONG if is_long else PAIRS) // len(SCENARIOS)):
        first, second = sorted(chance.sample(range(1, calls + 6), 2))
        planned = {first: chance.choice(EVENTS[1:]), second: chance.choice(EVENTS)}
        place = copied(prepared, name, tmp_path / "place")
        try:
            verify(place, scenario, run(place, scenario, planned))
        except BaseException:
            print(f"{name}: {planned}")
            raise


def test_a_recovery_is_refused_where_the_disk_says_no_right_after_an_outside_save(
    prepared: Path, tmp_path: Path, is_long: bool
) -> None:
    """The exchange finds the saved file in the place of the old one, and cannot be reverted."""
    scenario = SCENARIOS["recovery"]
    calls = run(copied(prepared, "recovery", tmp_path / "place"), scenario, {}).calls
    every = 1 if is_long else EVERY
    for number in range(1 + seeds.seed() % every, calls, every):
        place = copied(prepared, "recovery", tmp_path / "place")
        verify(place, scenario, run(place, scenario, {number: SAVE, number + 1: EIO}))
