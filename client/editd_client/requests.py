"""The requests of the protocol: what each method takes, what is sent for it, and what comes back.

One function for each method, with its name (`session.open` is `session_open`). Nothing is sent here:
`Client` and `AsyncClient` take their methods from these, so that both have the same. A refusal is
raised there as EditdError, and a daemon that is not there as Unreachable.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Struct

from editd.wire import messages
from editd.wire.codec import convert
from editd_client.author import current_actor
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

WAIT_SECONDS_MAX = 86400.0  # the daemon's own limit for `wait`

Result = TypeVar("Result")
Name = TypeVar("Name", bound=str)
Told = TypeVar("Told", bound=messages.Message)


class Request(Struct, Generic[Result], frozen=True):
    """One request, not sent yet: `read` makes its result of the plain values that come back.

    `extra` are the seconds that it may take on purpose, beyond what any answer may; None: for ever.
    """

    params: messages.Params
    read: Callable[[Any], Result]
    extra: float | None = 0.0


def call(params: messages.Params, result: type[Told], extra: float | None = 0.0) -> Request[Told]:
    """The request that is answered with a `result`."""
    return Request(params, lambda plain: convert(plain, result), extra)


def call_without_result(params: messages.Params) -> Request[None]:
    """The request that is answered with nothing but a yes."""
    return Request(params, _nothing)


def as_method(method: Callable[..., Any], build: Callable[..., Any]) -> Callable[..., Any]:
    """`method`, which takes what `build` takes, and `self`."""
    signature = inspect.signature(build)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(parameters=[own, *signature.parameters.values()])
    method.__signature__ = shown  # type: ignore[attr-defined]
    return method


def _check_seconds(name: str, seconds: float | None) -> None:
    """Raises EditdError for what cannot be waited for, as the daemon would: no clock here takes it."""
    if seconds is not None and not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise refusal(
            "invalid_params", f"`{name}` is a number of seconds, up to a day.", data={"field": name}
        )


def _one_or_list(given: Name | Sequence[Name] | None) -> Name | list[Name] | None:
    """Return one name, or several as the message has them."""
    if given is None or isinstance(given, str):
        return given  # pyright: ignore[reportReturnType]  # a Name is a str
    return list(given)


def _nothing(plain: Any) -> None:
    convert(plain, messages.Empty)


# ── Connection ────────────────────────────────────────────────────────────────────────────


def hello(
    client: str | None = None, session: str | None = None, token: str | None = None
) -> Request[messages.HelloResult]:
    """Say who this client is (default: EDITD_ACTOR, then the login name); `session` is the one to act in.

    `token` attaches it to a session that was opened. Refused with `unknown_session` where the session is
    open and the token another.
    """
    return call(
        messages.Hello(client=client or current_actor(), session=session, token=token), messages.HelloResult
    )


def status() -> Request[messages.StatusResult]:
    """How the daemon is: answered at once, also while it is busy."""
    return call(messages.Status(), messages.StatusResult)


def check(*, repair: bool = False, lose: bool = False) -> Request[messages.CheckResult]:
    """Whether history, journal and files agree. Waits for as long as that takes.

    With `repair` what is damaged is mended, and the daemon ends after it. Refused with `history_damaged`
    where something cannot be brought back, unless `lose`.
    """
    return call(messages.Check(repair=repair, lose=lose), messages.CheckResult, extra=None)


def shutdown() -> Request[None]:
    """Returns when the daemon has said yes, then waits for it to close the connection."""
    return call_without_result(messages.Shutdown())


# ── Reading ───────────────────────────────────────────────────────────────────────────────


def read(
    path: str,
    *,
    at: messages.Tx | None = None,
    changeset: str | None = None,
    session: str | None = None,
    start_line: int | None = None,
    end_line: int | None = None,
) -> Request[messages.ReadResult]:
    """A file as it is now, right after transaction `at`, or as the staged edits of `changeset` leave it.

    `start_line` and `end_line` count from 1 and are both included. The version counts as seen from here
    on, except with `at` and `changeset`. Refused with `file_missing` and `not_a_file`, among others.
    """
    asked = messages.Read(
        path=path, at=at, changeset=changeset, session=session, start_line=start_line, end_line=end_line
    )
    return call(asked, messages.ReadResult)


def dialects() -> Request[messages.DialectsResult]:
    """The edit tools of other systems that `Tool` calls, with the schemas of their arguments."""
    return call(messages.Dialects(), messages.DialectsResult)


def stat(paths: Sequence[str]) -> Request[messages.StatResult]:
    """The version, mode, size (in bytes) and kind of each path, all of them None where there is no file."""
    return call(messages.Stat(paths=list(paths)), messages.StatResult)


def settle(timeout: float | None = None) -> Request[messages.SettleResult]:
    """Returns the newest transaction once all that was changed before is recorded.

    `timeout` in seconds is the daemon's, 60 where it is None; past it the refusal is `timeout`.
    """
    _check_seconds("timeout", timeout)
    return call(messages.Settle(timeout=timeout), messages.SettleResult, extra=timeout)


# ── Applying ──────────────────────────────────────────────────────────────────────────────


def apply(
    edits: Sequence[messages.AnyEdit],
    *,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    on_stale: messages.OnStale | None = None,
    dry_run: bool = False,
    return_content: bool = False,
    diff: bool = False,
) -> Request[messages.ApplyResult]:
    """Make all `edits` one transaction, or none of them.

    Refused, with nothing changed, with `stale`, `no_match`, `conflict`, `leased` and others, see the
    protocol's errors. `transaction` is None in the result where nothing changes, and with `dry_run`.
    """
    asked = messages.Apply(
        edits=list(edits),
        session=session,
        actor=actor,
        message=message,
        request_id=request_id,
        on_stale=on_stale,
        dry_run=dry_run,
        return_content=return_content,
        diff=diff,
    )
    return call(asked, messages.ApplyResult)


def begin(
    *,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    on_stale: messages.OnStale | None = None,
) -> Request[messages.BeginResult]:
    """Open a changeset, to be put together in steps; `Client.transaction` does this by itself."""
    return call(
        messages.Begin(session=session, actor=actor, message=message, on_stale=on_stale), messages.BeginResult
    )


def stage(changeset: str, edits: Sequence[messages.AnyEdit]) -> Request[messages.ApplyResult]:
    """Add edits to a changeset; what comes back is what all that is staged would do."""
    return call(messages.Stage(changeset=changeset, edits=list(edits)), messages.ApplyResult)


def commit(
    changeset: str, *, on_stale: messages.OnStale | None = None, request_id: str | None = None
) -> Request[messages.ApplyResult]:
    """Apply what is staged as one transaction. After a refusal the changeset stays open."""
    asked = messages.Commit(changeset=changeset, on_stale=on_stale, request_id=request_id)
    return call(asked, messages.ApplyResult)


def abort(changeset: str) -> Request[None]:
    """Give a changeset up."""
    return call_without_result(messages.Abort(changeset=changeset))


# ── Undo ──────────────────────────────────────────────────────────────────────────────────


def undo(
    tx: messages.Tx | None = None,
    *,
    paths: Sequence[str] | None = None,
    hunks: Mapping[str, Sequence[int]] | None = None,
    last: int | None = None,
    filter: messages.Filter | None = None,  # noqa: A002  # the protocol's name
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    on_conflict: messages.OnConflict = "fail",
    own_only: bool = False,
) -> Request[messages.UndoResult]:
    """Take back `tx`, the `last` so many, all of a `session`, or what fits a `filter`, by a new transaction.

    With none of them, the newest edit that is not undone. Of `tx` it can be only some `paths`, and of other
    files only the `hunks` with these numbers, as `show` lists them. Refused with `conflict` where later
    changes do not merge, and with `nothing_to_undo`; with `dry_run`, `conflicts` in the result say so
    instead. With `own_only`, what another session did is refused with `permission_denied`.
    """
    asked = messages.Undo(
        tx=tx,
        paths=None if paths is None else list(paths),
        hunks=UNSET if hunks is None else _hunks(hunks),
        last=last,
        filter=filter,
        session=session,
        actor=actor,
        message=message,
        request_id=request_id,
        dry_run=dry_run,
        on_conflict=on_conflict,
        own_only=own_only,
    )
    return call(asked, messages.UndoResult)


def _hunks(numbers: Mapping[str, Sequence[int]]) -> list[messages.HunksOf]:
    return [messages.HunksOf(path=path, hunks=list(given)) for path, given in numbers.items()]


def redo(
    *,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    on_conflict: messages.OnConflict = "fail",
    own_only: bool = False,
) -> Request[messages.UndoResult]:
    """Undo the newest undo that is not redone. Refused as `undo` is."""
    asked = messages.Redo(
        session=session,
        actor=actor,
        message=message,
        request_id=request_id,
        dry_run=dry_run,
        on_conflict=on_conflict,
        own_only=own_only,
    )
    return call(asked, messages.UndoResult)


def rollback(
    session: str,
    *,
    since: messages.Tx | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    on_conflict: messages.OnConflict = "fail",
    own_only: bool = False,
    include_published: bool = False,
) -> Request[messages.UndoResult]:
    """Undo all that `session` did, from `since` on (a transaction or a time). Refused as `undo` is.

    Published work stays, unless `include_published` says otherwise.
    """
    asked = messages.Rollback(
        session=session,
        since=since,
        actor=actor,
        message=message,
        request_id=request_id,
        dry_run=dry_run,
        on_conflict=on_conflict,
        own_only=own_only,
        include_published=include_published,
    )
    return call(asked, messages.UndoResult)


def restore(
    to: messages.Tx,
    *,
    paths: Sequence[str] | None = None,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
) -> Request[messages.ApplyResult]:
    """Put the workspace, or `paths`, back to what it held right after `to` (a transaction or a time).

    Waits for as long as it takes to see first what others have changed.
    """
    asked = messages.Restore(
        to=to,
        paths=None if paths is None else list(paths),
        session=session,
        actor=actor,
        message=message,
        request_id=request_id,
        dry_run=dry_run,
    )
    return call(asked, messages.ApplyResult, extra=None)


# ── History ───────────────────────────────────────────────────────────────────────────────


def log(
    *,
    limit: int = 50,
    before: int | None = None,
    after: int | None = None,
    path: str | Sequence[str] | None = None,
    session: str | Sequence[str] | None = None,
    actor: str | Sequence[str] | None = None,
    kind: messages.Kind | Sequence[messages.Kind] | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Request[messages.LogResult]:
    """Transactions, newest first, `limit` at most; `more` says whether that left some out.

    Each of `path`, `session`, `actor` and `kind` is one or several, any of which matches. `before` and
    `after` are transactions, themselves left out; `since` and `until` are RFC 3339 times.
    """
    asked = messages.Log(
        limit=limit,
        before=before,
        after=after,
        path=_one_or_list(path),
        session=_one_or_list(session),
        actor=_one_or_list(actor),
        kind=_one_or_list(kind),
        since=since,
        until=until,
    )
    return call(asked, messages.LogResult)


def show(tx: messages.Tx, *, diff: bool = True, hunks: bool = False) -> Request[messages.ShowResult]:
    """One transaction, with its diff unless `diff` is false. Refused with `unknown_transaction`.

    With `hunks` also the hunks of each file, with the numbers by which `undo` takes them.
    """
    return call(messages.Show(tx=tx, diff=diff, hunks=hunks), messages.ShowResult)


def diff(
    from_: messages.Tx | None = None,
    to: messages.Tx | None = None,
    *,
    paths: Sequence[str] | None = None,
    changeset: str | None = None,
) -> Request[messages.DiffResult]:
    """What changed from right after `from_` (None: the baseline) to right after `to` (None: now).

    Without `to` it waits for as long as it takes to see first what others have changed.
    """
    asked = messages.Diff(
        from_=from_, to=to, paths=None if paths is None else list(paths), changeset=changeset
    )
    return call(asked, messages.DiffResult, extra=None if to is None else 0.0)


def publish(
    message: str,
    *,
    session: str | Sequence[str] | None = None,
    from_: messages.Tx | None = None,
    to: messages.Tx | None = None,
    branch: str | None = None,
    author: str | None = None,
    dry_run: bool = False,
) -> Request[messages.PublishResult]:
    """Put what one or more sessions did, or `from_` to `to`, as one commit onto a branch of the user's git.

    With `dry_run` nothing is changed: the result says what the commit would hold.
    """
    asked = messages.Publish(
        message=message, session=_one_or_list(session), from_=from_, to=to, branch=branch, author=author,
        dry_run=dry_run,
    )  # fmt: skip
    return call(asked, messages.PublishResult)


# ── Sessions, leases, commands ────────────────────────────────────────────────────────────


def session_open(
    name: str,
    *,
    actor: str | None = None,
    scope: messages.Scope | None = None,
    on_stale: messages.OnStale | None = None,
    unread: Literal["allow", "reject"] = "allow",
    ttl: float | None = None,
    fresh: bool = False,
) -> Request[messages.SessionOpenResult]:
    """Open a session; this client acts in its name from here on. `ttl` in seconds.

    With `fresh` it gets a name that no session had before: `name`, or `NAME-2`, `NAME-3` …

    The `token` in the result is told this once: `hello` attaches another client with it.
    """
    asked = messages.SessionOpen(
        name=name, actor=actor, scope=scope, on_stale=on_stale, unread=unread, ttl=ttl, fresh=fresh
    )
    return call(asked, messages.SessionOpenResult)


def session_close(session: str | None = None, *, force: bool = False) -> Request[None]:
    """End a session, this client's own where none is named."""
    return call_without_result(messages.SessionClose(session=session, force=force))


