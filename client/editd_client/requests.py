"""The requests of the protocol: the parameters of each method, and the type of its result.

Made by tests/generated from `editd.wire.messages`: change that, not this. One function for each
method, with its name (`session.open` is `session_open`). Sends nothing: `Client` and `AsyncClient` inherit
`RequestMethods`, so that both have the same methods. They raise EditdError for a refusal, and Unreachable if
no daemon answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET

from editd.wire import messages
from editd_client.locate import current_actor
from editd_client.prepared_call import (
    PreparedCall,
    call,
    call_without_result,
    hunks_by_path,
    one_or_list,
    optional,
    request_method,
    to_list,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def hello(
    client: str | None = None, session: str | None = None, token: str | None = None
) -> PreparedCall[messages.HelloResult]:
    """Introduce this client (default: EDITD_ACTOR, then the login name), and act in `session`.

    `token` attaches the client to an open session. Refused with `unknown_session` if the session is open
    with another token.
    """
    return call(
        messages.Hello(client=client or current_actor(), session=session, token=token), messages.HelloResult
    )


def status() -> PreparedCall[messages.StatusResult]:
    """Return the daemon's status, at once even if it is busy."""
    return call(messages.Status(), messages.StatusResult)


def check(
    *,
    repair: bool = False,
    lose: bool = False,
    full: bool = False,
) -> PreparedCall[messages.CheckResult]:
    """Verify that history, journal and files agree. Waits for as long as that takes.

    Transactions that an earlier `check` has verified are not read again one by one, as long as the packs with
    them are the same, byte for byte. `full` reads them all.
    With `repair`, repairs the damage, and the daemon exits afterwards. Refused with `history_damaged` if
    something cannot be recovered, unless `lose` is true.
    """
    return call(messages.Check(repair=repair, lose=lose, full=full), messages.CheckResult)


def shutdown() -> PreparedCall[None]:
    """Stop the daemon: returns when it has accepted, and waits until it closes the connection."""
    return call_without_result(messages.Shutdown())


def dialects() -> PreparedCall[messages.DialectsResult]:
    """Return the edit tools of other systems for `Tool`, with the schemas of their arguments."""
    return call(messages.Dialects(), messages.DialectsResult)


def read(
    path: str,
    *,
    session: str | None = None,
    at: messages.Tx | None = None,
    changeset: str | None = None,
    proposal: int | None = None,
    start_line: int | None = None,
    end_line: int | None = None,
    unsaved: bool = False,
    as_text: bool = False,
) -> PreparedCall[messages.ReadResult]:
    """Return the current file, or as of right after `at`, or as `changeset` or `proposal` would leave it.

    With `unsaved`, the text that an editor holds of it unsaved, if one does: `unsaved_of` is then set.
    With `as_text`, a file that no encoding fits is refused with `not_text`, and does not count as read.

    `start_line` and `end_line` count from 1 and are both included. The version counts as seen from now
    on, except with `at` and `changeset`. Refused with `file_missing` and `not_a_file`, among others.
    """
    return call(
        messages.Read(
            path=path,
            session=session,
            at=at,
            changeset=changeset,
            proposal=optional(proposal),
            start_line=start_line,
            end_line=end_line,
            unsaved=unsaved,
            as_text=as_text,
        ),
        messages.ReadResult,
    )


def stat(paths: Sequence[str], *, proposal: int | None = None) -> PreparedCall[messages.StatResult]:
    """Return the version, mode, size (in bytes) and kind of each path, all None for a missing file.

    With `proposal`, as that would leave the files.
    """
    return call(messages.Stat(paths=list(paths), proposal=optional(proposal)), messages.StatResult)


def settle(timeout: float | None = None) -> PreparedCall[messages.SettleResult]:
    """Return the newest transaction when all earlier changes are recorded.

    The daemon applies `timeout`, in seconds (None: 60), and refuses with `timeout` after it.
    """
    return call(messages.Settle(timeout=timeout), messages.SettleResult)


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
    propose: bool | None = None,
    proposal: int | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
) -> PreparedCall[messages.ApplyResult]:
    """Make all `edits` one transaction, or none of them.

    Refused, with nothing changed, with `stale`, `no_match`, `conflict`, `leased` and others: see the
    protocol's errors. The result's `transaction` is None if nothing changes, and with `dry_run`.

    With `propose`, or if a review rule asks for it, the edit becomes a proposal. The result then has
    `proposal` and no transaction. With `wait`, in seconds, it comes after the decision if that is made in
    time, and a rejection is `rejected`. `proposal` is an open proposal that this one replaces.

    `on_unsaved` says what happens where an editor holds a file unsaved: by default the edit is refused with
    `unsaved` if it does not merge with that text.
    """
    return call(
        messages.Apply(
            edits=list(edits),
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            on_stale=on_stale,
            dry_run=dry_run,
            return_content=return_content,
            diff=diff,
            propose=optional(propose),
            proposal=optional(proposal),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
        ),
        messages.ApplyResult,
    )


