"""The methods `undo`, `redo`, `rollback` and `restore`, from the wire to the engine and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, structs

from editd.engine.commands import ConflictReport, Outcome, Restore, Undo, Write
from editd.engine.undo_selection import ByFilter, BySession, ByTransaction, LastUndoOf, Latest, Scope
from editd.errors import InvalidParams
from editd.server import convert
from editd.values.glob import Glob, check_count
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from editd.server.dispatch import ClientState, MethodCall, Services
    from editd.server.methods.sessions import SessionMethods
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship

WILDCARDS = frozenset("*?[\\")


class UndoMethods:
    def __init__(
        self,
        services: Services,
        sessions: SessionMethods,
        later: Callable[[Coroutine[Any, Any, None], MethodCall], None],
    ) -> None:
        """`later` runs the work that an answer waits for, and answers with its refusal."""
        self._services = services
        self._sessions = sessions
        self._later = later
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.Undo: self._undo,
            messages.Redo: self._redo,
            messages.Rollback: self._rollback,
            messages.Restore: self._restore,
        }

    def _undo(self, params: messages.Undo, caller: ClientState, call: MethodCall) -> None:
        self._take_back(params, caller, call, scope_of(params, caller.session), "undo")

    def _redo(self, params: messages.Redo, caller: ClientState, call: MethodCall) -> None:
        said = self._said(params, caller)
        self._take_back(params, caller, call, LastUndoOf(said.session), "redo")

    def _rollback(self, params: messages.Rollback, caller: ClientState, call: MethodCall) -> None:
        scope = BySession(params.session, params.since, params.include_published)
        self._take_back(params, caller, call, scope, "rollback")

    def _take_back(
        self,
        params: messages.Undo | messages.Redo | messages.Rollback,
        caller: ClientState,
        call: MethodCall,
        scope: Scope,
        kind: Literal["undo", "redo", "rollback"],
    ) -> None:
        said = self._said(params, caller)
        if params.own_only and said.session is None:
            raise InvalidParams("`own_only` needs a session.", hint="Name yours with `hello`.")
        request = Undo(
            said, caller.reader(said.session), scope, kind,
            on_conflict=params.on_conflict, is_own_only=params.own_only, dry_run=params.dry_run,
            fingerprint=_fingerprint(params),
        )  # fmt: skip
        self._submit(request, call)

    def _restore(self, params: messages.Restore, caller: ClientState, call: MethodCall) -> None:
        said = self._said(params, caller)
        paths = None if params.paths is None else tuple(map(convert.path, params.paths))
        if paths == ():
            raise InvalidParams("`paths` names nothing.", hint="Leave it out to restore everything.")
        request = Restore(
            said, caller.reader(said.session), params.to, paths, params.dry_run, _fingerprint(params)
        )

        async def restore() -> None:
            # Record earlier outside writes first: a restore puts back recorded content only.
            await self._services.watching.settle()
            self._submit(request, call)

        self._later(restore(), call)

    def _said(
        self,
        params: messages.Undo | messages.Redo | messages.Rollback | messages.Restore,
        caller: ClientState,
    ) -> Authorship:
        own = params.session if isinstance(params, messages.Redo | messages.Restore) else None
        return convert.authorship_of(params, self._sessions.actor(own, caller), caller.session)

    def _submit(self, request: Write, call: MethodCall) -> None:
        def render(outcome: Outcome) -> messages.Message:
            if isinstance(request, Restore):
                return convert.outcome(outcome, diff=request.dry_run)
            return _undo_result(outcome, is_dry=request.dry_run)

        self._services.queue.submit(request, call, render)


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
    check_count(given.paths or (), "A `filter`")
    paths = tuple(map(_path_or_glob, given.paths or ()))
    return ByFilter(
        convert.several(given.session), convert.several(given.actor), given.since, given.until, paths,
        convert.several(given.kind), last,
    )  # fmt: skip


def _path_or_glob(text: str) -> WorkspacePath | Glob:
    return Glob.parse(text) if WILDCARDS & {*text} else convert.path(text)


def _undo_result(result: Outcome, *, is_dry: bool) -> messages.UndoResult:
    plain = convert.outcome(result, diff=is_dry)
    conflicts = [messages.InTheWay(**_told(one)) for one in result.conflicts]
    return messages.UndoResult(**structs.asdict(plain), conflicts=conflicts if is_dry or conflicts else UNSET)


def _told(one: ConflictReport) -> dict[str, Any]:
    told = one.told()
    if "lines" in told:
        told["lines"] = [messages.LineRange(**region) for region in told["lines"]]
    return told


def _fingerprint(params: messages.Params) -> str:
    return "" if getattr(params, "request_id", None) is None else convert.fingerprint(params)
