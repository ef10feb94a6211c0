"""Tests of `edits.rebase`: each hunk of a proposal on what the file holds now, against git's own merge.

The properties run on 300 random cases each. `pytest --long -n 2 tests/edits/test_rebase.py` runs 20,300.
"""

from __future__ import annotations

import random
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd.edits.proposed_hunks import proposed_files
from editd.edits.rebase import (
    FittedFile,
    Present,
    hunk_texts,
    land,
    land_text,
    rebase,
    reviewer_diff,
    state_with,
    view_token,
)
from editd.errors import Conflict, InvalidParams
from editd.values.content import EXECUTABLE, FILE, NO_FALLBACK, SYMLINK, Change, FileState
from support.proposals import LINES, OTHER, PATH, content, decided, ids, split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from editd.values.proposal import HunkId, ProposedFile

MORE = b"0\n" + LINES
CASES, CASES_LONG = 300, 2_000  # of one seed
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))]
REPEATED = [b"x = 1\n", b"return y\n", b"}\n", b"\n", b"caf\xe9\n"]


def fit(file: ProposedFile, now: bytes | FileState | None) -> FittedFile:
    return rebase(file, Present(FileState(now) if isinstance(now, bytes) else now))


def landed(fitted: FittedFile, chosen: Collection[HunkId]) -> bytes:
    changes = land(fitted, chosen)
    return content(changes[-1].after if changes else fitted.now)


def states(fitted: FittedFile) -> list[str]:
    return [one.state for one in fitted.hunks]


def check(base: bytes, proposed: bytes, now: bytes, expected: list[str], result: bytes) -> None:
    """Each hunk has its expected state, and all that fit give the result."""
    fitted = fit(split(base, proposed), now)
    assert states(fitted) == expected
    assert landed(fitted, fitted.fitting) == result


def test_a_hunk_fits_where_its_lines_have_moved_to() -> None:
    check(LINES, b"a\nb\nC\nd\ne\n", b"1\n2\na\nb\nc\nd\nE\n", ["fits"], b"1\n2\na\nb\nC\nd\nE\n")


def test_a_hunk_that_somebody_else_made_too_is_there() -> None:
    check(LINES, b"A\nb\nC\nd\ne\n", b"a\nb\nC\nd\ne\n", ["fits", "there"], b"A\nb\nC\nd\ne\n")


def test_each_hunk_fits_or_conflicts_on_its_own() -> None:
    now = b"a\nb\nX\nd\ne\n"
    check(LINES, b"A\nb\nC\nd\nE\n", now, ["fits", "conflict", "fits"], b"A\nb\nX\nd\nE\n")


def test_changes_of_neighbouring_lines_conflict_as_in_git() -> None:
    check(LINES, b"a\nb\nC\nd\ne\n", b"a\nB\nc\nd\ne\n", ["conflict"], b"a\nB\nc\nd\ne\n")


def test_a_conflict_shows_the_lines_that_stand_there() -> None:
    fitted = fit(split(LINES, b"a\nb\nC\nd\ne\n"), b"0\na\nb\nX\nY\nd\ne\n")
    (hunk,) = fitted.hunks
    assert (hunk.state, hunk.region) == ("conflict", (3, 5))
    assert fitted.now_text(hunk) == b"X\nY\n"
    (gone,) = fit(split(LINES, b"a\nb\nC\nd\ne\n"), b"a\nb\nd\ne\n").hunks
    assert (gone.state, gone.region) == ("conflict", (2, 2))


def test_a_chosen_hunk_with_a_conflict_is_refused_by_its_id() -> None:
    fitted = fit(split(LINES, b"A\nb\nC\nd\ne\n"), b"a\nb\nX\nd\ne\n")
    first, second = ids(fitted.file)
    with pytest.raises(Conflict) as refusal:
        land(fitted, [first, second])
    assert refusal.value.data == {"files": [{"path": "f", "reason": "hunks", "hunks": [second]}]}
    assert landed(fitted, [first]) == b"A\nb\nX\nd\ne\n"


@pytest.mark.parametrize("now", [None, FileState(b"x", SYMLINK), FileState(b"a\0\n")])
def test_lines_of_a_file_that_is_gone_or_no_text_any_more_conflict(now: FileState | None) -> None:
    assert states(fit(split(LINES, b"A\nb\nC\nd\ne\n"), now)) == ["conflict", "conflict"]


