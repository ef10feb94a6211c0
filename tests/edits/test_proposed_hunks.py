"""Tests of `edits.proposed_hunks`: a change as hunks that are decided one by one."""

from __future__ import annotations

from itertools import combinations

import pytest

from editd.edits.line_changes import apply_changes
from editd.edits.proposed_hunks import (
    FILE_HUNKS_MAX,
    landed_base,
    open_line_changes,
    proposed_files,
    with_hunks,
)
from editd.values.content import EXECUTABLE, FILE, SYMLINK, Change, FileState
from editd.values.path import WorkspacePath
from support.proposals import LINES, OTHER, PATH, content, decided, ids, split


def test_a_hunk_is_a_run_of_changed_lines_without_context() -> None:
    file = split(LINES, b"A\nb\nc\nX\nd\n")
    assert [(hunk.number, hunk.start, hunk.end, hunk.new_start, hunk.new_end) for hunk in file.hunks] == [
        (1, 0, 1, 0, 1),
        (2, 3, 3, 3, 4),
        (3, 4, 5, 5, 5),
    ]


@pytest.mark.parametrize(
    ("base", "proposed"),
    [
        (LINES, b"A\nb\nc\nX\nd\n"),
        (LINES, b"A\nb\nc\nd\ne"),
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nc\r\nd"),
        (b"a\xe9\nb\n\xff\n", b"a\xe8\nb\n\xfe\n\xff\n"),
        (b"", b"a\nb"),
        (b"a\nb", b""),
        (b"a\0\n", b"b\0\n"),
    ],
)
def test_all_hunks_give_what_was_proposed_and_none_give_the_base(base: bytes, proposed: bytes) -> None:
    file = split(base, proposed)
    assert content(with_hunks(file, ids(file))) == proposed
    assert content(with_hunks(file, ())) == base


def test_some_hunks_give_their_lines_and_no_others() -> None:
    file = split(LINES, b"A\nb\nC\nd\nE\n")
    first, second, third = ids(file)
    assert content(with_hunks(file, [first, third])) == b"A\nb\nc\nd\nE\n"
    assert content(with_hunks(file, [second])) == b"a\nb\nC\nd\ne\n"


def test_an_id_has_no_line_numbers_and_names_the_path_and_the_lines() -> None:
    (hunk,) = split(LINES, b"a\nB\nc\nd\ne\n").hunks
    (moved,) = split(b"1\n2\n" + LINES, b"1\n2\na\nB\nc\nd\ne\n").hunks
    assert hunk.id == moved.id
    assert len(hunk.id) == 16
    (other,) = split(LINES, b"a\nX\nc\nd\ne\n").hunks
    (elsewhere,) = proposed_files([Change(OTHER, FileState(b"b\n"), FileState(b"B\n"))])[0].hunks
    assert len({hunk.id, other.id, elsewhere.id}) == 3


def test_equal_hunks_of_a_file_have_ids_of_their_own_which_last_when_one_lands() -> None:
    file = split(b"x\na\nx\nb\nx\n", b"y\na\ny\nb\ny\n")
    assert len(set(ids(file))) == 3
    for landed in (1, 2):
        for chosen in combinations(ids(file), landed):
            left = decided(file, chosen, "landed")
            assert ids(left) == ids(file)
            others = [name for name in ids(file) if name not in chosen]
            assert [hunk.id for hunk in left.undecided_hunks] == others


def test_equal_hunks_get_new_ids_if_their_count_changes_so_that_no_approval_lands_the_other_one() -> None:
    three = split(b"x\na\nx\nb\nx\n", b"y\na\ny\nb\ny\n")
    two = split(b"x\na\nx\nb\nx\n", b"x\na\ny\nb\ny\n")
    one = split(b"x\na\nx\nb\nx\n", b"x\na\nx\nb\ny\n")
    assert len({*ids(three), *ids(two), *ids(one)}) == 6


def test_the_base_with_what_landed_and_what_is_left_is_what_was_proposed() -> None:
    file = split(LINES, b"A\nA\nb\nd\nE\nE\n")
    for count in range(len(file.hunks) + 1):
        for chosen in combinations(ids(file), count):
            left = decided(file, chosen, "landed")
            base = landed_base(left)
            assert content(base) == content(with_hunks(file, chosen))
            rest = [change for _, change in open_line_changes(left)]
            assert apply_changes(content(base), rest) == content(file.proposed)


