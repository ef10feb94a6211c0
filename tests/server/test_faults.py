"""A fault of ours is told to who asked, and in the log; nothing else ends by it, or waits for ever."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sqlite3
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.store.sqlite import LOCKED_SECONDS
from editd.wire.messages import Tool
from editd_client.errors import EditdError
from support.crash_checks import own_time, wait_until
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

FAULTY = Path(__file__).parent.parent / "support" / "faulty_daemon.py"
HEAVY = "x" * 20_000_000  # away in a thread for a moment


@pytest.fixture
def faulty(place: Workplace) -> Workplace:
    place.launcher = (sys.executable, str(FAULTY))
    return place


def test_an_answer_that_cannot_be_made_keeps_nobody_from_theirs(faulty: Workplace) -> None:
    with faulty.start(), talking(faulty) as stream:
        say(stream, *(writing(number, path, "x") for number, path in enumerate(("a", "fault", "b"))))
        answers = heard(stream, 3)
        assert [answers[number]["result"]["transaction"]["seq"] for number in (0, 2)] == [1, 3]
        assert answers[1]["error"]["data"]["name"] == "internal_error"
        assert "ZeroDivisionError" in faulty.log()


def test_what_waits_for_the_engine_is_done_though_the_first_of_it_fails(faulty: Workplace) -> None:
    with faulty.start() as client, talking(faulty) as stream, talking(faulty) as busy:
        client.apply([write("b", "b\n")])
        say(busy, writing(1, "large", HEAVY))
        time.sleep(0.05)  # then the engine is away with a slice of it
        say(stream, reading(1, "fault"), reading(2, "b"), writing(3, "c", "c\n"))
        answers = heard(stream, 3)
        assert answers[1]["error"]["data"]["name"] == "internal_error"
        assert answers[2]["result"]["content"] == "b\n"
        answers |= {4: heard(busy, 1)[1]}  # The small write may land between two slices of the large one.
        assert {answers[number]["result"]["transaction"]["seq"] for number in (3, 4)} == {2, 3}


def test_a_search_that_fails_is_told(faulty: Workplace) -> None:
    args = {"relative_path": "a", "needle": "on+e", "repl": "two", "mode": "regex"}
    call = Tool(dialect="serena", tool="replace_content", args=args)
    with faulty.start() as client:
        client.apply([write("a", "one\n")])
        with pytest.raises(EditdError) as failure:
            client.apply([call])
        assert failure.value.name == "internal_error"
        client.apply([call])
        assert client.read("a").content == "two\n"


def test_where_publishing_gets_stuck_it_is_given_up_and_the_next_one_is_made(faulty: Workplace) -> None:
    faulty.git("init", "-q")
    faulty.git("commit", "-q", "--allow-empty", "-m", "first")
    with faulty.start() as client:
        client.apply([write("a", "1\n")])
        wait_until(lambda: not client.status().journal["unpacked"], "packing, which fails at first")
        config = faulty.root / ".git/config"
        aside = config.rename(config.with_name("aside"))
        os.mkfifo(config)
        with pytest.raises(EditdError) as failure:
            client.publish("stuck", from_=1, author="A <a@b.c>")
        assert failure.value.name == "timeout"
        assert "git log" in failure.value.data["hint"]
        aside.rename(config)
        client.publish("done", from_=1, author="A <a@b.c>")
    assert faulty.git("show", "HEAD:a") == "1\n"


def test_what_the_daemon_does_by_itself_is_tried_again(faulty: Workplace) -> None:
    with faulty.start() as client:
        for number in range(4):
            client.apply([write("a", f"{number}\n")])
        wait_until(lambda: not client.status().journal["unpacked"], "it is not packed")
        assert "background work failed" in faulty.log()
    faulty.stop()
    faulty.write({"a": "theirs\n"})
    known = len(faulty.log())
    with faulty.start() as client:
        wait_until(lambda: client.status().head == 5, "what was written meanwhile is not recorded")
        wait_until(lambda: client.status().state == "ready", "it is still looking through the files")
        assert "the workspace is not scanned yet: [Errno 24] Too many open files" in faulty.log()
        keep = faulty.folder / "config" / "editd" / "config.toml"
        wait_until(lambda: "the history could not be compacted" in faulty.log()[known:], "nobody looked")
        keep.parent.mkdir()
        keep.write_text("history.keep = { count = 1 }\n")
        assert faulty.process is not None
        faulty.process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.status().history["oldest"], "it is not compacted")


def test_edits_go_on_while_the_index_is_locked_until_too_much_waits_for_it(faulty: Workplace) -> None:
    with faulty.start() as client:
        client.apply([write("a", "first\n")])
        client.log()  # so that it is written
        with locked(faulty.state / "index.db"):
            for number in range(520):
                client.apply([write("a", f"{number}\n")])
            began = own_time()
            for number in range(80):
                client.apply([write("a", f"{number}, no slower\n")])
            assert own_time() - began < 80 * LOCKED_SECONDS / 4, "each waits for the lock"
            with pytest.raises(EditdError, match="index of the history cannot be written") as refusal:
                client.apply([write("a", "too much\n")])
            assert (refusal.value.name, refusal.value.data["errno_name"]) == ("io_error", "EBUSY")
            assert "locked" in refusal.value.hint
            assert client.read("a").content == "79, no slower\n"
        wait_until(lambda: "index" not in " ".join(client.status().weaker), "it is not written")
        client.apply([write("a", "last\n")])
        assert [tx.seq for tx in client.log(limit=1000).transactions] == [*range(602, -1, -1)]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("begin immediate")
        yield


@contextmanager
def talking(place: Workplace) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(30)
        stream.connect(place.socket)
        yield stream


def say(stream: socket.socket, *requests: dict[str, Any]) -> None:
    """In one piece, so that they share a turn."""
    stream.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))


def heard(stream: socket.socket, count: int) -> dict[int, dict[str, Any]]:
    """So many answers, by their ids."""
    answers = [json.loads(line) for line in itertools.islice(stream.makefile("rb"), count)]
    return {answer["id"]: answer for answer in answers}


def writing(number: int, path: str, content: str) -> dict[str, Any]:
    edit = {"op": "write", "path": path, "content": content}
    return {"id": number, "method": "apply", "params": {"edits": [edit]}}


def reading(number: int, path: str) -> dict[str, Any]:
    return {"id": number, "method": "read", "params": {"path": path}}
