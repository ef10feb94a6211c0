"""The method `why`: from a line of a file to its transaction, turn and prompt.

`blame` finds the transaction of each line, through moves, undos and merges. The transaction has the number of
its turn, and the file of the turns has the prompt.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import FileMissing, InvalidParams
from editd.server import convert
from editd.server.methods.history import blamed_by_the_log, check_lines, recorded_version, search_through
from editd.server.methods.turn_list import sees_prompts
from editd.store.line_blame import LineBlame
from editd.store.recorded_state import shown_state
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from editd.server.connection import ClientState
    from editd.server.methods import Services
    from editd.store.session_store import ReviewNote
    from editd.store.turn_store import Turn
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Transaction

LINES_MAX = 10_000  # in one answer


class Origin(Struct, frozen=True):
    """The transaction of a line, and the author of the line, which may be one by the log of all hosts."""

    line: int
    seq: int
    actor: str
    session: str | None
    time: str
    host: str | None


def why(services: Services, params: messages.Why, caller: ClientState) -> Awaitable[messages.WhyResult]:
    last = params.line if params.end_line is None else params.end_line
    if not 1 <= params.line <= last < params.line + LINES_MAX:
        raise InvalidParams(
            f"`line` and `end_line` count from 1, and name {LINES_MAX} lines at most.",
            hint="Give a smaller range.",
        )
    path = services.engine.tree.resolve(convert.path(params.path))
    wanted = range(params.line - 1, last)
    if params.at is None and services.shared_log.is_joined:
        return _by_the_log(services, path, wanted, caller)
    return _by_this_host(services, params, path, wanted, caller)


async def _by_this_host(
    services: Services, params: messages.Why, path: WorkspacePath, wanted: range, caller: ClientState
) -> messages.WhyResult:
    run = services.queue.run_in_thread
    version, lines = await run(partial(_begun, services, params, path, wanted))
    await search_through(services, path, lines)
    found = range(wanted.start, min(wanted.stop, len(lines.seqs)))
    seqs = {index + 1: lines.seqs[index] for index in found}
    return await run(partial(answer_of, services, version, path, seqs, caller))


async def _by_the_log(
    services: Services, path: WorkspacePath, wanted: range, caller: ClientState
) -> messages.WhyResult:
    """Name the authors by the order of the log, so that all hosts agree."""
    blamed = await blamed_by_the_log(services, path)
    _check_range(path, wanted, len(blamed.lines))
    origins = [
        Origin(one.line, one.seq, one.actor, one.session, one.time, one.host or None)
        for one in blamed.lines[wanted.start : wanted.stop]
    ]
    render = partial(_answer, services, blamed.version, path, origins, caller)
    return await services.queue.run_in_thread(render)


def _begun(
    services: Services, params: messages.Why, path: WorkspacePath, wanted: range
) -> tuple[str, LineBlame]:
    """Return the version of the file and the search for the authors of the lines. Raises Refused."""
    history, through = services.engine.history, None
    if params.at is None:
        version = recorded_version(services, path)
    else:
        through = int(history.find(params.at).seq)
        entry = history.entry_at(path, through)
        if entry is None:
            raise FileMissing(f"{path} did not exist after transaction {through}.", data={"path": path.text})
        if history.is_dropped(entry.version):
            raise history.missing(entry.version)
        state = shown_state(entry, history)
        assert state is not None, "an entry has a state"
        check_lines(services, path, state)
        version = entry.version
    lines = LineBlame(history, path, version, wanted, through)
    _check_range(path, wanted, len(lines.seqs))
    return version, lines


def _check_range(path: WorkspacePath, wanted: range, count: int) -> None:
    if wanted.start >= count:
        raise InvalidParams(
            f"{path} has {count} line{'s' * (count != 1)}.",
            hint="Count from 1.",
            data={"path": path.text, "lines": count},
        )


def _origins(services: Services, seqs: Mapping[int, int]) -> list[Origin]:
    index = services.engine.history.index
    made = {int(one.seq): one for one in index.transactions(seqs.values())}
    origins = []
    for line, seq in seqs.items():
        author = made[seq].authorship
        host = None if author.arrival is None or author.arrival.origin is None else author.arrival.host
        origins.append(Origin(line, seq, author.actor, author.session, rfc3339(made[seq].time_us), host))
    return origins


def answer_of(
    services: Services, version: str, path: WorkspacePath, seqs: Mapping[int, int], caller: ClientState
) -> messages.WhyResult:
    """Return the reasons of lines, whose transactions are given by their numbers."""
    return _answer(services, version, path, _origins(services, seqs), caller)


def _answer(
    services: Services, version: str, path: WorkspacePath, origins: Sequence[Origin], caller: ClientState
) -> messages.WhyResult:
    """Return the lines with their turns and prompts."""
    seqs = {origin.seq for origin in origins}
    made = {int(one.seq): one for one in services.engine.history.index.transactions(seqs)}
    keys = [
        (author.session, author.turn.number)
        for author in (one.authorship for one in made.values())
        if author.session is not None and author.turn is not None
    ]
    turns = services.turns.store.turns(keys)
    marks = services.guard.registry.marks_of(seqs)
    readable = {session for session, _ in turns if sees_prompts(services, session, caller)}
    return messages.WhyResult(
        version=version,
        lines=[
            _line(path, origin, made[origin.seq], turns, marks.get(origin.seq), readable)
            for origin in origins
        ],
    )


def _line(
    path: WorkspacePath,
    origin: Origin,
    made: Transaction,
    turns: Mapping[tuple[str, int], Turn],
    mark: ReviewNote | None,
    readable: set[str],
) -> messages.WhyLine:
    author = made.authorship
    turn = None
    if author.session is not None and author.turn is not None:
        turn = turns.get((author.session, author.turn.number))
    is_readable = turn is not None and turn.session in readable
    model = None if author.turn is None else author.turn.model
    if model is None and turn is not None:
        model = turn.model
    return messages.WhyLine(
        line=origin.line,
        path=path.text,
        transaction=origin.seq,
        kind=made.kind,
        message=author.message,
        actor=origin.actor,
        session=origin.session,
        agent=None if turn is None else turn.agent,
        model=model,
        turn=None if author.turn is None else author.turn.number,
        prompt=turn.prompt if turn is not None and is_readable else None,
        characters=None if turn is None else turn.characters,
        began=None if turn is None else rfc3339(turn.began_us),
        time=origin.time,
        reviewed=_reviewed(made, mark),
        host=origin.host,
        transcript=turn.transcript if turn is not None and is_readable else None,
    )


def _reviewed(made: Transaction, mark: ReviewNote | None) -> messages.ReviewedBy | None:
    """Return the person who has marked a transaction, or approved it."""
    if mark is not None:
        return messages.ReviewedBy(actor=mark.actor, time=rfc3339(mark.time_us))
    approval = made.authorship.approval
    if approval is None or approval.actor is None or approval.rule is not None:
        return None
    return messages.ReviewedBy(actor=approval.actor, time=rfc3339(made.time_us))
