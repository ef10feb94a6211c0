"""The methods of the history: `show`, `gc`, `forget`, `blame`, and the undos."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs
from msgspec.structs import replace

from editd.advice import Advice, argument_term, method_term, step_term
from editd.edits.line_changes import count_lines
from editd.engine.commands import Restore, Undo
from editd.engine.queries import changes_of
from editd.engine.undo import numbered_hunks
from editd.engine.undo_selection import (
    ByFilter,
    BySession,
    ByTransaction,
    LastUndoOf,
    Latest,
    Scope,
)
from editd.errors import (
    FileMissing,
    InvalidParams,
    NotText,
    PathIgnored,
    Timeout,
    TooLarge,
    UnknownSession,
)
from editd.server import convert
from editd.server.methods.transaction_log import FILES_AT_ONCE, SLICE_SECONDS, with_notes
from editd.store.line_blame import LineBlame
from editd.store.path_history import in_recorded_form
from editd.store.transaction_record import rfc3339
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from editd.engine.arrivals import LogAuthor
    from editd.engine.commands import UndoKind
    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.values.content import FileState, Version
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Authorship, ConflictReport, Outcome, Transaction


BLAME_TRIES = 5  # while the file changes
BLAME_LINES_MAX = 200_000  # of a file: all of them are in one answer
BLAME_SECONDS_MAX = 60.0  # some 50,000 versions of a file of 1,000 lines


def show(services: Services, params: messages.Show, _caller: ClientState) -> Answer:
    shown, history = partial(_shown, services, params), services.engine.history
    is_long = params.diff or params.hunks or history.index.is_wide([history.seq_of(params.tx)], FILES_AT_ONCE)
    return services.queue.run_in_thread(shown) if is_long else shown()


def _diff_of(services: Services, params: messages.Show, found: Transaction) -> str:
    decoder = services.engine.decoder if params.decoded else None
    return convert.diff_of(changes_of(found, services.engine.history), decoder)


def _shown(services: Services, params: messages.Show) -> messages.ShowResult:
    found = services.engine.history.find(params.tx)
    diff = _diff_of(services, params, found) if params.diff else None
    seq, registry = int(found.seq), services.guard.registry
    decoder = services.engine.decoder if params.decoded else None
    shown = convert.transaction_result(
        found, registry.publications_of([seq]).get(seq),
        services.engine.history.index.log_numbers_of([seq]).get(seq),
        registry.marks_of([seq]).get(seq),
    )  # fmt: skip
    shown = with_notes(services, shown, found)
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
    if params.prompts is not None:
        return await _forget_prompts(services, params, params.prompts)
    selection, text = convert.removal(params)
    actor = services.sessions.actor(None, caller) or convert.ANYBODY
    return convert.forget_result(await services.removal.run(selection, text, actor, is_dry=params.dry_run))


async def _forget_prompts(services: Services, params: messages.Forget, session: str) -> messages.ForgetResult:
    """Remove the prompts of a session. Raises InvalidParams, UnknownSession."""
    if any(value is not None for value in (params.paths, params.matching, params.content, params.text)):
        raise InvalidParams(
            "`prompts` names a session, and no contents.",
            hint=Advice("Give just one of ", argument_term("prompts"), " and the others."),
        )
    store = services.turns.store
    if await services.queue.run(partial(store.newest, session)) is None:
        raise UnknownSession(
            f"No turn of the session {session!r} is known.",
            hint="Name a session of an agent that tells of its prompts.",
            data={"session": session},
        )
    remove = store.count_prompts if params.dry_run else store.forget
    count = await services.queue.run_in_thread(partial(remove, session))
    return convert.forgotten_prompts(count)


def blame(
    services: Services, params: messages.Blame, _caller: ClientState
) -> Awaitable[messages.BlameResult]:
    path = services.engine.tree.resolve(convert.path(params.path))
    if services.shared_log.is_joined:
        return blamed_by_the_log(services, path)
    return _blamed(services, path)


def _begun(services: Services, path: WorkspacePath) -> tuple[Version, LineBlame]:
    """Record the current content, and return its version and the search for its authors. Raises Refused."""
    version = recorded_version(services, path)
    return version, LineBlame(services.engine.history, path, version)


def recorded_version(services: Services, path: WorkspacePath) -> Version:
    """Record the current content, as `read` does, and return its version. Raises Refused."""
    state = services.engine.recorder.look(path)
    data = {"path": path.text}
    if state is None:
        raise FileMissing(
            f"{path} does not exist.",
            hint=Advice("Run ", method_term("log"), " to see its deletion."),
            data=data,
        )
    entry = services.engine.history.entry(path)
    if entry is None:
        raise PathIgnored(
            f"{path} is not in the history: git ignores it, and no edit has touched it.",
            hint="Edit the file to add it to the history.",
            data=data,
        )
    check_lines(services, path, state)
    if services.engine.history.is_dropped(entry.version):
        raise services.engine.history.missing(entry.version)
    return entry.version


def check_lines(services: Services, path: WorkspacePath, state: FileState) -> None:
    """Raise NotText or TooLarge if a content has no lines, or too many."""
    data = {"path": path.text}
    shown = services.engine.decoder.in_utf8(state) or state
    if b"\0" in shown.content:
        raise NotText(
            f"{path} has a NUL in it, and no lines.",
            hint=Advice("Run ", method_term("log"), " to see its authors."),
            data=data,
        )
    lines = count_lines(shown.content)
    if lines > BLAME_LINES_MAX:
        raise TooLarge(
            f"{path} has {lines} lines, and `blame` answers for {BLAME_LINES_MAX} at most.",
            hint=Advice(
                "Run ",
                method_term("log"),
                " with this path to list its transactions, and ",
                method_term("show"),
                " to see their changes.",
            ),
            data=data | {"lines": lines, "limit": BLAME_LINES_MAX},
        )


async def _blamed(services: Services, path: WorkspacePath) -> messages.BlameResult:
    version, lines = await services.queue.run_in_thread(partial(_begun, services, path))
    await search_through(services, path, lines)
    return messages.BlameResult(
        version=version,
        lines=await services.queue.run_in_thread(partial(_blame_lines, services, lines)),
        gaps=sorted(lines.gaps) if lines.gaps else UNSET,
    )


async def search_through(services: Services, path: WorkspacePath, lines: LineBlame) -> None:
    """Search for the authors of lines, in slices. Raises Timeout."""
    loop = asyncio.get_running_loop()
    until = loop.time() + BLAME_SECONDS_MAX
    while not await services.queue.run_in_thread(partial(lines.run_for, SLICE_SECONDS)):
        if loop.time() > until:
            raise Timeout(
                f"{path} has too many versions to go through within {BLAME_SECONDS_MAX:g} s.",
                hint=Advice("Run ", method_term("log"), " with this path to list its transactions."),
                data={"path": path.text},
            )
        await asyncio.sleep(0)  # requests that wait for a turn go first


async def blamed_by_the_log(services: Services, path: WorkspacePath) -> messages.BlameResult:
    """Return the author of each line by the order of the log, so that all hosts agree."""
    found = await _blamed(services, path)
    for _ in range(BLAME_TRIES):
        version = convert.base_version(found.version)
        assert version is not None
        authors = await services.shared_log.blame(path, version)
        if authors is not None:
            lines = [_as_in_log(*pair) for pair in zip(found.lines, authors, strict=True)]
            return replace(found, lines=lines)
        now = await services.queue.run_in_thread(partial(recorded_version, services, path))
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
    made = {seq: services.engine.history.index.origin_of(seq) for seq in set(lines.seqs)}
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


# The methods `undo`, `redo`, `rollback` and `restore`, from the wire to the engine and back.


def undo(services: Services, params: messages.Undo, caller: ClientState) -> Answer:
    return _take_back(services, params, caller, scope_of(params, caller.session), "undo")


def redo(services: Services, params: messages.Redo, caller: ClientState) -> Answer:
    authorship = _authorship(services, params, caller)
    is_named = params.session is not None and caller.session is None
    return _take_back(services, params, caller, LastUndoOf(authorship.session, is_named), "redo")


def rollback(services: Services, params: messages.Rollback, caller: ClientState) -> Answer:
    scope = BySession(params.session, params.since, params.include_published, params.include_by_time)
    return _take_back(services, params, caller, scope, "rollback")


def restore(services: Services, params: messages.Restore, caller: ClientState) -> Answer:
    authorship = _authorship(services, params, caller)
    paths = None if params.paths is None else tuple(map(convert.path, params.paths))
    if paths == ():
        raise InvalidParams("`paths` names nothing.", hint="Leave it out to restore everything.")
    if params.to == messages.BEFORE_NEWEST and paths is None:
        raise InvalidParams("`to: before_newest` needs `paths`.", hint="Name the files to restore.")
    reader = caller.reader(authorship.session)
    request = Restore(authorship, reader, params.to, paths, params.dry_run, _fingerprint(params))
    request = services.documents.marked(request, params.on_unsaved, caller)
    return _settle_and_restore(services, services.proposals.marked(request, params, caller), params, caller)


async def _settle_and_restore(
    services: Services, request: Restore, params: messages.Restore, caller: ClientState
) -> Answer:
    # Record earlier outside writes first: a restore puts back recorded content only.
    await services.watching.settle()
    if request.paths is not None:
        history = services.engine.history
        request = replace(request, paths=tuple(in_recorded_form(path, history) for path in request.paths))
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
        raise InvalidParams("`own_only` needs a session.", hint=Advice(step_term("name_session")))
    request = Undo(
        authorship, caller.reader(authorship.session), scope, kind,
        on_conflict=params.on_conflict, is_own_only=params.own_only, dry_run=params.dry_run,
        fingerprint="" if params.request_id is None else convert.fingerprint(params),
        sender=services.gate.sender(caller, params),
    )  # fmt: skip
    if params.on_unsaved is not UNSET or services.documents.held.by_path:
        request = services.documents.marked(request, params.on_unsaved, caller)
    render = partial(_undo_result, services, is_dry=params.dry_run)
    session = authorship.session
    is_wish = session is not None and services.sessions.wish_of(session) is not None
    is_plain = params.propose is UNSET and params.wait is UNSET
    if is_plain and not is_wish and not services.proposals.may_ask:
        return services.queue.submit(request, render)
    request = services.proposals.marked(request, params, caller)
    return services.proposals.queued(request, render, params, caller)


def _authorship(
    services: Services,
    params: messages.Undo | messages.Redo | messages.Rollback | messages.Restore,
    caller: ClientState,
) -> Authorship:
    own = params.session if isinstance(params, messages.Redo | messages.Restore) else None
    session = caller.session if own is None else own
    actor = services.sessions.actor(session, caller) if session is not None else caller.name or None
    author = convert.authorship_of(params, actor, caller.session)
    return author if author.session is None else services.turns.with_turn(author)


def scope_of(params: messages.Undo, session: str | None) -> Scope:
    """Return the scope of an undo; `session` is the connection's. Raises InvalidParams."""
    given: list[str] = []
    for name, value in (("tx", params.tx), ("filter", params.filter), ("last", params.last)):
        if value is not None:
            given.append(name)
    is_several = len(given) > 1 and given != ["filter", "last"]
    if is_several or (params.session is not None and given and given != ["last"]):
        raise InvalidParams(
            f"`{given[0]}` already names what to undo.",
            hint=Advice(step_term("targets")),
        )
    if params.paths is not None and params.tx is None:
        raise InvalidParams(
            "`paths` goes with `tx`.",
            hint=Advice(argument_term("filter"), " has its own ", argument_term("paths"), "."),
        )
    hunks = params.hunks or None
    if params.hunks == [] or (hunks and not all(given.hunks for given in hunks)):
        raise InvalidParams("`hunks` names no hunk.", hint="Leave it out to undo all of the transaction.")
    if hunks is not None and params.tx is None:
        raise InvalidParams(
            "`hunks` goes with `tx`.",
            hint=Advice(
                method_term("show", option="hunks"), " lists the hunks of a ", argument_term("tx"), "."
            ),
        )
    if params.tx is not None:
        if params.paths == []:
            raise InvalidParams("`paths` names nothing.", hint="Leave it out to undo all of it.")
        return ByTransaction(
            params.tx, tuple(map(convert.path, params.paths or ())), _numbers(hunks) if hunks else {}
        )
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
            "An empty `filter` would undo everything.",
            hint=Advice(method_term("restore"), " puts the workspace back as a whole."),
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
    conflicts: list[messages.InTheWay] = []
    if result.conflicts:
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
