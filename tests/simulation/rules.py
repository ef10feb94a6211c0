"""The rules that hold after each crash and recovery, and at the end of a history.

Those for what authors asked for are `authors.verify_history`, as after a SIGKILL of a real daemon. Here is
what the fake disk adds: no byte of another program is lost, and none is in the history that nobody wrote.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from editd.engine.external_changes import sweep
from editd.server.convert import transaction_result
from editd.store.verify_history import verify_full
from editd.values.content import Version, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Outcome
from simulation.world import FILES
from support.authors import verify_history
from support.crash_checks import versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.engine.engine import Engine
    from editd.wire.messages import Change, Transaction
    from simulation.world import World
    from support.authors import Writer

TEMPORARY = b".editd-"
UNDO = "undo "  # begins the message of an undo
QUARANTINE_SECONDS = 4.0  # more than any replaced file is kept


def made_by(engine: Engine) -> list[Transaction]:
    """Return each transaction as a client is told of it."""
    seqs = range(1, int(engine.history.head) + 1)
    return [transaction_result(one) for one in engine.history.index.transactions(seqs)]


def is_temporary(path: bytes) -> bool:
    return path.rpartition(b"/")[2].startswith(TEMPORARY)


def settle(world: World) -> None:
    """Let all that is under way end, and compare each file with the history, as a scan does."""
    engine = world.engine
    assert engine is not None
    world.outsider.let_go()
    engine.recorder.clean_up()
    sweep(engine.files, engine.history, [path for path in world.paths() if is_temporary(path)])
    for _ in range(2):  # a file that was open for writing is kept for another check
        check_quarantine(world)
        world.clock.pass_(QUARANTINE_SECONDS)
    inspection = engine.recorder.inspect()
    known = {change.path for one in made_by(engine) for change in one.files} | {*FILES, *world.files()}
    for path in sorted(known):
        if not is_temporary(path.encode()):
            inspection.look(WorkspacePath.parse(path))
    assert not inspection.failed, inspection.failed
    inspection.record()


def check_quarantine(world: World) -> None:
    engine = world.engine
    assert engine is not None
    check = engine.recorder.check_quarantine(is_busy=False)
    if check is not None:
        engine.recorder.record_late_writes(check())


def verify(world: World, writers: list[Writer], story: list[str]) -> None:
    """Verify a settled world."""
    engine = world.engine
    assert engine is not None
    assert engine.recorder.broken is None, engine.recorder.broken
    made, files = made_by(engine), world.files()
    left = [path for path in world.paths() if is_temporary(path)]
    assert not left, f"left in the workspace: {left}"
    start = {path: Version(version_of(content.encode())) for path, content in FILES.items()}

    earlier: dict[str, set[object]] = {path: {version} for path, version in start.items()}

    def is_known(one: Transaction) -> bool:
        is_foreign = one.kind == "outside"
        for change in one.files:
            if is_foreign:
                verify_foreign_change(world, change, earlier.get(change.path, set()))
            earlier.setdefault(change.path, set()).add(change.version)
        return is_foreign or (one.kind == "undo" and one.message.startswith(UNDO))

    verify_history(
        made, versions(files), writers, lambda: "\n".join(story[-20:]), start=start, is_known=is_known,
        is_there=lambda version: bool(world.cuts) and was_taken_back(world, version),
    )  # fmt: skip
    verify_foreign(world, engine, files)


def verify_foreign_change(world: World, change: Change, earlier: set[object]) -> None:
    """Verify that another program made this change.

    The file may also be as before such a change: a power cut took it, it was a late write to a replaced file,
    behind which the present content is recorded, or recovery left a file that is being written as it is.
    """
    outsider = world.outsider
    if change.path in outsider.touched and change.version in earlier:
        return
    if world.cuts and change.version is not None and was_taken_back(world, change.version):
        return
    if change.version is None:
        assert change.path in outsider.deleted, f"no other program removed {change.path}"
    else:
        assert change.version in outsider.contents, f"no other program wrote {change.path} as it is recorded"


def was_taken_back(world: World, version: str) -> bool:
    """Return whether a content is that of an aborted edit, or a torn one.

    If such an edit was published and taken back, a power cut can bring its file back (a known gap).
    """
    assert world.engine is not None
    content = world.engine.history.content(Version(version))
    whole = None if content is None else content.rstrip(b"\0")
    return whole is not None and any(one.startswith(whole) for one in world.taken_back)


def verify_foreign(world: World, engine: Engine, files: dict[str, bytes]) -> None:
    """Verify that the last save of another program is in the history, in the files, or set aside."""
    there = {version_of(content) for content in files.values()}
    aside: set[str] = set()
    with contextlib.suppress(FileNotFoundError):
        aside = set(os.listdir(world.folder / "state" / "strays"))
    for path, version in world.outsider.owed.items():
        is_kept = version in there or version in aside or engine.history.content(Version(version)) is not None
        assert is_kept, f"what another program wrote into {path} is lost"


def verify_store(world: World) -> None:
    """Pack all, and verify the history as `check` does."""
    engine = world.engine
    assert engine is not None
    note = world.pack()
    if note is not None:
        note()
    engine.history.index.flush()
    with world.on_real_disk() as state:
        problems, _ = verify_full(state)
    assert not problems, problems


def undo_all(world: World, undo: Callable[[int], object]) -> None:
    """Undo each transaction alone, the newest first: the files are then as they were before all."""
    engine = world.engine
    assert engine is not None
    made = made_by(engine)
    if any(one.kind == "outside" for one in made):
        return  # an undo of such a change is right to conflict
    for one in reversed(made):
        if one.kind == "edit" and not isinstance(one.undone_by, int):
            result = undo(one.seq)
            assert isinstance(result, Outcome), f"{one.seq} cannot be undone: {result}"
    assert world.files() == {path: content.encode() for path, content in FILES.items()}
