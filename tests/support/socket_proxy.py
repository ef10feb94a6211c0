"""A socket between a client and the real daemon, that can be cut at the moment that matters."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Literal

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Moment = Literal["before the daemon hears it", "before the client hears the answer"]
MOMENTS: tuple[Moment, ...] = ("before the daemon hears it", "before the client hears the answer")


class Cutter:
    """Passes all on until `cut` is set: then the connection ends there, and the next one is whole again."""

    def __init__(self, listener: socket.socket, daemon: str) -> None:
        self.cut: Moment | None = None
        self.cuts = 0
        self.methods: list[str] = []  # of all requests, of clients that use MessagePack
        self._listener = listener
        self._daemon = daemon

    def serve(self) -> None:
        with contextlib.suppress(OSError):  # the listener was shut down
            while True:
                client, _ = self._listener.accept()
                daemon = socket.socket(socket.AF_UNIX)
                daemon.connect(self._daemon)
                for source, target, moment in (
                    (client, daemon, MOMENTS[0]),
                    (daemon, client, MOMENTS[1]),
                ):
                    threading.Thread(target=self._pass, args=(source, target, moment), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, moment: Moment) -> None:
        requests = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape")
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 18):
                if moment == MOMENTS[0]:
                    requests.feed(data)
                    self.methods += [one[2] for one in requests if isinstance(one, list)]
                if self.cut == moment:
                    self.cut = None
                    self.cuts += 1
                    break
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def cutter(path: Path, daemon: str) -> Iterator[Cutter]:
    """Serve at `path` what the daemon serves."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        made = Cutter(listener, daemon)
        thread = threading.Thread(target=made.serve, daemon=True)
        thread.start()
        yield made
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)
