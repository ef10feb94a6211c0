"""History and recovery with excluded files: the journal has no content of them, and nothing is lost."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import ByTransaction
from editd.errors import ContentExcluded, IoError
from editd.store import journal
from editd.store.salvage import Salvage, open_history
from editd.store.verify import verify_quick
from editd.store.verify_history import verify_full
from editd.values.content import FileState, version_of
from editd.values.excluded_paths import ExcludedPaths
from editd.values.transaction import Authorship
from support.harness import Harness, apply, done, pack, path_of, refused, sync, write
from support.racing_disk import MeddlingDisk
from support.working_files import put

if TYPE_CHECKING:
    from pathlib import Path

    from editd.engine.engine import Engine

ENV = path_of(".env")
RULE = ExcludedPaths(["**/.env"])


class Killed(BaseException):
    """The end of the daemon in the middle of a call."""


def kill() -> None:
    raise Killed


@pytest.fixture
def place(tmp_path: Path) -> Harness:
    return Harness(tmp_path / "place", excluded=RULE)


def undo(seq: int) -> Undo:
    return Undo(Authorship("somebody", None), "connection 1", ByTransaction(seq))


def journal_has(place: Harness, text: str) -> bool:
    return any(text.encode() in segment.read_bytes() for segment in place.state.glob("journal/*"))


def killed_before_publishing(place: Harness, *texts: str) -> None:
    """Edit the file in one turn, and kill the daemon after the commit point, before the file is replaced."""

    def make_disk(root: str) -> MeddlingDisk:
        disk = MeddlingDisk(root)
        disk.meddle["exchange", 1] = kill
        return disk

    with place.killed(make_disk=make_disk) as engine, pytest.raises(Killed):
        engine.run_batch([apply(write(".env", text)) for text in texts])


@pytest.mark.needs("exchange")
def test_recovery_takes_the_content_from_beside_the_journal(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    killed_before_publishing(place, "first secret\n", "second secret\n")
    assert place.files()[".env"] == "old\n"
    assert not journal_has(place, "secret")
    with place.engine() as engine:
        assert place.files() == {".env": "second secret\n"}
        assert engine.history.head == 2
        done(engine, undo(2))
        done(engine, undo(1))
        assert place.files() == {".env": "old\n"}


@pytest.mark.needs("exchange")
def test_recovery_writes_nothing_where_the_content_is_gone(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    killed_before_publishing(place, "secret\n")
    for kept in (place.state / "excluded").iterdir():
        kept.unlink()
    with place.engine() as engine:
        assert place.files() == {".env": "old\n"}
        entry = engine.history.entry(ENV)
        assert entry is not None
        assert entry.version == version_of(b"old\n"), "what the file holds is adopted"


def test_a_power_cut_leaves_a_file_as_another_program_wrote_it(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    with place.killed(boot=b"before") as engine:
        done(engine, apply(write(".env", "ours\n")))
        put(place.root, {".env": FileState(b"theirs\n")})
        engine.recorder.look_at([ENV])
        assert engine.history.head == 2
    (place.root / ".env").write_text("")  # torn: neither the history nor the journal has a content for it
    with place.engine(boot=b"after") as engine:
        assert place.files() == {".env": ""}
        assert engine.history.head == 3


def test_a_power_cut_that_takes_the_file_is_repaired_from_the_kept_content(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    with place.killed(boot=b"before") as engine:
        done(engine, apply(write(".env", "ours\n")))
        pack(engine)
    (place.root / ".env").write_text("ou")
    with place.engine(boot=b"after"):
        assert place.files() == {".env": "ours\n"}


def test_a_content_that_is_not_synced_yet_is_not_deleted_whatever_its_age(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    with place.engine() as engine:
        done(engine, apply(write(".env", "ours\n")))
        assert engine.history.excluded.drop_old(1 << 60, 1, int(engine.recorder.synced)) == 0
        pack(engine)
        sync(engine)
        assert engine.history.excluded.drop_old(1 << 60, 1, int(engine.recorder.synced)) == 2
        assert isinstance(refused(engine, undo(1)), ContentExcluded)


def test_packs_and_verification_do_without_the_contents(place: Harness) -> None:
    place.baseline({".env": "old\n", "a": "a\n"})
    with place.engine() as engine:
        done(engine, apply(write(".env", "secret\n"), write("a", "b\n")))
        pack(engine)
        excluded = engine.history.excluded
        assert set(excluded.paths) == {version_of(b"old\n"), version_of(b"secret\n")}
        excluded.drop(excluded.kept)
        assert engine.history.content(version_of(b"secret\n")) is None
        assert engine.history.content(version_of(b"a\n")) == b"a\n"
        engine.history.index.flush()
    assert verify_quick(str(place.state)) == []
    assert verify_full(str(place.state)) == ([], False)


def test_an_older_editd_refuses_the_journal_and_changes_nothing(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({".env": "old\n", "a": "a\n"})
    place.crash(apply(write("a", "b\n")), apply(write(".env", "secret\n")))
    monkeypatch.setattr(journal, "_VERSIONS", (journal.VERSION,))
    history = open_history(str(place.state))
    assert isinstance(history, Salvage)
    assert "checksum" in history.damage.message
    history.close()
    assert place.files() == {".env": "secret\n", "a": "b\n"}
    monkeypatch.undo()
    with place.engine() as engine:
        assert not isinstance(engine.history, Salvage)
        assert engine.history.head == 2


def test_an_edit_of_other_files_has_the_frame_that_an_older_editd_reads(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({".env": "old\n", "a": "a\n"})
    place.crash(apply(write("a", "b\n")))
    monkeypatch.setattr(journal, "_VERSIONS", (journal.VERSION,))
    with place.engine() as engine:
        assert not isinstance(engine.history, Salvage)
        assert engine.history.head == 1


def test_an_edit_whose_content_cannot_be_kept_is_refused_and_leaves_nothing(
    place: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.baseline({".env": "old\n"})
    with place.engine() as engine:

        def fail(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(engine.history.excluded, "_keep", fail)
        refusal = refused(engine, apply(write(".env", "secret\n")))
        assert isinstance(refusal, IoError)
        assert "cannot be kept" in refusal.message
        monkeypatch.undo()
        monkeypatch.setattr(engine.history.journal, "append", fail)
        assert isinstance(refused(engine, apply(write(".env", "secret\n"))), IoError)
        assert engine.history.excluded.kept == {}, "the contents of the refused edit stay"
        monkeypatch.undo()
        assert place.files() == {".env": "old\n"}
        done(engine, apply(write(".env", "secret\n")))
        assert place.files() == {".env": "secret\n"}


def test_a_rule_that_ends_lets_the_next_edit_keep_what_the_file_held(place: Harness) -> None:
    place.baseline({".env": "old\n"})
    with place.engine() as engine:
        done(engine, apply(write(".env", "secret\n")))
        engine.history.excluded.drop(engine.history.excluded.kept)
        engine.history.excluded.rule = ExcludedPaths()
        done(engine, apply(write(".env", "public\n")))
        done(engine, undo(2))
        assert place.files() == {".env": "secret\n"}
        pack(engine)
        assert engine.history.content(version_of(b"secret\n")) == b"secret\n"


def test_a_content_that_another_file_has_too_stays_in_the_history(place: Harness) -> None:
    place.baseline({".env": "same\n", "a": "same\n"})
    with place.engine() as engine:
        assert engine.history.content(version_of(b"same\n")) == b"same\n"
        done(engine, apply(write(".env", "shared\n"), write("b", "shared\n")))
        pack(engine)
        engine.history.excluded.drop(engine.history.excluded.kept)
        done(engine, undo(1))
        assert place.files() == {".env": "same\n", "a": "same\n"}
        _check_whole(engine, place)


def _check_whole(engine: Engine, place: Harness) -> None:
    pack(engine)
    engine.history.index.flush()
    assert verify_full(str(place.state)) == ([], False)
