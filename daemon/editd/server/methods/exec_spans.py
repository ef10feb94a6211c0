"""The methods `exec.*`: a command's span begins and ends when all changes made before are recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.engine.exec_spans import ExecSpans
from editd.errors import InvalidParams
from editd.server import convert
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from editd.engine.exec_spans import ExecSpan
    from editd.errors import Refused
    from editd.server.dispatch import ClientState, MethodCall, Services
    from editd.server.methods.sessions import SessionMethods
    from editd.values.transaction import Transaction


class ExecMethods:
    def __init__(
        self,
        services: Services,
        sessions: SessionMethods,
        later: Callable[[Coroutine[Any, Any, None], MethodCall], None],
    ) -> None:
        """`later` runs the work that an answer waits for."""
        self._services = services
        self._sessions = sessions
        self._later = later
        self._brackets = ExecSpans()
        services.engine.outside_authorship = self._brackets.authorship
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.ExecBegin: self._begin,
            messages.ExecEnd: self._end,
        }

    def recorded(self, transaction: Transaction) -> None:
        self._brackets.recorded(transaction)

    def leave(self, caller: ClientState) -> None:
        """End the spans of a closed connection; the changes of their commands are theirs."""
        for bracket in self._brackets.of(caller.number):
            bracket.how = "its end is not known"
            self._later(self._settle_and_end(bracket), _Nobody())

    def _begin(self, params: messages.ExecBegin, caller: ClientState, call: MethodCall) -> None:
        session = params.session if params.session is not None else caller.session
        actor = self._sessions.actor(params.session, caller) or convert.ANYBODY
        reader = caller.reader(session)
        if not params.command:
            raise InvalidParams("`command` is empty.", hint="Name the command: the history shows it.")

        async def begin() -> None:
            await self._settle()
            await self._services.queue.idle()
            if caller.is_gone:
                return
            bracket = self._brackets.begin(caller.number, reader, actor, session, params.command)
            self._services.watching.pause()
            call.reply(messages.ExecBeginResult(exec=bracket.name))

        self._later(begin(), call)

    def _end(self, params: messages.ExecEnd, caller: ClientState, call: MethodCall) -> None:
        bracket = self._brackets.get(params.exec, caller.number)
        bracket.how = f"exit status {params.status}"

        async def end() -> None:
            await self._settle_and_end(bracket)
            made = None if bracket.newest is None else convert.transaction_result(bracket.newest)
            call.reply(messages.ExecEndResult(transaction=made))

        self._later(end(), call)

    async def _settle_and_end(self, bracket: ExecSpan) -> None:
        try:
            await self._settle()
            await self._services.queue.idle()
        finally:
            if self._brackets.end(bracket.name):
                self._services.watching.resume()

    async def _settle(self) -> None:
        await self._services.watching.settle()


class _Nobody:
    """The call for the end of a lost connection's span, which drops the answer."""

    def reply(self, result: messages.Message) -> None:
        del result

    def refuse(self, refusal: Refused) -> None:
        del refusal

    def fail(self) -> None:
        """Do nothing: the log has the failure."""
