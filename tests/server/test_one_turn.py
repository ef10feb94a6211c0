"""Requests that share a turn come out as if each had waited for the one before."""

from __future__ import annotations

import itertools
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from support.workplace import Workplace

Edits = list[dict[str, Any]]


def w(path: str) -> dict[str, Any]:
    return {"op": "write", "path": path, "content": f"{path}\n", "force": True}


def d(path: str) -> dict[str, Any]:
    return {"op": "delete", "path": path}


def m(path: str, to: str) -> dict[str, Any]:
    return {"op": "move", "path": path, "to": to}


CASES: dict[str, tuple[list[Edits], list[str | None], set[str]]] = {
    # what is asked, what each is refused with, and the files in the end
    "a file becomes a folder": ([[w("d/e")], [d("d/e"), w("d/e/f")]], [None, None], {"x/y", "d/e/f"}),
    "a file moves below itself": ([[w("d/e")], [m("d/e", "d/e/f")]], [None, None], {"x/y", "d/e/f"}),
    "a folder becomes a file": ([[d("x/y")], [w("x")]], [None, None], {"x"}),
    "a folder is emptied": ([[d("x/y")], [d("x")]], [None, "file_missing"], set()),
    "and back again": ([[d("x/y")], [w("x")], [d("x")], [w("x/y")]], [None] * 4, {"x/y"}),
    "others beside it": (
        [[w("a")], [w("d/e")], [w("b")], [d("d/e"), w("d/e/f")], [w("c")]], [None] * 5,
        {"x/y", "a", "b", "c", "d/e/f"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("asked", "refusals", "files"), CASES.values(), ids=CASES)
def test_files_and_folders_take_each_others_place(
    place: Workplace, asked: list[Edits], refusals: list[str | None], files: set[str]
) -> None:
    place.write({"x/y": "y\n"})
    with place.start() as client:
        client.settle()
        assert pipelined(place, asked) == refusals
        assert place.files().keys() == files
        assert client.check().problems == []


def pipelined(place: Workplace, asked: Sequence[Edits]) -> list[str | None]:
    """Send all of them in one piece; what each is refused with, None for what is done."""
    requests = [{"id": n, "method": "apply", "params": {"edits": edits}} for n, edits in enumerate(asked)]
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(30)
        stream.connect(place.socket)
        stream.sendall(b"".join(json.dumps(request).encode() + b"\n" for request in requests))
        lines = itertools.islice(stream.makefile("rb"), len(requests))
        answers = {answer["id"]: answer for answer in map(json.loads, lines)}
    errors = [answers[number].get("error") for number in range(len(requests))]
    return [None if error is None else error["data"]["name"] for error in errors]
