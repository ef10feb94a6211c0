"""The seed of the random tests: each commit has its own, so each gate plays other histories."""

from __future__ import annotations

import functools
import os
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pytest.mark import ParameterSet

Value = TypeVar("Value")

SEED = "EDITD_TEST_SEED"
TOP = Path(__file__).resolve().parents[2]


@functools.cache
def seed() -> int:
    """Return EDITD_TEST_SEED, otherwise a number that follows from the commit (without git: 0)."""
    if SEED in os.environ:
        return int(os.environ[SEED])
    try:
        head = subprocess.run(["git", "-C", TOP, "rev-parse", "HEAD"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return 0
    return zlib.crc32(head)


def one_of(values: Iterable[object], turn: int = 0) -> list[ParameterSet]:
    """Return the parameters of a test: the seed draws one, and the others are of the long form.

    Tests that have turns one after the other share the values out among them.
    """
    each = list(values)
    chosen = (seed() + turn) % len(each)
    return [
        pytest.param(value, marks=() if number == chosen else pytest.mark.long)
        for number, value in enumerate(each)
    ]


def drawn(known: int, number: int) -> range:
    """Draw that many numbers in a row below `known`: the long form plays all of them."""
    start = seed() % (known - number + 1)
    return range(start, start + number)


def share(values: Iterable[Value], parts: int, turn: int = 0) -> list[Value]:
    """Return one of so many parts of the values: as many seeds in a row have all of them."""
    return list(values)[(seed() + turn) % parts :: parts]
