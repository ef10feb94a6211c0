"""The page of the timeline: transactions in a list, one with its diff, and the preview of an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.review import actions
from editd_client.review.patch import rows_of
from editd_client.web.layout import counted, detail, line_counts, listbox, meta, moment, option
from editd_client.web.markup import Html, element, joined
from editd_client.web.patch_table import heading, lines, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import ShowResult, UndoResult
    from editd_client.review.timeline import TimelineRow

EDITS = ("edit", "exec", "outside")  # kinds of transactions that an undo takes back
LETTERS = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "M"}


def transaction_list(
    rows: Sequence[TimelineRow], selected: int | None, *, query: str, older: int | None
) -> Html:
    """Return the transactions of a query, newest first, with a field for it and a link to older ones."""
    words = (
        "No transaction matches." if query else "No transaction yet: editctl replace FILE OLD NEW makes one."
    )
    box = listbox(
        "Transactions, newest first",
        [_option(row, query, is_selected=row.seq == selected) for row in rows],
        element("p", words, class_="empty"),
    )
    search = element(
        "form",
        element(
            "input", name="q", value=query, placeholder="session:claude path:src/ kind:edit words",
            aria_label="Filter", type="search", id="filter",
        ),
        element("button", "Filter"),
        method="get", action="/timeline", id="search",
    )  # fmt: skip
    older_link = None
    if older is not None:
        href = f"/timeline?{urlencode({'before': older, **({'q': query} if query else {})})}"
        older_link = element("a", "Older", href=href, class_="older")
    return element("div", search, box, older_link, id="list")


def nothing_selected(error: str = "") -> Html:
    said = element("p", error, class_="refusal", role="alert") if error else None
    return detail(said, element("p", "No transaction is selected.", class_="empty"), label="Transaction")


def transaction_detail(shown: ShowResult) -> Html:
    """Return a transaction with its diff, and a form to undo all of it or some hunks."""
    made = shown.transaction
    hunks = shown.hunks if isinstance(shown.hunks, list) else []
    body = made.message.partition("\n")[2].strip("\n")
    bodies: dict[str, list[Html]] = {}
    for one in hunks:
        box = element(
            "label",
            element("input", type="checkbox", name="hunk", value=f"{one.hunk}:{one.path}", form="undo"),
            f"hunk {one.hunk}",
        )
        bodies.setdefault(one.path, []).append(
            element("tbody", heading(box), lines(row for row in rows_of(one.diff) if row.kind != "place"))
        )
    if not hunks and shown.diff:
        bodies["all files"] = [element("tbody", lines(rows_of(shown.diff)))]
    by = getattr(made.approved_by, "actor", None) or getattr(made.approved_by, "rule", None)
    session = made.session
    return detail(
        element("h2", f"{made.seq} {made.message.partition(chr(10))[0] or made.kind}"),
        element(
            "p",
            f"{made.kind} by {made.actor}",
            f" in {session}" if session else None,
            " · ",
            moment(made.time),
            [f" · of {', '.join(map(str, made.undoes))}"] if made.undoes else None,
            f" · undone by {made.undone_by}" if made.undone_by is not None else None,
            [" · proposal ", element("a", f"P{made.proposal}", href=f"/proposals/{made.proposal}")]
            if isinstance(made.proposal, int)
            else None,
            f", approved by {by}" if by else None,
            " with changes" if made.modified is True else None,
            class_="meta",
        ),
        element("pre", body, class_="message") if body else None,
        element(
            "ul",
            (
                element("li", f"{LETTERS[file.change]} ", element("span", file.path, class_="path"))
                for file in made.files
            ),
            class_="files",
        ),
        _undo_form(made.seq) if made.undone_by is None and made.kind != "baseline" else None,
        [
            element(
                "section",
                element("h3", element("span", path, class_="path")),
                table(f"Changes of {path}", some),
            )
            for path, some in bodies.items()
        ],
        label=f"Transaction {made.seq}",
    )


def preview_detail(title: str, preview: UndoResult, action: str, fields: Sequence[tuple[str, str]]) -> Html:
    """Return the effects of an undo or a rollback, with a form to make it."""
    effects = list(actions.effects(preview))
    needed = actions.needed_first(preview)
    clean = sum(one.is_clean for one in effects)
    is_clean = clean == len(effects)
    return detail(
        element("h2", title),
        element("p", "Nothing is changed yet. An undo is a transaction, and can be undone."),
        element(
            "table",
            element("caption", f"The effect on {counted(len(effects), 'file')}"),
            element(
                "thead", element("tr", [element("th", one, scope="col") for one in ("", "File", "Effect")])
            ),
            element(
                "tbody",
                (
                    element(
                        "tr",
                        element(
                            "td",
                            "✓" if one.is_clean else "!",
                            aria_label="clean" if one.is_clean else "conflict",
                        ),
                        element("td", one.path, class_="path"),
                        element("td", one.text),
                        class_=None if one.is_clean else "warn",
                    )
                    for one in effects
                ),
            ),
            class_="effects",
        ),
        [
            "It is clean if these are undone first, in this order: ",
            [joined(element("a", str(seq), href=f"/transactions/{seq}"), " ") for seq in needed],
        ]
        if needed
        else None,
        element(
            "form",
            [element("input", type="hidden", name=name, value=value) for name, value in fields],
            element("button", "Do it", name="do", value="make") if effects and is_clean else None,
            element(
                "button", f"Undo only what is clean ({counted(clean, 'file')})", name="do", value="fitting"
            )
            if clean and not is_clean
            else None,
            method="post",
            action=action,
        ),
        label=title,
    )


def _option(row: TimelineRow, query: str, *, is_selected: bool) -> Html:
    suffix = f"?{urlencode({'q': query})}" if query else ""
    classes = "undone" if row.undone_by is not None else None
    files = row.files
    about = [f"P{row.proposal} "] if row.proposal is not None else []
    return option(
        f"t{row.seq}",
        f"/transactions/{row.seq}{suffix}",
        element("b", f"{row.seq} {row.subject or files or row.kind}", class_=classes),
        element(
            "span",
            meta(f"{row.kind} · {row.who} · ", moment(row.time.isoformat()), f" · {files} "),
            line_counts(row.added, row.deleted),
            meta(
                " ", about,
                f"undoes {', '.join(map(str, row.undoes))} " if row.undoes else "",
                f"undone by {row.undone_by}" if row.undone_by is not None else "",
            ),
            class_="second",
        ),
        is_selected=is_selected,
    )  # fmt: skip


def _undo_form(seq: int) -> Html:
    return element(
        "form",
        element("input", type="hidden", name="seq", value=seq),
        element("button", "Undo all of it or the marked hunks…", name="do", value="preview"),
        id="undo",
        method="post",
        action="/undo",
    )
