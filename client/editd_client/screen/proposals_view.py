"""The view of the proposals: the list, the chosen hunks of each, and the keys that decide."""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

from editd.wire.messages import ReviewedFile
from editd_client import requests
from editd_client.errors import EditdError
from editd_client.review import actions
from editd_client.review.choices import HunkChoices
from editd_client.review.proposals import ProposalRows, shown_files
from editd_client.review.query import TransactionQuery
from editd_client.screen.detail import Detail
from editd_client.screen.lines import Line, TextSpan, plain
from editd_client.screen.patch_lines import (
    DiffForm,
    ProposalDrawing,
    diff_lines,
    is_long,
    proposal_lines,
)
from editd_client.screen.programs import edited, tried
from editd_client.screen.rows import Drawing, proposal_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from editd.wire.messages import ProposalEntry, ProposalGetResult, ProposalHunk
    from editd_client.review.actions import View
    from editd_client.review.proposals import ShownFile
    from editd_client.screen.desk import ReviewDesk

LIST_MAX = 1000  # open proposals, the daemon's own limit
EMPTY = (
    "Nothing waits. Proposals appear here when an agent's edit needs approval:",
    "",
    "  editctl config set review.default ask",
    "  editctl session open NAME --propose",
)


class ShownProposal:
    """A proposal with its hunks, the choices, and the hunks that changed since the reviewer looked."""

    def __init__(self, shown: ProposalGetResult) -> None:
        self.shown = shown
        self.files: tuple[ShownFile, ...] = shown_files(shown)
        self.choices = HunkChoices(shown)
        self.first = _hunks(shown)
        self.altered: frozenset[str] = frozenset()

    def update(self, shown: ProposalGetResult) -> None:
        """Take a newer view. Choices stay with their hunks."""
        if shown == self.shown:
            return
        self.altered = (self.altered & _hunks(shown).keys()) | set(self.choices.replace(shown))
        self.shown, self.files = shown, shown_files(shown)


