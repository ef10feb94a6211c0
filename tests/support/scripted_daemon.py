"""A daemon of few words: the wire's own daemon half on a real socket, with its answers said ahead."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from editd.wire.connection import Connection, Request
from editd.wire.messages import Error, Params

if TYPE_CHECKING:
    from pathlib import Path

Answer = Callable[[Params], Any]  # a result, an Error, or None to hang up


@contextlib.contextmanager
def scripted(path: Path, answer: Answer) -> Iterator[list[Params]]:
    """Serve one client after the other at `path`; yields what they ask, as it comes."""
    asked: list[Params] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=_serve, args=(listener, answer, asked), daemon=True)
        thread.start()
        yield asked
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(timeout=5)


def _serve(listener: socket.socket, answer: Answer, asked: list[Params]) -> None:
    with contextlib.suppress(OSError):  # the listener was shut down
        while True:
            stream, _ = listener.accept()
            with stream:
                _talk(stream, answer, asked)


def _talk(stream: socket.socket, answer: Answer, asked: list[Params]) -> None:
    wire = Connection()
    while received := stream.recv(65536):
        for request in wire.receive(received):
            assert isinstance(request, Request)
            asked.append(request.params)
            result = answer(request.params)
            if result is None:
                return
            answered = wire.refuse if isinstance(result, Error) else wire.reply
            stream.sendall(answered(request.id, result))
