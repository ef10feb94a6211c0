"""The table of gates in docs/architecture.md. The rest of the page is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from editd.engine.landing_pipeline import GAPS, GATES, gates_of

FILE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
TABLE = re.compile(r"(?<=<!-- gates -->\n).*?(?=<!-- end of gates -->)", re.DOTALL)


def text() -> str:
    """Return the text of the page."""
    return TABLE.sub(lambda _: _table(), FILE.read_text())


def _table() -> str:
    kinds = list(GAPS)
    lines = [f"| gate | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    lines += [
        f"| `{gate}` | " + " | ".join("yes" if gate in gates_of(kind) else "–" for kind in kinds) + " |"
        for gate in GATES
    ]
    reasons: dict[tuple[str, str], list[str]] = {}
    for kind, gaps in GAPS.items():
        for gate, reason in gaps.items():
            reasons.setdefault((kind, reason), []).append(f"`{gate}`")
    listed = [f"- {kind}, {', '.join(gates)}: {reason}" for (kind, reason), gates in reasons.items()]
    return "\n".join([*lines, "", "The reason for each gap:", "", *listed, ""])
