"""The call of a method's function for each request, and the settings and events of the services."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.edits.comparison import TURN_COST_MAX, NeedsComparison, NeedsThread
from editd.engine.access import excluded_paths_of, policy_of
from editd.engine.hooks import hooks_of
from editd.errors import Refused
from editd.review.checks import checks_of
from editd.review.policy import review_policy_of
from editd.server.connection import PendingAnswer
from editd.server.method_table import METHODS
from editd.server.methods import remote

if TYPE_CHECKING:
    from editd.config.schema import Config
    from editd.server.connection import Answer, Calls, ClientState
    from editd.server.methods import Services
    from editd.values.transaction import Transaction
    from editd.wire import messages


class Dispatch:
    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls
        self._functions = {
            kind: partial(
                method.function, services if method.gets == "services" else getattr(services, method.gets)
            )
            for kind, method in METHODS.items()
            if method.needs != "nothing"
        }
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
        services.turn_methods.configure(config.turns)
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
        method = METHODS[type(params)]
        if caller.is_gone and method.is_beginning:
            raise Refused("The connection is closed.")
        if type(params) not in caller.open_methods:
            self._services.gate.check(params, caller)
        if caller.session is not None or getattr(params, "session", None) is not None:
            self._services.sessions.admit(params, caller, method.acts_as)
        queue, function = self._services.queue, self._functions[type(params)]
        turn = queue.comparing
        turn.results, turn.left, turn.is_movable = {}, TURN_COST_MAX, True
        try:
            return function(params, caller)
        except (NeedsComparison, NeedsThread) as need:
            return queue.again(partial(function, params, caller), need)

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
                *self._services.turns.weaker(),
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
