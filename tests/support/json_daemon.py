"""A daemon that answers as a test has it, by lines of JSON: for clients that are not the wire's own."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Answer = dict[str, Any] | None


class JsonDaemon:
    """Its requests so far, and the function that answers them; None: no answer."""

    def __init__(self, folder: Path, answer: Callable[[str, dict[str, Any]], Answer]) -> None:
        self.path = folder / "fake.sock"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the test has closed it
            while True:
                stream, _ = self._listener.accept()
                self.connections += 1
                threading.Thread(target=self._talk, args=(stream,), daemon=True).start()

    def _talk(self, stream: socket.socket) -> None:
        with stream, stream.makefile("rb") as lines, contextlib.suppress(OSError):
            for line in lines:
                request = json.loads(line)
                self.asked.append((request["method"], request["params"]))
                answer = self._answer(request["method"], request["params"])
                if answer is not None:
                    stream.sendall(json.dumps({"id": request["id"], **answer}).encode() + b"\n")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
