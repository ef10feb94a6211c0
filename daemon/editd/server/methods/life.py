"""`hello`, `status` and `shutdown`: the methods that the daemon serves at every moment of its life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from editd.server.gate import behind_wall
from editd.wire import messages

if TYPE_CHECKING:
    from editd.server.connection import ClientState
    from editd.server.gate import Gate


class Life(Protocol):
    """The daemon, whether its history is open or not."""

    @property
    def gate(self) -> Gate: ...

    def introduce(self, params: messages.Hello, caller: ClientState) -> messages.HelloResult: ...

    def status(self) -> messages.StatusResult: ...

    def stop(self) -> None: ...


def hello(life: Life, params: messages.Hello, caller: ClientState) -> messages.HelloResult:
    return life.introduce(params, caller)


def status(life: Life, _params: messages.Status, caller: ClientState) -> messages.StatusResult:
    answer = life.status()
    return behind_wall(answer) if life.gate.is_walled(caller) else answer


def shutdown(life: Life, _params: messages.Shutdown, _caller: ClientState) -> messages.Empty:
    life.stop()
    return messages.Empty()
