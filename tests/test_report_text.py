"""A failed test whose text has lone surrogates fails alone, and not the run."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from support.report_text import printable
from support.workplace import TOP

if TYPE_CHECKING:
    from pathlib import Path

FAILING = """
import sys

def test_it():
    print("the name \\udcff")
    assert "\\udcff" == "a", [b"\\xff", "\\udcff"]
"""


def test_lone_surrogates_are_escaped_in_each_part() -> None:
    report = {"sections": [("out", "a\udcff"), ("\ud800", 1)], "when": None}
    assert printable(report) == {"sections": [("out", "a\\udcff"), ("\\ud800", 1)], "when": None}


def test_a_report_with_lone_surrogates_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from support.report_text import pytest_report_to_serializable\n")
    (tmp_path / "test_it.py").write_text(FAILING)
    options = ["-p", "no:cacheprovider", "-n", "1", "--rootdir", str(tmp_path)]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOP / "tests")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, tmp_path],
        capture_output=True, text=True, cwd=tmp_path, check=False, env=variables,
    )  # fmt: skip
    assert "1 failed" in done.stdout, done.stdout + done.stderr
