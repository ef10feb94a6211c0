"""docs/protocol.md: its examples do what they say, with the real daemon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.workplace import Workplace

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "protocol.md").read_text()


def example(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def environment(place: Workplace) -> dict[str, str]:
    """The workplace's, with an `editctl` to be found."""
    given = place.environment
    return {**given, "PATH": f"{place.provide_editctl()}{os.pathsep}{given['PATH']}"}


def test_the_python_example_makes_a_transaction_and_its_repetition_is_refused(
    place: Workplace, environment: dict[str, str]
) -> None:
    place.start().close()
    said = [
        subprocess.run(
            [sys.executable, "-c", example("python")],
            cwd=place.root, env=environment, capture_output=True, text=True, check=True, timeout=30,
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert place.files() == {"hello.txt": b"hello\n"}
    assert "'seq': 1" in said[0]
    assert "hello.txt exists already" in said[1]
    place.stop()
