"""The view of the timeline: the list of transactions, the diff of one, and the keys that take back."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.conversations.reversal import redo_of, restore_of, reverse, rollback_of, undo_of
from editd_client.conversations.review_mark import mark
from editd_client.errors import EditdError, Unreachable
from editd_client.file_text import text_of
from editd_client.review.feed import CHANGING
from editd_client.review.patch import Syntax, has_roles
from editd_client.review.refusal_rows import REFUSALS_MAX, RefusalRows
from editd_client.review.timeline import RefusalRow, Timeline, TimelineRow, matching_refusals
from editd_client.screen.asker import ScreenAsker
from editd_client.screen.detail import Detail, Lighting
from editd_client.screen.lines import Line, TextSpan, fit, plain, wrap_texts
from editd_client.screen.patch_lines import PatchLine, TransactionDrawing, transaction_lines
from editd_client.screen.refusals import refusal_line, refusal_text, show_refusals
from editd_client.screen.rows import Drawing, timeline_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from editd.wire.messages import ApplyResult, BriefTransaction, Change, Kind, ShowResult
    from editd_client.conversations.reversal import Reversal
    from editd_client.review.actions import View
    from editd_client.review.feed import FeedRequest
    from editd_client.review.query import TransactionQuery
    from editd_client.screen.desk import ReviewDesk

SYNTAX_LINES_MAX = 10_000  # of a file; the lines below have no colours
SHOWN_MAX = 30  # transactions whose diff is kept
RANKED_MAX = 100  # refusals that a query shows, by the transactions at their times
LINES_KEPT = 200  # drawn rows of the list
EMPTY = (
    "No transaction yet. Make one:",
    "",
    "  editctl write notes.txt 'first line'",
    "  editctl replace notes.txt first second",
)


class TimelineView:
    """The transactions of a query, and the one at the cursor hunk by hunk."""

    name: View = "timeline"

    def __init__(self, desk: ReviewDesk) -> None:
        self.desk = desk
        self.timeline = Timeline()
        self.detail = Detail()
        self.first_row = 0  # in view
        self.height = 20
        self._shown: OrderedDict[int, ShowResult] = OrderedDict()
        self._syntax: dict[int, dict[str, Syntax]] = {}  # of each file that has been fetched
        self._chosen: dict[int, frozenset[str]] = {}  # the hunks to be undone, by transaction
        self.refusals = RefusalRows()  # that match the query
        self._refusals: list[RefusalRow] = []  # all of them
        self._ranks: dict[tuple[int, int], int] = {}  # in the list of a query, by its epoch and the seq
        self._refusal: RefusalRow | None = None  # at the cursor
        self._is_fetching = self._has_refusals = self._is_ranking = False
        self._step = 0  # of the last move: 1 down, -1 up
        self._lines: dict[int, tuple[BriefTransaction, object, Line]] = {}  # as drawn, by row of the pane
        self._lighting = Lighting(desk, self._unlit, self._light)

    # ── The list ──

    @property
    def query(self) -> TransactionQuery:
        return self.timeline.feed.query

    @query.setter
    def query(self, query: TransactionQuery) -> None:
        self.timeline.restart(query)
        self.first_row, self._refusal = 0, None
        self._ranks.clear()
        self._list_refusals()

    @property
    def count(self) -> int:
        return self.timeline.count + len(self.refusals)

    @property
    def _newest(self) -> int:
        """The rank of the newest transaction."""
        return self.timeline.feed.head if self.query.is_empty else self.timeline.count

    @property
    def cursor_row(self) -> int:
        if self._refusal is not None and self._refusal in self.refusals:
            return self.refusals.row_of_refusal(self._refusal, self._newest)
        return self.refusals.row_of(self.timeline.cursor_row, self._newest)

    @property
    def seq(self) -> int | None:
        """The transaction at the cursor, also before its row has been fetched."""
        return None if self._refusal is not None else self.timeline.seq_at(self.timeline.cursor_row)

    @property
    def selected(self) -> TimelineRow | None:
        return None if self._refusal is not None else self.timeline.selected

    def move(self, rows: int) -> None:
        row = min(max(0, self.cursor_row + rows), max(0, self.count - 1))
        at, self._refusal = self.refusals.at(row, self._newest)
        self.timeline.move(at - self.timeline.cursor_row)
        self.timeline.is_following &= self._refusal is None and rows < 0
        self._step = 0 if self.timeline.is_following else (rows > 0) - (rows < 0)

    def put(self, row: int) -> None:
        at, refusal = self.refusals.at(max(0, row), self._newest)
        if row <= 0:
            self.timeline.newest()
        elif row >= self.count - 1:
            self.timeline.oldest()
        else:
            self.timeline.put(at)
        self._refusal = refusal if row > 0 or not self.timeline.count else None
        self._step = 0

    def second(self, number: int, width: int) -> Line | None:
        del number, width  # a transaction has one line
        return None

    def row(self, number: int, width: int, *, has_second: bool = False) -> Line | None:
        del has_second
        if not self.timeline.feed.is_counted:
            return Line((TextSpan(" …", "dim"),)) if number == 0 else None
        if number >= self.count:
            texts = EMPTY if self.query.is_empty else ("no transaction matches, esc shows all",)
            lines, at = wrap_texts(texts, width), number - self.count
            is_empty = self.count <= 1 and at < len(lines) and (self.query.is_empty or self.count == 0)
            return lines[at] if is_empty else None
        at, refusal = self.refusals.at(number, self._newest)
        if refusal is not None:
            return refusal_line(refusal, Drawing(width, self.desk.clock, number == self.cursor_row))
        entry = self.timeline.feed.row(self.timeline.count - 1 - at)
        clock, is_cursor = self.desk.clock, number == self.cursor_row
        if entry is None:
            return timeline_line(None, self.timeline.seq_at(at), Drawing(width, clock, is_cursor))
        drawing = Drawing(width, clock, is_cursor, entry.seq in self.timeline.marks)
        state = (drawing, clock.now().date())  # a row has the time of today's transactions
        slot = (self.timeline.count - at) % LINES_KEPT
        known = self._lines.get(slot)
        if known is not None and known[0] is entry and known[1] == state:
            return known[2]
        line = timeline_line(TimelineRow.of(entry), entry.seq, drawing)
        self._lines[slot] = (entry, state, line)
        return line

    def title(self) -> str:
        query = f" {self.query.text}" if not self.query.is_empty else ""
        return f"TIMELINE{query}" + ("  follows" if self.timeline.is_following else "")

    # ── The daemon ──

    def announce(self, seq: int, kind: Kind) -> None:
        """Take the news of a transaction."""
        self.timeline.feed.announce(seq, kind)
        self.timeline.follow_newest()
        if kind in CHANGING:
            self._shown.clear()

    def add_refusal(self, one: RefusalRow) -> None:
        """Take the news of a refusal."""
        self._refusals = [one, *self._refusals][:REFUSALS_MAX]
        self._list_refusals()

    def outdate(self) -> None:
        """Fetch what is shown again: marks of reviewers have changed."""
        self.timeline.feed.outdate()
        self._shown.clear()

    def reload(self) -> None:
        """Fetch everything again, after a reconnection."""
        self.timeline.feed.restart()
        self._shown.clear()
        self._refusals, self._refusal, self._has_refusals = [], None, False
        self._list_refusals()

    @property
    def is_wanting(self) -> bool:
        """Whether something in view has not been fetched."""
        return self._seq_to_show() is not None or self._unlit() is not None

    def pump(self, *, is_visible: bool) -> None:
        """Fetch what is in view, and the diff of the transaction at the cursor; unseen, only the count."""
        if not is_visible and self.timeline.feed.is_counted:
            return
        if not self._has_refusals:
            self._has_refusals = True
            self.desk.begin(self._fetch_refusals)
        if not self._is_ranking and self._seqs_to_rank():
            self._is_ranking = True
            self.desk.begin(self._fetch_ranks)
        first, _ = self.refusals.at(self.first_row, self._newest)
        for asked in self.timeline.requests(first, self.height):
            self.desk.begin(partial(self._fetch, asked))
        if not self._is_fetching and self._missing() is not None:
            self._is_fetching = True
            self.desk.begin(self._fetch_diffs)
        self._lighting.pump()

    async def _fetch(self, asked: FeedRequest) -> None:
        try:
            result = await self.desk.ask(asked.call)
        except (EditdError, Unreachable):
            self.timeline.feed.note_failure(asked)
            raise
        self.timeline.feed.receive(asked, result)
        self.timeline.follow_newest()
        if asked.what == "count" or asked.epoch != self.timeline.feed.epoch:
            self._list_refusals()
        self.desk.redraw()

    async def _fetch_refusals(self) -> None:
        entry = await self.desk.ask(requests.log_refusals(limit=REFUSALS_MAX))
        self._refusals = [*map(RefusalRow.of, entry.refusals)]
        self._list_refusals()
        self.desk.redraw()

    def _seqs_to_rank(self) -> list[int]:
        """Return the transactions whose rank is needed to place the refusals that match the query."""
        if self.query.is_empty:
            return []
        heads = dict.fromkeys(one.head for one in matching_refusals(self._refusals, self.query))
        epoch = self.timeline.feed.epoch
        return [head for head in [*heads][:RANKED_MAX] if (epoch, head) not in self._ranks]

    async def _fetch_ranks(self) -> None:
        try:
            while heads := self._seqs_to_rank():
                epoch = self.timeline.feed.epoch
                call = requests.log_count(**self.query.params, before=heads[0] + 1)
                self._ranks[epoch, heads[0]] = (await self.desk.ask(call)).count
                self._list_refusals()
                self.desk.redraw()
        finally:
            self._is_ranking = False

    def _list_refusals(self) -> None:
        """List the refusals that match the query, as far as their places are known."""
        feed = self.timeline.feed
        ranks = {head: rank for (epoch, head), rank in self._ranks.items() if epoch == feed.epoch}
        matching = matching_refusals(self._refusals, self.query)
        if self.query.is_empty:
            self.refusals = RefusalRows(matching)
        else:
            self.refusals = RefusalRows((one for one in matching if one.head in ranks), ranks)
        if feed.is_counted and not feed.count and self._refusal is None and len(self.refusals):
            self._refusal = self.refusals.at(0, 0)[1]  # a list without transactions

    def _seq_to_show(self) -> int | None:
        seq = self.seq
        return None if seq is None or seq in self._shown else seq

    def _missing(self) -> int | None:
        """Return the transaction at the cursor if its diff is missing, otherwise the next one of the keys.

        So the next key need not wait for the daemon. The next one is known after a move.
        """
        wanted, row = self._seq_to_show(), self.cursor_row + self._step
        if wanted is not None or not self._step or not 0 <= row < self.count:
            return wanted
        at, refusal = self.refusals.at(row, self._newest)
        seq = None if refusal is not None else self.timeline.seq_at(at)
        return None if seq in self._shown else seq

    async def _fetch_diffs(self) -> None:
        try:
            while (seq := self._missing()) is not None:
                await self._fetch_diff(seq)
                if seq == self.seq:
                    self.desk.redraw()
        finally:
            self._is_fetching = False

    async def _fetch_diff(self, seq: int) -> None:
        self._shown[seq] = await self.desk.ask(requests.show(seq, hunks=True, decoded=True))
        while len(self._shown) > SHOWN_MAX:
            self._shown.popitem(last=False)

    def _unlit(self) -> tuple[ShowResult, Change] | None:
        """Return the transaction and its file at the cursor if the syntax of that is not known."""
        shown = self.shown
        if shown is None or self.detail.about != shown.transaction.seq:
            return None
        known = self._syntax.get(shown.transaction.seq, {})
        files = (one for one in shown.transaction.files if one.path == self.detail.path)
        file = next(files, None)
        return None if file is None or file.path in known else (shown, file)

    async def _light(self, shown: ShowResult, file: Change) -> None:
        """Find the syntax of a file, in a thread."""
        seq = shown.transaction.seq
        source = file.from_ if isinstance(file.from_, str) else file.path
        old = new = None
        if await asyncio.to_thread(has_roles, file.path):
            old = None if file.change == "added" else await self._text(source, seq - 1)
            new = None if file.change == "deleted" else await self._text(file.path, seq)
        syntax = await asyncio.to_thread(Syntax, file.path, old, new)
        self._syntax[seq] = {**self._syntax.pop(seq, {}), file.path: syntax}
        while len(self._syntax) > SHOWN_MAX:
            del self._syntax[next(iter(self._syntax))]

    async def _text(self, path: str, at: int) -> str | None:
        """Return the text of a file after a transaction; None if it has none, as a binary file."""
        try:
            call = requests.read(path, at=at, start_line=1, end_line=SYNTAX_LINES_MAX)
            return text_of(await self.desk.ask(call))
        except EditdError:
            return None

    # ── The diff ──

    @property
    def shown(self) -> ShowResult | None:
        """The transaction at the cursor with its diff, once it has been fetched."""
        return None if self.seq is None else self._shown.get(self.seq)

    def draw(self, width: int) -> None:
        """Make the lines of the diff."""
        shown = self.shown
        if shown is None:
            one = self._refusal
            self.detail.show(
                one, width, lambda: () if one is None else map(PatchLine, refusal_text(one, width))
            )
            return
        seq = shown.transaction.seq
        path = self.detail.path if self.detail.about == seq else None
        path = path or (shown.transaction.files[0].path if shown.transaction.files else None)
        form = self.detail.form(width)
        syntax = self._syntax.get(seq, {})
        drawing = TransactionDrawing(shown, self._chosen.get(seq, frozenset()), path, syntax)
        state = (shown, form, drawing.chosen, path, syntax)
        self.detail.show(seq, state, lambda: transaction_lines(drawing, form))

    def words(self) -> dict[str, str]:
        """Return the words of some keys in the bottom lines."""
        chosen = self._chosen.get(self.seq, ()) if self.seq is not None else ()
        if chosen:
            return {"u": f"undo {len(chosen)} hunk{'s' * (len(chosen) != 1)}…"}
        return {"u": f"undo {len(self.timeline.marks)} marked…"} if self.timeline.marks else {}

    # ── Keys ──

    def key(self, key: str, *, is_in_detail: bool) -> Coroutine[Any, Any, None] | None:
        """Carry out a key. Return the work that it starts."""
        if key == "space":
            if is_in_detail:
                self._choose()
            elif self._refusal is None:
                self.timeline.toggle_mark()
        elif key == "f":
            self.put(0) if not self.timeline.is_following else self.timeline.put(self.timeline.cursor_row)
        elif key == "r":
            return self._redo()
        elif key == "!":
            return show_refusals(self.desk)
        elif key == ":":
            return self._go_to()
        elif (seq := self.seq) is not None:
            work = {
                "u": self._undo, "R": self._rollback, "S": self._restore, "b": self._blame, "y": self._copy,
                "M": self._review,
            }.get(key)  # fmt: skip
            return None if work is None else self._about(seq, work)
        return None

    async def _about(self, seq: int, work: Callable[[TimelineRow], Coroutine[Any, Any, None]]) -> None:
        """Do work about a transaction, whose row may not have been fetched yet."""
        row = self.selected
        if row is None or row.seq != seq:
            result = await self.desk.ask(requests.log(before=seq + 1, limit=1, brief=True))
            row = TimelineRow.of(result.transactions[0])
        await work(row)

    def leave(self) -> bool:
        """Drop the marks and the chosen hunks. Return whether there were any."""
        had = bool(self.timeline.marks or self._chosen)
        self.timeline.marks.clear()
        self._chosen.clear()
        return had

    def _choose(self) -> None:
        shown = self.shown
        if shown is None or self.detail.hunk is None:
            return
        seq = shown.transaction.seq
        chosen = self._chosen.get(seq, frozenset()) ^ {self.detail.hunk}
        self._chosen = {**self._chosen, seq: chosen} if chosen else {
            one: hunks for one, hunks in self._chosen.items() if one != seq
        }  # fmt: skip

    async def _undo(self, row: TimelineRow) -> None:
        """Undo the chosen hunks, otherwise what is marked, otherwise the transaction at the cursor."""
        chosen = self._chosen.get(row.seq, frozenset())
        if chosen:
            hunks: dict[str, list[int]] = {}
            for one in sorted(chosen):
                path, _, number = one.rpartition(":")
                hunks.setdefault(path, []).append(int(number))
            if await self._reverse(undo_of(row.seq, hunks)):
                self._chosen.pop(row.seq, None)
        elif marks := sorted(self.timeline.marks, reverse=True):
            for seq in marks:
                about = f", one of {len(marks)} that are marked"
                if await self._reverse(undo_of(seq, about=about)) is None:
                    return
                self.timeline.marks.discard(seq)
        else:
            about = f" “{row.subject}”" if row.subject else ""
            await self._reverse(undo_of(row.seq, about=f"{about} by {row.who}"))

    async def _reverse(self, reversal: Reversal) -> ApplyResult | None:
        return await reverse(ScreenAsker(self.desk), reversal, request_id=secrets.token_hex(16))

    async def _redo(self) -> None:
        await self._reverse(redo_of())

    async def _rollback(self, row: TimelineRow) -> None:
        shown = await self.desk.ask(requests.show(row.seq, diff=False))
        session = shown.transaction.session
        if session is None:
            self.desk.say("This transaction is of no session: u undoes it alone.", is_error=True)
            return
        await self._reverse(rollback_of(session))

    async def _restore(self, row: TimelineRow) -> None:
        """Put the file at the cursor, or all files, back to the state right after a transaction."""
        path = self.detail.path if self.detail.about == row.seq else row.path
        answers = ({} if path is None else {"f": "only this file"}) | {"w": "the whole workspace"}
        line = Line((TextSpan(f" {plain(path or '')}"),))
        title = f"Put back to the state after {row.seq}:"
        answer = await self.desk.choose(title, [] if path is None else [line], answers)
        if answer is None:
            return
        await self._reverse(restore_of(row.seq, [path] if answer == "f" and path is not None else None))

    async def _go_to(self) -> None:
        text = await self.desk.prompt("Go to the transaction:")
        if not text:
            return
        result = await self.desk.ask(requests.show(int(text) if text.isdecimal() else text, diff=False))
        self._refusal = None
        if not self.timeline.go_to(result.transaction.seq):
            self.query = type(self.query)()  # it may not match the query: show all
            self.desk.begin(partial(self._go_when_counted, result.transaction.seq))

    async def _go_when_counted(self, seq: int) -> None:
        for asked in self.timeline.requests(0, 1):
            await self._fetch(asked)
        self.timeline.go_to(seq)
        self.desk.redraw()

    async def _blame(self, row: TimelineRow) -> None:
        """Show the author of each line of the file at the cursor."""
        path = self.detail.path if self.detail.about == row.seq else row.path
        if path is None:
            return
        blamed = await self.desk.ask(requests.blame(path))
        text = text_of(await self.desk.ask(requests.read(path))).split("\n")
        lines = [
            Line(
                (
                    TextSpan(
                        f"{one.seq:>6} {fit(plain(one.session or one.actor), 10)} {one.line:>5} ", "dim"
                    ),
                    TextSpan(plain(text[one.line - 1]) if one.line <= len(text) else ""),
                )
            )
            for one in blamed.lines
        ]
        await self.desk.choose(f"{plain(path)}, line by line", lines, {})

    async def _review(self, row: TimelineRow) -> None:
        """Mark what is chosen as reviewed; a single transaction that has the mark loses it."""
        marks = sorted(self.timeline.marks) or [row.seq]
        is_new = len(marks) > 1 or row.reviewed_by is None
        await mark(ScreenAsker(self.desk), marks, is_new=is_new)
        self.timeline.marks.clear()
        self.outdate()

    async def _copy(self, row: TimelineRow) -> None:
        self.desk.copy(row.id)
        self.desk.say(f"The id of {row.seq} is on the clipboard.")
