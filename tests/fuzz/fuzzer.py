"""The fuzzer of decoders: it changes valid samples, and watches what a decoder does with each.

An input fails if it raises an undeclared exception, takes more than `SECONDS_MAX` of the processor's time, or
needs more than `PEAK_BYTES_MAX` of memory. A run fails if the decoder keeps memory from input to input.
Coverage counts the branches of the decoder's own functions.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import tempfile
import tracemalloc
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import coverage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

BYTES_IN_TIME = 8192  # a longer input has more time: each of its bytes may be a message
SECONDS_MAX = 20.0  # of the processor, for a few KB: 5,000 refused messages take 0.4 s, and 5 s if traced
PEAK_BYTES_MAX = 24 << 20  # of an input of a few KB
GROWTH_BYTES_MAX = 128 << 10  # kept over the second half of a run
EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 2**64 - 1)
_DIGITS = re.compile(rb"-?\d+")
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**40, 0.5, float("inf"), float("nan"),
    "", "\0", "..", "/", "\ud800", "\udcff", "x" * 5000, "9" * 5000, b"", b"\xff\xfe", b"\0" * 20,
    [], {}, [[]], [{}], {"": 0}, {"base64": "/w=="}, {"base64": "!"}, [None] * 50,
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """One format: its valid samples, its decoder, the exceptions that it declares, and its functions.

    A sample is a value, which `encode` makes bytes of. `nearly` are further starting points, with mistakes in
    them. `seal` corrects the checksums of the encoded bytes. `words` are pieces with a meaning in the format.
    `functions` matches the counted functions of a module.
    """

    name: str
    samples: Sequence[Any]
    decode: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    functions: Mapping[ModuleType, str]
    encode: Callable[[Any], bytes] = lambda value: value
    seal: Callable[[bytes], bytes] | None = None
    words: tuple[bytes, ...] = ()
    nearly: Sequence[Any] = ()
    peak_bytes_max: int = PEAK_BYTES_MAX

    @property
    def starts(self) -> list[Any]:
        return [*self.samples, *self.nearly]


class Failed(Exception):
    """An input that breaks the promise, with the seed that makes it again."""


class Hang(BaseException):
    """The end of the time for one input; no handler of a decoder takes it for an error of its own."""


@dataclass
class Outcome:
    """The figures of a run."""

    inputs: int = 0
    refused: int = 0
    peak_bytes: int = 0
    branches: int = 0
    missing: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the counted branches that the inputs have taken."""
        return 1 - len(self.missing) / max(1, self.branches)


def fuzz(format_: Format, seed: int, inputs: int) -> Outcome:
    """Decode all samples and `inputs` changes of them. Raises Failed for the first that breaks a promise."""
    outcome = Outcome()
    grown_from = 0
    with _branches_of(format_, outcome), _watched():
        for number, data in enumerate(_inputs(format_, seed, inputs)):
            if number == len(format_.starts) + inputs // 2:
                gc.collect()
                grown_from = tracemalloc.get_traced_memory()[0]
            _decode(format_, seed, number, data, outcome)
        data = b""
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - grown_from
    if growth > GROWTH_BYTES_MAX:
        raise Failed(f"{format_.name}: seed {seed}: {growth} bytes were kept over {inputs // 2} inputs")
    return outcome


def _decode(format_: Format, seed: int, number: int, data: bytes, outcome: Outcome) -> None:
    """Decode one input within its limits, and count it."""
    problem: BaseException | str | None = None
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS_MAX * max(1, len(data) / BYTES_IN_TIME))
    try:
        format_.decode(data)
    except format_.allowed:
        outcome.refused += 1
        if number < len(format_.samples):
            problem = "a valid sample was refused"
    except (Exception, Hang) as error:  # noqa: BLE001  # it is reported with its input
        problem = error
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    peak = tracemalloc.get_traced_memory()[1] - before
    outcome.inputs += 1
    outcome.peak_bytes = max(outcome.peak_bytes, peak)
    if problem is None and peak > format_.peak_bytes_max:
        problem = f"{peak} bytes of memory"
    if problem is not None:
        cause = problem if isinstance(problem, BaseException) else None
        raise Failed(
            f"{format_.name}: seed {seed}, input {number} of {len(data)} bytes: {problem!r}: {data[:2000]!r}"
        ) from cause


def _inputs(format_: Format, seed: int, inputs: int) -> Iterator[bytes]:
    for sample in format_.starts:
        yield format_.encode(sample)
    for number in range(inputs):
        yield changed(format_, Random(f"{format_.name} {seed} {number}"))


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """Trace memory, and raise Hang when the time of an input is over."""

    def stop(*_: object) -> None:
        raise Hang(f"no end after {SECONDS_MAX} seconds")

    handler = signal.signal(signal.SIGVTALRM, stop)
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        signal.signal(signal.SIGVTALRM, handler)


