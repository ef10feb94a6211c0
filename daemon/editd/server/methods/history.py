"""The methods of the history: `log`, `show`, `gc`, `forget`, `blame`, `session.list`, and the undos."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType, structs
from msgspec.structs import replace

from editd.edits.diff import line_counts
from editd.edits.line_changes import count_lines
from editd.engine.commands import Restore, Undo
from editd.engine.external_changes import recorded_state
from editd.engine.queries import changes_of
from editd.engine.undo import numbered_hunks
from editd.engine.undo_selection import (
    ROLLED_BACK,
    ByFilter,
    BySession,
    ByTransaction,
    LastUndoOf,
    Latest,
    Scope,
    times_warning,
)
from editd.errors import (
    ContentExcluded,
    ContentForgotten,
    FileMissing,
    InvalidParams,
    NotText,
    PathIgnored,
    Timeout,
    TooLarge,
)
from editd.server import convert
from editd.server.methods.oversight import know_marks
from editd.store.index_tables import LogQuery, SessionWork, UndoQuery
from editd.store.line_blame import LineBlame
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from editd.engine.arrivals import LogAuthor
    from editd.engine.commands import UndoKind
    from editd.engine.sessions import OpenSession
    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.values.content import Entry, Version
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, ConflictReport, Outcome, Transaction

    LogAnswer = messages.LogResult | messages.BriefLogResult

LOG_TRANSACTIONS_MAX = 10_000  # in one answer; `before` continues it
SLICE_SECONDS = 0.02  # of the engine's time, before other requests get theirs
BLAME_TRIES = 5  # while the file changes
BLAME_LINES_MAX = 200_000  # of a file: all of them are in one answer
BLAME_SECONDS_MAX = 60.0  # some 50,000 versions of a file of 1,000 lines
LOT = 200  # transactions that are counted at once, so that other requests come in between
LINES_SECONDS = 5.0  # for counting the lines of an answer; the rest of it gets none
UNCOUNTED = (ContentExcluded, ContentForgotten, Timeout, TooLarge)  # no content, or too much: no count
STAT_TRANSACTIONS_MAX = 200  # whose lines one `log` counts


def log(services: Services, params: messages.Log, _caller: ClientState) -> Answer:
    if not 1 <= params.limit <= LOG_TRANSACTIONS_MAX:
        raise InvalidParams(f"`limit` is between 1 and {LOG_TRANSACTIONS_MAX}.")
    if params.stat and params.limit > STAT_TRANSACTIONS_MAX:
        raise InvalidParams(
            f"With `stat`, `limit` is at most {STAT_TRANSACTIONS_MAX}.",
            hint="`before` continues the list.",
        )
    found, more = services.queries.transactions(
        _wanted(services, params), params.limit, files=params.stat or not params.brief
    )
    seqs = [int(transaction.seq) for transaction in found]
    registry, index = services.guard.registry, services.engine.history.index
    published, marked = registry.published(seqs), registry.marked(seqs)
    landed = index.landed_of(seqs) if services.shared_log.is_joined else {}
    shown = [
        convert.transaction_result(one, published.get(seq), landed.get(seq), marked.get(seq))
        for seq, one in zip(seqs, found, strict=True)
    ]
    shown = [_with_notes(services, *pair) for pair in zip(shown, found, strict=True)]
    files = services.engine.history.index.file_counts(seqs) if params.brief else None
    answer = partial(_log, files=files, more=more, warnings=_times_warning(services, params))
    return _with_lines(services, found, shown, answer) if params.stat else answer(shown)


def _times_warning(services: Services, params: messages.LogFilter) -> list[str] | UnsetType:
    return [*times_warning(params.since, params.until, services.engine.history)] or UNSET


def _with_notes(services: Services, shown: messages.Transaction, found: Transaction) -> messages.Transaction:
    """Return a transaction with the contents that the history lacks, and what stays on this host."""
    engine = services.engine
    if engine.history.has_gaps:
        shown = convert.with_gaps(shown, found, engine.history)
    return shown if engine.unshared is None else convert.with_unshared(shown, found, engine.unshared)


def _log(
    shown: list[messages.Transaction],
    files: Mapping[int, tuple[int, str]] | None,
    *,
    more: bool,
    warnings: list[str] | UnsetType,
) -> LogAnswer:
    """Return the answer of `log`: with `files`, the count and first path of each, it is brief."""
    if files is None:
        return messages.LogResult(transactions=shown, more=more, warnings=warnings)
    brief = [convert.brief_transaction(one, *files.get(one.seq, (0, None))) for one in shown]
    return messages.BriefLogResult(transactions=brief, more=more, warnings=warnings)


async def _with_lines(
    services: Services,
    found: Sequence[Transaction],
    shown: Sequence[messages.Transaction],
    answer: Callable[[list[messages.Transaction]], LogAnswer],
) -> LogAnswer:
    """Add the lines that each transaction added and deleted."""
    until = time.monotonic() + LINES_SECONDS
    counted: list[messages.Transaction] = []
    for transaction, result in zip(found, shown, strict=True):
        whole = replace(
            transaction, touches=tuple(replace(one, undone_by=None) for one in transaction.touches)
        )
        added = removed = None
        if time.monotonic() < until:
            with contextlib.suppress(*UNCOUNTED):
                added, removed = await services.queue.run_in_thread(partial(_lines_of, services, whole))
        counted.append(replace(result, added=added, deleted=removed))
    return answer(counted)


def log_count(services: Services, params: messages.LogCount, _caller: ClientState) -> messages.LogCountResult:
    history = services.engine.history
    return messages.LogCountResult(
        count=history.index.count_matching(_wanted(services, params)), head=history.head,
        warnings=_times_warning(services, params),
    )  # fmt: skip


def _wanted(services: Services, params: messages.LogFilter) -> LogQuery:
    if params.unreviewed:
        know_marks(services)
    return convert.wanted(params)


def show(services: Services, params: messages.Show, _caller: ClientState) -> Answer:
    shown = partial(_shown, services, params)
    return services.queue.run_in_thread(shown) if params.diff or params.hunks else shown()


def _diff_of(services: Services, params: messages.Show, found: Transaction) -> str:
    decoder = services.engine.decoder if params.decoded else None
    return convert.diff_of(changes_of(found, services.engine.history), decoder)


def _shown(services: Services, params: messages.Show) -> messages.ShowResult:
    found = services.engine.history.find(params.tx)
    diff = _diff_of(services, params, found) if params.diff else None
    seq, registry = int(found.seq), services.guard.registry
    decoder = services.engine.decoder if params.decoded else None
    shown = convert.transaction_result(
        found, registry.published([seq]).get(seq), services.engine.history.index.landed_of([seq]).get(seq),
        registry.marked([seq]).get(seq),
    )  # fmt: skip
    shown = _with_notes(services, shown, found)
    hunks = [
        messages.Hunk(path=path.text, hunk=number, diff=text)
        for path, number, text in (
            numbered_hunks(services.engine.history, found, decoder) if params.hunks else ()
        )
    ]
    return messages.ShowResult(transaction=shown, diff=diff, hunks=hunks if params.hunks else UNSET)


async def gc(services: Services, params: messages.Gc, _caller: ClientState) -> messages.GcResult:
    return messages.GcResult(**await services.retention.run(is_dry=params.dry_run))


async def forget(services: Services, params: messages.Forget, caller: ClientState) -> messages.ForgetResult:
    selection, text = convert.removal(params)
    actor = services.sessions.actor(None, caller) or convert.ANYBODY
    return convert.forget_result(await services.removal.run(selection, text, actor, is_dry=params.dry_run))


def blame(
    services: Services, params: messages.Blame, _caller: ClientState
) -> Awaitable[messages.BlameResult]:
    path = services.engine.tree.resolve(convert.path(params.path))
    if services.shared_log.is_joined:
        return _blamed_by_the_log(services, path)
    return _blamed(services, path)


def _begun(services: Services, path: WorkspacePath) -> tuple[Version, LineBlame]:
    """Record the current content, and return its version and the search for its authors. Raises Refused."""
    version = _recorded(services, path)
    return version, LineBlame(services.engine.history, path, version)


def _recorded(services: Services, path: WorkspacePath) -> Version:
    """Record the current content, as `read` does, and return its version. Raises Refused."""
    state = services.engine.look(path)
    data = {"path": path.text}
    if state is None:
        raise FileMissing(f"{path} does not exist.", hint="Run `log` to see its deletion.", data=data)
    entry = services.engine.history.entry(path)
    if entry is None:
        raise PathIgnored(
            f"{path} is not in the history: git ignores it, and no edit has touched it.",
            hint="Edit the file to add it to the history.",
            data=data,
        )
    shown = services.engine.decoder.in_utf8(state) or state
    if b"\0" in shown.content:
        raise NotText(
            f"{path} has a NUL in it, and no lines.", hint="Run `log` to see its authors.", data=data
        )
    lines = count_lines(shown.content)
    if lines > BLAME_LINES_MAX:
        raise TooLarge(
            f"{path} has {lines} lines, and `blame` answers for {BLAME_LINES_MAX} at most.",
            hint="Run `log` with this path to list its transactions, and `show` to see their changes.",
            data=data | {"lines": lines, "limit": BLAME_LINES_MAX},
        )
    return entry.version


async def _blamed(services: Services, path: WorkspacePath) -> messages.BlameResult:
    version, lines = await services.queue.run_in_thread(partial(_begun, services, path))
    loop = asyncio.get_running_loop()
    until = loop.time() + BLAME_SECONDS_MAX
    while not await services.queue.run_in_thread(partial(lines.run_for, SLICE_SECONDS)):
        if loop.time() > until:
            raise Timeout(
                f"{path} has too many versions to go through within {BLAME_SECONDS_MAX:g} s.",
                hint="Run `log` with this path to list its transactions.",
                data={"path": path.text},
            )
        await asyncio.sleep(0)  # requests that wait for a turn go first
    return messages.BlameResult(
        version=version,
        lines=await services.queue.run_in_thread(partial(_blame_lines, services, lines)),
        gaps=sorted(lines.gaps) if lines.gaps else UNSET,
    )


async def _blamed_by_the_log(services: Services, path: WorkspacePath) -> messages.BlameResult:
    """Return the author of each line by the order of the log, so that all hosts agree."""
    found = await _blamed(services, path)
    for _ in range(BLAME_TRIES):
        version = convert.base_version(found.version)
        assert version is not None
        authors = await services.shared_log.blame(path, version)
        if authors is not None:
            lines = [_as_in_log(*pair) for pair in zip(found.lines, authors, strict=True)]
            return replace(found, lines=lines)
        now = await services.queue.run_in_thread(partial(_recorded, services, path))
        if now == version:  # the file is not shared
            return found
        found = await _blamed(services, path)
    return found


def _as_in_log(line: messages.BlameLine, author: LogAuthor) -> messages.BlameLine:
    """Return a line with its author in the log. It keeps its `seq` if that has no transaction here."""
    return replace(
        line,
        seq=line.seq if author.seq is None else int(author.seq),
        actor=author.actor,
        session=author.session,
        time=rfc3339(author.time_us),
        number=UNSET if author.number is None else author.number,
        host=author.host or UNSET,
    )


def _blame_lines(services: Services, lines: LineBlame) -> list[messages.BlameLine]:
    made = {seq: services.engine.history.index.made(seq) for seq in set(lines.seqs)}
    return [
        messages.BlameLine(
            line=number,
            seq=seq,
            actor=made[seq].actor,
            session=made[seq].session,
            time=rfc3339(made[seq].time_us),
        )
        for number, seq in enumerate(lines.seqs, 1)
    ]


def session_list(services: Services, params: messages.SessionList, _caller: ClientState) -> Answer:
    entries = [_entry(session) for session in services.guard.sessions]
    entries += _paused_names(services, {entry.session for entry in entries})
    if params.all or params.closed is not None:
        since_us = 0 if params.closed is None else convert.time_us(params.closed)
        known = {entry.session for entry in entries}
        waiting = services.proposals.waiting_sessions()
        works = waiting | {work.name: work for work in services.engine.history.index.sessions()}
        entries += [
            _closed(work)
            for name, work in works.items()
            if name not in known and (work.last_us >= since_us or name in waiting)
        ]
        entries.sort(key=lambda entry: entry.used, reverse=True)
    pauses = services.guard.sessions.paused
    entries = [
        replace(entry, paused=convert.pause(pauses[entry.session])) if entry.session in pauses else entry
        for entry in entries
    ]
    if params.stat or params.activity:
        return _all_with_counts(services, params, entries)
    return messages.SessionListResult(sessions=entries)


def _paused_names(services: Services, known: Collection[str]) -> list[messages.SessionEntry]:
    """Return the paused sessions that are not open: the word of a person about them holds even so."""
    pauses = services.guard.sessions.paused
    names = pauses.keys() - known
    if not names:
        return []
    works = {work.name: work for work in services.engine.history.index.sessions()}
    since = {name: pauses[name].since_us for name in names}
    return [
        _closed(works.get(name, SessionWork(name, name, since[name], since[name]))) for name in sorted(names)
    ]


async def _all_with_counts(
    services: Services, params: messages.SessionList, entries: list[messages.SessionEntry]
) -> messages.SessionListResult:
    until = time.monotonic() + LINES_SECONDS
    counted: list[messages.SessionEntry] = []
    for entry in entries:
        found = await _with_counts(services, entry, until)
        if params.activity:
            activity = await services.queue.run(partial(_activity, services, found))
            found = replace(found if params.stat else entry, activity=activity)
        counted.append(found)
    return messages.SessionListResult(sessions=counted)


def _activity(services: Services, entry: messages.SessionEntry) -> messages.SessionActivity:
    """Return what a session does at present; `entry` has the counts of its work."""
    index, name = services.engine.history.index, entry.session
    newest = index.log(LogQuery(sessions=(name,)), 1)
    edits = LogQuery(sessions=(name,), kinds=("edit", "exec"))
    proposals = services.proposals.open_of(name)
    running, wait = services.spans.running(name), services.guard.leases.waiting_of(name)
    waits: Literal["review", "lease"] | None = None
    since = running[-1].since_us if running else None
    if wait is not None:
        waits, since = "lease", wait.since_us
    if (reviewed_since := services.proposals.waited_since(proposals)) is not None:
        waits, since = "review", reviewed_since
    return messages.SessionActivity(
        last=_last(newest[0]) if newest else None,
        edits=index.count_matching(edits),
        in_force=index.count_matching(replace(edits, is_in_force=True)),
        added=entry.added if isinstance(entry.added, int) else None,
        deleted=entry.removed if isinstance(entry.removed, int) else None,
        proposals=proposals,
        leases=[lease.id for lease in services.guard.leases if lease.session == name],
        running=[span.command for span in running],
        waits_for=waits,
        since=None if since is None else rfc3339(since),
        wants=[] if wait is None else [glob.text for glob in wait.paths],
        holders=[] if wait is None else services.guard.leases.holders(wait),
        missed=services.spans.missed(name),
    )


def _last(newest: Transaction) -> messages.LastTransaction:
    return messages.LastTransaction(
        seq=newest.seq,
        time=rfc3339(newest.time_us),
        kind=newest.kind,
        path=newest.touches[0].path.text if newest.touches else None,
        message=newest.authorship.message,
    )


async def _with_counts(
    services: Services, entry: messages.SessionEntry, until: float
) -> messages.SessionEntry:
    """Count the session's edits in force, their files and their lines."""
    work = _Counts()
    chosen = UndoQuery(ROLLED_BACK, (entry.session,))
    while oldest := await services.queue.run_in_thread(partial(_count, services, chosen, work, until)):
        chosen = replace(chosen, until=oldest - 1)
    return _counted(entry, work)


