"""The steps of a run: each sends a request to the daemon, and compares the result with the model's.

A step draws from its own `Random` and from the present state. So it stays meaningful without the steps before
it, and a failing run can be shrunk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from drawing import LINKS, PATHS, THROUGH, Drawing, text_of
from editd.system.native import NATIVE
from editd.wire.messages import AnyEdit, ApplyResult, Filter, Write
from editd_client.errors import EditdError, Unreachable
from support.workspace_model import (
    Held,
    No,
    Sheet,
    Unforeseen,
    differences,
    is_below,
    merge,
    merged_with,
    version_at,
)
from world import NAMES, Actor, Disagreement, Recollection, Sight, Undecided, World, about

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from editd.wire.messages import UndoResult

UNDOABLE = ("edit", "exec", "rollback", "restore")
ROLLED_BACK = ("edit", "exec")
FILTERED = (*UNDOABLE, "outside")
KILL_SECONDS_MAX = 0.006  # after a request is sent
EDITS_MAX = 3
BESIDE_SECONDS = 60.0
RECENT_SECONDS = 500.0  # less than those in which another program's change makes a command's one doubtful

Undone = dict[int, frozenset[str]]
"""Each transaction that is to be undone, newest first, with the paths of it that are."""


@dataclass
class Outcomes:
    """The possible outcomes of some edits: several if the daemon may have forgotten reads of the session."""

    sheets: dict[str | None, Sheet] = field(default_factory=dict)  # by refusal; None: success
    doubtful: set[str] = field(default_factory=set)  # the paths that the outcome depends on

    @property
    def refusals(self) -> set[str]:
        return {name for name in self.sheets if name is not None}


@dataclass
class Staged:
    """An open changeset."""

    name: str
    actor: Actor
    edits: list[AnyEdit] = field(default_factory=list)


def is_explained(refusal: EditdError) -> bool:
    """Return whether a conflict names a transaction for each of its files."""
    files = refusal.data.get("files") or []
    return bool(files) and all(file["blocking"] for file in files)


@dataclass
class Steps:
    """All steps of a run. `take` takes one of them."""

    world: World
    draw: Drawing
    chance: Random
    staged: list[Staged] = field(default_factory=list)
    recent_until: float = field(default_factory=lambda: time.monotonic() + RECENT_SECONDS)

    def take(self, kind: str, chance: Random) -> None:
        self.chance, self.draw = chance, Drawing(chance)
        getattr(self, kind)()
        self.world.check_files()

    def actor(self) -> Actor:
        return self.world.actors[self.draw.one([None, *NAMES])]

    # ── Edits ──────────────────────────────────────────────────────────────────────────────────

    def edit(self) -> None:
        """Send a changeset of one to three edits: apply it, try it in a dry run, or stage it edit by edit."""
        actor = self.actor()
        edits = self.draw_edits(self.sheet(actor))
        if edits is None:
            return
        how = self.draw.one(["apply", "apply", "apply", "apply", "staged", "dry run"])
        self.world.note(f"{actor}: {how} {edits}")
        try:
            outcomes = self.outcomes(actor, edits, is_staged=how == "staged")
        except Unforeseen:
            return
        if how == "dry run":
            self.tried(outcomes, lambda: actor.client.apply(edits, dry_run=True))
            return
        self.applied(actor, outcomes, lambda: self.ask(actor, edits, is_staged=how == "staged"))
        self.read_doubtful(actor, outcomes)

    def sheet(self, actor: Actor, seen: Mapping[str, str | None] | None = None) -> Sheet:
        return Sheet(self.world.disk, actor.seen if seen is None else seen, self.world.folders)

    def draw_edits(self, sheet: Sheet, count: int | None = None) -> list[AnyEdit] | None:
        """Return some edits, of which the last may be refused. Return None if the model has no opinion."""
        edits = list[AnyEdit]()
        for _ in range(count or self.draw.one([1, 1, 1, 2, EDITS_MAX])):
            edits.append(self.draw.edit(sheet, self.world.history.states))
            try:
                sheet.make(edits[-1])
            except No:
                break
            except Unforeseen:
                return None
        return edits

    def outcomes(self, actor: Actor, edits: Sequence[AnyEdit], *, is_staged: bool = False) -> Outcomes:
        """Plan the edits with each possible record of the session's reads. Raises Unforeseen."""
        found, waiting = Outcomes(), list[dict[str, Sight]]([{}])
        while waiting:
            decided = waiting.pop()
            try:
                no, sheet = self.outcome(actor, Recollection(actor, decided), edits, is_staged=is_staged)
            except Undecided as doubt:
                found.doubtful.add(doubt.path)
                waiting += [decided | {doubt.path: sight} for sight in actor.doubts[doubt.path]]
                continue
            found.sheets[no.name if no else None] = sheet
        return found

    def outcome(
        self, actor: Actor, seen: Mapping[str, str | None], edits: Sequence[AnyEdit], *, is_staged: bool
    ) -> tuple[No | None, Sheet]:
        """Return the refusal of the edits, if any. Each edit staged alone must fit those before it."""
        sheet = self.sheet(actor, seen)
        for count in range(1 if is_staged else len(edits), len(edits) + 1):
            sheet = self.sheet(actor, seen)
            no = self.made_on(sheet, edits[:count]) or self.unread(actor, sheet)
            if no is not None:
                return no, sheet
        return None, sheet

    def made_on(self, sheet: Sheet, edits: Sequence[AnyEdit]) -> No | None:
        try:
            for edit in edits:
                sheet.make(edit)
            sheet.finish()
        except No as no:
            return no
        return None

    def unread(self, actor: Actor, sheet: Sheet) -> No | None:
        """Return the refusal of a session in doubt that edits a file without a read and without a base."""
        changed = differences(sheet.start, sheet.now)
        blind = {p for p in changed if p in sheet.start and p not in sheet.based and p not in sheet.seen}
        return No("unread") if actor.is_in_doubt and blind else None

    def ask(self, actor: Actor, edits: list[AnyEdit], *, is_staged: bool) -> ApplyResult:
        if not is_staged:
            return actor.client.apply(edits)
        changeset = actor.client.begin().changeset
        for edit in edits:
            actor.client.stage(changeset, [edit])
        return actor.client.commit(changeset)

    def applied(
        self,
        actor: Actor,
        outcomes: Outcomes,
        ask: Callable[[], ApplyResult],
        *,
        beside: Collection[str] = (),
    ) -> None:
        """Apply the edits, and verify that the answer is one of the outcomes."""
        world, folders = self.world, self.world.folders
        if None not in outcomes.sheets:
            world.refused(outcomes.refusals, actor, ask)
            return
        try:
            answer = ask()
        except EditdError as refusal:
            world.fits(refusal, outcomes.refusals, actor, folders, beside)
            return
        sheet = outcomes.sheets[None]
        world.done("edit", actor, answer, sheet.now, beside=beside, moved=sheet.moved)
        for path in sheet.known:
            actor.has_seen(path, version_at(sheet.now, path))

    def read_doubtful(self, actor: Actor, outcomes: Outcomes) -> None:
        """Read the files that the outcome depended on, so that the daemon knows these reads again."""
        for path in sorted(outcomes.doubtful & actor.doubts.keys() & self.world.disk.keys()):
            if self.world.disk[path].mode != "120000":
                self.read_as(actor, path)

    def tried(self, outcomes: Outcomes, ask: Callable[[], ApplyResult]) -> bool:
        """Verify that a dry run answers like the real request, and changes nothing. Return its success."""
        names = sorted(outcomes.refusals)
        try:
            answer = ask()
        except EditdError as refusal:
            if refusal.name not in names:
                raise Disagreement(f"a dry run: {refusal.name}, not {names}: {refusal.message}") from None
            self.world.catch_up()
            return False
        if None not in outcomes.sheets:
            raise Disagreement(f"a dry run must be refused with {names}: {answer}")
        sheet = outcomes.sheets[None]
        self.compare_files(answer, differences(sheet.start, sheet.now))
        self.world.agree("a dry run makes no transaction", answer.transaction, None)
        self.world.catch_up()
        return True

    def compare_files(self, answer: ApplyResult, changes: Mapping[str, Held | None]) -> None:
        told = {file.path: file.version for file in answer.files if file.change is not None}
        expected = {path: None if held is None else held.version for path, held in changes.items()}
        left = {p for p in expected if expected[p] is None}  # a move is reported at the new path
        self.world.agree("what a dry run tells", told, {p: v for p, v in expected.items() if p in told})
        self.world.agree("what a dry run leaves out", expected.keys() - told.keys() - left, set())

    def merge(self) -> None:
        """Write a whole file made from an old version, merged with the present content."""
        actor = self.actor()
        path, world = self.draw.one(PATHS), self.world
        held = world.disk.get(path)
        old = [state[path] for state in world.history.states if path in state]
        if held is None or held.mode == "120000" or not old:
            return
        base = self.draw.one(old)
        if base.mode == "120000":
            return
        content = self.draw.content(base)
        edit = Write(path=path, content=text_of(content), base=base.version)
        world.note(f"{actor}: merge {edit}")
        try:
            merged = merge(Held(base.content, held.mode), held, Held(content, held.mode))
        except No as no:
            world.refused({no.name}, actor, lambda: actor.client.apply([edit], on_stale="merge"))
            return
        answer = actor.client.apply([edit], on_stale="merge")
        world.agree("merged", answer.merged, [path] if base.version != held.version else [])
        world.done("edit", actor, answer, merged_with(world.disk, {path: merged}))
        actor.has_seen(path, version_at(world.disk, path))

    # ── Changesets over several steps ──────────────────────────────────────────────────────────

    def begin(self) -> None:
        if len(self.staged) < 3:
            actor = self.actor()
            self.staged.append(Staged(actor.client.begin().changeset, actor))
            self.world.note(f"{actor}: begin {self.staged[-1].name}")

    def stage(self) -> None:
        """Stage one more edit. The answer has the effect of all staged edits on the present files."""
        if not self.staged:
            self.begin()
        staged = self.draw.one(self.staged)
        sheet, actor = self.sheet(staged.actor), staged.actor
        try:
            if self.made_on(sheet, staged.edits) is not None:
                return  # the whole changeset would be refused, because the files have changed
            edits = self.draw_edits(sheet, 1)
            if edits is None:
                return
            outcomes = self.outcomes(actor, [*staged.edits, *edits])
        except Unforeseen:
            return
        self.world.note(f"{actor}: stage in {staged.name} {edits}")
        if self.tried(outcomes, lambda: actor.client.stage(staged.name, edits)):
            staged.edits += edits

    def commit(self) -> None:
        if not self.staged:
            return
        staged = self.staged.pop(self.chance.randrange(len(self.staged)))
        actor, outcomes = staged.actor, None
        with contextlib.suppress(Unforeseen):
            outcomes = self.outcomes(actor, staged.edits)
        if outcomes is None or not staged.edits or self.draw.rarely():
            self.world.note(f"{actor}: abort {staged.name}")
            actor.client.abort(staged.name)
            return
        self.world.note(f"{actor}: commit {staged.name}")
        self.applied(actor, outcomes, lambda: actor.client.commit(staged.name))
        self.read_doubtful(actor, outcomes)

    # ── Undo, redo, rollback, restore ──────────────────────────────────────────────────────────

    def undo(self) -> None:
        """Undo a transaction of any kind by number, sometimes one that is undone or does not exist."""
        actor, history = self.actor(), self.world.history
        self.world.catch_up()
        in_force = [n for n, step in enumerate(history.steps) if n and step.in_force()]
        near = in_force[-20:] if self.chance.random() < 0.7 else in_force
        seq = (
            self.draw.one(near)
            if near and not self.draw.rarely()
            else self.chance.randint(0, history.head + 1)
        )
        force = self.draw.rarely()
        self.world.note(f"{actor}: undo {seq}{' by force' if force else ''}")
        self.take_back(
            "undo",
            actor,
            lambda: self.named(seq),
            lambda **more: actor.client.undo(seq, **more),
            force=force,
            is_named=True,
        )

    def undo_paths(self) -> None:
        """Undo some paths of a transaction."""
        actor, history = self.actor(), self.world.history
        self.world.catch_up()
        several = [n for n, step in enumerate(history.steps) if n and len(step.after) > 1 and step.in_force()]
        if not several:
            return
        seq = self.draw.one(several[-20:])
        after = sorted(history.steps[seq].after)
        some = {str(self.draw.one(after)) for _ in range(2)}
        if some & history.steps[seq].mingled:
            some |= history.steps[seq].mingled
        paths = sorted(some | ({"d"} if self.draw.rarely() and not history.steps[seq].mingled else set()))
        self.world.note(f"{actor}: undo {seq} at {paths}")
        self.take_back(
            "undo", actor, lambda: self.named(seq, paths),
            lambda **more: actor.client.undo(seq, paths=paths, **more), is_named=True,
        )  # fmt: skip

    def named(self, seq: int, paths: Sequence[str] = ()) -> Undone:
        history = self.world.history
        if not 0 <= seq <= history.head:
            raise No("unknown_transaction")
        step = history.steps[seq]
        if seq == 0 or not step.in_force():
            raise No("nothing_to_undo")
        for path in paths:
            here = {touched for touched in step.after if is_below(touched, [path])}
            if not here & step.in_force():
                raise No("nothing_to_undo")
        return {seq: self.part(seq, lambda path: not paths or is_below(path, paths))}

    def part(self, seq: int, is_wanted: Callable[[str], bool]) -> frozenset[str]:
        """Return the wanted paths of a transaction that are in force. A move counts with both its paths."""
        step = self.world.history.steps[seq]
        paths = {path for path in step.in_force() if is_wanted(path)}
        for to, source in step.moves.items():
            if {to, source} <= step.in_force() and {to, source} & paths:
                paths |= {to, source}
        return frozenset(paths)

    def undo_last(self) -> None:
        """Undo the newest edits, or all of a session."""
        actor = self.actor()
        last, of = self.draw.one([None, 1, 1, 2, 3]), self.draw.one([None, None, *NAMES])
        scope = {"last": last, "session": of}
        if last is None:
            self.world.settle()
        self.world.note(f"{actor}: undo {scope}")

        def choose() -> Undone:
            session = of if of is not None else actor.name
            count = None if last is None and of is not None else last or 1
            return self.newest(UNDOABLE, session, count)

        self.take_back("undo", actor, choose, lambda **more: actor.client.undo(last=last, session=of, **more))

    def newest(
        self, kinds: Collection[str], session: str | None, count: int | None, since: int = 0
    ) -> Undone:
        steps = self.world.history.steps
        found = [
            n
            for n in range(len(steps) - 1, max(since, 1) - 1, -1)
            if steps[n].kind in kinds and steps[n].in_force() and session in (None, steps[n].session)
        ][:count]
        if not found:
            raise No("nothing_to_undo")
        return {n: steps[n].in_force() for n in found}

    def undo_filter(self) -> None:
        """Undo the matches of a filter: a session, a kind, some paths, a range of transactions."""
        actor, world = self.actor(), self.world
        world.settle()
        head = world.history.head
        since = self.chance.randint(max(0, head - 12), head)
        session = self.draw.one([None, None, *NAMES])
        kind = self.draw.one([None, None, "edit", "outside", "exec", "restore"])
        until = self.draw.one([None, head, max(since, head - 2)])
        paths = self.draw.one([None, None, [self.draw.one(PATHS)], ["d"], ["a", "d/f"]])
        fits = Filter(session=session, kind=kind, since=since, until=until, paths=paths)
        world.note(f"{actor}: undo {fits}")

        def choose() -> Undone:
            found: Undone = {}
            kinds = FILTERED if kind is None else (kind,)
            for seq in range(head if until is None else until, max(since, 1) - 1, -1):
                step = world.history.steps[seq]
                if step.kind in kinds and session in (None, step.session):
                    part = self.part(seq, lambda path: paths is None or is_below(path, paths))
                    if part & step.mingled and step.mingled & step.in_force() - part:
                        raise Unforeseen  # a move onto another file is not recorded as one
                    if part:
                        found[seq] = part
            if not found:
                raise No("nothing_to_undo")
            return found

        self.take_back("undo", actor, choose, lambda **more: actor.client.undo(filter=fits, **more))

    def redo(self) -> None:
        actor = self.actor()
        force = self.draw.rarely()
        self.world.note(f"{actor}: redo{' by force' if force else ''}")
        self.take_back(
            "redo", actor, lambda: self.newest(["undo"], actor.name, 1), actor.client.redo, force=force
        )

    def rollback(self) -> None:
        actor, session = self.actor(), str(self.draw.one(NAMES))
        self.world.catch_up()
        head = self.world.history.head
        since = self.draw.one([None, max(0, head - 5), self.chance.randint(0, head)])
        force = self.draw.rarely()
        is_all = time.monotonic() > self.recent_until or self.draw.rarely()
        how = f"{' by force' if force else ''}{' with changes by time' if is_all else ''}"
        self.world.note(f"{actor}: rollback {session} since {since}{how}")
        choose = self.newest if is_all else self.without_doubtful
        self.take_back(
            "rollback", actor, lambda: choose(ROLLED_BACK, session, None, since or 0),
            lambda **more: actor.client.rollback(session, since=since, include_by_time=is_all, **more),
            force=force,
        )  # fmt: skip

    def without_doubtful(
        self, kinds: Collection[str], session: str, count: int | None, since: int = 0
    ) -> Undone:
        """Return what `newest` does without the changes of commands that may be another program's."""
        steps = self.world.history.steps
        chosen: Undone = {}
        for seq, paths in self.newest(kinds, session, count, since).items():
            doubtful = {path for path in paths if self.may_be_anothers(seq, path)}
            if doubtful & steps[seq].mingled:
                raise Unforeseen
            if paths - doubtful:
                chosen[seq] = paths - doubtful
        if not chosen:
            raise No("nothing_to_undo")
        return chosen

    def may_be_anothers(self, seq: int, path: str) -> bool:
        """Return whether it is a command's change of a file that only others had written so far."""
        steps = self.world.history.steps
        if steps[seq].kind != "exec":
            return False
        own = {n for n, step in enumerate(steps) if n > 0 and step.session == steps[seq].session}
        touching = [n for n, step in enumerate(steps) if n > 0 and path in step.after]
        if any(steps[n].kind != "exec" for n in touching if n in own and n != seq):
            return False
        if self.is_made_and_deleted(seq, path, touching, own):
            return False
        return any(n < seq and n not in own for n in touching)

    def is_made_and_deleted(self, seq: int, path: str, touching: list[int], own: set[int]) -> bool:
        """Return whether the session made the file and deleted it again, and nobody wrote it in between."""
        steps = self.world.history.steps
        earlier = [n for n in touching if n <= seq]
        later = [n for n in touching if n >= seq]
        made = next(
            (at for at in range(len(earlier), 0, -1) if steps[earlier[at - 1]].before[path] is None), 0
        )
        gone = next((at for at, n in enumerate(later) if steps[n].after[path] is None), -1)
        return made > 0 and gone >= 0 and own.issuperset(earlier[made - 1 :] + later[: gone + 1])

    def take_back(
        self,
        kind: str,
        actor: Actor,
        choose: Callable[[], Undone],
        ask: Callable[..., UndoResult],
        *,
        force: bool = False,
        is_named: bool = False,
    ) -> None:
        """Undo something. A dry run before it must have the same result."""
        world = self.world
        if self.chance.random() < 0.5:
            world.settle()  # record outside changes before a choice from the history
        world.catch_up()
        on_conflict = "force" if force else "fail"
        chosen: Undone = {}
        try:
            chosen = choose()
        except Unforeseen:
            return
        except No as no:
            world.refused({no.name}, actor, lambda: ask(on_conflict=on_conflict))
            return
        try:
            world.note(f"  that is {[(seq, sorted(paths)) for seq, paths in chosen.items()]}")
            expected = world.history.without(list(chosen), world.disk, force=force, parts=chosen)
        except No as no:
            if no.name == "conflict":
                shown = ask(dry_run=True)
                world.note(f"  a dry run: {shown}")
                if not shown.conflicts and not is_named:  # Transactions without effect are included.
                    self.take_back_unforeseen(kind, actor, chosen, ask, on_conflict)
                    return
                world.agree("conflicts of a dry run", bool(shown.conflicts), True)
            refusal = world.refused({no.name}, actor, lambda: ask(on_conflict=on_conflict))
            self.explained(refusal, actor, lambda: ask(on_conflict=on_conflict))
            return
        except Unforeseen:
            self.take_back_unforeseen(kind, actor, chosen, ask, on_conflict)
            return
        if expected == world.disk:
            self.take_back_nothing(kind, actor, chosen, lambda: ask(on_conflict=on_conflict))
            return
        if not force and self.chance.random() < 0.5:
            shown = ask(dry_run=True)
            world.agree("conflicts of a dry run", shown.conflicts, [])
            self.compare_files(shown, differences(world.disk, expected))
        world.done(kind, actor, ask(on_conflict=on_conflict), expected, chosen)

    def take_back_nothing(
        self, kind: str, actor: Actor, chosen: Undone, ask: Callable[[], UndoResult]
    ) -> None:
        """Undo without an effect: it is refused, or without a number includes the next one with an effect."""
        world = self.world
        try:
            answer = ask()
        except EditdError as refusal:
            names = {"nothing_to_undo", "conflict"}  # a conflict of the included one
            if refusal.name not in names:
                raise Disagreement(f"refused by {refusal.name}, not {sorted(names)}") from None
            world.catch_up()
            return
        assert answer.transaction is not None
        taken = {seq: world.history.steps[seq].in_force() for seq in answer.transaction.undoes}
        if not taken.keys() > chosen.keys():
            raise Disagreement(f"an undo of {sorted(chosen)}, which changes nothing: {answer.transaction}")
        world.trust(kind, actor, answer, taken | chosen)

    def take_back_unforeseen(
        self, kind: str, actor: Actor, chosen: Undone, ask: Callable[..., UndoResult], on_conflict: str
    ) -> None:
        """Undo across moves, with any outcome. The report must be consistent, and an undo of it exact."""
        world, before = self.world, dict(self.world.disk)
        try:
            shown = ask(dry_run=True)
        except EditdError as refusal:
            world.refused({"nothing_to_undo"} & {refusal.name}, actor, lambda: ask(on_conflict=on_conflict))
            return
        assert isinstance(shown.conflicts, list)
        world.catch_up()
        try:
            answer = ask(on_conflict=on_conflict)
        except EditdError as refusal:
            world.note(f"  {actor}: refused, {refusal.name}: {refusal.message}")
            if refusal.name == "nothing_to_undo" and (on_conflict == "force" or not shown.conflicts):
                world.note("  nothing to undo")
            else:
                world.agree("the refusal", refusal.name, "conflict")
                if on_conflict == "fail":
                    world.agree("conflicts of a dry run", bool(shown.conflicts), True)
                self.explained(refusal, actor, lambda: ask(on_conflict=on_conflict))
            world.catch_up()
            return
        if on_conflict == "fail":
            world.agree("conflicts of a dry run, and it is done", shown.conflicts, [])
        made = answer.transaction
        assert made is not None
        if set(made.undoes) > chosen.keys():  # newer ones without effect are included
            chosen = {seq: world.history.steps[seq].in_force() for seq in made.undoes} | chosen
        if on_conflict == "force":  # a file is skipped if another of its transaction has its path
            parts = about(made)[3]
            chosen = {seq: parts[seq] & paths if seq in parts else paths for seq, paths in chosen.items()}
        world.trust(kind, actor, answer, chosen)
        if on_conflict == "fail":
            self.compare_files(shown, differences(before, world.disk))
        if self.chance.random() < 0.5:
            world.note(f"{actor}: undo {made.seq}, which gives back what there was")
            back = actor.client.undo(made.seq)
            world.done(
                "undo", actor, back, before, {made.seq: frozenset(world.history.steps[made.seq].after)}
            )

    def explained(self, refusal: EditdError, actor: Actor, ask: Callable[[], object]) -> None:
        """Verify that a conflict names the transactions in the way.

        A file that another program has just put there may not be recorded yet. It is once all has settled.
        """
        if refusal.name == "conflict" and not is_explained(refusal):
            self.world.settle()
            again = self.world.refused({"conflict"}, actor, ask)
            if not is_explained(again):
                raise Disagreement(f"a conflict that does not say what is in the way: {again.data}")

    def needs(self) -> None:
        """Undo everything in `needs`, newest first. Verify that the undo is clean then."""
        actor, world = self.actor(), self.world
        world.settle()
        session = str(self.draw.one(NAMES))
        ask: Callable[..., UndoResult]
        if self.chance.random() < 0.5:
            ask = partial(actor.client.rollback, session)
            what = f"rollback {session}"
        else:
            seqs = [n for n, step in enumerate(world.history.steps) if n and step.in_force()]
            if not seqs:
                return
            seq = self.draw.one(seqs)
            ask = partial(actor.client.undo, seq)
            what = f"undo {seq}"
        try:
            shown = ask(dry_run=True)
        except EditdError as refusal:
            world.agree("the refusal of a dry run", refusal.name, "nothing_to_undo")
            return
        assert isinstance(shown.conflicts, list)
        needed = sorted({seq for one in shown.conflicts for seq in one.needs}, reverse=True)
        world.note(f"{actor}: {what} needs {needed}")
        for seq in needed:
            paths = world.history.steps[seq].in_force()
            world.note(f"{actor}: undo {seq}")
            try:
                answer = actor.client.undo(seq)
            except EditdError as refusal:
                world.note(f"  refused, {refusal.name}: {refusal.message}")
                if refusal.name != "nothing_to_undo" and world.is_strict:
                    raise
                world.catch_up()
                continue
            world.trust("undo", actor, answer, {seq: paths})
        if needed and world.is_strict:
            with contextlib.suppress(EditdError):  # nothing_to_undo: undone together with its needs
                world.agree(f"{what}, once {needed} are undone", ask(dry_run=True).conflicts, [])

    def restore(self) -> None:
        """Restore the workspace, or some paths, to their content after a transaction."""
        actor, world = self.actor(), self.world
        world.settle()
        head = world.history.head
        to = self.draw.one([max(0, head - 1), max(0, head - 3), self.chance.randint(0, head)])
        paths = self.draw.one([None, [str(self.draw.one(PATHS))], ["d"], [str(self.draw.one(PATHS)), "a"]])
        world.note(f"{actor}: restore {to} {paths or ''}")
        known = {path for state in world.history.states for path in state}
        ask = partial(actor.client.restore, to, paths=paths)
        if paths is not None and not all(any(is_below(k, [p]) for k in known) for p in paths):
            world.refused({"file_missing"}, actor, ask)
            return
        try:
            expected = world.history.restored(to, world.disk, paths)
        except No as no:
            world.refused({no.name}, actor, ask)
            return
        world.done("restore", actor, ask(), expected)

    # ── Outside changes ─────────────────────────────────────────────────────────────────────────────────

    def shell(self) -> None:
        self.change_outside()
        if self.chance.random() < 0.6:
            self.world.settle()

    def git(self) -> None:
        for argv in self.draw.git(self.world.disk):
            self.world.git(*argv)
        if self.chance.random() < 0.5:
            self.world.settle()

    def change_outside(self) -> None:
        for _ in range(self.draw.one([1, 1, 2])):
            self.world.shell(*self.draw.shell(self.world.disk))

    def command(self) -> None:
        """Run a command between `exec.begin` and `exec.end`, sometimes with edits or another command."""
        actor, world = self.actor(), self.world
        world.note(f"{actor}: exec.begin")
        bracket = actor.client.exec_begin("a command").exec
        world.catch_up()
        world.agree("all is recorded before a command", differences(world.history.states[-1], world.disk), {})
        self.change_outside()
        other = self.actor()
        if other is not actor and self.chance.random() < 0.3:
            path = str(self.draw.one(["a", "b", "c"]))
            if path not in world.folders and (path not in world.disk or world.disk[path].mode != "120000"):
                edit = Write(path=path, content=text_of(self.draw.lines()), force=True)
                world.note(f"{other}: meanwhile {edit}")
                self.edited_meanwhile(other, edit)
            self.change_outside()
        world.note(f"{actor}: exec.end")
        made = actor.client.exec_end(bracket, 0).transaction
        world.catch_up(kinds=("outside", "exec"))
        missing = differences(world.history.states[-1], world.disk)
        world.agree("all is recorded after a command", {}, missing)
        if made is not None:
            world.agree("a command's transaction", (made.kind, made.session), ("exec", actor.name))

    def edited_meanwhile(self, other: Actor, edit: Write) -> None:
        """Edit a file during a command. The command's change of that file is recorded first."""
        outcomes = self.outcomes(other, [edit])
        if None in outcomes.sheets:
            self.applied(other, outcomes, lambda: other.client.apply([edit]), beside=("exec",))

    def settle(self) -> None:
        self.world.settle()

    # ── Reading ────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        self.read_as(self.actor(), str(self.draw.one([*PATHS, *LINKS, *THROUGH])))

    def read_as(self, actor: Actor, path: str) -> None:
        world = self.world
        try:
            sheet = self.sheet(actor)
            real = sheet.follow(path)
            if sheet.at(real) is None:
                raise No("file_missing")
        except No as no:
            world.refused({no.name}, actor, lambda: actor.client.read(path))
            return
        answer, held = actor.client.read(path), world.disk[real]
        told = answer.content, answer.version, answer.mode
        world.agree(f"{path} as read", told, (text_of(held.content), held.version, held.mode))
        actor.has_seen(real, held.version)
        world.catch_up()
        world.agree(f"{real} is in the history once it was read", world.history.states[-1].get(real), held)

    def read_back(self) -> None:
        self.world.read_at(self.chance.randint(0, self.world.history.head), PATHS)

    def diff(self) -> None:
        history = self.world.history
        start, end = sorted(self.chance.randint(0, history.head) for _ in range(2))
        told = {file.path: file.version for file in self.world.client.diff(start, end).files}
        expected = differences(history.states[start], history.states[end])
        versions = {path: None if held is None else held.version for path, held in expected.items()}
        self.world.agree(f"the files that differ between {start} and {end}", told, versions)

    def blame(self) -> None:
        """Verify that each line's transaction left that line in some file."""
        world = self.world
        texts = [
            p for p, held in world.disk.items() if held.mode != "120000" and held.is_text and held.content
        ]
        if not texts:
            return
        path = str(self.draw.one(sorted(texts)))
        lines = world.disk[path].content.splitlines()
        told = world.client.blame(path).lines
        world.catch_up()
        world.agree(
            f"the lines of {path} that have an author",
            [one.line for one in told],
            list(range(1, len(lines) + 1)),
        )
        for one, line in zip(told, lines, strict=True):
            after = world.history.steps[one.seq].after if one.seq else world.history.states[0]
            if not any(held is not None and line in held.content.splitlines() for held in after.values()):
                raise Disagreement(f"line {one.line} of {path}, {line!r}, did not come with {one.seq}")

    def check(self) -> None:
        self.world.check()
        self.world.check_undone()

    # ── The end of the daemon ──────────────────────────────────────────────────────────────────

    def restart(self) -> None:
        """Stop the daemon cleanly, and start it again. Other programs may write in between."""
        self.world.note("stop")
        self.world.stop()
        self.come_back()

    def kill(self) -> None:
        """Kill the daemon with SIGKILL, perhaps during packing."""
        time.sleep(self.chance.choice([0, 0, 0.01, 0.05]))  # a random moment
        self.world.note("SIGKILL")
        self.world.kill()
        # Without a boot id, recovery takes what another program did meanwhile for the work of a power cut.
        self.come_back(may_change=NATIVE.system != "portable")

    def come_back(self, *, may_change: bool = True) -> None:
        self.staged.clear()
        if self.chance.random() < 0.5 and may_change:
            self.change_outside()
        self.world.note("start")
        self.world.start()
        if self.chance.random() < 0.5:
            self.world.settle()

    def kill_under_it(self) -> None:
        """Kill the daemon during a request. A retry with the same id takes effect once (C7)."""
        world, actor = self.world, self.world.actors[None]
        world.settle()
        request = world.request_id()
        if self.chance.random() < 0.3:
            self.undo_under_it(actor, request)
            return
        paths = sorted({str(self.draw.one(PATHS)) for _ in range(3)})
        edits: list[AnyEdit] = [
            Write(path=path, content=text_of(self.draw.content(world.disk.get(path))), force=True)
            for path in paths
        ]
        sheet = Sheet(world.disk, {}, world.folders)
        try:
            if self.made_on(sheet, edits) is not None:
                return
        except Unforeseen:
            return
        world.note(f"SIGKILL under {edits}")
        self.killed_under(lambda: actor.client.apply(edits, request_id=request))
        actor = world.actors[None]
        world.done("edit", actor, actor.client.apply(edits, request_id=request), sheet.now)
        for path in sheet.known:
            actor.has_seen(path, version_at(world.disk, path))

    def undo_under_it(self, actor: Actor, request: str) -> None:
        world = self.world
        try:
            chosen = self.newest(UNDOABLE, None, self.draw.one([1, 2]))
            expected = world.history.without(list(chosen), world.disk, parts=chosen)
        except (No, Unforeseen):
            return
        if expected == world.disk:
            return
        world.note(f"SIGKILL under undo of {list(chosen)}")
        self.killed_under(lambda: actor.client.undo(last=len(chosen), request_id=request))
        actor = world.actors[None]
        answer = actor.client.undo(last=len(chosen), request_id=request)
        world.done("undo", actor, answer, expected, chosen)

    def killed_under(self, ask: Callable[[], object]) -> None:
        def until_it_dies() -> None:
            with contextlib.suppress(Unreachable):
                ask()

        thread = threading.Thread(target=until_it_dies)
        thread.start()
        time.sleep(self.chance.uniform(0, KILL_SECONDS_MAX))  # a random moment
        self.world.place.kill()
        thread.join(BESIDE_SECONDS)
        self.world.kill()
        self.staged.clear()
        self.world.start()


WEIGHTS = {
    "edit": 32, "merge": 4, "begin": 1, "stage": 4, "commit": 2, "undo": 10, "undo_paths": 3, "undo_last": 3,
    "undo_filter": 2, "redo": 4, "rollback": 3, "needs": 2, "restore": 3, "shell": 9, "git": 4, "command": 3,
    "settle": 2, "read": 6, "read_back": 1, "diff": 1, "blame": 1, "check": 1, "restart": 0.4, "kill": 0.7,
    "kill_under_it": 0.7,
}  # fmt: skip
