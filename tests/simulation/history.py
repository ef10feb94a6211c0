"""A random history of one world: requests, background work, other programs, kills, power cuts and faults.

Its seed gives the steps, and each step draws from its own number, so that leaving some out changes no other.
"""

from __future__ import annotations

import errno
import os
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from editd.engine.commands import Undo
from editd.engine.undo_selection import ByTransaction
from editd.errors import Broken, Refused
from editd.values.transaction import Authorship, Outcome
from simulation import rules
from simulation.calls import Killed
from simulation.world import CUT, FAULT, KILL, OUTSIDE
from support.authors import Writer
from support.harness import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.commands import Apply, Result
    from editd.engine.engine import Engine
    from simulation.world import World, Worlds

WEIGHTS = {
    "turn": 10, "burst": 3, "race": 6, "undo": 2, "wait": 2, "quarantine": 3, "spares": 1, "segment": 1,
    "pack": 2, "sync": 2, "note": 2, "rest": 3, "outside": 2, "outside later": 3, "let go": 1,
    "kill": 3, "cut": 3, "fault": 3, "restart": 1,
}  # fmt: skip
STEPS = 8
WRITERS = 3
CALLS_MAX = 60  # until something happens: an edit makes some 20 calls that change the disk
STARTS_MAX = 20
OPEN_SECONDS = 0.9  # no open(2) of a file lasts longer (workspace.replaced_files)
RACED = ("exchange", "exchange", "move")
MATTERING = ("exchange", "move", "dsync", "syncfs", "fsync", "rename", "unlink")
FAILING = ("dsync", "dsync", "syncfs", "fsync", "rename", "exchange", "open", "write")
FAULTS = (errno.EIO, errno.ENOSPC)
PATHS = ("shared/0.txt", "shared/1.txt", "shared/2.txt", "other.txt", "outside.txt")
VERIFIED_SHARE = 8  # one history of so many is verified as `check` does: that costs as much as the history
UNDONE_SHARE = 3  # and of so many, each transaction is undone at the end


@dataclass(frozen=True)
class Failure:
    """How a history ended that did not go well."""

    seed: int
    at: int | None  # the number of its last step; None once all are done
    message: str
    story: Sequence[str]


def steps_of(seed: int, count: int = STEPS) -> list[str]:
    """Return the kinds of the steps of a history."""
    chance = Random(seed)
    return chance.choices([*WEIGHTS], [*WEIGHTS.values()], k=count)


