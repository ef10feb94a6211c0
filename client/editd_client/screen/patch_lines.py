"""The pane of details as lines: a proposal hunk by hunk, a transaction, an agent, and the preview of an undo.

Each line names the hunk and the file that it belongs to, so that a pane can go from one to the next, and a
click can choose.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from editd_client.review import proposals
from editd_client.review.choices import SIGNS
from editd_client.review.patch import parts_of, rows_of
from editd_client.screen.lines import Line, Look, TextSpan, cut_path, plain, right_aligned, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from editd.wire.messages import Change, Hunk, ProposalGetResult, ProposalHunk, ShowResult, Transaction
    from editd_client.review.choices import HunkChoices
    from editd_client.review.patch import Row, Syntax
    from editd_client.review.proposals import ShownFile, ShownHunk

LINES_MAX = 5_000  # of a proposal or a transaction; above, only the current file is open
LETTERS = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "M"}
NUMBERS_COLUMNS = 12  # the numbers of a line and its sign
LOOKS: Mapping[str, Look] = {"removed": "removed", "added": "added"}  # of a kind of row


class PatchLine(NamedTuple):
    """A line of the pane, with the hunk (an id, or PATH:K of a transaction) and the file that it is about."""

    line: Line
    hunk: str | None = None
    path: str | None = None
    is_title: bool = False  # of the hunk or, without a hunk, of the file

    def with_cursor(self) -> Line:
        """Return the line with the sign of the cursor at its beginning."""
        return Line((TextSpan("▌", "key"), *self.line.spans[1:]))


class DiffForm(NamedTuple):
    """The width of the pane, and whether long lines are wrapped, or both sides are beside each other."""

    width: int
    is_wrapped: bool = False
    shift: int = 0  # columns that are scrolled out at the left, without wrapping
    is_split: bool = False


DIALOG = DiffForm(1_000)  # a dialog cuts its lines itself


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


class ProposalDrawing(NamedTuple):
    """All that the lines of a proposal depend on."""

    shown: ProposalGetResult
    files: Sequence[ShownFile]
    choices: HunkChoices
    before: Mapping[str, ProposalHunk]  # hunks as they were shown first
    altered: frozenset[str] = frozenset()
    open_path: str | None = None  # the only file to show, if the diff is long
    syntax: Mapping[str, Syntax] = {}  # of each file that has been fetched


def proposal_lines(drawing: ProposalDrawing, form: DiffForm) -> Iterator[PatchLine]:
    """Yield a proposal: its heading, and its files hunk by hunk with the choice about each."""
    yield from _proposal_heading(drawing.shown, form.width)
    is_folded = is_long(drawing.files)
    for number, file in enumerate(drawing.files, 1):
        path = file.file.path
        chosen, total = drawing.choices.count(path)
        left = Line(
            (TextSpan(f" {LETTERS[file.file.change]} ", "title"), TextSpan(plain(file.title), "title"))
        )
        count = f"{chosen} of {total} hunk{'s' * (total != 1)} chosen   " if total else ""
        right = Line((TextSpan(f"{count}file {number}/{len(drawing.files)} ", "dim"),))
        yield PatchLine(right_aligned(left, right, form.width), None, path, is_title=True)
        if is_folded and path != drawing.open_path:
            rows = sum(len(hunk.rows) for hunk in file.hunks)
            yield PatchLine(Line((TextSpan(f"   {rows} lines: }} and {{ open a file", "dim"),)), None, path)
            continue
        for comment in file.comments:
            yield from _comment(comment.by.actor, comment.text, path, None, form.width)
        for hunk in file.hunks:
            yield from _hunk_lines(hunk, path, drawing, form)
    yield from _proposal_end(drawing.shown, form.width)


def is_long(files: Sequence[ShownFile]) -> bool:
    """Whether only one file of a proposal is open at a time."""
    return sum(len(hunk.rows) for file in files for hunk in file.hunks) > LINES_MAX


def _proposal_heading(shown: ProposalGetResult, width: int) -> Iterator[PatchLine]:
    words = [
        proposals.subject(shown), proposals.author(shown), proposals.reason(shown),
        *([f"revision {shown.revision}"] if shown.revision > 1 else []),
        f"made on {shown.at}, shown on {shown.head}",
    ]  # fmt: skip
    head = (TextSpan(f" P{shown.proposal} ", "title"), TextSpan(" · ".join(map(plain, words)), "bold"))
    for spans in wrap(head, width, 5, has_words=True):
        yield PatchLine(Line(spans))
    for text in shown.message.split("\n")[1:]:
        if text.strip():
            yield PatchLine(Line((TextSpan(f"     {plain(text)}"),)))
    if shown.state != "open":
        yield PatchLine(Line((TextSpan(f" It is {shown.state}.", "warning"),)))


def _hunk_lines(shown: ShownHunk, path: str, drawing: ProposalDrawing, form: DiffForm) -> Iterator[PatchLine]:
    hunk = shown.hunk
    choice = drawing.choices.of(hunk.hunk)
    mark = f"[{SIGNS[choice]}]" if choice is not None else f" {proposals.MARKS[hunk.state]} "
    if hunk.state == "conflict" and choice == "open":
        mark = "[!]"
    looks: dict[str, Look] = {"conflict": "bad", "landed": "good", "rejected": "dim", "there": "dim"}
    title = proposals.hunk_title(hunk, drawing.before.get(hunk.hunk))
    position = f"@@ {hunk.old_start}  " if hunk.kind == "lines" else ""
    spans = [
        TextSpan(" "),
        TextSpan(mark, "bold" if choice == "approve" else looks.get(hunk.state, ""), "space"),
        TextSpan(f" {hunk.number}  ", "bold"),
        _note(hunk.hunk, drawing),
        TextSpan(position, "dim"),
        TextSpan(title, looks.get(hunk.state, "")),
    ]
    yield PatchLine(Line(tuple(spans)), hunk.hunk, path, is_title=True)
    for text in rows_lines(shown.rows, form, drawing.syntax.get(path)):
        yield PatchLine(text, hunk.hunk, path)
    if hunk.state == "conflict" and shown.present_lines:
        yield PatchLine(Line((TextSpan("     there is now:", "bad"),)), hunk.hunk, path)
        for present in shown.present_lines:
            yield PatchLine(Line((TextSpan(f"       {plain(present)}", "dim"),)), hunk.hunk, path)
    for comment in shown.comments:
        yield from _comment(comment.by.actor, comment.text, path, hunk.hunk, form.width)


def _note(hunk: str, drawing: ProposalDrawing) -> TextSpan:
    """Return a note about the choice of a hunk, before its fit, which may be cut."""
    if hunk in drawing.altered:
        return TextSpan("changed, choose again  ", "warning")
    return TextSpan("to be rejected  ", "bad") if drawing.choices.of(hunk) == "reject" else TextSpan("")


def _comment(actor: str, text: str, path: str | None, hunk: str | None, width: int) -> Iterator[PatchLine]:
    head = (TextSpan("     · ", "warning"), TextSpan(f"{plain(actor)}: ", "bold"), TextSpan(plain(text)))
    for spans in wrap(head, width, 7, has_words=True):
        yield PatchLine(Line(spans), hunk, path)


def _proposal_end(shown: ProposalGetResult, width: int) -> Iterator[PatchLine]:
    for comment in proposals.general_comments(shown):
        yield from _comment(comment.by.actor, comment.text, None, None, width)
    for check in shown.checks:
        looks: Look = "good" if check.exit == 0 else "bad"
        sign = "✓" if check.exit == 0 else "✗"
        text = proposals.check_text(check, shown)
        look: Look = looks if check.is_current else "dim"
        yield PatchLine(Line((TextSpan(f" {sign} {plain(check.name)}: {plain(text)}", look),)))
        if check.exit != 0:
            for output in check.output.rstrip("\n").split("\n")[-6:]:
                yield PatchLine(Line((TextSpan(f"     {plain(output)}", "dim"),)))
    for running in shown.running:
        text = f" … {plain(running.name)}: {proposals.running_text(running)}"
        yield PatchLine(Line((TextSpan(text, "warning"),)))
    if shown.lands_after:
        names = ", ".join(map(plain, shown.lands_after))
        yield PatchLine(Line((TextSpan(f" lands by itself after {names}", "dim"),)))
    for decision in shown.decisions:
        decided = f" {plain(decision.by.actor)}: {decision.what}"
        seq = f", transaction {decision.seq}" if decision.seq is not None else ""
        remark = f": {plain(decision.comment)}" if decision.comment else ""
        yield PatchLine(Line((TextSpan(decided + seq + remark, "dim"),)))


# ── Rows of a diff ────────────────────────────────────────────────────────────────────────────


def rows_lines(rows: Iterable[Row], form: DiffForm, syntax: Syntax | None = None) -> Iterator[Line]:
    """Yield the rows of a hunk, without git's headers."""
    shown = (row for row in rows if row.kind not in ("place", "header"))
    if form.is_split:
        for pair in _pairs(shown):
            yield _pair_line(*pair, form, syntax)
    else:
        for row in shown:
            yield from row_lines(row, form, syntax)