def session_list(*, all: bool = False, stat: bool = False) -> Request[messages.SessionListResult]:  # noqa: A002
    """The open sessions; with `all` also closed ones. `stat` counts the edits, files and lines of each."""
    extra = None if stat else 0.0
    return call(messages.SessionList(all=all, stat=stat), messages.SessionListResult, extra=extra)


def lease_acquire(
    paths: Sequence[str], ttl: float, *, session: str | None = None, wait: float | None = None
) -> Request[messages.LeaseAcquireResult]:
    """Lease the paths that these globs mean; `ttl` and `wait` in seconds.

    Refused with `leased` where somebody else has them, after `wait` with `timeout`.
    """
    _check_seconds("wait", wait)
    asked = messages.LeaseAcquire(paths=list(paths), ttl=ttl, session=session, wait=wait)
    return call(asked, messages.LeaseAcquireResult, extra=wait or 0.0)


def lease_renew(lease: str, ttl: float) -> Request[messages.LeaseRenewResult]:
    """Have a lease end `ttl` seconds from now."""
    return call(messages.LeaseRenew(lease=lease, ttl=ttl), messages.LeaseRenewResult)


def lease_release(lease: str, *, force: bool = False) -> Request[None]:
    """End a lease; another session's only with `force`."""
    return call_without_result(messages.LeaseRelease(lease=lease, force=force))