def _count(services: Services, chosen: UndoQuery, work: _Counts, until: float) -> int:
    """Count the next transactions; return the oldest of them, 0 if there are no more."""
    lot = services.engine.history.index.in_force(chosen, LOT)
    if not lot:
        return 0
    counts = [(0, 0)] * len(lot)
    for number, transaction in enumerate(lot):
        work.is_whole = work.is_whole and time.monotonic() < until
        if work.is_whole:
            try:
                counts[number] = _lines_of(services, transaction)
            except UNCOUNTED:
                work.is_whole = False
    # Nothing is added before the last line is counted, because a comparison may begin the lot again.
    work.edits += len(lot)
    work.added += sum(added for added, _ in counts)
    work.removed += sum(removed for _, removed in counts)
    for transaction in lot:
        work.paths.update(touch.path.raw for touch in transaction.touches if touch.undone_by is None)
    commits = services.guard.registry.published([int(transaction.seq) for transaction in lot]).values()
    work.published.update((found.commit, found.branch) for found in commits)
    return int(lot[-1].seq)


def _lines_of(services: Services, transaction: Transaction) -> tuple[int, int]:
    """Return the numbers of lines that a transaction added and removed."""
    history = services.engine.history
    counts = [
        line_counts(recorded_state(before, history), recorded_state(after, history))
        for before, after in _pairs(transaction)
    ]
    return sum(added for added, _ in counts), sum(removed for _, removed in counts)