def row_lines(row: Row, form: DiffForm, syntax: Syntax | None = None) -> Iterator[Line]:
    """Yield a row of a diff: the two numbers, the sign, and the text with its changed words."""
    if row.kind in ("place", "header", "note"):
        yield Line((TextSpan(f"     {plain(row.text)}", "dim"),))
        return
    old = "" if row.old is None else str(row.old)
    new = "" if row.new is None else str(row.new)
    head = (TextSpan(f"{old:>5}{new:>5} ", "dim"), TextSpan(row.sign, LOOKS.get(row.kind, "")))
    pieces = list(_text_spans(row, syntax))
    if form.is_wrapped:
        for spans in wrap((*head, *pieces), form.width, NUMBERS_COLUMNS):
            yield Line(spans)
    else:
        yield Line((*head, *_shift(pieces, form.shift)))


def _pairs(rows: Iterable[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield the removed rows beside the added ones, and the others beside themselves."""
    old: list[Row] = []
    new: list[Row] = []
    for row in rows:
        if row.kind in LOOKS:
            (old if row.kind == "removed" else new).append(row)
            continue
        yield from zip_longest(old, new)
        old, new = [], []
        yield row, row
    yield from zip_longest(old, new)


def _pair_line(old: Row | None, new: Row | None, form: DiffForm, syntax: Syntax | None) -> Line:
    """Return a line with the old row at the left and the new one at the right."""
    width = (form.width - 1) // 2
    left = _half(old, None if old is None else old.old, form.shift, syntax)
    right = _half(new, None if new is None else new.new, form.shift, syntax)
    return Line((*right_aligned(left, Line(()), width).spans, TextSpan("│", "dim"), *right.spans))


def _half(row: Row | None, number: int | None, shift: int, syntax: Syntax | None) -> Line:
    if row is None:
        return Line(())
    head = (TextSpan(f"{number or '':>5} ", "dim"), TextSpan(row.sign, LOOKS.get(row.kind, "")))
    return Line((*head, *_shift(_text_spans(row, syntax), shift)))


def _text_spans(row: Row, syntax: Syntax | None) -> Iterator[TextSpan]:
    look: Look = LOOKS.get(row.kind, "")
    word: Look = {"removed": "removed_word", "added": "added_word"}.get(row.kind, "bold")  # type: ignore[assignment]
    for part in parts_of(row, () if syntax is None else syntax.of(row)):
        yield TextSpan(plain(part.text), word if part.is_changed else look, role=part.role)


def _shift(spans: Iterable[TextSpan], shift: int) -> Iterator[TextSpan]:
    for span in spans:
        if shift < len(span.text):
            yield span._replace(text=span.text[shift:])
        shift = max(0, shift - len(span.text))


# ── Transactions ──────────────────────────────────────────────────────────────────────────────


def hunk_key(path: str, number: int) -> str:
    """Return the name of a transaction's hunk, as `editctl undo --hunk` takes it."""
    return f"{path}:{number}"


class TransactionDrawing(NamedTuple):
    """All that the lines of a transaction depend on."""

    shown: ShowResult
    chosen: frozenset[str] = frozenset()  # the hunks to be undone
    open_path: str | None = None  # the only file to show, if the diff is long
    syntax: Mapping[str, Syntax] = {}  # of each file that has been fetched


def transaction_lines(drawing: TransactionDrawing, form: DiffForm) -> Iterator[PatchLine]:
    """Yield a transaction: its heading, and its files hunk by hunk with a box for the undo of each."""
    shown = drawing.shown
    yield from _transaction_heading(shown.transaction, form.width)
    hunks = shown.hunks if isinstance(shown.hunks, list) else []
    is_folded = sum(hunk.diff.count("\n") for hunk in hunks) > LINES_MAX
    for file in shown.transaction.files:
        yield PatchLine(_file_title(file, form.width), None, file.path, is_title=True)
        own = [hunk for hunk in hunks if hunk.path == file.path]
        if is_folded and file.path != drawing.open_path:
            number = sum(hunk.diff.count("\n") for hunk in own)
            folded = TextSpan(f"   {number} lines: }} and {{ open a file", "dim")
            yield PatchLine(Line((folded,)), None, file.path)
            continue
        for hunk in own:
            yield from _undo_hunk_lines(hunk, drawing, form)
        rows = () if own else _rows_of_file(shown.diff or "", file)
        for text in rows_lines(rows, form, drawing.syntax.get(file.path)):
            yield PatchLine(text, None, file.path)


def _transaction_heading(made: Transaction, width: int) -> Iterator[PatchLine]:
    about = f"{made.kind} by {plain(made.session or made.actor)}"
    if isinstance(made.proposal, int):
        by = getattr(made.approved_by, "actor", None) or getattr(made.approved_by, "rule", None)
        about += f", proposal {made.proposal}" + (f", approved by {plain(by)}" if by else "")
        about += " with changes" if made.modified is True else ""
    if made.undone_by is not None:
        about += f", undone by {made.undone_by}"
    if made.undoes:
        about += f", of {', '.join(map(str, made.undoes))}"
    head = (TextSpan(f" {made.seq} ", "title"), TextSpan(f" {about}", "bold"))
    for spans in wrap(head, width, 5, has_words=True):
        yield PatchLine(Line(spans))
    for text in made.message.rstrip("\n").split("\n") if made.message else ():
        yield PatchLine(Line((TextSpan(f"     {plain(text)}"),)))


def _undo_hunk_lines(hunk: Hunk, drawing: TransactionDrawing, form: DiffForm) -> Iterator[PatchLine]:
    key = hunk_key(hunk.path, hunk.hunk)
    is_chosen = key in drawing.chosen
    title = (
        TextSpan(" "),
        TextSpan("[u]" if is_chosen else "[ ]", "warning" if is_chosen else "dim", "space"),
        TextSpan(f" {hunk.hunk}  ", "bold"),
        TextSpan("to be undone" if is_chosen else "", "warning"),
    )
    yield PatchLine(Line(title), key, hunk.path, is_title=True)
    for text in rows_lines(rows_of(hunk.diff), form, drawing.syntax.get(hunk.path)):
        yield PatchLine(text, key, hunk.path)


def _file_title(file: Change, width: int) -> Line:
    source = f"{plain(file.from_)} → " if isinstance(file.from_, str) else ""
    undone = f"  undone by {file.undone_by}" if isinstance(file.undone_by, int) else ""
    room = max(8, width - 3 - len(undone))
    return Line(
        (
            TextSpan(f" {LETTERS[file.change]} ", "title"),
            TextSpan(cut_path(f"{source}{plain(file.path)}", room).rstrip(), "title"),
            TextSpan(undone, "warning"),
        )
    )


def _rows_of_file(diff: str, file: Change) -> Iterator[Row]:
    """Yield the rows of a file without hunks, such as a new one."""
    for part in ("\n" + diff).split("\ndiff --git ")[1:]:
        header, _, body = part.partition("\n")
        if file.path in header:
            yield from rows_of(body)
            return


def diff_lines(diff: str, form: DiffForm) -> Iterator[Line]:
    """Yield a diff of several files, with the name of each in place of git's headers."""
    for part in ("\n" + diff).split("\ndiff --git ")[1:]:
        header, _, body = part.partition("\n")
        yield Line((TextSpan(f" {plain(header.rpartition(' b/')[2] or header)}", "title"),))
        yield from rows_lines(rows_of(body), form)
