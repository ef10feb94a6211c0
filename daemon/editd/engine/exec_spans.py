"""Exec spans, or brackets: who made the changes that did not go through the daemon.

A file does not show which program wrote it. So a change is attributed to the spans that are open when it is
found:

1. to the spans that name its path: an agent's edit tool opens these;
2. otherwise to the spans without paths: a command opens these;
3. otherwise to no span.

A span that is **asked** is left out: while an agent asks its user, the changes are the user's own. At its
end, a span of a tool gets the changes that fit the tool's texts. A span of a command gets the changes that
have no other author, in doubt.

If these spans belong to one session, the transaction is an `exec` of that session. If they belong to
several, it stays `outside`, with all of them as candidates. Before a span begins and before it ends, the
engine records the changes so far, so that earlier changes go to the right span.

A span with a key belongs to its session, and survives the connection and the daemon. One without a key ends
with its connection.

An agent that reports its edits only afterwards claims them: unattributed changes become its `exec`.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.advice import GIVE_SESSION, Advice, step_term
from editd.engine.commands import Reader, reader_of
from editd.engine.external_changes import OUTSIDE, AttributedChanges
from editd.engine.open_items import OpenItem, OpenItems
from editd.engine.shares import COMMANDS
from editd.errors import InvalidParams, Refused
from editd.store.session_store import StoredSpan
from editd.values.path import WorkspacePath, folders_of
from editd.values.transaction import Attribution, Authorship, TurnMark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from editd.store.history import History
    from editd.store.session_store import ReadVersionStore
    from editd.values.content import Change, FileState
    from editd.values.transaction import Seq, Transaction

log = logging.getLogger(__name__)

COMMAND_CHARACTERS_MAX = 10_000
KEY_CHARACTERS_MAX = 1000
SEQS_MAX = 1000  # transactions of one span that its end names, the newest
NOBODY = 0  # in place of a connection, as the owner of a span with a key
LOST = "its end is not known"

Paths = frozenset[WorkspacePath]


class ExecSpan(OpenItem):
    """A bracket: one running command, or one call of an agent's edit tool."""

    name: str
    actor: str
    session: str | None
    command: str
    paths: Paths | None = None  # None is a command, which may change any file
    key: str | None = None
    ends_us: int | None = None  # it ends at this time at the latest
    process: tuple[int, int] | None = None  # it ends with this one: its pid and its start, from /proc
    head: int = 0  # the newest transaction at its beginning
    since_us: int = 0  # the time of its beginning
    how: str = "still running"  # the result of the command, for the message
    seqs: list[int] = field(default_factory=list)  # the transactions that were attributed to it
    unrecorded: dict[WorkspacePath, tuple[int, int]] = field(default_factory=dict)
    """Size and mtime_ns of the files that the history lacked at the beginning of a command."""
    asked: int | None = None  # the newest transaction when the agent asked its user about it
    turn: TurnMark | None = None  # the turn of the session at its beginning
    call: str | None = None  # the agent's own id of the call

    @property
    def who(self) -> str:
        """The session, or the actor if there is no session, for a message."""
        return f"session {self.session!r}" if self.session is not None else self.actor

    @property
    def candidate(self) -> str:
        return self.actor if self.session is None else self.session

    @property
    def is_watched(self) -> bool:
        """Whether changes go on being recorded while it is open: not while a command runs."""
        return self.paths is not None or self.asked is not None

    @property
    def description(self) -> str:
        """The message of a transaction. An edit is usually recorded before its end is known."""
        return self.command if self.paths is not None else f"{self.command} ({self.how})"

    def is_in_way_of(self, reader: Reader, paths: Paths | None) -> bool:
        """Return whether changes of another reader to `paths` could not be told apart from this span's."""
        if self.reader == reader or self.asked is not None:
            return False
        if self.paths is None or paths is None:
            return self.paths is paths
        return not self.paths.isdisjoint(paths)

    def is_of(self, transaction: Transaction) -> bool:
        """Return whether a transaction was attributed to this span."""
        authorship = transaction.authorship
        evidence = authorship.attribution
        if evidence is None or evidence.is_by_path != (self.paths is not None):
            return False
        if self.paths is not None and not any(touch.path in self.paths for touch in transaction.touches):
            return False
        if transaction.kind == "exec":
            return authorship.session == self.session and (
                authorship.session is not None or authorship.actor == self.actor
            )
        return self.candidate in evidence.candidates