@dataclass
class History:
    """One history on its way."""

    world: World
    seed: int
    writers: list[Writer] = field(default_factory=list)
    undos: dict[str, int] = field(default_factory=dict)  # without an answer yet, and what they take back
    notes: list[Callable[[], None]] = field(default_factory=list)  # of background work, for the engine

    def __post_init__(self) -> None:
        self.writers = [Writer(f"w{number}", Random(f"{self.seed} {number}")) for number in range(WRITERS)]

    @property
    def story(self) -> list[str]:
        return self.world.story

    @property
    def engine(self) -> Engine:
        assert self.world.engine is not None
        return self.world.engine

    # ── steps ──

    def take(self, kind: str, chance: Random) -> None:
        """Take one step. If the engine dies in it, start it again, and verify."""
        self.story.append(kind)
        try:
            getattr(self, f"_{kind.replace(' ', '_')}")(chance)
            if self.engine.recorder.broken is not None:
                self.world.tell("broken")
                self.world.die()
        except Killed:
            self.recover()

    def recover(self) -> None:
        """Start the engine, also if it dies in that, and verify the world."""
        unsure = [writer.unsure[0] for writer in self.writers if writer.unsure is not None]
        self.world.taken_back += [f"{serial}\n".encode() for serial in unsure]  # perhaps
        for _ in range(STARTS_MAX):
            self.world.tell("starts")
            self.notes.clear()
            self.world.bury()
            try:
                self.world.start()
                self.ask_again()
                self.world.drop(FAULT)
                self.world.drop(OUTSIDE)  # otherwise a later change than the last look at the files
                rules.settle(self.world)
            except Killed:
                continue
            except (Refused, OSError) as refusal:
                self._may_refuse_to_start(refusal)
                self.world.tell(f"does not start: {refusal}")
                continue
            if self.engine.recorder.broken is None:
                break
        else:
            raise AssertionError("it never starts")
        rules.verify(self.world, self.writers, self.story)

    def _may_refuse_to_start(self, refusal: Exception) -> None:
        if not self.world.faults:
            raise AssertionError(f"it does not start: {refusal}")

    def ask_again(self) -> None:
        """Repeat each request without an answer, as its client does."""
        for writer in self.writers:
            if writer.unsure is not None:
                self._answer(writer, self.engine.run_batch([self._request(writer)])[0])
        for message, seq in list(self.undos.items()):
            self._undone(message, seq)

    def _request(self, writer: Writer) -> Apply:
        serial, edits = writer.unsure or writer.make()
        return apply(*edits, request_id=serial, message=serial)

    def _answer(self, writer: Writer, result: Result) -> None:
        assert writer.unsure is not None
        serial = writer.unsure[0]
        self.world.tell(f"{serial}: {_shown(result)}")
        if isinstance(result, Outcome):
            assert result.transaction is not None
            writer.acknowledged[serial] = int(result.transaction.seq)
            writer.unsure = None
        elif isinstance(result, Refused) and not isinstance(result, Broken):
            self.world.taken_back.append(f"{serial}\n".encode())
            del writer.asked[serial]  # nothing of it may be there
            writer.unsure = None

    def _turn(self, chance: Random) -> None:
        asking = chance.sample(self.writers, chance.randint(1, WRITERS))
        requests = [self._request(writer) for writer in asking]
        for writer, result in zip(asking, self.engine.carry_out(requests), strict=True):
            self._answer(writer, result)
        self.engine.recorder.clean_up()

    def _burst(self, chance: Random) -> None:
        for _ in range(3):
            self._turn(chance)

    def _race(self, chance: Random) -> None:
        """Take a turn in which another program saves a file just as it is exchanged, and perhaps all dies."""
        world, writer = self.world, chance.choice(self.writers)
        request = self._request(writer)
        assert writer.unsure is not None
        count, kind = len(writer.unsure[1]), chance.choice(("save", "save by rename", "delete", "hold"))

        def happen() -> None:
            path = world.touched_path()
            if path is not None:
                self._outside_act(kind, path)()

        world.later_at(chance.choice(RACED), chance.randint(1, count), OUTSIDE, happen)
        if chance.random() < 0.5:
            world.later(chance.randint(4, CALLS_MAX // 2), *self._end_of(chance))
        for result in self.engine.carry_out([request]):
            self._answer(writer, result)
        self.engine.recorder.clean_up()

    def _end_of(self, chance: Random) -> tuple[str, Callable[[], None]]:
        """Return a way to die, or a fault."""
        number = chance.choice(FAULTS)
        return chance.choice(
            [(KILL, self.world.die), (CUT, self.world.cut), (FAULT, lambda: self.world.fail(number))]
        )

    def _undo(self, chance: Random) -> None:
        head = int(self.engine.history.head)
        if head:
            seq = chance.randint(1, head)
            self._undone(f"{rules.UNDO}{seq} of {len(self.story)}", seq)
            self.engine.recorder.clean_up()

    def _undone(self, message: str, seq: int) -> Result:
        self.undos[message] = seq
        authorship = Authorship("somebody", None, message, message)
        (result,) = self.engine.carry_out([Undo(authorship, "connection 1", ByTransaction(seq))])
        self.world.tell(f"{message}: {_shown(result)}")
        if not isinstance(result, Broken):
            del self.undos[message]
        return result

    def _wait(self, chance: Random) -> None:
        self.world.clock.pass_(chance.choice((0.1, 1.1, 4.0)))

    def _quarantine(self, chance: Random) -> None:
        rules.check_quarantine(self.world)
        self.world.clock.pass_(chance.choice((0.1, 0.5, 1.1)))
        rules.check_quarantine(self.world)

    def _rest(self, chance: Random) -> None:
        """Do all background work, as in a pause of two seconds."""
        rules.check_quarantine(self.world)
        for work in (self._pack, self._sync, self._note, self._spares, self._segment):
            if self.engine.recorder.broken is None:
                work(chance)
        self.world.clock.pass_(2)
        if self.engine.recorder.broken is None:
            rules.check_quarantine(self.world)

    def _spares(self, _chance: Random) -> None:
        make = self.engine.files.make_ahead()
        if make is not None:
            self.engine.files._pool._ahead = 4  # type: ignore[union-attr]  # not a thousand
            make = self.engine.files.make_ahead()
        if make is not None:
            self._in_background(lambda: self.engine.files.made_ahead(make()))

    def _segment(self, _chance: Random) -> None:
        journal = self.engine.history.journal
        if not journal.has_empty_segment:
            self._in_background(lambda: journal.add_empty_segment(journal.make_empty_segment()))

    def _pack(self, _chance: Random) -> None:
        self._in_background(self._packed)

    def _packed(self) -> None:
        note = self.world.pack()
        if note is not None:
            self.notes.append(note)

    def _sync(self, _chance: Random) -> None:
        engine, through = self.engine, self.engine.history.head
        try:
            engine.recorder.sync_files(through)
        except OSError as error:
            engine.recorder.sync_failed(error)
        else:
            self.notes.append(lambda: engine.recorder.files_synced(through))

    def _note(self, _chance: Random) -> None:
        notes, self.notes = self.notes, []
        for note in notes:
            self._in_background(note)

    def _in_background(self, work: Callable[[], None]) -> None:
        """Do work whose failure only the log has; it is tried again later."""
        try:
            work()
        except OSError as error:
            self.world.tell(f"failed: {error}")

    def _outside(self, chance: Random) -> None:
        self._outside_event(chance)()

    def _outside_later(self, chance: Random) -> None:
        self.world.later(chance.randint(1, CALLS_MAX // 2), OUTSIDE, self._outside_event(chance))

    def _outside_event(self, chance: Random) -> Callable[[], None]:
        kind = chance.choice(("save", "save by rename", "delete", "hold", "late"))
        return self._outside_act(kind, chance.choice(PATHS))

    def _outside_act(self, kind: str, path: str) -> Callable[[], None]:
        """Return what another program does to a file."""
        outsider = self.world.outsider
        if kind == "late":
            node, clock = outsider.node(path), self.world.clock
            until = clock.monotonic() + OPEN_SECONDS
            return lambda: (
                None if node is None or clock.monotonic() > until else outsider.write_to(node, path)
            )
        return {
            "save": lambda: outsider.save(path),
            "save by rename": lambda: outsider.save_by_rename(path),
            "delete": lambda: outsider.delete(path),
            "hold": lambda: outsider.hold(path),
        }[kind]

    def _let_go(self, _chance: Random) -> None:
        self.world.outsider.let_go()

    def _kill(self, chance: Random) -> None:
        self._later(chance, KILL, self.world.die)

    def _cut(self, chance: Random) -> None:
        self._later(chance, CUT, self.world.cut)

    def _fault(self, chance: Random) -> None:
        number = chance.choice(FAULTS)
        self.world.later_at(
            chance.choice(FAILING), chance.randint(1, 2), FAULT, lambda: self.world.fail(number)
        )

    def _later(self, chance: Random, kind: str, happen: Callable[[], None]) -> None:
        """Let it happen at any call, or at a call that matters."""
        if chance.random() < 0.5:
            self.world.later(chance.randint(1, CALLS_MAX), kind, happen)
        else:
            self.world.later_at(chance.choice(MATTERING), chance.randint(1, 3), kind, happen)

    def _restart(self, _chance: Random) -> None:
        self.notes.clear()
        self.world.close()
        try:
            self.world.start()
        except (Refused, OSError) as refusal:
            self._may_refuse_to_start(refusal)
            self.world.die()
        self.ask_again()

    # ── the end ──

    def end(self) -> None:
        """Verify everything once more, after a last kill or cut."""
        self.story.append("end")
        self.world.forget_events()
        try:
            (self.world.cut if self.seed % 2 else self.world.die)()
        except Killed:
            self.recover()
        if self.seed % VERIFIED_SHARE == 0:
            rules.verify_store(self.world)
        if self.seed % UNDONE_SHARE == 0:
            rules.undo_all(self.world, lambda seq: self._undone(f"{rules.UNDO}{seq} at last", seq))


def play(worlds: Worlds, seed: int, kinds: Sequence[str], only: Sequence[int]) -> Failure | None:
    """Play the steps of these numbers in a new world."""
    at: int | None = -1
    with worlds.world(seed) as world:
        history = History(world, seed)
        try:
            world.start()
            for at in only:
                history.take(kinds[at], Random(f"{seed} {at}"))
            at = None
            history.end()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the failure of this history
            frames = [
                f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)[-6:]
            ]
            text = f"{type(error).__name__}: {error}\n  by {' < '.join(reversed(frames))}"
            if world.engine is not None:
                world.story += [
                    f"  {one.seq} {one.kind} {one.message} {[(f.path, f.base, f.version) for f in one.files]}"
                    for one in rules.made_by(world.engine)
                ]
            return Failure(seed, at, text.replace(os.fspath(world.folder), ""), list(history.story))
    return None


def _shown(result: object) -> str:
    if isinstance(result, Outcome):
        return f"transaction {result.transaction.seq}" if result.transaction is not None else "nothing"
    return f"{type(result).__name__}: {result}"[:120]
