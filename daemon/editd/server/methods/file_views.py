"""The files that a request reads: its view, for each method that reads a file, its state or its changes.

A request names a proposal, a changeset or a transaction. Otherwise it sees the present files, and a session
that collects its edits sees its own work on top of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET

from editd.advice import leave_out
from editd.edits.pending_changes import Owner, PendingChanges
from editd.edits.search import NeedsSearch
from editd.engine.file_views import PastView, PendingView
from editd.errors import InvalidParams
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from editd.edits.search import Search
    from editd.engine.changesets import OpenChangeset
    from editd.engine.file_views import FilesView
    from editd.server.connection import ClientState
    from editd.server.methods import Services
    from editd.values.transaction import Outcome

Viewing = messages.Read | messages.Stat | messages.Diff
Done = TypeVar("Done")

CLASHES = (  # the method, the option that names its files, the others beside it, and their refusal
    (
        messages.Read, "proposal", ("at", "changeset"),
        "`proposal` is read as it would be now.", leave_out("at", "changeset"),
    ),
    (
        messages.Diff, "proposal", ("from", "to", "changeset"),
        "`proposal` is compared with the current files.", leave_out("from", "to", "changeset"),
    ),
    (
        messages.Diff, "changeset", ("from", "to"),
        "`changeset` compares the staged files with the current ones.", leave_out("from", "to"),
    ),
)  # fmt: skip


def view_of(services: Services, params: Viewing, caller: ClientState) -> FilesView | None:
    """Return the files that a request reads, or None for the present ones, or for those of a range.

    Raises InvalidParams, UnknownProposal, UnknownTransaction, and NeedsSearch for a tool of a changeset.
    """
    _check_clashes(params)
    engine = services.engine
    if params.proposal is not UNSET:
        return PendingView(services.proposals.pending(params.proposal), engine.recorder)
    if not isinstance(params, messages.Stat) and params.changeset is not None:
        changeset = services.changesets.get(params.changeset, caller.number)
        owner = Owner("changeset", params.changeset)
        return PendingView(PendingChanges(owner, planned(services, changeset).changes), engine.recorder)
    if isinstance(params, messages.Diff):  # it compares transactions, which have nothing that waits
        return None
    if isinstance(params, messages.Read) and params.at is not None:
        return PastView(engine.history, engine.history.find(params.at).seq)
    session = params.session if isinstance(params, messages.Read) else None
    if services.sessions.is_collected(session, caller):
        return PendingView(engine.collected(caller.session_of(session)), engine.recorder)
    return None


def pending_of(services: Services, params: Viewing, caller: ClientState) -> PendingChanges | None:
    """Return the changes that have not landed and that a request sees; None for files as they are or were."""
    view = view_of(services, params, caller)
    return view.pending if isinstance(view, PendingView) else None


def planned(services: Services, changeset: OpenChangeset, more: tuple[messages.AnyEdit, ...] = ()) -> Outcome:
    """Return the outcome of a changeset with `more` edits. Raises NeedsSearch, and Refused."""
    return services.engine.staged(
        (*changeset.edits, *more),
        changeset.reader,
        changeset.found,
        changeset.authorship.session,
        changeset.on_stale,
    )


def with_searches(
    services: Services,
    params: messages.Read | messages.Diff | messages.Stage,
    caller: ClientState,
    work: Callable[[], Done],
) -> Done | Awaitable[Done]:
    """Do work that may plan a changeset, again after each search that its tools need."""
    try:
        return work()
    except NeedsSearch as need:
        changeset = services.changesets.get(params.changeset or "", caller.number)
        return _after_search(services, changeset, work, need.search)


async def _after_search(
    services: Services, changeset: OpenChangeset, work: Callable[[], Done], search: Search
) -> Done:
    while True:
        changeset.found[search] = await services.searcher.find(search)
        try:
            return await services.queue.run(work)
        except NeedsSearch as need:
            search = need.search


def _check_clashes(params: Viewing) -> None:
    """Raise InvalidParams if the request names two kinds of files."""
    for method, option, others, reason, hint in CLASHES:
        is_named = type(params) is method and _is_given(params, option)
        if is_named and any(_is_given(params, other) for other in others):
            raise InvalidParams(reason, hint=hint)


def _is_given(params: Viewing, option: str) -> bool:
    value = getattr(params, "from_" if option == "from" else option)
    return value is not None and value is not UNSET