def test_a_landed_file_keeps_its_permissions() -> None:
    fitted = fit(split(LINES, b"A\nb\nc\nd\ne\n"), FileState(LINES, FILE, 0o640))
    (change,) = land(fitted, fitted.fitting)
    assert change.after is not None
    assert change.after.permissions == 0o640


NEW, OLD, ELSE = FileState(b"new\n"), FileState(b"old\n"), FileState(b"else\n")


@pytest.mark.parametrize(
    ("base", "proposed", "now", "state"),
    [
        (None, NEW, None, "fits"),
        (None, NEW, NEW, "there"),
        (None, NEW, ELSE, "conflict"),
        (OLD, None, OLD, "fits"),
        (OLD, None, None, "there"),
        (OLD, None, ELSE, "conflict"),
        (FileState(b"\0a"), FileState(b"\0b"), FileState(b"\0a"), "fits"),
        (FileState(b"\0a"), FileState(b"\0b"), FileState(b"\0b"), "there"),
        (FileState(b"\0a"), FileState(b"\0b"), FileState(b"\0c"), "conflict"),
        (FileState(b"x", SYMLINK), FileState(b"y", SYMLINK), FileState(b"x", SYMLINK), "fits"),
        (FileState(b"x", SYMLINK), FileState(b"y", SYMLINK), FileState(b"z", SYMLINK), "conflict"),
        (OLD, OLD.with_mode(EXECUTABLE), ELSE, "fits"),
        (OLD, OLD.with_mode(EXECUTABLE), ELSE.with_mode(EXECUTABLE), "there"),
        (OLD, OLD.with_mode(EXECUTABLE), FileState(b"x", SYMLINK), "conflict"),
        (OLD, OLD.with_mode(EXECUTABLE), None, "conflict"),
    ],
)
def test_a_hunk_without_lines_has_a_state_too(
    base: FileState | None, proposed: FileState | None, now: FileState | None, state: str
) -> None:
    (file,) = proposed_files([Change(PATH, base, proposed)])
    fitted = fit(file, now)
    assert states(fitted) == [state]
    if state == "fits":
        (change,) = land(fitted, fitted.fitting)
        assert change.before == now
        assert change.after == (proposed if now == base else ELSE.with_mode(EXECUTABLE))
    elif state == "there":
        assert land(fitted, ids(file)) == ()


def test_a_mode_and_binary_content_land_together_and_one_by_one() -> None:
    (file,) = proposed_files([Change(PATH, FileState(b"\0a"), FileState(b"\0b", EXECUTABLE))])
    fitted = fit(file, FileState(b"\0a"))
    mode, whole = ids(file)
    assert state_with(fitted, [mode, whole]) == FileState(b"\0b", EXECUTABLE)
    assert state_with(fitted, [whole]) == FileState(b"\0b", FILE)
    left = fit(decided(file, [whole], "landed"), FileState(b"\0b", FILE))
    assert states(left) == ["fits", "landed"]


def moved_file() -> ProposedFile:
    base, after = FileState(b"a\nb\n"), FileState(b"a\nB\n")
    (file,) = proposed_files([Change(PATH, base, None), Change(OTHER, None, after, PATH)])
    return file


def test_lines_of_a_moved_file_need_its_move() -> None:
    file = moved_file()
    now = FileState(b"0\na\nb\n")
    fitted = rebase(file, Present(None, now))
    move, lines = ids(file)
    assert states(fitted) == ["fits", "fits"]
    with pytest.raises(InvalidParams) as refusal:
        land(fitted, [lines])
    assert refusal.value.data["needs"] == [move]
    assert land(fitted, [move]) == (Change(PATH, now, None), Change(OTHER, None, now, PATH))
    assert land(fitted, [move, lines])[-1] == Change(OTHER, None, FileState(b"0\na\nB\n"), PATH)


def test_after_a_move_has_landed_or_was_made_by_others_its_lines_land_at_the_new_path() -> None:
    file = moved_file()
    move, lines = ids(file)
    now, after = FileState(b"a\nb\n"), FileState(b"a\nB\n")
    for done, state in ((file, "there"), (decided(file, [move], "landed"), "landed")):
        fitted = rebase(done, Present(now, None))
        assert states(fitted) == [state, "fits"]
        assert land(fitted, [lines]) == (Change(OTHER, now, after),)


