"""Calls at random, nearly valid ones among them: each ends in an edit or in a documented refusal, in time.

`pytest --long tests/dialects/test_fuzz.py` makes 100,000 for each dialect.
"""

from __future__ import annotations

import importlib
import time
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from editd.errors import Refused
from editd.tool_api.dialect_registry import DIALECTS
from editd.wire.messages import ERROR_CODES
from recorded import rooted
from support import seeds
from tool_calls import ROOT, Workspace, on

if TYPE_CHECKING:
    from collections.abc import Iterator

CALLS, CALLS_LONG = 750, 100_000
SECONDS_MAX = 2.0  # the limit of one regular expression; nothing else may take as long
FAULTS = {"internal_error", "io_error", "method_not_found"}


def calls(dialect: str, random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    found: Iterator[tuple[str, dict[str, Any]]] = importlib.import_module(f"fuzz_{dialect}").calls(random)
    return found


def end(place: Workspace, dialect: str, args: dict[str, Any]) -> Refused | None:
    """Make the call; return the refusal that it ends in, if it does."""
    try:
        place.call(dialect, DIALECTS[dialect].tools[0].name, rooted(args, ROOT))
    except Refused as refusal:
        return refusal
    return None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_call_ends_in_an_edit_or_in_a_documented_refusal(dialect: str, is_long: bool) -> None:
    seed = f"{dialect} {1 if is_long else seeds.seed()}"
    ends: set[str] = set()
    made = islice(calls(dialect, Random(seed)), CALLS_LONG if is_long else CALLS)
    for number, (text, args) in enumerate(made):
        content = text.encode("utf-8", "surrogatepass")
        place = on({"f.txt": content, "notes.txt": content})
        before, start = dict(place.files), time.monotonic()
        refusal = end(place, dialect, args)
        assert time.monotonic() - start < SECONDS_MAX, f"call {number} of {seed!r}"
        if refusal is None:
            ends.add("done")
            continue
        assert refusal.code in ERROR_CODES.keys() - FAULTS, f"call {number} of {seed!r}: {refusal.code}"
        assert refusal.hint, f"call {number} of {seed!r}: {refusal.message}"
        assert place.files == before, f"call {number} of {seed!r}"
        ends.add(refusal.code)
    assert "done" in ends, "no call was right"
    assert len(ends) > 2, f"it refuses in one way only: {ends}"
