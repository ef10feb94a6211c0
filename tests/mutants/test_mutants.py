"""The list of hand-made mistakes fits the code: each is found in one place, and its tests exist."""

from __future__ import annotations

import pytest

from mutants.__main__ import TOP, Mutant, load, places

MUTANTS = load()


def test_each_mutant_has_an_id_of_its_own() -> None:
    assert len({mutant.id for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.id for mutant in MUTANTS])
def test_a_mutant_fits_one_place_of_the_code_and_python_compiles(mutant: Mutant) -> None:
    (file,) = places(mutant, TOP)
    text = file.read_text()
    mistaken = mutant.apply(text)
    assert mistaken != text
    if file.suffix == ".py":
        compile(mistaken, str(file), "exec")


@pytest.mark.parametrize("test", sorted({test for mutant in MUTANTS for test in mutant.tests}))
def test_a_test_that_a_mutant_names_exists(test: str) -> None:
    file, _, name = test.partition("::")
    if name:
        assert f"def {name.partition('[')[0]}(" in (TOP / file).read_text()
    else:
        assert (TOP / file).exists()