def test_after_a_move_is_rejected_its_lines_land_at_the_old_path() -> None:
    file = moved_file()
    move, lines = ids(file)
    now = FileState(b"a\nb\n")
    fitted = rebase(decided(file, [move], "rejected"), Present(None, now))
    assert land(fitted, [lines]) == (Change(PATH, now, FileState(b"a\nB\n")),)


@pytest.mark.parametrize("present", [Present(OLD, FileState(b"a\nb\n")), Present(None, None)])
def test_a_move_to_a_path_that_is_taken_and_of_a_file_that_is_gone_conflict(present: Present) -> None:
    assert states(rebase(moved_file(), present)) == ["conflict", "conflict"]


def test_the_reviewers_own_text_stands_for_all_hunks() -> None:
    fitted = fit(split(LINES, b"A\nb\nC\nd\ne\n"), LINES)
    (change,) = land_text(fitted, b"mine\n", FileState(LINES))
    assert content(change.after) == b"mine\n"


def test_the_reviewers_own_text_is_merged_if_the_file_has_changed_since_it_was_shown() -> None:
    fitted = fit(split(LINES, b"A\nb\nc\nd\ne\n"), b"a\nb\nc\nd\nE\n")
    (change,) = land_text(fitted, b"Mine\nb\nc\nd\ne\n", FileState(LINES))
    assert content(change.after) == b"Mine\nb\nc\nd\nE\n"
    with pytest.raises(Conflict) as refusal:
        land_text(fitted, b"a\nb\nc\nd\nmine\n", FileState(LINES))
    assert refusal.value.data["files"][0]["reason"] == "lines"


def test_the_reviewers_own_text_takes_the_proposed_mode_and_the_proposed_path() -> None:
    now, after = FileState(b"a\n"), FileState(b"b\n", EXECUTABLE)
    (file,) = proposed_files([Change(PATH, now, None), Change(OTHER, None, after, PATH)])
    changes = land_text(rebase(file, Present(None, now)), b"mine\n", now)
    assert changes == (
        Change(PATH, now, None),
        Change(OTHER, None, FileState(b"mine\n", EXECUTABLE), PATH),
    )


def test_the_reviewers_own_text_of_a_new_file_and_of_a_deleted_one() -> None:
    (new,) = proposed_files([Change(PATH, None, NEW)])
    assert land_text(fit(new, None), b"mine\n", None) == (Change(PATH, None, FileState(b"mine\n")),)
    (gone,) = proposed_files([Change(PATH, OLD, None)])
    assert land_text(fit(gone, OLD), b"mine\n", OLD) == (Change(PATH, OLD, FileState(b"mine\n")),)


def test_the_reviewers_diff_has_left_out_hunks_and_changed_text_and_nothing_of_others() -> None:
    now = FileState(b"others\n" + MORE)
    fitted = fit(split(MORE, b"0\nA\nb\nC\nd\nE\n"), now)
    first, second, third = ids(fitted.file)
    diff = reviewer_diff(fitted, state_with(fitted, [first, third]), NO_FALLBACK)
    assert [line for line in diff.splitlines() if line[0] in "+-"][2:] == ["-C", "+c"]
    assert reviewer_diff(fitted, state_with(fitted, [first, second, third]), NO_FALLBACK) == ""
    (change,) = land_text(fitted, b"others\n0\nA\nb\nC\nd\nMine\n", now)
    diff = reviewer_diff(fitted, change.after, NO_FALLBACK)
    assert [line for line in diff.splitlines() if line[0] in "+-"][2:] == ["-E", "+Mine"]


def test_texts_of_hunks_have_context_where_they_fit() -> None:
    fitted = fit(split(MORE, b"0\nA\nA\nb\nC\nd\nE\n"), b"others\n0\na\nb\nX\nd\ne\n")
    first, second, third = ids(fitted.file)
    assert hunk_texts(fitted, 1) == {
        first: "@@ -2,3 +2,4 @@\n 0\n-a\n+A\n+A\n b\n",
        second: "@@ -4,1 +5,1 @@\n-c\n+C\n",
        third: "@@ -6,2 +7,2 @@\n d\n-e\n+E\n",
    }


