"""The preview of an undo and the like: its effect on each file, and the ways to make it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client.review.patch import rows_of
from editd_client.web.layout import button, counted, detail, hidden, leaving
from editd_client.web.markup import Html, element, joined
from editd_client.web.patch_table import lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import ApplyResult
    from editd_client.review.actions import FileEffect, ReversalPreview

ROWS_MAX = 2000  # of the diffs of a preview: further files have none


class UndoQuestion(Struct, frozen=True, kw_only=True):
    """The question whether to take something back, and the form that repeats the request."""

    title: str
    action: str
    fields: tuple[tuple[str, str], ...]
    back: str  # the address of the page without the question
    warning: str = ""
    may_skip: bool = True  # the request can leave out what conflicts
    seq: int | None = None  # the transaction that is undone


def preview_detail(question: UndoQuestion, preview: ReversalPreview) -> Html:
    """Return the effect of a request by the result of its dry run, with a form to make it."""
    effects, needed = preview.effects, preview.needed
    warning = element("p", question.warning, class_="warn") if question.warning else None
    return detail(
        element("h2", question.title),
        element("p", "Nothing is changed yet. It becomes a transaction, and can be undone."),
        warning if effects else None,
        element("p", preview.context) if effects and preview.context else None,
        _effects(effects) if effects else element("p", "It would change nothing.", class_="empty"),
        element(
            "p",
            "It is clean if these are undone first, in this order: ",
            [joined(element("a", str(seq), href=f"/transactions/{seq}"), " ") for seq in needed],
        )
        if needed
        else None,
        element(
            "form",
            hidden([*question.fields, *(("needed", str(seq)) for seq in needed)]),
            element("p", _buttons(question, effects, needed), leaving(question.back)),
            method="post",
            action=question.action,
        ),
        _diffs(preview.result),
        label=question.title,
    )


def _effects(effects: Sequence[FileEffect]) -> Html:
    heads = [element("th", one, scope="col") for one in ("Fit", "File", "Effect")]
    rows = [
        element(
            "tr",
            element(
                "td",
                element("span", "✓" if one.is_clean else "!", aria_hidden="true"),
                element("span", "clean" if one.is_clean else "conflict", class_="spoken"),
            ),
            element("td", one.path, class_="path"),
            element("td", one.text),
            class_=None if one.is_clean else "warn",
        )
        for one in effects
    ]
    return element(
        "table",
        element("caption", f"The effect on {counted(len(effects), 'file')}"),
        element("thead", element("tr", heads)),
        element("tbody", rows),
        class_="effects",
    )


def _buttons(question: UndoQuestion, effects: Sequence[FileEffect], needed: Sequence[int]) -> Iterator[Html]:
    clean = sum(one.is_clean for one in effects)
    is_clean = clean == len(effects)
    if is_clean and effects:
        yield button("Do it", "make", key="u")
    if clean and not is_clean and question.may_skip:
        yield button(f"Do only what is clean ({counted(clean, 'file')})", "fitting", key="u")
    if needed:
        yield button(f"Undo {', '.join(map(str, needed))} first", "needed", key="n")
    if not is_clean:
        yield button("Force it over the later changes", "force", key="f")
    if effects:
        yield button("Propose it", "propose", key="p")


def _diffs(preview: ApplyResult) -> Iterator[Html]:
    left = ROWS_MAX
    for file in preview.files:
        rows = (
            [row for row in rows_of(file.diff) if row.kind != "header"] if isinstance(file.diff, str) else []
        )
        left -= len(rows)
        if rows and left >= 0:
            name = element("h3", element("span", file.path, class_="path"))
            yield joined(name, table(f"Changes of {file.path}", [element("tbody", lines(rows))]))
