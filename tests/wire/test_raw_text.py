"""wire.raw_text: any bytes as text and back, in parts."""

from __future__ import annotations

import pytest

from editd.wire import raw_text
from editd.wire.raw_text import raw_of, text_of

CASES = [b"", b"plain", "é€𝄞".encode() * 7, b"\xff\xfe" * 9, b"\xe2\x82", "a€".encode() + b"\xf0\x9d\x84"]


@pytest.mark.parametrize("raw", CASES)
def test_a_text_in_parts_is_the_text_at_once(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = raw.decode("utf-8", "surrogateescape")
    for part in range(1, 5):  # each character begins or ends in another part
        monkeypatch.setattr(raw_text, "PART", part)
        assert text_of(raw) == whole
        assert raw_of(whole) == raw


def test_half_a_character_has_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_text, "PART", 2)
    with pytest.raises(UnicodeEncodeError):
        raw_of("abc\ud800")
