"""Frames over a pipe: how the daemon and its children speak.

A frame is a length of four bytes, big end first, and a MessagePack map of that many bytes. Text
with bytes that are not UTF-8 is `str` with surrogate escapes on both ends; `bytes` stay `bytes`.
A child reads with `read_frame` until it returns None: its parent has closed the pipe or died, and
the child ends. Both ends are ours, so a broken frame is a fault of ours and raises.

Knows nothing of what the frames say, and needs no event loop.
"""

from __future__ import annotations

from typing import IO, Any, cast

import msgpack

HEADER_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""No frame of ours comes near this; a length beyond it is the garbage of a child gone wrong."""

Frame = dict[str, Any]


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Return the next frame of a buffered `stream`, or None at its end, be it amid a frame.

    Raises ValueError where the bytes are no frame.
    """
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    size = body_bytes(header)
    body = stream.read(size)
    return unpack(body) if len(body) == size else None


def write_frame(stream: IO[bytes], frame: Frame) -> None:
    """Write `frame` and flush; raises BrokenPipeError where nobody reads any more."""
    stream.write(pack(frame))
    stream.flush()


def pack(frame: Frame) -> bytes:
    """The bytes of `frame`, its length in front."""
    body = cast("bytes", msgpack.packb(frame, unicode_errors="surrogateescape"))
    if len(body) > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {len(body)} bytes is over the limit of {FRAME_BYTES_MAX}")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def body_bytes(header: bytes) -> int:
    """How many bytes follow this header; raises ValueError where it cannot be one of ours."""
    size = int.from_bytes(header, "big")
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return size


def unpack(body: bytes) -> Frame:
    """The frame that `body` holds; raises ValueError where it holds none."""
    try:
        frame = msgpack.unpackb(body, unicode_errors="surrogateescape", strict_map_key=False)
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(f"a frame that is no MessagePack: {error}") from error
    if not isinstance(frame, dict):
        raise ValueError("a frame that is no map")
    return cast("Frame", frame)
