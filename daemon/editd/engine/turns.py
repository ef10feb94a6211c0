"""The turns of agents' sessions, and the turn that an edit belongs to.

A turn begins with a prompt, and ends with the next one of its session, or when the agent says so. All that
the session does meanwhile carries the turn's number and model.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.errors import Refused
from editd.store.turn_store import Turn, TurnStore
from editd.system.process import process_at
from editd.values.transaction import TurnMark

if TYPE_CHECKING:
    from editd.config.schema import TurnKeys
    from editd.engine.commands import Apply
    from editd.store.history import History
    from editd.system.clock import Clock
    from editd.values.transaction import Authorship

log = logging.getLogger(__name__)

NEXT_TURN = "next turn"  # the reason of an end that no agent has reported
SESSION_END = "session end"


class KeptPrompt(Struct, frozen=True):
    """The part of a prompt that is kept."""

    text: str | None = None  # without secrets
    digest: str | None = None
    characters: int | None = None
    redactions: int = 0


class NewTurn(Struct, frozen=True):
    """The facts about a turn that is about to begin."""

    session: str
    agent: str | None
    conversation: str
    native: str | None = None
    parent: str | None = None  # the session whose present turn started it
    source: str | None = None
    model: str | None = None
    prompt: KeptPrompt = KeptPrompt()
    transcript: str | None = None
    process: tuple[int, int] | None = None


class SessionTurns:
    def __init__(self, store: TurnStore, history: History, clock: Clock) -> None:
        """Go on with the turns that the previous daemon has left under way."""
        self.store = store
        self._history = history
        self._clock = clock
        self._keep_us = 0
        self._current: dict[str, TurnMark] = {}
        self._processes: dict[str, tuple[int, int] | None] = {}  # of the agents of these turns
        for turn in store.under_way():
            self._current[turn.session] = TurnMark(turn.number, turn.model)
            self._processes[turn.session] = turn.process

    def configure(self, keys: TurnKeys) -> None:
        self._keep_us = int(keys.keep * 1_000_000)

    # ── the turn of an edit ──

    def current(self, session: str | None, native: str | None = None) -> TurnMark | None:
        """Return the present turn of a session, or its turn with the agent's own id; None without one."""
        mark = None if session is None else self._current.get(session)
        if native is None or session is None:
            return mark
        turn = self.store.native(session, native)
        return mark if turn is None else TurnMark(turn.number, turn.model)

    def ended_since(self, session: str, time_us: int) -> TurnMark | None:
        """Return the present turn of a session, or the turn that has ended at this time or later."""
        if (mark := self._current.get(session)) is not None:
            return mark
        newest = self.store.newest(session)
        if newest is None or newest.ended_us is None or newest.ended_us < time_us:
            return None
        return TurnMark(newest.number, newest.model)

    def with_turn(self, author: Authorship) -> Authorship:
        """Return an author with the present turn of the session."""
        mark = self._current.get(author.session) if author.session is not None else None
        return author if mark is None else replace(author, turn=mark)

    def sign(self, request: Apply) -> Apply:
        """Return an edit with the present turn of its session."""
        author = self.with_turn(request.authorship)
        return request if author is request.authorship else replace(request, authorship=author)

    # ── a turn's life ──

    def begin(self, new: NewTurn) -> int:
        """Begin a turn, and end the one before it; return its number. A repeated one has its number still."""
        newest = self.store.newest(new.session)
        if newest is not None and new.native is not None and newest.native == new.native:
            return newest.number
        now_us = self._clock.now_us()
        number = 1 + self._last_number(new.session, newest)
        if newest is not None:
            self.store.end(new.session, newest.number, now_us, NEXT_TURN)
        parent = self.current(new.parent)
        self.store.put(Turn(
            new.session, number, new.agent, new.conversation, new.native,
            None if new.parent is None else (new.parent, None if parent is None else parent.number),
            new.source, new.model, now_us, None, None, int(self._history.head), new.prompt.text,
            new.prompt.digest, new.prompt.characters, new.prompt.redactions, new.transcript, new.process,
        ))  # fmt: skip
        self._current[new.session] = TurnMark(number, new.model)
        self._processes[new.session] = new.process
        return number

    def _last_number(self, session: str, newest: Turn | None) -> int:
        """Return the number of a session's last turn, also if the file of the turns was lost meanwhile."""
        return newest.number if newest is not None else self._history.index.last_turn(session) or 0

    def note_model(self, session: str, model: str) -> None:
        """Note the model of a session's present turn, for its edits from now on."""
        mark = self._current.get(session)
        if mark is not None and mark.model != model:
            self.store.note_model(session, mark.number, model)
            self._current[session] = TurnMark(mark.number, model)

    def note_call(
        self,
        session: str,
        turn: TurnMark | None,
        call: str,
        *,
        is_asked: bool = False,
        outcome: str | None = None,
    ) -> None:
        """Note a call of a tool, if its turn is known."""
        if turn is not None:
            asked_us = self._clock.now_us() if is_asked else None
            self.store.note_call(session, turn.number, call, asked_us=asked_us, outcome=outcome)

    def end(self, session: str, native: str | None, reason: str) -> None:
        """End the present turn of a session, if it has this id of the agent, or none is given."""
        mark = self._current.get(session)
        if mark is None:
            return
        newest = self.store.newest(session) if native is not None else None
        if newest is not None and newest.native not in (None, native):
            return  # the end of an earlier turn came late
        self.store.end(session, mark.number, self._clock.now_us(), reason)
        del self._current[session]

    def session_ended(self, session: str) -> None:
        """End the turn of a session that has ended."""
        try:
            self.end(session, None, SESSION_END)
        except Refused as refusal:  # its next turn ends it
            log.error("the end of a turn is not written down: %s", refusal.text())
        self._processes.pop(session, None)

    def process_of(self, session: str) -> tuple[int, int] | None:
        """Return the process of the agent of a session's newest turn, while it runs."""
        if session not in self._processes:
            newest = self.store.newest(session)
            if newest is None:
                return None
            self._processes[session] = newest.process
        process = self._processes[session]
        if process is None:
            return None
        present = process_at(process[0])
        return process if present is not None and present.key == process else None

    # ── the end of prompts ──

    def seconds_to_due(self) -> float | None:
        """Return the time until the oldest kept prompt was kept for long enough; None without a prompt."""
        oldest = self.store.oldest_prompt_us()
        return None if oldest is None else (oldest + self._keep_us - self._clock.now_us()) / 1_000_000

    def tidy(self) -> int:
        """Delete the prompts that were kept for long enough; return their number."""
        return self.store.drop_old(self._clock.now_us() - self._keep_us)

    def weaker(self) -> list[str]:
        """Return the sentence of `status` about turns that were lost."""
        if self.store.is_whole:
            return []
        return ["The file of the turns was damaged: earlier prompts are in the folder `damaged` only."]
