"""A crash while contents are forgotten: SIGKILL at any call leaves a history that has them, or has not.

The steps are those of the daemon (`server.content_removal`), here in one process, so that every call of them
can be struck in turn. Then the real daemon opens what is left, and finishes what was recorded.
"""

from __future__ import annotations

import secrets
import shutil
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import injection
from support.crash_checks import wait_until
from support.state_search import holders
from support.workplace import replace, write

if TYPE_CHECKING:
    from support.injection import Call
    from support.workplace import Workplace

STEPS = """
import sys
from editd.store.compaction import CompactionLimits, Compactor
from editd.store.forgotten import ForgottenContent
from editd.store.history import History
folder, version = sys.argv[1:]
print("loaded", flush=True)
sys.stdin.readline()
history = History.open(folder)
history.begin_forgetting([ForgottenContent(version, 60, 3, 1_700_000_000_000_000, "ana")])
compactor = Compactor(folder)
limits = CompactionLimits(0, 0, None, frozenset([bytes.fromhex(version)]))
compactor.sweep(compactor.prepare(limits, is_dry=False)["packs"])
history.reopen_packs()
history.journal.begin_segment(history.head, history.head_commit)
history.journal.sync_mark()
history.journal.erase(history.packed)
history.index.scrub(pages=True)
history.end_forgetting()
history.close()
"""

pytestmark = pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")


def forget(place: Workplace, version: str, strikes: tuple[str, ...] = ()) -> tuple[int, list[Call]]:
    """Take the steps, struck so; returns the exit status and the calls that were made."""
    return injection.carry_out(
        STEPS, str(place.state), version, environment=place.environment, strikes=strikes
    )


@pytest.mark.timeout(3600)
def test_wherever_it_is_killed_the_content_is_there_or_forgotten(place: Workplace, is_long: bool) -> None:
    secret = secrets.token_hex(20)
    with place.start() as client:
        client.apply([write("app.conf", f"password = {secret}\n")])
        version = client.stat(["app.conf"]).files[0].version
        client.apply([replace("app.conf", secret, "$PASSWORD")])
        client.apply([write("b.txt", "beside\n")])
    place.stop()
    assert version is not None
    base = place.folder / "base"
    shutil.copytree(place.state, base)

    status, calls = forget(place, version)
    assert status == 0
    tried = injection.changing(calls)
    renames = [at for at, call in enumerate(tried) if "forgotten.new" in call.text and "rename" in call.name]
    first, last = renames
    # Between the two files of an old pack: its index is gone, and the rest of it has the content.
    half = next(at for at, call in enumerate(tried) if "unlink" in call.name and '.pack"' in call.text)
    if not is_long:  # as the record is written, behind it, while contents are removed, at the end
        chosen = (first, first + 4, half, (first + last) // 2, last)
        tried = [tried[at] for at in chosen]
    outcomes: list[bool] = [_look(place, version, secret)]
    for call in tried:
        shutil.rmtree(place.state)
        shutil.copytree(base, place.state)
        status, _ = forget(place, version, (call.struck("signal=SIGKILL"),))
        assert status == -9, f"not struck: {call}"
        outcomes.append(_look(place, version, secret))
    assert set(outcomes) == {True, False}, "neither before nor after was met"
    print(
        f"{len(tried)} kills: {outcomes.count(False)} times still there, {outcomes.count(True) - 1} forgotten"
    )


def _look(place: Workplace, version: str, secret: str) -> bool:
    """Open what is left, and find it whole; returns whether the content is forgotten."""
    with place.start() as client:
        assert place.files() == {"app.conf": b"password = $PASSWORD\n", "b.txt": b"beside\n"}
        is_forgotten = bool(client.status().history["forgotten"])
        if is_forgotten:
            with pytest.raises(EditdError, match="was forgotten") as refused:
                client.read("app.conf", at=1)
            assert refused.value.name == "content_forgotten"
            record = place.store / "forgotten"
            wait_until(lambda: f" forgotten {version} " in record.read_text(), "the removal is not finished")
            assert holders(place.state, secret.encode()) == []
        else:
            assert client.read("app.conf", at=1).content == f"password = {secret}\n"
            assert client.undo(2, dry_run=True).files
        assert client.check().problems == []
        assert [transaction.seq for transaction in client.log().transactions] == [3, 2, 1, 0]
        assert client.undo(3).transaction is not None
        client.redo()
        assert client.gc().compacted == 0
        assert client.check().problems == []
    place.stop()
    place.git("log", "--format=%H", "history", store=True)
    return is_forgotten
