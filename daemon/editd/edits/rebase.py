"""The fit of a proposal's hunks on the present files, and the effect of landing some of them.

Each undecided hunk has its own state:

    fits       no changed line touches it: only its line numbers may differ
    there      the same change was made
    conflict   changed lines touch it, or the file is gone

Two changes touch if they share a line or no unchanged line is between them. Git's merge has a conflict for
exactly these unless they are equal, so all hunks together fit if git's merge is clean, and give its bytes.
A hunk that fits needs no merge: it replaces its own old lines. So a reviewer gets what was shown.

Landing is pure. The caller compares the tokens of the view, and carries out the changes.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.comparison import charge
from editd.edits.diff import unified_diff
from editd.edits.line_changes import (
    LineChange,
    TouchRule,
    apply_changes,
    bounds,
    changed_lines,
    clusters,
    hunks_between,
    is_same,
    lines_of,
    show,
    touching,
)
from editd.edits.merge import merge_states
from editd.edits.proposed_hunks import landed_base, line_changes, open_line_changes
from editd.errors import Conflict, InvalidParams, Timeout, TooLarge
from editd.values.content import Change

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from editd.edits.line_changes import Lines
    from editd.values.content import Decoder, FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import HunkId, HunkState, ProposedFile, ProposedHunk

_TOKEN_DIGITS = 16  # of each half of a view's token


class Present(Struct, frozen=True):
    """The present files at the two paths of a proposed file; None is "no such file".

    If history has moved the file since, the caller gives it at its new path.
    """

    at_path: FileState | None
    at_source: FileState | None = None  # only for a move


class FittedHunk(Struct, frozen=True):
    """A hunk with its state now.

    `change` replaces lines of the present file, for a hunk of lines that fits. `region` has the present
    lines (half open, from 0) of one that is there or has a conflict.
    """

    hunk: ProposedHunk
    state: HunkState
    change: LineChange | None = None
    region: tuple[int, int] = (0, 0)


class FittedFile(Struct, frozen=True):
    """A proposed file on the present one."""

    file: ProposedFile
    path: WorkspacePath  # of the present file: its `source` if it has not moved
    now: FileState | None
    hunks: tuple[FittedHunk, ...]
    after: FileState | None  # the present file with all hunks that fit

    @property
    def fitting(self) -> frozenset[HunkId]:
        """The ids of the hunks that can land."""
        return frozenset(fitted.hunk.id for fitted in self.hunks if fitted.state == "fits")

    @property
    def open_move(self) -> HunkId | None:
        """The move that can land, which all other hunks of the file need."""
        return next(
            (one.hunk.id for one in self.hunks if one.hunk.kind == "move" and one.state == "fits"), None
        )

    def now_text(self, fitted: FittedHunk) -> bytes:
        """Return the present lines in the region of a hunk."""
        return b"".join(_lines(self.now)[slice(*fitted.region)])


def rebase(file: ProposedFile, present: Present) -> FittedFile:
    """Return the state of each hunk on the present files."""
    path, now, move_state = _locate(file, present)
    charge(*(state.content for state in (file.base, file.proposed, now) if state is not None))
    base = landed_base(file)
    by_lines = {one.hunk.id: one for one in _fit_lines(file, base, now)}
    fitted = []
    for hunk in file.hunks:
        if hunk.verdict is not None:
            fitted.append(FittedHunk(hunk, hunk.verdict))
        elif hunk.kind == "lines":
            fitted.append(by_lines[hunk.id])
        else:
            state = move_state if hunk.kind == "move" else _state_of_whole(file, base, now, hunk)
            fitted.append(FittedHunk(hunk, state))
    return FittedFile(file, path, now, tuple(fitted), _state_with(file, now, fitted))


def land(fitted: FittedFile, chosen: Collection[HunkId]) -> tuple[Change[FileState], ...]:
    """Return the changes of the present files that land the `chosen` hunks, none for one that is there.

    Raises Conflict if a chosen hunk has a conflict. Its data is `{files: [{path, reason, hunks: [id]}]}`.
    Raises InvalidParams if a chosen hunk needs a move that is neither done nor chosen.
    """
    path, move = fitted.file.path, fitted.open_move
    wanted = [one for one in fitted.hunks if one.hunk.id in chosen]
    if move is not None and wanted and move not in chosen:
        raise InvalidParams(
            f"The changes of {path} need its move, which is not among the hunks.",
            hint="Name the hunk of the move as well.",
            data={"path": path.text, "needs": [move]},
        )
    if blocked := [one.hunk.id for one in wanted if one.state == "conflict"]:
        raise Conflict(
            f"{path} has changed in the lines of {len(blocked)} of the hunks.",
            hint="Leave these hunks out, or give the text that the file should have.",
            data={"files": [{"path": path.text, "reason": "hunks", "hunks": blocked}]},
        )
    return _changes(fitted, state_with(fitted, chosen), is_moved=move is not None and move in chosen)


def land_text(fitted: FittedFile, content: bytes, shown: FileState | None) -> tuple[Change[FileState], ...]:
    """Return the changes that land the reviewer's own `content`, which stands for all hunks of the file.

    `shown` is the present file that the reviewer edited. If the file has changed since, git's merge joins
    the two. Raises Conflict if they collide.
    """
    model = fitted.after or shown or fitted.file.proposed or fitted.file.base
    theirs = None if model is None else model.with_content(content)
    landed = merge_states(shown, fitted.now, theirs, path=fitted.file.path.text)
    return _changes(fitted, landed, is_moved=fitted.open_move is not None)


def state_with(fitted: FittedFile, chosen: Collection[HunkId]) -> FileState | None:
    """Return the present file with the `chosen` hunks that fit."""
    return _state_with(fitted.file, fitted.now, [one for one in fitted.hunks if one.hunk.id in chosen])


def _state_with(file: ProposedFile, now: FileState | None, hunks: Iterable[FittedHunk]) -> FileState | None:
    landing = [one for one in hunks if one.state == "fits"]
    kinds = {one.hunk.kind for one in landing}
    proposed, state = file.proposed, now
    if "file" in kinds:
        state = _whole_result(file, landed_base(file), state)
    if state is None or proposed is None:
        return state
    if "mode" in kinds:
        state = state.with_mode(proposed.mode)
    changes = [one.change for one in landing if one.change is not None]
    return state.with_content(apply_changes(state.content, changes)) if changes else state


def reviewer_diff(fitted: FittedFile, landed: FileState | None, decoder: Decoder) -> str:
    """Return the diff from the proposed state to the landed one, both on the present file.

    It has the text that the reviewer changed, and the left-out hunks in reverse. It has nothing of the
    changes of others. "" means that the file landed as proposed.
    """
    return unified_diff(fitted.file.path, fitted.after, landed, with_binary=False, decoder=decoder)


def hunk_texts(fitted: FittedFile, context: int) -> Mapping[HunkId, str]:
    """Return each hunk of lines as a diff hunk; bytes that are not UTF-8 become surrogate escapes.

    One that fits replaces lines of the present file, with so many lines of context. Any other has its
    lines of the base, without context.
    """
    fits = [(one.hunk.id, one.change) for one in fitted.hunks if one.change is not None]
    texts = dict(
        zip(
            (hunk for hunk, _ in fits),
            show(_lines(fitted.now), [change for _, change in fits], context),
            strict=True,
        )
    )
    others = [(hunk.id, change) for hunk, change in line_changes(fitted.file) if hunk.id not in texts]
    shown = show(_lines(fitted.file.base), [change for _, change in others], 0)
    return texts | dict(zip((hunk for hunk, _ in others), shown, strict=True))


def view_token(files: Iterable[FittedFile]) -> str:
    """Return the token of a view: two halves, joined by `-`.

    The first half covers the paths, and the ids and states of the hunks: it stays while hunks have only
    moved. The second half covers the present and the proposed content as well.
    """
    approved, content = hashlib.sha256(), hashlib.sha256()
    for fitted in files:
        approved.update(b"%d " % len(fitted.file.path.raw) + fitted.file.path.raw)
        for one in fitted.hunks:
            approved.update(f" {one.hunk.id}:{one.state}".encode())
        for state in (fitted.now, fitted.after):
            content.update(b" -" if state is None else f" {state.mode:o}:{state.version}".encode())
    content.update(approved.digest())
    return f"{approved.hexdigest()[:_TOKEN_DIGITS]}-{content.hexdigest()[:_TOKEN_DIGITS]}"


def _locate(file: ProposedFile, present: Present) -> tuple[WorkspacePath, FileState | None, HunkState]:
    """Return the path and state of the present file, and the state of the move."""
    move = file.move
    if file.source is None or move is None or move.verdict == "landed":
        return file.path, present.at_path, "landed"
    if move.verdict == "rejected":
        return file.source, present.at_source, "rejected"  # the other hunks land at the old path
    if present.at_path is None:
        is_gone = present.at_source is None
        return file.source, present.at_source, "conflict" if is_gone else "fits"
    if present.at_source is None:
        return file.path, present.at_path, "there"
    return file.source, None, "conflict"  # another file has the new path, so no hunk can land


def _state_of_whole(
    file: ProposedFile, base: FileState | None, now: FileState | None, hunk: ProposedHunk
) -> HunkState:
    """Return the state of an undecided hunk of kind `file` or `mode`."""
    if hunk.kind == "mode" and base is not None and file.proposed is not None:
        if now is None or now.is_symlink:
            return "conflict"
        if now.mode == file.proposed.mode:
            return "there"
        return "fits" if now.mode == base.mode else "conflict"
    try:
        result = _whole_result(file, base, now)
    except (Conflict, Timeout, TooLarge):  # it cannot be compared
        return "conflict"
    return "there" if result == now else "fits"


def _whole_result(file: ProposedFile, base: FileState | None, now: FileState | None) -> FileState | None:
    """Return the present file with the hunk of kind `file`. Raises Conflict."""
    target = file.proposed
    if base is not None and target is not None and not file.is_whole:
        target = base.with_content(target.content)  # its mode is another hunk
    return merge_states(base, now, target, path=file.path.text)


def _fit_lines(file: ProposedFile, base: FileState | None, now: FileState | None) -> Iterable[FittedHunk]:
    """Return the state of each undecided hunk of lines."""
    hunks = list(open_line_changes(file))
    if not hunks or base is None:
        return ()
    if now is None or now.is_symlink or b"\0" in now.content:
        return [FittedHunk(hunk, "conflict") for hunk, _ in hunks]
    try:
        others = [] if base.version == now.version else hunks_between(base.content, now.content)
    except (Timeout, TooLarge):  # it cannot be compared, so a reviewer rejects it or gives the text
        return [FittedHunk(hunk, "conflict") for hunk, _ in hunks]
    return _place_hunks(hunks, others, lines_of(base.content))


def _place_hunks(
    hunks: Sequence[tuple[ProposedHunk, LineChange]], others: Sequence[LineChange], base: Lines
) -> Iterator[FittedHunk]:
    """Yield the state and place of each hunk among the changes that others made of the same base."""
    order = iter(hunk for hunk, _ in hunks)  # the clusters keep the order
    offset = added = 0
    for mine, yours in clusters([change for _, change in hunks], others, TouchRule()):
        is_there = bool(yours) and _results_are_equal(base, mine, yours)
        for change, near in touching(mine, yours):
            if near:
                is_done = is_there or any(is_same(change, other) for other in near)
                region = _region([change, *near], near)
                yield FittedHunk(next(order), "there" if is_done else "conflict", region=region)
                continue
            start = change.start + offset
            first_line = start + added + bool(change.lines)
            moved = LineChange(start, change.end + offset, first_line, change.lines)
            added += len(change.lines) - (change.end - change.start)
            yield FittedHunk(next(order), "fits", moved)
        if yours:
            offset = _offset_after(yours[-1])


def _results_are_equal(base: Lines, mine: Sequence[LineChange], yours: Sequence[LineChange]) -> bool:
    start, end = bounds([*mine, *yours])
    return changed_lines(base, start, end, mine) == changed_lines(base, start, end, yours)


def _region(changes: Sequence[LineChange], others: Sequence[LineChange]) -> tuple[int, int]:
    """Return the present lines (half open, from 0) in the place of all `changes`, by `others`."""
    start, end = bounds(changes)
    first = others[0]
    offset = first.first_line - bool(first.lines) - first.start
    return start + offset, end + _offset_after(others[-1])


def _offset_after(change: LineChange) -> int:
    """Return the distance that a change moves the lines below it."""
    return change.first_line - bool(change.lines) + len(change.lines) - change.end


def _changes(
    fitted: FittedFile, landed: FileState | None, *, is_moved: bool
) -> tuple[Change[FileState], ...]:
    path, now = fitted.path, fitted.now
    if is_moved:
        return Change(path, now, None), Change(fitted.file.path, None, landed, path)
    return () if landed == now else (Change(path, now, landed),)


def _lines(state: FileState | None) -> Lines:
    return () if state is None else lines_of(state.content)
