"""What lies around the history, damaged or gone: the user's own git, the state folder's other files."""

from __future__ import annotations

import shutil
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

from editd.store.salvage import Salvage, open_history
from editd.store.verify_history import verify_full
from editd_client.errors import EditdError
from support.crash_checks import wait_until
from support.damage import copy, prepare
from support.workplace import write

if TYPE_CHECKING:
    from support.damage import Prepared
    from support.workplace import Workplace


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return prepare(tmp_path_factory.mktemp("surroundings") / "made")


@pytest.mark.long
def test_the_users_repository_may_go_and_a_repair_takes_what_was_borrowed_from_the_files(
    place: Workplace,
) -> None:
    place.write({"kept": "kept\n", "edited": "before\n", "lost": "lost\n"})
    time.sleep(0.1)  # else git's index is too young for its times to be believed, and nothing is borrowed
    place.git("init", "-q")
    place.git("add", ".")
    place.git("commit", "-q", "-m", "all")
    with place.start() as client:
        client.apply([write("edited", "after\n")])
    place.stop()
    shutil.rmtree(place.root / ".git")
    (place.root / "lost").write_text("written by somebody\n")
    with place.start() as client:
        client.settle()
        told = "The first content of lost cannot be restored."
        wait_until(lambda: any(told in line for line in client.status().weaker), told)
        problems = client.check().problems
        assert len(problems) == 1, problems
        assert "The baseline's content of lost was borrowed" in problems[0]
        assert client.read("edited", at=0).content == "before\n", "what a transaction touched is ours"
        with pytest.raises(EditdError) as gone:
            client.read("lost", at=0)
        assert gone.value.name == "history_damaged"
        assert client.apply([write("kept", "goes on\n")]).transaction is not None
        client.apply([write("kept", "kept\n")])
        with pytest.raises(EditdError) as refused:
            client.check(repair=True)
        assert [sentence.split()[4] for sentence in refused.value.data["lost"]] == ["lost"]
        repaired = client.check(repair=True, lose=True)
        assert len(repaired.lost) == 1
    assert place.process is not None
    assert place.process.wait(30) == 0
    with place.start() as client:
        assert client.check().problems == []
        assert client.read("kept", at=0).content == "kept\n"


def test_gc_and_publish_are_refused_while_the_history_is_damaged(prepared: Prepared) -> None:
    with copy(prepared) as place:
        head = place.store / "refs/heads/history"
        head.write_text("nonsense")
        place.git("init", "-q")
        with place.start() as client:
            for ask in (
                client.gc,
                lambda: client.publish("all", from_=1, to=2, author="A <a@example.org>"),
                client.undo,
                client.redo,
            ):
                with pytest.raises(EditdError) as refused:
                    ask()
                assert refused.value.name == "history_damaged", refused.value
                assert str(head) in str(refused.value.message)


def test_what_lies_in_the_state_folder_by_mistake_does_no_harm(prepared: Prepared) -> None:
    with copy(prepared) as place:
        (place.state / "replaced" / "stray").write_bytes(b"whose?\n")
        (place.state / "replaced" / "folder").mkdir()
        (place.state / "root").unlink()
        for name in ("scan.cache", "uncovered", "synced", "folders"):
            shutil.rmtree(place.state / name, ignore_errors=True)
            (place.state / name).write_bytes(b"\xff\0nonsense")
        with place.start() as client:
            client.settle()
            assert client.apply([write("a", "goes on\n")]).transaction is not None
            assert client.check().problems == []
        place.stop()
        assert (place.state / "root").read_text() == f"{place.root}\n"
        assert b"whose?\n" in [path.read_bytes() for path in (place.state / "strays").iterdir()]


def test_a_lock_that_is_a_folder_is_named(prepared: Prepared) -> None:
    with copy(prepared) as place:
        lock = place.state / "lock"
        lock.unlink()
        lock.mkdir()
        ended = place.editd("-C", str(place.root))
        assert ended.returncode != 0
        assert str(lock) in ended.stderr, ended.stderr
        assert "Traceback" not in ended.stderr


VALUES = {  # of index.db → whether the start sees it by itself
    "update tx set message = 'another' where seq = 2": False,
    "update tx set actor = 'somebody else' where seq = 5": False,
    "update touch set after_mode = 33261 where seq = 2": False,
    "delete from touch where seq = 3": False,
    "update tx set id = '1111111111111111111111111111111111111111' where seq = 5": True,
    "delete from tx": True,
}


@pytest.mark.long
@pytest.mark.parametrize("change", VALUES)
def test_a_value_in_the_index_that_is_not_the_historys_is_found(prepared: Prepared, change: str) -> None:
    with copy(prepared) as place:
        open_history(str(place.state)).close()
        index = place.state / "index.db"
        with sqlite3.connect(index) as database:
            database.execute(change)
        database.close()
        history = open_history(str(place.state))
        assert not isinstance(history, Salvage)
        history.index.flush()
        problems, is_damaged = verify_full(str(place.state))
        assert not is_damaged
        history.close()
        if VALUES[change]:
            assert problems == [], "it was made anew"
        else:
            assert str(index) in problems[0]


@pytest.mark.disk
def test_an_index_that_is_lost_while_the_daemon_runs_is_said_by_status(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
        assert client.status().weaker == []
        index = sqlite3.connect(place.state / "index.db")
        (made,) = index.execute("select sql from sqlite_master where name = 'touch'").fetchone()
        index.execute("drop table touch")
        client.apply([write("a", "two\n")])
        with pytest.raises(EditdError, match=r"The index of the history cannot be \w+: no such table: touch"):
            client.log()
        (sentence,) = client.status().weaker
        assert "The index of the history cannot be" in sentence
        assert "Edits stand meanwhile." in sentence
        client.apply([write("a", "three\n")])
        index.execute(
            made
        )  # somebody puts it right: what has waited is written, and nothing is said any more
        index.close()
        assert [found.seq for found in client.log().transactions[:2]] == [
            client.status().head,
            client.status().head - 1,
        ]
        assert client.status().weaker == []
