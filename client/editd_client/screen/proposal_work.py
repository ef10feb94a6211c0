"""The decisions about a proposal, as the keys of its view begin them: they ask, send, and report in words."""

from __future__ import annotations

import secrets
import shlex
from typing import TYPE_CHECKING

from editd.wire.messages import ReviewedFile
from editd_client import requests
from editd_client.conversations.comment import comment
from editd_client.conversations.decision import decide, reject
from editd_client.conversations.grant import allow
from editd_client.errors import EditdError
from editd_client.file_text import text_of
from editd_client.review import actions
from editd_client.review.choices import HunkChoices
from editd_client.review.line_choices import TakenHunk, changed_rows, text_with
from editd_client.review.proposals import shown_files
from editd_client.screen.asker import ScreenAsker
from editd_client.screen.lines import Line, TextSpan, plain
from editd_client.screen.patch_lines import DIALOG, diff_lines, row_lines
from editd_client.screen.programs import edit_text, run_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from editd.wire.messages import ProposalFile, ProposalGetResult, ProposalHunk
    from editd_client.review.patch import Syntax
    from editd_client.review.proposals import ShownFile
    from editd_client.screen.desk import ReviewDesk


class ShownProposal:
    """A proposal with its hunks, the choices, and the hunks that changed since the reviewer looked."""

    def __init__(self, shown: ProposalGetResult) -> None:
        self.shown = shown
        self.files: tuple[ShownFile, ...] = shown_files(shown)
        self.choices = HunkChoices(shown)
        self.first = self.hunks
        self.altered: frozenset[str] = frozenset()
        self.syntax: dict[str, Syntax] = {}  # of each file that has been fetched

    @property
    def hunks(self) -> dict[str, ProposalHunk]:
        return {hunk.hunk: hunk for file in self.shown.files for hunk in file.hunks}

    def update(self, shown: ProposalGetResult) -> None:
        """Take a newer view. Choices stay with their hunks."""
        if shown == self.shown:
            return
        if shown.view != self.shown.view:
            self.syntax = {}
        altered = self.choices.replace(shown)
        self.shown, self.files = shown, shown_files(shown)
        self.altered = (self.altered & self.hunks.keys()) | set(altered)

    @property
    def number(self) -> int:
        return self.shown.proposal


