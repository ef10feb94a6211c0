"""The methods `remote.*`: the exchange of this workspace with other hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.wire import messages

if TYPE_CHECKING:
    from editd.server.connection import ClientState
    from editd.server.methods import Services
    from editd.server.shared_log import SharedLog


async def init(
    services: Services, params: messages.RemoteInit, _caller: ClientState
) -> messages.RemoteResult:
    return _result(await services.shared_log.init(params.url, params.ref, params.host, is_dry=params.dry_run))


async def join(
    services: Services, params: messages.RemoteJoin, _caller: ClientState
) -> messages.RemoteResult:
    joined = await services.shared_log.join(params.url, params.ref, params.host, params.take, params.keep)
    return _result(joined)


def status(services: Services, _params: messages.RemoteStatus, _caller: ClientState) -> messages.RemoteResult:
    return _result(services.shared_log.status())


async def now(services: Services, params: messages.RemoteNow, _caller: ClientState) -> messages.RemoteResult:
    return _result(await services.shared_log.now(params.timeout))


async def land(
    services: Services, params: messages.RemoteLand, _caller: ClientState
) -> messages.RemoteLandResult:
    return messages.RemoteLandResult(**await services.shared_log.landed(params.tx, params.timeout))


async def pause(
    services: Services, _params: messages.RemotePause, _caller: ClientState
) -> messages.RemoteResult:
    return _result(await services.shared_log.pause(is_paused=True))


async def resume(
    services: Services, _params: messages.RemoteResume, _caller: ClientState
) -> messages.RemoteResult:
    return _result(await services.shared_log.pause(is_paused=False))


async def repair(
    services: Services, _params: messages.RemoteRepair, _caller: ClientState
) -> messages.RemoteResult:
    return _result(await services.shared_log.repair())


async def leave(
    services: Services, params: messages.RemoteLeave, _caller: ClientState
) -> messages.RemoteResult:
    return _result(await services.shared_log.leave(may_lose=params.lose))


def state_of(shared_log: SharedLog) -> dict[str, Any] | None:
    """Return the exchange's part of `status`; None if this host has not joined a log."""
    status = shared_log.status()
    return None if status["state"] == "none" else status


def _result(status: dict[str, Any]) -> messages.RemoteResult:
    return messages.RemoteResult(**status)
