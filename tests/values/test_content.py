"""Tests of `values.content`."""

from __future__ import annotations

import stat
import subprocess

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from editd.errors import NotText
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState, Text, line_end_of, mode_of, version_of


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\0\xff\r\n"])
def test_a_version_is_what_git_hash_object_says(content: bytes) -> None:
    git = subprocess.run(["git", "hash-object", "--stdin"], input=content, capture_output=True, check=True)
    assert version_of(content) == git.stdout.decode().strip()


def test_states_are_equal_when_content_and_mode_are() -> None:
    assert FileState(b"x", FILE, 0o600) == FileState(b"x", FILE, 0o644)
    assert FileState(b"x", FILE) != FileState(b"x", EXECUTABLE)
    assert FileState(b"x", FILE) != FileState(b"y", FILE)


def test_other_content_keeps_mode_and_permissions_and_has_its_own_version() -> None:
    state = FileState(b"x", EXECUTABLE, 0o750).with_content(b"y")
    assert (state.mode, state.permissions, state.version) == (EXECUTABLE, 0o750, version_of(b"y"))


def test_the_owners_x_bit_makes_a_file_executable() -> None:
    assert mode_of(stat.S_IFREG | 0o744) == EXECUTABLE
    assert mode_of(stat.S_IFREG | 0o655) == FILE
    assert mode_of(stat.S_IFLNK | 0o777) == SYMLINK


@given(st.binary(max_size=60))
def test_text_goes_back_into_the_bytes_it_came_from(content: bytes) -> None:
    try:
        text = Text.decode(content)
    except NotText:
        return
    assert text.encode() == content


FORMS = [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.sampled_from(FORMS))
def test_encoding_and_mark_are_remembered(text: str, form: tuple[str, bytes]) -> None:
    encoding, bom = form
    assume(bom or not ("\0" in text or text.startswith("\ufeff")))
    decoded = Text.decode(bom + text.encode(encoding))
    assert (decoded.text, decoded.encoding, decoded.bom) == (text, encoding, bom)


@pytest.mark.parametrize("content", [b"\0", b"\xff", b"a\0b\0", b"\xff\xfea"])
def test_what_does_not_decode_is_no_text(content: bytes) -> None:
    with pytest.raises(NotText):
        Text.decode(content)


def test_the_fallback_is_asked_last() -> None:
    assert Text.decode(b"\xe9", fallback="latin-1").text == "é"
    assert Text.decode("é".encode(), fallback="latin-1").encoding == "utf-8"
    with pytest.raises(NotText):
        Text.decode(b"\xe9", fallback="ascii")


@pytest.mark.parametrize(
    ("content", "fallback", "message", "hint"),
    [
        (
            b"\xff\xfea",
            "cp1252",
            "the byte-order mark of utf-16-le, but is",
            "does not apply to a file with a mark",
        ),
        (
            b"\xfe\xff\xd8\x00",
            None,
            "the byte-order mark of utf-16-be, but is",
            "does not apply to a file with",
        ),
        (
            b"\xef\xbb\xbf\xe9",
            "cp1252",
            "the byte-order mark of utf-8, but is",
            "does not apply to a file with",
        ),
        (
            b"\x89PNG\0\0",
            "cp1252",
            "f is not text in any known",
            "no value of the key `encoding` makes it text",
        ),
        (
            b"\xff\xfe\0\0a\0\0\0",
            None,
            "f is not text in any",
            "no value of the key `encoding` makes it text",
        ),
        (b"\xe9", None, "f is not text in any known encoding", "to set the key `encoding`"),
        (b"\xe9", "ascii", "f does not decode as ascii", "to correct the key `encoding`"),
    ],
)
def test_a_refusal_names_the_cause_that_a_file_is_no_text(
    content: bytes, fallback: str | None, message: str, hint: str
) -> None:
    with pytest.raises(NotText) as caught:
        Text.decode(content, path="f", fallback=fallback)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.hint.endswith("delete it in a separate request, and write it anew.")


def test_a_character_that_the_encoding_cannot_hold_is_refused() -> None:
    with pytest.raises(NotText) as caught:
        Text.decode(b"\xe9", fallback="latin-1").encode("€", path="f")
    assert "latin-1" in caught.value.message


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "none"), ("a", "none"), ("a\n", "lf"), ("a\r\nb\r\n", "crlf"), ("a\rb", "cr"),
        ("a\n\r\n", "mixed"), ("a\r\n\r", "mixed"),
    ],
)  # fmt: skip
def test_the_kind_of_line_end_is_told(text: str, kind: str) -> None:
    assert line_end_of(text) == kind


def test_executable_means_x_where_r_is_and_other_bits_are_kept() -> None:
    state = FileState(b"x", FILE, 0o2640).with_mode(EXECUTABLE)
    assert (state.mode, state.permissions) == (EXECUTABLE, 0o2750)
    assert state.with_mode(FILE).permissions == 0o2640


def test_the_same_mode_is_the_same_state() -> None:
    state = FileState(b"x", EXECUTABLE, 0o700)
    assert state.with_mode(EXECUTABLE) is state


def test_a_link_has_no_permissions() -> None:
    assert FileState(b"x", FILE, 0o644).with_mode(SYMLINK).permissions is None
    assert FileState(b"x").with_mode(EXECUTABLE).permissions is None