def begin(
    *,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    on_stale: messages.OnStale | None = None,
    propose: bool | None = None,
) -> PreparedCall[messages.BeginResult]:
    """Open a changeset to collect edits in steps; `Client.transaction` does this itself.

    With `propose`, its commit makes a proposal: a draft, until `proposal_submit`, if the session collects its
    edits in one.
    """
    return call(
        messages.Begin(
            session=session, actor=actor, message=message, on_stale=on_stale, propose=optional(propose)
        ),
        messages.BeginResult,
    )


def stage(changeset: str, edits: Sequence[messages.AnyEdit]) -> PreparedCall[messages.ApplyResult]:
    """Add edits to a changeset, and return the effect of all staged edits."""
    return call(messages.Stage(changeset=changeset, edits=list(edits)), messages.ApplyResult)


def commit(
    changeset: str,
    *,
    on_stale: messages.OnStale | None = None,
    request_id: str | None = None,
    propose: bool | None = None,
    proposal: int | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
) -> PreparedCall[messages.ApplyResult]:
    """Apply the staged edits as one transaction. After a refusal the changeset stays open.

    `propose`, `proposal` and `wait` are as in `apply`.
    """
    return call(
        messages.Commit(
            changeset=changeset,
            on_stale=on_stale,
            request_id=request_id,
            propose=optional(propose),
            proposal=optional(proposal),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
        ),
        messages.ApplyResult,
    )


def abort(changeset: str) -> PreparedCall[None]:
    """Abort a changeset."""
    return call_without_result(messages.Abort(changeset=changeset))


def undo(
    tx: messages.Tx | None = None,
    *,
    paths: Sequence[str] | None = None,
    hunks: Mapping[str, Sequence[int]] | None = None,
    last: int | None = None,
    filter: messages.Filter | None = None,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    on_conflict: messages.OnConflict = "fail",
    own_only: bool = False,
    propose: bool | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
    elicited: bool | None = None,
) -> PreparedCall[messages.UndoResult]:
    """Take back `tx`, the `last` N, all of a `session`, or the matches of a `filter`, by a new transaction.

    Without any of them, takes back the newest edit that is not undone. Of `tx`, it can be limited to some
    `paths`, and in other files to `hunks` by their numbers from `show`. Refused with `conflict` if later
    changes do not merge, and with `nothing_to_undo`. With `dry_run`, the result lists the `conflicts`
    instead. With `own_only`, work of another session is refused with `permission_denied`.
    """
    return call(
        messages.Undo(
            tx=tx,
            paths=to_list(paths),
            hunks=UNSET if hunks is None else hunks_by_path(hunks),
            last=last,
            filter=filter,
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
            own_only=own_only,
            propose=optional(propose),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
            elicited=optional(elicited),
        ),
        messages.UndoResult,
    )


def redo(
    *,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    on_conflict: messages.OnConflict = "fail",
    own_only: bool = False,
    propose: bool | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
    elicited: bool | None = None,
) -> PreparedCall[messages.UndoResult]:
    """Undo the newest undo that is not redone. Refusals as for `undo`."""
    return call(
        messages.Redo(
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
            own_only=own_only,
            propose=optional(propose),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
            elicited=optional(elicited),
        ),
        messages.UndoResult,
    )


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
    include_by_time: bool = False,
    propose: bool | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
    elicited: bool | None = None,
) -> PreparedCall[messages.UndoResult]:
    """Undo all work of `session`, from `since` on (a transaction or a time). Refusals as for `undo`.

    A glob such as `codex-1234*` is all sessions that match. Published work stays, unless `include_published`
    is true. A change during a command that another program may have made stays, unless `include_by_time` is.
    """
    return call(
        messages.Rollback(
            session=session,
            since=since,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
            own_only=own_only,
            include_published=include_published,
            include_by_time=include_by_time,
            propose=optional(propose),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
            elicited=optional(elicited),
        ),
        messages.UndoResult,
    )


def restore(
    to: messages.Tx,
    *,
    paths: Sequence[str] | None = None,
    session: str | None = None,
    actor: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
    propose: bool | None = None,
    wait: float | None = None,
    on_unsaved: messages.OnUnsaved | None = None,
) -> PreparedCall[messages.ApplyResult]:
    """Put the workspace, or `paths`, back to the state right after `to` (a transaction or a time).

    First waits for as long as it takes to record the changes of other programs.
    """
    return call(
        messages.Restore(
            to=to,
            paths=to_list(paths),
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            propose=optional(propose),
            wait=optional(wait),
            on_unsaved=optional(on_unsaved),
        ),
        messages.ApplyResult,
    )


