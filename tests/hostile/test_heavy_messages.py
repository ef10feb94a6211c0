"""Attacks with messages that take long to decode, plan or encode: `status` of others is answered meanwhile.

Each is about the largest of its kind that the limits of the wire allow, but for bytes that are no text: these
are as many as the largest file that a scan takes in. They are lines of JSON, which take
the longest to decode.
"""

from __future__ import annotations

import base64
import json
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from status_canary import QUIET, check_answered
from workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from workplace import Workplace

VALUES = 900_000
EDITS = 100_000
LINES = 120_000
FAT = 60_000_000


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


def test_no_message_holds_the_status_of_others_up(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("lines", "a,b\n" * LINES), write("one", "x\n"), write("fat", "y" * FAT)])
        replaces = [{"op": "replace", "path": "one", "old": "x", "new": "x"}] * EDITS
        writes = [{"op": "write", "path": f"k/{n}", "content": "", "force": True} for n in range(EDITS // 5)]
        moves = [
            {"op": "move", "path": f"m{n}" if n else "one", "to": f"m{n + 1}"} for n in range(EDITS // 10)
        ]
        seen = [{"path": f"q/{n}", "version": None} for n in range(EDITS)]
        raw = {"base64": base64.b64encode(b"\x00\xff" * 8_000_000).decode()}
        binary = [{"op": "write", "path": "r", "content": raw}]
        calls: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
            "text edits": (ask(place, "apply", edits=text_edits(client, EDITS), dry_run=True), "result"),
            "replaces": (ask(place, "apply", edits=replaces, dry_run=True), "result"),
            "writes": (ask(place, "apply", edits=writes, dry_run=True), "result"),
            "moves": (ask(place, "apply", edits=moves, dry_run=True), "result"),
            "seen": (ask(place, "seen", files=seen), "result"),
            "hello": (ask(place, "hello", seen=seen), "result"),
            "refused values": (ask(place, "status", x=list(range(VALUES))), "error"),
            "maps": (ask(place, "hello", client={"x": [[{"a": 1}] * 1000] * (VALUES // 2000)}), "result"),
            "escapes": (ask(place, "status", x="\x01" * 10_000_000), "error"),
            "raw bytes": (ask(place, "apply", edits=binary, dry_run=True), "result"),
            "a fat read": (ask(place, "read", path="fat"), "result"),
        }  # fmt: skip
        for name, (call, member) in calls.items():
            check_answered(place, name, partial(check_member, call, member))


def check_member(call: Callable[[], dict[str, Any]], member: str) -> None:
    answer = call()
    assert member in answer, str(answer)[:500]


def test_the_list_of_very_many_sessions_holds_nobody_up(place: Workplace) -> None:
    with place.start() as client:
        for number in range(300):
            opened = client.session_open(f"s{number}")
            client.apply([write(f"f{number}", "x")], session=opened.session)
        listed = ask(place, "session.list", all=True, stat=True, activity=True)
        check_answered(place, "session.list", partial(check_member, listed, "result"))
