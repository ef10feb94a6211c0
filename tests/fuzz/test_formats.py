"""No changed sample of a format breaks its decoder: no crash, no hang, no growth.

The long form takes at least 95 % of each decoder's branches. The short form has the same inputs each time.
"""

from __future__ import annotations

import time
from itertools import chain, islice, repeat
from random import SystemRandom
from typing import TYPE_CHECKING

import pytest

from fuzz.fuzzer import Failed, Format, fuzz
from fuzz.received import RECEIVED, serve_in_pieces
from fuzz.stored import STORED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED, INPUTS, INPUTS_LONG = 1, 50, 3000
INPUTS_OF_SLOW, SLOW = 15, ("changes-of-settings", "configuration", "logs", "packs")  # 20 to 30 ms an input
SHARE, SHARE_LONG = 0.7, 0.95
FORMATS = {format_.name.replace(" ", "-"): format_ for format_ in (*STORED, *RECEIVED)}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FORMATS)
def test_no_input_breaks_a_decoder(name: str, is_long: bool) -> None:
    seed = SystemRandom().randrange(1 << 32) if is_long else SEED
    print(f"{name}: seed {seed}")
    inputs = INPUTS_OF_SLOW if name in SLOW else INPUTS
    outcome = fuzz(FORMATS[name], seed, INPUTS_LONG if is_long else inputs)
    print(f"{outcome.inputs} inputs, {outcome.refused} refused, {outcome.peak_bytes} bytes at most")
    print(f"{outcome.share:.1%} of {outcome.branches} branches; not {outcome.missing}")
    assert outcome.branches
    assert outcome.share >= (SHARE_LONG if is_long else SHARE), outcome.missing


FEW, MANY = 500, 8_000
GROWTH_MAX = 4  # of the time for a piece: it is 16 if each piece costs as much as all before it


@pytest.mark.parametrize(
    "pieces",
    [[b"{}\n"], [b'{"id": 1, "method": "nope"}\n'], [b"\x94\x00\x01\xa4nope\x80"], [b'{"x": "', b"y" * 64]],
    ids=["lines", "requests", "MessagePack", "one long line"],
)
def test_a_piece_of_a_stream_costs_the_same_however_many_came_before(pieces: list[bytes]) -> None:
    """The limit of an input follows its size, so it would not find a decoder that is quadratic."""
    assert growth(serve_in_pieces, pieces) < GROWTH_MAX


def test_a_decoder_that_searches_all_earlier_pieces_again_is_found() -> None:
    def search(pieces: Iterator[bytes]) -> None:
        buffer = bytearray()
        for piece in pieces:
            buffer += piece
            assert buffer.find(b"\n") < 0

    assert growth(search, [b'{"x": "', b"y" * 64]) > GROWTH_MAX


def growth(decode: Callable[[Iterator[bytes]], None], pieces: list[bytes]) -> float:
    """Return the time of the processor for one of many pieces, as a multiple of the time for one of few."""
    few, many = (min(_seconds(decode, pieces, number) for _ in range(3)) / number for number in (FEW, MANY))
    return many / few


def _seconds(decode: Callable[[Iterator[bytes]], None], pieces: list[bytes], number: int) -> float:
    began = time.process_time()
    decode(islice(chain(pieces, repeat(pieces[-1])), number))
    return time.process_time() - began


KEPT: list[bytes] = []


def _hang(data: bytes) -> None:
    while data:
        KEPT.clear()


@pytest.mark.parametrize(
    ("decode", "message"),
    [(lambda data: data[99], "IndexError"), (_hang, "no end"), (lambda data: bytes(99 << 20), "of memory"),
     (lambda data: KEPT.append(bytes(5000)), "were kept")],
)  # fmt: skip
def test_a_crash_a_hang_and_growth_are_named_with_the_seed(
    decode: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fuzz.fuzzer.SECONDS_MAX", 0.2)
    broken = Format("broken", [b"a sample"], decode, (), {})  # type: ignore[arg-type]
    with pytest.raises(Failed, match=f"broken: seed 7.*{message}"):
        fuzz(broken, 7, 100)
    KEPT.clear()
