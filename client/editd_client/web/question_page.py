"""The HTML of a conversation's question: its effect, and a form with its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd_client.conversations.asker import CommitPreview, HeldLeases, UnreviewedWork, quantity
from editd_client.review.actions import NEEDED_WORDS, ReversalPreview
from editd_client.review.patch import rows_of
from editd_client.web.layout import button, detail, hidden, leaving, line_counts
from editd_client.web.markup import Html, element, joined
from editd_client.web.patch_table import lines, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd_client.conversations.asker import Prompt, Question
    from editd_client.review.actions import FileEffect

ROWS_MAX = 2000  # of the diffs of a preview: further files have none
FILES_MAX = 1000  # of a commit, in its preview
OWN_FIELDS = ("do", "pin", "needed")  # of a form, which its question does not repeat
LETTERS = {"added": "A", "modified": "M", "deleted": "D"}


def question_detail(question: Question, action: str, fields: Sequence[tuple[str, str]], back: str) -> Html:
    """Return a question with a form for its answer, which repeats the fields of the request."""
    about = question.about
    prompts = {one.name for one in question.prompts}
    repeated = [(name, one) for name, one in fields if name not in prompts and name not in OWN_FIELDS]
    if isinstance(about, ReversalPreview):
        repeated += [("needed", str(seq)) for seq in about.needed]
    buttons = [button(_capital(one.words), one.name, key=one.key) for one in question.answers]
    if isinstance(about, CommitPreview):
        buttons.append(button("Show it again", "preview"))
    return detail(
        element("h2", question.title),
        [element("p", note) for note in question.notes],
        element("p", question.warning, class_="warn") if question.warning else None,
        list(_subject(question)),
        element(
            "form",
            hidden(repeated),
            [_field(one, dict(fields), question) for one in question.prompts],
            element("p", buttons, leaving(back)),
            method="post",
            action=action,
        ),
        list(_diffs(about)) if isinstance(about, ReversalPreview) else None,
        label=question.title,
    )


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _field(prompt: Prompt, known: dict[str, str], question: Question) -> Html:
    words, text = prompt.words.removesuffix(":"), known.get(prompt.name, prompt.text)
    if prompt.is_long:
        area = element(
            "textarea", "\n", text, name=prompt.name, rows="3", id=prompt.name, required=prompt.is_required
        )
        return element("label", words, area)
    branch = question.about.commit.branch if isinstance(question.about, CommitPreview) else None
    field = element("input", name=prompt.name, value=text, placeholder=branch, maxlength=prompt.length_max)
    return element("label", f"{words} ", field)


def _subject(question: Question) -> Iterator[Html]:
    """Yield what the question is about."""
    match question.about:
        case HeldLeases(leases):
            rows = [element("li", f"lease on {' '.join(one.paths)}") for one in leases]
            yield element("ul", rows, class_="leases")
        case UnreviewedWork(transactions):
            subjects = [(one.seq, one.message.partition("\n")[0]) for one in transactions]
            links = [(element("a", str(seq), href=f"/transactions/{seq}"), text) for seq, text in subjects]
            yield element("ul", [element("li", link, f" {text}") for link, text in links])
        case CommitPreview():
            yield from _commit(question.about)
        case ReversalPreview():
            yield from _reversal(question.about)


def _commit(preview: CommitPreview) -> Iterator[Html]:
    commit = preview.commit
    rows = [
        element(
            "tr",
            element("td", LETTERS[file.change]),
            element("td", file.path, class_="path"),
            element("td", line_counts(file.added, file.removed) or "binary"),
        )
        for file in commit.files[:FILES_MAX]
    ]
    about = f"{quantity(len(commit.files), 'file')} of {quantity(len(commit.transactions), 'transaction')}"
    yield _effects_table(f"{about}, on the branch {commit.branch}", ("Change", "File", "Lines"), rows)
    if commit.left_out:
        yield element("p", f"Left out, as git would: {', '.join(commit.left_out)}")


def _reversal(preview: ReversalPreview) -> Iterator[Html]:
    if preview.effects:
        caption = f"The effect on {quantity(len(preview.effects), 'file')}"
        yield _effects_table(caption, ("Fit", "File", "Effect"), [*map(_effect, preview.effects)])
    if preview.needed:
        links = [element("a", str(seq), href=f"/transactions/{seq}") for seq in preview.needed]
        yield element("p", f"{NEEDED_WORDS} ", [joined(link, " ") for link in links])


def _effect(one: FileEffect) -> Html:
    return element(
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


def _effects_table(caption: str, heads: Sequence[str], rows: Sequence[Html]) -> Html:
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", [element("th", one, scope="col") for one in heads])),
        element("tbody", rows),
        class_="effects",
    )


def _diffs(preview: ReversalPreview) -> Iterator[Html]:
    left = ROWS_MAX
    for file in preview.result.files:
        rows = (
            [row for row in rows_of(file.diff) if row.kind != "header"] if isinstance(file.diff, str) else []
        )
        left -= len(rows)
        if rows and left >= 0:
            name = element("h3", element("span", file.path, class_="path"))
            yield joined(name, table(f"Changes of {file.path}", [element("tbody", lines(rows))]))
