"""axe, the checker of accessibility from npm, for pages in Chromium.

    python tests/support/axe.py    # installs it, once, for the tests

The tests install nothing: without it they are skipped, and say so.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING

if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[0] = os.path.dirname(sys.path[0])

from support.real_agents import FOLDER, install

if TYPE_CHECKING:
    from support.chromium import Tab

PACKAGE = "axe-core@4.14.1"
SCRIPT = FOLDER / "axe" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = f"""
axe.run(document, {{ runOnly: {{ type: 'tag', values: {RULES} }} }}).then(found => found.violations.flatMap(
  one => one.nodes.map(node => `${{one.id}}: ${{node.target}} ${{node.failureSummary}}`)))
"""


@cache
def _script() -> str:
    import pytest  # late: the installation runs before any test's environment is there

    if not SCRIPT.exists():
        pytest.skip("axe is not installed: `python tests/support/axe.py` does it, with npm")
    return SCRIPT.read_text()


def violations(tab: Tab) -> list[str]:
    """Return what axe finds on the page, each with its rule and its element. Skip the test without axe."""
    tab.run(_script())
    found: list[str] = tab.run(RUN)
    return found


if __name__ == "__main__":
    install("axe", PACKAGE)
