"""Power cuts: all that was acknowledged is in history and files afterwards, no file torn (C1, C3, C5)."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import Unreachable
from support import injection
from support import machine as machines
from support.authors import WRITERS, Writer, load, verify
from support.crash_checks import (
    PATIENCE_SECONDS,
    fsck,
    held,
    in_company,
    packer,
    replayed,
    strays,
    transactions,
    versions,
    wait_until,
)
from support.injection import attached
from support.machine import Machine, machine
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

CUTS, CUTS_LONG = 2, 200
RELAXED_CUTS, RELAXED_CUTS_LONG = 1, 100  # after each, the whole of a growing history is verified
LOAD_SECONDS_MAX = 0.6  # under load, before the cut
REST_SECONDS_MAX = 1.5  # without load, while it is packed (0.15 s), synced (1 s), and segments come back
START_SECONDS_MAX = 0.6  # of a start that is itself cut off
PADDING_BYTES_MAX = 100_000  # a second of load fills more than a segment
RELAXED_LOAD_SECONDS_MAX = 2.5
RELAXED_LOAD_SECONDS = 1.2  # of the short form: more than a cut may take
RELAXED_SECONDS = 1.0  # docs/configuration.md: the sync follows within a second
DAEMON, PACKER = "daemon", "packer"
CALLS = (  # whose, and the first or second of that name from the edit on: the power goes as it is entered
    (DAEMON, "renameat2", 1),  # before the exchange
    (DAEMON, "sendto", 1),  # before the reply
    (DAEMON, "syncfs", 1),  # what was answered is in no file for good
    (PACKER, "fsync", 1),
    (PACKER, "rename", 1),
    (PACKER, "rename", 2),
)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Machine]:
    reason = machines.missing()
    if reason is not None:
        pytest.skip(reason)
    with machine(tmp_path / "place") as made:
        yield made


@pytest.mark.timeout(3600)
def test_after_200_power_cuts_all_that_was_acknowledged_is_there_and_no_file_is_torn(
    disk: Machine, is_long: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    writers = [
        Writer(f"w{number}", random.Random(chance.random()), padding_bytes_max=PADDING_BYTES_MAX)
        for number in range(WRITERS)
    ]
    place = disk.place
    wanted = CUTS_LONG if is_long else CUTS
    while disk.cuts < wanted:
        with disk.start() as client:
            client.settle()
            assert strays(place.root) == [], place.log()
            verify(place, client, writers)
            if disk.cuts % 10 == 0:
                assert client.check().problems == []

        def cut() -> None:
            time.sleep(chance.uniform(0, REST_SECONDS_MAX) if chance.random() < 0.5 else 0)
            disk.cut()

        load(place, writers, chance.uniform(0, LOAD_SECONDS_MAX), cut)
        if chance.random() < 0.3:
            disk.start_and_cut(chance.uniform(0, START_SECONDS_MAX))
    with disk.start() as client:
        client.settle()
        verify(place, client, writers)
        assert client.check().problems == []
    disk.end()
    fsck(place)
    assert strays(place.root) == []


@pytest.mark.timeout(3600)
def test_relaxed_a_power_cut_takes_no_more_than_the_last_second_and_leaves_nothing_torn_or_half_there(
    disk: Machine, is_long: bool
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    place = disk.place
    be_relaxed(place)
    lost = 0
    for round_ in range(RELAXED_CUTS_LONG if is_long else RELAXED_CUTS):
        writers = [
            Writer(f"r{round_}-w{number}", random.Random(chance.random()), padding_bytes_max=1000)
            for number in range(WRITERS)
        ]
        with disk.start() as client:
            client.settle()
        seconds = chance.uniform(0, RELAXED_LOAD_SECONDS_MAX) if is_long else RELAXED_LOAD_SECONDS
        load(place, writers, seconds, disk.cut)
        lost += verify_relaxed(disk, writers)
    print(f"{lost} of what was answered was lost")
    disk.end()
    fsck(place)


def test_relaxed_a_file_whose_name_another_program_synced_is_whole_after_a_power_cut(disk: Machine) -> None:
    place = disk.place
    be_relaxed(place)
    with disk.start() as client:
        client.settle()
        client.apply([write("old", "before\n")])
        wait_until(partial(is_at_rest, client), "it is not packed and synced")
        client.apply([write("old", "after\n"), write("new", "after\n")])
        other = place.root / "other"
        other.write_text("of another program\n")
        with other.open() as file:
            os.fsync(file.fileno())  # commits the names of all files, and the content of this one alone
        disk.cut()
    with disk.start() as client:
        client.settle()
        for name in ("old", "new"):
            assert (place.root / name).read_text() == "after\n", name
        assert [made.kind for made in transactions(client)] == ["edit", "edit", "outside"]
        assert client.check().problems == []
    disk.end()
    fsck(place)


def be_relaxed(place: Workplace) -> None:
    configuration = place.folder / "config" / "editd" / "config.toml"
    configuration.parent.mkdir()
    configuration.write_text('durability = "relaxed"\n')


def verify_relaxed(disk: Machine, writers: list[Writer]) -> int:
    """All that was answered a second before the cut is there, the rest is there whole or not at all."""
    place = disk.place
    with disk.start() as client:
        client.settle()
        made = transactions(client)
        kinds = {transaction.message: transaction.kind for transaction in made}
        assert client.check().problems == []
        assert set(kinds.values()) <= {"edit"}, f"{[t for t in made if t.kind != 'edit']}\n{place.log()}"
        there, told = versions(held(place)), replayed(made, {})
        assert there == told
    place.stop()
    seqs = {transaction.message: transaction.seq for transaction in made}
    answers = [(writer, serial) for writer in writers for serial in writer.acknowledged]
    newest = max((writer.answered_at[serial] for writer, serial in answers), default=0.0)
    missing = [(writer, serial) for writer, serial in answers if serial not in seqs]
    for writer, serial in missing:
        assert newest - writer.answered_at[serial] < in_company(RELAXED_SECONDS), serial
    for transaction in made:
        for writer in writers:
            if transaction.message in writer.asked:
                whole = {change.path: change.version for change in transaction.files}
                assert whole == writer.asked[transaction.message], f"{transaction.message} is half there"
    return len(missing)


@pytest.mark.timeout(600)
@pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")
def test_a_power_cut_at_a_chosen_call_leaves_all_that_was_acknowledged(disk: Machine, is_long: bool) -> None:
    place = disk.place
    held = {"0 before\n"}
    for number, (whose, name, when) in enumerate(CALLS if is_long else CALLS[2:3]):
        with disk.start() as client:
            client.apply([write("file", f"{number} before\n")])
            held = {f"{number} before\n"}
            wait_until(partial(is_at_rest, client), "it is not packed and synced")
            assert place.process is not None
            pid = place.process.pid if whose == DAEMON else packer(place)
            strike = f"inject={name}:signal=SIGKILL:when={when}"
            with attached(pid, [strike], is_following=True, calls=name) as trace:
                try:
                    client.apply([write("file", f"{number} after\n")])
                    held = {f"{number} after\n"}
                except Unreachable:
                    held.add(f"{number} after\n")
                trace.process.wait(PATIENCE_SECONDS)  # it ends with what it traces
            disk.cut()
        with disk.start() as client:
            client.settle()
            assert (place.root / "file").read_text() in held, (whose, name, when)
            assert client.read("file").content in held
            assert strays(place.root) == []
            assert client.check().problems == []
        place.stop()
    disk.end()
    fsck(place)


def is_at_rest(client: Client) -> bool:
    journal = client.status().journal
    return not journal["unpacked"] and not journal["unflushed"]
