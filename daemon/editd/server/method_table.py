"""The registry of the methods: the function of each, its permission, and what it needs.

A function gets the services, or the one service that its row names, the parameters and the state of the
client. A method without a row does not start the daemon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from editd.engine.permissions import PERMISSIONS, Permission
from editd.server.methods import (
    Configuration,
    check,
    files,
    history,
    life,
    oversight,
    publish,
    remote,
    session_list,
    transaction_log,
    turn_list,
    why,
)
from editd.server.methods.documents import DocumentMethods
from editd.server.methods.exec_spans import ExecMethods
from editd.server.methods.leases import LeaseMethods
from editd.server.methods.proposals import ProposalMethods
from editd.server.methods.sessions import SessionMethods
from editd.server.methods.turns import TurnMethods
from editd.server.refusals import Refusals
from editd.server.subscriptions import Subscriptions
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from editd.server.connection import Answer, ClientState
    from editd.server.methods.sessions import ActsAs

Function: TypeAlias = "Callable[[Any, Any, ClientState], Answer]"

Service = Literal[
    "services",  # all of them
    "life",  # the daemon itself
    "configuration", "documents", "leases", "proposals", "refusals", "sessions", "spans", "subscriptions",
    "turn_methods",
]  # fmt: skip

Need = Literal[
    "nothing",  # served at every moment
    "files",  # the history of the files that the request names, so not the end of the first scan
    "history",  # the whole history
]


class MethodRow(Struct, frozen=True):
    """A method of the protocol."""

    function: Function
    permission: Permission
    gets: Service = "services"  # the first argument of the function
    needs: Need = "history"
    acts_as: ActsAs = "own"
    is_beginning: bool = False  # it begins a thing that ends with its connection


def _row(
    kind: type[messages.Params], function: Function, **facts: Any
) -> tuple[type[messages.Params], MethodRow]:
    return kind, MethodRow(function, PERMISSIONS[kind], **facts)


METHODS: dict[type[messages.Params], MethodRow] = dict([
    _row(messages.Hello, life.hello, gets="life", needs="nothing"),
    _row(messages.Status, life.status, gets="life", needs="nothing"),
    _row(messages.Shutdown, life.shutdown, gets="life", needs="nothing"),
    _row(messages.Dialects, files.dialects, needs="files"),
    _row(messages.Read, files.read, needs="files", acts_as="named"),
    _row(messages.Stat, files.stat, needs="files"),
    _row(messages.Settle, files.settle),
    _row(messages.Diff, files.diff),
    _row(messages.HooksRun, files.run_hooks),
    _row(messages.Apply, files.apply, needs="files", acts_as="named"),
    _row(messages.Begin, files.begin, needs="files", acts_as="named", is_beginning=True),
    _row(messages.Stage, files.stage, needs="files"),
    _row(messages.Commit, files.commit, needs="files"),
    _row(messages.Abort, files.abort, needs="files", acts_as="none"),
    _row(messages.Undo, history.undo, needs="files"),
    _row(messages.Redo, history.redo, needs="files", acts_as="named"),
    _row(messages.Rollback, history.rollback, needs="files"),
    _row(messages.Restore, history.restore, acts_as="named"),
    _row(messages.Log, transaction_log.log, needs="files"),
    _row(messages.LogCount, transaction_log.log_count),
    _row(messages.LogRefusals, Refusals.latest, gets="refusals"),
    _row(messages.Show, history.show, needs="files"),
    _row(messages.Blame, history.blame),
    _row(messages.Why, why.why),
    _row(messages.SessionList, session_list.session_list, needs="files"),
    _row(messages.SessionPause, oversight.pause),
    _row(messages.SessionResume, oversight.resume),
    _row(messages.ReviewMark, oversight.mark),
    _row(messages.Gc, history.gc),
    _row(messages.Forget, history.forget),
    _row(messages.Publish, publish.publish),
    _row(messages.Check, check.check),
    _row(messages.ProposalList, ProposalMethods.list_proposals, gets="proposals"),
    _row(messages.ProposalGet, ProposalMethods.get, gets="proposals"),
    _row(messages.ProposalApprove, ProposalMethods.approve, gets="proposals"),
    _row(messages.ProposalReject, ProposalMethods.reject, gets="proposals"),
    _row(messages.ProposalDecide, ProposalMethods.decide, gets="proposals"),
    _row(messages.ProposalWait, ProposalMethods.wait, gets="proposals"),
    _row(messages.ProposalComment, ProposalMethods.comment, gets="proposals"),
    _row(messages.ProposalSubmit, ProposalMethods.submit_draft, gets="proposals"),
    _row(messages.ProposalWithdraw, ProposalMethods.withdraw, gets="proposals"),
    _row(messages.ProposalReopen, ProposalMethods.reopen, gets="proposals"),
    _row(messages.ProposalCheck, ProposalMethods.check, gets="proposals"),
    _row(messages.ReviewAllow, ProposalMethods.allow, gets="proposals"),
    _row(messages.ReviewGrants, ProposalMethods.grants, gets="proposals"),
    _row(messages.ReviewRevoke, ProposalMethods.revoke, gets="proposals"),
    _row(messages.ReviewUnlock, ProposalMethods.unlock, gets="proposals"),
    _row(messages.SessionOpen, SessionMethods.open, gets="sessions", needs="files", is_beginning=True),
    _row(messages.SessionClose, SessionMethods.close, gets="sessions", needs="files"),
    _row(messages.ExecBegin, ExecMethods.begin, gets="spans", acts_as="named", is_beginning=True),
    _row(messages.ExecAsk, ExecMethods.ask, gets="spans", acts_as="named"),
    _row(messages.ExecEnd, ExecMethods.end, gets="spans", acts_as="named"),
    _row(messages.Claim, ExecMethods.claim, gets="spans", acts_as="named"),
    _row(messages.Seen, ExecMethods.seen, gets="spans", acts_as="named"),
    _row(messages.TurnBegin, TurnMethods.begin, gets="turn_methods", acts_as="named"),
    _row(messages.TurnNote, TurnMethods.note, gets="turn_methods", acts_as="named"),
    _row(messages.TurnEnd, TurnMethods.end, gets="turn_methods", acts_as="named"),
    _row(messages.Turns, turn_list.turns),
    _row(
        messages.LeaseAcquire, LeaseMethods.acquire, gets="leases", needs="files", acts_as="named",
        is_beginning=True,
    ),
    _row(messages.LeaseRenew, LeaseMethods.renew, gets="leases", needs="files"),
    _row(messages.LeaseRelease, LeaseMethods.release, gets="leases", needs="files"),
    _row(messages.LeaseList, LeaseMethods.list_leases, gets="leases", needs="files"),
    _row(messages.Subscribe, Subscriptions.subscribe, gets="subscriptions", needs="files", is_beginning=True),
    _row(messages.Unsubscribe, Subscriptions.unsubscribe, gets="subscriptions", needs="files"),
    _row(messages.DocumentHold, DocumentMethods.hold, gets="documents", needs="files", is_beginning=True),
    _row(messages.DocumentRelease, DocumentMethods.release, gets="documents", needs="files", acts_as="none"),
    _row(messages.DocumentList, DocumentMethods.list_documents, gets="documents", needs="files"),
    _row(messages.RemoteInit, remote.init),
    _row(messages.RemoteJoin, remote.join),
    _row(messages.RemoteStatus, remote.status),
    _row(messages.RemoteNow, remote.now),
    _row(messages.RemoteLand, remote.land),
    _row(messages.RemotePause, remote.pause),
    _row(messages.RemoteResume, remote.resume),
    _row(messages.RemoteRepair, remote.repair),
    _row(messages.RemoteLeave, remote.leave),
    _row(messages.ConfigReload, Configuration.reload_now, gets="configuration", needs="files"),
])  # fmt: skip


def verify_methods(rows: Container[type[messages.Params]] = METHODS) -> None:
    """Raise LookupError if a method has no row. Called when the daemon starts."""
    if missing := sorted(kind.method for kind in messages.REQUESTS.values() if kind not in rows):
        raise LookupError(f"methods without a row in the registry: {', '.join(missing)}")