class _Counts(Struct):
    """The size of a session's work in force."""

    edits: int = 0
    paths: set[bytes] = set()
    added: int = 0
    removed: int = 0
    is_whole: bool = True  # whether the lines of all edits are counted
    published: set[tuple[str, str]] = set()


def _pairs(transaction: Transaction) -> Iterator[tuple[Entry | None, Entry | None]]:
    """The states before and after, path by path; a moved file is one pair."""
    touches = {touch.path: touch for touch in transaction.touches if touch.undone_by is None}
    moved = {touch.source for touch in touches.values() if touch.source in touches}
    for path, touch in touches.items():
        source = None if touch.source is None else touches.get(touch.source)
        if source is not None and touch.before is None:
            yield source.before, touch.after
        elif path not in moved or touch.after is not None:
            yield touch.before, touch.after


def _counted(entry: messages.SessionEntry, work: _Counts) -> messages.SessionEntry:
    return replace(
        entry,
        edits=work.edits,
        files=len(work.paths),
        added=work.added if work.is_whole else None,
        removed=work.removed if work.is_whole else None,
        published=[messages.Published(commit=oid, branch=branch) for oid, branch in sorted(work.published)],
    )


def _entry(found: OpenSession) -> messages.SessionEntry:
    session = found.session
    return messages.SessionEntry(
        session=session.name,
        actor=session.actor,
        scope=messages.Scope(write=_texts(session.bounds.write), read=_texts(session.bounds.read)),
        on_stale=session.on_stale,
        unread=session.unread,
        ttl=session.ttl,
        created=rfc3339(session.created_us),
        used=rfc3339(found.used_us),
        connections=len(found.connections),
        in_doubt=session.is_in_doubt,
        kind=session.kind,
        state="connected" if found.connections else "open",
    )