def test_a_view_keeps_the_first_half_of_its_token_while_hunks_have_only_moved() -> None:
    file = split(LINES, b"A\nb\nc\nd\ne\n")
    shown, moved, collided = (
        view_token([fit(file, now)]).split("-") for now in (LINES, b"a\nb\nc\nd\n1\n", b"X\nb\nc\nd\ne\n")
    )
    assert shown[0] == moved[0] != collided[0]
    assert len({shown[1], moved[1], collided[1]}) == 3
    (added,) = proposed_files([Change(PATH, None, NEW)])
    assert view_token([fit(added, None)]) != view_token([fit(added, ELSE)])


def drawn(dice: random.Random) -> tuple[bytes, bytes, bytes]:
    """A base, a proposal and the work of others, with repeated lines and with a missing last line end."""
    base = [line(dice) for _ in range(dice.randrange(3, 40))]
    texts = [b"".join(lines) for lines in (base, mutated(dice, base, 1), mutated(dice, base, 0))]
    if dice.random() < 0.2:
        texts = [text.replace(b"\n", b"\r\n") for text in texts]
    base_text, proposed, now = (text.rstrip(b"\r\n") if dice.random() < 0.2 else text for text in texts)
    return base_text, proposed, now


def line(dice: random.Random) -> bytes:
    return dice.choice(REPEATED) if dice.random() < 0.4 else b"line %d\n" % dice.randrange(10**6)


def mutated(dice: random.Random, lines: list[bytes], least: int) -> list[bytes]:
    lines = list(lines)
    for _ in range(dice.randrange(least, 6)):
        at = dice.randrange(len(lines) + 1)
        removed = dice.choice([0, 0, 1, 1, 2])
        lines[at : at + removed] = [line(dice) for _ in range(dice.choice([0, 1, 1, 2, 3]))]
    return lines


def count_of(seed: int) -> int:
    return CASES if seed == 1 else CASES_LONG


def cases(seed: int) -> Iterator[tuple[ProposedFile, FittedFile, random.Random]]:
    dice = random.Random(seed)
    left = count_of(seed)
    while left:
        base, proposed, now = drawn(dice)
        if base != proposed:
            left -= 1
            file = split(base, proposed)
            yield file, fit(file, now), dice


