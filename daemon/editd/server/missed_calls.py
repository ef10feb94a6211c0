"""The calls of agents' tools whose end did not reach the daemon, as their hooks have noted them.

A hook that gets no answer in time appends a line to a file beside the socket: a JSON list of the agent, the
session and the key of the call. The daemon reads the new lines before it answers for an agent, so that no
such call stays uncounted. A line that is no such list is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

from msgspec import Struct

from editd.config.paths import MISSED_BYTES_MAX, missed_calls_path

NAME_LENGTH_MAX = 1000  # of an agent, a session or a key


class MissedCall(Struct, frozen=True):
    agent: str
    session: str
    key: str


class MissedCalls:
    """The file of the hooks, and the part of it that is read."""

    def __init__(self, socket: str) -> None:
        self._path = missed_calls_path(socket)
        self._read = 0  # bytes

    def take(self) -> list[MissedCall]:
        """Return the calls that were noted since the last time. Remove the file when it is half full."""
        try:
            status = os.lstat(self._path)
        except OSError:
            self._read = 0
            return []
        if status.st_size < self._read:
            self._read = 0  # a new file
        if status.st_size == self._read or not stat.S_ISREG(status.st_mode):
            return []
        content = self._content()
        whole = content[self._read : content.rfind(b"\n") + 1]
        self._read += len(whole)
        if self._read > MISSED_BYTES_MAX // 2:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            self._read = 0
        return [call for line in whole.splitlines() if (call := _call_in(line)) is not None]

    def _content(self) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return b""
        with open(descriptor, "rb") as file:
            return file.read(MISSED_BYTES_MAX)


def _call_in(line: bytes) -> MissedCall | None:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or len(values) != len(MissedCall.__struct_fields__):
        return None
    is_text = all(
        isinstance(value, str) and 0 < len(value) <= NAME_LENGTH_MAX and value.isprintable()
        for value in values
    )
    return MissedCall(*values) if is_text else None