def lease_list() -> Request[messages.LeaseListResult]:
    """The leases that hold, and how many requests wait for one."""
    return call(messages.LeaseList(), messages.LeaseListResult)


def exec_begin(command: str, *, session: str | None = None) -> Request[messages.ExecBeginResult]:
    """A command is about to change files. Waits for as long as it takes to record what was changed before."""
    return call(messages.ExecBegin(command=command, session=session), messages.ExecBeginResult, extra=None)


def exec_end(name: str, status: int) -> Request[messages.ExecEndResult]:
    """The command of `exec_begin` has ended with `status`: what it changed becomes one transaction."""
    return call(messages.ExecEnd(exec=name, status=status), messages.ExecEndResult, extra=None)


def blame(path: str) -> Request[messages.BlameResult]:
    """Which transaction each line came with; for a file with very many versions that takes a while."""
    return call(messages.Blame(path=path), messages.BlameResult)


# ── Events ────────────────────────────────────────────────────────────────────────────────


# ── Events ────────────────────────────────────────────────────────────────────────────────────


def subscribe(
    *,
    events: Sequence[messages.EventKind] | None = None,
    paths: Sequence[str] | None = None,
    since: int | None = None,
) -> Request[messages.SubscribeResult]:
    """Be told what happens: of these `events`, about files that these globs mean, after `since`."""
    asked = messages.Subscribe(
        events=None if events is None else list(events),
        paths=None if paths is None else list(paths),
        since=since,
    )
    return call(asked, messages.SubscribeResult)