def log(
    *,
    before: int | None = None,
    after: int | None = None,
    path: str | Sequence[str] | None = None,
    session: str | Sequence[str] | None = None,
    actor: str | Sequence[str] | None = None,
    kind: messages.Kind | Sequence[messages.Kind] | None = None,
    since: str | None = None,
    until: str | None = None,
    grep: str | None = None,
    unreviewed: bool = False,
    turn: int | Sequence[int] | None = None,
    prompt: str | None = None,
    limit: int = 50,
    brief: bool = False,
    stat: bool = False,
) -> PreparedCall[messages.LogResult]:
    """Return transactions, newest first, `limit` at most. `more` is true if that left some out.

    Each of `path`, `session`, `actor` and `kind` is one or several; any may match. `before` and
    `after` are transactions, themselves left out; `since` and `until` are RFC 3339 times. `grep` is text in
    the message, in either case of ASCII letters. `unreviewed` leaves the work of sessions that no person has
    approved or marked (`review_mark`). `turn` is one or several turns of the `session`, and `prompt` is text
    in the prompt of the turn, of those that the client may read. With `brief`, each transaction has
    `files_count` and the first `path` in place of its files. With `stat`, it has the lines `added` and
    `deleted` (None if counting took too long); `limit` is 200 at most then.
    """
    return call(
        messages.Log(
            before=before,
            after=after,
            path=one_or_list(path),
            session=one_or_list(session),
            actor=one_or_list(actor),
            kind=one_or_list(kind),
            since=since,
            until=until,
            grep=grep,
            unreviewed=unreviewed,
            turn=one_or_list(turn),
            prompt=prompt,
            limit=limit,
            brief=brief,
            stat=stat,
        ),
        messages.LogResult,
    )


def log_count(
    *,
    before: int | None = None,
    after: int | None = None,
    path: str | Sequence[str] | None = None,
    session: str | Sequence[str] | None = None,
    actor: str | Sequence[str] | None = None,
    kind: messages.Kind | Sequence[messages.Kind] | None = None,
    since: str | None = None,
    until: str | None = None,
    grep: str | None = None,
    unreviewed: bool = False,
    turn: int | Sequence[int] | None = None,
    prompt: str | None = None,
) -> PreparedCall[messages.LogCountResult]:
    """Return the number of transactions that `log` would list without a limit, and the newest one."""
    return call(
        messages.LogCount(
            before=before,
            after=after,
            path=one_or_list(path),
            session=one_or_list(session),
            actor=one_or_list(actor),
            kind=one_or_list(kind),
            since=since,
            until=until,
            grep=grep,
            unreviewed=unreviewed,
            turn=one_or_list(turn),
            prompt=prompt,
        ),
        messages.LogCountResult,
    )


def log_refusals(
    *,
    session: str | None = None,
    after: int | None = None,
    limit: int = 50,
) -> PreparedCall[messages.LogRefusalsResult]:
    """Return the latest refusals of edits, newest first; with `after`, only those after that number."""
    return call(messages.LogRefusals(session=session, after=after, limit=limit), messages.LogRefusalsResult)


def show(
    tx: messages.Tx,
    *,
    diff: bool = True,
    hunks: bool = False,
    decoded: bool = False,
) -> PreparedCall[messages.ShowResult]:
    """Return one transaction, with its diff unless `diff` is false. Refused with `unknown_transaction`.

    With `hunks`, also returns the hunks of each file, with their numbers for `undo`. With `decoded`,
    text of another encoding is decoded, to be read.
    """
    return call(messages.Show(tx=tx, diff=diff, hunks=hunks, decoded=decoded), messages.ShowResult)


def diff(
    from_: messages.Tx | None = None,
    to: messages.Tx | None = None,
    *,
    paths: Sequence[str] | None = None,
    changeset: str | None = None,
    proposal: int | None = None,
    decoded: bool = False,
) -> PreparedCall[messages.DiffResult]:
    """Return the diff from right after `from_` (None: the baseline) to right after `to` (None: now).

    Without `to`, first waits for as long as it takes to record the changes of other programs. With
    `proposal`, returns what that would change. With `decoded`, text of another encoding is decoded, to
    be read.
    """
    return call(
        messages.Diff(
            from_=from_,
            to=to,
            paths=to_list(paths),
            changeset=changeset,
            proposal=optional(proposal),
            decoded=decoded,
        ),
        messages.DiffResult,
    )


def publish(
    message: str,
    *,
    session: str | Sequence[str] | None = None,
    from_: messages.Tx | None = None,
    to: messages.Tx | None = None,
    branch: str | None = None,
    author: str | None = None,
    dry_run: bool = False,
) -> PreparedCall[messages.PublishResult]:
    """Commit the work of one or more sessions, or of `from_` to `to`, onto a branch of the user's git.

    With `dry_run` nothing is changed: the result shows the content of the commit.
    """
    return call(
        messages.Publish(
            message=message,
            session=one_or_list(session),
            from_=from_,
            to=to,
            branch=branch,
            author=author,
            dry_run=dry_run,
        ),
        messages.PublishResult,
    )


