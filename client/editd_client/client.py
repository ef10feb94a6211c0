"""A client of one daemon: a method for each of the protocol's, with its names and typed results.

Synchronous, one request at a time, over one connection. A request is sent once: whether to ask
again is the caller's decision, and safe with a `request_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, TypeVar

import msgspec

from editd.wire import messages
from editd.wire.connection import ClientConnection, Event, Failure, Reply
from editd.wire.errors import Malformed
from editd_client.connect import connect, connect_or_start
from editd_client.errors import EditdError, Unreachable
from editd_client.events import Events, Inbox
from editd_client.locate import find_workspace

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from types import TracebackType

SILENCE_SECONDS_MAX = 120.0  # far beyond any answer that does not wait for something on purpose
RECEIVE_BYTES = 1 << 18

Result = TypeVar("Result", bound=messages.Message)


class Client:
    """A connection to a daemon: by the path of its socket, or one that is connected already.

    Each method raises EditdError for a refusal, and Unreachable where the daemon goes away or is
    silent for too long: the client is closed then, and what was asked may or may not have been done.
    """

    def __init__(self, at: str | socket.socket) -> None:
        stream = connect(at) if isinstance(at, str) else at
        if stream is None:
            raise Unreachable(f"No daemon answers at {at}.", hint="Start one with `editctl start`.")
        self._stream = stream
        self._wire = ClientConnection()
        self._inbox = Inbox()

    @classmethod
    def connect(
        cls, workspace: str | None = None, start: bool = True, on_wait: Callable[[], None] | None = None
    ) -> Self:
        """A client of the workspace that `find_workspace` finds; its daemon is started where `start` is true.

        Raises EditdError for a folder that editd will not own, Unreachable where no daemon answers;
        `on_wait` is called where the start takes over a second.
        """
        place = find_workspace(workspace)
        return cls(connect_or_start(place, on_wait=on_wait)[0] if start else place.socket_path)

    def close(self) -> None:
        """End the connection; closing twice is no error."""
        self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    # ── Connection ────────────────────────────────────────────────────────────────────────────

    def hello(
        self, client: str = "editd_client", session: str | None = None, token: str | None = None
    ) -> messages.HelloResult:
        return self._ask(messages.Hello(client=client, session=session, token=token), messages.HelloResult)

    def status(self) -> messages.StatusResult:
        return self._ask(messages.Status(), messages.StatusResult)

    def check(self) -> messages.CheckResult:
        """Waits for as long as the check takes."""
        return self._ask(messages.Check(), messages.CheckResult, silence=None)

    def shutdown(self) -> None:
        """Returns when the daemon has said yes, then waits for it to close the connection."""
        self._ask(messages.Shutdown(), messages.Empty)

    # ── Reading ───────────────────────────────────────────────────────────────────────────────

    def read(
        self,
        path: str,
        *,
        at: messages.Tx | None = None,
        changeset: str | None = None,
        session: str | None = None,
        start_line: int | None = None,
        end_line: int | None = None,
    ) -> messages.ReadResult:
        asked = messages.Read(
            path=path, at=at, changeset=changeset, session=session, start_line=start_line, end_line=end_line
        )
        return self._ask(asked, messages.ReadResult)

    def dialects(self) -> messages.DialectsResult:
        """The edit tools of other systems that `Tool` calls, with the schemas of their arguments."""
        return self._ask(messages.Dialects(), messages.DialectsResult)

    def stat(self, paths: Sequence[str]) -> messages.StatResult:
        return self._ask(messages.Stat(paths=list(paths)), messages.StatResult)

    def settle(self, timeout: float | None = None) -> messages.SettleResult:
        """`timeout` in seconds is the daemon's; None waits for as long as it takes."""
        silence = None if timeout is None else timeout + SILENCE_SECONDS_MAX
        return self._ask(messages.Settle(timeout=timeout), messages.SettleResult, silence=silence)

    # ── Applying ──────────────────────────────────────────────────────────────────────────────

    def apply(
        self,
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
    ) -> messages.ApplyResult:
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
        return self._ask(asked, messages.ApplyResult)

    def begin(
        self, *, session: str | None = None, actor: str | None = None, message: str | None = None
    ) -> messages.BeginResult:
        return self._ask(messages.Begin(session=session, actor=actor, message=message), messages.BeginResult)

    def stage(self, changeset: str, edits: Sequence[messages.AnyEdit]) -> messages.ApplyResult:
        return self._ask(messages.Stage(changeset=changeset, edits=list(edits)), messages.ApplyResult)

    def commit(
        self, changeset: str, *, on_stale: messages.OnStale | None = None, request_id: str | None = None
    ) -> messages.ApplyResult:
        asked = messages.Commit(changeset=changeset, on_stale=on_stale, request_id=request_id)
        return self._ask(asked, messages.ApplyResult)

    def abort(self, changeset: str) -> None:
        self._ask(messages.Abort(changeset=changeset), messages.Empty)

    # ── Undo ──────────────────────────────────────────────────────────────────────────────────

    def undo(
        self,
        tx: messages.Tx | None = None,
        *,
        paths: Sequence[str] | None = None,
        last: int | None = None,
        filter: messages.Filter | None = None,  # noqa: A002  # the protocol's name
        session: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        on_conflict: messages.OnConflict = "fail",
    ) -> messages.UndoResult:
        asked = messages.Undo(
            tx=tx,
            paths=None if paths is None else list(paths),
            last=last,
            filter=filter,
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
        )
        return self._ask(asked, messages.UndoResult)

    def redo(
        self,
        *,
        session: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        on_conflict: messages.OnConflict = "fail",
    ) -> messages.UndoResult:
        asked = messages.Redo(
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
        )
        return self._ask(asked, messages.UndoResult)

    def rollback(
        self,
        session: str,
        *,
        since: messages.Tx | None = None,
        actor: str | None = None,
        message: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
        on_conflict: messages.OnConflict = "fail",
    ) -> messages.UndoResult:
        asked = messages.Rollback(
            session=session,
            since=since,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
            on_conflict=on_conflict,
        )
        return self._ask(asked, messages.UndoResult)

    def restore(
        self,
        to: messages.Tx,
        *,
        paths: Sequence[str] | None = None,
        session: str | None = None,
        actor: str | None = None,
        message: str | None = None,
        request_id: str | None = None,
        dry_run: bool = False,
    ) -> messages.ApplyResult:
        """Waits for as long as it takes to see first what others have changed."""
        asked = messages.Restore(
            to=to,
            paths=None if paths is None else list(paths),
            session=session,
            actor=actor,
            message=message,
            request_id=request_id,
            dry_run=dry_run,
        )
        return self._ask(asked, messages.ApplyResult, silence=None)

    # ── History ───────────────────────────────────────────────────────────────────────────────

    def log(
        self,
        *,
        limit: int = 50,
        before: int | None = None,
        after: int | None = None,
        path: str | None = None,
        session: str | None = None,
        actor: str | None = None,
        kind: messages.Kind | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> messages.LogResult:
        """Newest first, `limit` at most; `more` says whether that left some out."""
        asked = messages.Log(
            limit=limit,
            before=before,
            after=after,
            path=path,
            session=session,
            actor=actor,
            kind=kind,
            since=since,
            until=until,
        )
        return self._ask(asked, messages.LogResult)

    def show(self, tx: messages.Tx, *, diff: bool = True) -> messages.ShowResult:
        return self._ask(messages.Show(tx=tx, diff=diff), messages.ShowResult)

    def diff(
        self,
        from_: messages.Tx | None = None,
        to: messages.Tx | None = None,
        *,
        paths: Sequence[str] | None = None,
        changeset: str | None = None,
    ) -> messages.DiffResult:
        asked = messages.Diff(
            from_=from_, to=to, paths=None if paths is None else list(paths), changeset=changeset
        )
        return self._ask(asked, messages.DiffResult)

    def publish(
        self,
        message: str,
        *,
        session: str | None = None,
        from_: messages.Tx | None = None,
        to: messages.Tx | None = None,
        branch: str | None = None,
        author: str | None = None,
    ) -> messages.PublishResult:
        asked = messages.Publish(
            message=message, session=session, from_=from_, to=to, branch=branch, author=author
        )
        return self._ask(asked, messages.PublishResult)

    # ── Sessions, leases, commands ────────────────────────────────────────────────────────────

    def session_open(
        self,
        name: str,
        *,
        actor: str | None = None,
        scope: messages.Scope | None = None,
        on_stale: messages.OnStale | None = None,
        unread: Literal["allow", "reject"] = "allow",
        ttl: float | None = None,
    ) -> messages.SessionOpenResult:
        """Open a session; this client acts in its name from here on."""
        asked = messages.SessionOpen(
            name=name, actor=actor, scope=scope, on_stale=on_stale, unread=unread, ttl=ttl
        )
        return self._ask(asked, messages.SessionOpenResult)

    def session_close(self, session: str | None = None, *, force: bool = False) -> None:
        self._ask(messages.SessionClose(session=session, force=force), messages.Empty)

    def session_list(self) -> messages.SessionListResult:
        return self._ask(messages.SessionList(), messages.SessionListResult)

    def lease_acquire(
        self, paths: Sequence[str], ttl: float, *, session: str | None = None, wait: float | None = None
    ) -> messages.LeaseAcquireResult:
        """`ttl` and `wait` in seconds."""
        asked = messages.LeaseAcquire(paths=list(paths), ttl=ttl, session=session, wait=wait)
        silence = SILENCE_SECONDS_MAX + (wait or 0.0)
        return self._ask(asked, messages.LeaseAcquireResult, silence=silence)

    def lease_renew(self, lease: str, ttl: float) -> messages.LeaseRenewResult:
        return self._ask(messages.LeaseRenew(lease=lease, ttl=ttl), messages.LeaseRenewResult)

    def lease_release(self, lease: str, *, force: bool = False) -> None:
        self._ask(messages.LeaseRelease(lease=lease, force=force), messages.Empty)

    def lease_list(self) -> messages.LeaseListResult:
        return self._ask(messages.LeaseList(), messages.LeaseListResult)

    def exec_begin(self, command: str, *, session: str | None = None) -> messages.ExecBeginResult:
        """Waits for as long as it takes to record what was changed before."""
        return self._ask(
            messages.ExecBegin(command=command, session=session), messages.ExecBeginResult, silence=None
        )

    def exec_end(self, name: str, status: int) -> messages.ExecEndResult:
        return self._ask(messages.ExecEnd(exec=name, status=status), messages.ExecEndResult, silence=None)

    def blame(self, path: str) -> messages.BlameResult:
        """Which transaction each line came with; for a file with very many versions that takes a while."""
        return self._ask(messages.Blame(path=path), messages.BlameResult)

    # ── Events ────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        *,
        events: Sequence[messages.EventKind] | None = None,
        paths: Sequence[str] | None = None,
        since: int | None = None,
    ) -> Events:
        """Be told what happens, on this connection; `since` begins after that transaction.

        Requests may be made in between. What comes is kept for as long as nobody takes it.
        """
        asked = messages.Subscribe(
            events=None if events is None else list(events),
            paths=None if paths is None else list(paths),
            since=since,
        )
        made = self._ask(asked, messages.SubscribeResult)
        return Events(made.subscription, made.head, self._inbox, self._hear, self.unsubscribe)

    def unsubscribe(self, subscription: int) -> None:
        """What `Events.close` does."""
        self._ask(messages.Unsubscribe(subscription=subscription), messages.Empty)

    def _hear(self, seconds: float | None) -> None:
        """Wait for something to come, so long at most. Raises Unreachable where nothing will."""
        try:
            self._stream.settimeout(seconds)
            self._keep(self._wire.receive(self._receive()))
        except TimeoutError:
            return
        except (Malformed, OSError) as error:
            self.close()
            raise Unreachable(f"The daemon went away while it was listened to: {error}.") from error

    def _keep(self, said: Sequence[Reply | Failure | Event]) -> None:
        for one in said:
            if isinstance(one, Event):
                self._inbox.take(one.params)

    # ── What they are made of ─────────────────────────────────────────────────────────────────

    def _ask(
        self, params: messages.Params, result: type[Result], *, silence: float | None = SILENCE_SECONDS_MAX
    ) -> Result:
        ident, request = self._wire.request(params.method, params)
        try:
            self._stream.settimeout(silence)
            self._stream.sendall(request)
            while True:
                answers = self._wire.receive(self._receive())
                self._keep(answers)
                for answer in answers:
                    if isinstance(answer, Reply) and answer.id == ident:
                        return msgspec.convert(answer.result, result)
                    if isinstance(answer, Failure) and answer.id in (ident, None):
                        error = answer.error
                        raise EditdError(error.code, error.name, error.message, error.data)
        except (Malformed, msgspec.ValidationError, UnicodeEncodeError) as error:
            self.close()
            raise Unreachable(
                f"What came back for `{params.method}` is not understood: {error}.",
                hint="Another version of the daemon may be running: `editctl stop` ends it.",
            ) from error
        except TimeoutError:
            self.close()
            raise Unreachable(f"The daemon has not answered `{params.method}` for {silence:.0f} s.") from None
        except OSError as error:
            self.close()
            raise Unreachable(f"The daemon went away during `{params.method}`: {error.strerror}.") from error

    def _receive(self) -> bytes:
        received = self._stream.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionResetError(0, "it closed the connection")
        return received
