"""Brackets: while a command runs for a session, what changes beside the daemon is that session's.

Files do not tell who wrote them. So what is found is put down to all brackets that are open at that moment:
one session's, and it is an `exec` of that session; several sessions', and it stays `outside`, with a message
that names all who could have made it. Each beginning and each end is preceded by a settle, so what was made
before a second bracket began is still the first one's.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.engine.external_changes import OUTSIDE
from editd.errors import InvalidParams, TooLarge
from editd.values.transaction import Authorship

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.engine.commands import Reader
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Kind, Transaction

OPEN_MAX = 1000
COMMAND_CHARACTERS_MAX = 10_000


class ExecSpan(Struct):
    name: str
    owner: int  # the connection that began it; it ends with that
    reader: Reader  # whose it is: a session's, or the connection's where it has none
    actor: str
    session: str | None
    command: str
    how: str = "still running"  # what is to be said of its end
    newest: Transaction | None = None  # recorded while it was open

    @property
    def who(self) -> str:
        return f"session {self.session!r}" if self.session is not None else self.actor


class ExecSpans:
    def __init__(self) -> None:
        self._open: dict[str, ExecSpan] = {}

    def begin(self, owner: int, reader: Reader, actor: str, session: str | None, command: str) -> ExecSpan:
        """Open a bracket. Raises TooLarge, InvalidParams."""
        if len(self._open) >= OPEN_MAX:
            raise TooLarge(f"{OPEN_MAX} commands are running.", hint="End some of them first.")
        if len(command) > COMMAND_CHARACTERS_MAX:
            raise InvalidParams(f"`command` is at most {COMMAND_CHARACTERS_MAX} characters long.")
        bracket = ExecSpan(secrets.token_hex(8), owner, reader, actor, session, command)
        self._open[bracket.name] = bracket
        return bracket

    def get(self, name: str, owner: int) -> ExecSpan:
        """The bracket, if it is this connection's. Raises InvalidParams."""
        found = self._open.get(name)
        if found is None or found.owner != owner:
            raise InvalidParams(
                f"There is no bracket {name!r} on this connection.",
                hint="`exec.begin` opens one; it ends with `exec.end` or the connection.",
                data={"exec": name},
            )
        return found

    def end(self, name: str) -> bool:
        """End it. Returns whether it was open."""
        return self._open.pop(name, None) is not None

    def of(self, owner: int) -> list[ExecSpan]:
        return [bracket for bracket in self._open.values() if bracket.owner == owner]

    def authorship(self, paths: Sequence[WorkspacePath]) -> tuple[Kind, Authorship] | None:
        """Who made what was found in `paths` just now, and of which kind it is; None outside of brackets."""
        del paths  # files do not tell
        brackets = list(self._open.values())
        if not brackets:
            return None
        said = [f"{bracket.command} ({bracket.how})" for bracket in brackets]
        if len({bracket.reader for bracket in brackets}) == 1:
            return "exec", Authorship(brackets[-1].actor, brackets[-1].session, "\n".join(said))
        lines = [f"{bracket.who}: {what}" for bracket, what in zip(brackets, said, strict=True)]
        names = ", ".join(dict.fromkeys(bracket.who for bracket in brackets))
        message = f"Could have been made by any of: {names}\n\n" + "\n".join(lines)
        return "outside", Authorship(OUTSIDE.actor, None, message)

    def recorded(self, transaction: Transaction) -> None:
        """What was recorded while brackets are open is what they are answered with at their end."""
        if transaction.kind in ("exec", "outside"):
            for bracket in self._open.values():
                bracket.newest = transaction

    def __len__(self) -> int:
        return len(self._open)