class ProposalWork:
    """The work of each key. `outdate` is called with the number of a proposal that has changed."""

    def __init__(self, desk: ReviewDesk, outdate: Callable[[int], None]) -> None:
        self._desk, self._outdate = desk, outdate
        self._asker = ScreenAsker(desk)

    def of(
        self, key: str, one: ShownProposal, path: str | None, hunk: str | None
    ) -> Coroutine[Any, Any, None] | None:
        """Return the work of a key about a proposal, with the file and the hunk at the cursor."""
        if key in ("a", "x", "t"):
            return {"a": self._approve, "x": self._reject, "t": self._try}[key](one)
        if key == "A":
            return self._allow(one)
        if key == "c":
            return self._comment(one, hunk)
        if key == "v" and hunk is not None:
            return self._take_lines(one, hunk)
        if key in ("e", "o") and path is not None:
            return {"e": self._edit, "o": self._show_texts}[key](one, path)
        return None

    async def _approve(self, one: ShownProposal) -> None:
        decision = actions.decision_of(one.choices)
        await self._decide(one, decide(self._asker, decision, request_id=secrets.token_hex(16)))

    async def _reject(self, one: ShownProposal) -> None:
        await self._decide(one, reject(self._asker, one.number, request_id=secrets.token_hex(16)))

    async def _decide(self, one: ShownProposal, conversation: Coroutine[Any, Any, object | None]) -> None:
        """Carry out a decision, and fetch the proposal anew if it was made."""
        try:
            if await conversation is not None:
                self._outdate(one.number)
        except EditdError as error:
            self._show_refused(one, error)

    def _show_refused(self, one: ShownProposal, error: EditdError) -> None:
        """Show the new view if the proposal has changed or is decided already; otherwise raise the error."""
        if error.name not in ("stale", "decided"):
            raise error
        self._outdate(one.number)
        if error.name == "stale":
            self._desk.say(f"P{one.number} has changed, nothing has landed. Look again.", is_error=True)
        else:
            self._desk.say(f"P{one.number} is decided already.", is_error=True)

    async def _allow(self, one: ShownProposal) -> None:
        await allow(self._asker, one.shown.session, shlex.join(one.shown.paths))

    async def _comment(self, one: ShownProposal, hunk: str | None) -> None:
        about = "" if hunk not in one.hunks else f"hunk {one.hunks[hunk].number} of "
        if await comment(self._asker, one.number, about, hunk=hunk) is not None:
            self._outdate(one.number)

    async def _file(self, one: ShownProposal, path: str) -> tuple[ProposalGetResult, ProposalFile | None]:
        """Return a file with its texts, as it would land now."""
        shown = await self._desk.ask(requests.proposal_get(one.number, paths=[path], content=True))
        return shown, next((file for file in shown.files if file.path == path), None)

    async def _edit(self, one: ShownProposal, path: str) -> None:
        """Open the editor on the proposed text of a file, and land the reviewer's text."""
        _, file = await self._file(one, path)
        if file is None or not isinstance(file.new, str):
            self._desk.say(f"{plain(path)} has no text to edit.", is_error=True)
            return
        before, present = file.new, file.old if isinstance(file.old, str) else None
        text = await self._desk.outside(lambda: edit_text(path, before, present))
        if text is None or text == before:
            self._desk.say("The text is unchanged. Nothing is sent.")
            return
        hunks = [hunk.hunk for hunk in file.hunks if hunk.state in ("fits", "conflict")]
        await self._land(one, file, text, hunks)

    async def _take_lines(self, one: ShownProposal, hunk: str) -> None:
        """Ask which lines of a hunk to take, and land them with the chosen hunks."""
        path = next(file.path for file in one.shown.files if any(own.hunk == hunk for own in file.hunks))
        shown, file = await self._file(one, path)
        hunks = {own.hunk.hunk: own for made in shown_files(shown) for own in made.hunks}
        own = hunks.get(hunk)
        if file is None or not isinstance(file.old, str) or own is None or own.hunk.state != "fits":
            self._desk.say("This hunk has no lines to choose from.", is_error=True)
            return
        rows = [row for row in own.rows if row.kind not in ("place", "header")]
        title = f"Lines of hunk {own.hunk.number} of P{one.number} to land:"
        lines = [next(iter(row_lines(row, DIALOG))) for row in rows]
        taken = await self._desk.pick(title, lines, frozenset(changed_rows(rows)))
        if taken is None:
            return
        approved = one.choices.hunks_with("approve")
        taken_hunks = {
            name: TakenHunk(rows, taken) if name == hunk else TakenHunk.whole(other.rows)
            for name, other in hunks.items()
            if (name == hunk and taken) or (name != hunk and name in approved)
        }
        await self._land(one, file, text_with(file.old, taken_hunks.values()), list(taken_hunks))

    async def _land(self, one: ShownProposal, file: ProposalFile, text: str, own: Sequence[str]) -> None:
        """Show the reviewer's text of a file, and land it with the chosen hunks of the other files."""
        mine = ReviewedFile(path=file.path, content=text, base=file.now)
        others = {hunk.hunk for hunk in file.hunks}
        hunks = [*own, *(hunk for hunk in one.choices.hunks_with("approve") if hunk not in others)]
        view = one.shown.view
        preview = await self._desk.ask(
            requests.proposal_approve(one.number, hunks=hunks, view=view, files=[mine], dry_run=True)
        )
        diff = "".join(made.diff for made in preview.files if isinstance(made.diff, str))
        title = f"Land your text of {plain(file.path)} for P{one.number}?"
        if await self._desk.choose(title, list(diff_lines(diff, DIALOG)), {"a": "approve it"}) != "a":
            return
        landed = await self._desk.ask(
            requests.proposal_approve(
                one.number, hunks=hunks, view=view, files=[mine], request_id=secrets.token_hex(16)
            )
        )
        seq = None if landed.transaction is None else landed.transaction.seq
        self._outdate(one.number)
        self._desk.say(f"Your text of P{one.number} has landed as {seq}.")

    async def _try(self, one: ShownProposal) -> None:
        command = await self._desk.prompt(f"Command to try on P{one.number}:")
        if not command:
            return
        numbers = _numbers(one)
        status = await self._desk.outside(lambda: run_trial(self._desk.root, one.number, numbers, command))
        self._outdate(one.number)
        result = "passed" if status == 0 else f"failed ({status})"
        self._desk.say(f"{plain(command)} {result} on P{one.number}.", is_error=status != 0)

    async def _show_texts(self, one: ShownProposal, path: str) -> None:
        """Show the three texts of a file: as proposed on, as it is, and as it would be."""
        _, file = await self._file(one, path)
        if file is None:
            return
        base: str | None = None
        if file.base is not None:
            base = text_of(await self._desk.ask(requests.read(path, at=one.shown.at)))
        lines: list[Line] = []
        for name, text in (("base", base), ("now", file.old), ("proposed", file.new)):
            lines.append(Line((TextSpan(f" ── {name}: {plain(path)}", "title"),)))
            if not isinstance(text, str):
                lines.append(Line((TextSpan("   no file", "dim"),)))
                continue
            for number, row in enumerate(text.removesuffix("\n").split("\n"), 1):
                lines.append(Line((TextSpan(f"{number:>5} ", "dim"), TextSpan(plain(row)))))
        await self._desk.choose(f"P{one.number}: {plain(path)}", lines, {})


def _numbers(one: ShownProposal) -> list[int]:
    """Return the numbers of the chosen hunks; none if all that fit are chosen."""
    chosen = set(one.choices.hunks_with("approve"))
    fitting = [hunk for hunk in one.hunks.values() if hunk.state == "fits"]
    return [] if len(chosen) == len(fitting) else [hunk.number for hunk in fitting if hunk.hunk in chosen]
