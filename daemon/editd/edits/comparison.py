"""Comparisons of texts, and the amount of comparing that the daemon does itself.

libgit2 compares texts without releasing Python's lock, so no other client is served meanwhile. Texts of many
lines with few distinct ones take it seconds. Therefore a comparison is a value, as a search is: in a turn,
planning computes the cheap ones. For any other it raises `NeedsComparison`. The caller has a worker process
compute the result, within a time and a memory limit, and plans again with it.

The limit is a count of work and not of time, so that the same request takes the same way on any machine.
Outside a turn every comparison is computed at once: in the worker, in other processes, and in tests.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec
from msgspec import Struct, field

from editd.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

CALL_COST = 30  # of any comparison
DIRECT_COST_MAX = 20_000  # of one comparison: 10 to 30 ms
TURN_COST_MAX = 40_000  # of all comparisons of a turn


class Comparison(Struct, frozen=True):
    """A call of a limited function: its name, and its arguments, which are texts or words."""

    name: str
    arguments: tuple[bytes | str, ...]

    @property
    def bytes(self) -> int:
        """The length of its texts together."""
        return sum(map(len, self.arguments))


class NeedsComparison(Exception):
    """The comparison without whose result planning cannot continue. Internal: never sent to a client."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__(comparison.name)
        self.comparison = comparison


class NeedsThread(Exception):
    """The work is too much for a turn on the event loop. Internal: it is done again in a thread."""


class ComparisonTurn(Struct):
    """The known results in one turn, and the work that is left for it.

    A cheap result is kept, too, so that a second turn of the same request continues where the first ended.
    """

    results: dict[Comparison, Any] = field(default_factory=dict)
    left: int = TURN_COST_MAX
    is_movable: bool = False  # the work of the turn can be done again in a thread

    def begin(self, results: dict[Comparison, Any] | None = None) -> dict[Comparison, Any]:
        """Begin another turn with these results. Return the dictionary that keeps the new ones."""
        self.results = {} if results is None else results
        self.left = TURN_COST_MAX
        self.is_movable = True
        return self.results

    def charge(self, cost: int) -> None:
        """Count other work in a turn that can move. Raises NeedsThread if it is too much."""
        if not self.is_movable:
            return
        if cost > self.left:
            raise NeedsThread
        self.left -= cost

    def result(self, comparison: Comparison) -> Any:
        """Return the result if it is known or cheap. Raises NeedsComparison, or the worker's refusal."""
        if self.results and comparison in self.results:  # to hash large texts takes long
            known = self.results[comparison]
            if isinstance(known, Refused):
                raise known
            return known
        cost = cost_of(comparison)
        if cost > min(DIRECT_COST_MAX, self.left):
            raise NeedsComparison(comparison)
        self.left -= cost
        result = self.results[comparison] = compute(comparison)
        return result


TURN: ContextVar[ComparisonTurn | None] = ContextVar("TURN", default=None)
"""The turn of the running thread or task; None if there is no limit."""


def charge(*texts: bytes) -> None:
    """Count work on these texts, line by line, in the turn, if there is one. Raises NeedsThread."""
    turn = TURN.get()
    if turn is not None:
        turn.charge(sum(len(text) // 200 + text.count(b"\n") for text in texts))


def charge_bytes(size: int) -> None:
    """Count reads, hashes and copies of so many bytes in the turn, if there is one. Raises NeedsThread."""
    turn = TURN.get()
    if turn is not None:
        turn.charge(size // 100)


def charge_files(number: int) -> None:
    """Count the descriptions of so many files in the turn, if there is one. Raises NeedsThread."""
    turn = TURN.get()
    if turn is not None:
        turn.charge(4 * number)


class _Kind(Struct, frozen=True):
    function: Callable[..., Any]
    decoder: msgspec.msgpack.Decoder[Any]


_KINDS: dict[str, _Kind] = {}


def limit(
    result_type: Any,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Limit a pure function of texts. `result_type` is the type of its result, for the worker's answer."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        name = function.__name__
        _KINDS[name] = _Kind(function, msgspec.msgpack.Decoder(result_type))

        @wraps(function)
        def within_turn(*arguments: Parameters.args, **more: Parameters.kwargs) -> Result:
            turn = TURN.get()
            if turn is None:
                return function(*arguments, **more)
            texts = cast("tuple[bytes | str, ...]", (*arguments, *more.values()))
            return cast("Result", turn.result(Comparison(name, texts)))

        return within_turn

    return decorate


def compute(comparison: Comparison) -> Any:
    """Compute a comparison at once, with all comparisons that it consists of."""
    before = TURN.set(None)
    try:
        return _KINDS[comparison.name].function(*comparison.arguments)
    finally:
        TURN.reset(before)


def encode_result(comparison: Comparison) -> bytes:
    """Compute a comparison, and return the result for another process."""
    return msgspec.msgpack.encode(compute(comparison))


def decode_result(comparison: Comparison, result: bytes) -> Any:
    """Return the result that another process has computed."""
    return _KINDS[comparison.name].decoder.decode(result)


def cost_of(comparison: Comparison) -> int:
    """Estimate the work of a comparison, in microseconds of an ordinary machine.

    Bytes are hashed, lines are sorted into classes, and the lines between the equal beginnings and ends are
    compared. Only the last of these takes long, and more so if few lines are distinct.
    """
    cost = CALL_COST + comparison.bytes // 200
    if cost > DIRECT_COST_MAX:
        return cost  # to count the lines of large texts takes long
    base, *others = (text for text in comparison.arguments if isinstance(text, bytes))
    lines = base.count(b"\n") + sum(other.count(b"\n") for other in others)
    cost, changed = cost + lines // 2, 0
    for other in others if cost <= DIRECT_COST_MAX else ():
        start = _common(base, other)
        end = _common(base[start:][::-1], other[start:][::-1])
        changed += base.count(b"\n", start, len(base) - end) + other.count(b"\n", start, len(other) - end)
    return cost + 3 * changed


def _common(first: bytes, second: bytes) -> int:
    """Return the length of the equal beginning."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
