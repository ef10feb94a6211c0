"""The method `publish`, with the process that writes to the user's git on its behalf.

The transactions are packed first, so that the process can read them from the store. One commit is made at a
time.
"""

from __future__ import annotations

import asyncio
import getpass
import json
import logging
from functools import cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from editd.advice import Advice, leave_out, method_term, step_term
from editd.engine import queries
from editd.engine.publish_worker import Life, Publication, refusal_in, request_of
from editd.errors import Broken, Conflict, HistoryDamaged, InvalidParams, IoError, NoChange, Timeout
from editd.server import convert
from editd.server.child_process import PYTHON, RequestProcess
from editd.store.index_tables import LogQuery
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from editd.errors import Refused
    from editd.server.connection import ClientState
    from editd.server.methods import Services
    from editd.system.frames import Frame
    from editd.values.content import Change, Entry
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Seq, Transaction

log = logging.getLogger(__name__)

TRANSACTIONS_MAX = 100_000  # in one commit
LIFE_MAX = 1_000  # transactions of a file that are compared with the branch by their content
OTHERS_MAX = 100  # transactions of a file that are read to explain a conflict
PUBLISH_SECONDS_MAX = 100.0  # a client waits no longer than 120 for an answer
NOBODY = frozenset({"unknown", "outside", "editd", "editctl", "editd_client"})  # as an actor: no co-author


def publish(
    services: Services, params: messages.Publish, caller: ClientState
) -> Awaitable[messages.PublishResult]:
    services.engine.recorder.check_in_place()
    if isinstance(services.engine.recorder.broken, HistoryDamaged):
        raise services.engine.recorder.broken
    if not params.message.strip() or "\0" in params.message or not _is_unicode(params.message):
        raise InvalidParams("A commit needs a `message`, in Unicode and without NULs.")
    named = [params.session] if isinstance(params.session, str) else params.session
    sessions = named if named is not None else [caller.session] if caller.session is not None else []
    is_range = params.from_ is not None or params.to is not None
    chosen = _range(services, params) if is_range else None
    if chosen is not None and named is not None:
        raise InvalidParams(
            "`session` already names what to publish.",
            hint=leave_out("from", "to"),
        )
    if chosen is None and not sessions:
        raise InvalidParams(
            "Nothing to publish is named.",
            hint=Advice(step_term("session_or_range")),
        )
    if chosen is None:
        chosen = _of_sessions(services, sessions)
    publication = _publication(params, chosen, [] if is_range else sessions)
    publication = replace(publication, excluded=_excluded_paths(services, chosen))
    return _publish(services, publication, chosen, is_range=is_range)


async def _publish(
    services: Services, publication: Publication, chosen: list[Transaction], *, is_range: bool
) -> messages.PublishResult:
    async with services.publishing:
        await _wait_for_packing(services, int(chosen[-1].seq))
        publication = await services.queue.run_in_thread(
            partial(_with_lives, services, publication, is_range)
        )
        answer = await _ask(services, request_of(publication))
        refusal = refusal_in(answer)
        if refusal is not None:
            raise await _explain(services, refusal, publication, chosen)
    result = msgspec.convert(answer, messages.PublishResult)
    await services.queue.run(partial(_record, services, result))
    return result


def _with_lives(services: Services, publication: Publication, is_range: bool) -> Publication:
    """Add the contents of the files that others changed after the first published change.

    They end before an undo of a published change, because the file lacked that change from then on. For the
    work of sessions, add these files as they are now as well: a range is published as it was.
    """
    index = services.engine.history.index
    undoes = cache(index.undoes)
    present: dict[WorkspacePath, Entry | None] = {}
    lives: dict[WorkspacePath, Life] = {}
    for run in publication.runs:
        life = index.life(run.path, -1, None)[-LIFE_MAX:]
        if {seq for seq, _ in life if seq >= run.seqs[0]} - {*run.seqs}:
            kept = takewhile(lambda step: not {*undoes(step[0])} & {*run.seqs}, life)  # noqa: B023  # used here
            lives[run.path] = [(int(seq), touch.after) for seq, touch in kept]
            if not is_range and not _is_moved_on(services, run, *life[-1]):
                present[run.path] = life[-1][1].after
    return replace(publication, lives=lives, present=present)