def _hunks(shown: ProposalGetResult) -> dict[str, ProposalHunk]:
    return {hunk.hunk: hunk for file in shown.files for hunk in file.hunks}


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
        self._is_list_outdated = True

    # ── The list ──

    @property
    def entries(self) -> list[ProposalEntry]:
        return [one for one in self.list.entries if _matches(self.query, one)]

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

    def row(self, number: int, width: int) -> Line | None:
        entries = self.entries
        if not self.is_loaded or (not entries and not self.query.is_empty):
            text = "no proposal matches, esc shows all" if self.is_loaded else "…"
            return Line((TextSpan(f" {text}", "dim"),)) if number == 0 else None
        if not entries:
            return Line((TextSpan(f" {EMPTY[number]}", "dim"),)) if number < len(EMPTY) else None
        if number >= len(entries):
            return None
        drawing = Drawing(width, self.desk.clock, is_cursor=number == self.cursor_row)
        return proposal_line(entries[number], drawing)

    def title(self) -> str:
        return f"PROPOSALS {len(self.list)}"

    # ── What comes from the daemon ──

    def event(self, name: str, data: Mapping[str, Any]) -> None:
        """Take an event: of a proposal, or of a transaction, which may move what is shown."""
        if name == "proposal":
            entry = self.list.take(data)
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
        """Whether the list or the shown proposal is missing or outdated."""
        return self._is_list_outdated or self._wanted() is not None

    def pump(self) -> None:
        """Fetch what is missing or outdated, one request at a time."""
        if not self._is_fetching and self.is_wanting:
            self._is_fetching = True
            self.desk.begin(self._fetch())

    def _wanted(self) -> int | None:
        selected = self.selected
        if selected is None:
            return None
        is_missing = selected.proposal not in self._shown or selected.proposal in self._outdated
        return selected.proposal if is_missing else None

    async def _fetch(self) -> None:
        try:
            if self._is_list_outdated:
                self._is_list_outdated = False
                result = await self.desk.ask(requests.proposal_list(limit=LIST_MAX))
                self.list = ProposalRows(result.proposals)
                self.is_loaded = True
            while (number := self._wanted()) is not None:
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
            self.desk.changed()

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
        form = DiffForm(width, self.detail.is_wrapped, self.detail.shift)
        drawing = ProposalDrawing(one.shown, one.files, one.choices, one.first, one.altered, path)
        chosen = tuple(one.choices.chosen("approve")), tuple(one.choices.chosen("reject"))
        opened = path if is_long(one.files) else None
        state = (one.shown, form, chosen, one.altered, opened)
        self.detail.show(number, state, lambda: proposal_lines(drawing, form))

    def words(self) -> dict[str, str]:
        """Return the words of some keys in the bottom lines."""
        one = self.shown
        if one is None:
            return {}
        landing, total = one.choices.count()
        rejected = len(one.choices.chosen("reject"))
        text = f"approve {landing}" + (f" of {total}" if landing != total else "")
        return {"a": text + (f", reject {rejected}" if rejected else "")}

    # ── Keys ──

    async def key(self, key: str, *, is_in_detail: bool) -> bool:
        """Carry out a key. Return whether it has a meaning here."""
        work = {
            "space": self._turn, "a": self._approve, "x": self._reject, "c": self._comment,
            "e": self._edit, "t": self._try, "A": self._allow, "o": self._texts,
        }.get(key)  # fmt: skip
        if work is None:
            return False
        if self.shown is not None:
            await work(self.shown)
        return True

    async def _turn(self, one: ShownProposal) -> None:
        hunk = self.detail.hunk
        if hunk is None:
            return
        if one.choices.turn(hunk) is None:
            state = next((own.state for own in _hunks(one.shown).values() if own.hunk == hunk), "")
            self.desk.say(f"Nothing is left to decide about this hunk: {state}.", is_error=True)
        one.altered -= {hunk}

    async def _approve(self, one: ShownProposal) -> None:
        number = one.shown.proposal
        comment: str | None = None
        if rejected := one.choices.chosen("reject"):
            title = f"Reject {len(rejected)} hunk{'s' * (len(rejected) != 1)} of P{number}. Comment:"
            comment = await self.desk.prompt(title)
            if comment is None:
                return
        calls = actions.decide(one.choices, comment=comment or None, request_id=secrets.token_hex(16))
        landed: int | None = None
        try:
            for call in calls:
                result = await self.desk.ask(call)
                made = getattr(result, "transaction", None)
                landed = landed if made is None else made.seq
        except EditdError as error:
            await self._refused(one, error)
            return
        self._forget(number)
        text = f"P{number} has landed as {landed}." if landed is not None else f"P{number}: rejected."
        self.desk.say(text)

    async def _refused(self, one: ShownProposal, error: EditdError) -> None:
        """Show the new view if the proposal has changed or is decided already; otherwise raise the error."""
        if error.name not in ("stale", "decided"):
            raise error
        self.reload()
        self._outdated.add(one.shown.proposal)
        if error.name == "stale":
            self.desk.say(
                f"P{one.shown.proposal} has changed, nothing has landed. Look again.", is_error=True
            )
        else:
            self.desk.say(f"P{one.shown.proposal} is decided already.", is_error=True)

    async def _reject(self, one: ShownProposal) -> None:
        number = one.shown.proposal
        comment = await self.desk.prompt(f"Reject all that is left of P{number}. Comment for the author:")
        if comment is None:
            return
        call = actions.reject(one.shown, comment=comment or None, request_id=secrets.token_hex(16))
        try:
            await self.desk.ask(call)
        except EditdError as error:
            await self._refused(one, error)
            return
        self._forget(number)
        self.desk.say(f"P{number} is rejected. `editctl proposal reopen {number}` takes that back.")

    async def _comment(self, one: ShownProposal) -> None:
        hunk = self.detail.hunk
        number = next((own.number for own in _hunks(one.shown).values() if own.hunk == hunk), None)
        about = f"hunk {number} of " if number is not None else ""
        text = await self.desk.prompt(f"Comment on {about}P{one.shown.proposal}:")
        if text:
            await self.desk.ask(requests.proposal_comment(one.shown.proposal, text, hunk=hunk))
            self._outdated.add(one.shown.proposal)

    async def _edit(self, one: ShownProposal) -> None:
        """Open the editor on the proposed text of the file at the cursor, and land the reviewer's text."""
        path = self.detail.path
        if path is None:
            return
        got = await self.desk.ask(requests.proposal_get(one.shown.proposal, paths=[path], content=True))
        file = next((file for file in got.files if file.path == path), None)
        if file is None or not isinstance(file.new, str):
            self.desk.say(f"{plain(path)} has no text to edit.", is_error=True)
            return
        before = file.new
        text = await self.desk.outside(lambda: edited(path, before))
        if text is None or text == before:
            self.desk.say("The text is unchanged. Nothing is sent.")
            return
        mine = ReviewedFile(path=path, content=text, base=file.now)
        own = {hunk.hunk for hunk in file.hunks}
        others = [hunk for hunk in one.choices.chosen("approve") if hunk not in own]
        wanted = [hunk.hunk for hunk in file.hunks if hunk.state in ("fits", "conflict")] + others
        preview = await self.desk.ask(
            requests.proposal_approve(
                one.shown.proposal, hunks=wanted, view=one.shown.view, files=[mine], dry_run=True
            )
        )
        diff = "".join(made.diff for made in preview.files if isinstance(made.diff, str))
        lines = list(diff_lines(diff, DiffForm(1000)))
        answer = await self.desk.choose(
            f"Land your text of {plain(path)} for P{one.shown.proposal}?", lines, {"a": "approve it"}
        )
        if answer == "a":
            call = requests.proposal_approve(
                one.shown.proposal, hunks=wanted, view=one.shown.view, files=[mine],
                request_id=secrets.token_hex(16),
            )  # fmt: skip
            landed = await self.desk.ask(call)
            seq = None if landed.transaction is None else landed.transaction.seq
            self._forget(one.shown.proposal)
            self.desk.say(f"Your text of P{one.shown.proposal} has landed as {seq}.")

    async def _try(self, one: ShownProposal) -> None:
        command = await self.desk.prompt(f"Command to try on P{one.shown.proposal}:")
        if not command:
            return
        numbers = _numbers(one)
        status = await self.desk.outside(lambda: tried(self.desk.root, one.shown.proposal, numbers, command))
        self._outdated.add(one.shown.proposal)
        result = "passed" if status == 0 else f"failed ({status})"
        self.desk.say(f"{plain(command)} {result} on P{one.shown.proposal}.", is_error=status != 0)

    async def _allow(self, one: ShownProposal) -> None:
        await allow(self.desk, one.shown.session, " ".join(one.shown.paths))

    async def _texts(self, one: ShownProposal) -> None:
        """Show the three texts of the file at the cursor: as proposed on, as it is, and as it would be."""
        path = self.detail.path
        if path is None:
            return
        got = await self.desk.ask(requests.proposal_get(one.shown.proposal, paths=[path], content=True))
        file = next((file for file in got.files if file.path == path), None)
        if file is None:
            return
        base: str | None = None
        if file.base is not None:
            base = (await self.desk.ask(requests.read(path, at=one.shown.at))).content
        lines: list[Line] = []
        for name, text in (("base", base), ("now", file.old), ("proposed", file.new)):
            lines.append(Line((TextSpan(f" ── {name}: {plain(path)}", "title"),)))
            if not isinstance(text, str):
                lines.append(Line((TextSpan("   no file", "dim"),)))
                continue
            for number, row in enumerate(text.removesuffix("\n").split("\n"), 1):
                lines.append(Line((TextSpan(f"{number:>5} ", "dim"), TextSpan(plain(row)))))
        await self.desk.choose(f"P{one.shown.proposal}: {plain(path)}", lines, {})

    def _forget(self, number: int) -> None:
        """Let the daemon's events bring the proposal anew."""
        self._outdated.add(number)
        self._is_list_outdated = True
        self.desk.changed()


