"""The page of proposals: the list of those that wait, and one of them with a form to decide about it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from editd_client.review import proposals
from editd_client.review.choices import HunkChoices
from editd_client.review.patch import Syntax, is_news
from editd_client.web.agents_page import session_path
from editd_client.web.layout import (
    button,
    counted,
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

    from editd.wire.messages import ProposalEntry, ProposalGetResult, ProposalHunk, ReviewComment
    from editd_client.review.proposals import ShownFile, ShownHunk
    from editd_client.web.trials import PageTrial

ROWS_MAX = 5000  # of all diffs of a page: beyond that, each file has a page of its own
WORDS = {"approve": "approve", "reject": "reject", "open": "leave open"}
REOPENED = ("rejected", "withdrawn", "expired")
FORM = "decide"


def proposal_list(entries: Sequence[ProposalEntry], selected: int | None, *, query: str) -> Html:
    """Return the list of the proposals that wait and match a query, newest first."""
    empty = element(
        "p",
        "No proposal matches."
        if query
        else "Nothing waits. Proposals appear here when an agent's edit needs approval: ",
        None if query else element("code", "editctl config set review.default ask"),
        class_="empty",
    )
    rows = (_option(one, query, is_selected=one.proposal == selected) for one in entries)
    field = search("/", query, "session:claude path:src/ words")
    return listbox("Proposals", rows, empty, field)


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
    comment: str = "",
    pin: str | None = None,
    verdict: str = "approve",
) -> Html:
    """Return a proposal, hunk by hunk, with the form to decide. Takes long: call it in a thread.

    `path` limits it to a file, and `trial` is the newest command on it. `chosen`, `comment` and `verdict` are
    what the reviewer has given before. `pin` is the reason for which the PIN is needed.
    """
    files = [file for file in proposals.shown_files(shown) if path in (None, file.file.path)]
    choices = HunkChoices(shown)
    for hunk, choice in (chosen or {}).items():
        if choice in WORDS:
            choices.set(hunk, choice)  # type: ignore[arg-type]
    rows = sum(len(hunk.rows) for file in files for hunk in file.hunks)
    is_long = rows > ROWS_MAX and len(files) > 1
    return detail(
        _head(shown),
        [_file(file, at, shown, choices) for at, file in enumerate(files)] if not is_long else None,
        _file_links(shown, files) if is_long else None,
        _comments(shown),
        _decisions(shown),
        [
            _form(shown, request_id, comment, pin, verdict, is_part=path is not None or is_long),
            _trial(shown, trial),
            _allowing(shown),
        ]
        if shown.state == "open"
        else None,
        _reopening(shown) if shown.state in REOPENED else None,
        label=f"Proposal {shown.proposal}",
    )


def _option(entry: ProposalEntry, query: str, *, is_selected: bool) -> Html:
    suffix = f"?{urlencode({'q': query})}" if query else ""
    fit = proposals.fit(entry)
    is_open = entry.state == "open"
    checks = [
        element("span", f"{'✓' if one.exit == 0 else '✗'} {one.name}", class_="check")
        for one in entry.checks
        if one.is_current
    ]
    files = counted(len(entry.paths), "file")
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
                    proposals.check_text(one, is_open=shown.state == "open"),
                ),
                element("pre", one.output or "(no output)"),
            ),
        )
        for one in shown.checks
    ]
    return joined(element("h3", "Checks"), element("ul", rows, running, class_="checks"))


def _file(file: ShownFile, at: int, shown: ProposalGetResult, choices: HunkChoices) -> Html:
    texts = [text if isinstance(text, str) else None for text in (file.file.old, file.file.new)]
    syntax = Syntax(file.file.path, *texts)
    chosen, decidable = choices.count(file.file.path)
    count = element("span", f"{chosen} of {counted(decidable, 'hunk')} chosen", class_="chosen")
    return element(
        "section",
        element(
            "h3",
            element("span", file.title, class_="path"),
            meta(f" {file.file.change}", [" · ", count] if decidable else None),
        ),
        table(f"Changes of {file.title}", (_hunk(one, choices, shown, syntax) for one in file.hunks)),
        _said(file.comments),
        _own_text(file, at, shown),
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
            _choice(hunk, choices) if shown.kind == "edit" and shown.state == "open" else None,
        ),
        lines((row for row in one.rows if is_news(row)), syntax),
        _present(one),
        element("tr", element("td", _said(one.comments), colspan="4")) if one.comments else None,
        id=f"hunk-{hunk.hunk}",
        class_=f"state-{hunk.state}",
        data_hunk=hunk.hunk,
        tabindex="-1",
    )


def _choice(hunk: ProposalHunk, choices: HunkChoices) -> Html | None:
    """Return the three choices about a hunk that can be decided."""
    if hunk.state == "there":
        return element("input", type="hidden", name=f"hunk-{hunk.hunk}", value="there", form=FORM)
    now = choices.of(hunk.hunk)
    if now is None:
        return None
    buttons = [
        element(
            "label",
            element(
                "input",
                type="radio",
                name=f"hunk-{hunk.hunk}",
                value=value,
                form=FORM,
                id=f"{value}-{hunk.hunk}",
                checked=now == value,
                disabled=value == "approve" and hunk.state != "fits",
            ),
            word,
        )
        for value, word in WORDS.items()
    ]
    legend = element("legend", f"Decision about hunk {hunk.number}", class_="spoken")
    return element("fieldset", legend, buttons, class_="choice")


def _present(one: ShownHunk) -> Iterator[Html]:
    """Yield the present lines of the file that conflict."""
    if one.hunk.state != "conflict":
        return
    by = joined(
        "There is now",
        [
            joined(", changed by " if not at else ", ", _transaction(seq))
            for at, seq in enumerate(one.blocking)
        ],
        ":",
    )
    yield element("tr", element("td", by, colspan="4"), class_="note")
    for line in one.present_lines:
        yield element(
            "tr", element("td", class_="n"), element("td", class_="n"), element("td", class_="sign"),
            element("td", line, class_="text"), class_="now",
        )  # fmt: skip


def _own_text(file: ShownFile, at: int, shown: ProposalGetResult) -> Html | None:
    """Return a field with the proposed text of a file, which the reviewer may change before it lands."""
    new = file.file.new
    if shown.state != "open" or shown.kind != "edit" or not isinstance(new, str) or not is_editable(new):
        return None
    ends = "crlf" if "\r\n" in new else "lf"
    return element(
        "details",
        element("summary", f"Edit the proposed text of {file.file.path}"),
        element("p", "It replaces all hunks of this file. The author gets the difference."),
        element(
            "label",
            element(
                "input", type="checkbox", name=f"own-{at}", value=file.file.path, form=FORM, class_="land"
            ),
            "land this text",
        ),
        element("input", type="hidden", name=f"base-{at}", value=file.file.now, form=FORM),
        element("input", type="hidden", name=f"ends-{at}", value=ends, form=FORM),
        element(
            "textarea", "\n", new, name=f"text-{at}", form=FORM, rows="20", spellcheck="false",
            aria_label=f"Text of {file.file.path}",
        ),
        class_="own",
    )  # fmt: skip


TEXT_CHARACTERS_MAX = 50_000  # of a text in a field


def is_editable(content: str) -> bool:
    """Whether a browser's field gives a text back as it was: it knows one kind of line end only."""
    plain = content.replace("\r\n", "\n")
    is_mixed = "\r" in plain or ("\r\n" in content and content.count("\r\n") != plain.count("\n"))
    is_text = "\0" not in content and not any("\ud800" <= one <= "\udfff" for one in content)
    return is_text and not is_mixed and len(content) <= TEXT_CHARACTERS_MAX


