"""Attacks with messages that take long to decode, plan or encode: `status` of others is answered meanwhile.

Each is about the largest of its kind that the limits of the wire allow. They are lines of JSON, which take
the longest to decode.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from support.seeds import share
from support.status_canary import QUIET, check_answered
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

Calls = Mapping[str, tuple[str, dict[str, Any], str]]  # method, parameters and the member of the answer

PART = 4  # the share of each size in the short form: a fault that grows with the size held others up for 3 s
VALUES = 900_000
EDITS = 100_000
LINES = 120_000
FAT = 60_000_000
RAW = 40_000_000  # bytes that are no text
ESCAPES = 10_000_000


@pytest.fixture
def place(tmp_path: Path, is_long: bool) -> Iterator[Workplace]:
    with workplace(tmp_path) as place:
        if is_long:
            place.variables[QUIET] = "1"
        yield place


def ask(place: Workplace, method: str, **params: Any) -> Callable[[], dict[str, Any]]:
    """Return a call that sends an encoded request on a connection of its own, and decodes the answer."""
    request = json.dumps({"id": 1, "method": method, "params": params}).encode() + b"\n"

    def send() -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(place.socket)
            stream.sendall(request)
            answer: dict[str, Any] = json.loads(stream.makefile("rb").readline())
        return answer

    return send


def text_edits(client: Client, lines: int) -> list[dict[str, Any]]:
    begins = [{"line": line, "character": 0} for line in range(lines)]
    edits = [{"start": begin, "end": begin, "text": "z"} for begin in begins]
    return [{"op": "text", "path": "lines", "base": client.read("lines").version, "edits": edits}]


def test_no_message_holds_the_status_of_others_up(place: Workplace, is_long: bool) -> None:
    values, edits, lines, fat, raw_bytes, escapes = (
        size if is_long else size // PART for size in (VALUES, EDITS, LINES, FAT, RAW, ESCAPES)
    )
    with place.start() as client:
        client.apply([write("lines", "a,b\n" * lines), write("one", "x\n"), write("fat", "y" * fat)])
        replaces = [{"op": "replace", "path": "one", "old": "x", "new": "x"}] * edits
        writes = [{"op": "write", "path": f"k/{n}", "content": "", "force": True} for n in range(edits // 5)]
        moves = [
            {"op": "move", "path": f"m{n}" if n else "one", "to": f"m{n + 1}"} for n in range(edits // 10)
        ]
        seen = [{"path": f"q/{n}", "version": None} for n in range(edits)]
        raw = {"base64": base64.b64encode(b"\x00\xff" * (raw_bytes // 2)).decode()}
        binary = [{"op": "write", "path": "r", "content": raw}]
        calls: Calls = {
            "text edits": ("apply", {"edits": text_edits(client, edits), "dry_run": True}, "result"),
            "replaces": ("apply", {"edits": replaces, "dry_run": True}, "result"),
            "writes": ("apply", {"edits": writes, "dry_run": True}, "result"),
            "moves": ("apply", {"edits": moves, "dry_run": True}, "result"),
            "seen": ("seen", {"files": seen}, "result"),
            "hello": ("hello", {"seen": seen}, "result"),
            "refused values": ("status", {"x": list(range(values))}, "error"),
            "maps": ("hello", {"client": {"x": [[{"a": 1}] * 1000] * (values // 2000)}}, "result"),
            "escapes": ("status", {"x": "\x01" * escapes}, "error"),
            "raw bytes": ("apply", {"edits": binary, "dry_run": True}, "result"),
            "a fat read": ("read", {"path": "fat"}, "result"),
        }
        check_all(place, calls, is_long)


def test_no_request_on_a_very_large_file_holds_the_status_of_others_up(
    place: Workplace, is_long: bool
) -> None:
    """libgit2 kept Python's lock while it read the content, and each line was counted at once."""
    fat, raw_bytes = (size if is_long else size // PART for size in (FAT, RAW))
    large = "error" if is_long else "result"  # too large for a diff
    lines = "".join(f"line {number}\n" for number in range(fat // 24))
    raw = {"base64": base64.b64encode(b"\x00\xff" * (raw_bytes // 2)).decode()}
    with place.start() as client:
        for path, content in {"fat": "y" * fat, "lines": lines}.items():
            client.apply([write(path, content)])
            client.apply([write(path, content.replace("y" * 9, "z", 1) + "more\n", force=True)])
        ask(place, "apply", edits=[{"op": "write", "path": "raw", "content": raw}])()
        head = client.status().head
        calls: Calls = {
            "a read of raw bytes": ("read", {"path": "raw"}, "result"),
            "a read of raw bytes in the history": ("read", {"path": "raw", "at": head}, "result"),
            "a diff of raw bytes": ("diff", {"from": head - 1, "paths": ["raw"]}, "result"),
            "a read of lines": ("read", {"path": "lines", "start_line": 9, "end_line": 10}, "result"),
            "diff": ("diff", {"from": 1, "paths": ["fat"]}, large),
            "show with diff": ("show", {"tx": 4, "diff": True}, "result"),
            "log with lines": ("log", {"limit": 5, "stat": True}, "result"),
            "a trial of restore": ("restore", {"to": 1, "paths": ["fat"], "dry_run": True}, large),
            "restore": ("restore", {"to": 3, "paths": ["lines"]}, "result"),
        }
        check_all(place, calls, is_long)


def test_no_list_of_a_large_history_holds_the_status_of_others_up(place: Workplace, *, is_long: bool) -> None:
    """Sessions without number, and transactions of many files: one answer read all of them at once."""
    number, wide, files = (20_000, 20, 5_000) if is_long else (300, 2, 1_500)
    requests = [
        {
            "edits": [{"op": "write", "path": f"d{n % 7}/f{n % 999}", "content": f"{n}\n", "force": True}],
            "session": f"s{n % (number // 5)}",
        }
        for n in range(number)
    ]
    with place.start() as client:
        apply_all(place, requests)
        for turn in range(wide):
            client.apply([write(f"w/{n}", f"{turn}\n", force=True) for n in range(files)])
        calls: Calls = {
            "sessions": ("session.list", {"all": True}, "result"),
            "sessions with counts": ("session.list", {"all": True, "stat": True, "activity": True}, "result"),
            "log": ("log", {"limit": 10_000}, "result"),
            "a brief log": ("log", {"limit": 10_000, "brief": True}, "result"),
            "log with lines": ("log", {"limit": 200, "stat": True}, "result"),
            "a short log": ("log", {"limit": 20}, "result"),
            "show": ("show", {"tx": number + 2}, "result"),
        }
        check_all(place, calls, is_long)


def check_all(place: Workplace, calls: Calls, is_long: bool) -> None:
    """Check that the status is answered in time beside each call; the short form has a third of them."""
    for name in calls if is_long else share(calls, 3):
        method, params, member = calls[name]
        check_answered(place, name, partial(check_member, ask(place, method, **params), member))


def apply_all(place: Workplace, requests: list[dict[str, Any]]) -> None:
    """Send requests without waiting for the answers in between."""
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(place.socket)
        answers = stream.makefile("rb")
        for start in range(0, len(requests), 200):
            few = requests[start : start + 200]
            for number, params in enumerate(few):
                line = json.dumps({"id": number, "method": "apply", "params": params})
                stream.sendall(line.encode() + b"\n")
            for _ in few:
                assert "result" in json.loads(answers.readline())


def check_member(call: Callable[[], dict[str, Any]], member: str) -> None:
    answer = call()
    assert member in answer, str(answer)[:500]


def test_the_list_of_very_many_sessions_holds_nobody_up(place: Workplace, is_long: bool) -> None:
    with place.start() as client:
        for number in range(300 if is_long else 75):
            opened = client.session_open(f"s{number}")
            client.apply([write(f"f{number}", "x")], session=opened.session)
        listed = ask(place, "session.list", all=True, stat=True, activity=True)
        check_answered(place, "session.list", partial(check_member, listed, "result"))
