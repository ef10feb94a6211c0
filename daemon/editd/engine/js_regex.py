"""ECMAScript's regular expressions, by an engine that has them: QuickJS.

The engine finds the matches and works out the template of each with its own `RegExp` and its own
GetSubstitution (ECMA-262, 22.2.6.11); what comes back are offsets in characters of the text. Each
search has a context of its own, which costs a quarter of a millisecond and leaves nothing behind.

Without the flag u a match may begin or end between the two halves of a character outside the BMP.
Such a match is told as though it took the whole character, where putting in its expansion leaves
whole characters; otherwise it is refused. No half ever comes out.

The language is that of Node 20, in which the tools that use it ran: what came later is refused.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from editd.edits.regex import Match
from editd.engine.regex_errors import invalid, out_of_time, too_large, too_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.edits.regex import Search

MEMORY_BYTES_MAX = 512 * 1024 * 1024  # of the engine's heap, within what the process may have

_FIND = r"""
(function (pattern, flags, text, template, hasGroups, matchesMax, charactersMax) {
  let expression;
  try {
    expression = new RegExp(pattern, flags);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return JSON.stringify({ invalid: error.message });
  }
  const isPlain = !template.includes("$");
  const looksAround = /\$[`']/.test(template);
  const matches = [];
  let characters = 0;
  for (let match; (match = expression.exec(text)) !== null; ) {
    const start = match.index, end = start + match[0].length;
    if (start === end) expression.lastIndex = end + 1;
    if (matches.length === matchesMax) return JSON.stringify({ tooMany: true });
    const groups = hasGroups ? Array.from(match).slice(1) : [];
    let expansion = template;
    if (!isPlain) {
      // One match, of the whole text only if the template asks for what is around it: linear overall.
      const subject = looksAround ? text : match[0];
      const position = match.index = looksAround ? start : 0;
      const single = { flags: "", global: false, exec: () => match };
      const replaced = RegExp.prototype[Symbol.replace].call(single, subject, template);
      const after = subject.length - position - (end - start);
      expansion = replaced.slice(position, replaced.length - after);
    }
    characters += expansion.length;
    for (const group of groups) characters += group === undefined ? 0 : group.length;
    if (characters > charactersMax) return JSON.stringify({ tooLong: true });
    matches.push([start, end, isPlain ? "" : expansion, groups]);
  }
  return JSON.stringify({ matches });
})
"""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")

_SYNTAX = re.compile(
    r"\\[\s\S]"
    r"|\[(?:\\(?P<k>k)|\\[\s\S]|[^\]\\])*\]"  # a class, perhaps with `\k` in it
    r"|(?P<modifiers>\(\?[ims]*-?[ims]*:)"
    r"|\(\?<(?P<name>[^=!>][^>]*)>"
)


class SearchLimits(Struct, frozen=True):
    """What one answer may hold."""

    matches_max: int
    characters_max: int  # of groups and expansions together


def find(search: Search, seconds: float, bounds: SearchLimits) -> list[Match]:
    """Return all matches. InvalidRegex, Timeout after `seconds` of computing, TooLarge."""
    flags = "gi" if search.ignore_case else "g"
    _refuse_unfit(search, flags)
    answer = _run(search, flags, seconds, bounds)
    if "invalid" in answer:
        raise _invalid(search, flags, answer["invalid"])
    if "tooMany" in answer:
        raise too_many(bounds.matches_max)
    if "tooLong" in answer:
        raise too_large(f"groups and expansions of more than {bounds.characters_max} characters")
    template = search.template
    is_plain = template is not None and "$" not in template
    rows = [
        Match(start, end, tuple(groups), cast("str", template) if is_plain else expansion)
        for start, end, expansion, groups in answer["matches"]
    ]
    rows = _in_characters(rows, search)
    return rows if template is not None else [Match(row.start, row.end, row.groups) for row in rows]


def _run(search: Search, flags: str, seconds: float, bounds: SearchLimits) -> dict[str, Any]:
    quickjs = _engine()
    context = quickjs.Context()
    context.set_memory_limit(MEMORY_BYTES_MAX)
    function = context.eval(_FIND)
    context.set_time_limit(seconds)
    template = "$&" if search.template is None else search.template
    try:
        said = function(
            search.pattern, flags, search.text, template, search.template is None,
            bounds.matches_max, bounds.characters_max,
        )  # fmt: skip
    except quickjs.JSException as error:
        if "interrupted" in str(error):
            raise out_of_time(search.pattern, seconds) from None
        raise too_large(f"more than {MEMORY_BYTES_MAX >> 20} MiB of memory, or too deep a stack") from None
    return cast("dict[str, Any]", json.loads(said))


@cache
def _engine() -> Any:
    """The engine's module, imported by the process that runs it and by no other."""
    import quickjs

    return quickjs


def _refuse_unfit(search: Search, flags: str) -> None:
    """InvalidRegex for what the engine takes and Node 20 does not: newer syntax; `\\k` in a class and a name.

    Also for half of a character that is no escape: the engine cannot be told that.
    """
    if _SURROGATE.search(search.pattern + (search.template or "")):
        raise _invalid(search, flags, "It or its template holds half of a character")
    names = set[str]()
    has_k = False
    for token in _SYNTAX.finditer(search.pattern):
        if (token["modifiers"] or "(?:") != "(?:":
            raise _invalid(search, flags, "Invalid group", token.start())
        if token["name"] in names:
            raise _invalid(search, flags, "Duplicate capture group name", token.start())
        if token["name"]:
            names.add(token["name"])
        has_k |= token["k"] is not None
    if has_k and names:
        raise _invalid(search, flags, "Invalid escape")


def _invalid(search: Search, flags: str, reason: str, position: int | None = None) -> Exception:
    message = f"Invalid regular expression: /{search.pattern}/{flags}: {reason}."
    return invalid(message, search.pattern, position, "It is to be one of ECMAScript, without the flag u.")


# ── From UTF-16 to characters ──────────────────────────────────────────────────────────────────────


def _in_characters(rows: list[Match], search: Search) -> list[Match]:
    """The matches with offsets in characters; refuses those that would leave half of one."""
    astral = enumerate(_ASTRAL.finditer(search.text)) if rows else ()
    highs = array("L", (match.start() + index for index, match in astral))
    if not highs:
        return rows
    halves = _Halves(search.text, highs)
    told = [halves.widened(row) for row in halves.joined(rows)]
    for match in told:
        if any(_SURROGATE.search(text) for text in (match.expansion, *match.groups) if text):
            line = search.text.count("\n", 0, match.start) + 1
            raise invalid(
                f"The expression takes half of the character {_shown(search.text[match.start : match.end])} "
                f"at line {line}, and would leave the other half of it.",
                search.pattern, None,
                "A character outside the BMP counts as two: match it by its own text, or as "
                "[\\ud800-\\udbff][\\udc00-\\udfff].",
            )  # fmt: skip
    return told


def _shown(text: str) -> str:
    astral = _ASTRAL.search(text)
    return astral.group() if astral else text[:1]


class _Halves(Struct, frozen=True):
    """A text with characters outside the BMP; `highs` says where their first halves are, in UTF-16."""

    text: str
    highs: Sequence[int]

    def joined(self, rows: list[Match]) -> list[Match]:
        """The matches, those that meet between two halves as one; an empty one there is left out."""
        result: list[Match] = []
        for row in rows:
            last = result[-1] if result else None
            if not self._is_between(row.start):
                result.append(row)
            elif last is not None and last.end == row.start:
                result[-1] = Match(last.start, row.end, last.groups, last.expansion + row.expansion)
            elif row.start < row.end:
                result.append(row)
        return result

    def widened(self, row: Match) -> Match:
        """The match in characters; what it takes of a character by half comes back in its expansion."""
        start, end, expansion = row.start, row.end, row.expansion
        if self._is_between(start):
            start -= 1
            expansion = self._pair_at(start)[0] + expansion
        if self._is_between(end):
            expansion += self._pair_at(end - 1)[1]
            end += 1
        groups = tuple(group and _paired(group) for group in row.groups)
        return Match(self._place(start), self._place(end), groups, _paired(expansion))

    def _is_between(self, offset: int) -> bool:
        index = bisect_left(self.highs, offset - 1)
        return index < len(self.highs) and self.highs[index] == offset - 1

    def _pair_at(self, offset: int) -> tuple[str, str]:
        code = ord(self.text[self._place(offset)]) - 0x10000
        return chr(0xD800 + (code >> 10)), chr(0xDC00 + (code & 0x3FF))

    def _place(self, offset: int) -> int:
        return offset - bisect_left(self.highs, offset)


def _paired(text: str) -> str:
    """The text with halves that stand together as one character."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
