"""No changed sample of a format breaks its decoder: no crash, no hang, no growth.

The long form takes at least 95 % of each decoder's branches. The short form has the same inputs each time.
"""

from __future__ import annotations

from random import SystemRandom

import pytest

from fuzz.fuzzer import Failed, Format, fuzz
from fuzz.received import RECEIVED
from fuzz.stored import STORED

SEED, INPUTS, INPUTS_LONG = 1, 100, 3000
SHARE, SHARE_LONG = 0.7, 0.95
FORMATS = {format_.name.replace(" ", "-"): format_ for format_ in (*STORED, *RECEIVED)}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FORMATS)
def test_no_input_breaks_a_decoder(name: str, is_long: bool) -> None:
    seed = SystemRandom().randrange(1 << 32) if is_long else SEED
    print(f"{name}: seed {seed}")
    outcome = fuzz(FORMATS[name], seed, INPUTS_LONG if is_long else INPUTS)
    print(f"{outcome.inputs} inputs, {outcome.refused} refused, {outcome.peak_bytes} bytes at most")
    print(f"{outcome.share:.1%} of {outcome.branches} branches; not {outcome.missing}")
    assert outcome.branches
    assert outcome.share >= (SHARE_LONG if is_long else SHARE), outcome.missing


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
