"""wire.codec: every limit of the wire in one place."""

from __future__ import annotations

import msgspec

from editd.wire.limits import LIMITS, within_descriptors
from editd.wire.messages import HelloResult


def test_the_limits_can_be_told_in_hello() -> None:
    told = msgspec.structs.asdict(LIMITS)
    limits = next(field for field in msgspec.structs.fields(HelloResult) if field.name == "limits")
    assert msgspec.convert(told, limits.type) == told
    assert all(value > 0 for value in told.values())


def test_connections_leave_descriptors_for_edits() -> None:
    told = {most: within_descriptors(LIMITS, most).connections_max for most in (64, 256, 1024, 20_000, -1)}
    assert told == {64: 8, 256: 64, 1024: 256, 20_000: 256, -1: 256}