class ExecSpans(OpenItems[ExecSpan]):
    """The open spans of all sessions and connections, in the order of their beginning."""

    noun = "bracket"
    field = "exec"
    hint = Advice(step_term("open_span"))

    def __init__(self, store: ReadVersionStore | None = None) -> None:
        """Load the spans with a key that the previous daemon has left open."""
        super().__init__()
        self._store = store
        for kept in () if store is None else store.spans():
            span = _from_row(kept)
            self.open[span.name] = span

    def add(self, span: ExecSpan) -> ExecSpan:
        """Open a span, or return the open one with its key. Raises Overloaded or InvalidParams."""
        if span.key is not None and (known := self.with_key(span.key)) is not None:
            return self.verify(known, span.reader)
        COMMANDS.check([other.reader for other in self.open.values()], span.reader)
        if span.key is not None and self._store is not None:
            self._store.put_span(_to_row(span))
        self.open[span.name] = span
        return span

    def ask(self, span: ExecSpan, head: int, ends_us: int) -> None:
        """Note that the agent asks its user about a span, at a transaction; durable on return."""
        span.asked, span.ends_us = head, ends_us
        if self._store is not None:
            self._store.drop_span(span.name)
            self._store.put_span(_to_row(span))

    def end(self, name: str) -> bool:
        """Forget a span. Return whether it was open."""
        span = self.open.pop(name, None)
        if span is not None and span.key is not None and self._store is not None:
            try:
                self._store.drop_span(name)
            except Refused as refusal:  # after a restart it ends at its time
                log.error("the end of a bracket is not written down: %s", refusal.text())
        return span is not None

    def with_key(self, key: str) -> ExecSpan | None:
        return next((span for span in self.open.values() if span.key == key), None)

    def verify(self, span: ExecSpan, reader: Reader) -> ExecSpan:
        """Return the open span of a repeated `exec.begin`. Raises InvalidParams if another session has it."""
        if span.reader != reader:
            raise InvalidParams(
                f"The key {span.key!r} is in use by {span.who}.", hint="Put the session's name into the key."
            )
        return span

    def keyed_spans(self, session: str) -> list[ExecSpan]:
        """Return the spans with a key of a session."""
        return [span for span in self.open.values() if span.session == session and span.key is not None]

    def leftovers(self, reader: Reader, paths: Paths, key: str | None) -> list[ExecSpan]:
        """Return the spans of a reader whose files it edits anew: their ends were lost."""
        return [
            span
            for span in self.open.values()
            if span.reader == reader
            and span.paths is not None
            and not span.paths.isdisjoint(paths)
            and (key is None or span.key != key)
        ]

    def are_in_way_of(self, reader: Reader, paths: Paths | None) -> bool:
        """Return whether a span of another reader is open for any of the paths, or another command runs."""
        return any(span.is_in_way_of(reader, paths) for span in self.open.values())

    def attribute(self, changes: Sequence[Change[FileState]]) -> list[AttributedChanges] | None:
        """Divide changes by their authors, as of now; None if no span is open."""
        spans = [span for span in self.open.values() if span.asked is None]
        if not spans:
            return None
        commands = [span for span in spans if span.paths is None]
        by_path: dict[WorkspacePath, list[ExecSpan]] = {}
        for span in spans:
            for path in span.paths or ():
                by_path.setdefault(path, []).append(span)
        if not by_path:
            return [_attribute(commands, changes)]
        groups: dict[tuple[str, ...], tuple[list[ExecSpan], list[Change[FileState]]]] = {}
        for together in _inseparable(changes):
            claims = _claims(together, by_path) or commands
            key = tuple(span.name for span in claims)
            groups.setdefault(key, (claims, []))[1].extend(together)
        return [_attribute(claims, sorted(made, key=_path)) for claims, made in groups.values()]

    def has_command(self) -> bool:
        """Return whether the span of a command is open."""
        return any(span.paths is None for span in self.open.values())

    def recorded(self, transaction: Transaction) -> None:
        """Note a transaction in the spans that it was attributed to. The reply at their end names it."""
        for span in self.open.values():
            if span.asked is None and span.is_of(transaction):
                span.seqs.append(int(transaction.seq))
                del span.seqs[:-SEQS_MAX]


