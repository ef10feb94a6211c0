"""A program in a pseudo-terminal: keys in, and all that it prints, with the time of each part."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WAIT_SECONDS = 20.0
XTERM = {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
_CONTROL = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][0-9A-Za-z]|\x1b[@-_a-z=>]")


class PseudoTerminal:
    """A terminal of a size, with the output of one program, which is killed at the end of the `with`."""

    def __init__(
        self,
        argv: Sequence[str],
        size: tuple[int, int],
        *,
        folder: str,
        environment: Mapping[str, str],
        kind: Mapping[str, str] = XTERM,
    ) -> None:
        self.printed: list[tuple[float, bytes]] = []  # seconds since the start
        self._since = 0  # parts before the last key
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            argv, stdin=other, stdout=other, stderr=other, cwd=folder, start_new_session=True,
            env={**environment, **kind},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # closed, it ends its programs
        )  # fmt: skip
        os.close(other)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)

    def send(self, keys: str) -> None:
        self._since = len(self.printed)
        os.write(self._own, keys.encode())

    def until(self, pattern: str) -> float:
        """Read until a pattern is in the text since the last key. Return the seconds since the start."""
        wanted = re.compile(pattern.encode())
        deadline = time.monotonic() + WAIT_SECONDS
        while not wanted.search(self.text()):
            left = max(0.0, deadline - time.monotonic())
            assert self.read(left), f"never: {pattern}\n{self.text().decode(errors='replace')}"
        return self.printed[-1][0] if self.printed else 0.0

    def text(self) -> bytes:
        """Return the text since the last key, without the controls of the terminal."""
        return without_controls(b"".join(part for _, part in self.printed[self._since :]))

    def read(self, seconds: float) -> bool:
        """Read once, within so many seconds. Return whether something came."""
        if not select.select([self._own], [], [], seconds)[0]:
            return False
        try:
            part = os.read(self._own, 1 << 16)
        except OSError:  # the program has ended
            return False
        self.printed.append((time.monotonic() - self.began, part))
        return bool(part)


def without_controls(text: bytes) -> bytes:
    """Return the text of a terminal without colours and movements of the cursor."""
    return _CONTROL.sub(b"", text)
