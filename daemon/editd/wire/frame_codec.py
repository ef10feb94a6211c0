"""Framing: finding the end of each message, in each of the three encodings.

Frames are fed bytes as they come, in any pieces, and iterate over the values of the complete messages. They
can be fed and iterated again after they have run dry. An incomplete message is kept, up to the limits. Input
over a limit, or unreadable input, raises Malformed; after a fatal one there is no next message.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Protocol

import msgpack

from editd.wire.codec import decode_json, too_many_values
from editd.wire.errors import Malformed
from editd.wire.limits import KIB, LIMITS, MIB


class Frames(Iterator[Any], Protocol):
    """The complete messages of one stream, as plain values with `bytes` in them."""

    kept: int
    """The number of bytes that were fed and are not part of a taken message."""

    @abstractmethod
    def feed(self, data: bytes) -> None:
        """Add incoming bytes."""


class MessagePackFrames(Frames):
    """MessagePack values one after the other, with nothing in between."""

    def __init__(
        self, message_bytes_max: int = LIMITS.message_bytes_max, length_max: int | None = None
    ) -> None:
        self._message_bytes_max = message_bytes_max
        self._values_left = LIMITS.values_max
        is_daemons = length_max is None
        self.kept = 0
        self._fed = 0
        self._begun = 0  # the offset of the incomplete message in the whole stream
        self._overfull = False
        # The buffer has room for the rest of the last feed, beside a message of full length.
        self._unpacker = msgpack.Unpacker(
            raw=False,
            unicode_errors="surrogateescape",
            strict_map_key=is_daemons,  # numbers as keys can be chosen so that they all collide
            list_hook=self._count if is_daemons else None,
            object_hook=self._count if is_daemons else None,
            max_buffer_size=message_bytes_max + MIB,
            max_str_len=message_bytes_max,
            max_bin_len=message_bytes_max,
            max_ext_len=KIB,  # the protocol has no extension types: enough to read one and refuse it
            max_array_len=LIMITS.array_length_max if length_max is None else length_max,
            max_map_len=LIMITS.map_length_max if length_max is None else length_max,
        )

    def _count(self, made: Any) -> Any:
        """Count each new array and map: a million empty ones are small on the wire, and large in memory."""
        self._values_left -= 1 + len(made)
        if self._values_left < 0:
            raise too_many_values(fatal=True)
        return made

    def feed(self, data: bytes) -> None:
        try:
            self._unpacker.feed(data)
        except msgpack.BufferFull:
            self._overfull = True
        self._fed += len(data)
        self.kept = self._fed - self._begun

    def __next__(self) -> Any:
        try:
            value = self._unpacker.unpack()
        except msgpack.OutOfData:
            if self._overfull or self.kept > self._message_bytes_max:
                raise _too_large(self._message_bytes_max) from None
            raise StopIteration from None
        except (msgpack.FormatError, TypeError):  # TypeError: a map's key is a map or an array
            raise _unreadable("The bytes are not MessagePack.") from None
        except msgpack.StackError:
            raise _unreadable("The message is nested too deep.") from None
        except ValueError as error:  # an announced length over its limit
            if "map key" in str(error):
                raise _unreadable("The keys of a map are strings.") from None
            raise Malformed("too_large", f"The message is over a limit: {error}.", fatal=True) from None
        self._begun = self._unpacker.tell()
        self.kept = self._fed - self._begun
        self._values_left = LIMITS.values_max
        return value


class LineFrames(Frames):
    """JSON, one message a line; empty lines are skipped."""

    def __init__(self) -> None:
        self.kept = 0
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self.kept = len(self._buffer)

    def __next__(self) -> Any:
        while (end := self._buffer.find(b"\n", self._searched)) >= 0:
            if end > LIMITS.message_bytes_max:
                raise _too_large(LIMITS.message_bytes_max)
            line = bytes(self._buffer[:end]).strip()
            del self._buffer[: end + 1]
            self._searched = 0
            self.kept = len(self._buffer)
            if line:
                return decode_json(line)
        self._searched = len(self._buffer)
        if self._searched > LIMITS.message_bytes_max:
            raise _too_large(LIMITS.message_bytes_max)
        raise StopIteration


class HeaderFrames(Frames):
    """JSON after a header with its length, as in LSP: `Content-Length: 52`, an empty line."""

    def __init__(self) -> None:
        self.kept = 0
        self._buffer = bytearray()
        self._body_bytes: int | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data
        self.kept = len(self._buffer)

    def __next__(self) -> Any:
        if self._body_bytes is None:
            self._body_bytes = self._take_header()
        length = self._body_bytes
        if length is None or len(self._buffer) < length:
            raise StopIteration
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._body_bytes, self.kept = None, len(self._buffer)
        return decode_json(body)

    def _take_header(self) -> int | None:
        """Return the length in the header, or None while it is incomplete."""
        if self._buffer[:1].isspace():  # a line end after a body sent by hand
            self._buffer = self._buffer.lstrip()
            self.kept = len(self._buffer)
        end = _HEADER_END.search(self._buffer, 0, LIMITS.header_bytes_max)
        if end is None:
            if len(self._buffer) >= LIMITS.header_bytes_max:
                raise _unreadable(f"A header is at most {LIMITS.header_bytes_max} bytes long.")
            return None
        header = bytes(self._buffer[: end.start()])
        del self._buffer[: end.end()]
        self.kept = len(self._buffer)
        return _content_length(header)


# LSP ends lines with CRLF. A LF written by hand is accepted too, because otherwise it would wait for ever.
_HEADER_END = re.compile(rb"\r?\n\r?\n")


def _content_length(header: bytes) -> int:
    lengths = set()
    for line in header.splitlines():
        name, colon, value = line.partition(b":")
        if not colon:
            raise _unreadable("A header line has no colon. Write `Content-Length: N`, then an empty line.")
        if name.strip().lower() == b"content-length":
            lengths.add(value.strip())
    if len(lengths) != 1 or not (digits := lengths.pop()).isdigit():
        raise _unreadable("The header must have one Content-Length, in digits.")
    length = int(digits)
    if length > LIMITS.message_bytes_max:
        raise _too_large(LIMITS.message_bytes_max)
    return length


def _too_large(limit: int) -> Malformed:
    return Malformed(
        "too_large",
        f"A message is at most {limit} bytes long. Send the edits in several requests.",
        fatal=True,
    )


def _unreadable(reason: str) -> Malformed:
    return Malformed("parse_error", reason, fatal=True)
