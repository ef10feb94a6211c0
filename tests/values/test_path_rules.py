"""The evaluator of the rules on paths, beside a small model and random rules, on each kind of file system."""

from __future__ import annotations

import random
import unicodedata
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pytest

from editd.values import name_key
from editd.values.glob import Glob, GlobSet
from editd.values.name_key import fold
from editd.values.path import WorkspacePath
from editd.values.path_rules import KINDS, RuleOnPaths, fits
from support.seeds import drawn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.values.path_rules import Action, KindName

FOLDINGS = ["", "case", "form", "case and form"]
ROUNDS = 400
NAMES = [
    "a",
    "A",
    "b.txt",
    "B.TXT",
    "\u00e9",
    "e\u0301",
    "E\u0301",
    "stra\u00dfe",
    "STRASSE",
    "a\u200bb",
    "ab",
]
WILD = ["*", "?", "*.txt", "**", "[ab]*", "A*", "\u00c9"]
SESSIONS = ["s1", "s2", "S1", None]
PATTERNS = ["s*", "s1", "?2", "S1", "*"]


@pytest.fixture(autouse=True)
def _unfolded() -> Iterator[None]:
    yield
    name_key.set_folding("")


def random_glob(chance: random.Random) -> str:
    names = [chance.choice(NAMES if chance.random() < 0.7 else WILD) for _ in range(chance.randint(1, 3))]
    return "/".join(names) + ("/" if chance.random() < 0.2 else "")


def random_path(chance: random.Random) -> str:
    return "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 4)))


# ── the model ──


def form(text: str, folding: str) -> str:
    """The one spelling of a name on a file system."""
    if "form" in folding:
        text = unicodedata.normalize("NFD", text.replace("\u200b", ""))
    if "case" in folding:
        text = text.casefold()
    return unicodedata.normalize("NFC", text) if "form" in folding else text


def names_match(globs: Sequence[str], names: Sequence[str]) -> bool:
    if not globs:
        return not names
    if globs[0] == "**":
        least = 1 if len(globs) == 1 else 0
        rest = [()] if len(globs) == 1 else [names[count:] for count in range(len(names) + 1)]
        return len(names) >= least and any(names_match(globs[1:], one) for one in rest)
    return bool(names) and fnmatchcase(names[0], globs[0]) and names_match(globs[1:], names[1:])


def is_wild(name: str) -> bool:
    return any(character in name for character in "*?[")


def model_matches(glob: str, path: str) -> bool:
    globs, names = glob.removesuffix("/").split("/"), path.split("/")
    above = [names[:count] for count in range(1, len(names))]
    if glob.endswith("/"):
        return any(names_match(globs, one) for one in above)
    return names_match(globs, names) or (
        not is_wild(globs[-1]) and any(names_match(globs, one) for one in above)
    )


def model_bars(glob: str, path: str) -> bool:
    """A file at the path takes the place of a folder that all paths of the glob are in."""
    globs, names = glob.removesuffix("/").split("/"), path.split("/")
    folders = globs if glob.endswith("/") else globs[:-1]
    return len(folders) >= len(names) and not any(map(is_wild, names)) and folders[: len(names)] == names


def model(
    kind: KindName, globs: list[str], exceptions: list[str], sessions: list[str], ends: bool,
    path: str, session: str | None, folding: str, *, is_made: bool,
) -> bool:  # fmt: skip
    if kind == "exclude":
        folding = "case and form"
    globs, path = [form(glob, folding) for glob in globs], form(path, folding)
    is_among = any(model_matches(glob, path) for glob in globs)
    is_barred = is_made and any(model_bars(glob, path) for glob in globs)
    match kind:
        case "exclude":
            return is_among and not any(model_matches(form(one, folding), path) for one in exceptions)
        case "protect":
            return is_among or is_barred
        case "pause":
            return session == sessions[0]
        case "scope":
            return session == sessions[0] and not is_among
        case "lease":
            return not ends and session != sessions[0] and (is_among or is_barred)
        case "grant":
            return not ends and session == sessions[0] and is_among
        case "review":
            is_for = session is not None and any(fnmatchcase(session, one) for one in sessions)
            return is_for and is_among


ACTIONS: dict[KindName, Action] = {kind: facts.actions[0] for kind, facts in KINDS.items()}


@pytest.mark.parametrize("folding", FOLDINGS)
@pytest.mark.parametrize("seed", drawn(40, 2))
def test_a_rule_fits_as_a_small_model_says(folding: str, seed: int) -> None:
    name_key.set_folding(folding)
    chance = random.Random(seed)
    fitting = 0
    for _ in range(ROUNDS):
        kind = chance.choice(list(KINDS))
        globs = [random_glob(chance) for _ in range(chance.randint(1, 3))]
        exceptions = [random_glob(chance) for _ in range(chance.randint(0, 1))] if kind == "exclude" else []
        sessions = [chance.choice(PATTERNS if kind == "review" else ["s1", "s2"])]
        ends, is_made = chance.random() < 0.3, chance.random() < 0.5
        session, path = chance.choice(SESSIONS), random_path(chance)
        if chance.random() < 0.5:
            path = chance.choice(globs).removesuffix("/").replace("*", "a").replace("?", "b").replace("[", "")
            path = path.replace("]", "")
        spelled = fold if KINDS[kind].is_always_folded else str
        rule = RuleOnPaths(
            kind,
            ACTIONS[kind],
            GlobSet(Glob.parse(spelled(glob)) for glob in globs),
            GlobSet(Glob.parse(spelled(glob)) for glob in exceptions),
            tuple(sessions) if KINDS[kind].sessions != "all" else None,
            (0 if ends else 2) if KINDS[kind].has_end else None,
        )
        facts = (kind, globs, exceptions, sessions, ends, path, session)
        answer = fits(rule, WorkspacePath(path), session, 1, is_made=is_made)
        assert answer == model(*facts, folding, is_made=is_made), (facts, is_made)
        fitting += answer
    assert ROUNDS / 10 < fitting < ROUNDS * 0.9
