"""Regular expressions of ECMAScript, evaluated by QuickJS.

QuickJS finds the matches and expands the template of each with its own `RegExp` and GetSubstitution
(ECMA-262, 22.2.6.11). The results have offsets in characters of the text (`utf16_matches`). Each search has a
context of its own, which costs a quarter of a millisecond and keeps no state.

The language is Node 20's, because the supported tools ran in it. Later syntax is refused.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from editd.edits.search import Match
from editd.engine.search_refusals import invalid, out_of_time, too_large, too_many
from editd.engine.utf16_matches import SURROGATE, in_characters

if TYPE_CHECKING:
    from editd.edits.search import Search

QUICKJS_BYTES_MAX = 512 * 1024 * 1024  # of the QuickJS heap, less than the limit of the process

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
      // Only a template that uses the text around the match needs the whole text: linear overall.
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

_SYNTAX = re.compile(
    r"\\[\s\S]"
    r"|\[(?:\\(?P<k>k)|\\[\s\S]|[^\]\\])*\]"  # a class, perhaps with `\k` in it
    r"|(?P<modifiers>\(\?[ims]*-?[ims]*:)"
    r"|\(\?<(?P<name>[^=!>][^>]*)>"
)


class SearchLimits(Struct, frozen=True):
    """The limits of one answer."""

    matches_max: int
    characters_max: int  # of groups and expansions together


def find_js(search: Search, seconds: float, bounds: SearchLimits) -> list[Match]:
    """Return all matches. Raises InvalidRegex, TooLarge, or Timeout after `seconds` of computing."""
    flags = "g" + "i" * search.ignore_case + "m" * search.is_multiline
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
    rows = in_characters(rows, search)
    return rows if template is not None else [Match(row.start, row.end, row.groups) for row in rows]


def _run(search: Search, flags: str, seconds: float, bounds: SearchLimits) -> dict[str, Any]:
    quickjs = _engine()
    context = quickjs.Context()
    context.set_memory_limit(QUICKJS_BYTES_MAX)
    function = context.eval(_FIND)
    context.set_time_limit(seconds)
    template = "$&" if search.template is None else search.template
    try:
        answer = function(
            search.pattern, flags, search.text, template, search.template is None,
            bounds.matches_max, bounds.characters_max,
        )  # fmt: skip
    except quickjs.JSException as error:
        if "interrupted" in str(error):
            raise out_of_time(search, seconds) from None
        raise too_large(f"more than {QUICKJS_BYTES_MAX >> 20} MiB of memory, or too deep a stack") from None
    return cast("dict[str, Any]", json.loads(answer))


@cache
def _engine() -> Any:
    """Import QuickJS. Only the process that runs it does so."""
    import quickjs

    return quickjs


def _refuse_unfit(search: Search, flags: str) -> None:
    """Raise InvalidRegex for syntax that QuickJS accepts and Node 20 does not.

    This is newer syntax, and `\\k` in a class together with a named group. A surrogate that is not escaped
    is refused, too, because it cannot be passed to QuickJS.
    """
    if SURROGATE.search(search.pattern + (search.template or "")):
        raise _invalid(search, flags, "It or its template has half of a character")
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
    return invalid(message, search.pattern, position, "Use the syntax of ECMAScript, without the flag u.")
