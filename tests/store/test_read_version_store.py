"""Sessions and proposals on disk, damaged: they are put aside or read, and the daemon goes on."""

from __future__ import annotations

import errno
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.errors import IoError
from editd.store import sqlite
from editd.store.proposals import ProposalStore
from editd.store.session_store import Lease, ReadVersionStore, Session, SessionStore
from editd.values.content import Version
from editd.values.glob import Glob
from editd.values.path import WorkspacePath
from editd.values.path_rules import Bounds
from editd.values.proposal import Decision, ProposalNumber, Reviewer
from editd.values.transaction import Base, ReadMark
from editd_client.errors import EditdError
from support import injection
from support.crash_checks import own_time
from support.proposals import proposal_of, split
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from support.workplace import Workplace

FLIPS, FLIPS_LONG = 40, 3000


def sights(folder: Path) -> Path:
    made = ReadVersionStore(str(folder))
    seen = ReadMark(Base(Version("1" * 40)), ((1, 4), (9, 12)))
    made.write([("somebody", WorkspacePath(f"path/{number}"), seen) for number in range(5)], {"somebody": 9})
    made.close()
    return folder / "seen.db"


def read_sights(folder: Path) -> None:
    read = ReadVersionStore(str(folder))
    assert read.is_whole == (put_aside(folder, "seen.db") == [])
    read.of("somebody")
    read.used_us("somebody")
    read.write([("somebody", WorkspacePath("new"), None)], {"somebody": 10})
    read.close()


def registry(folder: Path) -> Path:
    made = SessionStore(str(folder), 1)
    bounds = Bounds((Glob.parse("src/**"),), None)
    made.put_session(Session("somebody", "0" * 64, "them", bounds, None, "allow", 60.0, 5, False))
    made.put_lease(Lease("lease", "somebody", 7, (Glob.parse("src/*.py"),), 10))
    made.close(is_clean=True)
    return folder / "sessions.db"


def read_registry(folder: Path) -> None:
    read = SessionStore(str(folder), 8_000_000)
    if put_aside(folder, "sessions.db"):
        assert read.sessions == []
        assert read.last_token == 8, "higher than any that was given"
    read.put_lease(Lease("another", "somebody", 9, (), 10))
    read.close(is_clean=True)


def proposals(folder: Path) -> Path:
    made = ProposalStore(str(folder), 1)
    made.add(proposal_of("them", "somebody"), [split(b"a\nb\n", b"a\nB\n")])
    decision = Decision(2, Reviewer("ann"), "withdraw")
    made.decide(replace(made.open[ProposalNumber(1)], state="withdrawn"), decision)
    made.add(proposal_of("them", "somebody"), [split(b"a\nb\n", b"A\nb\n")])
    made.close()
    return folder / "proposals.db"


def read_proposals(folder: Path) -> None:
    read = ProposalStore(str(folder), 8_000_000)
    assert read.is_whole == (put_aside(folder, "proposals.db") == [])
    for number in (1, 2):
        with suppress(IoError):  # one row of it is damaged: the others can be read
            read.files(ProposalNumber(number), 1)
            read.decisions(ProposalNumber(number))
    read.find(path=WorkspacePath("f"))
    added = read.add(proposal_of(), [split(b"c\n", b"d\n")])
    if not read.is_whole:
        assert added.number == 9, "higher than any that was given"
    read.close()


STORES = [(sights, read_sights), (registry, read_registry), (proposals, read_proposals)]


@pytest.mark.parametrize(("make", "read"), STORES)
def test_a_flipped_byte_keeps_nobody_from_going_on(
    tmp_path: Path, is_long: bool, make: Callable[[Path], Path], read: Callable[[Path], None]
) -> None:
    path = make(tmp_path)
    sound = path.read_bytes()
    chance = random.Random(7)
    aside = 0
    for _ in range(FLIPS_LONG if is_long else FLIPS):
        content = bytearray(sound)
        content[chance.randrange(len(sound))] ^= 1 << chance.randrange(8)
        shutil.rmtree(tmp_path)
        tmp_path.mkdir()
        path.write_bytes(content)
        read(tmp_path)
        for damaged in put_aside(tmp_path, path.name):
            aside += 1
            assert damaged.read_bytes() == bytes(content), "what is put aside is as it was found"
    print(f"{aside} put aside")


