"""methods.repair: a repair is asked of a daemon that serves others, and lives on where all is well."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from editd.errors import HistoryDamaged, IoError
from editd.server.connection import PendingAnswer
from editd.server.methods.check import Repairs
from editd.store.history import History
from editd.store.repair import Repair
from editd.store.verify_history import verify_full
from editd.system.filesystem import Disk
from editd.values.transaction import Authorship
from editd.wire.messages import Check, CheckResult
from support import harness
from support.crash_checks import wait_until
from support.harness import FILE_BYTES_MAX, Harness, apply, done
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from editd.errors import Refused
    from editd.server.connection import MethodCall
    from support.workplace import Workplace

AHEAD = 50  # transactions that are packed, while those who edit leave no pause to write the index in
EDIT_SECONDS = 0.02  # between two edits: the niced processes of a check would never catch up without it


@contextlib.contextmanager
def editing(place: Workplace) -> Iterator[Future[None]]:
    """Somebody edits without a pause for packing, until told; the future has what was refused."""
    stop = threading.Event()

    def edit() -> None:
        with place.client() as client:
            for number in count():
                if stop.wait(EDIT_SECONDS):
                    return
                client.apply([write("a", f"{number}\n")])

    with ThreadPoolExecutor(1) as beside:
        edited = beside.submit(edit)
        try:
            yield edited
        finally:
            stop.set()


def has_grown(place: Workplace) -> None:
    with place.client() as client:

        def is_ahead() -> bool:
            status = client.status()
            return status.head - status.journal["unpacked"] > AHEAD

        wait_until(is_ahead, "it is not packed")


def test_a_sound_history_that_grows_is_in_no_need_of_a_repair(place: Workplace) -> None:
    with place.start() as client, editing(place) as edited:
        has_grown(place)
        said = client.check(repair=True)
        assert (said.repaired, said.lost) == ([], [])
        assert client.status().state == "ready"
    assert edited.exception() is None


def test_of_a_history_that_grows_only_what_is_damaged_is_made_anew(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("b", "0\n")])
        assert client.check().problems == []
        with contextlib.closing(sqlite3.connect(place.state / "index.db")) as index, index:
            index.execute("update tx set actor = 'somebody' where seq = 1")
        with editing(place):
            has_grown(place)
            said = client.check(repair=True)
        assert said.repaired == [f"{place.state}/index.db is rebuilt."]
        assert said.lost == []
    assert place.process is not None
    assert place.process.wait(30) == 0
    with place.start() as client:
        assert client.check().problems == []
        assert client.show(1).transaction.actor != "somebody"


class Refusal:
    """The end of a call that is refused."""

    def refuse(self, refusal: Refused) -> None:
        self.refusal = refusal


def test_a_repair_that_fails_on_the_disk_answers_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Harness(tmp_path / "place")
    place.baseline()
    (place.store / "config").write_text("damaged\n")

    def fail(_repair: Repair) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def check() -> None:
        stop, disk = asyncio.Event(), Disk(str(place.root))
        repairs = Repairs(str(place.state), disk, stop, FILE_BYTES_MAX)
        answer = await repairs.repair(Check(repair=True), None)
        assert isinstance(answer, PendingAnswer)
        assert stop.is_set()
        answer.call = cast("MethodCall", refused := Refusal())
        await repairs.finish()
        disk.close()
        assert isinstance(refused.refusal, IoError)

    monkeypatch.setattr(Repair, "carry_out", fail)
    asyncio.run(check())


def repaired_once(place: Harness) -> CheckResult:
    """Ask for a repair, carry it out, and return its answer."""

    async def ask() -> CheckResult:
        stop, disk = asyncio.Event(), Disk(str(place.root))
        repairs = Repairs(str(place.state), disk, stop, FILE_BYTES_MAX)
        answer = await repairs.repair(Check(repair=True, lose=True), None)
        if isinstance(answer, PendingAnswer):
            answer.call = cast("MethodCall", replied := Reply())
            await repairs.finish()
            answer = replied.result
        disk.close()
        assert isinstance(answer, CheckResult)
        return answer

    return asyncio.run(ask())


class Reply:
    """The end of a call that is answered."""

    def reply(self, result: CheckResult) -> None:
        self.result = result


def test_a_record_that_does_not_follow_is_repaired_once(tmp_path: Path) -> None:
    """As an exception between draft and commit left it, before that took the draft back."""
    place = Harness(tmp_path / "place")
    place.baseline({"a": "old\n"})
    with place.killed() as engine:
        done(engine, apply(harness.write("a", "first\n")))
        draft = engine.history.draft("edit", Authorship("me"), 1, ())
        engine.history.revert([draft])
        wrong = replace(draft.record, commit=b"\1" * 20)
        engine.history.journal.append([wrong])
    with pytest.raises(HistoryDamaged, match="does not follow"):
        History.open(str(place.state))
    result = repaired_once(place)
    assert result.ok
    assert result.problems == []
    assert result.lost == ["Transaction 2: its changes are unknown. The files stay as they are."]
    with place.engine() as engine:
        assert done(engine, apply(harness.write("a", "second\n"))).seq == 2
    assert verify_full(str(place.state))[0] == []


def test_a_repair_that_finds_nothing_says_so(tmp_path: Path) -> None:
    place = Harness(tmp_path / "place")
    place.baseline({"a": "old\n"})
    with place.engine() as engine:
        done(engine, apply(harness.write("a", "new\n")))
    result = repaired_once(place)
    assert (result.ok, result.repaired, result.lost) == (False, [], [])
    assert "finds nothing" in result.problems[0]
