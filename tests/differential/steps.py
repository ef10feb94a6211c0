"""The steps of a run: each asks the daemon for something, and the model what must come of it.

A step draws from a `Random` of its own and from what there is, so that it means something too where the steps
before it are left out: that is how a failing run is shrunk.
"""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from drawing import LINKS, PATHS, THROUGH, Drawing, text_of
from editd.wire.messages import AnyEdit, ApplyResult, Filter, Write
from editd_client.errors import EditdError, Unreachable
from modelling import Held, No, Sheet, Unforeseen, differences, is_below, merge, merged_with, version_at
from world import IN_DOUBT, NAMES, Actor, Disagreement, World, about

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from random import Random

    from editd.wire.messages import UndoResult

UNDOABLE = ("edit", "exec", "rollback", "restore")
ROLLED_BACK = ("edit", "exec")
FILTERED = (*UNDOABLE, "outside")
KILL_SECONDS_MAX = 0.006  # after a request was sent
EDITS_MAX = 3
BESIDE_SECONDS = 60.0

Undone = dict[int, frozenset[str]]
"""Each transaction that is to be undone, newest first, with the paths of it that are."""


def names_in_doubt(doubtful: Collection[str], sheet: Sheet, no: No | None) -> set[str]:
    """Return the refusals that a daemon may give that was killed and may have forgotten a session's reads."""
    names = {*IN_DOUBT, *([no.name] if no else [])}
    if set(doubtful) - sheet.start.keys():
        names.add("file_missing")  # Without the read it is no stale file but a missing one.
    if no is not None and no.name in IN_DOUBT:
        names |= {"not_a_file", "file_exists"}  # Without the read a later check refuses it.
    return names


@dataclass
class Staged:
    """A changeset that is being put together."""

    name: str
    actor: Actor
    edits: list[AnyEdit] = field(default_factory=list)


