"""Frames over a pipe: the messages between the daemon and its children.

A frame is a length of four bytes, big end first, and a MessagePack map of that many bytes. Text
with bytes that are not UTF-8 is `str` with surrogate escapes on both ends; `bytes` stay `bytes`.
A child reads with `read_frame` until it returns None: its parent has closed the pipe or died, and
the child ends. Both ends are ours, so a broken frame is our bug and raises.

Does not know the meaning of the frames, and needs no event loop.
"""

from __future__ import annotations

from typing import IO, Any, cast

import msgpack

HEADER_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Larger than any frame of ours; a length beyond it is garbage from a broken child."""

Frame = dict[str, Any]


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Return the next frame of a buffered `stream`, or None at its end, even in the middle of a frame.

    Raises ValueError if the bytes are not a frame.
    """
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    size = body_bytes(header)
    body = stream.read(size)
    return unpack(body) if len(body) == size else None


def write_frame(stream: IO[bytes], frame: Frame) -> None:
    """Write `frame` and flush; raises BrokenPipeError if the reader is gone."""
    stream.write(pack(frame))
    stream.flush()


def pack(frame: Frame) -> bytes:
    """Return the bytes of `frame`, with its length in front."""
    body = cast("bytes", msgpack.packb(frame, unicode_errors="surrogateescape"))
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {FRAME_BYTES_MAX}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """Return the number of bytes after this header; raises ValueError if it is above the limit."""
    size = int.from_bytes(header, "big")
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return size


def unpack(body: bytes) -> Frame:
    """Return the frame in `body`; raises ValueError if it has none."""
    try:
        frame = msgpack.unpackb(body, unicode_errors="surrogateescape", strict_map_key=False)
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(f"a frame that is not MessagePack: {error}") from error
    if not isinstance(frame, dict):
        raise ValueError("a frame that is not a map")
    return cast("Frame", frame)