def claim_authorship(actor: str, session: str, command: str, turn: TurnMark | None = None) -> Authorship:
    """Return the author of a claim. Raises InvalidParams."""
    _check_command(command)
    return Authorship(actor, session, command, turn=turn)


def new_span(
    owner: int,
    reader: Reader,
    actor: str,
    session: str | None,
    command: str,
    paths: Paths | None = None,
    key: str | None = None,
    turn: TurnMark | None = None,
) -> ExecSpan:
    """Return a span that `ExecSpans.add` can open. Raises InvalidParams."""
    _check_command(command)
    if key is not None and session is None:
        raise InvalidParams("`key` needs a session.", hint=GIVE_SESSION)
    if key is not None and not 0 < len(key) <= KEY_CHARACTERS_MAX:
        raise InvalidParams(f"`key` is 1 to {KEY_CHARACTERS_MAX} characters long.")
    owner = owner if key is None else NOBODY
    name = secrets.token_hex(8)
    return ExecSpan(owner, reader, name, actor, session, command, paths, key, turn=turn)


def check_id(text: str, field: str) -> str:
    """Return an agent's own id. Raises InvalidParams."""
    if not 0 < len(text) <= KEY_CHARACTERS_MAX:
        raise InvalidParams(f"`{field}` is 1 to {KEY_CHARACTERS_MAX} characters long.")
    return text


def _check_command(command: str) -> None:
    if not command:
        raise InvalidParams("`command` is empty.", hint="Name the command: the history shows it.")
    if len(command) > COMMAND_CHARACTERS_MAX:
        raise InvalidParams(f"`command` is at most {COMMAND_CHARACTERS_MAX} characters long.")


class Claims(Struct, frozen=True):
    """The changes that a session may claim, and the changes that it has claimed already."""

    free: tuple[Seq, ...]
    own: tuple[Seq, ...]

    @staticmethod
    def of(history: History, session: str, paths: Paths, since_us: int) -> Claims:
        """Find the changes of these paths alone that were recorded at this time or later."""
        newest = history.index.at_time(since_us - 1)
        before = -1 if newest is None else newest
        seqs = {seq for path in paths for seq in history.index.touches_after(path, before)}
        made = [history.find(seq) for seq in sorted(seqs)]
        inside = [one for one in made if all(touch.path in paths for touch in one.touches)]
        return Claims(
            tuple(one.seq for one in inside if _is_free(one)),
            tuple(one.seq for one in inside if one.claimed_by and one.authorship.session == session),
        )


def changes_since(history: History, head: int, paths: Paths | None) -> list[Transaction]:
    """Return the unattributed changes after transaction `head`: of these paths alone, or of any path."""
    if paths is None:
        seqs = set(range(head + 1, int(history.head) + 1)[-SEQS_MAX:])
    else:
        seqs = {seq for path in paths for seq in history.index.touches_after(path, head)}
    made = [history.find(seq) for seq in sorted(seqs)]
    return [
        one
        for one in made
        if _is_free(one) and (paths is None or all(touch.path in paths for touch in one.touches))
    ]


