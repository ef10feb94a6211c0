"""A request before it is sent: the type of its answer, its time limit, and whether it may be repeated."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from msgspec import UNSET, Struct, UnsetType

from editd.wire import messages
from editd.wire.codec import convert
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

WAIT_SECONDS_MAX = 86400.0  # the daemon's own limit for `wait`

Given = ParamSpec("Given")
Built = TypeVar("Built")
Result = TypeVar("Result")
Name = TypeVar("Name", bound=str | int)
Value = TypeVar("Value")
Told = TypeVar("Told", bound=messages.Message)


class PreparedCall(Struct, Generic[Result], frozen=True):
    """One request, not sent yet. `read` converts the plain values of the answer to its result.

    `extra` is the time in seconds that it may wait on purpose, beyond the usual limit; None: for ever.
    """

    params: messages.Params
    read: Callable[[Any], Result]
    extra: float | None = 0.0


def call(params: messages.Params, result: type[Told]) -> PreparedCall[Told]:
    """Return the request whose answer is a `result`.

    Raises EditdError for a time beyond the daemon's limit.
    """
    return PreparedCall(params, lambda plain: convert(plain, result), _extra_seconds(params))


def call_without_result(params: messages.Params) -> PreparedCall[None]:
    """Return the request whose answer has no data."""
    return PreparedCall(params, _nothing)


class Method(Generic[Given, Result]):
    """A method of a synchronous class and of its asynchronous twin, where it is a coroutine.

    Has the name, the parameters and the docstring of `build`; `send` is called with the object and the
    result of `build`. The twin is the class of `async with` blocks.
    """

    def __init__(self, build: Callable[Given, Built], send: Callable[[Any, Built], Any]) -> None:
        def method(owner: Any, *args: Given.args, **kwargs: Given.kwargs) -> Any:
            return send(owner, build(*args, **kwargs))

        async def coroutine(owner: Any, *args: Given.args, **kwargs: Given.kwargs) -> Any:
            return await send(owner, build(*args, **kwargs))

        signature = inspect.signature(build)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown = signature.replace(parameters=[own, *signature.parameters.values()])
        for face in (method, coroutine):
            functools.update_wrapper(face, build)
            face.__signature__ = shown  # type: ignore[union-attr]
        self._method, self._coroutine = method, coroutine

    @overload
    def __get__(self, owner: AbstractContextManager[Any], kind: type) -> Callable[Given, Result]: ...
    @overload
    def __get__(
        self, owner: AbstractAsyncContextManager[Any], kind: type
    ) -> Callable[Given, Coroutine[Any, Any, Result]]: ...
    @overload
    def __get__(
        self, owner: None, kind: type[AbstractContextManager[Any]]
    ) -> Callable[Concatenate[Any, Given], Result]: ...
    @overload
    def __get__(
        self, owner: None, kind: type[AbstractAsyncContextManager[Any]]
    ) -> Callable[Concatenate[Any, Given], Coroutine[Any, Any, Result]]: ...
    def __get__(self, owner: object, kind: type) -> Any:
        function = self._coroutine if hasattr(kind, "__aenter__") else self._method
        return function.__get__(owner, kind)


def request_method(build: Callable[Given, PreparedCall[Result]]) -> Method[Given, Result]:
    """Return the method that sends the request of `build`, and returns its result."""
    return Method(build, lambda client, asked: client.ask(asked))


UNLIMITED = (
    messages.Check,
    messages.Restore,
    messages.ExecBegin,
    messages.ExecEnd,
    messages.ProposalApprove,
    messages.ProposalDecide,
    messages.Gc,
    messages.Forget,
    messages.RemoteInit,
    messages.RemoteJoin,
    messages.RemoteRepair,
    messages.RemoteLeave,
    messages.HooksRun,
)
"""Requests that take as long as their work does."""


def _extra_seconds(params: messages.Params) -> float | None:
    """Return how long a request may wait on purpose; None: for ever.

    Raises EditdError, as the daemon would, for a time that no clock here can wait for.
    """
    extra = 0.0
    for name in ("wait", "timeout"):
        seconds = getattr(params, name, None)
        if not isinstance(seconds, int | float):
            continue
        if not 0 <= seconds <= WAIT_SECONDS_MAX:
            raise refusal(
                "invalid_params", f"`{name}` is a number of seconds, up to a day.", data={"field": name}
            )
        extra = seconds
    match params:
        case messages.Diff(to=None) | messages.Settle(timeout=None):
            return None
        case messages.SessionList(stat=True) | messages.SessionList(activity=True):
            return None
        case _:
            return None if isinstance(params, UNLIMITED) else extra


def optional(value: Value | None) -> Value | UnsetType:
    """Return a field that may be left out; None leaves it out."""
    return UNSET if value is None else value


def to_list(values: Sequence[Value] | None) -> list[Value] | None:
    """Return a sequence as a list for the message."""
    return None if values is None else list(values)


def one_or_list(value: Name | Sequence[Name] | None) -> Name | list[Name] | None:
    """Return one name or number, or several as a list for the message."""
    if value is None or isinstance(value, str | int):
        return value  # pyright: ignore[reportReturnType]  # a Name is one of these
    return list(value)


def hunks_by_path(numbers: Mapping[str, Sequence[int]]) -> list[messages.HunksOf]:
    """Return the hunks of each path as the message has them."""
    return [messages.HunksOf(path=path, hunks=list(hunks)) for path, hunks in numbers.items()]


def _nothing(plain: Any) -> None:
    convert(plain, messages.Empty)


# ── Requests that may be repeated ─────────────────────────────────────────────────────────────

# If the connection is lost before the answer, these are not sent again, because a second time would
# have a second effect. The value is the unknown effect, and how to find out.
UNKNOWN: Mapping[type[messages.Params], str] = {
    messages.Shutdown: "whether it will stop",
    messages.Publish: "whether the commit was made: `git log` shows it",
    messages.SessionOpen: "whether the session was opened: `session_list` shows it, and its token is lost",
    messages.SessionClose: "whether the session was closed: `session_list` shows it",
    messages.SessionResume: "whether the session was resumed: `session_list` shows it",
    messages.LeaseAcquire: "whether the lease was granted: `lease_list` shows it",
    messages.LeaseRelease: "whether the lease was released: `lease_list` shows it",
    messages.ProposalDecide: "which of the proposals were decided: `proposal_list` shows it",
    messages.ProposalComment: "whether the comment was kept: `proposal_get` shows it",
    messages.ProposalReopen: "whether the proposal was opened anew: `proposal_list` shows it",
    messages.ReviewAllow: "whether the grant was made: `review_grants` shows it",
    messages.ExecEnd: "whether the command's work was recorded as such: `log` shows it",
}

Identified = (
    messages.Apply
    | messages.Commit
    | messages.Undo
    | messages.Redo
    | messages.Rollback
    | messages.Restore
    | messages.ProposalApprove
    | messages.ProposalReject
)


def may_repeat(params: messages.Params) -> bool:
    """Whether it is safe to send this again after a lost answer."""
    if isinstance(params, Identified):
        return getattr(params, "dry_run", False) or params.request_id is not None
    return type(params) not in UNKNOWN
