"""system.frames: frames over a pipe."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from editd.system import frames


@pytest.mark.parametrize(
    "frame",
    [
        {},
        {"do": "scan", "id": 7},
        {"path": "caf\udce9", "content": b"\x00\xff", "nested": [{"a": None}, 1.5, True]},
        {"content": b"x" * 1_000_000},
        {"content": b"x" * 2_500_000, "arguments": (b"y" * 1_100_000, "z", b"")},
    ],
)
def test_a_frame_comes_back_as_it_went(frame: frames.Frame) -> None:
    stream = io.BytesIO()
    frames.write_frame(stream, frame)
    frames.write_frame(stream, {"next": True})
    stream.seek(0)
    assert frames.read_frame(stream) == {
        key: list(value) if isinstance(value, tuple) else value for key, value in frame.items()
    }
    assert frames.read_frame(stream) == {"next": True}
    assert frames.read_frame(stream) is None


def test_a_pipe_that_ends_amid_a_frame_has_ended() -> None:
    whole = frames.pack_frame({"do": "scan"})
    for length in range(len(whole)):
        assert frames.read_frame(io.BytesIO(whole[:length])) is None


@pytest.mark.parametrize(
    "garbage",
    [b"\xff\xff\xff\xff....", b"\0\0\0\1\xc1", b"\0\0\0\1\x07", b"\0\0\0\3\x81\x90\xc0", b"\0\0\0\2\x07\x07"],
)
def test_bytes_that_are_no_frame_raise(garbage: bytes) -> None:
    with pytest.raises(ValueError):
        frames.read_frame(io.BytesIO(garbage))


def test_a_child_ends_when_its_parent_closes_the_pipe() -> None:
    program = """
import sys
from editd.system import frames
while (frame := frames.read_frame(sys.stdin.buffer)) is not None:
    frames.write_frame(sys.stdout.buffer, {"heard": frame})
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        frames.write_frame(child.stdin, {"name": "\udcff"})
        assert frames.read_frame(child.stdout) == {"heard": {"name": "\udcff"}}
        child.stdin.close()
        assert child.wait(10) == 0
