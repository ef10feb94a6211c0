"""The proposals of transactions that were set aside, kept in step with the log of all hosts.

Each host has a proposal of each transaction that was set aside and has no decision. The first decision in
the log holds for all hosts. It settles the proposals of the others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from editd.errors import Refused
from editd.review.planned import Planned
from editd.store.recorded_state import recorded_state
from editd.values.content import Change, FileState
from editd.values.path import WorkspacePath
from editd.values.proposal import Reviewer
from editd.values.transaction import Authorship

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.review.proposals import Proposals
    from editd.store.history import History
    from editd.values.proposal import Proposal

log = logging.getLogger(__name__)

SET_ASIDE = "set aside"  # the rule of such a proposal
_REQUEST = "aside "  # begins the id of its request; the id of the transaction on its host follows


class SetAside:
    """The proposals of one host. Used by the engine's thread."""

    def __init__(self, proposals: Proposals, history: History) -> None:
        self._proposals = proposals
        self._history = history
        self._changes = -1  # of the proposals, when they were read last
        self._known: dict[str, Proposal] = {}  # by the id of the transaction
        self._in_log: set[str] = set()  # the log has a decision about these
        self._refused: set[str] = set()  # these could not become proposals

    def known(self) -> dict[str, Any]:
        """Return what the exchange has to know: the transactions with a proposal, and the decisions."""
        self._read()
        waiting = [origin for origin, one in self._known.items() if not one.is_settled]
        settled = [
            self._decision(origin, one)
            for origin, one in self._known.items()
            if one.is_settled and origin not in self._in_log
        ]
        return {"proposed": waiting + sorted(self._refused), "settled": settled}

    def take(self, news: Mapping[str, Any], host: str) -> None:
        """Make the missing proposals of this host, and settle proposals that another host has settled."""
        for aside in news["asides"]:
            session = aside["session"]
            if session is not None and aside["host"] != host:
                session = f"{session}@{aside['host']}"
            changes = tuple(_change(*one) for one in aside["changes"])
            self._propose(aside["origin"], changes, Authorship(aside["actor"], session, aside["message"]))
        for settled in news["settled"]:
            self._in_log.add(settled["origin"])
            proposal = self._known.get(settled["origin"])
            if proposal is not None and not proposal.is_settled:
                by = Reviewer(settled["actor"], settled["session"], via="log")
                comment = f"{settled['message']} (entry {settled['number']} of {settled['host']})".lstrip()
                self._proposals.settle_elsewhere(proposal.number, settled["state"], by, comment)

    def propose_own(self, transactions: Sequence[int]) -> None:
        """Make a proposal of each transaction of this host that is set aside, with its author."""
        for seq in transactions:
            transaction = self._history.find(seq)
            changes = tuple(
                Change(
                    touch.path, recorded_state(touch.before, self._history),
                    recorded_state(touch.after, self._history), touch.source,
                )
                for touch in transaction.touches
                if not self._history.leaves_out(touch)
            )  # fmt: skip
            arrival, author = transaction.authorship.arrival, transaction.authorship
            origin = transaction.id if arrival is None or arrival.origin is None else arrival.origin
            self._propose(origin, changes, Authorship(author.actor, author.session, author.message))

    def _propose(self, origin: str, changes: tuple[Change[FileState], ...], authorship: Authorship) -> None:
        self._read()
        if origin in self._known:
            return
        author = Authorship(authorship.actor, authorship.session, authorship.message, _REQUEST + origin)
        try:
            self._proposals.propose(Planned(changes, author, None, SET_ASIDE, origin))
        except Refused as refusal:
            self._refused.add(origin)
            log.error("no proposal of the transaction %s could be made: %s", origin, refusal.text())

    def _read(self) -> None:
        if self._changes == self._proposals.changes:
            return
        changes, found = self._proposals.changes, self._proposals.store.of_requests(_REQUEST)
        self._changes = changes
        self._known = {request.removeprefix(_REQUEST): proposal for request, proposal in found}
        self._refused.clear()

    def _decision(self, origin: str, proposal: Proposal) -> list[Any]:
        last = self._proposals.store.decisions(proposal.number)[-1]
        return [origin, proposal.state, last.by.actor, last.by.session, last.comment, last.time_us]


def _change(frame: Sequence[Any], content_before: bytes | None) -> Change[FileState]:
    """Return a change of the exchange with both of its contents."""
    path, before, after, content_after, source = frame
    return Change(
        WorkspacePath.parse(path),
        None if before is None or content_before is None else FileState(content_before, before[0]),
        None if after is None else FileState(content_after, after[0], after[1]),
        None if source is None else WorkspacePath.parse(source),
    )