def _file_links(shown: ProposalGetResult, files: Sequence[ShownFile]) -> Html:
    rows = []
    for file in files:
        query = urlencode({"path": file.file.path}, errors="surrogateescape")
        hunks = counted(len(file.hunks), "hunk")
        link = element("a", file.title, href=f"{_path(shown)}?{query}")
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
            f" {counted(len(one.hunks), 'hunk')}" if one.hunks else None,
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


def _form(
    shown: ProposalGetResult, request_id: str, comment: str, pin: str | None, verdict: str, *, is_part: bool
) -> Html:
    asking = [
        element("p", pin, class_="refusal", role="alert"),
        element(
            "label", "PIN ",
            element("input", type="password", name="pin", autocomplete="off", autofocus=True, id="pin"),
        ),
    ]  # fmt: skip
    lands = "the chosen hunks" if shown.kind == "edit" else f"this {shown.kind}"
    buttons = [
        button(f"Approve {lands}", "approve", action="approve"),
        button("Reject all of it", "reject", action="reject"),
    ]
    if verdict == "reject":
        buttons.reverse()  # Enter in the field of the PIN presses the first
    return element(
        "form",
        element("input", type="hidden", name="view", value=shown.view),
        element("input", type="hidden", name="request_id", value=request_id),
        element("input", type="hidden", name="in-part", value="yes") if is_part else None,
        element(
            "label", "Comment for the author",
            element("textarea", "\n", comment, name="comment", rows="2", id="comment", data_does="comment"),
        ),
        asking if pin is not None else None,
        element(
            "p",
            buttons,
            element("button", "Only comment", name="do", value="", formaction=f"{_path(shown)}/comment"),
        ),
        id=FORM,
        method="post",
        action=f"{_path(shown)}/decide",
        autocomplete="off",
    )  # fmt: skip


def _trial(shown: ProposalGetResult, trial: PageTrial | None) -> Html:
    """Return the form for a command on the files as the proposal would leave them."""
    path = f"{_path(shown)}/try"
    if trial is not None and trial.exit is None:
        return element(
            "form",
            element("h3", "Try"),
            element("code", trial.command), " runs since ", moment(trial.began.isoformat()), " ",
            element("button", "Stop it", name="do", value="stop"),
            id="try", method="post", action=path,
        )  # fmt: skip
    is_kept = trial is not None and trial.command in [check.name for check in shown.checks]
    failed = None
    if trial is not None and not is_kept:  # it could not run, or its view had changed
        about = f"{trial.command} ended with {trial.exit}:"
        failed = [element("p", about, class_="refusal"), element("pre", trial.output or "(no output)")]
    return element(
        "form",
        element("h3", "Try"),
        failed,
        element(
            "label", "Command on the files with the proposal in them ",
            element(
                "input", name="command", id="command", required=True, placeholder="pytest -q",
                spellcheck="false", value=None if trial is None else trial.command, data_does="try",
            ),
        ),
        element("button", "Run it"),
        id="try", method="post", action=path, autocomplete="off",
    )  # fmt: skip


def _allowing(shown: ProposalGetResult) -> Html | None:
    """Return a link to the form for a grant, for edits like these."""
    if shown.session is None:
        return None
    words = f"Let edits of {shown.session} land for a while…"
    return element("p", element("a", words, href=session_path(shown.session), data_does="allow"))


def _reopening(shown: ProposalGetResult) -> Html:
    return element(
        "form",
        element("button", "Open it again", name="do", value="reopen"),
        method="post",
        action=f"{_path(shown)}/decide",
    )


def _path(shown: ProposalGetResult) -> str:
    return f"/proposals/{shown.proposal}"
