"""The latest refusals of edits, for people who watch agents. They are gone with the daemon."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from editd.errors import InvalidParams
from editd.server import convert
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.engine.access import Clock
    from editd.errors import Refused
    from editd.server.connection import ClientState
    from editd.server.methods.sessions import SessionMethods
    from editd.server.subscriptions import Subscriptions
    from editd.store.history import History

REFUSALS_MAX = 500  # in memory: some 500 KB
MESSAGE_CHARACTERS_MAX = 500
PATHS_MAX = 20
EDITING = (
    messages.Apply, messages.Commit, messages.Undo, messages.Redo, messages.Rollback, messages.Restore,
    messages.ExecBegin,
)  # fmt: skip


class Refusals:
    """The latest refusals of requests that would have changed files. They are gone with the daemon."""

    def __init__(
        self, history: History, clock: Clock, sessions: SessionMethods, subscriptions: Subscriptions
    ) -> None:
        self._history = history
        self._clock = clock
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._kept: deque[messages.RefusalEntry] = deque(maxlen=REFUSALS_MAX)
        self._number = 0

    def note(self, params: messages.Params, caller: ClientState, refusal: Refused) -> None:
        """Keep a refusal, and tell subscribers. Any other request, or a dry run, is left out."""
        if not isinstance(params, EDITING) or getattr(params, "dry_run", False):
            return
        self._number += 1
        named = (
            None
            if isinstance(params, messages.Undo | messages.Rollback | messages.Commit)
            else params.session
        )
        session = caller.session_of(named)
        entry = messages.RefusalEntry(
            number=self._number,
            time=rfc3339(self._clock.now_us()),
            method=params.method,
            error=convert.error(refusal).name,
            message=refusal.message[:MESSAGE_CHARACTERS_MAX],
            session=session,
            actor=getattr(params, "actor", None) or self._sessions.actor(session, caller),
            paths=_paths(params, refusal),
            head=self._history.head,
        )
        self._kept.append(entry)
        self._subscriptions.tell("refusal", {"refusal": entry})

    def drop(self, is_dropped: Callable[[str, Sequence[str]], bool]) -> int:
        """Drop the refusals whose message and paths `is_dropped` accepts; return their number."""
        kept = [entry for entry in self._kept if not is_dropped(entry.message, entry.paths)]
        dropped = len(self._kept) - len(kept)
        self._kept.clear()
        self._kept.extend(kept)
        return dropped

    def latest(self, params: messages.LogRefusals) -> messages.LogRefusalsResult:
        """Return the newest ones that match, newest first. Raises InvalidParams."""
        if not 1 <= params.limit <= REFUSALS_MAX:
            raise InvalidParams(f"`limit` is between 1 and {REFUSALS_MAX}.")
        matching = (
            entry
            for entry in reversed(self._kept)
            if params.session in (None, entry.session) and entry.number > (params.after or 0)
        )
        return messages.LogRefusalsResult(refusals=list(islice(matching, params.limit)))


def _paths(params: messages.Params, refusal: Refused) -> list[str]:
    """Return the paths that the request is about, or the one that it was refused for."""
    path = refusal.data.get("path")
    named = [path] if isinstance(path, str) else []
    if isinstance(params, messages.Apply):
        named += [getattr(edit, "path", "") for edit in params.edits]
    else:
        named += getattr(params, "paths", None) or []
    return list(dict.fromkeys(filter(None, named)))[:PATHS_MAX]