def _numbers(one: ShownProposal) -> list[int]:
    """Return the numbers of the chosen hunks; none if all that fit are chosen."""
    chosen = set(one.choices.chosen("approve"))
    fitting = [hunk for hunk in _hunks(one.shown).values() if hunk.state == "fits"]
    return [] if len(chosen) == len(fitting) else [hunk.number for hunk in fitting if hunk.hunk in chosen]


def _matches(query: TransactionQuery, entry: ProposalEntry) -> bool:
    paths = entry.paths
    return (
        (not query.session or entry.session in query.session)
        and (not query.actor or entry.actor in query.actor)
        and (not query.kind or entry.kind in query.kind)
        and (not query.path or any(f"{path}/".startswith(f"{one}/") for path in paths for one in query.path))
        and query.grep.lower() in entry.message.lower()
    )


async def allow(desk: ReviewDesk, session: str | None, paths: str) -> None:
    """Ask for the paths and the time of a grant, and make it."""
    from editd.config.schema import duration

    whose = f" of {plain(session)}" if session else ""
    globs = await desk.prompt(f"Let edits{whose} land without a decision, of these paths:", text=paths)
    if not globs:
        return
    time = await desk.prompt(f"For how long may {globs} land (a day at most)?", text="1h")
    if not time:
        return
    try:
        seconds = duration(time)
    except ValueError as error:
        desk.say(str(error), is_error=True)
        return
    made = await desk.ask(requests.review_allow(shlex.split(globs), seconds, session=session))
    waiting = ", ".join(f"P{one}" for one in made.matching)
    desk.say(
        f"Grant {made.grant} for {time}." + (f" {waiting} would land now: a approves it." if waiting else "")
    )
