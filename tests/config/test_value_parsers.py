"""config.value_parsers: values that a file has in words of its own."""

from __future__ import annotations

import pytest

from editd.config.value_parsers import duration, encoding, globs, size


@pytest.mark.parametrize(
    ("written", "seconds"), [("90d", 90 * 86400), ("1.5 h", 5400), ("30s", 30), ("2w", 14 * 86400)]
)
def test_a_duration_has_a_unit(written: str, seconds: float) -> None:
    assert duration(written) == seconds


@pytest.mark.parametrize("written", ["90", "d", "0s", "-1d", "1y", 90, None, True])
def test_what_is_no_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match='such as "90d"'):
        duration(written)


@pytest.mark.parametrize(
    ("written", "number"), [(4096, 4096), ("2GiB", 2 << 30), ("1.5 MB", 1_500_000), ("10kib", 10240)]
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit(written: object, number: int) -> None:
    assert size(written) == number


@pytest.mark.parametrize("written", ["2", "GiB", 0, -5, "0.1B", "1 parsec", True, 1.5])
def test_what_is_no_size_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(ValueError, match='such as "2GiB"'):
        size(written)


@pytest.mark.parametrize("written", ["366000d", "53000w", "9" * 400 + "s"])
def test_a_duration_has_an_end(written: str) -> None:
    assert duration("365000d") == 1000 * 365 * 86400
    with pytest.raises(ValueError, match="at most a thousand years"):
        duration(written)


@pytest.mark.parametrize("written", ["1000001TiB", 2**62, "9" * 400 + "GiB"])
def test_a_size_has_an_end(written: object) -> None:
    assert size("1000000TiB") == 10**6 << 40
    with pytest.raises(ValueError, match="at most a million TiB"):
        size(written)


def test_encodings_and_globs_are_looked_at() -> None:
    assert encoding("latin-1") == "latin-1"
    assert globs(["**/*.pem", "docs/"]) == ("**/*.pem", "docs/")
    with pytest.raises(ValueError, match="not an encoding"):
        encoding("klingon")
    with pytest.raises(ValueError, match="not closed"):
        globs(["[a"])
    with pytest.raises(ValueError, match="list of globs"):
        globs("*.pem")
