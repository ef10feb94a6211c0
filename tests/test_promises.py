"""docs/promises.md: what it names as proof is there."""

from __future__ import annotations

import re

import pytest

from support.workplace import TOP

PAGE = (TOP / "docs/promises.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_promise_names_a_proof() -> None:
    promises = re.findall(r"^\| \*\*(P\d+)\*\* \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in promises] == [f"P{number}" for number in range(1, len(promises) + 1)]
    assert len(promises) > 10
    assert all("tests/" in proof for *_, proof in promises)


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_what_is_named_as_a_proof_is_there(file: str, test: str) -> None:
    text = (TOP / file).read_text()
    assert f"def {test or 'test_'}" in text, f"{file} has no {test}"
