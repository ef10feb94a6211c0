"""The manual pages are made from the text of `--help`, and are such as man(1) shows without complaint."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import manual

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(manual.pages())


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def test_the_pages_say_what_the_help_says() -> None:
    assert manual.stale() == [], "`python tests/manual.py --write` makes them anew"


@needs("mandoc")
@pytest.mark.parametrize("name", NAMES)
def test_mandoc_finds_nothing_to_warn_of(name: str) -> None:
    done = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(manual.PAGES / name)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs("man")
@pytest.mark.parametrize("name", NAMES)
def test_man_shows_a_page_without_a_warning_and_commands_as_they_are_typed(name: str) -> None:
    done = subprocess.run(
        ["man", "--warnings=w", "--local-file", str(manual.PAGES / name)],
        env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "PAGER": "cat"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    if name == "man1/editctl.1":
        assert "    editctl undo 12 --hunk src/app.py:2\n" in done.stdout
        assert (
            'editctl config set history.keep \'{ age = "90d", count = 10000, bytes = "2GiB" }\''
            in done.stdout
        )


def test_what_roff_would_take_for_a_request_is_text(tmp_path: Path) -> None:
    assert manual._line(".SH no heading") == r"\&.SH no heading"
    assert manual._escaped(r"a\fB-'^~`" + '"') == r"a\efB\-\(aq\(ha\(ti\(ga\(dq"
    page = tmp_path / "page.1"
    page.write_text('.TH X 1 2026-01-01 "x" "x"\n.SH NAME\nx \\- y\n' + manual._line(".nonsense 'x'") + "\n")
    if shutil.which("man") is not None:
        done = subprocess.run(["man", "-l", str(page)], capture_output=True, text=True, check=False)
        assert ".nonsense 'x'" in done.stdout
