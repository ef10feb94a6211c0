"""The change that a tool was called for, and no other."""

from __future__ import annotations

import pytest

from editd.edits.tool_change import CallText, is_called_for, is_written
from editd.values.content import version_of

EDIT = CallText("timeout = 30", "timeout = 5")


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (b"timeout = 5\n", b"timeout = 30\n", [EDIT]),
        (b"a\r\ntimeout = 5\r\n", b"a\r\ntimeout = 30\r\n", [EDIT]),
        (b"x\nx\nx\n", b"x\ny\nx\n", [CallText("y", "x")]),
        (b"x\nx\nx\n", b"y\ny\ny\n", [CallText("y", "x")]),
        (b"a b\n", b"A B\n", [CallText("A", "a"), CallText("B", "b")]),
        (None, b"whole\n", [CallText("whole")]),
        (b"old\n", b"whole", [CallText("whole\n")]),
        (None, b"new\n", [CallText("new\n", "")]),
        (b"a\nb\n", b"a\n", [CallText("", "b\n")]),
        (b"gone\n", None, [CallText(None)]),
        ("\ufeffa\r\n".encode("utf-16-le"), "\ufeffé\r\n".encode("utf-16-le"), [CallText("é\n", "a\n")]),
        (b"\xef\xbb\xbfold\n", b"\xef\xbb\xbfnew\n", [CallText("new\n")]),
        (b"moved\n", b"moved\n", [CallText("", "")]),
        (b"x\nx\n", b"x\ny\n", [CallText("", ""), CallText("y", "x")]),
    ],
)
def test_the_change_of_a_call_is_recognised(
    before: bytes | None, after: bytes | None, texts: list[CallText]
) -> None:
    assert is_called_for(before, after, texts)


@pytest.mark.parametrize(
    ("content", "new"),
    [
        (b"a\nb\n", "a\nb"),
        (b"a\nb", "a\nb\n"),
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"a\n", "a\r\n"),
        (b"a\n\n", "a\n\n"),
        (b"\xef\xbb\xbfa\n", "a\n"),
        (b"caf\xe9\n", "café"),
    ],
)
def test_a_whole_text_is_known_by_its_version_alone(content: bytes, new: str) -> None:
    assert is_written(version_of(content), [CallText(new)], "latin-1")
    assert not is_written(version_of(content), [CallText(f"{new}x")], "latin-1")
    assert not is_written(version_of(content), [CallText(new, "old")], "latin-1")


def test_the_configured_encoding_counts() -> None:
    assert is_called_for(b"caf\xe9\n", b"th\xe9\n", [CallText("thé", "café")], "latin-1")


@pytest.mark.parametrize(
    ("before", "after", "texts"),
    [
        (b"timeout = 5\n", b"timeout = 6  # my own\n", [EDIT]),
        (b"timeout = 5\n", b"timeout = 30\nmine\n", [EDIT]),
        (b"timeout = 5\n", None, [EDIT]),
        (b"old\n", b"another\n", [CallText("whole\n")]),
        (b"old\n", b"kept\n", [CallText(None)]),
        (b"old\n", b"old2\n", []),
    ],
)
def test_any_other_change_is_not(before: bytes | None, after: bytes | None, texts: list[CallText]) -> None:
    assert not is_called_for(before, after, texts)
