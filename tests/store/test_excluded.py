"""store.excluded: the record of excluded versions, and the contents that are kept for a while."""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.errors import HistoryDamaged
from editd.store import excluded
from editd.store.excluded import (
    ExcludedContents,
    absent_contents,
    append_excluded,
    read_excluded,
    read_whole_lines,
    rewrite_excluded,
)
from editd.store.git_objects import oid_of
from editd.system.files import replace_file
from editd.system.filesystem import ignore_lease_signal, take_lease
from editd.values.content import Version, version_of
from editd.values.excluded_paths import ExcludedPaths

SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US
ONE, TWO, THREE = (version_of(text) for text in (b"one", b"two", b"three"))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (tmp_path / "store.git").mkdir()
    return tmp_path


def opened(state: Path) -> ExcludedContents:
    contents = ExcludedContents(str(state), str(state / "store.git"))
    contents.open()
    return contents


def kept_files(state: Path) -> list[str]:
    return sorted(name.split("-")[0] for name in os.listdir(state / "excluded"))


def test_a_content_is_kept_over_a_restart_and_a_version_is_named_for_good(state: Path) -> None:
    contents = opened(state)
    assert contents.keep({ONE: (".env", b"one"), TWO: (".env", None)}, 5, 7) == [ONE]
    again = opened(state)
    assert again.paths == {ONE: ".env", TWO: ".env"}
    assert (again.content(ONE), again.content(TWO), again.bytes) == (b"one", None, 3)
    assert again.drop([ONE, TWO]) == 1
    last = opened(state)
    assert (last.paths, last.kept, last.bytes) == (again.paths, {}, 0)
    assert absent_contents(str(state / "store.git")) == {oid_of(ONE), oid_of(TWO)}
    assert (state / "store.git/excluded").stat().st_mode & 0o777 == 0o600
    assert (state / "excluded").stat().st_mode & 0o777 == 0o700


def test_an_old_content_goes_once_nothing_needs_it_and_the_newest_edit_counts(state: Path) -> None:
    contents = opened(state)
    contents.keep({ONE: (".env", b"one"), TWO: (".env", b"two")}, SECOND_US, 1)
    contents.keep({TWO: (".env", b"two"), THREE: (".env", b"three")}, DAY_US, 2)
    assert contents.due_us(DAY_US) == SECOND_US + DAY_US
    assert contents.drop_old(SECOND_US + DAY_US, DAY_US, 0) == 0, "it is not synced yet"
    assert contents.drop_old(SECOND_US + DAY_US, DAY_US, 1) == 1
    assert sorted(contents.kept) == sorted([TWO, THREE])
    assert kept_files(state) == sorted([TWO, THREE])
    assert contents.drop_old(2 * DAY_US - 1, DAY_US, 9) == 0
    assert contents.drop_old(2 * DAY_US, DAY_US, 9) == 2
    assert contents.due_us(DAY_US) is None


def test_a_clock_that_is_set_back_keeps_no_content_for_longer_than_the_time(state: Path) -> None:
    contents = opened(state)
    contents.keep({ONE: (".env", b"one")}, 10 * DAY_US, 1)
    assert contents.drop_old(10 * DAY_US - SECOND_US, DAY_US, 1) == 0
    assert contents.drop_old(9 * DAY_US, DAY_US, 1) == 1


@pytest.mark.needs("leases")
def test_a_lease_of_another_program_on_the_record_delays_no_edit(state: Path) -> None:
    """The attack: a program leases the record, and an open that waits for the lease lasts 45 seconds."""
    store, record = str(state / "store.git"), state / "store.git/excluded"
    append_excluded(store, [(ONE, "a")])
    ignore_lease_signal()
    with record.open("rb") as file:
        assert take_lease(file.fileno())
        append_excluded(store, [(TWO, ".env")])
        assert os.fstat(file.fileno()).st_nlink == 0
    assert read_excluded(store) == [(ONE, "a"), (TWO, ".env")]