def session_open(
    name: str,
    *,
    actor: str | None = None,
    scope: messages.Scope | None = None,
    on_stale: messages.OnStale | None = None,
    unread: messages.Unread = "allow",
    ttl: float | None = None,
    fresh: bool = False,
    propose: messages.Proposes = "policy",
    batch: messages.Batch = "each",
    kind: messages.SessionKind = "person",
) -> PreparedCall[messages.SessionOpenResult]:
    """Open a session, and act in it from now on. `ttl` in seconds.

    With `propose="always"`, each of its edits waits for a reviewer. With `batch="session"`, all its edits
    are one proposal, and it reads the files as that would leave them; with `batch="draft"` that is a draft
    until `proposal_submit`. With `fresh` it gets a name that no session had before: `name`, or `NAME-2`,
    `NAME-3` … With `kind="agent"`, it is never taken for the owner's, and neither is the program that has
    started this one.

    The `token` in the result is returned only once. `hello` attaches another client with it.
    """
    return call(
        messages.SessionOpen(
            name=name,
            actor=actor,
            scope=scope,
            on_stale=on_stale,
            unread=unread,
            ttl=ttl,
            fresh=fresh,
            propose=propose,
            batch=batch,
            kind=kind,
        ),
        messages.SessionOpenResult,
    )


def session_close(
    session: str | None = None,
    *,
    force: bool = False,
    withdraw: bool = False,
) -> PreparedCall[None]:
    """Close a session (default: this client's own); with `withdraw`, take back its open proposals."""
    return call_without_result(messages.SessionClose(session=session, force=force, withdraw=withdraw))


def session_list(
    *,
    all: bool = False,
    stat: bool = False,
    activity: bool = False,
    closed: str | None = None,
) -> PreparedCall[messages.SessionListResult]:
    """List the open sessions; with `all` also closed ones.

    With `closed`, a time (RFC 3339), also closed ones that were used since. `stat` counts edits, files and
    lines of each. `activity` tells what each does at present.
    """
    return call(
        messages.SessionList(all=all, stat=stat, activity=activity, closed=closed), messages.SessionListResult
    )


def session_pause(
    session: str,
    *,
    action: messages.PauseAction = "refuse",
    reason: str = "",
    end_leases: bool = False,
) -> PreparedCall[messages.SessionPauseResult]:
    """Refuse the edits of a session until `session_resume`, or make them proposals (`"propose"`).

    The refusal has the `reason`. With `end_leases`, its leases end too.
    """
    return call(
        messages.SessionPause(session=session, action=action, reason=reason, end_leases=end_leases),
        messages.SessionPauseResult,
    )


def session_resume(session: str) -> PreparedCall[None]:
    """End the pause of a session."""
    return call_without_result(messages.SessionResume(session=session))


def lease_acquire(
    paths: Sequence[str],
    ttl: float,
    *,
    session: str | None = None,
    wait: float | None = None,
) -> PreparedCall[messages.LeaseAcquireResult]:
    """Lease the paths that match these globs; `ttl` and `wait` in seconds.

    Refused with `leased` if another session has them, and after `wait` with `timeout`.
    """
    return call(
        messages.LeaseAcquire(paths=list(paths), ttl=ttl, session=session, wait=wait),
        messages.LeaseAcquireResult,
    )


def lease_renew(lease: str, ttl: float) -> PreparedCall[messages.LeaseRenewResult]:
    """Extend a lease to `ttl` seconds from now."""
    return call(messages.LeaseRenew(lease=lease, ttl=ttl), messages.LeaseRenewResult)


def lease_release(lease: str, *, force: bool = False) -> PreparedCall[None]:
    """End a lease. `force` is needed for another session's lease."""
    return call_without_result(messages.LeaseRelease(lease=lease, force=force))


def lease_list() -> PreparedCall[messages.LeaseListResult]:
    """List the held leases, and count the requests that wait for one."""
    return call(messages.LeaseList(), messages.LeaseListResult)


def document_hold(
    path: str, base: str | None, content: str | None = None
) -> PreparedCall[messages.DocumentHoldResult]:
    """Say what text of a file this connection holds unsaved, made from its version `base`.

    Without `content` it only says that there are unsaved changes. Say it again after each change of the text.
    It ends with `document_release`, with the connection, or when this connection writes that text.
    """
    return call(messages.DocumentHold(path=path, base=base, content=content), messages.DocumentHoldResult)


def document_release(path: str) -> PreparedCall[None]:
    """End a hold of this connection. `invalid_params` if it holds nothing there."""
    return call_without_result(messages.DocumentRelease(path=path))


def document_list() -> PreparedCall[messages.DocumentListResult]:
    """List the files that clients hold unsaved, without their text."""
    return call(messages.DocumentList(), messages.DocumentListResult)


def exec_begin(
    command: str,
    *,
    session: str | None = None,
    paths: Sequence[str] | None = None,
    whole: Sequence[str] = (),
    key: str | None = None,
    tool_call: str | None = None,
    native_turn: str | None = None,
    pid: int | None = None,
    ttl: float | None = None,
    wait: float | None = None,
) -> PreparedCall[messages.ExecBeginResult]:
    """Announce a command that changes files, or a tool that changes these `paths`.

    Waits for as long as it takes to record earlier changes, and up to `wait` seconds for other sessions. With
    a `key` it belongs to the session: any connection may end it, and the process `pid` and `ttl` end it, too.
    The `whole` ones of the paths are refused as stale if the session has not seen their present version.
    """
    return call(
        messages.ExecBegin(
            command=command,
            session=session,
            paths=to_list(paths),
            whole=list(whole),
            key=key,
            call=tool_call,
            native_turn=native_turn,
            pid=pid,
            ttl=ttl,
            wait=wait,
        ),
        messages.ExecBeginResult,
    )


