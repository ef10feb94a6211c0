"""How long planning takes: an edit of a 1 MB file under 50 ms, and twice that where it is not there.

`pytest --long tests/dialects/test_time.py`, on a machine that does nothing else, asks for just that.
"""

from __future__ import annotations

import contextlib
import time
from random import Random

import pytest

from editd.errors import NoMatch
from test_bytes import CALLS, TARGET
from tool_calls import on

SECONDS_MAX = 0.050
SHARED = 3  # times that, where other tests run on the same cores
MEGABYTE = 1024 * 1024


def megabyte() -> list[str]:
    """Lines as code has them, a hundred of them over and over again, the others each their own."""
    random = Random(1)
    common = [f"    return value_{number} * scale" for number in range(100)]
    lines: list[str] = []
    size = 0
    while size < MEGABYTE:
        line = (
            random.choice(common)
            if random.random() < 0.3
            else f"    name_{random.getrandbits(60):x} = call(argument)"
        )
        lines.append(line)
        size += len(line) + 1
    return lines


def shortest(dialect: str, content: str, new: str) -> float:
    """The shortest of some runs, in seconds of this thread: other programs do not count."""
    times = []
    for _ in range(5):
        place = on({"f.txt": content})
        tool, args = CALLS[dialect](new)
        start = time.thread_time()
        with contextlib.suppress(NoMatch):
            place.call(dialect, tool, args)
        times.append(time.thread_time() - start)
    return min(times)


@pytest.mark.parametrize("dialect", CALLS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_an_edit_of_a_megabyte_is_planned_in_time(dialect: str, line_end: str, is_long: bool) -> None:
    lines = megabyte()
    lines.insert(len(lines) // 2, TARGET)
    assert shortest(dialect, line_end.join(lines), "one\ntwo") < SECONDS_MAX * (1 if is_long else SHARED)


@pytest.mark.parametrize("dialect", CALLS)
def test_what_is_not_in_a_megabyte_is_refused_in_time(dialect: str, is_long: bool) -> None:
    lines = megabyte()
    lines.insert(len(lines) // 2, TARGET.replace("that", "which"))
    assert shortest(dialect, "\n".join(lines), "one\ntwo") < 2 * SECONDS_MAX * (1 if is_long else SHARED)