def test_a_torn_last_line_is_dropped_and_a_wrong_line_before_it_is_damage(state: Path) -> None:
    store, record = str(state / "store.git"), state / "store.git/excluded"
    append_excluded(store, [(ONE, "a\n\udcff.env")])
    append_excluded(store, [(ONE, "a\n\udcff.env"), (TWO, ".env")])
    whole = record.read_bytes()
    assert read_excluded(store) == [(ONE, "a\n\udcff.env"), (TWO, ".env")]
    record.write_bytes(whole[:-5])
    assert read_excluded(store) == [(ONE, "a\n\udcff.env")]
    opened(state).name([(TWO, ".env")])
    assert record.read_bytes() == whole
    record.write_bytes(whole.replace(TWO.encode(), ONE.encode()) + whole)
    with pytest.raises(HistoryDamaged, match="begins a wrong line"):
        read_excluded(store)
    assert read_whole_lines(store) == [(ONE, "a\n\udcff.env"), (TWO, ".env")]
    rewrite_excluded(store, read_whole_lines(store))
    assert sorted(dict(read_excluded(store))) == sorted([ONE, TWO])


def test_a_full_disk_keeps_nothing_of_the_edit_and_what_was_kept_stays(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = opened(state)
    contents.keep({ONE: (".env", b"one")}, 1, 1)

    def fail(path: str, content: bytes, *, temporary: str) -> None:
        if content == b"three":
            (state / "excluded" / (os.path.basename(path) + temporary)).write_bytes(b"th")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace_file(path, content, temporary=temporary)

    monkeypatch.setattr(excluded, "replace_file", fail)
    with pytest.raises(OSError, match="No space"):
        contents.keep({ONE: (".env", b"one"), TWO: (".env", b"two"), THREE: (".env", b"three")}, 2, 2)
    assert kept_files(state) == [ONE]
    assert (contents.content(ONE), contents.bytes) == (b"one", 3)


def test_an_unfinished_file_goes_at_the_start_and_a_damaged_one_is_no_content(state: Path) -> None:
    contents = opened(state)
    contents.keep({ONE: (".env", b"one")}, 1, 1)
    (kept,) = (state / "excluded").iterdir()
    kept.write_bytes(b"other")
    (state / "excluded" / f"{TWO}-2-2.new").write_bytes(b"tw")
    (state / "excluded" / "note").write_bytes(b"not ours")
    again = opened(state)
    assert again.content(ONE) is None
    assert kept_files(state) == sorted([ONE, "note"])
    kept.unlink()
    assert again.content(ONE) is None
    assert (again.kept, again.bytes) == ({}, 0)


def test_files_are_those_that_the_present_rule_covers(state: Path) -> None:
    contents = opened(state)
    contents.name([(ONE, "b.key"), (TWO, ".env"), (THREE, "was/excluded")])
    contents.rule = ExcludedPaths(["**/.env", "**/*.key"])
    assert contents.files() == [".env", "b.key"]
    assert contents.drop_matching(lambda content: content == b"x", 9) == 0
    contents.keep({Version(version_of(b"x")): ("x.key", b"x")}, 1, 10)
    assert contents.drop_matching(lambda content: content == b"x", 9) == 0
    assert contents.drop_matching(lambda content: content == b"x", 10) == 1


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=6)), max_size=4), st.booleans())
def test_whatever_the_record_holds_it_is_read_or_named_as_damage(
    changes: list[tuple[int, bytes]], is_cut: bool
) -> None:
    with TemporaryDirectory() as folder:
        store = Path(folder)
        append_excluded(folder, [(ONE, ".env"), (TWO, 'b\\u"\udcff'), (THREE, "")])
        content = (store / "excluded").read_bytes()
        for at, put in changes:
            content = content[:at] + (b"" if is_cut else put) + content[at + len(put) :]
        (store / "excluded").write_bytes(content)
        whole = read_whole_lines(folder)
        assert dict(whole).keys() <= {ONE, TWO, THREE}
        with contextlib.suppress(HistoryDamaged):
            assert set(read_excluded(folder)) <= set(whole)


def test_a_line_with_a_right_checksum_and_no_path_is_wrong() -> None:
    body = f'{ONE} "a" "b"'.encode()
    line = b"%08x %b\n" % (zlib.crc32(body), body)
    with TemporaryDirectory() as folder:
        (Path(folder) / "excluded").write_bytes(line)
        assert read_whole_lines(folder) == []
        with pytest.raises(HistoryDamaged):
            read_excluded(folder)
