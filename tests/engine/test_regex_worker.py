"""engine.regex_worker: the process that runs regular expressions, but for its limits."""

from __future__ import annotations

import subprocess
import sys

import pytest

from editd.edits.search import Match, Search
from editd.engine.regex_worker import PART, answers, matches_of, request_of
from editd.engine.text_search import BOUNDS, search
from editd.errors import InvalidRegex, TooLarge
from editd.system import frames


def test_python_finds_over_lines_with_groups() -> None:
    assert search(Search("python", "^(b.*)|(z)$", "a\nb\nc")) == (Match(2, 5, ("b\nc", None)),)
    assert search(Search("python", "B$", "a\nb\nc", ignore_case=True)) == (Match(2, 3),)
    assert search(Search("python", "x*", "ax")) == (Match(0, 0), Match(1, 2), Match(2, 2))


def test_a_match_of_several_lines_is_looked_into_if_asked() -> None:
    text = "a\na\nb"
    assert [m.has_inner for m in search(Search("python", "a.*?b", text, looks_inside=True))] == [True]
    assert [m.has_inner for m in search(Search("python", "a.*?b", text))] == [False]
    assert [m.has_inner for m in search(Search("python", "a.*?b", "a\nc\nb", looks_inside=True))] == [False]
    assert [m.has_inner for m in search(Search("python", "a.*?b", "a a b", looks_inside=True))] == [False]


def test_a_match_that_overlaps_the_last_is_its_twin() -> None:
    def twins(pattern: str, text: str) -> list[int | None]:
        return [match.twin for match in search(Search("python", pattern, text, looks_inside=True))]

    assert twins("aa", "aaa") == [1]
    assert twins("aa", "aaaaa") == [None, 3]
    assert twins(r"\w+\n\w+", "ab\ncd\nef") == [3]
    assert twins("(?<=x)aa", "xaaa") == [None]
    assert twins(r"\w+", "abc") == [None]
    assert twins("a*", "aa") == [None, None]
    assert twins("aa", "aa") == [None]
    assert search(Search("python", "aa", "aaa"))[0].twin is None, "it is not asked for"


@pytest.mark.parametrize(
    ("pattern", "position"),
    [("a(", 1), ("*", 0), ("(?<=a+)", None), ("a{99999999999}", None), ("(?:" * 9000 + ")" * 9000, None)],
)
def test_what_python_does_not_compile_is_refused(pattern: str, position: int | None) -> None:
    with pytest.raises(InvalidRegex) as caught:
        search(Search("python", pattern, "a"))
    assert caught.value.data["position"] == position
    assert len(caught.value.data["pattern"]) <= 501
    assert caught.value.hint


def test_an_answer_of_pythons_has_an_end() -> None:
    assert len(search(Search("python", "", "a" * (BOUNDS.matches_max - 1)))) == BOUNDS.matches_max
    with pytest.raises(TooLarge):
        search(Search("python", "", "a" * BOUNDS.matches_max))
    with pytest.raises(TooLarge):
        search(Search("python", "(?=(a*))", "a" * 12_000))


def test_an_answer_is_told_in_parts_that_come_together_again() -> None:
    wanted = Search("python", "(a)|b", "ab" * PART)
    parts = [frames.unpack_frame(frames.pack_frame(frame)[4:]) for frame in answers(request_of(wanted, 5))]
    assert [part.get("done", False) for part in parts] == [False, False, True]
    assert tuple(match for part in parts for match in matches_of(part)) == search(wanted)


def test_a_refusal_comes_over_as_itself() -> None:
    (frame,) = answers(request_of(Search("python", "(", ""), 5))
    with pytest.raises(InvalidRegex) as caught:
        matches_of(frames.unpack_frame(frames.pack_frame(frame)[4:]))
    assert caught.value.data == {"position": 0, "pattern": "("}
    assert caught.value.hint


def test_the_process_is_ready_when_it_says_so_and_ends_with_its_input() -> None:
    command = [sys.executable, "-P", "-m", "editd.engine.regex_worker"]
    asked = frames.pack_frame(request_of(Search("ecmascript", "b", "abc", template="$&$&"), 5))
    done = subprocess.run(command, input=asked, capture_output=True, timeout=20, check=True)
    ready = frames.pack_frame({"ready": True})
    assert done.stdout.startswith(ready)
    body = done.stdout[len(ready) :]
    first = frames.unpack_frame(body[4:][: int.from_bytes(body[:4], "big")])
    assert first == {"matches": [[1, 2, [], "bb", False, None]]}
    assert done.stderr == b""