def unsubscribe(subscription: int) -> Request[None]:
    """What closing the events does."""
    return call_without_result(messages.Unsubscribe(subscription=subscription))


# ── The daemon's keeping ──────────────────────────────────────────────────────────────────────


def gc(*, dry_run: bool = False) -> Request[messages.GcResult]:
    """Compact what goes beyond `history.keep`, and free what nothing needs. Waits as long as that takes."""
    return call(messages.Gc(dry_run=dry_run), messages.GcResult, extra=None)


def config_reload() -> Request[messages.ConfigReloadResult]:
    """Have the daemon read its configuration anew. Refused with `invalid_params` where a file is wrong."""
    return call(messages.ConfigReload(), messages.ConfigReloadResult)


def hooks_run(paths: Sequence[str], *, session: str | None = None) -> Request[messages.HooksRunResult]:
    """What the hooks would make of these files as they are; nothing is changed. `rejected`, `timeout`."""
    return call(messages.HooksRun(paths=list(paths), session=session), messages.HooksRunResult, extra=None)


# ── What may be asked twice ───────────────────────────────────────────────────────────────────

# Where the connection is lost before the answer, these are not sent again, since a second time is
# another deed: what is not known then.
UNKNOWN: Mapping[type[messages.Params], str] = {
    messages.Shutdown: "whether it has heard that it is to end",
    messages.Publish: "whether the commit was made: `git log` tells",
    messages.SessionOpen: "whether the session was opened: `session_list` tells, and its token is lost",
    messages.SessionClose: "whether the session was closed: `session_list` tells",
    messages.LeaseAcquire: "whether the lease was granted: `lease_list` tells",
    messages.LeaseRelease: "whether the lease was released: `lease_list` tells",
    messages.ExecEnd: "whether the command's work was recorded as such: `log` tells",
}

Identified = (
    messages.Apply | messages.Commit | messages.Undo | messages.Redo | messages.Rollback | messages.Restore
)


def may_repeat(params: messages.Params) -> bool:
    """Whether sending this again, where no answer came, does no more than sending it once."""
    if isinstance(params, Identified):
        is_dry = not isinstance(params, messages.Commit) and params.dry_run
        return is_dry or params.request_id is not None
    return type(params) not in UNKNOWN