@pytest.mark.parametrize("name", ["sessions.db", "seen.db"])
def test_a_daemon_says_so_puts_it_aside_and_goes_on(place: Workplace, name: str) -> None:
    with place.start() as client:
        client.session_open("somebody")
    place.stop()
    (place.state / name).write_bytes(b"nonsense" * 1000)
    with place.start() as client:
        client.session_open("another")
        assert client.apply([write("a", "on\n")]).transaction is not None
    assert [damaged.read_bytes() for damaged in put_aside(place.state, name)] == [b"nonsense" * 1000]
    assert f"is damaged: {place.state / name}" in place.log()


@pytest.mark.parametrize(("make", "read"), STORES)
def test_one_that_another_program_has_locked_is_not_damaged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Path],
    read: Callable[[Path], None],
) -> None:
    monkeypatch.setattr(sqlite, "OPENING_SECONDS", 0.1)
    path = make(tmp_path)
    with locked(path), pytest.raises(IoError) as refusal:
        read(tmp_path)
    assert refusal.value.data["errno"] == errno.EBUSY
    assert str(path) in refusal.value.text()
    assert "the program that has locked it" in refusal.value.hint
    read(tmp_path)
    assert put_aside(tmp_path, path.name) == []


def test_no_daemon_starts_on_a_registry_that_is_locked_and_one_does_later(place: Workplace) -> None:
    with place.start() as client:
        client.session_open("somebody")
    place.stop()
    with (
        locked(place.state / "sessions.db"),
        pytest.raises(AssertionError, match="has locked it is done"),
    ):
        place.start()
    assert place.process is not None
    assert place.process.wait() == 1
    with place.start() as client:
        assert [session.session for session in client.session_list().sessions] == ["somebody"]


def test_a_registry_that_is_locked_for_a_while_holds_up_nobody_for_long(place: Workplace) -> None:
    with place.start() as client:
        client.session_open("somebody")
        with locked(place.state / "sessions.db"):
            began = own_time()
            with pytest.raises(EditdError, match="registry of sessions cannot be written") as refusal:
                client.session_open("another")
            assert own_time() - began < 1
            assert refusal.value.data["errno"] == errno.EBUSY
            client.apply([write("a", "on\n")])
        client.session_open("another")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """As another program has it that writes, or copies it with care."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("pragma locking_mode = exclusive")
        database.execute("begin exclusive")
        yield


def put_aside(folder: Path, name: str) -> list[Path]:
    return list((folder / "damaged").glob(f"*/{name}"))


@pytest.mark.parametrize(("make", "read"), STORES)
def test_one_whose_disk_fails_is_not_damaged(
    tmp_path: Path, make: Callable[[Path], Path], read: Callable[[Path], None]
) -> None:
    path = make(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # SQLite then reports an I/O error
    try:
        with pytest.raises(IoError) as refusal:
            read(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refusal.value.data["errno"] == errno.EIO
    read(tmp_path)
    assert put_aside(tmp_path, path.name) == []


@pytest.mark.skipif(injection.missing() is not None, reason=f"{injection.missing()}")
def test_one_that_the_disk_cannot_read_is_not_damaged(tmp_path: Path) -> None:
    """SQLite says of an EIO at a read that the file is malformed."""
    path = registry(tmp_path)
    opening = "import sys; from editd.store.session_store import SessionStore; SessionStore(sys.argv[1], 1)"
    faults = [
        "-e",
        "inject=pread64:error=EIO:when=3+",
        "-e",
        "inject=read:error=EIO",
    ]  # the first page is whole
    failing = ["strace", "-o", str(tmp_path / "trace"), "-P", str(path), *faults]
    opened = subprocess.run(
        [*failing, sys.executable, "-c", opening, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "IoError" in opened.stderr, opened.stderr
    assert "Input/output error" in opened.stderr
    assert put_aside(tmp_path, path.name) == []
    read_registry(tmp_path)