@contextlib.contextmanager
def _branches_of(format_: Format, outcome: Outcome) -> Iterator[None]:
    """Count the branches of the format's functions that are taken inside."""
    files = {str(module.__file__): pattern for module, pattern in format_.functions.items()}
    measured = coverage.Coverage(branch=True, data_file=None, config_file=False, include=list(files))
    measured.set_option("run:disable_warnings", ["no-data-collected", "module-not-measured"])
    measured.set_option("report:exclude_lines", [r"if TYPE_CHECKING:"])
    measured.start()
    try:
        yield
    finally:
        measured.stop()
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        measured.json_report(outfile=report)
        with open(report, "rb") as opened:
            reported = json.load(opened)["files"]
    by_file = {os.path.realpath(name): of_file["functions"] for name, of_file in reported.items()}
    for file, pattern in files.items():
        for name, function in by_file[os.path.realpath(file)].items():
            if name and re.fullmatch(pattern, name):
                outcome.branches += function["summary"]["num_branches"]
                arcs = function["missing_branches"]
                outcome.missing += [f"{name}: {start} to {end}" for start, end in arcs]


# ── Changes of a sample ───────────────────────────────────────────────────────────────────────


def changed(format_: Format, random: Random) -> bytes:
    """Return the bytes of a sample with changes in its values, in its bytes, or in both."""
    value = random.choice(format_.starts)
    is_whole = isinstance(value, bytes)
    chance = random.random()
    if not is_whole and chance < 0.8:
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            value = changed_value(value, random.choice(format_.starts), format_.words, random)
    data = format_.encode(value)
    if is_whole or chance >= 0.7:
        other = format_.encode(random.choice(format_.starts))
        for _ in range(random.choice((1, 1, 2, 4, 8))):
            data = changed_bytes(data, other, format_.words, random)
    return format_.seal(data) if format_.seal is not None and random.random() < 0.6 else data


def changed_bytes(data: bytes, other: bytes, words: Sequence[bytes], random: Random) -> bytes:
    """Return the bytes with one change; `other` is a sample to splice with."""
    start = random.randrange(len(data) + 1)
    end = min(len(data), start + random.choice((1, 1, 2, 4, 8, 20, 64, 500)))
    match random.randrange(10):
        case 0:
            return data[:start]
        case 1:
            return data[:start] + data[end:]
        case 2:
            return (
                data[:start]
                + bytes(byte ^ 1 << random.randrange(8) for byte in data[start : start + 1])
                + (data[start + 1 :])
            )
        case 3:
            return data[:start] + random.randbytes(random.randrange(1, 9)) + data[end:]
        case 4:
            return data[:end] + data[start:end] * random.choice((1, 2, 40)) + data[end:]
        case 5:
            return data[:start] + other[random.randrange(len(other) + 1) :]
        case 6:
            size = random.choice((1, 2, 4, 8))
            edge = random.choice(EDGES) & (1 << 8 * size) - 1
            number = edge.to_bytes(size, random.choice(("little", "big")))
            return data[:start] + number + data[start + size :]
        case 7:
            return _with_other_digits(data, random)
        case 8 if words:
            return data[:start] + random.choice(words) + data[random.choice((start, end)) :]
        case _:
            return data[:start] + data[start + 1 :] + data[start : start + 1]


def _with_other_digits(data: bytes, random: Random) -> bytes:
    """Replace one number that is written in digits."""
    number = _DIGITS.search(data, random.randrange(len(data) + 1)) or _DIGITS.search(data)
    if number is None:
        return data + b"0"
    digits = random.choice((*(b"%d" % edge for edge in EDGES), b"-1", b"9" * 5000, b"1e999", b""))
    return data[: number.start()] + digits + data[number.end() :]


def changed_value(value: Any, other: Any, words: Sequence[bytes], random: Random) -> Any:
    """Return the value with one place in it changed; `other` is a sample whose parts may take the place."""
    if isinstance(value, dict | list) and value and random.random() < 0.85:
        items: dict[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else dict(value)
        key = random.choice(list(items))
        match random.randrange(8):
            case 0:
                del items[key]
            case 1 if isinstance(value, dict):
                items[random.choice((*items, "extra", "", "\ud800"))] = items[key]
            case 1:
                return [*value, *[items[key]] * random.choice((1, 3, 40))]
            case _:
                items[key] = changed_value(items[key], other, words, random)
        return list(items.values()) if isinstance(value, list) else items
    match random.randrange(8):
        case 0 | 1:
            return random.choice(ODD_VALUES)
        case 2:
            return _part(other, random)
        case 3:
            return _nested(value, random)
        case 4 if isinstance(value, bytes):
            return bytes(random.choice((1, 70_000)))
        case _:
            return _changed_leaf(value, words, random)


def _changed_leaf(value: Any, words: Sequence[bytes], random: Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return random.choice((value + 1, value - 1, -value, *EDGES))
        case str():
            raw = value.encode("utf-8", "surrogatepass")
            return changed_bytes(raw, raw, words, random).decode("utf-8", "surrogateescape")
        case bytes():
            return changed_bytes(value, value, words, random)
        case _:
            return random.choice(ODD_VALUES)


def _part(value: Any, random: Random) -> Any:
    """Return a part of the value, at any depth."""
    while isinstance(value, dict | list) and value and random.random() < 0.8:
        value = random.choice(list(value.values() if isinstance(value, dict) else value))
    return value


def _nested(value: Any, random: Random) -> Any:
    for _ in range(random.choice((1, 5, 31, 33, 250))):
        value = [value] if random.random() < 0.5 else {"x": value}
    return value
