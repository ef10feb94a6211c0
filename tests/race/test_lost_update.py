"""The lost-update race through the real daemon: a client edits in a tight loop what others write (C4).

Each outside writer is a process of its own (`outsider`) that writes numbered versions into one file and
says in the end which of them it replaced itself. A version is lost where it is not one of those, nor in the
history, nor in the file: then the daemon has destroyed it, and nobody can bring it back.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.values.content import version_of
from editd_client.errors import EditdError
from support import outsider, without
from support.crash_checks import strays, transactions
from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace

pytestmark = pytest.mark.disk  # reuses the numbers of files at once

ROUNDS, ROUNDS_LONG = 400, 10_000
PAUSE_SECONDS_MAX = 0.002  # between two versions, about as long as an edit takes: they meet in its middle
ADOPTED_MIN = 20  # versions that were seen while they stood, or it was no race
MAY_BE_SAID = {"io_error", "stale"}  # to an edit of a file that somebody never stops writing


LONG = pytest.mark.long
IN_PLACE = [kind for kind in outsider.KINDS if kind != "save"]
KINDS = [pytest.param("save", marks=pytest.mark.needs("exchange")), *IN_PLACE]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_no_version_of_an_outside_writer_is_lost(place: Workplace, kind: str, is_long: bool) -> None:
    check_race(place, kind, ROUNDS_LONG if is_long else ROUNDS)


@pytest.mark.timeout(1800)
@pytest.mark.long
@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("feature", ["exchange", "exchange,leases"])
def test_without_exchange_no_version_that_is_written_in_place_is_lost(
    place: Workplace, kind: str, feature: str, is_long: bool
) -> None:
    if (reason := without.missing()) is not None:
        pytest.skip(reason)
    place.launcher = without.launcher(feature)
    check_race(place, kind, ROUNDS_LONG if is_long else ROUNDS)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "kind", ["overwrite", pytest.param("truncate", marks=LONG), pytest.param("hold", marks=LONG)]
)
def test_on_the_portable_system_no_version_that_is_written_in_place_is_lost(
    place: Workplace, kind: str, is_long: bool
) -> None:
    place.make_portable()
    check_race(place, kind, ROUNDS_LONG if is_long else ROUNDS)


def check_race(place: Workplace, kind: str, rounds: int) -> None:
    place.write({"a": "at first\n", "b": "at first\n"})
    told = place.folder / "replaced"
    command = [
        sys.executable,
        outsider.__file__,
        kind,
        str(place.root / "a"),
        str(rounds),
        str(PAUSE_SECONDS_MAX),
    ]
    acknowledged: list[str] = []
    refused = 0
    with place.start() as client:
        client.settle()
        with told.open("wb") as output, subprocess.Popen(command, stdout=output) as process:
            while process.poll() is None:
                ours = f"ours {len(acknowledged) + refused}"
                try:
                    client.apply([write("a", ours), write("b", ours)])
                    acknowledged.append(ours)
                except EditdError as refusal:
                    if refusal.name not in MAY_BE_SAID:
                        raise
                    refused += 1
            assert process.returncode == 0
        client.settle()
        made = transactions(client)
        assert strays(place.root) == []
        assert client.check().problems == []
    recorded = {change.version for transaction in made for change in transaction.files if change.path == "a"}
    replaced = set(json.loads(told.read_text()))
    standing = (place.root / "a").read_bytes()
    lost = [
        number
        for number in range(rounds)
        if (content := outsider.version(number)) != standing
        and content.decode().strip() not in replaced
        and version_of(content) not in recorded
    ]
    assert lost == []
    assert {version_of(ours.encode()) for ours in acknowledged} <= recorded
    print(f"{kind}: {len(acknowledged)} edits, {refused} refused, {len(made)} transactions")
    assert acknowledged
    assert len(made) - len(acknowledged) >= ADOPTED_MIN