def exec_ask(*, session: str | None = None, key: str | None = None) -> PreparedCall[None]:
    """Announce that the agent asks its user about a tool, whose bracket has this `key`.

    Until its end, no change is known to be the tool's. Without a bracket of that key, all of the session's.
    """
    return call_without_result(messages.ExecAsk(session=session, key=key))


def exec_end(
    name: str | None = None,
    status: int | None = None,
    *,
    key: str | None = None,
    every: bool = False,
    session: str | None = None,
    seen: bool = False,
    command: str | None = None,
    made: Sequence[messages.MadeText] = (),
) -> PreparedCall[messages.ExecEndResult]:
    """Record the changes of the command of `exec_begin`, ended with `status`, as one transaction.

    In place of its `name`, a `key` names the session's command, and `every` the commands of all its keys.
    With `seen`, the session's own changes to their paths count as read. `made` are the texts of the tool's
    call: by them its change is known after a question (`exec_ask`) or a missed beginning, which `command`
    stands for.
    """
    return call(
        messages.ExecEnd(
            exec=name,
            key=key,
            all=every,
            session=session,
            status=status,
            seen=seen,
            command=command,
            made=list(made),
        ),
        messages.ExecEndResult,
    )


def claim(
    paths: Sequence[str],
    since: str,
    command: str,
    *,
    session: str | None = None,
) -> PreparedCall[messages.ClaimResult]:
    """Attribute to the session the unannounced changes of these paths since then.

    `since` is an RFC 3339 time, at most 60 seconds ago. For an agent that tells of its edits afterwards.
    """
    return call(
        messages.Claim(command=command, paths=list(paths), since=since, session=session), messages.ClaimResult
    )


def seen(
    files: Sequence[messages.SeenFile],
    *,
    session: str | None = None,
    pid: int | None = None,
) -> PreparedCall[None]:
    """Note files as read by the session, without their content: for an agent's own reads.

    `pid` is the process of the agent.
    """
    return call_without_result(messages.Seen(files=list(files), session=session, pid=pid))


def turn_begin(
    conversation: str,
    *,
    session: str | None = None,
    native: str | None = None,
    source: str | None = None,
    model: str | None = None,
    prompt: str | None = None,
    transcript: str | None = None,
    parent: str | None = None,
    pid: int | None = None,
) -> PreparedCall[messages.TurnBeginResult]:
    """Begin a turn of the session, because its agent got a prompt. The turn before it and its brackets end.

    `conversation` and `native` are the agent's own ids of the conversation, which goes on after a resume, and
    of the turn. A repeated `native` is the same turn. `parent` is the session whose turn started this agent.
    `pid` is the process of the agent. Only the session itself may write its turns.
    """
    return call(
        messages.TurnBegin(
            conversation=conversation,
            session=session,
            native=native,
            source=source,
            model=model,
            prompt=prompt,
            transcript=transcript,
            parent=parent,
            pid=pid,
        ),
        messages.TurnBeginResult,
    )


def turn_note(
    *,
    session: str | None = None,
    model: str | None = None,
    tool_call: str | None = None,
    asked: bool = False,
    outcome: messages.CallOutcome | None = None,
) -> PreparedCall[None]:
    """Note the model of the session's present turn, or what became of a tool's `call` in it.

    With `asked`, the agent has asked its user about the call.
    """
    return call_without_result(
        messages.TurnNote(session=session, model=model, call=tool_call, asked=asked, outcome=outcome)
    )


def turn_end(
    *,
    session: str | None = None,
    native: str | None = None,
    reason: str | None = None,
) -> PreparedCall[None]:
    """End the session's present turn; with `native`, only if it has that id. Later edits have no turn."""
    return call_without_result(messages.TurnEnd(session=session, native=native, reason=reason))


def turns(
    *,
    session: str | None = None,
    before: str | None = None,
    limit: int = 50,
    stat: bool = False,
) -> PreparedCall[messages.TurnsResult]:
    """Return turns, newest first, `limit` at most: of a session and its sub-agents, or of all sessions.

    Each has its transactions, and the proposals that wait. `before` is an RFC 3339 time, left out. With
    `stat`, each transaction has the lines `added` and `deleted`, and `limit` is 200 at most. The text of a
    prompt is for the owner and for the turn's own session only.
    """
    return call(messages.Turns(session=session, before=before, limit=limit, stat=stat), messages.TurnsResult)


def blame(path: str) -> PreparedCall[messages.BlameResult]:
    """Return the transaction of each line. Slow for a file with very many versions."""
    return call(messages.Blame(path=path), messages.BlameResult)


