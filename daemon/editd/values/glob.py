"""Globs: the paths that they match, by their text alone, and whether two can match the same path.

A glob is relative to the workspace's root, as in gitignore: `*` and `?` stay within one name, `[a-z]` and
`[!a-z]` are one character, `**` is any number of folders, `\\` takes the next character literally. If its
last name has no wildcard, a glob also matches everything below it. If it ends in `/` or `**`, it matches only
the paths below.

A glob has two forms. An expression matches paths, without backtracking over `*` and `**`, because the
leftmost match is as good as any. An automaton finds the intersection of two globs exactly.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import Struct

from editd.errors import InvalidParams
from editd.values.name_key import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from editd.values.path import WorkspacePath

GLOB_CHARACTERS_MAX = 400  # with wildcards: two globs have the square of so many states
PLAIN_CHARACTERS_MAX = 4095  # a path without wildcards is as long as paths are
GLOBS_MAX = 1000  # of a scope, a subscription or a filter; with the next two, parsing takes 0.15 s at most
ALL_CHARACTERS_MAX = 16_000  # of them together
ALL_CLASSES_MAX = 25  # of them together: `re` takes 2 ms for a class that is wide enough
CHARACTERS_A_STATE = 20  # of an automaton that are made in the time that one state takes
STATES_MAX = 10_000  # visited to compare globs for one request: some 0.3 s

Span = tuple[int, int]  # of code points, both ends included
Characters = tuple[Span, ...]
_State = tuple[int, int, int]  # of the first automaton, of the second, and of the path's shape

_Within = tuple[int, frozenset[tuple[int, int]], int]  # of the inner one, of all outer ones, and the shape
_Step = TypeVar("_Step", _State, _Within)

_WILDCARD = re.compile(r"[*?\[\\]")

SLASH: Final[Characters] = ((0x2F, 0x2F),)
IN_NAME: Final[Characters] = ((0x01, 0x2E), (0x30, 0x10FFFF))  # all but NUL and `/`
ANY: Final[Characters] = ((0x01, 0x10FFFF),)


class Star(Struct, frozen=True):
    """Any number of characters of one name."""


Piece = Characters | Star
Name = tuple[Piece, ...] | None  # None is `**`


@dataclass(frozen=True)
class Glob:
    """One glob. Only `parse` and `reparse` make one.

    Its names and its expression are made when they are first needed. A literal glob needs neither, because
    its text is compared: a daemon with thousands of leased files starts as fast as one without.
    """

    text: str
    stem: str = field(repr=False, compare=False)  # the beginning of every path that it matches
    is_below: bool = field(repr=False, compare=False)  # it ends in `/`: all below the folder, not itself
    literal: str | None = field(repr=False, compare=False)
    """The path that it matches with all below, or all below only. None for a glob with other wildcards."""
    is_inside: bool = field(repr=False, compare=False)  # a literal one matches only the paths below

    @classmethod
    def parse(cls, text: str) -> Glob:
        """Return the glob. Raises InvalidParams."""
        has_wildcards = _WILDCARD.search(text) is not None
        if len(text) > (GLOB_CHARACTERS_MAX if has_wildcards else PLAIN_CHARACTERS_MAX):
            raise _refusal(text, f"is longer than {GLOB_CHARACTERS_MAX} characters")
        if text.startswith("!"):
            raise _refusal(text, "begins with `!`; a glob can only include paths, not exclude them")
        parts = _bare(text).removesuffix("/").split("/")
        if any(part in ("", ".", "..") for part in parts) or "\0" in text:
            raise _refusal(text, "has an empty name, a `.` or a `..` in it")
        glob = cls.reparse(text)
        if glob.literal is None:
            assert glob.names, "a text without names was refused"  # this refuses a class that is not closed
        return glob

    @classmethod
    def reparse(cls, text: str) -> Glob:
        """Return the glob of a text that `parse` has accepted before."""
        bare = _bare(text)
        folder = bare.removesuffix("/**") if bare.endswith("/**") else bare.removesuffix("/")
        literal = folder if _WILDCARD.search(folder) is None else None
        stem = _WILDCARD.split(bare, maxsplit=1)[0].removesuffix("/" if bare.endswith("/") else "")
        return cls(text, stem, bare.endswith("/"), literal, bare.endswith(("/", "/**")))

    @cached_property
    def names(self) -> tuple[Name, ...]:
        parts = _bare(self.text).removesuffix("/").split("/")
        return tuple(_without_repetition(_name(part, self.text) for part in parts))

    @cached_property
    def is_plain(self) -> bool:
        """Whether its last name has no wildcard."""
        return _is_plain(self.names[-1])

    @cached_property
    def folder(self) -> str:
        """The folder above every path that it matches; "" is the root."""
        if self.literal is not None:
            return self.literal if self.is_inside else self.literal.rpartition("/")[0]
        return _folder(self.names, is_below=self.is_below)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        expression = _expression(self.names, is_plain=self.is_plain, is_below=self.is_below)
        return re.compile(expression, re.DOTALL)

    def matches(self, path: WorkspacePath) -> bool:
        return self.matches_key(key_of(path.text))

    def matches_key(self, key: str) -> bool:
        """Return whether the glob matches the path with this key."""
        if self.literal is None:
            return key.startswith(self.stem) and self.pattern.fullmatch(key) is not None
        if len(key) == len(self.literal):
            return not self.is_inside and key == self.literal
        return key.startswith(self.literal) and key[len(self.literal)] == "/"

    def may_match_within(self, path: str) -> bool:
        """Return whether the glob may match `path` or a path below it. It never answers no in error."""
        places = self._places_after(path)
        return places is None or bool(places)

    def may_match_below(self, folder: str) -> bool:
        """Return whether the glob may match a path below the folder with this key, in time linear in both."""
        if self.literal is not None:
            return _is_at_or_above(self.literal, folder) or _is_at_or_above(folder, self.literal)
        places = self._places_after(folder)
        last = len(self.names)
        return places is None or self._has_all_below(places) or any(position < last for position in places)

    def _places_after(self, path: str) -> set[int] | None:
        """Return the places in the names after `path`; None if all below a folder of it matches."""
        last = len(self.names)
        places = {0}
        for part in path.split("/"):
            places = self._with_optional(places)
            if self._has_all_below(places):
                return None
            places -= {last}
            stay = {position for position in places if self.names[position] is None}
            places = stay | {
                position + 1 for position in places - stay if self._of_names[position].fullmatch(part)
            }
        return places

    def _has_all_below(self, places: set[int]) -> bool:
        is_open = self.is_plain or self.is_below or self.names[-1] is None
        return is_open and len(self.names) in places

    def _with_optional(self, places: set[int]) -> set[int]:
        """Return the places in the names, with the next ones behind each `**`, which may be no folder."""
        return places | {
            position + 1 for position in places if position < len(self.names) and self.names[position] is None
        }

    @cached_property
    def _of_names(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile("" if name is None else _name_expression(name)) for name in self.names)

    def is_barred_by(self, path: WorkspacePath) -> bool:
        """Return whether a file at `path` would leave no room for any path that the glob matches."""
        return _is_at_or_above(key_of(path.text), self.folder)

    def __str__(self) -> str:
        return self.text


class GlobSet(tuple[Glob, ...]):
    """Several globs. A path is compared with all literal ones at once, and with each of the others."""

    @classmethod
    def of(cls, globs: Iterable[Glob]) -> GlobSet:
        return globs if isinstance(globs, GlobSet) else cls(globs)

    @cached_property
    def _literals(self) -> tuple[frozenset[str], frozenset[str]]:
        """The paths that match with all below, and the folders that match only below."""
        literal = [(glob.literal, glob.is_inside) for glob in self if glob.literal is not None]
        whole = frozenset(text for text, is_inside in literal if not is_inside)
        return whole, whole | frozenset(text for text, is_inside in literal if is_inside)

    @cached_property
    def _others(self) -> tuple[Glob, ...]:
        return tuple(glob for glob in self if glob.literal is None)

    @property
    def comparisons(self) -> int:
        """The number of comparisons with one path that no glob matches."""
        return 1 + len(self._others)

    def has(self, path: WorkspacePath) -> bool:
        """Return whether any of the globs matches this path."""
        return self.has_key(key_of(path.text))

    def has_key(self, key: str) -> bool:
        """Return whether any of the globs matches the path with this key."""
        whole, folders = self._literals
        if folders and (key in whole or any(folder in folders for folder in folders_of_key(key))):
            return True
        return any(glob.matches_key(key) for glob in self._others)


def folders_of_key(key: str) -> Iterator[str]:
    """Yield the folders above a path, the innermost first."""
    end = key.rfind("/")
    while end > 0:
        yield key[:end]
        end = key.rfind("/", 0, end)


def parse_all(texts: Sequence[str], owner: str) -> GlobSet:
    """Parse the globs of `owner`. Raises InvalidParams, also for too many of them."""
    check_count(texts, owner)
    return GlobSet(map(Glob.parse, texts))


def known_globs(texts: Iterable[str]) -> GlobSet:
    """Return the globs of texts that `parse_all` has accepted before."""
    return GlobSet(map(Glob.reparse, texts))


def check_count(texts: Sequence[str], owner: str) -> None:
    """Raise InvalidParams for more globs than `owner` may have."""
    counts = (
        (len(texts), GLOBS_MAX),
        (sum(map(len, texts)), ALL_CHARACTERS_MAX),
        (sum(text.count("[") for text in texts), ALL_CLASSES_MAX),
    )
    if any(count > most for count, most in counts):
        raise InvalidParams(
            f"{owner} has at most {GLOBS_MAX} globs, of {ALL_CHARACTERS_MAX} characters in all, with at most "
            f"{ALL_CLASSES_MAX} classes, such as `[a-z]`.",
            hint="Use a folder's glob, which matches everything below it.",
        )


def is_among(path: WorkspacePath, globs: Iterable[Glob]) -> bool:
    """Return whether any of the globs matches this path."""
    if isinstance(globs, GlobSet):
        return globs.has(path)
    return any(glob.matches(path) for glob in globs)


class Meter(Struct):
    """The work left for comparing globs; clients can make globs whose comparison would never end."""

    states: int = STATES_MAX


class Exhausted(Exception):
    """The meter ran out before the result was known."""


def could_both_match(first: Glob, second: Glob, meter: Meter) -> bool:
    """Return whether any path can match both globs. If the meter runs out, the answer is yes."""
    if not first.stem.startswith(second.stem) and not second.stem.startswith(first.stem):
        return False
    if first.literal is not None and second.literal is not None:
        return _is_at_or_above(first.literal, second.literal) or _is_at_or_above(
            second.literal, first.literal
        )
    for glob, other in ((first, second), (second, first)):
        if glob.literal is not None and not other.may_match_within(glob.literal):
            return False
    try:
        return common_path(first, second, meter) is not None
    except Exhausted:
        return True


def common_path(first: Glob, second: Glob, meter: Meter) -> str | None:
    """Return the shortest path that both globs match, whether or not it exists; None if there is none.

    Raises Exhausted.
    """
    _charge(meter, (first, second))
    one, two = _automaton(first), _automaton(second)
    came: dict[_State, tuple[_State, str] | None] = {(0, 0, _BEGIN): None}
    waiting: deque[_State] = deque(came)
    while waiting:
        if meter.states <= 0:
            raise Exhausted
        meter.states -= 1
        state = waiting.popleft()
        if state[0] in one.accepting and state[1] in two.accepting and state[2] == _IN_A_NAME:
            return _way_to(state, came)
        for left, to_left in one.edges[state[0]]:
            for right, to_right in two.edges[state[1]]:
                meter.states -= len(left) * len(right) // 20
                for character, shape in _steps(left, right, state[2]):
                    reached = (to_left, to_right, shape)
                    if reached not in came:
                        came[reached] = (state, character)
                        waiting.append(reached)
    return None


def path_outside(inner: Glob, outer: Sequence[Glob], meter: Meter) -> str | None:
    """Return the shortest path that `inner` matches and none of `outer` does, or None if there is none.

    Raises Exhausted.
    """
    if inner in outer:
        return None
    if inner.literal is not None:
        if any(_reaches(glob, inner) for glob in outer):
            return None
        outer = [glob for glob in outer if glob.may_match_within(inner.literal)]
    _charge(meter, (inner, *outer))
    one, others = _automaton(inner), [_automaton(glob) for glob in outer]
    begin = (0, frozenset((number, 0) for number in range(len(others))), _BEGIN)
    came: dict[_Within, tuple[_Within, str] | None] = {begin: None}
    waiting: deque[_Within] = deque(came)
    while waiting:
        state = waiting.popleft()
        reached, among, shape = state
        meter.states -= 1 + len(among)
        if meter.states <= 0:
            raise Exhausted
        is_meant = any(at in others[number].accepting for number, at in among)
        if reached in one.accepting and shape == _IN_A_NAME and not is_meant:
            return _way_to(state, came)
        edges = [(number, *edge) for number, at in among for edge in others[number].edges[at]]
        for characters, to in one.edges[reached]:
            for character, next_shape in _samples(characters, [edge[1] for edge in edges], shape):
                meter.states -= len(edges) // 20
                after = frozenset(
                    (number, target) for number, meant, target in edges if _is_in(character, meant)
                )
                following = (to, after, next_shape)
                if following not in came:
                    came[following] = (state, character)
                    waiting.append(following)
    return None


def _charge(meter: Meter, globs: Iterable[Glob]) -> None:
    """Count the work of making the automata. Raises Exhausted."""
    if meter.states <= 0:
        raise Exhausted
    meter.states -= sum(len(glob.text) for glob in globs) // CHARACTERS_A_STATE


def _reaches(glob: Glob, inner: Glob) -> bool:
    """Return whether a literal glob matches all that another literal glob does."""
    if glob.literal is None or inner.literal is None or not _is_at_or_above(glob.literal, inner.literal):
        return False
    return inner.is_inside or not glob.is_inside or glob.literal != inner.literal


def _is_at_or_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


# ── parsing ──


def _bare(text: str) -> str:
    return key_of(text).removeprefix("/")


def _name(part: str, text: str) -> Name:
    if part == "**":
        return None
    pieces: list[Piece] = []
    at = 0
    while at < len(part):
        character = part[at]
        at += 1
        if character == "*":
            if not pieces or not isinstance(pieces[-1], Star):
                pieces.append(Star())
        elif character == "?":
            pieces.append(IN_NAME)
        elif character == "[":
            characters, at = _class(part, at, text)
            pieces.append(characters)
        else:
            if character == "\\":
                if at == len(part):
                    raise _refusal(text, "ends in a `\\` without a character after it")
                character = part[at]
                at += 1
            pieces.append(((ord(character), ord(character)),))
    return tuple(pieces)


def _class(part: str, at: int, text: str) -> tuple[Characters, int]:
    """Return the characters of a class that begins before `at`, and its end."""
    is_negated = part[at : at + 1] in ("!", "^")
    at += is_negated
    spans: list[Span] = []
    is_first = True
    while is_first or part[at : at + 1] != "]":
        is_first = False
        low, at = _class_character(part, at, text)
        high = low
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("]", ""):
            high, at = _class_character(part, at + 1, text)
        if low <= high:
            spans.append((low, high))
    return _both(_others(spans) if is_negated else tuple(sorted(spans)), IN_NAME), at + 1


def _class_character(part: str, at: int, text: str) -> tuple[int, int]:
    at += part[at : at + 1] == "\\"
    if at >= len(part):
        raise _refusal(text, "has a `[` that is not closed")
    return ord(part[at]), at + 1


def _others(spans: Sequence[Span]) -> Characters:
    """Return all characters that are in none of the spans."""
    others: list[Span] = []
    begin = 0
    for low, high in sorted(spans):
        if low > begin:
            others.append((begin, low - 1))
        begin = max(begin, high + 1)
    return (*others, (begin, 0x10FFFF)) if begin <= 0x10FFFF else tuple(others)


def _without_repetition(names: Iterable[Name]) -> Iterator[Name]:
    """Drop repeated `**`: `**/**` is the same as `**`."""
    before: Name = ()
    for name in names:
        if name is not None or before is not None:
            yield name
        before = name


def _is_plain(name: Name) -> bool:
    return name is not None and all(
        not isinstance(piece, Star) and len(piece) == 1 and piece[0][0] == piece[0][1] for piece in name
    )


def _folder(names: Sequence[Name], *, is_below: bool) -> str:
    """Return the names without wildcards that the glob begins with, its last one only if it is a folder."""
    literals: list[str] = []
    for name in names if is_below else names[:-1]:
        if name is None or not _is_plain(name):
            break
        literals.append("".join(chr(cast("Characters", piece)[0][0]) for piece in name))
    return "/".join(literals)


def _refusal(text: str, why: str) -> InvalidParams:
    return InvalidParams(
        f"The glob {text[:200]!r} {why}.",
        hint="Globs are relative to the root: `src/**/*.py`, `docs/`, `README.md`.",
        data={"glob": text[:200]},
    )


# ── matching ──


def _expression(names: Sequence[Name], *, is_plain: bool, is_below: bool) -> str:
    """Return the expression for whole paths. Names between two `**` match at their first place, for good."""
    chunks: list[list[Name]] = [[]]
    for name in names:
        if name is None:
            chunks.append([])
        else:
            chunks[-1].append(name)
    written = ["".join(_name_expression(name) + "/" for name in chunks[0])]
    for number, chunk in enumerate(chunks[1:], 1):
        inside = "".join(_name_expression(name) + "/" for name in chunk)
        is_last = number == len(chunks) - 1
        written.append(f"(?:[^/]+/)*{inside}" if is_last else f"(?>(?:[^/]+/)*?{inside})")
    if names[-1] is None:
        return "".join(written) + (".+/.+" if is_below else ".+")
    end = "".join(written).removesuffix("/")
    return end + ("/.+" if is_below else "(?:/.+)?" if is_plain else "")


def _name_expression(name: Name) -> str:
    """Return the expression of one name. Text between two `*` matches at its first place, as in `fnmatch`."""
    assert name is not None, "`**` is not one name"
    chunks: list[str] = [""]
    for piece in name:
        if isinstance(piece, Star):
            chunks.append("")
        else:
            chunks[-1] += _class_expression(piece)
    if len(chunks) == 1:
        return chunks[0]
    between = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1])
    return f"{chunks[0]}{between}[^/]*{chunks[-1]}"


def _class_expression(characters: Characters) -> str:
    if characters == IN_NAME:
        return "[^/]"
    if not characters:
        return "(?!)"  # a class of `/` only
    if len(characters) == 1 and characters[0][0] == characters[0][1]:
        return re.escape(chr(characters[0][0]))  # compiled ten times faster than a class
    is_most = (
        characters[-1][1] == 0x10FFFF
    )  # then the excluded characters are fewer, and far faster to compile
    spans = (f"\\U{low:08x}-\\U{high:08x}" for low, high in (_others(characters) if is_most else characters))
    return f"[{'^' if is_most else ''}{''.join(spans)}]"


# ── intersection ──

# The shape of a path's text: no empty name, no `.`, no `..`. A glob matches no other text.
_BEGIN, _DOT, _DOT_DOT, _IN_A_NAME = range(4)
_AFTER_A_DOT = {_BEGIN: _DOT, _DOT: _DOT_DOT, _DOT_DOT: _IN_A_NAME, _IN_A_NAME: _IN_A_NAME}
_DOTS: Final[Characters] = ((0x2E, 0x2E),)
_LETTERS: Final[Characters] = ((0x61, 0x7A),)
_NEITHER: Final[Characters] = ((0x01, 0x2D), (0x30, 0x10FFFF))


@dataclass
class _Automaton:
    """States from 0, the start; edges by the state they leave."""

    edges: list[list[tuple[Characters, int]]] = field(default_factory=lambda: [[]])
    accepting: set[int] = field(default_factory=set)

    def add(self, state: int, characters: Characters, to: int | None = None) -> int:
        """Add an edge from `state` to `to`, or to a new state; return its target."""
        if to is None:
            to = len(self.edges)
            self.edges.append([])
        self.edges[state].append((characters, to))
        return to


def _automaton(glob: Glob) -> _Automaton:
    made = _Automaton()
    state = 0
    last = len(glob.names) - 1
    for number, name in enumerate(glob.names):
        if name is None and number == last:
            state = _anything_after(made, state)
        elif name is None:
            inside = made.add(state, IN_NAME)
            made.add(inside, IN_NAME, inside)
            made.add(inside, SLASH, state)
            continue
        else:
            for piece in name:
                if isinstance(piece, Star):
                    made.add(state, IN_NAME, state)
                else:
                    state = made.add(state, piece)
        if number < last:
            state = made.add(state, SLASH)
    if not glob.is_below:
        made.accepting.add(state)
    if glob.is_below or glob.is_plain:
        made.accepting.add(_anything_after(made, made.add(state, SLASH)))
    return made


def _anything_after(made: _Automaton, state: int) -> int:
    reached = made.add(state, ANY)
    return made.add(reached, ANY, reached)


def _steps(left: Characters, right: Characters, shape: int) -> Iterator[tuple[str, int]]:
    """Yield a character for each step that both edges allow, and the shape of the path after it."""
    both = _both(left, right)
    if not both:
        return
    letters = _both(both, _LETTERS) or _both(both, _NEITHER)
    if letters:
        yield chr(letters[0][0]), _IN_A_NAME
    if _both(both, _DOTS):
        yield ".", _AFTER_A_DOT[shape]
    if shape == _IN_A_NAME and _both(both, SLASH):
        yield "/", _BEGIN


def _samples(characters: Characters, edges: Iterable[Characters], shape: int) -> Iterator[tuple[str, int]]:
    """Yield one character for each set of `characters` that all `edges` treat alike, and the next shape."""
    borders = {0x2E, 0x2F, 0x30, 0x61, 0x7B}  # `.`, `/`, and letters, so that the path is readable
    for meant in edges:
        for low, high in meant:
            borders |= {low, high + 1}
    begins = {begin for low, high in characters for begin in (low, *borders) if low <= begin <= high}
    for begin in sorted(begins, key=lambda begin: (not 0x61 <= begin <= 0x7A, begin)):
        if begin == 0x2F:
            if shape == _IN_A_NAME:
                yield "/", _BEGIN
        else:
            yield chr(begin), _AFTER_A_DOT[shape] if begin == 0x2E else _IN_A_NAME


def _is_in(character: str, meant: Characters) -> bool:
    return any(low <= ord(character) <= high for low, high in meant)


def _both(left: Characters, right: Characters) -> Characters:
    if left == right:
        return left
    return tuple(
        (max(low, other_low), min(high, other_high))
        for low, high in left
        for other_low, other_high in right
        if max(low, other_low) <= min(high, other_high)
    )


def _way_to(state: _Step, came: dict[_Step, tuple[_Step, str] | None]) -> str:
    characters: list[str] = []
    step = came[state]
    while step is not None:
        state, character = step
        characters.append(character)
        step = came[state]
    return "".join(reversed(characters))
