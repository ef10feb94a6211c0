"""Calls of Codex's `apply_patch` at random, and what is to come of each, said another way.

The files are small and full of lines that are alike, so that every way to place the hunks can be tried.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from editd.errors import MalformedEdit, Refused
from editd.tools.codex_patch import CodexHunk, parse
from tool_calls import Workspace, on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from random import Random

_LINES = ("a", "a", "b", "b", "c", "", "  a", "\tb", "b ", "\u2013", "-", "{", "}", "é", "@@", "*** x")
_ALIKE = str.maketrans({"\u2013": "-"})
_FORMS = (str, str.rstrip, str.strip, lambda line: line.strip().translate(_ALIKE))
_OTHER = (
    "*** Add File: new.txt", "*** Delete File: f.txt", "*** Update File: f.txt", "*** Move to: g.txt", "@@",
    "@@ a", "+x", "-a", " a", "", "x", "*** End of File", "*** End Patch", "*** Begin Patch", "@", "*** ",
)  # fmt: skip


def calls(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield texts of a file `f.txt` with a patch for it, for ever; some of them cannot be read."""
    while True:
        lines = random.choices(_LINES, k=random.randint(0, 9))
        patch = ["*** Begin Patch", "*** Update File: f.txt"]
        if random.random() < 0.1:
            patch.append("*** Move to: g.txt")
        position = 0
        for _ in range(random.choice((1, 1, 2, 3))):
            hunk, position = _hunk(random, lines, position)
            patch += hunk
        patch.append("*** End Patch")
        if random.random() < 0.1:
            patch.insert(random.randint(0, len(patch)), random.choice(_OTHER))
        if random.random() < 0.05:
            del patch[random.randrange(len(patch))]
        if random.random() < 0.05:
            patch = ["<<'EOF'", *patch, "EOF"]
        end = random.choice(("\n", "\n", "\n", "\r\n", "\r"))
        yield (
            end.join(lines) + random.choice((end, end, "") if lines else ("",)),
            {random.choice(("input", "input", "patch")): random.choice(("\n", "\n", "\r\n")).join(patch)},
        )


def _hunk(random: Random, lines: Sequence[str], position: int) -> tuple[list[str], int]:
    """The lines of a hunk for a place from `position` on, or nearly so, and where the next may begin."""
    start = random.randint(min(position, len(lines)), len(lines))
    end = min(start + random.randint(0, 3), len(lines))
    headers = []
    if start and random.random() < 0.3:
        above = sorted(random.sample(range(start), min(start, random.choice((1, 1, 2)))))
        headers = [f"@@ {lines[index]}" for index in above]
    hunk = headers or ["@@"]
    for line in lines[start:end]:
        bent = random.choice((line,) * 9 + (line.strip(), f" {line}", f"{line} "))
        hunk.append(random.choice(" -") + bent)
        if random.random() < 0.4:
            hunk.append("+" + random.choice(_LINES))
    if end == start or random.random() < 0.2:
        hunk.append("+" + random.choice(_LINES))
    if random.random() < 0.1:
        hunk.append(random.choice(("", " ")))
    if end == len(lines) and random.random() < 0.3:
        hunk.append("*** End of File")
    return hunk, end


def check(text: str, args: dict[str, Any]) -> str:
    """Make the call, look at what comes of it, and return its name."""
    (patch,) = args.values()
    place = on({"f.txt": text})
    refusal = _refusal(place, args)
    if refusal is not None:
        assert refusal.hint
        assert place.files == {"f.txt": text.encode()}
        if refusal.code == "malformed_edit":
            assert 1 <= refusal.data["line"] <= len(patch.split("\n"))
        elif refusal.code in ("no_match", "ambiguous") and (hunks := _only_hunks(patch)) is not None:
            ways = len(_ways(_lines(text), hunks))
            assert ways != 1
            assert (ways == 0) == (refusal.code == "no_match")
        return refusal.code
    hunks = _only_hunks(patch)
    if hunks is None:
        return "other"
    (after,) = (content.decode() for content in place.files.values())
    (way,) = _ways(_lines(text), hunks)
    assert _plain(after) == _made(_plain(text), hunks, way)
    assert "\r" in text or "\r" not in after
    return "ok"