def why(
    path: str,
    line: int,
    *,
    end_line: int | None = None,
    at: messages.Tx | None = None,
) -> PreparedCall[messages.WhyResult]:
    """Return the reason of a line of a file, or of the lines up to `end_line`: transaction, turn and prompt.

    With `at`, of the file as it was right after that transaction. The text of a prompt is for the owner and
    for the turn's own session only. Refusals as for `blame`.
    """
    return call(messages.Why(path=path, line=line, end_line=end_line, at=at), messages.WhyResult)


def subscribe(
    *,
    events: Sequence[messages.EventKind] | None = None,
    paths: Sequence[str] | None = None,
    since: int | None = None,
    brief: bool = False,
) -> PreparedCall[messages.SubscribeResult]:
    """Subscribe to these `events`, about files that match these globs, after `since`.

    With `brief`, transactions have no files, as in `log`.
    """
    return call(
        messages.Subscribe(events=to_list(events), paths=to_list(paths), since=since, brief=brief),
        messages.SubscribeResult,
    )


def unsubscribe(subscription: int) -> PreparedCall[None]:
    """End a subscription; closing the events does this."""
    return call_without_result(messages.Unsubscribe(subscription=subscription))


def gc(*, dry_run: bool = False) -> PreparedCall[messages.GcResult]:
    """Compact transactions beyond `history.keep`, and free unused data. Waits for as long as that takes."""
    return call(messages.Gc(dry_run=dry_run), messages.GcResult)


def forget(
    paths: Sequence[str] | None = None,
    *,
    matching: Sequence[str] | None = None,
    content: Sequence[str] | None = None,
    text: str | None = None,
    prompts: str | None = None,
    dry_run: bool = False,
) -> PreparedCall[messages.ForgetResult]:
    """Remove contents from the history for good, and prove it. Waits for as long as that takes.

    Exactly one of `paths`, `matching` (globs), `content` (versions) and `text` names the contents. Of a file
    the present content stays. Refused with `conflict` if a named content, or the text, is in a file now.
    In their place, `prompts` names a session, whose prompts are removed.
    """
    return call(
        messages.Forget(
            paths=to_list(paths),
            matching=to_list(matching),
            content=to_list(content),
            text=text,
            prompts=prompts,
            dry_run=dry_run,
        ),
        messages.ForgetResult,
    )


def remote_init(
    url: str,
    *,
    ref: str | None = None,
    host: str | None = None,
    dry_run: bool = False,
) -> PreparedCall[messages.RemoteResult]:
    """Begin a log of this workspace in a git repository. A dry run counts the files that would be sent."""
    return call(messages.RemoteInit(url=url, ref=ref, host=host, dry_run=dry_run), messages.RemoteResult)


def remote_join(
    url: str,
    *,
    ref: str | None = None,
    host: str | None = None,
    take: Literal["log"] | None = None,
    keep: Literal["mine"] | None = None,
) -> PreparedCall[messages.RemoteResult]:
    """Take the files of a log, and exchange with its hosts. Refused with `conflict` if files differ.

    With `take="log"`, files that differ are replaced or deleted. The history keeps them. With
    `keep="mine"`, they become an edit of this host.
    """
    return call(messages.RemoteJoin(url=url, ref=ref, host=host, take=take, keep=keep), messages.RemoteResult)


def remote_status() -> PreparedCall[messages.RemoteResult]:
    """Return the state of the exchange with other hosts."""
    return call(messages.RemoteStatus(), messages.RemoteResult)


def remote_now(*, timeout: float = 30) -> PreparedCall[messages.RemoteResult]:
    """Exchange at once, until all transactions of this host are in the log, or for `timeout` seconds."""
    return call(messages.RemoteNow(timeout=timeout), messages.RemoteResult)


def remote_land(
    tx: messages.Tx | None = None, *, timeout: float = 30
) -> PreparedCall[messages.RemoteLandResult]:
    """Wait until a transaction is in the log (default: the newest). Refused with `timeout` if it is not."""
    return call(messages.RemoteLand(tx=tx, timeout=timeout), messages.RemoteLandResult)


def remote_pause() -> PreparedCall[messages.RemoteResult]:
    """Stop the exchange until `remote_resume`. Edits go on."""
    return call(messages.RemotePause(), messages.RemoteResult)


def remote_resume() -> PreparedCall[messages.RemoteResult]:
    """Go on with the exchange."""
    return call(messages.RemoteResume(), messages.RemoteResult)


def remote_repair() -> PreparedCall[messages.RemoteResult]:
    """Follow the log on the server although it does not continue the known one, and land what it lacks."""
    return call(messages.RemoteRepair(), messages.RemoteResult)


def remote_leave(*, lose: bool = False) -> PreparedCall[messages.RemoteResult]:
    """End the exchange for good. The files and the history stay.

    Refused with `conflict` if transactions are not in the log yet, unless `lose` is true.
    """
    return call(messages.RemoteLeave(lose=lose), messages.RemoteResult)


