"""The view of the timeline: the list of transactions, the diff of one, and the keys that take back."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.errors import EditdError, Unreachable
from editd_client.review.feed import CHANGING
from editd_client.review.patch import Syntax
from editd_client.review.timeline import Timeline
from editd_client.screen.detail import Detail
from editd_client.screen.lines import Line, TextSpan, fitted, plain
from editd_client.screen.patch_lines import TransactionDrawing, transaction_lines
from editd_client.screen.rows import Drawing, timeline_line
from editd_client.screen.undo_preview import preview

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from editd.wire.messages import Change, Kind, ShowResult
    from editd_client.review.actions import View
    from editd_client.review.feed import FeedRequest
    from editd_client.review.query import TransactionQuery
    from editd_client.review.timeline import TimelineRow
    from editd_client.screen.desk import ReviewDesk

SHOWN_MAX = 30  # transactions whose diff is kept
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
        self._is_fetching = False

    # ── The list ──

    @property
    def query(self) -> TransactionQuery:
        return self.timeline.feed.query

    @query.setter
    def query(self, query: TransactionQuery) -> None:
        self.timeline.restart(query)
        self.first_row = 0

    @property
    def count(self) -> int:
        return self.timeline.count

    @property
    def cursor_row(self) -> int:
        return self.timeline.cursor_row

    @property
    def selected(self) -> TimelineRow | None:
        return self.timeline.selected

    def move(self, rows: int) -> None:
        self.timeline.move(rows)

    def put(self, row: int) -> None:
        if row <= 0:
            self.timeline.newest()
        elif row >= self.count - 1:
            self.timeline.oldest()
        else:
            self.timeline.put(row)

    def row(self, number: int, width: int) -> Line | None:
        if not self.timeline.feed.is_counted:
            return Line((TextSpan(" …", "dim"),)) if number == 0 else None
        if number >= self.count:
            text = EMPTY if self.query.is_empty else ("no transaction matches, esc shows all",)
            at = number - self.count
            is_empty = self.count <= 1 and at < len(text) and (self.query.is_empty or self.count == 0)
            return Line((TextSpan(f" {text[at]}", "dim"),)) if is_empty else None
        found = self.timeline.at(number)
        seq = self.timeline.seq_at(number) if found is None else found.seq
        is_marked = found is not None and found.seq in self.timeline.marks
        drawing = Drawing(width, self.desk.clock, number == self.cursor_row, is_marked)
        return timeline_line(found, seq, drawing)

    def title(self) -> str:
        query = f" {self.query.text}" if not self.query.is_empty else ""
        return f"TIMELINE{query}" + ("  follows" if self.timeline.is_following else "")

    # ── What comes from the daemon ──

    def announce(self, seq: int, kind: Kind) -> None:
        """Take the news of a transaction."""
        self.timeline.feed.announce(seq, kind)
        self.timeline.grown()
        if kind in CHANGING:
            self._shown.clear()

    def reload(self) -> None:
        """Fetch everything again, after a reconnection."""
        self.timeline.feed.restart()
        self._shown.clear()

    @property
    def is_wanting(self) -> bool:
        """Whether something in view has not been fetched."""
        return self._wanted() is not None or self._unlit() is not None

    def pump(self, *, is_visible: bool) -> None:
        """Fetch what is in view, and the diff of the transaction at the cursor; unseen, only the count."""
        if not is_visible and self.timeline.feed.is_counted:
            return
        for asked in self.timeline.requests(self.first_row, self.height):
            self.desk.begin(partial(self._fetch, asked))
        if not self._is_fetching and self.is_wanting:
            self._is_fetching = True
            self.desk.begin(self._fetch_diff)

    async def _fetch(self, asked: FeedRequest) -> None:
        try:
            result = await self.desk.ask(asked.call)
        except (EditdError, Unreachable):
            self.timeline.feed.failed(asked)
            raise
        self.timeline.feed.receive(asked, result)
        self.timeline.grown()
        self.desk.changed()

    def _wanted(self) -> int | None:
        seq = self.timeline.seq_at(self.cursor_row)
        return None if seq is None or seq in self._shown else seq

    async def _fetch_diff(self) -> None:
        try:
            while (seq := self._wanted()) is not None:
                self._shown[seq] = await self.desk.ask(requests.show(seq, hunks=True))
                while len(self._shown) > SHOWN_MAX:
                    self._shown.popitem(last=False)
            if (unlit := self._unlit()) is not None:
                self.desk.changed()  # plain at first
                await self._light(*unlit)
        finally:
            self._is_fetching = False
            self.desk.changed()

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
        old = None if file.change == "added" else await self._text(source, seq - 1)
        new = None if file.change == "deleted" else await self._text(file.path, seq)
        syntax = await asyncio.to_thread(Syntax, file.path, old, new)
        self._syntax[seq] = {**self._syntax.pop(seq, {}), file.path: syntax}
        while len(self._syntax) > SHOWN_MAX:
            del self._syntax[next(iter(self._syntax))]

    async def _text(self, path: str, at: int) -> str | None:
        """Return the text of a file after a transaction; None if it has none, as a binary file."""
        try:
            return (await self.desk.ask(requests.read(path, at=at))).content
        except EditdError:
            return None

    # ── The diff ──

    @property
    def shown(self) -> ShowResult | None:
        """The transaction at the cursor with its diff, once it has been fetched."""
        seq = self.timeline.seq_at(self.cursor_row)
        return None if seq is None else self._shown.get(seq)

    def draw(self, width: int) -> None:
        """Make the lines of the diff."""
        shown = self.shown
        if shown is None:
            self.detail.show(None, None, tuple)
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
        seq = self.timeline.seq_at(self.cursor_row)
        chosen = self._chosen.get(seq, ()) if seq is not None else ()
        if chosen:
            return {"u": f"undo {len(chosen)} hunk{'s' * (len(chosen) != 1)}…"}
        return {"u": f"undo {len(self.timeline.marks)} marked…"} if self.timeline.marks else {}

    # ── Keys ──

    def key(self, key: str, *, is_in_detail: bool) -> Coroutine[Any, Any, None] | None:
        """Carry out a key. Return the work that it starts."""
        if key == "space":
            self._choose() if is_in_detail else self.timeline.toggle_mark()
        elif key == "f":
            self.timeline.newest() if not self.timeline.is_following else self.timeline.put(self.cursor_row)
        elif key == "r":
            return self._redo()
        elif key == ":":
            return self._go_to()
        elif (row := self.selected) is not None:
            work = {
                "u": self._undo, "R": self._rollback, "S": self._restore, "b": self._blame, "y": self._copy,
            }.get(key)  # fmt: skip
            return None if work is None else work(row)
        return None

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
            title = f"Undo {len(chosen)} hunk{'s' * (len(chosen) != 1)} of {row.seq}?"
            if await preview(self.desk, title, partial(requests.undo, row.seq, hunks=hunks)):
                self._chosen.pop(row.seq, None)
        elif marks := sorted(self.timeline.marks, reverse=True):
            for seq in marks:
                title = f"Undo {seq}, one of {len(marks)} that are marked?"
                if await preview(self.desk, title, partial(requests.undo, seq)) is None:
                    return
                self.timeline.marks.discard(seq)
        else:
            about = f" “{plain(row.subject)}”" if row.subject else ""
            title = f"Undo {row.seq}{about} by {plain(row.who)}?"
            await preview(self.desk, title, partial(requests.undo, row.seq))

    async def _redo(self) -> None:
        await preview(self.desk, "Redo the newest undo?", requests.redo, has_partial=False)

    async def _rollback(self, row: TimelineRow) -> None:
        shown = await self.desk.ask(requests.show(row.seq, diff=False))
        session = shown.transaction.session
        if session is None:
            self.desk.say("This transaction is of no session: u undoes it alone.", is_error=True)
            return
        await preview(
            self.desk, f"Roll back all the work of {plain(session)}?", partial(requests.rollback, session)
        )

    async def _restore(self, row: TimelineRow) -> None:
        """Put the file at the cursor, or all files, back to the state right after a transaction."""
        path = self.detail.path if self.detail.about == row.seq else row.path
        answers = ({} if path is None else {"f": "only this file"}) | {"w": "the whole workspace"}
        line = Line((TextSpan(f" {plain(path or '')}"),))
        title = f"Put back to the state after {row.seq}:"
        answer = await self.desk.choose(title, [] if path is None else [line], answers)
        if answer is None:
            return
        paths = [path] if answer == "f" and path is not None else None
        call = partial(requests.restore, row.seq, paths=paths)
        await preview(self.desk, title, call, has_partial=False, words="put it back")

    async def _go_to(self) -> None:
        text = await self.desk.prompt("Go to the transaction:")
        if not text:
            return
        found = await self.desk.ask(requests.show(int(text) if text.isdecimal() else text, diff=False))
        if not self.timeline.go_to(found.transaction.seq):
            self.query = type(self.query)()  # it may not match the query: show all
            self.desk.begin(partial(self._go_when_counted, found.transaction.seq))

    async def _go_when_counted(self, seq: int) -> None:
        for asked in self.timeline.requests(0, 1):
            await self._fetch(asked)
        self.timeline.go_to(seq)
        self.desk.changed()

    async def _blame(self, row: TimelineRow) -> None:
        """Show the author of each line of the file at the cursor."""
        path = self.detail.path if self.detail.about == row.seq else row.path
        if path is None:
            return
        blamed = await self.desk.ask(requests.blame(path))
        text = (await self.desk.ask(requests.read(path))).content.split("\n")
        lines = [
            Line(
                (
                    TextSpan(
                        f"{one.seq:>6} {fitted(plain(one.session or one.actor), 10)} {one.line:>5} ", "dim"
                    ),
                    TextSpan(plain(text[one.line - 1]) if one.line <= len(text) else ""),
                )
            )
            for one in blamed.lines
        ]
        await self.desk.choose(f"{plain(path)}, line by line", lines, {})

    async def _copy(self, row: TimelineRow) -> None:
        self.desk.copy(row.id)
        self.desk.say(f"The id of {row.seq} is on the clipboard.")
