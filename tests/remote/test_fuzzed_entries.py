"""Mutated entries against real daemons: none stops a host, breaks a daemon or is an internal error."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from hostile_log import HostileLog
from support.hosts import exchange, hosts
from support.log_checker import log_of
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.hosts import Hosts
    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES, "sub/c.txt": "c\n"}
BATCH, BATCHES, BATCHES_LONG = 12, 2, 40
PATIENCE_SECONDS = 120
ODD = [
    b"", b"0", b"-1", b"1", b"99999999999999999999", b"1 1 1", b"0777 a.txt", b"7777 a.txt", b"0644 ../x",
    b"none",
    b'""', b'"\\ud800"', b'"\\u0000"', b'"a\\nb"', b'["a.txt", "b.txt"]', b'["../x", "a.txt"]', b"[", b"{}",
    b"1969-12-31T23:59:59.999999Z", b"9999-12-31T23:59:59.999999Z", b"2026-02-30T00:00:00.000000Z", b"\xff",
    b"x" * 3000, b"applied", b"aside", b"decided", b"baseline", b"undo", b"squash", b"rejected", b"ab" * 20,
]  # fmt: skip
MORE = [
    b"Undoes", b"Hunks", b"Undone", b"Moved", b"Permissions", b"Decides", b"Decision", b"Needs", b"Proposal",
    b"Message", b"Session", b"Claims", b"By", b"Candidate", b"Colour",
]  # fmt: skip


class Fuzzer:
    """Entries for a log, each a mutation of one that hosts have written."""

    def __init__(self, log: HostileLog, server: Path, drawn: random.Random) -> None:
        self._log, self._server, self._drawn = log, server, drawn
        raw = [log.git("cat-file", "commit", str(one.commit.id)).encode() for one in log_of(server)[1:]]
        self._messages = [one.partition(b"\n\n")[2].rstrip(b"\n") for one in raw]
        top = log.names()
        blobs = [log.object("blob", content) for content in (b"new\n", b"", b"a\0b", b"\xff\n", b"x" * 5000)]
        modes = (b"100644", b"100755", b"120000", b"104755")
        self._trees = [
            self._tree(top | {b"fuzz": (mode, blob)}) for mode in modes for blob in blobs
        ] + [self._tree(top)]  # fmt: skip

    def _tree(self, names: dict[bytes, tuple[bytes, str]]) -> str:
        ordered = sorted(names, key=lambda name: name + b"/" * (names[name][0] == b"40000"))
        raw = b"".join(b"%b %b\0%b" % (names[one][0], one, bytes.fromhex(names[one][1])) for one in ordered)
        return self._log.object("tree", raw)

    def push(self, count: int) -> None:
        """Add entries to the log, by one move of it."""
        parent, number = self._log.head, log_of(self._server)[-1].number
        first = parent
        for _ in range(count):
            number += 1
            parent = self._log.object("commit", self._entry(parent, number))
        branch = self._log.git("for-each-ref", "--format=%(refname)", "refs/heads/editd/")
        self._log.git("update-ref", branch, parent, first)

    def _entry(self, parent: str, number: int) -> bytes:
        drawn = self._drawn
        body, _, block = drawn.choice(self._messages).rpartition(b"\n\n")
        lines = block.split(b"\n")
        fitting = {b"Number": b"%d" % number, b"Origin": drawn.randbytes(20).hex().encode()}
        for place, line in enumerate(lines):
            key = line.partition(b": ")[0]
            if key in fitting and drawn.random() < 0.95:
                lines[place] = key + b": " + fitting[key]
        for _ in range(drawn.choice((0, 1, 1, 2))):
            self._mutate(lines)
        parents = [parent] + [parent] * (b"Outcome: aside" in lines) + [parent] * (drawn.random() < 0.05)
        head = b"tree %b\n" % drawn.choice(self._trees).encode()
        head += b"".join(b"parent %b\n" % one.encode() for one in parents)
        who = b"x <x@x> 0 +0000"
        return head + b"author %b\ncommitter %b\n\n%b\n\n%b\n" % (who, who, body, b"\n".join(lines))

    def _mutate(self, lines: list[bytes]) -> None:
        drawn, place = self._drawn, self._drawn.randrange(len(lines))
        key = lines[place].partition(b": ")[0]
        match drawn.randrange(6):
            case 0:
                lines[place] = key + b": " + drawn.choice(ODD)
            case 1:
                lines.append(drawn.choice(MORE) + b": " + drawn.choice(ODD))
            case 2:
                lines.append(lines[place])
            case 3:
                del lines[place]
            case 4:
                at = drawn.randrange(len(lines[place]) + 1)
                lines[place] = lines[place][:at] + drawn.randbytes(1) + lines[place][at + 1 :]
            case _:
                lines[place] = key + b": " + lines[drawn.randrange(len(lines))].partition(b": ")[2]


@pytest.mark.timeout(1800)
def test_no_mutated_entry_stops_a_host(tmp_path: Path, is_long: bool) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    with hosts(tmp_path, 2, FILES) as two:
        begin(two)
        places, clients, server = two
        fuzzer = Fuzzer(HostileLog(server), server, random.Random(seed))
        for batch in range(BATCHES_LONG if is_long else BATCHES):
            fuzzer.push(BATCH)
            for number, client in enumerate(clients):
                client.apply([write(f"own/{number}.txt", f"{batch}\n")])
            exchange(*clients, seconds=PATIENCE_SECONDS)
        assert places[0].files() == places[1].files()
        states = [client.remote_status() for client in clients]
        assert [state.state for state in states] == ["current", "current"]
        assert states[0].unusable == states[1].unusable
        assert states[0].newer == states[1].newer
        assert states[0].unusable_entries == states[1].unusable_entries > 0
        print(f"{states[0].number} entries, {states[0].unusable_entries} unusable")
        for place, client in zip(places, clients, strict=True):
            check_well(place, client)


def begin(two: Hosts) -> None:
    """Give the log an entry of each kind."""
    _, (one, other), _ = two
    made = one.apply([replace("a.txt", "line 1\n", "1\n")], message="an edit").transaction
    exchange(one, other)
    assert made is not None
    other.undo(made.id)
    exchange(one, other)
    other.remote_pause()
    one.apply([write("a.txt", "one\n")])
    exchange(one)
    other.apply([write("a.txt", "other\n")])
    other.remote_resume()
    exchange(one, other)
    one.proposal_reject(one.proposal_list().proposals[0].proposal, comment="no")
    exchange(one, other)


def check_well(place: Workplace, client: Client) -> None:
    """Check that a daemon is well, and shows each transaction."""
    for made in client.log(limit=1000).transactions:
        client.show(made.seq)
    client.blame("b.txt")
    assert client.check().problems == []
    assert client.status().state == "ready"
    text = place.log()
    assert "Traceback" not in text, text
    assert "internal_error" not in text, text
