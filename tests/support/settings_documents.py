"""Random settings as agents have them: objects as JSON with comments, odd space and trailing commas."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "hooks", "PreToolUse", "mcpServers", "ä ö", "", "x.y"])
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4) | st.floats(-1, 1)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
GAPS = st.sampled_from(["", " ", "\n", "\n  ", "\t", "\r\n    ", " // c\n", "/* , } ] */", '\n// "x": {\n  '])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """An object as text with comments and odd space, and what it means."""
    value = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    return draw(GAPS) + draw(written(value)) + draw(GAPS), value


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    if isinstance(value, dict):
        pieces = [
            f"{draw(GAPS)}{json.dumps(key)}{draw(GAPS)}:{draw(GAPS)}{draw(written(inner))}{draw(GAPS)}"
            for key, inner in value.items()
        ]
        return "{" + ",".join(pieces) + draw(comma_after(pieces)) + draw(GAPS) + "}"
    if isinstance(value, list):
        pieces = [f"{draw(GAPS)}{draw(written(inner))}{draw(GAPS)}" for inner in value]
        return "[" + ",".join(pieces) + draw(comma_after(pieces)) + draw(GAPS) + "]"
    return json.dumps(value, ensure_ascii=draw(st.booleans()))


def comma_after(pieces: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(["", ","]) if pieces else st.just("")
