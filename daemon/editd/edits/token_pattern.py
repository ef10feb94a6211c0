"""The expression for a text whose white space does not count: its tokens, from the beginning of a line on.

Only the process for searches makes it. A client's text may have millions of tokens, and an expression over
all of them would hold up everybody.
"""

from __future__ import annotations

import re

from editd.edits.approximate import JS_SPACES

_TOKEN_ENDS = re.compile(r"([():\[\]{}><=])")
_SPACES = re.compile(f"[{JS_SPACES}]+")
_SYNTAX = re.compile(r"[.*+?^${}()|\[\]\\]")


def token_pattern(text: str) -> str:
    """Return the expression of ECMAScript, with the flag m, for the tokens of a text.

    Its only group is the indentation of the line.
    """
    tokens = [token for token in _SPACES.split(_TOKEN_ENDS.sub(r" \1 ", text)) if token]
    return "^([ \\t]*)" + "\\s*".join(_SYNTAX.sub(r"\\\g<0>", token) for token in tokens)
