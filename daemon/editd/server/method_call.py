"""A call of a method: its client, the way to answer it, and the type of its handler.

A handler takes the parameters and the state of the client. It returns the result, an awaitable of the
result, or a `PendingAnswer`. `Calls` answers each call with the result of its handler or with its refusal.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

from editd.engine.commands import Reader, reader_of
from editd.errors import IoError, Refused
from editd.server import convert
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from editd.server.connection import SocketConnection
    from editd.wire.connection import Request

log = logging.getLogger(__name__)


class ClientState(Struct):
    """The state of one connection."""

    number: int
    listener: SocketConnection
    name: str = ""
    session: str | None = None
    is_gone: bool = False  # disconnected: its queued requests must begin nothing more

    def reader(self, session: str | None) -> Reader:
        """Return the name under which reads and edits count: the session, or the connection if None."""
        return f"connection {self.number}" if session is None else reader_of(session)


class MethodCall(Struct, frozen=True):
    """A request under way; exactly one of the methods answers it, if the client is still connected."""

    client: SocketConnection
    request: Request

    def reply(self, result: messages.Message) -> None:
        self.client.reply(self.request, result)

    def refuse(self, refusal: Refused) -> None:
        self.client.refuse(self.request, convert.error(refusal))

    def fail(self) -> None:
        """Answer with an internal error; the log has the details."""
        self.client.fail(self.request)


class PendingAnswer(Struct, kw_only=True):
    """The answer of a handler that has returned without its result."""

    call: MethodCall = cast("MethodCall", None)  # gets the result; set by `Calls` at once


Answer: TypeAlias = "messages.Message | PendingAnswer | Awaitable[Answer]"
Handler: TypeAlias = "Callable[[Any, ClientState], Answer]"


class Calls:
    """All calls under way, and other tasks that a client has caused. No handler's exception gets further."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self._tasks)

    def carry_out(self, call: MethodCall, work: Callable[[], Answer]) -> None:
        """Answer `call` with the result of `work`, now or later."""
        try:
            self._answer(work(), call)
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            _fail(error, call)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that nobody waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _answer(self, answer: Answer, call: MethodCall) -> None:
        if isinstance(answer, PendingAnswer):
            answer.call = call
        elif isinstance(answer, messages.Message):
            call.reply(answer)
        else:
            self.start(self._answer_later(answer, call))

    async def _answer_later(self, work: Awaitable[Answer], call: MethodCall) -> None:
        try:
            self._answer(await work, call)
        except OSError as error:  # no descriptor or no memory for a child process
            _fail(IoError(error, "A process for this request could not be started"), call)
        except Exception as error:  # noqa: BLE001  # `_fail` logs it
            _fail(error, call)


def _fail(error: Exception, call: MethodCall) -> None:
    """Answer with the refusal, or with an internal error for any other exception."""
    if isinstance(error, Refused):
        call.refuse(error)
        error.forget_stack()  # it may be kept, and raised again
    else:  # our bug
        log.error("a request failed", exc_info=error)
        call.fail()
