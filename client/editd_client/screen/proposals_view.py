"""The view of the proposals: the list, the chosen hunks of each, and the keys that decide."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from editd_client import requests
from editd_client.errors import EditdError
from editd_client.review.patch import Syntax, has_roles
from editd_client.review.proposals import ProposalRows, matching
from editd_client.review.query import TransactionQuery
from editd_client.screen.detail import Detail, Lighting
from editd_client.screen.lines import Line, TextSpan, wrap_texts
from editd_client.screen.patch_lines import ProposalDrawing, is_long, proposal_lines
from editd_client.screen.proposal_work import ProposalWork, ShownProposal
from editd_client.screen.rows import Drawing, proposal_line, proposal_subject

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from typing import Any

    from editd.wire.messages import ProposalEntry, ProposalGetResult
    from editd_client.review.actions import View
    from editd_client.screen.desk import ReviewDesk

LIST_MAX = 1000  # open proposals, the daemon's own limit
EMPTY = (
    "Nothing waits. Proposals appear here when an agent's edit needs approval:",
    "",
    "  editctl config set review.default ask",
    "  editctl session open NAME --propose",
)


class ProposalsView:
    """The proposals that wait, and the one at the cursor hunk by hunk."""

    name: View = "proposals"

    def __init__(self, desk: ReviewDesk) -> None:
        self.desk = desk
        self.list = ProposalRows()
        self.query = TransactionQuery()
        self.detail = Detail()
        self.is_loaded = False
        self._number: int | None = None  # of the proposal at the cursor
        self._shown: dict[int, ShownProposal] = {}
        self._outdated: set[int] = set()
        self._is_fetching = False
        self._meanwhile: list[Mapping[str, Any]] = []  # the events since the list was last asked for
        self._is_list_outdated = True
        self._work = ProposalWork(desk, self._forget)
        self._lighting = Lighting(desk, self._unlit, self._light)

    # ── The list ──

    @property
    def entries(self) -> list[ProposalEntry]:
        return matching(self.list.entries, self.query)

    @property
    def count(self) -> int:
        return len(self.entries)

    @property
    def cursor_row(self) -> int:
        numbers = [one.proposal for one in self.entries]
        return numbers.index(self._number) if self._number in numbers else 0

    @property
    def selected(self) -> ProposalEntry | None:
        entries = self.entries
        return entries[self.cursor_row] if entries else None

    @property
    def shown(self) -> ShownProposal | None:
        """The proposal at the cursor, once it has been fetched."""
        return None if self.selected is None else self._shown.get(self.selected.proposal)

    def move(self, rows: int) -> None:
        self.put(self.cursor_row + rows)

    def put(self, row: int) -> None:
        entries = self.entries
        if entries:
            self._number = entries[min(max(0, row), len(entries) - 1)].proposal

    def second(self, number: int, width: int) -> Line | None:
        entries = self.entries
        if not self.is_loaded or number >= len(entries):
            return None
        return proposal_subject(entries[number], width)

    def row(self, number: int, width: int, *, has_second: bool = False) -> Line | None:
        entries = self.entries
        if not self.is_loaded or (not entries and not self.query.is_empty):
            text = "no proposal matches, esc shows all" if self.is_loaded else "…"
            return Line((TextSpan(f" {text}", "dim"),)) if number == 0 else None
        if not entries:
            lines = wrap_texts(EMPTY, width)
            return lines[number] if number < len(lines) else None
        if number >= len(entries):
            return None
        drawing = Drawing(width, self.desk.clock, is_cursor=number == self.cursor_row, has_second=has_second)
        return proposal_line(entries[number], drawing)

    def title(self) -> str:
        return f"PROPOSALS {len(self.list)}"

    # ── The daemon ──

    def event(self, name: str, data: Mapping[str, Any]) -> None:
        """Take an event: of a proposal, or of a transaction, which may move what is shown."""
        if name == "proposal":
            entry = self.list.take(data)
            if self._is_fetching:
                self._meanwhile.append(data)
            self._outdated.add(entry.proposal)
            if self._number == entry.proposal and self.list.get(entry.proposal) is None:
                self._number = self.list.nearest(entry.proposal)
        elif name == "transaction":
            self._outdated |= self._shown.keys()
            self._is_list_outdated = bool(len(self.list))

    def reload(self) -> None:
        """Fetch the list and the shown proposal again, after a reconnection."""
        self._is_list_outdated = True
        self._outdated |= self._shown.keys()

    @property
    def is_wanting(self) -> bool:
        """Whether the list, the shown proposal or the syntax of a file is missing or outdated."""
        return self._is_list_outdated or self._number_to_show() is not None or self._unlit() is not None

    def pump(self, *, is_visible: bool) -> None:
        """Fetch what is missing or outdated, one request at a time."""
        del is_visible  # the count is
        if not self._is_fetching and (self._is_list_outdated or self._number_to_show() is not None):
            self._is_fetching = True
            self.desk.begin(self._fetch)
        self._lighting.pump()

    def _number_to_show(self) -> int | None:
        selected = self.selected
        if selected is None:
            return None
        is_missing = selected.proposal not in self._shown or selected.proposal in self._outdated
        return selected.proposal if is_missing else None

    async def _fetch(self) -> None:
        try:
            if self._is_list_outdated:
                self._is_list_outdated = False
                self._meanwhile.clear()
                result = await self.desk.ask(requests.proposal_list(limit=LIST_MAX))
                self.list = ProposalRows(result.proposals)
                for data in self._meanwhile:  # the answer may be older than these events
                    self.list.take(data)
                self.is_loaded = True
            while (number := self._number_to_show()) is not None:
                self._outdated.discard(number)
                try:
                    self._take(await self.desk.ask(requests.proposal_get(number)))
                except EditdError as error:
                    if error.name != "unknown_proposal":
                        raise
                    self._is_list_outdated = True
                    break
        finally:
            self._is_fetching = False
            self.desk.redraw()

    def _unlit(self) -> tuple[ShownProposal, str] | None:
        """Return the proposal and the file at the cursor if the syntax of that is not known."""
        one, path = self.shown, self.detail.path
        if one is None or path is None or self.detail.about != one.number or path in one.syntax:
            return None
        return one, path

    async def _light(self, one: ShownProposal, path: str) -> None:
        """Find the syntax of a file, in a thread."""
        texts: list[str | None] = []
        if await asyncio.to_thread(has_roles, path):
            call = requests.proposal_get(one.number, paths=[path], content=True)
            texts = [
                text if isinstance(text, str) else None
                for file in (await self.desk.ask(call)).files
                if file.path == path
                for text in (file.old, file.new)
            ]
        one.syntax = {**one.syntax, path: await asyncio.to_thread(Syntax, path, *texts or (None, None))}

    def _take(self, shown: ProposalGetResult) -> None:
        known = self._shown.get(shown.proposal)
        if known is None:
            self._shown[shown.proposal] = ShownProposal(shown)
            while len(self._shown) > 20:
                del self._shown[next(iter(self._shown))]
        else:
            known.update(shown)

    # ── The diff ──

    def draw(self, width: int) -> None:
        """Make the lines of the diff."""
        one = self.shown
        if one is None:
            self.detail.show(None, None, tuple)
            return
        number = one.shown.proposal
        path = self.detail.path if self.detail.about == number else None
        path = path or (one.files[0].file.path if one.files else None)
        form = self.detail.form(width)
        drawing = ProposalDrawing(one.shown, one.files, one.choices, one.first, one.altered, path, one.syntax)
        chosen = tuple(one.choices.hunks_with("approve")), tuple(one.choices.hunks_with("reject"))
        opened = path if is_long(one.files) else None
        state = (one.shown, form, chosen, one.altered, opened, one.syntax)
        self.detail.show(number, state, lambda: proposal_lines(drawing, form))

    def words(self) -> dict[str, str]:
        """Return the words of some keys in the bottom lines."""
        one = self.shown
        if one is None:
            return {}
        landing, total = one.choices.count()
        rejected = len(one.choices.hunks_with("reject"))
        text = f"approve {landing}" + (f" of {total}" if landing != total else "")
        return {"a": text + (f", reject {rejected}" if rejected else "")}

    # ── Keys ──

    def key(self, key: str, *, is_in_detail: bool) -> Coroutine[Any, Any, None] | None:
        """Carry out a key. Return the work that it starts."""
        del is_in_detail
        one = self.shown
        if one is not None and key == "space":
            self._turn(one)
        return None if one is None else self._work.of(key, one, self.detail.path, self.detail.hunk)

    def _turn(self, one: ShownProposal) -> None:
        hunk = self.detail.hunk
        if hunk is None:
            return
        if one.choices.turn(hunk) is None:
            state = next((own.state for own in one.hunks.values() if own.hunk == hunk), "")
            self.desk.say(f"Nothing is left to decide about this hunk: {state}.", is_error=True)
        one.altered -= {hunk}

    def _forget(self, number: int) -> None:
        """Let the daemon's events bring the proposal anew."""
        self._outdated.add(number)
        self._is_list_outdated = True
        self.desk.redraw()
