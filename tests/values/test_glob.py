"""values.glob: what matches, and whether two globs can mean the same path, against brute force."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from editd.errors import InvalidParams
from editd.values.glob import (
    Glob,
    Meter,
    common_path,
    could_both_match,
    is_among,
    parse_all,
    path_outside,
)
from editd.values.path import WorkspacePath

ALPHABET = "ab./"
LENGTH_MAX = 6


def is_path(text: str) -> bool:
    return all(name not in ("", ".", "..") for name in text.split("/"))


PATHS = [
    WorkspacePath(text)
    for length in range(1, LENGTH_MAX + 1)
    for text in map("".join, itertools.product(ALPHABET, repeat=length))
    if is_path(text)
]

names = st.one_of(
    st.just("**"),
    st.text("ab*?.", min_size=1, max_size=3),
    st.sampled_from(["[ab]", "[!a]", "a*b", "[a-b]*", "\\a", "*.a", "[^b]b", "[]a]", "[a/]"]),
)


@st.composite
def globs(draw: st.DrawFn) -> Glob:
    text = "/".join(draw(st.lists(names, min_size=1, max_size=3))) + draw(st.sampled_from(["", "", "/"]))
    try:
        return Glob.parse(text)
    except InvalidParams:
        return Glob.parse("a/**")


@pytest.mark.parametrize(
    ("glob", "meant", "not_meant"),
    [
        ("README.md", ["README.md", "README.md/x"], ["README_md", "docs/README.md"]),
        ("src", ["src", "src/a", "src/a/b"], ["srcs", "a/src"]),
        ("src/", ["src/a", "src/a/b"], ["src"]),
        ("src/*", ["src/a"], ["src", "src/a/b", "xsrc/a"]),
        ("/src/*.py", ["src/a.py", "src/.py"], ["src/a.pyc", "src/b/a.py"]),
        ("**/*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/x"]),
        ("src/**", ["src/a", "src/a/b"], ["src", "srca"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b", "a/x/b/c"], ["a", "ab", "a/xb"]),
        ("[a-c]?", ["ab", "c\n"], ["d1", "a", "a/", "abc"]),
        ("[!a]", ["b", "é"], ["a"]),
        ("[]x]", ["]", "x"], ["y"]),
        ("\\*", ["*"], ["a"]),
        ("*a*a*b", ["aab", "xaxaxb"], ["ab", "aa"]),
        ("**/a/**/b/**/c", ["a/b/c", "x/a/a/y/b/c"], ["b/a/c"]),
        ("caf\udce9*", ["caf\udce9", "caf\udce9.txt"], ["cafe"]),
    ],
)
def test_a_glob_means_these_paths_and_not_those(glob: str, meant: list[str], not_meant: list[str]) -> None:
    parsed = Glob.parse(glob)
    assert [path for path in meant if not parsed.matches(WorkspacePath(path))] == []
    assert [path for path in not_meant if parsed.matches(WorkspacePath(path))] == []


@pytest.mark.parametrize("text", ["", "/", "a//b", "../a", "./a", "!a", "[a", "a\\", "a\0", "*" * 401])
def test_what_makes_no_sense_is_refused_with_examples(text: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        Glob.parse(text)
    assert "src/**/*.py" in refused.value.hint


@pytest.mark.parametrize(
    "texts",
    [
        ["a"] * 1001,
        ["a" * 4000] * 5,
        ["[a-z]b"] * 30,
    ],
    ids=["globs", "characters", "classes"],
)
def test_globs_that_take_long_to_compile_are_refused_with_the_limits(texts: list[str]) -> None:
    """The attack: 16,000 characters of globs held up all clients for 0.2 s."""
    with pytest.raises(InvalidParams, match="A scope has at most 1000 globs, of 16000 characters in all"):
        parse_all(texts, "A scope")
    assert len(parse_all(texts[: len(texts) * 3 // 4], "A scope")) == len(texts) * 3 // 4


def test_a_character_of_a_glob_is_itself_in_its_expression() -> None:
    """Compiling a class takes ten times as long as a character."""
    assert Glob.parse("src/a.b+c{d}").pattern.pattern == r"src/a\.b\+c\{d\}(?:/.+)?"


@given(globs())
def test_the_automaton_of_a_glob_takes_what_its_expression_takes(glob: Glob) -> None:
    for path in PATHS[::7]:
        exactly = Glob.parse(re.sub(r"([*?\[\\])", r"\\\1", path.text))
        common = common_path(glob, exactly, Meter())
        # `exactly` also means what lies below the path, so the common path may be longer.
        assert (common == path.text) == glob.matches(path)


@given(globs(), globs())
@settings(max_examples=50, deadline=None)
def test_two_globs_meet_exactly_where_brute_force_finds_a_path(first: Glob, second: Glob) -> None:
    both = [path for path in PATHS if first.matches(path) and second.matches(path)]
    found = common_path(first, second, Meter())
    assert (found is None) == (common_path(second, first, Meter()) is None)
    if both:
        assert found is not None
        assert len(found) <= min(len(path.text) for path in both)
    if found is not None:
        assert is_path(found)
        assert first.matches(WorkspacePath(found))
        assert second.matches(WorkspacePath(found))


@given(globs())
def test_a_glob_matches_below_a_folder_exactly_if_it_has_a_path_in_common_with_all_below(glob: Glob) -> None:
    for folder in PATHS[::7]:
        below = Glob.parse(re.sub(r"([*?\[\\])", r"\\\1", folder.text) + "/")
        is_common = common_path(glob, below, Meter(1_000_000)) is not None
        assert glob.may_match_below(folder.text) == is_common, (glob, folder)


@given(globs(), st.lists(globs(), max_size=3))
@settings(max_examples=80, deadline=None)
def test_a_glob_lies_within_others_exactly_if_brute_force_finds_no_path_outside(
    inner: Glob, outer: list[Glob]
) -> None:
    outside = [path for path in PATHS if inner.matches(path) and not is_among(path, outer)]
    found = path_outside(inner, outer, Meter(1_000_000))
    if outside:
        assert found is not None
        assert len(found) <= min(len(path.text) for path in outside)
    if found is not None:
        assert is_path(found)
        assert inner.matches(WorkspacePath(found))
        assert not is_among(WorkspacePath(found), outer)


@pytest.mark.parametrize(
    ("inner", "outer", "found"),
    [
        ("src/**/*.py", ["src/**"], None),
        ("src/a.py", ["src/**"], None),
        ("**/*", ["src/**"], "a"),
        ("src", ["src/**"], "src"),
        ("src", ["src/", "src"], None),
        ("src/[a-z]*", ["src/[a-m]*", "src/[n-z]*"], None),
        ("src/[a-z]", ["src/[a-y]"], "src/z"),
        ("**", ["**"], None),
        ("**/*", ["*", "*/**"], None),
        ("a", [], "a"),
    ],
)
def test_what_a_glob_means_beyond_others_is_named_by_a_path(
    inner: str, outer: list[str], found: str | None
) -> None:
    assert path_outside(Glob.parse(inner), [Glob.parse(text) for text in outer], Meter()) == found


@pytest.mark.parametrize(
    ("glob", "bars", "spares"),
    [
        ("src/**", ["src"], ["src/a", "other"]),
        ("src/", ["src"], ["src/a"]),
        ("src/a.py", ["src"], ["src/a.py", "s"]),
        ("src/a/*.py", ["src", "src/a"], ["src/b"]),
        ("\\*x/*/b", ["*x"], ["*x/a"]),
        ("**/*.py", [], ["a", "src"]),
        ("src", [], ["src", "a"]),
    ],
)
def test_a_file_bars_a_glob_if_all_that_it_means_lies_below(
    glob: str, bars: list[str], spares: list[str]
) -> None:
    parsed = Glob.parse(glob)
    assert [path for path in (*bars, *spares) if parsed.is_barred_by(WorkspacePath(path))] == bars


def test_globs_that_differ_as_texts_exclude_each_other_where_a_path_is_in_both() -> None:
    assert could_both_match(Glob.parse("src/**/*.py"), Glob.parse("src/*/test_*"), Meter())
    assert common_path(Glob.parse("*.py"), Glob.parse("a*"), Meter()) == "a.py"
    assert not could_both_match(Glob.parse("src/*.py"), Glob.parse("src/*.pyi"), Meter())
    assert not could_both_match(Glob.parse("src/"), Glob.parse("src?/**"), Meter())
    assert is_among(WorkspacePath("b/c"), [Glob.parse("a"), Glob.parse("b")])


def test_a_glob_of_many_stars_takes_no_time() -> None:
    glob = Glob.parse("*a" * 60 + "*b")
    deep = Glob.parse("/".join(["**/a*"] * 40) + "/b")
    began = time.process_time()
    assert not glob.matches(WorkspacePath("a" * 4000))
    assert not deep.matches(WorkspacePath("/".join(["a"] * 2000)))
    assert common_path(glob, deep, Meter()) is None
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("*a" * 199 + "b", "a*" * 199 + "c"),
        (
            f"[{''.join(map(chr, range(256, 636, 2)))}]*" * 2,
            f"[{''.join(map(chr, range(257, 637, 2)))}]*" * 2,
        ),
    ],
)
def test_globs_made_to_be_hard_are_taken_to_meet_once_the_meter_has_run_out(one: str, other: str) -> None:
    first, second = Glob.parse(one), Glob.parse(other)
    meter = Meter()
    began = time.monotonic()
    for _ in range(64):
        could_both_match(first, second, meter)
    assert time.monotonic() - began < 5.0
    assert meter.states <= 0
    assert could_both_match(Glob.parse("src/*.py"), Glob.parse("src/*.pyi"), meter), (
        "it is not known any more"
    )
    assert not could_both_match(Glob.parse("src/*"), Glob.parse("docs/*"), meter), (
        "what they begin with tells"
    )


def test_a_set_of_globs_has_the_paths_that_any_of_them_matches() -> None:
    texts = ["a", "b/", "c/**", "d/*", "**/e", "a/b/c/", "x/y"]
    every = [
        WorkspacePath("/".join(names))
        for n in (1, 2, 3, 4)
        for names in itertools.product("abcdexy", repeat=n)
    ]
    for chosen in (texts, texts[:3], texts[3:5], []):
        globs = parse_all(chosen, "A test")
        parsed = [Glob.parse(text).pattern for text in chosen]
        for path in every:
            assert is_among(path, globs) == any(one.fullmatch(path.text) is not None for one in parsed)


def test_a_literal_glob_is_compared_by_its_text_and_never_compiled() -> None:
    globs = parse_all(["a/b", "c/", "d/**"], "A test")
    assert is_among(WorkspacePath("a/b/c"), globs)
    assert not is_among(WorkspacePath("c"), globs)
    assert not {"names", "pattern"} & {name for glob in globs for name in vars(glob)}