def config_reload() -> PreparedCall[messages.ConfigReloadResult]:
    """Reload the daemon's configuration. Refused with `invalid_params` if a file is wrong."""
    return call(messages.ConfigReload(), messages.ConfigReloadResult)


def hooks_run(paths: Sequence[str], *, session: str | None = None) -> PreparedCall[messages.HooksRunResult]:
    """Run the hooks on the current files without changing them. Refused: `rejected`, `timeout`."""
    return call(messages.HooksRun(paths=list(paths), session=session), messages.HooksRunResult)


def proposal_list(
    *,
    state: Sequence[messages.ProposalState] | None = None,
    session: str | None = None,
    path: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> PreparedCall[messages.ProposalListResult]:
    """Return proposals without their files, newest first; by default proposals that wait for a decision."""
    return call(
        messages.ProposalList(state=to_list(state), session=session, path=path, before=before, limit=limit),
        messages.ProposalListResult,
    )


def proposal_get(
    proposal: int,
    *,
    revision: int | None = None,
    paths: Sequence[str] | None = None,
    content: bool = False,
    context: int = 3,
) -> PreparedCall[messages.ProposalGetResult]:
    """Return a proposal with its files and hunks on the present files, and its `view` token.

    With `content`, each file has its text now (`old`) and as it would be (`new`). `context` is the number
    of unchanged lines around each hunk. Refused with `unknown_proposal`.
    """
    return call(
        messages.ProposalGet(
            proposal=proposal, revision=revision, paths=to_list(paths), content=content, context=context
        ),
        messages.ProposalGetResult,
    )


def proposal_approve(
    proposal: int,
    *,
    hunks: Sequence[str] | None = None,
    view: str | None = None,
    files: Sequence[messages.ReviewedFile] = (),
    rest: messages.RestOfHunks = "keep",
    comment: str | None = None,
    message: str | None = None,
    request_id: str | None = None,
    dry_run: bool = False,
) -> PreparedCall[messages.ProposalApproveResult]:
    """Land the `hunks` with these ids, or all that fit in the `view` that was shown.

    `files` are the reviewer's own texts. Other hunks stay open, or are rejected (`rest`). Refused with
    `stale` if the view has changed since, `conflict`, `decided` and `permission_denied`.
    """
    return call(
        messages.ProposalApprove(
            proposal=proposal,
            hunks=to_list(hunks),
            view=view,
            files=list(files),
            rest=rest,
            comment=comment,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
        ),
        messages.ProposalApproveResult,
    )


def proposal_reject(
    proposal: int,
    *,
    hunks: Sequence[str] | None = None,
    comment: str | None = None,
    request_id: str | None = None,
) -> PreparedCall[messages.ProposalResult]:
    """Reject the `hunks` with these ids, or all that are open. Refused as an approval."""
    return call(
        messages.ProposalReject(
            proposal=proposal, hunks=to_list(hunks), comment=comment, request_id=request_id
        ),
        messages.ProposalResult,
    )


def proposal_decide(
    proposals: Sequence[messages.ProposalView],
    what: messages.Verdict,
    *,
    comment: str | None = None,
    elicited: bool = False,
) -> PreparedCall[messages.ProposalDecideResult]:
    """Decide about several proposals, each as it was shown; the refused ones are in `left`.

    `elicited` says that an MCP client gave this answer for its user, see docs/reviewing.md.
    """
    return call(
        messages.ProposalDecide(proposals=list(proposals), what=what, comment=comment, elicited=elicited),
        messages.ProposalDecideResult,
    )


def proposal_wait(
    proposal: int,
    *,
    timeout: float = 60,
    until: messages.WaitFor = "settled",
    since: str | None = None,
) -> PreparedCall[messages.ProposalWaitResult]:
    """Return a proposal when it is settled, or after `timeout` seconds as it is then.

    With `until="any"`, after the next change of it, later than the time `since` (RFC 3339).
    """
    return call(
        messages.ProposalWait(proposal=proposal, timeout=timeout, until=until, since=since),
        messages.ProposalWaitResult,
    )


def proposal_comment(
    proposal: int,
    text: str,
    *,
    hunk: str | None = None,
    path: str | None = None,
    line: int | None = None,
) -> PreparedCall[messages.ProposalResult]:
    """Add a comment to a proposal, to one of its hunks, or to a line of a file."""
    return call(
        messages.ProposalComment(proposal=proposal, text=text, hunk=hunk, path=path, line=line),
        messages.ProposalResult,
    )


def proposal_submit(proposal: int) -> PreparedCall[messages.ProposalResult]:
    """Open a draft for review."""
    return call(messages.ProposalSubmit(proposal=proposal), messages.ProposalResult)


def proposal_withdraw(proposal: int) -> PreparedCall[messages.ProposalResult]:
    """Take back an open proposal of the own session."""
    return call(messages.ProposalWithdraw(proposal=proposal), messages.ProposalResult)


def proposal_reopen(proposal: int) -> PreparedCall[messages.ProposalResult]:
    """Make a new proposal of one that was rejected, withdrawn or has expired."""
    return call(messages.ProposalReopen(proposal=proposal), messages.ProposalResult)


def proposal_check(
    proposal: int,
    view: str,
    name: str,
    *,
    exit: int,
    seconds: float,
    output: str,
    hunks: Sequence[str] | None = None,
) -> PreparedCall[messages.ProposalResult]:
    """Note the result of a command that was run on the files as the proposal would leave them.

    With `hunks`, only those were in the files.
    """
    return call(
        messages.ProposalCheck(
            proposal=proposal,
            view=view,
            name=name,
            exit=exit,
            seconds=seconds,
            output=output,
            hunks=to_list(hunks),
        ),
        messages.ProposalResult,
    )


def review_allow(
    paths: Sequence[str],
    ttl: float,
    *,
    session: str | None = None,
    uses: int | None = None,
    lines: int | None = None,
) -> PreparedCall[messages.ReviewAllowResult]:
    """Let edits of these paths land without a decision, for `ttl` seconds, a day at most."""
    return call(
        messages.ReviewAllow(paths=list(paths), ttl=ttl, session=session, uses=uses, lines=lines),
        messages.ReviewAllowResult,
    )


def review_grants() -> PreparedCall[messages.ReviewGrantsResult]:
    """List the grants in force, and what is left of each."""
    return call(messages.ReviewGrants(), messages.ReviewGrantsResult)


def review_revoke(grant: int) -> PreparedCall[None]:
    """End a grant."""
    return call_without_result(messages.ReviewRevoke(grant=grant))


def review_mark(
    transactions: Sequence[int], *, reviewed: bool = True
) -> PreparedCall[messages.ReviewMarkResult]:
    """Mark transactions as reviewed, or take the marks back. Refused with `permission_denied` to authors."""
    return call(
        messages.ReviewMark(transactions=list(transactions), reviewed=reviewed), messages.ReviewMarkResult
    )


def review_unlock(pin: str) -> PreparedCall[None]:
    """Give the user's PIN, so that this connection may decide about what its own kin proposed."""
    return call_without_result(messages.ReviewUnlock(pin=pin))


class RequestMethods:
    """The methods of both clients that are one request each."""

    hello = request_method(hello)
    status = request_method(status)
    check = request_method(check)
    shutdown = request_method(shutdown)
    dialects = request_method(dialects)
    read = request_method(read)
    stat = request_method(stat)
    settle = request_method(settle)
    apply = request_method(apply)
    begin = request_method(begin)
    stage = request_method(stage)
    commit = request_method(commit)
    abort = request_method(abort)
    undo = request_method(undo)
    redo = request_method(redo)
    rollback = request_method(rollback)
    restore = request_method(restore)
    log = request_method(log)
    log_count = request_method(log_count)
    log_refusals = request_method(log_refusals)
    show = request_method(show)
    diff = request_method(diff)
    publish = request_method(publish)
    session_open = request_method(session_open)
    session_close = request_method(session_close)
    session_list = request_method(session_list)
    session_pause = request_method(session_pause)
    session_resume = request_method(session_resume)
    lease_acquire = request_method(lease_acquire)
    lease_renew = request_method(lease_renew)
    lease_release = request_method(lease_release)
    lease_list = request_method(lease_list)
    document_hold = request_method(document_hold)
    document_release = request_method(document_release)
    document_list = request_method(document_list)
    exec_begin = request_method(exec_begin)
    exec_ask = request_method(exec_ask)
    exec_end = request_method(exec_end)
    claim = request_method(claim)
    seen = request_method(seen)
    turn_begin = request_method(turn_begin)
    turn_note = request_method(turn_note)
    turn_end = request_method(turn_end)
    turns = request_method(turns)
    blame = request_method(blame)
    why = request_method(why)
    unsubscribe = request_method(unsubscribe)
    gc = request_method(gc)
    forget = request_method(forget)
    remote_init = request_method(remote_init)
    remote_join = request_method(remote_join)
    remote_status = request_method(remote_status)
    remote_now = request_method(remote_now)
    remote_land = request_method(remote_land)
    remote_pause = request_method(remote_pause)
    remote_resume = request_method(remote_resume)
    remote_repair = request_method(remote_repair)
    remote_leave = request_method(remote_leave)
    config_reload = request_method(config_reload)
    hooks_run = request_method(hooks_run)
    proposal_list = request_method(proposal_list)
    proposal_get = request_method(proposal_get)
    proposal_approve = request_method(proposal_approve)
    proposal_reject = request_method(proposal_reject)
    proposal_decide = request_method(proposal_decide)
    proposal_wait = request_method(proposal_wait)
    proposal_comment = request_method(proposal_comment)
    proposal_submit = request_method(proposal_submit)
    proposal_withdraw = request_method(proposal_withdraw)
    proposal_reopen = request_method(proposal_reopen)
    proposal_check = request_method(proposal_check)
    review_allow = request_method(review_allow)
    review_grants = request_method(review_grants)
    review_revoke = request_method(review_revoke)
    review_mark = request_method(review_mark)
    review_unlock = request_method(review_unlock)