@pytest.mark.parametrize("seed", SEEDS)
def test_all_hunks_at_once_give_gits_merge(tmp_path: Path, seed: int) -> None:
    clean = partly = 0
    for file, fitted, _ in cases(seed):
        sides = content(fitted.now), content(file.base), content(file.proposed)
        for name, side in zip(("ours", "base", "theirs"), sides, strict=True):
            (tmp_path / name).write_bytes(side)
        git = subprocess.run(
            ["git", "merge-file", "-p", "ours", "base", "theirs"],
            cwd=tmp_path, capture_output=True, check=False,
        )  # fmt: skip
        assert ("conflict" in states(fitted)) == (git.returncode != 0), sides
        if git.returncode == 0:
            clean += 1
            assert landed(fitted, ids(file)) == git.stdout, sides
        elif "fits" in states(fitted):
            partly += 1
    assert clean > 0.4 * count_of(seed)
    assert partly > 0.1 * count_of(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_landing_in_any_order_gives_the_same_bytes_and_leaves_the_others_as_they_were(seed: int) -> None:
    steps = 0
    for file, fitted, dice in cases(seed):
        order = sorted(fitted.fitting)
        dice.shuffle(order)
        at_once = landed(fitted, order)
        left, current = file, fitted
        while order:
            steps += 1
            count = dice.randrange(1, 3)
            some, order = order[:count], order[count:]
            now = landed(current, some)
            left = decided(left, some, "landed")
            before = {one.hunk.id: one.state for one in current.hunks if one.hunk.id not in some}
            current = fit(left, now)
            after = {one.hunk.id: one.state for one in current.hunks if one.hunk.id not in some}
            assert after == before, (file, fitted.now)
        assert content(current.now) == at_once, (file, fitted.now)
    assert steps > count_of(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_hunk_that_fits_replaces_its_own_old_lines_under_the_same_id(seed: int) -> None:
    """Whatever others have moved: so an approval lands what was shown."""
    moved = 0
    for file, fitted, _ in cases(seed):
        now = content(fitted.now).splitlines(keepends=True)
        old = content(file.base).splitlines(keepends=True)
        new = content(file.proposed).splitlines(keepends=True)
        assert [one.hunk.id for one in fitted.hunks] == ids(file)
        for one in fitted.hunks:
            if one.change is not None:
                moved += one.change.start != one.hunk.start
                assert now[one.change.start : one.change.end] == old[one.hunk.start : one.hunk.end]
                assert list(one.change.lines) == new[one.hunk.new_start : one.hunk.new_end]
    assert moved > count_of(seed) // 4


@pytest.mark.parametrize("seed", SEEDS)
def test_an_id_holds_when_the_proposal_is_sent_anew_on_what_is_there(seed: int) -> None:
    """Where no line repeats: a diff may align repeated lines in another way."""
    held = 0
    dice = random.Random(seed)
    for _ in range(count_of(seed)):
        base = [b"line %d\n" % number for number in range(dice.randrange(5, 40))]
        changes = {at: b"new %d\n" % at for at in range(0, len(base), 4) if dice.random() < 0.5}
        proposed = [changes.get(at, old) for at, old in enumerate(base)]
        others = [b"others %d\n" % at + old if dice.random() < 0.2 else old for at, old in enumerate(base)]
        if proposed == base:
            continue
        file = split(b"".join(base), b"".join(proposed))
        fitted = fit(file, b"".join(others))
        if fitted.fitting:
            anew = split(content(fitted.now), landed(fitted, fitted.fitting))
            assert set(ids(anew)) == fitted.fitting
            held += len(fitted.fitting)
    assert held > count_of(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lines_of_a_rejected_hunk_are_nowhere(seed: int) -> None:
    rejections = 0
    dice = random.Random(seed)
    for _ in range(count_of(seed)):
        base = [b"line %d\n" % number for number in range(dice.randrange(5, 40))]
        proposed = [b"proposed %d\n" % at if dice.random() < 0.3 else old for at, old in enumerate(base)]
        others = [old if dice.random() < 0.9 else b"others %d\n" % at for at, old in enumerate(base)]
        if proposed == base:
            continue
        file = split(b"".join(base), b"".join(proposed))
        rejected = {name for name in ids(file) if dice.random() < 0.5}
        fitted = fit(decided(file, rejected, "rejected"), b"".join(others))
        result = landed(fitted, fitted.fitting)
        for one in fitted.hunks:
            lines = b"".join(proposed[one.hunk.new_start : one.hunk.new_end])
            assert (one.hunk.id in fitted.fitting) == (lines in result)
        rejections += len(rejected)
    assert rejections > count_of(seed)


def test_a_view_of_100_hunks_in_a_large_file_takes_no_time_that_a_reviewer_notices() -> None:
    """About 30 ms on the machine of the design. The bound is for a loaded one: a merge for each took 7 s."""
    lines = [b"    value_%d = compute(%d)  # some code here\n" % (at, at) for at in range(22_000)]
    proposed, others = list(lines), list(lines)
    for at in range(100, 20_100, 200):
        proposed[at] = b"    changed_%d\n" % at
        others[at + (1 if at % 400 == 100 else 50)] = b"    of others %d\n" % at
    file = split(b"".join(lines), b"".join(proposed))
    now = FileState(b"".join(others))
    assert sorted(set(states(fit(file, now)))) == ["conflict", "fits"]
    assert min(seconds_of_a_view(file, now) for _ in range(3)) < 0.2


def seconds_of_a_view(file: ProposedFile, now: FileState) -> float:
    began = time.thread_time()
    fitted = fit(file, now)
    assert len(hunk_texts(fitted, 3)) == 100
    view_token([fitted])
    return time.thread_time() - began


def test_a_file_that_others_rewrote_is_compared_hunk_by_hunk_in_no_long_time() -> None:
    """Each hunk touches the one change of others, which has every line."""
    lines = [b"value %d\n" % at for at in range(20_000)]
    proposed = [b"x\n" if at % 20 == 0 else old for at, old in enumerate(lines)]
    file = split(b"".join(lines), b"".join(proposed))
    began = time.thread_time()
    fitted = fit(file, b"".join(lines).replace(b"\n", b"\r\n"))
    assert set(states(fitted)) == {"conflict"}
    assert time.thread_time() - began < 1
