"""The keys of brackets whose end came before the beginning, for a minute.

A hook gives up after a while, but its request may still wait in the socket. A beginning that is carried out
after the end of its call would attribute the changes of a person to the agent.

An agent without names for its calls uses the same key for each repetition of a call. So a key is remembered
only if its end met no bracket, and each beginning forgets it. If a bracket ended in another way, for example
at its time, the end of its call is not remembered: it has had its beginning.
"""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED_SECONDS = 60.0
KEYS_MAX = 10_000

Call = tuple[str, str]
"""The session and the key of a call."""


class EndedKeys:
    """Calls that have ended without a bracket, and brackets that have ended without their call."""

    def __init__(self) -> None:
        self._ended: OrderedDict[Call, int] = OrderedDict()  # the time of the end, in microseconds
        self._begun: OrderedDict[Call, int] = OrderedDict()

    def lose(self, call: Call, now_us: int) -> None:
        """Note that a bracket has ended before the end of its call."""
        _note(self._begun, call, now_us)

    def end(self, call: Call, now_us: int) -> None:
        """Note the end of a call that has no bracket."""
        if self._begun.pop(call, None) is None:
            _note(self._ended, call, now_us)

    def is_late(self, call: Call, now_us: int) -> bool:
        """Return whether the call of a beginning has ended already."""
        ended_us = self._ended.get(call)
        return ended_us is not None and now_us - ended_us <= REMEMBERED_SECONDS * 1_000_000

    def begin(self, call: Call, now_us: int) -> bool:
        """Return whether a bracket may open. Forget the call's end."""
        is_late = self.is_late(call, now_us)
        self._ended.pop(call, None)
        self._begun.pop(call, None)
        return not is_late


def _note(calls: OrderedDict[Call, int], call: Call, now_us: int) -> None:
    calls[call] = now_us
    calls.move_to_end(call)
    if len(calls) > KEYS_MAX:
        calls.popitem(last=False)
