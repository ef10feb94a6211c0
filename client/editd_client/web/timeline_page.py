"""The page of the timeline: transactions in a list, and one with its diff and the forms that take back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.review.patch import is_news, rows_of
from editd_client.review.timeline import RefusalRow
from editd_client.web.layout import button, detail, hidden, line_counts, listbox, meta, moment, option, search
from editd_client.web.markup import Html, element
from editd_client.web.patch_table import heading, lines, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import Change, ShowResult, Transaction
    from editd_client.review.timeline import TimelineRow

FILES_MAX = 1000  # of a transaction, in its list of files
LETTERS = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "M"}


def transaction_list(
    rows: Sequence[TimelineRow | RefusalRow], selected: str | None, *, query: str, older: int | None
) -> Html:
    """Return the transactions of a query and the refusals between them, newest first.

    `selected` is the id of a row. Above is a field for the query, and below a link to older ones.
    """
    words = (
        "No transaction matches." if query else "No transaction yet: editctl replace FILE OLD NEW makes one."
    )
    older_link = None
    if older is not None:
        href = f"/timeline?{urlencode({'before': older, **({'q': query} if query else {})})}"
        older_link = element("a", "Older", href=href, class_="older")
    return listbox(
        "Transactions, newest first",
        [
            _refusal_option(row, query, selected)
            if isinstance(row, RefusalRow)
            else _option(row, query, selected)
            for row in rows
        ],
        element("p", words, class_="empty"),
        search("/timeline", query, "session:claude path:src/ is:unreviewed words"),
        older_link,
    )


def nothing_selected(error: str = "") -> Html:
    said = element("p", error, class_="refusal", role="alert") if error else None
    empty = element("p", "No transaction is selected.", class_="empty")
    return detail(said, empty, redo_form(), label="Transaction")


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
        some = bodies.setdefault(one.path, [])
        some.append(
            element(
                "tbody",
                heading(box),
                lines(filter(is_news, rows_of(one.diff))),
                id=f"hunk-{len(bodies)}-{one.hunk}",
                data_hunk=one.hunk,
                tabindex="-1",
            )
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
            f" · reviewed by {_mark(made)}" if _mark(made) else None,
            class_="meta",
        ),
        element("pre", body, class_="message") if body else None,
        element(
            "ul",
            map(_file, made.files[:FILES_MAX]),
            element("li", f"and {len(made.files) - FILES_MAX:,} more")
            if len(made.files) > FILES_MAX
            else None,
            class_="files",
        ),
        _forms(made),
        [
            element(
                "section",
                element("h3", element("span", path, class_="path")),
                table(f"Changes of {path}", some),
                class_="file",
                data_path=path,
            )
            for path, some in bodies.items()
        ],
        label=f"Transaction {made.seq}",
    )


def _option(row: TimelineRow, query: str, selected: str | None) -> Html:
    ident = transaction_row(row.seq)
    classes = "undone" if row.undone_by is not None else None
    files = row.files
    about = [f"P{row.proposal} "] if row.proposal is not None else []
    return option(
        ident,
        f"/transactions/{row.seq}{_suffix(query)}",
        element("b", f"{row.seq} {row.subject or files or row.kind}", class_=classes),
        element(
            "span",
            meta(f"{row.kind} · {row.who} · ", moment(row.time.isoformat()), f" · {files} "),
            line_counts(row.added, row.deleted),
            meta(
                " ", about,
                f"undoes {', '.join(map(str, row.undoes))} " if row.undoes else "",
                f"undone by {row.undone_by} " if row.undone_by is not None else "",
            ),
            element("span", "unreviewed", class_="warn") if row.is_unreviewed else None,
            class_="second",
        ),
        is_selected=ident == selected,
    )  # fmt: skip


def _refusal_option(row: RefusalRow, query: str, selected: str | None) -> Html:
    ident = refusal_row(row.number)
    return option(
        ident,
        f"/refusals/{row.number}{_suffix(query)}",
        element("b", row.sentence, class_="minus"),
        element("span", meta(f"{row.error} · ", moment(row.time.isoformat())), class_="second"),
        is_selected=ident == selected,
    )


def transaction_row(seq: int) -> str:
    """Return the id of the row of a transaction."""
    return f"t{seq}"


def refusal_row(number: int) -> str:
    """Return the id of the row of a refusal."""
    return f"r{number}"


def _suffix(query: str) -> str:
    return f"?{urlencode({'q': query}, errors='surrogateescape')}" if query else ""


def refusal_detail(row: RefusalRow) -> Html:
    """Return a refused edit, with its reason."""
    about = f"{row.method} by {row.who}, on {row.head} · "
    return detail(
        element("h2", f"Refused: {row.error}"),
        element("p", about, moment(row.time.isoformat()), class_="meta"),
        element("p", row.text),
        element("ul", [element("li", path, class_="path") for path in row.paths], class_="files")
        if row.paths
        else None,
        [element("h3", "Attempted"), element("pre", row.attempt)] if row.attempt else None,
        label=f"Refusal {row.number}",
    )


def _forms(made: Transaction) -> Html:
    """Return the forms that take back: this transaction, the newest undo, the state since, the session."""
    undo = restore = rollback = None
    if made.undone_by is None and made.kind != "baseline":
        undo = _form(
            "undo", button("Undo all of it or the marked hunks…", "preview", action="undo"), seq=made.seq
        )
    restore = _form(
        "restore",
        button("Put all or the marked files back to this state…", "preview", action="restore"),
        to=made.seq,
    )
    if made.session is not None:
        rollback = _form(
            "rollback",
            button(f"Roll back all the work of {made.session}…", "preview", action="rollback"),
            session=made.session,
        )
    review = None
    if made.session is not None and made.kind != "claim":
        words, value = ("Take the mark back", "unmark") if _mark(made) else ("Mark as reviewed", "mark")
        review = _form("review", button(words, value, action="review"), seq=made.seq)
    return element("div", undo, redo_form(), restore, rollback, review, class_="forms")


def _mark(made: Transaction) -> str | None:
    """Return the person who has marked a transaction as reviewed."""
    marked: str | None = getattr(made.reviewed_by, "actor", None)
    return marked


def redo_form() -> Html:
    """Return the form that redoes the newest undo."""
    return _form("redo", button("Redo the newest undo…", "preview", action="redo"))


def _form(name: str, press: Html, **fields: str | int) -> Html:
    return element("form", hidden(fields.items()), press, id=name, method="post", action=f"/{name}")


def _file(file: Change) -> Html:
    """Return a file of a transaction, with a box to restore it alone and a link to its lines' authors."""
    is_gone = file.change == "deleted"
    return element(
        "li",
        element(
            "label",
            element("input", type="checkbox", name="path", value=file.path, form="restore"),
            f"{LETTERS[file.change]} ",
            element("span", file.path, class_="path"),
        ),
        element(
            "a",
            "blame",
            href=blame_path(file.path),
            data_does="blame",
            data_path=file.path,
            aria_label=f"Blame {file.path}",
        )
        if not is_gone
        else None,
    )


def blame_path(path: str) -> str:
    """Return the address of the page with the author of each line of a file."""
    return f"/blame?{urlencode({'path': path}, errors='surrogateescape')}"