def in_doubt_authorship(span: ExecSpan) -> Authorship:
    """Return the author of a claim of what an approved command may have changed."""
    evidence = Attribution(is_by_path=False, candidates=(span.candidate,))
    return Authorship(span.actor, span.session, span.description, attribution=evidence, turn=span.turn)


def _is_free(transaction: Transaction) -> bool:
    """Return whether a change is unattributed: no bracket was open that could have made it."""
    return transaction.kind == "outside" and transaction.authorship.attribution is None


def _path(change: Change[FileState]) -> WorkspacePath:
    return change.path


def _attribute(claims: Sequence[ExecSpan], changes: Sequence[Change[FileState]]) -> AttributedChanges:
    """Return the changes with their author, if all claims are one reader's."""
    if not claims:
        return AttributedChanges("outside", OUTSIDE, tuple(changes))
    is_by_path = claims[0].paths is not None
    if len({span.reader for span in claims}) == 1:
        message = "\n".join(span.description for span in claims)
        newest = claims[-1]
        author = Authorship(
            newest.actor, newest.session, message, attribution=Attribution(is_by_path), turn=newest.turn
        )
        return AttributedChanges("exec", author, tuple(changes))
    lines = [f"{span.who}: {span.description}" for span in claims]
    names = ", ".join(dict.fromkeys(span.who for span in claims))
    message = f"Could have been made by any of: {names}\n\n" + "\n".join(lines)
    evidence = Attribution(is_by_path, tuple(dict.fromkeys(span.candidate for span in claims)))
    return AttributedChanges(
        "outside", Authorship(OUTSIDE.actor, None, message, attribution=evidence), tuple(changes)
    )


def _claims(
    together: Sequence[Change[FileState]], by_path: dict[WorkspacePath, list[ExecSpan]]
) -> list[ExecSpan]:
    """Return the spans that name these changes: their targets, or without any the sources of moves."""
    sources = {change.source for change in together}
    targets = [change.path for change in together if change.path not in sources]
    for paths in (targets, [change.path for change in together]):
        named = {span.name: span for path in paths for span in by_path.get(path, ())}
        if named:
            return list(named.values())
    return []


def _inseparable(changes: Sequence[Change[FileState]]) -> Iterable[list[Change[FileState]]]:
    """Divide changes into the smallest groups that can each be a separate transaction.

    A move and its source belong together, and so do a file and the folder that it replaces.
    """
    by_path = {change.path: change for change in changes}
    leader = {path: path for path in by_path}

    def top(path: WorkspacePath) -> WorkspacePath:
        while leader[path] != path:
            leader[path] = path = leader[leader[path]]
        return path

    for change in changes:
        related = [folder for folder in folders_of(change.path) if folder in by_path]
        if change.source is not None and change.source in by_path:
            related.append(change.source)
        for other in related:
            leader[top(other)] = top(change.path)
    groups: dict[WorkspacePath, list[Change[FileState]]] = {}
    for change in changes:
        groups.setdefault(top(change.path), []).append(change)
    return groups.values()


def _to_row(span: ExecSpan) -> StoredSpan:
    return StoredSpan(
        span.name, span.actor, span.session or "", span.command,
        None if span.paths is None else sorted(path.text for path in span.paths),
        span.key or "", span.ends_us or 0, span.process, span.head, span.asked, span.turn, span.call,
    )  # fmt: skip


def _from_row(kept: StoredSpan) -> ExecSpan:
    return ExecSpan(
        NOBODY, reader_of(kept.session), kept.name, kept.actor, kept.session, kept.command,
        None if kept.paths is None else frozenset(map(WorkspacePath, kept.paths)),
        kept.key, kept.ends_us, kept.process, kept.head, asked=kept.asked, turn=kept.turn, call=kept.call,
    )  # fmt: skip