def _closed(work: SessionWork) -> messages.SessionEntry:
    """Describe a session that the history knows and that is not open."""
    return messages.SessionEntry(
        session=work.name,
        actor=work.actor,
        scope=messages.Scope(),
        on_stale=None,
        unread="allow",
        ttl=0.0,
        created=rfc3339(work.first_us),
        used=rfc3339(work.last_us),
        connections=0,
        in_doubt=False,
        state="closed",
    )


def _texts(globs: tuple[Glob, ...] | None) -> list[str] | None:
    return None if globs is None else [glob.text for glob in globs]


# The methods `undo`, `redo`, `rollback` and `restore`, from the wire to the engine and back.


def undo(services: Services, params: messages.Undo, caller: ClientState) -> Answer:
    return _take_back(services, params, caller, scope_of(params, caller.session), "undo")


def redo(services: Services, params: messages.Redo, caller: ClientState) -> Answer:
    authorship = _authorship(services, params, caller)
    return _take_back(services, params, caller, LastUndoOf(authorship.session), "redo")


def rollback(services: Services, params: messages.Rollback, caller: ClientState) -> Answer:
    scope = BySession(params.session, params.since, params.include_published, params.include_by_time)
    return _take_back(services, params, caller, scope, "rollback")


def restore(services: Services, params: messages.Restore, caller: ClientState) -> Answer:
    authorship = _authorship(services, params, caller)
    paths = None if params.paths is None else tuple(map(convert.path, params.paths))
    if paths == ():
        raise InvalidParams("`paths` names nothing.", hint="Leave it out to restore everything.")
    reader = caller.reader(authorship.session)
    request = Restore(authorship, reader, params.to, paths, params.dry_run, _fingerprint(params))
    request = services.documents.marked(request, params.on_unsaved, caller)
    return _settle_and_restore(services, services.proposals.marked(request, params, caller), params, caller)


