"""The methods of files and changesets: reading and comparing them, changing them, and staging changes."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from editd.edits.comparison import charge_bytes
from editd.engine.answers import request_of
from editd.engine.changesets import OpenChangeset
from editd.engine.commands import Apply, Reader
from editd.engine.external_changes import DiskSnapshot
from editd.engine.hooks import HookJob, HookResult, PlannedFile, job_for
from editd.errors import FileMissing, InvalidParams, Refused, Timeout
from editd.server import convert
from editd.server.methods.file_views import pending_of, planned, view_of, with_searches
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from editd.server.connection import Answer, ClientState
    from editd.server.methods import Services
    from editd.values.content import Decoder, FileState
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Outcome

    Check = Callable[[FileState], None]  # raises Refused for a content that is not to be read

STAT_AT_ONCE = 500  # paths: more of them are looked at in the engine's thread
SETTLE_SECONDS = 60.0  # default


def dialects(services: Services, _params: messages.Dialects, _caller: ClientState) -> messages.DialectsResult:
    return convert.dialects(services.engine.tooling.usable_dialects())


def read(services: Services, params: messages.Read, caller: ClientState) -> Answer:
    path = convert.path(params.path)
    lines = convert.lines_wanted(params)
    services.sessions.permit_reading(params.session, caller, path, services.engine.tree)
    if params.unsaved:
        held = services.documents.read(params, path, lines, caller)
        if held is not None:
            return held
    return with_searches(services, params, caller, partial(_read, services, params, path, lines, caller))


def _read(
    services: Services,
    params: messages.Read,
    path: WorkspacePath,
    lines: tuple[int, int] | None,
    caller: ClientState,
) -> messages.ReadResult:
    check = partial(_check_text, services, path) if params.as_text else None
    view = view_of(services, params, caller)
    here = path if view is None else view.resolve(path)
    if view is None or view.is_present(here):
        return _read_present(services, params, path, lines, caller, check)
    state = view.at(here)
    if state is None:
        raise view.missing(path)
    if check is not None:
        check(state)
    if view.is_own:
        services.engine.seen.note(_reader(params.session, caller), here, convert.read_mark(state.version))
    return convert.read_result(path, state, lines, fallback=services.fallback_encoding)


def _read_present(
    services: Services,
    params: messages.Read,
    path: WorkspacePath,
    lines: tuple[int, int] | None,
    caller: ClientState,
    check: Check | None,
) -> messages.ReadResult:
    charge_bytes(services.engine.size_to_read(path))
    try:
        path, state = services.engine.read(path, _reader(params.session, caller), lines, check)
    except FileMissing as missing:
        raise services.engine.with_similar(missing, caller.session_of(params.session)) from None
    found = convert.read_result(path, state, lines, fallback=services.fallback_encoding)
    return services.documents.told(found, path, caller)


def _check_text(services: Services, path: WorkspacePath, state: FileState) -> None:
    """Raise NotText for a file that a model cannot read: its bytes would be edited as text."""
    if not state.is_symlink and services.engine.decoder.name(state) is None:
        raise services.engine.decoder.not_text(state, path.text)


def stat(services: Services, params: messages.Stat, caller: ClientState) -> Answer:
    services.engine.recorder.check_in_place()
    work = partial(_stat, services, params, caller)
    return work() if len(params.paths) <= STAT_AT_ONCE else services.queue.run_in_thread(work)


def _stat(services: Services, params: messages.Stat, caller: ClientState) -> messages.StatResult:
    paths = [convert.path(path) for path in params.paths]
    states = services.queries.states(paths, pending_of(services, params, caller))
    return messages.StatResult(files=[convert.stat_entry(*pair) for pair in zip(paths, states, strict=True)])


async def settle(services: Services, params: messages.Settle, _caller: ClientState) -> messages.SettleResult:
    seconds = SETTLE_SECONDS if params.timeout is None else params.timeout
    try:
        async with asyncio.timeout(seconds):
            await services.watching.settle()
            await asyncio.shield(asyncio.ensure_future(_packed(services)))
    except TimeoutError:
        raise Timeout(
            f"The workspace was not scanned, or its changes not packed, within {seconds:g} s.",
            hint="Retry with a larger timeout, in seconds.",
        ) from None
    return messages.SettleResult(head=services.engine.history.head)


async def _packed(services: Services) -> None:
    """Pack all transactions, so that a reader of the repository sees them.

    If that fails, the background work logs it and tries again: the journal has the transactions meanwhile.
    """
    with contextlib.suppress(Refused, OSError):
        await services.background.pack()


def diff(services: Services, params: messages.Diff, caller: ClientState) -> Answer:
    paths = None if params.paths is None else [convert.path(path) for path in params.paths]
    if params.proposal is not UNSET or params.changeset is not None:
        work = partial(_diff_pending, services, params, caller, None if paths is None else frozenset(paths))
        return with_searches(services, params, caller, work)
    if any(map(services.shared_log.has_entry, (params.from_, params.to))):
        return _diff_by_the_log(services, params, paths)
    history = services.engine.history
    end = None if params.to is None else history.find(params.to).seq
    start = history.floor.seq if params.from_ is None else history.find(params.from_).seq
    return _diff_between(services, params, (start, end), paths)


def _decoder(services: Services, params: messages.Diff | messages.Show) -> Decoder | None:
    """Return the decoder of a diff to read; None for a patch, which has the bytes of the files."""
    return services.engine.decoder if params.decoded else None


async def _diff_between(
    services: Services,
    params: messages.Diff,
    ends: tuple[int, int | None],
    paths: list[WorkspacePath] | None,
) -> messages.DiffResult:
    if ends[1] is None:
        await services.watching.settle()
    compare = partial(services.queries.changes_between, *ends, paths)
    return await services.queue.run_in_thread(
        lambda: convert.diff_result(compare(), decoder=_decoder(services, params))
    )


async def _diff_by_the_log(
    services: Services, params: messages.Diff, paths: list[WorkspacePath] | None
) -> messages.DiffResult:
    """Compare with the files of an entry of the log, which are the same on all hosts."""
    if params.to is None:
        await services.watching.settle()
    start = services.engine.history.floor.seq if params.from_ is None else params.from_
    changes, through = await services.shared_log.changes_between(start, params.to)
    if params.to is None:
        update = partial(services.queries.with_present_files, changes, through, paths)
        changes = await services.queue.run(update)
    wanted = None if paths is None else frozenset(paths)
    render = partial(convert.diff_result, changes, wanted, _decoder(services, params))
    return await services.queue.run_in_thread(render)


def _diff_pending(
    services: Services, params: messages.Diff, caller: ClientState, wanted: frozenset[WorkspacePath] | None
) -> messages.DiffResult:
    """Compare the present files with the same files as pending changes would leave them."""
    pending = pending_of(services, params, caller)
    changes = () if pending is None else pending.changes
    return convert.diff_result(changes, wanted, _decoder(services, params))


def run_hooks(
    services: Services, params: messages.HooksRun, caller: ClientState
) -> Awaitable[messages.HooksRunResult]:
    """Run the hooks on files as they are, and report the changes that they would make."""
    engine = services.engine
    engine.recorder.check_in_place()
    paths = [convert.path(path) for path in params.paths]
    for path in paths:
        services.sessions.permit_reading(params.session, caller, path, engine.tree)
    view = DiskSnapshot(engine.tree, engine.history, patient=False)
    states = {path: _file(view, path) for path in map(view.resolve, paths)}
    files = [PlannedFile(path, state.content, state.is_executable) for path, state in states.items()]
    return _reported(services, job_for(files, engine.landing.hooks, view.file_at), states)


async def _reported(
    services: Services, trial: HookJob | None, states: Mapping[WorkspacePath, FileState]
) -> messages.HooksRunResult:
    found = HookResult() if trial is None else await services.hooker.run(trial)
    if isinstance(found, Refused):
        raise found
    return messages.HooksRunResult(
        hooks=[hook.name for hook in (() if trial is None else trial.hooks)],
        files=[{"path": path.text, "formatted_by": list(found.by.get(path, ()))} for path in states],
        diff=await services.queue.run_in_thread(
            partial(convert.diff_of, found.changes(states), services.engine.decoder)
        ),
        warnings=list(found.warnings),
    )


def _file(view: DiskSnapshot, path: WorkspacePath) -> FileState:
    state = view.at(path)
    if state is None:
        raise FileMissing(f"{path} does not exist.", data={"path": path.text})
    return state


def apply(services: Services, params: messages.Apply, caller: ClientState) -> Answer:
    session = caller.session if params.session is None else params.session
    actor = services.sessions.actor(session, caller) if session is not None else caller.name or None
    request = convert.apply(params, caller.reader(session), actor, session)
    if session is not None:
        request = services.turns.sign(services.sessions.with_defaults(request))
    if params.on_unsaved is not UNSET or services.documents.held.by_path:
        request = services.documents.marked(request, params.on_unsaved, caller)
    content = params.return_content
    if messages.Tool in map(type, params.edits):
        content = content or services.engine.tooling.returns_content(request.edits)
    render = partial(
        convert.outcome,
        return_content=content,
        diff=params.diff or params.dry_run,
        decoder=services.engine.decoder,
    )
    proposals = services.proposals
    is_plain = params.propose is UNSET and params.proposal is UNSET and params.wait is UNSET
    is_wish = session is not None and services.sessions.wish_of(session) is not None
    may_wait = proposals.may_ask or is_wish
    if is_plain and not may_wait and not request.is_collected:
        return services.queue.submit(request, render)
    return proposals.queued(proposals.marked(request, params, caller), render, params, caller)


def begin(services: Services, params: messages.Begin, caller: ClientState) -> messages.BeginResult:
    actor = services.sessions.actor(params.session, caller)
    authorship = convert.authorship_of(params, actor, caller.session)
    name = services.changesets.begin(
        caller.number,
        _reader(params.session, caller),
        authorship,
        params.on_stale,
        must_propose=params.propose is True,
    )
    return messages.BeginResult(changeset=name)


def stage(services: Services, params: messages.Stage, caller: ClientState) -> Answer:
    changeset = services.changesets.get(params.changeset, caller.number)
    edits = convert.edits(params.edits)
    services.changesets.check_room(caller.number, edits)

    def work() -> messages.ApplyResult:
        outcome = planned(services, changeset, edits)
        answer = convert.outcome(
            outcome, diff=True, decoder=services.engine.decoder
        )  # first: it may need a comparison
        services.changesets.add(params.changeset, caller.number, edits)
        return answer

    return with_searches(services, params, caller, work)


def commit(services: Services, params: messages.Commit, caller: ClientState) -> Answer:
    try:
        changeset = services.changesets.get(params.changeset, caller.number)
    except InvalidParams:
        before = _committed_before(services, params)
        if before is None:
            raise
        changeset = before
    said = changeset.authorship
    request = Apply(
        tuple(changeset.edits),
        services.turns.with_turn(replace(said, request_id=params.request_id)),
        changeset.reader,
        params.on_stale or changeset.on_stale,
        fingerprint=convert.fingerprint(params) if params.request_id is not None else "",
        found=changeset.found,
    )

    def render(outcome: Outcome) -> messages.Message:
        # A refused changeset stays, so that the client can correct it.
        services.changesets.end(params.changeset)
        return convert.outcome(outcome)

    services.sessions.admit_as(said.session, caller)
    if changeset.must_propose:
        request = replace(request, propose="request", is_draft=True)
    request = services.documents.marked(request, params.on_unsaved, caller)
    request = services.proposals.marked(services.sessions.with_defaults(request), params, caller)
    return services.proposals.queued(request, render, params, caller)


def _committed_before(services: Services, params: messages.Commit) -> OpenChangeset | None:
    """Return the changeset of a retry on a new connection: it is gone, but its request is known (C7)."""
    if params.request_id is None:
        return None
    before = request_of(params.request_id, convert.fingerprint(params), services.engine.history)
    return None if before is None else OpenChangeset(0, "", before.authorship)


def abort(services: Services, params: messages.Abort, caller: ClientState) -> messages.Empty:
    services.changesets.get(params.changeset, caller.number)
    services.changesets.end(params.changeset)
    return messages.Empty()


def _reader(session: str | None, caller: ClientState) -> Reader:
    """Return the reader of a request: the session if there is one, otherwise the connection."""
    return caller.reader(caller.session_of(session))
