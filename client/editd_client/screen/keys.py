"""The keys of the screen: the effect of each, for the help and for the two lines at the bottom."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from editd_client.review.actions import ACTIONS, EVERYWHERE
from editd_client.screen.lines import Line, TextSpan, cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd_client.review.actions import View


class ScreenKey(NamedTuple):
    """A key with its effect in the help, and a shorter word for the bottom lines (empty: not there)."""

    key: str
    effect: str
    word: str
    views: tuple[View, ...]


_WORDS = {  # of the actions that both faces have
    "choose": "choose", "next-hunk": "hunk", "approve": "approve", "reject": "reject…", "edit": "edit…",
    "comment": "comment…", "try": "try…", "allow": "allow…", "undo": "undo…", "redo": "redo…",
    "restore": "back to here…", "blame": "blame", "rollback": "roll back…", "publish": "publish…",
    "leases": "end leases…", "close": "close…", "revoke": "end grant…", "mark": "mark", "review": "reviewed",
    "pause": "pause…", "filter": "filter",
    "help": "help",
}  # fmt: skip
_EFFECTS = {"mark": "mark the row, or in the diff choose the hunk"}  # other words than the page's
OWN = (  # of the terminal alone
    ScreenKey("1 2 3", "proposals, timeline, agents", "", EVERYWHERE),
    ScreenKey("tab", "next pane", "", EVERYWHERE),
    ScreenKey("g", "newest row, or the top of the diff", "", EVERYWHERE),
    ScreenKey("G", "oldest row, or the end of the diff", "", EVERYWHERE),
    ScreenKey("ctrl+d", "half a page down", "", EVERYWHERE),
    ScreenKey("ctrl+u", "half a page up", "", EVERYWHERE),
    ScreenKey("J", "diff one line down", "", EVERYWHERE),
    ScreenKey("K", "diff one line up", "", ("proposals", "timeline")),
    ScreenKey("w", "wrap long lines", "wrap", EVERYWHERE),
    ScreenKey("s", "old and new side by side", "two sides", ("proposals", "timeline")),
    ScreenKey("v", "take single lines of the hunk…", "lines…", ("proposals",)),
    ScreenKey("o", "the three texts of the file: base, now, proposed", "three texts", ("proposals",)),
    ScreenKey("enter", "to the diff and back", "", ("proposals", "timeline")),
    ScreenKey(":", "go to a transaction…", "go to", ("timeline",)),
    ScreenKey("f", "follow new transactions", "follow", ("timeline",)),
    ScreenKey("!", "the latest refusals", "refusals", ("timeline", "agents")),
    ScreenKey("y", "copy the id", "copy id", ("timeline",)),
    ScreenKey("enter", "its timeline", "its timeline", ("agents",)),
    ScreenKey("p", "its proposals", "its proposals", ("agents",)),
    ScreenKey("esc", "leave a filter, a choice or a question", "", EVERYWHERE),
    ScreenKey("q", "quit", "quit", EVERYWHERE),
)


def keys_in(view: View) -> Iterator[ScreenKey]:
    """Yield the keys of a view."""
    for action in ACTIONS:
        if view in action.views:
            effect = _EFFECTS.get(action.name, action.effect)
            yield ScreenKey(action.key, effect, _WORDS.get(action.name, ""), action.views)
    yield from (key for key in OWN if view in key.views)


def bottom_lines(view: View, width: int, lines: int, words: Mapping[str, str]) -> Sequence[Line]:
    """Return the keys of a view in so many lines. `words` replaces the words of some, such as `approve 2`."""
    return _bottom_lines(view, width, lines, tuple(words.items()))


@functools.lru_cache(maxsize=16)
def _bottom_lines(
    view: View, width: int, lines: int, replaced: tuple[tuple[str, str], ...]
) -> Sequence[Line]:
    words = dict(replaced)
    late = ("]", "space") if view == "timeline" else ()  # elsewhere they come first
    ordered = sorted(keys_in(view), key=lambda key: (key.key in ("?", "q"), key.key == "/", key.key in late))
    rows: list[Line] = []
    row: list[TextSpan] = [TextSpan(" ")]
    used = 1
    for key in ordered:
        word = words.get(key.key, key.word)
        if not word:
            continue
        size = len(key.key) + 1 + len(word) + 2
        if used + size > width and len(row) > 1:
            rows.append(Line(tuple(cut(row, width))))
            row, used = [TextSpan(" ")], 1
        row += [TextSpan(key.key, "key", key.key), TextSpan(f" {word}  ", "", key.key)]
        used += size
    rows.append(Line(tuple(cut(row, width))))
    return _with_help(rows, lines, width)


def _with_help(rows: list[Line], lines: int, width: int) -> list[Line]:
    """Return so many lines; if some do not fit, the last one ends with the key of the help."""
    if len(rows) <= lines:
        return rows
    hint = (TextSpan("?", "key", "?"), TextSpan(" help ", "", "?"))
    room = width - 7
    kept: list[TextSpan] = []
    for span in rows[lines - 1].spans:  # whole words, each after its key
        room -= len(span.text)
        if room < 0 or span.key == "?":
            break
        kept.append(span)
    if kept and kept[-1].look == "key":
        kept.pop()
    last = Line((*kept, *hint))
    return [*rows[: lines - 1], last]


def help_lines(view: View) -> Iterator[Line]:
    """Yield every key of a view with its effect, this view's keys first."""
    names = {"proposals": "Proposals", "timeline": "Timeline", "agents": "Agents"}
    seen: set[tuple[str, str]] = set()
    for only, title in ((True, names[view]), (False, "Everywhere")):
        yield Line((TextSpan(title, "title"),))
        for key in keys_in(view):
            if (key.views == EVERYWHERE) != only and (key.key, key.effect) not in seen:
                seen.add((key.key, key.effect))
                yield Line((TextSpan(f"  {key.key:<8}", "key", key.key), TextSpan(f" {key.effect}")))
        yield Line(())
    yield Line((TextSpan("The arrow keys, page up and down, home and end, and the mouse work too.", "dim"),))
