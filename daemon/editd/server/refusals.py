"""The latest refusals of edits, for people who watch agents. They are gone with the daemon.

A person who mistypes an undo is told at once, so such a refusal is kept of agents only.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from editd.errors import InvalidParams, NothingToUndo, Refused, UnknownTransaction
from editd.server import convert
from editd.store.transaction_record import rfc3339
from editd.wire import messages
from editd.wire.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd.server.connection import ClientState
    from editd.server.gate import Gate
    from editd.server.methods.sessions import SessionMethods
    from editd.server.subscriptions import Subscriptions
    from editd.store.history import History
    from editd.system.clock import Clock
    from editd.values.path import WorkspacePath

REFUSALS_MAX = 500  # in memory: some 500 KB
MESSAGE_CHARACTERS_MAX = 500
PATHS_MAX = 20
ATTEMPT_CHARACTERS_MAX = 4000
HEADER = re.compile(  # a line of a patch, or of a tool's edit, that names a file
    r"^(?:\+\+\+|---|\*\*\* (?:Add File|Update File|Delete File|Move to):|(?:copy|rename) (?:from|to)) +"
    r"(?:[ab]/)?([^\t\r\n]+)",
    re.MULTILINE,
)
MISTYPED = (NothingToUndo, UnknownTransaction)
WITHOUT_TEXT = "The text is left out, because the configuration excludes a file of it from the history."
EDITING = (
    messages.Apply, messages.Commit, messages.Undo, messages.Redo, messages.Rollback, messages.Restore,
    messages.ExecBegin,
)  # fmt: skip


class Refusals:
    """The latest refusals of requests that would have changed files. They are gone with the daemon."""

    def __init__(
        self,
        history: History,
        clock: Clock,
        sessions: SessionMethods,
        subscriptions: Subscriptions,
        gate: Gate,
        resolve: Callable[[WorkspacePath], WorkspacePath],
    ) -> None:
        self._resolve = resolve
        self._gate = gate
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
        if isinstance(refusal, MISTYPED) and not self._gate.is_agent(caller):
            return
        self._number += 1
        named = (
            None
            if isinstance(params, messages.Undo | messages.Rollback | messages.Commit)
            else params.session
        )
        session = caller.session_of(named)
        paths = _paths(params, refusal)
        is_excluded = any(map(self._is_excluded, (*paths, *_named(params, refusal))))
        message = WITHOUT_TEXT if is_excluded else redact(refusal.message[:MESSAGE_CHARACTERS_MAX])
        entry = messages.RefusalEntry(
            number=self._number,
            time=rfc3339(self._clock.now_us()),
            method=params.method,
            error=convert.error(refusal).name,
            message=message,
            session=session,
            actor=getattr(params, "actor", None) or self._sessions.actor(session, caller),
            paths=paths,
            head=self._history.head,
            attempt="" if is_excluded else _attempt(params),
        )
        self._kept.append(entry)
        self._subscriptions.tell("refusal", {"refusal": entry})

    def _is_excluded(self, text: str) -> bool:
        """Return whether the configuration excludes this path, or the file that it leads to."""
        covers = self._history.excluded.rule.covers
        try:
            path = convert.path(text.lstrip("/"))  # Some tools take absolute paths.
            return covers(path) or covers(self._resolve(path))
        except Refused:
            return False

    def drop(self, is_dropped: Callable[[str, Sequence[str]], bool]) -> int:
        """Drop the refusals whose message and paths `is_dropped` accepts; return their number."""
        kept = [
            entry for entry in self._kept if not is_dropped(f"{entry.message}\n{entry.attempt}", entry.paths)
        ]
        dropped = len(self._kept) - len(kept)
        self._kept.clear()
        self._kept.extend(kept)
        return dropped

    def latest(self, params: messages.LogRefusals, _caller: ClientState) -> messages.LogRefusalsResult:
        """Return the newest ones that match, newest first. Raises InvalidParams."""
        if not 1 <= params.limit <= REFUSALS_MAX:
            raise InvalidParams(f"`limit` is between 1 and {REFUSALS_MAX}.")
        matching = (
            entry
            for entry in reversed(self._kept)
            if params.session in (None, entry.session) and entry.number > (params.after or 0)
        )
        return messages.LogRefusalsResult(refusals=list(islice(matching, params.limit)))


def _attempt(params: messages.Params) -> str:
    """Return the text that a request would have put into the files, or its command."""
    if isinstance(params, messages.ExecBegin):
        return redact(params.command)[:ATTEMPT_CHARACTERS_MAX]
    if not isinstance(params, messages.Apply):
        return ""
    attempt = ""
    for edit in params.edits:
        attempt += _attempted(edit) + "\n"
        if len(attempt) > ATTEMPT_CHARACTERS_MAX:
            return attempt[:ATTEMPT_CHARACTERS_MAX] + "…"
    return attempt.removesuffix("\n")


def _attempted(edit: messages.AnyEdit) -> str:
    """Return an edit for a reader: its name and path, and its texts with a sign before each line."""
    head = f"{edit.__struct_config__.tag} {getattr(edit, 'path', '')}".rstrip()
    match edit:
        case messages.Replace(old=old, new=new):
            return "\n".join((head, *_marked("-", old), *_marked("+", new)))
        case messages.Write(content=content):
            return "\n".join((head, *_marked("+", content)))
        case messages.EditText(edits=parts):
            return "\n".join((head, *(line for part in parts for line in _marked("+", part.text))))
        case messages.Patch(patch=patch):
            return f"{head}\n{patch[:ATTEMPT_CHARACTERS_MAX]}"
        case messages.Tool(dialect=dialect, tool=tool, args=args):
            texts = (f"{name}: {text}" for name, text in args.items() if isinstance(text, str))
            return "\n".join((f"{head} {dialect} {tool}", *(text[:ATTEMPT_CHARACTERS_MAX] for text in texts)))
    return head


def _marked(sign: str, text: str) -> list[str]:
    return [sign + line for line in text[:ATTEMPT_CHARACTERS_MAX].split("\n")]


def _paths(params: messages.Params, refusal: Refused) -> list[str]:
    """Return the paths of the request, or the path that it was refused for."""
    path = refusal.data.get("path")
    named = [path] if isinstance(path, str) else []
    if isinstance(params, messages.Apply):
        named += [getattr(edit, "path", "") for edit in params.edits]
    else:
        named += getattr(params, "paths", None) or []
    return list(dict.fromkeys(filter(None, named)))[:PATHS_MAX]


def _named(params: messages.Params, refusal: Refused) -> Iterator[str]:
    """Yield the further paths of a request and its refusal: of patches, and of the arguments of tools."""
    files = refusal.data.get("files")
    for file in files if isinstance(files, list) else ():
        yield file["path"] if isinstance(file, dict) else str(file)
    for edit in params.edits if isinstance(params, messages.Apply) else ():
        match edit:
            case messages.Move(to=to):
                yield to
            case messages.Patch(patch=patch):
                yield from HEADER.findall(patch)
            case messages.Tool(args=args):
                for text in args.values():
                    if isinstance(text, str):
                        yield from HEADER.findall(text) if "\n" in text else (text,)