def test_a_rejected_hunk_is_in_no_base_and_among_no_open_changes() -> None:
    file = split(LINES, b"A\nb\nC\nd\nE\n")
    first, second, third = ids(file)
    left = decided(decided(file, [second], "rejected"), [first], "landed")
    assert content(landed_base(left)) == b"A\nb\nc\nd\ne\n"
    assert [hunk.id for hunk, _ in open_line_changes(left)] == [third]


@pytest.mark.parametrize(
    ("base", "proposed"),
    [
        (None, FileState(b"a\nb\n")),
        (FileState(b"a\nb\n"), None),
        (FileState(b"target", SYMLINK), FileState(b"other", SYMLINK)),
        (FileState(b"target", SYMLINK), FileState(b"a\n", EXECUTABLE)),
        (FileState(b"a\0b\n"), FileState(b"a\0c\n")),
    ],
)
def test_a_file_that_has_no_lines_to_choose_from_is_one_hunk(
    base: FileState | None, proposed: FileState | None
) -> None:
    (file,) = proposed_files([Change(PATH, base, proposed)])
    assert [hunk.kind for hunk in file.hunks] == ["file"]
    assert with_hunks(file, ids(file)) == proposed
    assert with_hunks(file, ()) == base


def test_more_hunks_than_anybody_decides_are_one() -> None:
    lines = [b"%d\n" % number for number in range(2 * FILE_HUNKS_MAX + 2)]

    def changed(count: int) -> bytes:
        return b"".join(b"x\n" if at % 2 and at < 2 * count else line for at, line in enumerate(lines))

    assert len(split(b"".join(lines), changed(FILE_HUNKS_MAX)).hunks) == FILE_HUNKS_MAX
    file = split(b"".join(lines), changed(FILE_HUNKS_MAX + 1))
    assert [hunk.kind for hunk in file.hunks] == ["file"]
    assert content(with_hunks(file, ids(file))) == changed(FILE_HUNKS_MAX + 1)


def test_a_mode_is_a_hunk_beside_the_lines() -> None:
    (file,) = proposed_files([Change(PATH, FileState(b"a\nb\n"), FileState(b"a\nB\n", EXECUTABLE))])
    mode, lines = file.hunks
    assert (mode.kind, lines.kind) == ("mode", "lines")
    assert with_hunks(file, [mode.id]) == FileState(b"a\nb\n", EXECUTABLE)
    assert with_hunks(file, [lines.id]) == FileState(b"a\nB\n", FILE)


def test_a_binary_file_with_another_mode_has_two_hunks() -> None:
    (file,) = proposed_files([Change(PATH, FileState(b"\0a"), FileState(b"\0b", EXECUTABLE))])
    assert [hunk.kind for hunk in file.hunks] == ["mode", "file"]
    assert with_hunks(file, [file.hunks[1].id]) == FileState(b"\0b", FILE)


def test_a_move_is_one_file_with_its_source_and_a_hunk() -> None:
    base, after = FileState(b"a\nb\n"), FileState(b"a\nB\n")
    (file,) = proposed_files([Change(PATH, base, None), Change(OTHER, None, after, PATH)])
    assert (file.path, file.source, file.base, file.proposed) == (OTHER, PATH, base, after)
    assert [hunk.kind for hunk in file.hunks] == ["move", "lines"]
    assert file.move == file.hunks[0]


def test_a_move_onto_another_file_is_two_files() -> None:
    one, other = FileState(b"a\n"), FileState(b"b\n")
    files = proposed_files([Change(PATH, one, None), Change(OTHER, other, one, PATH)])
    assert [(file.path, file.source, [hunk.kind for hunk in file.hunks]) for file in files] == [
        (PATH, None, ["file"]),
        (OTHER, None, ["lines"]),
    ]
    swapped = proposed_files([Change(PATH, one, other, OTHER), Change(OTHER, other, one, PATH)])
    assert [file.source for file in swapped] == [None, None]


def test_hunks_are_numbered_through_all_files_and_a_change_without_effect_has_none() -> None:
    files = proposed_files(
        [
            Change(PATH, FileState(LINES), FileState(b"A\nb\nC\nd\ne\n")),
            Change(WorkspacePath("same"), FileState(LINES), FileState(LINES)),
            Change(OTHER, None, FileState(b"new\n")),
        ]
    )
    assert [[hunk.number for hunk in file.hunks] for file in files] == [[1, 2], [3]]
