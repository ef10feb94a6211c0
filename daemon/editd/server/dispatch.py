"""The table of the methods, and the call of a handler for each request."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from editd.edits.comparison import TURN_COST_MAX, NeedsComparison, NeedsThread
from editd.engine.access import excluded_paths_of, policy_of
from editd.engine.hooks import hooks_of
from editd.errors import Refused
from editd.review.checks import checks_of
from editd.review.policy import review_policy_of
from editd.server.connection import PendingAnswer
from editd.server.methods import (
    check,
    files,
    history,
    oversight,
    publish,
    remote,
    session_list,
    transaction_log,
)
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.config.schema import Config
    from editd.server.connection import Answer, Calls, ClientState
    from editd.server.methods import Services
    from editd.values.transaction import Transaction

Function: TypeAlias = "Callable[[Services, Any, ClientState], Answer]"

METHODS: dict[type[messages.Params], Function] = {
    messages.Dialects: files.dialects,
    messages.Read: files.read,
    messages.Stat: files.stat,
    messages.Settle: files.settle,
    messages.Diff: files.diff,
    messages.HooksRun: files.run_hooks,
    messages.Apply: files.apply,
    messages.Begin: files.begin,
    messages.Stage: files.stage,
    messages.Commit: files.commit,
    messages.Abort: files.abort,
    messages.Undo: history.undo,
    messages.Redo: history.redo,
    messages.Rollback: history.rollback,
    messages.Restore: history.restore,
    messages.Log: transaction_log.log,
    messages.LogCount: transaction_log.log_count,
    messages.LogRefusals: lambda services, params, _caller: services.refusals.latest(params),
    messages.Show: history.show,
    messages.Blame: history.blame,
    messages.SessionList: session_list.session_list,
    messages.SessionPause: oversight.pause,
    messages.SessionResume: oversight.resume,
    messages.ReviewMark: oversight.mark,
    messages.Gc: history.gc,
    messages.Forget: history.forget,
    messages.Publish: publish.publish,
    messages.Check: check.check,
    messages.ProposalList: lambda services, params, caller: services.proposals.list_proposals(params, caller),
    messages.ProposalGet: lambda services, params, caller: services.proposals.get(params, caller),
    messages.ProposalApprove: lambda services, params, caller: services.proposals.approve(params, caller),
    messages.ProposalReject: lambda services, params, caller: services.proposals.reject(params, caller),
    messages.ProposalDecide: lambda services, params, caller: services.proposals.decide(params, caller),
    messages.ProposalWait: lambda services, params, caller: services.proposals.wait(params, caller),
    messages.ProposalComment: lambda services, params, caller: services.proposals.comment(params, caller),
    messages.ProposalSubmit: lambda services, params, caller: services.proposals.submit_draft(params, caller),
    messages.ProposalWithdraw: lambda services, params, caller: services.proposals.withdraw(params, caller),
    messages.ProposalReopen: lambda services, params, caller: services.proposals.reopen(params, caller),
    messages.ProposalCheck: lambda services, params, caller: services.proposals.check(params, caller),
    messages.ReviewAllow: lambda services, params, caller: services.proposals.allow(params, caller),
    messages.ReviewGrants: lambda services, params, caller: services.proposals.grants(params, caller),
    messages.ReviewRevoke: lambda services, params, caller: services.proposals.revoke(params, caller),
    messages.ReviewUnlock: lambda services, params, caller: services.proposals.unlock(params, caller),
    messages.SessionOpen: lambda services, params, caller: services.sessions.open(params, caller),
    messages.SessionClose: lambda services, params, caller: services.sessions.close(params, caller),
    messages.ExecBegin: lambda services, params, caller: services.spans.begin(params, caller),
    messages.ExecAsk: lambda services, params, caller: services.spans.ask(params, caller),
    messages.ExecEnd: lambda services, params, caller: services.spans.end(params, caller),
    messages.Claim: lambda services, params, caller: services.spans.claim(params, caller),
    messages.Seen: lambda services, params, caller: services.spans.seen(params, caller),
    messages.LeaseAcquire: lambda services, params, caller: services.leases.acquire(params, caller),
    messages.LeaseRenew: lambda services, params, caller: services.leases.renew(params, caller),
    messages.LeaseRelease: lambda services, params, caller: services.leases.release(params, caller),
    messages.LeaseList: lambda services, params, caller: services.leases.list_leases(params, caller),
    messages.Subscribe: lambda services, params, caller: services.subscriptions.subscribe(params, caller),
    messages.Unsubscribe: lambda services, params, caller: services.subscriptions.unsubscribe(params, caller),
    messages.DocumentHold: lambda services, params, caller: services.documents.hold(params, caller),
    messages.DocumentRelease: lambda services, params, caller: services.documents.release(params, caller),
    messages.DocumentList: lambda services, params, caller: services.documents.list_documents(params, caller),
    messages.RemoteInit: remote.init,
    messages.RemoteJoin: remote.join,
    messages.RemoteStatus: remote.status,
    messages.RemoteNow: remote.now,
    messages.RemoteLand: remote.land,
    messages.RemotePause: remote.pause,
    messages.RemoteResume: remote.resume,
    messages.RemoteRepair: remote.repair,
    messages.RemoteLeave: remote.leave,
    messages.ConfigReload: lambda services, params, caller: services.configuration.reload_now(params, caller),
}

# Requests that begin something that ends with its connection.
BEGINNING = (
    messages.Begin, messages.Subscribe, messages.ExecBegin, messages.SessionOpen, messages.LeaseAcquire,
    messages.DocumentHold,
)  # fmt: skip


class Dispatch:
    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls
        services.engine.recorder.on_recorded.append(self._recorded)

    def configure(self, config: Config) -> None:
        """Apply the settings that an open workspace can change while it is served."""
        services = self._services
        services.engine.landing.rules = policy_of(config)
        services.engine.history.excluded.rule = excluded_paths_of(config)
        services.engine.landing.hooks = hooks_of(config)
        services.engine.landing.review = review_policy_of(config)
        services.engine.history.journal.is_relaxed = config.durability == "relaxed"
        services.proposals.configure(config.review)
        services.checks.configure(checks_of(config))
        services.spans.serial_seconds = config.agents.serial or 0.0
        services.retention.review_keep = config.review.keep
        services.retention.exclude_keep = config.history.exclude_keep
        services.retention.keep = config.history.keep
        services.shared_log.configure(config.remote, excluded_paths_of(config))
        services.retention.schedule_check()

    def handle(self, params: messages.Params, caller: ClientState) -> Answer:
        """Call the handler of a request, when the engine is free."""
        if not self._services.queue.is_away:
            return self._handle_now(params, caller)
        answer = PendingAnswer()
        handle = partial(self._handle_now, params, caller)
        self._services.queue.when_idle(lambda: self._calls.carry_out(answer.call, handle))
        return answer

    def _handle_now(self, params: messages.Params, caller: ClientState) -> Answer:
        if caller.is_gone and isinstance(params, BEGINNING):
            raise Refused("The connection is closed.")
        if type(params) not in caller.open_methods:
            self._services.gate.check(params, caller)
        if caller.session is not None or getattr(params, "session", None) is not None:
            self._services.sessions.admit(params, caller)
        queue, method = self._services.queue, METHODS[type(params)]
        turn = queue.comparing
        turn.results, turn.left, turn.is_movable = {}, TURN_COST_MAX, True
        try:
            return method(self._services, params, caller)
        except (NeedsComparison, NeedsThread) as need:
            return queue.again(partial(method, self._services, params, caller), need)

    def refused(self, params: messages.Params, caller: ClientState, refusal: Refused) -> None:
        """Note the refusal of a request."""
        self._services.refusals.note(params, caller, refusal)

    def leave(self, caller: ClientState) -> None:
        """End the state that belongs to a closed connection."""
        self._services.changesets.end_all(caller.number)
        self._services.subscriptions.leave(caller)
        self._services.queue.activity.note()
        self._services.queue.when_idle(lambda: self._leave_now(caller))

    def _leave_now(self, caller: ClientState) -> None:
        self._services.spans.leave(caller)
        self._services.documents.leave(caller)
        self._services.leases.leave(caller)
        self._services.gate.leave(caller)
        self._services.sessions.leave(caller)
        self._services.engine.seen.forget(caller.reader(None))

    def _recorded(self, transaction: Transaction) -> None:
        self._services.queue.activity.note()
        if self._services.subscriptions.by_client:
            self._services.subscriptions.recorded(transaction)
        self._services.watching.recorded(transaction)
        if self._services.proposals.by_path:
            self._services.proposals.recorded(transaction)
        if self._services.shared_log.is_joined:
            self._services.shared_log.recorded(transaction)
        arrival = transaction.authorship.arrival
        if transaction.kind in ("outside", "exec") or arrival is not None:
            self._services.leases.recorded(transaction)
            if arrival is None:
                self._services.spans.recorded(transaction)

    def status(self, daemon: messages.StatusResult) -> messages.StatusResult:
        """Return the status of the daemon alone with the workspace's status added."""
        engine, scanner = self._services.engine, self._services.scanner
        history = engine.history
        broken = engine.recorder.broken or engine.recorder.absence()
        return replace(
            daemon,
            head=history.head,
            state=daemon.state if broken is None else "broken",
            reason=None if broken is None else broken.text(),
            sessions=len(self._services.guard.sessions),
            leases=len(self._services.guard.leases),
            proposals=self._services.proposals.count,
            journal={
                "bytes": history.journal.bytes,
                "unpacked": history.head - history.packed,
                "unflushed": max(0, history.head - max(engine.recorder.synced, 0)),
            },
            history=self._services.retention.status(),
            remote=remote.state_of(self._services.shared_log),
            hooks=self._services.hooker.status(engine.landing.hooks),
            weaker=[
                *daemon.weaker, *history.weaker(), *engine.seen.weaker(), *self._services.proposals.weaker(),
                *self._services.hooker.weaker(), *self._services.checks.weaker(),
            ],
            agents=self._services.spans.agents(),
            documents=len(self._services.documents.held),
            notices=[*daemon.notices, *scanner.rates.notices()],
            uncovered=[
                *scanner.uncovered, *scanner.unrecorded, *daemon.uncovered,
                *engine.recorder.hidden.descriptions(),
                *engine.recorder.hidden.inner.descriptions(scanner.inner),
            ],
        )  # fmt: skip
