"""Frames over a pipe: the messages between the daemon and its children.

A frame is a length of four bytes, big end first, and a MessagePack map of that many bytes. Text
with bytes that are not UTF-8 is `str` with surrogate escapes on both ends; `bytes` stay `bytes`.
A child reads with `read_frame` until it returns None: its parent has closed the pipe or died, and
the child ends. Both ends are ours, so a broken frame is our bug and raises.
"""

from __future__ import annotations

from typing import IO, Any, cast

import msgpack

HEADER_BYTES = 4
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Larger than any frame of ours; a length beyond it is garbage from a broken child."""
PART_BYTES = 1024 * 1024  # of a content, in one part of a frame
_BINARY = b"\xc6"  # bytes with a length of 32 bits, in MessagePack

Frame = dict[str, Any]


def read_frame(stream: IO[bytes]) -> Frame | None:
    """Return the next frame of a buffered `stream`, or None at its end, even in the middle of a frame.

    Raises ValueError if the bytes are not a frame.
    """
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    size = frame_body_bytes(header)
    body = stream.read(size)
    return unpack_frame(body) if len(body) == size else None


def write_frame(stream: IO[bytes], frame: Frame) -> None:
    """Write `frame` and flush; raises BrokenPipeError if the reader is gone."""
    stream.write(pack_frame(frame))
    stream.flush()


def pack_frame(frame: Frame) -> bytes:
    """Return the bytes of `frame`, with its length in front."""
    return b"".join(frame_parts(frame))


def frame_parts(frame: Frame) -> list[bytes | memoryview]:
    """Return the bytes of `frame` as `pack_frame` does, in parts that hold large contents without a copy.

    A large content is a value of the frame, or an item of such a value.
    """
    parts: list[bytes | memoryview] = [msgpack.Packer().pack_map_header(len(frame))]
    for key, value in frame.items():
        parts.append(_pack(key))
        if isinstance(value, list | tuple):
            parts.append(msgpack.Packer().pack_array_header(len(value)))
            for item in value:
                parts += _value_parts(item)
        else:
            parts += _value_parts(value)
    size = sum(map(len, parts))
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return [size.to_bytes(HEADER_BYTES, "big"), *parts]


def _value_parts(value: Any) -> list[bytes | memoryview]:
    if not isinstance(value, bytes) or len(value) <= PART_BYTES:
        return [_pack(value)]
    content = memoryview(value)
    parts = [content[start : start + PART_BYTES] for start in range(0, len(value), PART_BYTES)]
    return [_BINARY + len(value).to_bytes(4, "big"), *parts]


def _pack(value: Any) -> bytes:
    return cast("bytes", msgpack.packb(value, unicode_errors="surrogateescape"))


def frame_body_bytes(header: bytes) -> int:
    """Return the number of bytes after this header; raises ValueError if it is above the limit."""
    size = int.from_bytes(header, "big")
    if size > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {size} bytes is over the limit of {FRAME_BYTES_MAX}")
    return size


def unpack_frame(body: bytes) -> Frame:
    """Return the frame in `body`; raises ValueError if it has none."""
    try:
        frame = msgpack.unpackb(body, unicode_errors="surrogateescape", strict_map_key=False)
    except (msgpack.UnpackException, TypeError) as error:
        raise ValueError(f"a frame that is not MessagePack: {error}") from error
    if not isinstance(frame, dict):
        raise ValueError("a frame that is not a map")
    return cast("Frame", frame)