async def _settle_and_restore(
    services: Services, request: Restore, params: messages.Restore, caller: ClientState
) -> Answer:
    # Record earlier outside writes first: a restore puts back recorded content only.
    await services.watching.settle()
    if services.shared_log.has_entry(request.to):
        changes, _ = await services.shared_log.changes_between(None, request.to)
        request = replace(request, files={change.path: change.after for change in changes})
    render = partial(convert.outcome, diff=request.dry_run, decoder=services.engine.decoder)
    return services.proposals.queued(request, render, params, caller)


def _take_back(
    services: Services,
    params: messages.Undo | messages.Redo | messages.Rollback,
    caller: ClientState,
    scope: Scope,
    kind: UndoKind,
) -> Answer:
    authorship = _authorship(services, params, caller)
    if params.own_only and authorship.session is None:
        raise InvalidParams("`own_only` needs a session.", hint="Name yours with `hello`.")
    request = Undo(
        authorship, caller.reader(authorship.session), scope, kind,
        on_conflict=params.on_conflict, is_own_only=params.own_only, dry_run=params.dry_run,
        fingerprint=_fingerprint(params),
    )  # fmt: skip
    request = services.documents.marked(request, params.on_unsaved, caller)
    request = services.proposals.marked(request, params, caller)
    return services.proposals.queued(
        request, partial(_undo_result, services, is_dry=params.dry_run), params, caller
    )


