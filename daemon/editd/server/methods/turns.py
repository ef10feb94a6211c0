"""The methods `turn.*`: the beginning and the end of the turns of agents, and the end of their prompts.

An agent's hook begins a turn with each prompt. The engine's `SessionTurns` give its number to the session's
edits. A prompt loses its secrets before it is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from editd.advice import GIVE_SESSION
from editd.engine.exec_spans import check_id
from editd.engine.turns import KeptPrompt, NewTurn
from editd.errors import InvalidParams, PermissionDenied, Refused
from editd.server.gate import is_below
from editd.system.process import process_at
from editd.wire import messages
from editd.wire.redaction import redacted_prompt

if TYPE_CHECKING:
    from editd.config.schema import TurnKeys
    from editd.engine.turns import SessionTurns
    from editd.server.connection import ClientState
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.methods.exec_spans import ExecMethods
    from editd.server.methods.sessions import SessionMethods

log = logging.getLogger(__name__)

PROMPT_CHARACTERS_MAX = 8_000  # that are kept
READ_CHARACTERS_MAX = PROMPT_CHARACTERS_MAX + 1_000  # so that no cut divides a secret
TRANSCRIPT_CHARACTERS_MAX = 4_096
DAY_SECONDS = 86_400.0  # at most until the next look for prompts that were kept for long enough


class TurnMethods:
    def __init__(
        self,
        turns: SessionTurns,
        queue: EngineQueue,
        sessions: SessionMethods,
        gate: Gate,
        spans: ExecMethods,
    ) -> None:
        self._turns = turns
        self._queue = queue
        self._sessions = sessions
        self._gate = gate
        self._spans = spans
        self._prompts = "text"
        self._timer: asyncio.TimerHandle | None = None
        sessions.on_end.append(turns.session_ended)

    def configure(self, keys: TurnKeys) -> None:
        """Apply the settings of the turns."""
        self._prompts = keys.prompts
        self._turns.configure(keys)
        self._tidy()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._turns.store.close()

    # ── the methods ──

    async def begin(self, params: messages.TurnBegin, caller: ClientState) -> messages.TurnBeginResult:
        """Begin a turn, after the brackets of the one before have ended."""
        new = self._new_turn(params, caller)
        ended = await self._spans.end(messages.ExecEnd(all=True, session=new.session), caller)
        number = await self._queue.run(partial(self._turns.begin, new))
        if self._timer is None:
            self._tidy_later()
        return messages.TurnBeginResult(turn=number, warnings=ended.warnings)

    def _new_turn(self, params: messages.TurnBegin, caller: ClientState) -> NewTurn:
        session = self._own(params, caller, params.conversation)
        for field in ("conversation", "native", "source", "model"):
            if (text := getattr(params, field)) is not None:
                check_id(text, field)
        if params.transcript is not None and len(params.transcript) > TRANSCRIPT_CHARACTERS_MAX:
            raise InvalidParams(f"`transcript` has at most {TRANSCRIPT_CHARACTERS_MAX} characters.")
        process = None if params.pid is None else process_at(params.pid)
        if params.parent is not None:
            self._gate.check_turn_writer(
                check_id(params.parent, "parent"), self._turns.process_of(params.parent), caller
            )
        self._gate.note_agent(session, params.pid, caller)
        return NewTurn(
            session, self._sessions.actor(session, caller), params.conversation, params.native, params.parent,
            params.source, params.model, kept_prompt(params.prompt, self._prompts), params.transcript,
            process.key if process is not None and is_below(caller, process.key) else None,
        )  # fmt: skip

    def note(self, params: messages.TurnNote, caller: ClientState) -> messages.Empty:
        session = self._own(params, caller)
        if params.call is None and (params.asked or params.outcome is not None):
            raise InvalidParams("`asked` and `outcome` need a `call`.", hint="Name the call of the tool.")
        if params.model is not None:
            self._turns.note_model(session, check_id(params.model, "model"))
        if params.call is not None:
            call, turn = check_id(params.call, "call"), self._turns.current(session)
            self._turns.note_call(session, turn, call, is_asked=params.asked, outcome=params.outcome)
        return messages.Empty()

    def end(self, params: messages.TurnEnd, caller: ClientState) -> messages.Empty:
        session = self._own(params, caller)
        reason = check_id(params.reason or "ended", "reason")
        self._turns.end(session, params.native, reason)
        return messages.Empty()

    def _own(
        self,
        params: messages.TurnBegin | messages.TurnNote | messages.TurnEnd,
        caller: ClientState,
        conversation: str | None = None,
    ) -> str:
        """Return the session whose turns a request writes. Raises InvalidParams, PermissionDenied.

        Another process goes on with a session only if it knows the agent's id of the conversation.
        """
        session = caller.session_of(params.session)
        if session is None:
            raise InvalidParams("A turn needs a session.", hint=GIVE_SESSION)
        process = self._turns.process_of(session)
        self._gate.check_turn_writer(session, process, caller)
        if process is None and conversation is not None:
            newest = self._turns.store.newest(session)
            if newest is not None and newest.process is not None and newest.conversation != conversation:
                raise PermissionDenied(
                    f"The session {session!r} belongs to another conversation.",
                    hint="Give the id of that conversation to resume it, or use another session.",
                    data={"session": session},
                )
        return session

    # ── time ──

    def _tidy(self) -> None:
        """Delete the prompts that were kept for long enough, and come back when the next ones are due."""
        self._timer = None
        try:
            if count := self._turns.tidy():
                log.info("the text of %d prompts is deleted, because its time is over", count)
            self._tidy_later()
        except Refused as refusal:
            log.error("old prompts are not deleted: %s", refusal.text())
            self._again_in(DAY_SECONDS)

    def _tidy_later(self) -> None:
        seconds = self._turns.seconds_to_due()
        if seconds is not None:
            self._again_in(min(max(seconds, 1.0), DAY_SECONDS))

    def _again_in(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, lambda: self._queue.when_idle(self._tidy))


def kept_prompt(prompt: str | None, mode: str) -> KeptPrompt:
    """Return the part of a prompt that `turns.prompts` of the configuration keeps."""
    if prompt is None or mode == "off":
        return KeptPrompt()
    text, redactions = redacted_prompt(prompt[:READ_CHARACTERS_MAX])
    text = text[:PROMPT_CHARACTERS_MAX].encode("utf-8", "replace").decode()
    digest = hashlib.sha256(text.encode()).hexdigest()
    return KeptPrompt(text if mode == "text" else None, digest, len(prompt), redactions)
