"""The page of proposals: the list of waiting proposals, and one proposal with a form to decide about it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.conversations.asker import quantity
from editd_client.review import proposals
from editd_client.review.choices import HunkChoices
from editd_client.review.patch import Syntax, is_news
from editd_client.web.decision import (
    WORDS,
    decision_form,
    grant_link,
    hunk_choice,
    own_text,
    proposal_path,
    reopening,
    trial_form,
)
from editd_client.web.layout import (
    detail,
    line_counts,
    listbox,
    meta,
    moment,
    option,
    search,
)
from editd_client.web.markup import Html, element, joined
from editd_client.web.patch_table import heading, lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.wire.messages import ProposalEntry, ProposalGetResult, ReviewComment, ReviewedFile
    from editd_client.review.proposals import ShownFile, ShownHunk
    from editd_client.web.trials import PageTrial

ROWS_MAX = 5000  # of all diffs of a page: beyond that, each file has its own page
REOPENED = ("rejected", "withdrawn", "expired")


def proposal_list(
    entries: Sequence[ProposalEntry],
    selected: int | None,
    *,
    query: str,
    before: int | None = None,
    older: int | None = None,
) -> Html:
    """Return proposals that wait and match a query, newest first, and below them a link to older ones.

    `before` is the number that the page begins below, and `older` the next page's.
    """
    empty = element(
        "p",
        "No proposal matches."
        if query
        else "Nothing waits. Proposals appear here when an agent's edit needs approval: ",
        None if query else element("code", "editctl config set review.default ask"),
        class_="empty",
    )
    rows = (_option(one, _suffix(query, before), is_selected=one.proposal == selected) for one in entries)
    field = search("/", query, "session:claude path:src/ words")
    link = element("a", "Older", href=f"/{_suffix(query, older)}", class_="older") if older else None
    return listbox("Proposals", rows, empty, field, link)


def _suffix(query: str, before: int | None) -> str:
    """Return the query of an address in the list."""
    parts = {**({"q": query} if query else {}), **({"before": before} if before else {})}
    return f"?{urlencode(parts, errors='surrogateescape')}" if parts else ""


def nothing_selected(error: str = "") -> Html:
    said = element("p", error, class_="refusal", role="alert") if error else None
    return detail(said, element("p", "No proposal is selected.", class_="empty"), label="Proposal")


def proposal_detail(
    shown: ProposalGetResult,
    *,
    request_id: str,
    path: str | None = None,
    trial: PageTrial | None = None,
    chosen: Mapping[str, str] | None = None,
    texts: Sequence[ReviewedFile] = (),
    comment: str = "",
    pin: str | None = None,
    verdict: str = "approve",
) -> Html:
    """Return a proposal, hunk by hunk, with the form to decide. Takes long: call it in a thread.

    `path` limits it to a file, and `trial` is the newest command on it. `chosen`, `texts`, `comment` and
    `verdict` are what the reviewer has given before: other hunks are left open then. `pin` is the reason for
    which the PIN is needed.
    """
    files = [file for file in proposals.shown_files(shown) if path in (None, file.file.path)]
    choices = HunkChoices(shown)
    if chosen:
        choices.set_all("open")
    for hunk, choice in (chosen or {}).items():
        if choice in WORDS:
            choices.set(hunk, choice)  # type: ignore[arg-type]
    rows = sum(len(hunk.rows) for file in files for hunk in file.hunks)
    own = {one.path: one for one in texts}
    is_long = rows > ROWS_MAX and len(files) > 1
    return detail(
        _head(shown),
        [_file(file, at, shown, choices, own) for at, file in enumerate(files)] if not is_long else None,
        _file_links(shown, files) if is_long else None,
        _comments(shown),
        _decisions(shown),
        [
            decision_form(shown, request_id, comment, pin, verdict, is_part=path is not None or is_long),
            trial_form(shown, trial),
            grant_link(shown),
        ]
        if shown.state == "open"
        else None,
        reopening(shown) if shown.state in REOPENED else None,
        label=f"Proposal {shown.proposal}",
    )


def _option(entry: ProposalEntry, suffix: str, *, is_selected: bool) -> Html:
    fit = proposals.fit(entry)
    is_open = entry.state == "open"
    checks = [
        element("span", f"{'✓' if one.exit == 0 else '✗'} {proposals.check_name(one)}", class_="check")
        for one in entry.checks
        if one.is_current
    ]
    files = quantity(len(entry.paths), "file")
    return option(
        f"p{entry.proposal}",
        f"/proposals/{entry.proposal}{suffix}",
        element("b", f"P{entry.proposal} {proposals.subject(entry)}"),
        element(
            "span",
            meta(f"{proposals.author(entry)} · ", moment(entry.created), f" · {files} · "),
            line_counts(entry.lines.added, entry.lines.deleted),
            " ",
            element("span", fit, class_="fit" if fit == "fits" or not is_open else "fit warn"),
            checks,
            class_="second",
        ),
        is_selected=is_selected,
    )


def _head(shown: ProposalGetResult) -> Html:
    body = shown.message.partition("\n")[2].strip("\n")
    about = f"made on {shown.at}, shown on {shown.head}"
    after = ", ".join(shown.lands_after) if shown.state == "open" else ""
    return element(
        "section",
        element("h2", f"P{shown.proposal} {proposals.subject(shown)}"),
        element(
            "p",
            f"{shown.state} · {proposals.author(shown)} · revision {shown.revision} · {about} · ",
            proposals.reason(shown), " · ", moment(shown.created),
            class_="meta",
        ),
        element("pre", body, class_="message") if body else None,
        element("p", f"Lands by itself once this has passed: {after}") if after else None,
        _checks(shown),
        class_="head",
    )  # fmt: skip


def _checks(shown: ProposalGetResult) -> Html | None:
    if not shown.checks and not shown.running:
        return None
    running = [element("li", f"{one.name}: {proposals.running_text(one)}") for one in shown.running]
    rows = [
        element(
            "li",
            element(
                "details",
                element(
                    "summary",
                    f"{'✓' if one.exit == 0 else '✗'} {one.name}: ",
                    proposals.check_text(one, shown),
                ),
                element("pre", one.output or "(no output)"),
            ),
        )
        for one in shown.checks
    ]
    return joined(element("h3", "Checks"), element("ul", rows, running, class_="checks"))


def _file(
    file: ShownFile, at: int, shown: ProposalGetResult, choices: HunkChoices, own: Mapping[str, ReviewedFile]
) -> Html:
    texts = [text if isinstance(text, str) else None for text in (file.file.old, file.file.new)]
    syntax = Syntax(file.file.path, *texts)
    chosen, decidable = choices.count(file.file.path)
    count = element("span", f"{chosen} of {quantity(decidable, 'hunk')} chosen", class_="chosen")
    return element(
        "section",
        element(
            "h3",
            element("span", file.title, class_="path"),
            meta(f" {file.file.change}", [" · ", count] if decidable else None),
        ),
        table(f"Changes of {file.title}", (_hunk(one, choices, shown, syntax) for one in file.hunks)),
        _said(file.comments),
        own_text(file, at, shown, own.get(file.file.path)),
        class_="file",
    )


def _hunk(one: ShownHunk, choices: HunkChoices, shown: ProposalGetResult, syntax: Syntax) -> Html:
    hunk = one.hunk
    return element(
        "tbody",
        heading(
            element("span", proposals.MARKS[hunk.state], class_="sign") if hunk.state != "fits" else None,
            f"hunk {hunk.number} ",
            meta(proposals.hunk_title(hunk)),
            hunk_choice(hunk, choices) if shown.kind == "edit" and shown.state == "open" else None,
        ),
        lines((row for row in one.rows if is_news(row)), syntax),
        _present(one),
        element("tr", element("td", _said(one.comments), colspan="4")) if one.comments else None,
        id=f"hunk-{hunk.hunk}",
        class_=f"state-{hunk.state}",
        data_hunk=hunk.hunk,
        tabindex="-1",
    )


def _present(one: ShownHunk) -> Iterator[Html]:
    """Yield the present lines of the file that conflict."""
    if one.hunk.state != "conflict":
        return
    links = [joined(", " if at else "In the way: ", _transaction(seq)) for at, seq in enumerate(one.blocking)]
    by = joined(links, "; there is now:" if links else "There is now:")
    yield element("tr", element("td", by, colspan="4"), class_="note")
    for line in one.present_lines:
        yield element(
            "tr", element("td", class_="n"), element("td", class_="n"), element("td", class_="sign"),
            element("td", line, class_="text"), class_="now",
        )  # fmt: skip


def _file_links(shown: ProposalGetResult, files: Sequence[ShownFile]) -> Html:
    rows = []
    for file in files:
        query = urlencode({"path": file.file.path}, errors="surrogateescape")
        hunks = quantity(len(file.hunks), "hunk")
        link = element("a", file.title, href=f"{proposal_path(shown)}?{query}")
        rows.append(element("li", link, meta(f" {file.file.change}, {hunks}")))
    long = element("p", "This is too long for one page. Look at each file:")
    return joined(long, element("ul", rows, class_="files"))


def _said(comments: Sequence[ReviewComment]) -> Html | None:
    rows = [
        element("li", element("b", one.by.actor), " ", meta(moment(one.time)), element("p", one.text))
        for one in comments
    ]
    return element("ul", rows, class_="comments") if rows else None


def _comments(shown: ProposalGetResult) -> Html | None:
    said = _said(proposals.general_comments(shown))
    return None if said is None else joined(element("h3", "Comments"), said)


def _decisions(shown: ProposalGetResult) -> Html | None:
    rows = [
        element(
            "li",
            element("b", one.by.actor),
            f" {one.what}",
            f" {quantity(len(one.hunks), 'hunk')}" if one.hunks else None,
            [" as ", _transaction(one.seq)] if one.seq is not None else None,
            " with changes" if one.modified else None,
            " ",
            meta(moment(one.time)),
            element("p", one.comment) if one.comment else None,
        )
        for one in shown.decisions
    ]
    return joined(element("h3", "Decisions"), element("ul", rows, class_="comments")) if rows else None


def _transaction(seq: int) -> Html:
    return element("a", str(seq), href=f"/transactions/{seq}")