def _refusal(place: Workspace, args: dict[str, Any]) -> Refused | None:
    try:
        place.call("codex", "apply_patch", args)
    except Refused as refusal:
        return refusal
    return None


def _only_hunks(patch: str) -> tuple[CodexHunk, ...] | None:
    """The hunks of a patch that has but one update of `f.txt`."""
    try:
        sections = parse(patch)
    except MalformedEdit:
        return None
    return sections[0].hunks if len(sections) == 1 and sections[0].kind == "Update" else None


def _ways(lines: Sequence[str], hunks: Sequence[CodexHunk]) -> set[tuple[tuple[int, int], ...]]:
    """Every way to place the hunks: for each where it begins and how many lines it takes there."""
    options: list[list[tuple[int, int, int]]] = []
    cursor = 0
    for hunk in hunks:
        options.append(_options(lines, hunk, cursor))
        if not options[-1]:
            return set()
        if any(sign != "+" for sign, _ in hunk.lines):
            cursor = min(start + size for _, start, size in options[-1])
    return {tuple((start, size) for _, start, size in way) for way in product(*options) if _is_in_order(way)}


def _is_in_order(way: Sequence[tuple[int, int, int]]) -> bool:
    taken = 0
    for begin, start, size in way:
        if size:
            if begin < taken:
                return False
            taken = start + size
    return True


def _options(lines: Sequence[str], hunk: CodexHunk, cursor: int) -> list[tuple[int, int, int]]:
    old = [text for sign, text in hunk.lines if sign != "+"]
    if not old:
        return [(len(lines), len(lines), 0)]
    froms: Sequence[tuple[int | None, int]] = [(None, cursor)]
    for header in hunk.headers:
        froms = _following(lines, header, froms)
    droppable = 0
    while droppable < len(old) and all(signed == (" ", "") for signed in hunk.lines[-droppable - 1 :]):
        droppable += 1
    for dropped in range(min(droppable, len(old) - 1) + 1):
        wanted = old[: len(old) - dropped]
        for form in _FORMS:
            found = []
            for begin, first in froms:
                starts = [
                    start
                    for start in range(first, len(lines) - len(wanted) + 1)
                    if [form(line) for line in lines[start : start + len(wanted)]]
                    == [form(x) for x in wanted]
                    and (not hunk.is_at_end or start + len(wanted) == len(lines))
                ]
                if begin is None:
                    found += [(start, start, len(wanted)) for start in starts]
                elif starts:
                    found.append((begin, starts[0], len(wanted)))
            if found:
                return found
    return []


def _following(
    lines: Sequence[str], header: str, froms: Sequence[tuple[int | None, int]]
) -> list[tuple[int | None, int]]:
    """From each line, or for the first header from all after it, where the line that it names ends."""
    for form in _FORMS:
        found: list[tuple[int | None, int]] = []
        for begin, first in froms:
            here = [index for index in range(first, len(lines)) if form(lines[index]) == form(header)]
            if begin is None:
                found += [(index, index + 1) for index in here]
            elif here:
                found.append((begin, here[0] + 1))
        if found:
            return found
    return []


def _made(text: str, hunks: Sequence[CodexHunk], way: Sequence[tuple[int, int]]) -> str:
    lines: list[list[str]] = [[line] for line in _lines(text)]
    added: list[str] = []
    before: dict[int, list[str]] = {}
    for hunk, (start, size) in zip(hunks, way, strict=True):
        index = start
        for sign, new in hunk.lines:
            if sign != "+" and index < start + size:
                if sign == "-":
                    lines[index] = []
                index += 1
            elif sign == "+":
                (before.setdefault(index, []) if size else added).append(new)
    made = [line for index, kept in enumerate(lines) for line in (*before.get(index, ()), *kept)]
    made += [*before.get(len(lines), ()), *added]
    is_ended = text.endswith("\n") or not text
    return "\n".join(made) + ("\n" if is_ended and made else "")


def _lines(text: str) -> list[str]:
    lines = _plain(text).split("\n")
    return lines if lines[-1] else lines[:-1]


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
