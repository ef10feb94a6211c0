"""The list of hand-made mistakes fits the code: each is found in one place, and its tests exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mutants.__main__ import TOP, Mutant, load, places, sources
from support.seeds import share

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MUTANTS = load()


def test_each_mutant_has_an_id_of_its_own() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)


def test_each_mutant_fits_one_place_of_the_code_and_python_compiles(is_long: bool) -> None:
    """The short form compiles a third of them, by the seed."""
    texts = sources(TOP)
    compiled = set(MUTANTS if is_long else share(MUTANTS, 3))
    misfits = {mutant.id: _misfit(mutant, texts, is_compiled=mutant in compiled) for mutant in MUTANTS}
    assert {name: reason for name, reason in misfits.items() if reason is not None} == {}


def _misfit(mutant: Mutant, texts: Mapping[Path, str], *, is_compiled: bool) -> str | None:
    """Return why a mutant is none; None if it is one."""
    files = places(mutant, texts)
    if len(files) != 1:
        return f"it fits {len(files)} files"
    text = texts[files[0]]
    mistaken = mutant.apply(text)
    if mistaken == text:
        return "it changes nothing"
    if is_compiled and files[0].suffix == ".py":
        try:
            compile(mistaken, str(files[0]), "exec")
        except SyntaxError as error:
            return str(error)
    return None


def test_each_test_that_a_mutant_names_exists() -> None:
    assert (
        sorted(test for test in {test for mutant in MUTANTS for test in mutant.tests} if not _exists(test))
        == []
    )


def _exists(test: str) -> bool:
    file, _, name = test.partition("::")
    path = TOP / file
    return path.exists() and (not name or f"def {name.partition('[')[0]}(" in path.read_text())
