"""The forms of a proposal's page: the choice about each hunk, an own text, the decision, and a command."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from editd_client.web.agents_page import session_path
from editd_client.web.layout import button, moment
from editd_client.web.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import ProposalGetResult, ProposalHunk, ReviewedFile
    from editd_client.review.choices import HunkChoices
    from editd_client.review.proposals import ShownFile
    from editd_client.web.trials import PageTrial

WORDS = {"approve": "approve", "reject": "reject", "open": "leave open"}
SUBJECTS_MAX = 500  # hunks that a comment may be about
FORM = "decide"  # the id of the form of the decision, whose fields are all over the page
TEXT_CHARACTERS_MAX = 50_000  # of a text in a field


def hunk_choice(hunk: ProposalHunk, choices: HunkChoices) -> Html | None:
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


def own_text(file: ShownFile, at: int, shown: ProposalGetResult, given: ReviewedFile | None) -> Html | None:
    """Return a field with the proposed text of a file, which the reviewer may change before it lands.

    `given` is what the reviewer has written before, for the version that was shown then.
    """
    path, new = file.file.path, file.file.new
    if shown.state != "open" or shown.kind != "edit" or not isinstance(new, str) or not is_editable(new):
        return None
    text, base = (new, file.file.now) if given is None else (given.content, given.base)
    hidden = {"base": base, "ends": "crlf" if "\r\n" in new else "lf"}
    return element(
        "details",
        element("summary", f"Edit the proposed text of {path}"),
        element("p", "It replaces all hunks of this file. The author gets the difference."),
        element(
            "label",
            element(
                "input", type="checkbox", name=f"own-{at}", value=path, form=FORM, class_="land",
                id=f"own:{path}", checked=given is not None,
            ),
            "land this text",
        ),
        [
            element("input", type="hidden", name=f"{name}-{at}", value=value, form=FORM, id=f"{name}:{path}")
            for name, value in hidden.items()
        ],
        element(
            "textarea", "\n", text, name=f"text-{at}", form=FORM, rows="20", spellcheck="false",
            aria_label=f"Text of {path}", id=f"text:{path}",
        ),
        class_="own",
        open=given is not None,
    )  # fmt: skip


def is_editable(content: str) -> bool:
    """Whether a browser's field gives a text back as it was: it knows one kind of line end only."""
    plain = content.replace("\r\n", "\n")
    is_mixed = "\r" in plain or ("\r\n" in content and content.count("\r\n") != plain.count("\n"))
    is_text = "\0" not in content and not any("\ud800" <= one <= "\udfff" for one in content)
    return is_text and not is_mixed and len(content) <= TEXT_CHARACTERS_MAX


def decision_form(
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
        _rejection(shown, is_open=verdict == "reject"),
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
            "div",
            buttons,
            element(
                "button", "Only comment", name="do", value="", formaction=f"{proposal_path(shown)}/comment"
            ),
            element("label", " about ", element("select", _subjects(shown), name="hunk", id="about")),
        ),
        id=FORM,
        method="post",
        action=f"{proposal_path(shown)}/decide",
        autocomplete="off",
    )  # fmt: skip


def _rejection(shown: ProposalGetResult, *, is_open: bool) -> Html:
    """Return the question whether to reject all of a proposal, which opens without leaving the page."""
    return element(
        "details",
        element("summary", "Reject all of it…", data_does="reject"),
        f"Reject all that is left of P{shown.proposal}? The author gets your comment. ",
        element("button", "Reject it", name="do", value="reject", id="reject"),
        class_="question",
        open=is_open,
    )


def _subjects(shown: ProposalGetResult) -> Iterator[Html]:
    """Yield the choices of the subject of a comment: all of the proposal, or a hunk."""
    yield element("option", "all of it", value="")
    hunks = (hunk for file in shown.files for hunk in file.hunks)
    for hunk in islice(hunks, SUBJECTS_MAX):
        yield element("option", f"hunk {hunk.number}", value=hunk.hunk)


def trial_form(shown: ProposalGetResult, trial: PageTrial | None) -> Html:
    """Return the form for a command on the files as the proposal would leave them."""
    path = f"{proposal_path(shown)}/try"
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


def grant_link(shown: ProposalGetResult) -> Html | None:
    """Return a link to the form for a grant, for edits like these."""
    if shown.session is None:
        return None
    words = f"Let edits of {shown.session} land for a while…"
    return element("p", element("a", words, href=session_path(shown.session), data_does="allow"))


def reopening(shown: ProposalGetResult) -> Html:
    return element(
        "form",
        element("button", "Open it again", name="do", value="reopen"),
        method="post",
        action=f"{proposal_path(shown)}/decide",
    )


def proposal_path(shown: ProposalGetResult) -> str:
    return f"/proposals/{shown.proposal}"