def _is_moved_on(services: Services, run: queries.PathChanges, seq: Seq, touch: Change[Entry]) -> bool:
    """Return whether a transaction moved the file on, and not back: its work is still in force there."""
    if touch.after is not None:
        return False
    made = services.engine.history.index.transaction(seq)
    return made is not None and any(
        other.source == run.path and other.path != run.source for other in made.touches
    )


async def _explain(
    services: Services, refusal: Refused, asked: Publication, chosen: list[Transaction]
) -> Refused:
    """Return the refusal with the other sessions' transactions that make a conflict disappear, if any do."""
    files = refusal.data.get("files") if refusal.code == Conflict.code else None
    if not files:
        return refusal
    path = convert.known_path(files[0]["path"])
    others = await services.queue.run(partial(_others, services, path, {tx.seq for tx in chosen}))
    needed = await _find_needed(services, asked, chosen, others, path) if others else []
    return _add_needed(refusal, path, needed) if needed else refusal


async def _find_needed(
    services: Services,
    asked: Publication,
    chosen: list[Transaction],
    others: list[Transaction],
    path: WorkspacePath,
) -> list[Transaction]:
    """Return transactions of `others` that make the conflict disappear, or none if it stays.

    If a single one is missing, it is back. Each round leaves out all that can be left out one at a time,
    or the newest of these if they cannot be left out together.
    """
    since = min(asked.since, others[0].time_us // 1_000_000)

    def runs(added: Sequence[Transaction]) -> tuple[queries.PathChanges, ...]:
        made = queries.path_changes(sorted([*chosen, *added], key=lambda tx: tx.seq))
        return tuple(run for run in made if path in (run.path, run.source))

    async def are_clean(choices: Sequence[Sequence[Transaction]]) -> list[bool]:
        trials = tuple(map(runs, choices))
        answer = await _ask(services, request_of(replace(asked, trials=trials, since=since)))
        return answer.get("clean") or [False] * len(choices)

    is_clean, *clean = await are_clean([others, *_each_left_out(others)])
    needed = others if is_clean else []
    while free := [tx for tx, is_clean in zip(needed, clean, strict=False) if is_clean]:
        fewest = [tx for tx in needed if tx not in free]
        fewer = [tx for tx in needed if tx is not free[-1]]
        is_clean, *clean = await are_clean([fewest, *_each_left_out(fewest), *_each_left_out(fewer)])
        needed = fewest if is_clean else fewer
        clean = clean[: len(fewest)] if is_clean else clean[len(fewest) :]
    return needed


def _each_left_out(transactions: Sequence[Transaction]) -> list[list[Transaction]]:
    return [[tx for tx in transactions if tx is not left_out] for left_out in transactions]


def _others(services: Services, path: WorkspacePath, mine: set[Seq]) -> list[Transaction]:
    """Return the transactions of a file before the last of `mine` that are in force and not of `mine`."""
    before = services.engine.history.index.log(LogQuery(paths=(path,), before=int(max(mine))), OTHERS_MAX)
    return [tx for tx in queries.effective(before[::-1]) if tx.seq not in mine]


def _record(services: Services, result: messages.PublishResult) -> None:
    """Record the transactions in the commit, so that a rollback leaves them alone."""
    if not result.commit:
        return
    try:
        services.guard.registry.put_published(result.transactions, convert.published(result))
    except IoError as error:  # The commit is made: a refusal now would be untrue.
        log.error("the publication of %s is not recorded: %s", result.commit, error.text())


def _range(services: Services, params: messages.Publish) -> list[Transaction]:
    """Return all transactions from `from` to `to`, except transactions that only took in old files."""
    history = services.engine.history
    first = history.floor.seq + 1 if params.from_ is None else history.find(params.from_).seq
    last = history.head if params.to is None else history.find(params.to).seq
    transactions = _log(services, LogQuery(after=first - 1, before=last + 1))
    transactions = [transaction for transaction in transactions if transaction.kind != "baseline"]
    if not transactions:
        raise NoChange(
            f"Nothing was changed in transactions {first} to {last}.",
            hint=Advice("Run ", method_term("log"), " to list all transactions."),
        )
    return transactions


def _of_sessions(services: Services, sessions: Sequence[str]) -> list[Transaction]:
    """Return the sessions' transactions in force. Raises NoChange if a session did nothing."""
    transactions = queries.effective(_log(services, LogQuery(sessions=tuple(sessions))))
    for session in sessions:
        if all(transaction.authorship.session != session for transaction in transactions):
            raise NoChange(
                f"No edit of the session {session!r} is in force.",
                hint=Advice("Run ", method_term("log"), " with this session to list its transactions."),
            )
    return transactions


def _log(services: Services, wanted: LogQuery) -> list[Transaction]:
    """Rising."""
    transactions = services.engine.history.index.log(wanted, TRANSACTIONS_MAX + 1)
    if len(transactions) > TRANSACTIONS_MAX:
        raise InvalidParams(f"A commit is made of at most {TRANSACTIONS_MAX} transactions.")
    return transactions[::-1]


async def _wait_for_packing(services: Services, through: int) -> None:
    await services.background.pack()
    if services.engine.history.packed < through:
        raise Broken("The history could not be packed.", hint="See the daemon's log, and retry.")


async def _ask(services: Services, request: Frame) -> Frame:
    """Return the answer of a process started for this request."""
    argv = [*PYTHON, "editd.engine.publish_worker", services.root, services.engine.history.folder]
    process = RequestProcess(argv)
    try:
        async with asyncio.timeout(PUBLISH_SECONDS_MAX):
            answer = await process.ask(request)
    except TimeoutError:
        process.kill()
        raise Timeout(
            f"The process that publishes was not done within {PUBLISH_SECONDS_MAX:g} s, and was ended.",
            hint="Check `git log` before you retry. If git itself gets stuck in this "
            "repository, one of its files may be a FIFO, or its disk does not answer.",
        ) from None
    finally:
        await process.close()
    if answer is None:
        return {
            "refused": "internal_error", "message": "The process that publishes died.", "data": {},
            "hint": "Check `git log` before you retry: the commit may have been made.",
        }  # fmt: skip
    return answer


def _add_needed(refusal: Refused, path: WorkspacePath, needed: Sequence[Transaction]) -> Refused:
    """Return the refusal with the transactions that the branch lacks, and what to publish with the rest."""
    sessions = list(dict.fromkeys(tx.authorship.session for tx in needed))
    seqs = queries.format_ranges(tx.seq for tx in needed)
    by = " and ".join(
        f"the session {session!r}" if session is not None else "no session" for session in sessions
    )
    names = [session for session in sessions if session is not None]
    hint = (
        f"Publish a range that includes {seqs}, or commit {path} first."
        if None in sessions
        else f"Publish {' and '.join(map(repr, names))} with it, or first."
    )
    needs = [
        {"seq": int(tx.seq), "session": tx.authorship.session, "actor": tx.authorship.actor} for tx in needed
    ]
    return refusal.revise(
        message=(
            f"{refusal.message} {path} builds on transaction{'s' * (len(needed) > 1)} {seqs} by {by},"
            " which the branch does not have."
        ),
        hint=hint,
        data={"needs": needs},
    )


def _excluded_paths(services: Services, chosen: list[Transaction]) -> tuple[str, ...]:
    """Return the paths that cannot be published, because the history does not keep their contents."""
    history = services.engine.history
    touches = (touch for transaction in chosen for touch in transaction.touches)
    return tuple(sorted({touch.path.text for touch in touches if history.leaves_out(touch)}))


def _publication(params: messages.Publish, chosen: list[Transaction], sessions: list[str]) -> Publication:
    authors: list[str | None] = [tx.authorship.actor for tx in chosen if tx.kind != "outside"]
    approvals = [tx.authorship.approval for tx in chosen if tx.authorship.approval is not None]
    persons = [approval for approval in approvals if approval.rule is None]  # a rule reviews nothing
    authors += [approval.actor for approval in persons if approval.is_modified]
    return Publication(
        tuple(queries.path_changes(chosen)),
        params.message, params.branch, params.author, _actor_names(authors),
        _actor_names(approval.actor for approval in persons), _login(),
        tuple(f"Editd-Session: {_printable(session)}" for session in dict.fromkeys(sessions)),
        min(transaction.time_us for transaction in chosen) // 1_000_000, params.dry_run,
    )  # fmt: skip


def _actor_names(actors: Iterable[str | None]) -> tuple[str, ...]:
    """Return the actors without None and `NOBODY`, each once and in their order."""
    return tuple(dict.fromkeys(actor for actor in actors if actor is not None and actor not in NOBODY))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(name: str) -> str:
    """Return the name as a trailer's value."""
    return name if name.isprintable() and not name.startswith('"') else json.dumps(name)


def _login() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without an entry, as in a container
        return ""
