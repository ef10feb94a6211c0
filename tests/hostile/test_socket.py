"""The socket under attack: others are served meanwhile, memory stays bounded, and nothing is left behind.

`pytest --long tests/hostile/test_socket.py -s` makes them larger, and prints what each of them cost.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from editd.wire.limits import LIMITS
from editd.wire.messages import Tool
from support.crash_checks import wait_until
from support.socket_attacks import MIB, line, names, packed, siege
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

NOBODY = 65534
SEARCHING = {"relative_path": "b.txt", "needle": "w.rm", "repl": "hot", "mode": "regex"}
HALF = {
    "json-line": b'{"id": 1, "method": "status", "params": {"x": "',
    "json-header": b"Content-Length: 60000000\r\n\r\n{",
    "msgpack": b"\x94\x00\x01\xa6status\x91\x81\xa1x\xc6\x03\x93\x87\x00",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """One daemon for all attacks: what one of them leaves behind would show in the next."""
    with workplace(tmp_path_factory.mktemp("hostile") / "place", {"a.txt": "one\ntwo\nthree\n"}) as made:
        with made.start() as client:
            client.apply([write("b.txt", "warm\n")])  # so that all its processes are there
            client.apply([Tool(dialect="serena", tool="replace_content", args=SEARCHING)], dry_run=True)
            client.settle()
            wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
        yield made
        with made.client() as client:
            assert client.check().problems == []
            assert client.status().state == "ready"
        made.stop()


# ── Who is there ──

AS_NOBODY = """
import os, socket, sys
descriptor = None if sys.argv[2] == "-" else int(sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
stream = socket.socket(socket.AF_UNIX) if descriptor is None else socket.socket(fileno=descriptor)
try:
    if descriptor is None:
        stream.connect(sys.argv[1])
    stream.sendall(b'{"id": 1, "method": "status"}\\n')
    stream.shutdown(socket.SHUT_WR)
    print(stream.recv(100) or b"closed")
except OSError as error:
    print(type(error).__name__)
"""


def as_nobody(place: Workplace, stream: socket.socket | None = None) -> str:
    """What another user gets, on a connection of their own or on one that they were handed."""
    given = [] if stream is None else [stream.fileno()]
    argv = [sys.executable, "-I", "-c", AS_NOBODY, place.socket, "-" if stream is None else str(given[0])]
    return subprocess.run(
        argv, pass_fds=given, capture_output=True, text=True, check=True, cwd="/"
    ).stdout.strip()


@pytest.mark.needs("peer credentials")
def test_another_user_is_dropped_before_a_byte_is_read_also_where_the_modes_were_loosened(
    place: Workplace,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with siege(place, peak_mib=30):
        assert as_nobody(place) == "PermissionError"
        folder = os.path.dirname(place.socket)
        loosened = (os.path.dirname(folder), 0o755), (folder, 0o755), (place.socket, 0o777)
        kept = [(path, os.stat(path).st_mode) for path, _ in loosened]
        for path, mode in loosened:
            os.chmod(path, mode)
        try:
            for _ in range(5):
                assert as_nobody(place) in ("b'closed'", "ConnectionResetError", "BrokenPipeError")
        finally:
            for path, mode in kept:
                os.chmod(path, mode)
    with socket.socket(socket.AF_UNIX) as ours:
        ours.connect(place.socket)
        assert as_nobody(place, ours).startswith("b'{"), "who is handed a connection speaks for who made it"


# ── How many, and how slow ──


def test_too_many_connections_are_told_so_and_those_that_are_there_are_served(
    place: Workplace, is_long: bool
) -> None:
    count = 10_000 if is_long else 1_500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(os.listdir("/proc/self/fd")) + count + 200
    if hard < wanted:
        pytest.skip(f"only {hard} descriptors may be open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    streams: list[socket.socket] = []
    try:
        with siege(place, peak_mib=100, seconds_max=1.0) as attack:
            for _ in range(count):
                streams.append(attack.connect())
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    streams[-1].sendall(line("status"))
            for stream in streams:
                stream.settimeout(10)
                with contextlib.suppress(ConnectionResetError):
                    stream.recv(10)
            assert attack.descriptors() < 3 * LIMITS.connections_max
            last = streams[-1]
            while streams:
                streams.pop().close()
            del last
            wait_until(lambda: names(attack.flood(line("status"))) == ["ok"], "nobody is let in any more")
    finally:
        for stream in streams:
            stream.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_messages_and_then_silence_cost_what_they_are_long(place: Workplace, is_long: bool) -> None:
    with siege(place, peak_mib=80) as attack, contextlib.ExitStack() as held:
        for _ in range(80 if is_long else 30):
            for half in HALF.values():
                stream = held.enter_context(attack.connect())
                stream.sendall(half + b"x" * 100_000)
        time.sleep(0.5)


def test_a_byte_at_a_time_from_many_is_answered_in_the_end(place: Workplace) -> None:
    with siege(place, peak_mib=30) as attack, contextlib.ExitStack() as held:
        streams = [held.enter_context(attack.connect()) for _ in range(100)]
        for byte in line("status"):
            for stream in streams:
                stream.sendall(bytes([byte]))
        assert {names(stream.recv(100_000))[0] for stream in streams} == {"ok"}


def test_half_messages_of_full_length_are_bounded_for_all_connections_together(place: Workplace) -> None:
    with siege(place, peak_mib=700, seconds_max=1.0) as attack, contextlib.ExitStack() as held:
        streams = [held.enter_context(attack.connect()) for _ in range(10)]
        for stream in streams:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stream.sendall(HALF["json-header"] + b" " * (56 * MIB))
        time.sleep(0.2)
        for stream in streams:
            stream.setblocking(False)
        said = [quietly(stream) for stream in streams]
        assert 1 <= sum(b"overloaded" in one for one in said) <= 3, said


def quietly(stream: socket.socket) -> bytes:
    try:
        return stream.recv(10_000)
    except OSError:
        return b""


# ── What they say ──


def deep(encoding: str, depth: int) -> bytes:
    if encoding == "msgpack":
        return b"\x94\x00\x01\xa6status\x91" + b"\x91" * depth
    return b'{"id": 1, "method": "status", "params": ' + b"[" * depth + b"]" * depth + b"}\n"


GIANTS: dict[str, tuple[bytes, list[str]]] = {
    "a header that announces 10^18 bytes": (b"Content-Length: 1000000000000000000\r\n\r\n{", ["too_large"]),
    "a length below zero": (b"Content-Length: -1\r\n\r\n{}", ["parse_error"]),
    "a length that is no number": (b"Content-Length: 0x10\r\n\r\n{}", ["parse_error"]),
    "a length in other digits": ("Content-Length: ٣\r\n\r\n{}".encode(), ["parse_error"]),
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", ["parse_error"]),
    "a length of 4,000 digits": (b"Content-Length: " + b"9" * 4000 + b"\r\n\r\n", ["too_large"]),
    "a header without an end": (b"Content-Length: 1\r\nX: " + b"x" * 100_000, ["parse_error"]),
    "bin32 of 2^32": (
        b"\x94\x00\x01\xa6status\x91\xc6\xff\xff\xff\xff",
        [],
    ),  # it waits for them, up to its limit
    "str32 of 2^32": (b"\x94\x00\x01\xa6status\x91\xdb\xff\xff\xff\xff", []),
    "array32 of 2^32": (b"\x94\x00\x01\xa6status\x91\xdd\xff\xff\xff\xff", ["too_large"]),
    "map32 of 2^32": (b"\x94\x00\x01\xa6status\x91\xdf\xff\xff\xff\xff", ["too_large"]),
    "ext32 of 2^32": (b"\x94\x00\x01\xa6status\x91\xc9\xff\xff\xff\xff\x01", ["too_large"]),
    "an extension type": (b"\x94\x00\x01\xa6status\x91\x81\xa1x\xd4\x01\x00", ["invalid_params"]),
    "a thousand arrays that announce 131,072 each": (
        b"\x94\x00\x01\xa4stat\x91\x81\xa5paths" + b"\xdd\x00\x02\x00\x00" * 1000 + b"\xc1",
        ["parse_error"],
    ),
    "numbers as keys, which could collide": (
        b"\x94\x00\x01\xa6status\x91\xde\x04\x00"
        + b"".join(b"\xcf" + (k * (2**61 - 1) % 2**64).to_bytes(8, "big") + b"\xc0" for k in range(1024)),
        ["parse_error"],
    ),
    "a map as a key": (b"\x94\x00\x01\xa6status\x91\x81\x80\xc0", ["parse_error"]),
    "a number of 10^6 digits": (
        b'{"id": 1, "method": "log", "params": {"limit": ' + b"9" * 10**6 + b"}}\n",
        ["parse_error"],
    ),
    "10^6 arrays in each other": (deep("json", 10**6 - 10), ["parse_error"]),
    "10^6 arrays in each other, packed": (deep("msgpack", 10**6), ["parse_error"]),
    "keys that occur twice": (b'{"id": 1, "id": 2, "method": "status", "method": "log"}\n', ["ok"]),
    "a surrogate that is alone": (
        rb'{"id": 1, "method": "read", "params": {"path": "\ud800"}}' + b"\n",
        ["parse_error"],
    ),
    "a NUL": (b'{"id": 1, "method": "read", "params": {"path": "a\\u0000"}}\n', ["invalid_params"]),
    "a byte-order mark": (b"\xef\xbb\xbf" + line("status"), ["parse_error"]),
    "bytes that are not UTF-8": (b'{"id": 1, "method": "\xff"}\n', ["parse_error"]),
    "a method of a mebibyte": (line("x" * MIB), ["method_not_found"]),
    "a path of 10^6 names": (line("read", path="x/" * 10**6), ["invalid_params"]),
    "a request_id of a mebibyte": (line("apply", edits=[], request_id="x" * MIB), ["invalid_params"]),
    "an actor of a mebibyte": (line("begin", actor="x" * MIB), ["invalid_params"]),
    "a message of a mebibyte": (line("apply", edits=[], message="x" * MIB), ["invalid_params"]),
    "a message that is not UTF-8": (
        packed("apply", edits=[{"op": "write", "path": "b", "content": "", "force": True}], message=b"\xff"),
        ["invalid_params"],
    ),
    "an actor that is not UTF-8": (
        packed("hello", client={"name": b"\xff"}) + packed("begin", 2),
        ["ok", "ok"],
    ),
    "10^6 empty arrays": (line("stat", paths=[[]] * (10**6 + 1)), ["too_large"]),
    "10^6 empty arrays, packed": (
        b"\x94\x00\x01\xa4stat\x91\x81\xa5paths\x98" + (b"\xdd\x00\x02\x00\x00" + b"\x90" * 131072) * 8,
        ["too_large"],
    ),
    "edits in edits in edits": (line("apply", edits=[[[{"op": "write"}]]]), ["invalid_params"]),
    "a subscription of 100,000 globs": (line("subscribe", paths=["**/*.py"] * 100_000), ["invalid_params"]),
    "a scope of wide classes": (
        line("session.open", name="wide", scope={"write": ["[\u0100-\uffff]" * 60 + "*"] * 100}),
        ["invalid_params"],
    ),
}


def test_what_is_made_to_be_hard_to_read_is_refused_by_its_name(place: Workplace) -> None:
    with siege(place, peak_mib=200, seconds_max=1.0) as attack:
        for what, (data, expected) in GIANTS.items():
            began = time.monotonic()
            assert names(attack.flood(data)) == expected, what
            assert time.monotonic() - began < 10, what


def test_a_message_over_the_limit_is_refused_and_closed_in_each_encoding(place: Workplace) -> None:
    giant = b"x" * (LIMITS.message_bytes_max + 1)
    with siege(place, peak_mib=450, seconds_max=1.0) as attack:
        assert names(attack.flood(HALF["json-line"] + giant)) == ["too_large"]
        assert names(attack.flood(b"Content-Length: %d\r\n\r\n" % len(giant))) == ["too_large"]
        assert names(attack.flood(b"\x94\x00\x01\xa6status\x91\x81\xa1x\xc6\x04\x00\x00\x01" + giant)) == [
            "too_large"
        ]


# ── What they leave unread, or do not end ──


def test_who_asks_and_never_reads_is_not_read_any_further(place: Workplace, is_long: bool) -> None:
    count = 100_000 if is_long else 20_000
    asked = b"".join(line("read", number, path="a.txt") for number in range(count))
    with siege(place, peak_mib=20) as attack, attack.connect() as stream:
        stream.setblocking(False)
        sent = 0
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                sent += stream.send(asked[sent:])
            time.sleep(0.005)
        assert sent < len(asked), "the daemon reads on, though nobody reads its answers"


def test_who_never_reads_its_events_is_told_of_a_gap_and_holds_up_nobody(place: Workplace) -> None:
    with siege(place, peak_mib=40) as attack, attack.connect() as deaf, place.client() as client:
        deaf.sendall(line("subscribe"))
        for number in range(200):
            client.apply([write("events.txt", f"{number}\n")], message="x" * 20_000)
        deaf.shutdown(socket.SHUT_WR)
        assert b'"resync"' in heard_until(deaf, b'"resync"')


def heard_until(stream: socket.socket, word: bytes) -> bytes:
    received = bytearray()
    while word not in received and (data := stream.recv(1 << 18)):
        received += data
    return bytes(received)


def test_what_is_begun_without_an_end_has_a_limit_that_says_so(place: Workplace, is_long: bool) -> None:
    count = 100_000 if is_long else 1_500

    def flood(data: list[bytes]) -> list[str]:
        with attack.connect() as stream:
            return asked(stream, data)

    with siege(place, peak_mib=60) as attack:
        begun = flood([line("begin", number) for number in range(count)])
        assert begun.count("ok") == 100
        assert set(begun[100:]) == {"overloaded"}
        told = flood([line("subscribe", number) for number in range(1000 if is_long else 100)])
        assert told.count("ok") == LIMITS.subscriptions_max
        seen = flood([line("read", number, path="a.txt", session=f"n{number}") for number in range(count)])
        assert seen == ["ok"] * count


def test_sessions_and_leases_without_end_have_a_limit_that_says_so(place: Workplace, is_long: bool) -> None:
    if not is_long:
        pytest.skip("each of them is durable, which takes its time: `--long`")
    with siege(place, peak_mib=60) as attack, attack.connect() as stream:
        opened = asked(stream, [line("session.open", number, name=f"o{number}") for number in range(100_000)])
        assert opened.count("ok") == 1000
        taken = asked(
            stream, [line("lease.acquire", n, paths=[f"many/{n}"], ttl=600) for n in range(100_000)]
        )
        assert taken.count("ok") == 1000
        assert {*opened[1000:], *taken[1000:]} == {"overloaded"}
        ended = [line("session.close", number, session=f"o{number}", force=True) for number in range(1000)]
        assert asked(stream, ended) == ["ok"] * 1000


def asked(stream: socket.socket, requests: list[bytes]) -> list[str]:
    """Send them and read the answers all along; the names of these, in the order in which they came."""
    received = bytearray()
    stream.settimeout(60)
    for start in range(0, len(requests), 100):
        stream.sendall(b"".join(requests[start : start + 100]))
        wanted = min(start + 100, len(requests))
        while received.count(b"\n") < wanted:
            received += stream.recv(1 << 18)
    return names(bytes(received))


def test_leases_of_globs_made_to_be_hard_hold_up_nobody(place: Workplace) -> None:
    hard, harder = ["*a" * 199 + "b"] * 40, ["a*" * 199 + "c"] * 40
    with (
        siege(place, peak_mib=60, seconds_max=3.0) as attack,
        attack.connect() as one,
        attack.connect() as other,
    ):
        first = [line("session.open", name="hard one"), line("lease.acquire", paths=hard, ttl=60)]
        assert asked(one, first) == ["ok", "ok"]
        began = time.monotonic()
        second = [line("session.open", name="hard other"), line("lease.acquire", paths=harder, ttl=60)]
        assert asked(other, second) == ["ok", "leased"]
        assert time.monotonic() - began < 10
        ended = [line("session.close", session=name, force=True) for name in ("hard one", "hard other")]
        assert asked(one, ended) == ["ok", "ok"]


# ── What they pretend to be ──


@pytest.mark.parametrize(
    "message",
    [
        "say\n\nSeq: 999\nKind: baseline\nActor: root\nTime: 2000-01-01T00:00:00Z",
        "Seq: 999\nKind: undo\nUndoes: 1",
        "say\n\nSession: theirs\n\n",
        "a\r\n\r\nSeq: 9",
        "\u2028\u2028Actor: root\x85Actor: root",
    ],
)
def test_a_message_that_imitates_the_historys_own_lines_is_only_a_message(
    place: Workplace, message: str
) -> None:
    with place.client() as client:
        made = client.apply(
            [write("said.txt", f"{time.time_ns()}\n")], message=message, actor="Eve\nActor: root"
        ).transaction
        assert made is not None
        wait_until(lambda: client.status().journal["unpacked"] == 0, "it is not packed")
        found = client.log(limit=1).transactions[0]
    assert (found.seq, found.kind, found.actor, found.message) == (
        made.seq,
        "edit",
        "Eve\nActor: root",
        message,
    )
    text = place.git("log", "-1", "--format=%B", "history", store=True)
    own = text.rstrip("\n").rpartition("\n\n")[2].split("\n")
    assert [one for one in own if one.startswith("Seq: ")] == [f"Seq: {made.seq}"]
    assert [one for one in own if one.startswith("Actor: ")] == ['Actor: "Eve\\nActor: root"']
    assert not any(one.startswith("Session: ") for one in own)
