"""docs/python.md: its examples run, one after another, and print what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from support.workplace import TOP

if TYPE_CHECKING:
    from support.workplace import Workplace

PAGE = (TOP / "docs/python.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_page_prints_what_the_page_says(place: Workplace) -> None:
    """All in one process, since a page is read from top to bottom; a line of its own parts their output."""
    assert len(EXAMPLES) == PAGE.count("```python") > 6
    program = "".join(f"{code}\nprint('-- end', flush=True)\n" for code, _ in EXAMPLES)
    place.variables |= {"GIT_CONFIG_GLOBAL": "/dev/null"}
    client = place.start()
    with client:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=place.root, env=place.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for (code, expected), printed in zip(EXAMPLES, done.stdout.split("-- end\n"), strict=False):
        assert printed == expected, code
