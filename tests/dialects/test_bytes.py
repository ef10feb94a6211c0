"""For every dialect and any file: bytes outside of what is replaced never change."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editd.tool_api.dialect_registry import DIALECTS
from tool_calls import ROOT, on

TARGET = "the line that is meant"
LINE_ENDS = ["\n", "\r\n", "\r"]
ENCODINGS = {
    "utf-8": b"",
    "utf-8 with a mark": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "latin-1": b"",
}


def serena(new: str) -> tuple[str, dict[str, Any]]:
    return "replace_content", {"relative_path": "f.txt", "needle": TARGET, "repl": new, "mode": "literal"}


def gemini(new: str) -> tuple[str, dict[str, Any]]:
    return "replace", {"file_path": f"{ROOT}/f.txt", "old_string": TARGET, "new_string": new}


def wcgw(new: str) -> tuple[str, dict[str, Any]]:
    blocks = f"<<<<<<< SEARCH\n{TARGET}\n=======\n{new}\n>>>>>>> REPLACE"
    return "FileWriteOrEdit", {
        "file_path": f"{ROOT}/f.txt", "percentage_to_change": 10,
        "text_or_search_replace_blocks": blocks, "thread_id": "t1",
    }  # fmt: skip


def roo(new: str) -> tuple[str, dict[str, Any]]:
    return "search_and_replace", {"path": "f.txt", "search": TARGET, "replace": new}


def cline(new: str) -> tuple[str, dict[str, Any]]:
    diff = f"------- SEARCH\n{TARGET}\n=======\n{new}\n+++++++ REPLACE"
    return "replace_in_file", {"path": "f.txt", "diff": diff}


def claude(new: str) -> tuple[str, dict[str, Any]]:
    return "str_replace_based_edit_tool", {
        "command": "str_replace", "path": "f.txt", "old_str": TARGET, "new_str": new,
    }  # fmt: skip


def codex(new: str) -> tuple[str, dict[str, Any]]:
    added = "".join(f"+{line}\n" for line in new.split("\n"))
    patch = f"*** Begin Patch\n*** Update File: f.txt\n@@\n-{TARGET}\n{added}*** End Patch"
    return "apply_patch", {"input": patch}


CALLS = {call.__name__: call for call in (serena, gemini, wcgw, roo, cline, claude, codex)}


@dataclass(frozen=True)
class File:
    """What stands before the target and after it, with the line ends, and how all of it is encoded."""

    before: str
    after: str
    encoding: str

    def bytes_of(self, text: str) -> bytes:
        return text.encode(self.encoding.removesuffix(" with a mark"))

    @property
    def mark(self) -> bytes:
        return ENCODINGS[self.encoding]


@st.composite
def files(draw: st.DrawFn) -> File:
    """Lines of what the encoding has, each with a line end of its own, the last perhaps without one."""
    encoding = draw(st.sampled_from(list(ENCODINGS)))
    letters = "ab \té\x0c\xa0" + ("" if encoding == "latin-1" else "ñ漢\u2028🙂")
    ends = draw(st.sampled_from([LINE_ENDS, ["\n"], ["\r\n"], ["\r"]]))
    lines = st.lists(st.tuples(st.text(letters, max_size=5), st.sampled_from(ends)), max_size=4)
    before = "".join(text + end for text, end in draw(lines))
    after = "".join(text + end for text, end in draw(lines))
    if encoding == "latin-1":
        before = "é" + ends[0] + before  # what no UTF-8 has, so that the fallback is taken
    if after or draw(st.booleans()):
        after = draw(st.sampled_from(ends)) + after
    if draw(st.booleans()):
        after = after.rstrip("\r\n")
    return File(before, after, encoding)


def ends_of(*texts: str) -> set[str]:
    """The line ends that are in any of the texts."""
    found = set()
    for text in texts:
        found |= {end for end in ("\n", "\r") if end in text.replace("\r\n", "")}
        found |= {"\r\n"} if "\r\n" in text else set()
    return found


def test_every_dialect_is_tried() -> None:
    assert set(CALLS) == set(DIALECTS)


@pytest.mark.parametrize("dialect", CALLS)
@settings(max_examples=50, deadline=None)
@given(file=files(), new=st.sampled_from(["other", "one\ntwo", "a\nb\nc", "é"]))
def test_what_lies_around_the_replaced_text_keeps_its_bytes(dialect: str, file: File, new: str) -> None:
    content = file.mark + file.bytes_of(file.before + TARGET + file.after)
    place = on({"f.txt": content}, encoding="latin-1" if file.encoding == "latin-1" else None)
    tool, args = CALLS[dialect](new)
    place.call(dialect, tool, args)
    result = place.files["f.txt"]
    head, tail = file.mark + file.bytes_of(file.before), file.bytes_of(file.after)
    assert result.startswith(head)
    assert result.endswith(tail)
    put_in = result[len(head) : len(result) - len(tail)].decode(file.encoding.removesuffix(" with a mark"))
    assert put_in.replace("\r\n", "\n").replace("\r", "\n") == new
    ends = ends_of(file.before, file.after)
    if ends:
        assert ends_of(put_in) <= ends
