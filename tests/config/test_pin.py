"""pin: only the right PIN matches its hash, and a damaged file is no open door."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from editd.config.pin import hash_pin, read_pin
from editd.errors import InvalidParams, IoError

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_pin_itself_matches() -> None:
    made = hash_pin("pässword \udce9")
    assert made.matches("pässword \udce9")
    assert not made.matches("pässword")
    assert not made.matches("")


def test_two_hashes_of_one_pin_have_nothing_in_common() -> None:
    one, two = hash_pin("1234"), hash_pin("1234")
    assert one.salt != two.salt
    assert one.digest != two.digest


def test_a_short_pin_is_refused() -> None:
    with pytest.raises(InvalidParams, match="at least 4 characters"):
        hash_pin("123")


def test_a_file_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "pin"
    assert read_pin(str(path)) is None
    path.write_bytes(msgspec.json.encode(hash_pin("1234")))
    read = read_pin(str(path))
    assert read is not None
    assert read.matches("1234")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"salt": "xx", "digest": ""}', b"\xff", b'{"salt": "", "digest": ""}']
)
def test_a_damaged_file_is_an_error_and_matches_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pin"
    path.write_bytes(content)
    with pytest.raises(IoError, match="damaged"):
        read_pin(str(path))


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IoError, match="cannot be read"):
        read_pin(str(tmp_path))