def _authorship(
    services: Services,
    params: messages.Undo | messages.Redo | messages.Rollback | messages.Restore,
    caller: ClientState,
) -> Authorship:
    own = params.session if isinstance(params, messages.Redo | messages.Restore) else None
    return convert.authorship_of(params, services.sessions.actor(own, caller), caller.session)


def scope_of(params: messages.Undo, session: str | None) -> Scope:
    """Return the scope of an undo; `session` is the connection's. Raises InvalidParams."""
    ways = {"tx": params.tx, "filter": params.filter, "last": params.last}
    given = [name for name, value in ways.items() if value is not None]
    is_several = len(given) > 1 and given != ["filter", "last"]
    if is_several or (params.session is not None and given and given != ["last"]):
        raise InvalidParams(
            f"`{given[0]}` already names what to undo.",
            hint="Give `tx`, or `filter`, or `session`. `last` goes with the latter two or alone.",
        )
    if params.paths is not None and params.tx is None:
        raise InvalidParams("`paths` goes with `tx`.", hint="`filter` has `paths` of its own.")
    hunks = params.hunks or None
    if params.hunks == [] or (hunks and not all(given.hunks for given in hunks)):
        raise InvalidParams("`hunks` names no hunk.", hint="Leave it out to undo all of the transaction.")
    if hunks is not None and params.tx is None:
        raise InvalidParams("`hunks` goes with `tx`.", hint="`show` with `hunks` lists the hunks of a `tx`.")
    if params.tx is not None:
        if params.paths == []:
            raise InvalidParams("`paths` names nothing.", hint="Leave it out to undo all of it.")
        return ByTransaction(params.tx, tuple(map(convert.path, params.paths or ())), _numbers(hunks or ()))
    if params.filter is not None:
        return _filter(params.filter, params.last)
    if params.session is not None:  # and no other field: undo the whole session
        return Latest(params.session, params.last)
    return Latest(session, 1 if params.last is None else params.last)


def _numbers(given: Sequence[messages.HunksOf]) -> dict[WorkspacePath, tuple[int, ...]]:
    """Return the numbers of the hunks by path, rising; a path may be given more than once."""
    numbers: dict[WorkspacePath, set[int]] = {}
    for one in given:
        numbers.setdefault(convert.path(one.path), set()).update(one.hunks)
    return {path: tuple(sorted(found)) for path, found in numbers.items()}


def _filter(given: messages.Filter, last: int | None) -> ByFilter:
    if all(value is None for value in structs.asdict(given).values()):
        raise InvalidParams(
            "An empty `filter` would undo everything.", hint="`restore` puts the workspace back as a whole."
        )
    if given.paths == []:
        raise InvalidParams("`paths` names nothing.", hint="Leave it out for all paths.")
    paths = convert.paths_or_globs(given.paths or (), "A `filter`")
    return ByFilter(
        convert.several(given.session), convert.several(given.actor), given.since, given.until, paths,
        convert.several(given.kind), last,
    )  # fmt: skip


def _undo_result(services: Services, result: Outcome, *, is_dry: bool) -> messages.UndoResult:
    plain = convert.outcome(result, diff=is_dry, decoder=services.engine.decoder)
    conflicts = [messages.InTheWay(**_told(one)) for one in result.conflicts]
    return messages.UndoResult(
        **structs.asdict(plain),
        conflicts=conflicts if is_dry or conflicts else UNSET,
        by_time=convert.parts(result.by_time) if result.by_time else UNSET,
    )


def _told(one: ConflictReport) -> dict[str, Any]:
    told = one.as_data()
    if "lines" in told:
        told["lines"] = [messages.LineRange(**region) for region in told["lines"]]
    return told


def _fingerprint(params: messages.Params) -> str:
    return "" if getattr(params, "request_id", None) is None else convert.fingerprint(params)
