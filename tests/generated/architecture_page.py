"""The tables of gates and of path rules in docs/architecture.md. The rest of the page is written by hand."""

from __future__ import annotations

import re
from pathlib import Path

from editd.engine.landing_pipeline import GAPS, GATES, gates_of
from editd.values.path_rules import KINDS

FILE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
GATES_TABLE = re.compile(r"(?<=<!-- gates -->\n).*?(?=<!-- end of gates -->)", re.DOTALL)
RULES_TABLE = re.compile(r"(?<=<!-- path rules -->\n).*?(?=<!-- end of path rules -->)", re.DOTALL)


def text() -> str:
    """Return the text of the page."""
    page = GATES_TABLE.sub(lambda _: _gates(), FILE.read_text())
    return RULES_TABLE.sub(lambda _: _rules(), page)


def _rules() -> str:
    lines = [
        "| kind | from | paths | sessions | until | action | names | if several fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, kind in KINDS.items():
        paths = f"{kind.paths}{', and a folder that they need' if kind.covers_folders else ''}"
        cells = [
            f"`{name}`", kind.source, paths, kind.sessions, "its end" if kind.has_end else "–",
            ", ".join(kind.actions), "always folded" if kind.is_always_folded else "as the file system",
            kind.several,
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _gates() -> str:
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