@dataclass
class Steps:
    """What a run may do; `take` does one step."""

    world: World
    draw: Drawing
    chance: Random
    staged: list[Staged] = field(default_factory=list)

    def take(self, kind: str, chance: Random) -> None:
        self.chance, self.draw = chance, Drawing(chance)
        getattr(self, kind)()
        self.world.check_files()

    def actor(self) -> Actor:
        return self.world.actors[self.draw.one([None, *NAMES])]

    # ── Edits ──────────────────────────────────────────────────────────────────────────────────

    def edit(self) -> None:
        """A changeset of one to three edits, applied, or only tried, or staged one by one."""
        actor = self.actor()
        sheet = self.sheet(actor)
        edits, no = self.draw_edits(sheet)
        if edits is None:
            return
        how = self.draw.one(["apply", "apply", "apply", "apply", "staged", "dry run"])
        self.world.note(f"{actor}: {how} {edits}")
        if how == "dry run":
            self.tried(actor, sheet, no, lambda: actor.client.apply(edits, dry_run=True))
            return
        if how == "staged":
            no = self.staged_no(actor, edits) or no
        self.applied(actor, sheet, no, lambda: self.ask(actor, edits, is_staged=how == "staged"))

    def sheet(self, actor: Actor) -> Sheet:
        return Sheet(self.world.disk, actor.seen, self.world.folders)

    def draw_edits(self, sheet: Sheet, count: int | None = None) -> tuple[list[AnyEdit] | None, No | None]:
        """Some edits and why they are refused; None where the model has no opinion."""
        edits, no = list[AnyEdit](), None
        for _ in range(count or self.draw.one([1, 1, 1, 2, EDITS_MAX])):
            edits.append(self.draw.edit(sheet, self.world.history.states))
            try:
                sheet.make(edits[-1])
            except No as refusal:
                no = refusal
                break
            except Unforeseen:
                return None, None
        return edits, no or self.final(sheet)

    def final(self, sheet: Sheet) -> No | None:
        try:
            sheet.finish()
        except No as no:
            return no
        return None

    def unread(self, actor: Actor, sheet: Sheet) -> No | None:
        """A session that is in doubt does not edit what it has not read, unless it gives a base."""
        changed = differences(sheet.start, sheet.now)
        blind = {p for p in changed if p in sheet.start and p not in sheet.based and p not in actor.seen}
        return No("unread") if actor.is_in_doubt and blind else None

    def staged_no(self, actor: Actor, edits: Sequence[AnyEdit]) -> No | None:
        """Why edits that are staged one by one are refused: each has to go with those before it."""
        for count in range(1, len(edits) + 1):
            sheet = self.sheet(actor)
            no = self.made_on(sheet, edits[:count]) or self.unread(actor, sheet)
            if no is not None:
                return no
        return None

    def ask(self, actor: Actor, edits: list[AnyEdit], *, is_staged: bool) -> ApplyResult:
        if not is_staged:
            return actor.client.apply(edits)
        changeset = actor.client.begin().changeset
        for edit in edits:
            actor.client.stage(changeset, [edit])
        return actor.client.commit(changeset)

    def applied(self, actor: Actor, sheet: Sheet, no: No | None, ask: Callable[[], ApplyResult]) -> None:
        no = no or self.unread(actor, sheet)
        doubtful = actor.doubtful & {*sheet.known, *differences(sheet.start, sheet.now)}
        if doubtful:
            self.applied_in_doubt(actor, names_in_doubt(doubtful, sheet, no), ask)
            return
        if no is not None:
            self.world.refused({no.name}, actor, ask)
            if no.name == "unread":
                actor.doubtful |= set(sheet.known)
            return
        self.world.done("edit", actor, ask(), sheet.now, moved=sheet.moved)
        for path in sheet.known:
            actor.has_seen(path, version_at(sheet.now, path))

    def applied_in_doubt(self, actor: Actor, names: Collection[str], ask: Callable[[], ApplyResult]) -> None:
        """The daemon was killed and may have forgotten what the session read: both is right."""
        try:
            answer = ask()
        except EditdError as refusal:
            if refusal.name not in names:
                raise Disagreement(
                    f"refused by {refusal.name}, not {sorted(names)}: {refusal.message}"
                ) from None
            self.world.catch_up()
        else:
            self.world.trust("edit", actor, answer, {})
        for path in sorted(actor.doubtful & {*self.world.disk}):
            if self.world.disk[path].mode != "120000":
                self.read_as(actor, path)

    def tried(self, actor: Actor, sheet: Sheet, no: No | None, ask: Callable[[], ApplyResult]) -> None:
        """A dry run answers as the request itself would, and changes nothing."""
        names = {no.name} if no else {"unread"} if self.unread(actor, sheet) else set()
        if doubtful := actor.doubtful & set(sheet.known):
            names |= names_in_doubt(doubtful, sheet, no)
        try:
            answer = ask()
        except EditdError as refusal:
            if refusal.name not in names:
                raise Disagreement(
                    f"a dry run: {refusal.name}, not {sorted(names)}: {refusal.message}"
                ) from None
        else:
            if no is not None and not actor.doubtful:
                raise Disagreement(f"a dry run must be refused with {no.name}: {answer}")
            if not actor.doubtful:
                self.compare_files(answer, differences(sheet.start, sheet.now))
            self.world.agree("a dry run makes no transaction", answer.transaction, None)
        self.world.catch_up()

    def compare_files(self, answer: ApplyResult, changes: Mapping[str, Held | None]) -> None:
        told = {file.path: file.version for file in answer.files if file.change is not None}
        expected = {path: None if held is None else held.version for path, held in changes.items()}
        left = {p for p in expected if expected[p] is None}  # a moved file is told at its new path
        self.world.agree("what a dry run tells", told, {p: v for p, v in expected.items() if p in told})
        self.world.agree("what a dry run leaves out", expected.keys() - told.keys() - left, set())

    def merge(self) -> None:
        """A whole file, made for what was there some time ago, merged with what is there now."""
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
        """One more edit; the answer is what all that is staged would do to the files as they are now."""
        if not self.staged:
            self.begin()
        staged = self.draw.one(self.staged)
        sheet, actor = self.sheet(staged.actor), staged.actor
        no = self.made_on(sheet, staged.edits)
        if no is not None:
            return  # it would be refused as a whole: somebody has changed the files since
        edits, no = self.draw_edits(sheet, 1)
        if edits is None:
            return
        self.world.note(f"{actor}: stage in {staged.name} {edits}")
        self.tried(actor, sheet, no, lambda: actor.client.stage(staged.name, edits))
        if no is None and not actor.is_in_doubt:
            staged.edits += edits
        elif no is None:  # in doubt: whether it was taken is not known
            actor.client.abort(staged.name)
            self.staged.remove(staged)

    def made_on(self, sheet: Sheet, edits: Sequence[AnyEdit]) -> No | None:
        try:
            for edit in edits:
                sheet.make(edit)
        except (No, Unforeseen) as refusal:
            return refusal if isinstance(refusal, No) else No("unforeseen")
        return self.final(sheet)

    def commit(self) -> None:
        if not self.staged:
            return
        staged = self.staged.pop(self.chance.randrange(len(self.staged)))
        actor, sheet = staged.actor, self.sheet(staged.actor)
        no = self.made_on(sheet, staged.edits)
        if (no is not None and no.name == "unforeseen") or not staged.edits or self.draw.rarely():
            self.world.note(f"{actor}: abort {staged.name}")
            actor.client.abort(staged.name)
            return
        self.world.note(f"{actor}: commit {staged.name}")
        self.applied(actor, sheet, no, lambda: actor.client.commit(staged.name))

    # ── Undo, redo, rollback, restore ──────────────────────────────────────────────────────────

    def undo(self) -> None:
        """One transaction by its number, whatever its kind; at times one that is undone, or that is not."""
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
        """Some paths of a transaction."""
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
        """What is in force of a transaction at the wanted paths; a move at both its ends or not at all."""
        step = self.world.history.steps[seq]
        paths = {path for path in step.in_force() if is_wanted(path)}
        for to, source in step.moves.items():
            if {to, source} <= step.in_force() and {to, source} & paths:
                paths |= {to, source}
        return frozenset(paths)

    def undo_last(self) -> None:
        """The newest edits, or all of a session."""
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
        """All that fits: of a session, a kind, some paths, from and until a transaction."""
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
                        raise Unforeseen  # whether a file was moved onto another is not told
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
        self.world.note(f"{actor}: rollback {session} since {since}{' by force' if force else ''}")
        self.take_back(
            "rollback", actor, lambda: self.newest(ROLLED_BACK, session, None, since or 0),
            lambda **more: actor.client.rollback(session, since=since, **more), force=force,
        )  # fmt: skip

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
        """Undo something; a dry run before it must say what the undo then does."""
        world = self.world
        if self.chance.random() < 0.5:
            world.settle()  # so that what others did stands in the history before it is chosen from
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
                if not shown.conflicts and not is_named:  # Others without effect are taken along.
                    self.take_back_unforeseen(kind, actor, chosen, ask, on_conflict)
                    return
                world.agree("conflicts of a dry run", bool(shown.conflicts), True)
            refusal = world.refused({no.name}, actor, lambda: ask(on_conflict=on_conflict))
            self.explained(refusal)
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
        """What would change nothing is refused; without a number, the next with an effect goes with it."""
        world = self.world
        try:
            answer = ask()
        except EditdError as refusal:
            names = {"nothing_to_undo", "conflict"}  # the latter of what would go with it
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
        """Files were moved: it may do or not. What it says must hold together, and can be undone exactly."""
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
                self.explained(refusal)
            world.catch_up()
            return
        if on_conflict == "fail":
            world.agree("conflicts of a dry run, and it is done", shown.conflicts, [])
        made = answer.transaction
        assert made is not None
        if set(made.undoes) > chosen.keys():  # the newest ones that have no effect any more go along
            chosen = {seq: world.history.steps[seq].in_force() for seq in made.undoes} | chosen
        if on_conflict == "force":  # a file whose place another of its transaction has taken is left
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

    def explained(self, refusal: EditdError) -> None:
        """A conflict names what is in the way."""
        if refusal.name == "conflict":
            files = refusal.data.get("files") or []
            if not files or not all(file["blocking"] for file in files):
                raise Disagreement(f"a conflict that does not say what is in the way: {refusal.data}")

    def needs(self) -> None:
        """With all that an undo needs undone first, newest first, it is clean, as the protocol says."""
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
            with contextlib.suppress(EditdError):  # nothing_to_undo: it is undone with what it needs
                world.agree(f"{what}, once {needed} are undone", ask(dry_run=True).conflicts, [])

    def restore(self) -> None:
        """Back to what the workspace, or some paths, held after a transaction."""
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

    # ── Others ─────────────────────────────────────────────────────────────────────────────────

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
        """A command between `exec.begin` and `exec.end`, at times with edits or another command meanwhile."""
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
        """An edit beside a command: what the command did to that file is recorded before it."""
        world = self.world
        sheet = self.sheet(other)
        sheet.make(edit)
        if self.final(sheet) or self.unread(other, sheet):
            return
        world.done("edit", other, other.client.apply([edit]), sheet.now, beside=("exec",))
        for path in sheet.known:
            other.has_seen(path, version_at(sheet.now, path))

    def settle(self) -> None:
        self.world.settle()

    # ── Looking ────────────────────────────────────────────────────────────────────────────────

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
        """Each line came with a transaction after which some file held it."""
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
        """A clean end; others may write while there is no daemon."""
        self.world.note("stop")
        self.world.leave()
        self.world.place.stop()
        self.come_back()

    def kill(self) -> None:
        """SIGKILL, in the middle of packing perhaps."""
        time.sleep(self.chance.choice([0, 0, 0.01, 0.05]))  # the moment is what is drawn here
        self.world.note("SIGKILL")
        self.world.kill()
        self.come_back()

    def come_back(self) -> None:
        self.staged.clear()
        if self.chance.random() < 0.5:
            self.change_outside()
        self.world.note("start")
        self.world.start()
        if self.chance.random() < 0.5:
            self.world.settle()

    def kill_under_it(self) -> None:
        """SIGKILL while a request is carried out; asked for again with its id, it is done once (C7)."""
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
        if self.made_on(sheet, edits) is not None:
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
        time.sleep(self.chance.uniform(0, KILL_SECONDS_MAX))  # the moment is what is drawn here
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
