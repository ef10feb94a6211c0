"""The methods `undo`, `redo`, `rollback` and `restore`, from the wire to the engine and back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, structs

from editd.engine.commands import Restore, Undo
from editd.engine.undo_selection import ByFilter, BySession, ByTransaction, LastUndoOf, Latest, Scope
from editd.errors import InvalidParams
from editd.server import convert
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from editd.server.method_call import ClientState, PendingAnswer
    from editd.server.methods import Services
    from editd.values.changeset import ConflictReport, Outcome
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship


def undo(services: Services, params: messages.Undo, caller: ClientState) -> PendingAnswer:
    return _take_back(services, params, caller, scope_of(params, caller.session), "undo")


def redo(services: Services, params: messages.Redo, caller: ClientState) -> PendingAnswer:
    authorship = _authorship(services, params, caller)
    return _take_back(services, params, caller, LastUndoOf(authorship.session), "redo")


def rollback(services: Services, params: messages.Rollback, caller: ClientState) -> PendingAnswer:
    scope = BySession(params.session, params.since, params.include_published)
    return _take_back(services, params, caller, scope, "rollback")


def restore(services: Services, params: messages.Restore, caller: ClientState) -> Awaitable[PendingAnswer]:
    authorship = _authorship(services, params, caller)
    paths = None if params.paths is None else tuple(map(convert.path, params.paths))
    if paths == ():
        raise InvalidParams("`paths` names nothing.", hint="Leave it out to restore everything.")
    reader = caller.reader(authorship.session)
    request = Restore(authorship, reader, params.to, paths, params.dry_run, _fingerprint(params))
    return _settle_and_restore(services, request)


async def _settle_and_restore(services: Services, request: Restore) -> PendingAnswer:
    # Record earlier outside writes first: a restore puts back recorded content only.
    await services.watching.settle()
    return services.queue.submit(request, partial(convert.outcome, diff=request.dry_run))


def _take_back(
    services: Services,
    params: messages.Undo | messages.Redo | messages.Rollback,
    caller: ClientState,
    scope: Scope,
    kind: Literal["undo", "redo", "rollback"],
) -> PendingAnswer:
    authorship = _authorship(services, params, caller)
    if params.own_only and authorship.session is None:
        raise InvalidParams("`own_only` needs a session.", hint="Name yours with `hello`.")
    request = Undo(
        authorship, caller.reader(authorship.session), scope, kind,
        on_conflict=params.on_conflict, is_own_only=params.own_only, dry_run=params.dry_run,
        fingerprint=_fingerprint(params),
    )  # fmt: skip
    return services.queue.submit(request, partial(_undo_result, is_dry=params.dry_run))


def _authorship(
    services: Services,
    params: messages.Undo | messages.Redo | messages.Rollback | messages.Restore,
    caller: ClientState,
) -> Authorship:
    own = params.session if isinstance(params, messages.Redo | messages.Restore) else None
    return convert.authorship_of(params, services.sessions.actor(own, caller), caller.session)


def scope_of(params: messages.Undo, session: str | None) -> Scope:
    """Return the scope of an undo; `session` is the connection's. Raises InvalidParams."""
    ways = {"tx": params.tx, "filter": params.filter, "last": params.last}
    given = [name for name, value in ways.items() if value is not None]
    is_several = len(given) > 1 and given != ["filter", "last"]
    if is_several or (params.session is not None and given and given != ["last"]):
        raise InvalidParams(
            f"`{given[0]}` already names what to undo.",
            hint="Give `tx`, or `filter`, or `session`. `last` goes with the latter two or alone.",
        )
    if params.paths is not None and params.tx is None:
        raise InvalidParams("`paths` goes with `tx`.", hint="`filter` has `paths` of its own.")
    hunks = params.hunks or None
    if params.hunks == [] or (hunks and not all(given.hunks for given in hunks)):
        raise InvalidParams("`hunks` names no hunk.", hint="Leave it out to undo all of the transaction.")
    if hunks is not None and params.tx is None:
        raise InvalidParams("`hunks` goes with `tx`.", hint="`show` with `hunks` lists the hunks of a `tx`.")
    if params.tx is not None:
        if params.paths == []:
            raise InvalidParams("`paths` names nothing.", hint="Leave it out to undo all of it.")
        return ByTransaction(params.tx, tuple(map(convert.path, params.paths or ())), _numbers(hunks or ()))
    if params.filter is not None:
        return _filter(params.filter, params.last)
    if params.session is not None:  # and no other field: undo the whole session
        return Latest(params.session, params.last)
    return Latest(session, 1 if params.last is None else params.last)


def _numbers(given: Sequence[messages.HunksOf]) -> dict[WorkspacePath, tuple[int, ...]]:
    """Return the numbers of the hunks by path, rising; a path may be given more than once."""
    numbers: dict[WorkspacePath, set[int]] = {}
    for one in given:
        numbers.setdefault(convert.path(one.path), set()).update(one.hunks)
    return {path: tuple(sorted(found)) for path, found in numbers.items()}


def _filter(given: messages.Filter, last: int | None) -> ByFilter:
    if all(value is None for value in structs.asdict(given).values()):
        raise InvalidParams(
            "An empty `filter` would undo everything.", hint="`restore` puts the workspace back as a whole."
        )
    if given.paths == []:
        raise InvalidParams("`paths` names nothing.", hint="Leave it out for all paths.")
    paths = convert.paths_or_globs(given.paths or (), "A `filter`")
    return ByFilter(
        convert.several(given.session), convert.several(given.actor), given.since, given.until, paths,
        convert.several(given.kind), last,
    )  # fmt: skip


def _undo_result(result: Outcome, *, is_dry: bool) -> messages.UndoResult:
    plain = convert.outcome(result, diff=is_dry)
    conflicts = [messages.InTheWay(**_told(one)) for one in result.conflicts]
    return messages.UndoResult(**structs.asdict(plain), conflicts=conflicts if is_dry or conflicts else UNSET)


def _told(one: ConflictReport) -> dict[str, Any]:
    told = one.as_data()
    if "lines" in told:
        told["lines"] = [messages.LineRange(**region) for region in told["lines"]]
    return told


def _fingerprint(params: messages.Params) -> str:
    return "" if getattr(params, "request_id", None) is None else convert.fingerprint(params)
