"""The table of permissions: the class that each method needs, and each option that changes its reach. Pure.

    anyone     every connection of the user
    session    a connection that may act in the session of the request
    witness    the same; beside a reviewers' socket, only a connection on that socket
    author     the author of the proposal alone
    holder     a connection of the session that has the lease, the proposal or the session, or the owner
    plan       decided by the plan: the request's own session has made what is taken back, or the owner asks
    owner      the owner of the workspace
    reviewer   the owner, but not the author; the kin of the author's process only with the PIN

`Caller` holds the facts about a connection, and `is_owner` is the one definition of the owner. The server
asks before it calls a handler, and the engine asks with the plan. A method without a row is closed: the
daemon does not start.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Mapping

Need = Literal["anyone", "session", "witness", "author", "holder", "plan", "owner", "reviewer"]
AgentRight = Literal["publish", "undo_others", "review"]

# Lines that git and its hosts take for the word of a person (git-interpret-trailers(1)).
_TRAILER = re.compile(r"^\s*[A-Za-z-]+-(by|session)\s*:", re.MULTILINE | re.IGNORECASE)


class Caller(Struct, frozen=True):
    """The facts about a connection that decide whether it is the owner's."""

    has_review_socket: bool = False  # the workspace has a reviewers' socket
    is_on_review_socket: bool = False
    is_readable: bool = (
        True  # its process, and those above it, are visible, in the daemon's own pid namespace
    )
    is_started_by_daemon: bool = False  # a check of proposed code, or a hook
    agent: str | None = None  # the program of the agent that started its process
    is_agents_session: bool = False  # it acts in the session of an agent
    has_pin: bool = False  # it has given the user's PIN
    rights: frozenset[AgentRight] = frozenset()  # of agents' sessions, by the user's configuration

    @property
    def is_walled(self) -> bool:
        """Whether it is on the ordinary socket beside a reviewers' socket."""
        return self.has_review_socket and not self.is_on_review_socket


@lru_cache(maxsize=256)  # the facts of a connection rarely change
def lack_of(caller: Caller) -> str | None:
    """Return why a connection is not the owner's, as the end of a sentence; None for the owner."""
    if caller.is_started_by_daemon:
        return "the daemon has started this program"
    if caller.is_walled:
        return "this workspace has a separate socket for reviewers"
    if caller.has_pin:
        return None
    if caller.is_agents_session:
        return "this connection acts in the session of an agent"
    if caller.agent is not None:
        return f"the agent {caller.agent} has started this program"
    if not caller.is_readable and not caller.is_on_review_socket:
        return "the daemon cannot see the process of this client"
    return None


def is_owner(caller: Caller) -> bool:
    """Return whether a connection is the owner's."""
    return lack_of(caller) is None


class Option(Struct, frozen=True):
    """The value of an option that changes the class of its method."""

    name: str
    value: Any
    needs: Need


class Permission(Struct, frozen=True):
    """The class that a method needs, with the reason. The first option that the request has decides."""

    needs: Need
    reason: str
    options: tuple[Option, ...] = ()
    right: AgentRight | None = None  # that lets an agent's session do it, too
    action: str = ""  # the end of the sentence "only the owner may …"

    def needs_of(self, params: messages.Params) -> Need:
        """Return the class that a request needs."""
        for option in self.options:
            if getattr(params, option.name, None) == option.value:
                return option.needs
        return self.needs


def has_right(row: Permission, params: messages.Params, caller: Caller, session: str | None) -> bool:
    """Return whether the configuration gives the right of this row to an agent in its `session`.

    An agent publishes the work of its own session alone, and in the name of no person.
    """
    if row.right not in caller.rights or caller.is_walled or caller.is_started_by_daemon:
        return False
    if not isinstance(params, messages.Publish):
        return True
    is_own = session is not None and params.session == session
    names_nobody = params.author is None and _TRAILER.search(params.message) is None
    return is_own and names_nobody and params.from_ is None and params.to is None


_DRY = Option("dry_run", True, "anyone")
_DRY_SESSION = Option("dry_run", True, "session")
_READS = "Reads. A read scope limits `read`, not the history: `log`, `show` and `diff` show all paths."
_EDITS = "Edits within the scope of its session. The landing decides about the plan."
_TURNS = "Writes the turns of its own session. Another session's are refused."
_PROMPTS = "Reads. The text of a prompt is for the owner and the turn's own session only."
_RECORDS = "Attributes the changes of other programs to a session."
_DECIDES = "Decides about the work of others."
_DECISION = Permission("reviewer", _DECIDES, right="review", action="decide about a proposal")
_TAKING_BACK = Permission(
    "plan", "Takes work back: for others' work, the owner or a reviewer lands it.",
    right="undo_others", action="take back the work of others",
)  # fmt: skip
_REACHES_OUT = "Starts git, and reaches another machine."

PERMISSIONS: dict[type[messages.Params], Permission] = {
    messages.Hello: Permission("anyone", "Introduces a client. A session needs its token."),
    messages.Status: Permission("anyone", "Reads. Beside a reviewers' socket: no process, no file."),
    messages.Check: Permission(
        "anyone", "Verifies the history.", (Option("repair", True, "owner"),), action="repair the history"
    ),
    messages.Shutdown: Permission("owner", "Ends the daemon for everybody.", action="end the daemon"),
    messages.Dialects: Permission("anyone", _READS),
    messages.Read: Permission("session", "Reads within the scope of its session."),
    messages.Stat: Permission("anyone", _READS),
    messages.Settle: Permission("anyone", "Records what is in the files already."),
    messages.Diff: Permission("anyone", _READS),
    messages.HooksRun: Permission("owner", "Starts the programs of the hooks.", action="run the hooks"),
    messages.Apply: Permission("session", _EDITS),
    messages.Begin: Permission("session", _EDITS),
    messages.Stage: Permission("session", _EDITS),
    messages.Commit: Permission("session", _EDITS),
    messages.Abort: Permission("session", "Ends a changeset of its connection."),
    messages.Undo: _TAKING_BACK,
    messages.Redo: _TAKING_BACK,
    messages.Rollback: _TAKING_BACK,
    messages.Restore: _TAKING_BACK,
    messages.Log: Permission("anyone", _READS),
    messages.LogCount: Permission("anyone", _READS),
    messages.LogRefusals: Permission("anyone", _READS),
    messages.Show: Permission("anyone", _READS),
    messages.Blame: Permission("anyone", _READS),
    messages.Why: Permission("anyone", _PROMPTS),
    messages.SessionList: Permission("anyone", _READS),
    messages.SessionOpen: Permission("anyone", "Opens a session under a name that is free."),
    messages.SessionClose: Permission("holder", "Ends a session.", action="end another's session"),
    messages.SessionPause: Permission("reviewer", "Stops the work of others.", action="pause a session"),
    messages.SessionResume: Permission("reviewer", "Ends a pause.", action="resume a session"),
    messages.LeaseAcquire: Permission("session", "Leases paths within the scope of its session."),
    messages.LeaseRenew: Permission("session", "Extends a lease of its session."),
    messages.LeaseRelease: Permission("holder", "Ends a lease.", action="end the lease of another session"),
    messages.LeaseList: Permission("anyone", _READS),
    messages.DocumentHold: Permission("session", "Holds a text of the connection."),
    messages.DocumentRelease: Permission("session", "Releases a text of the connection."),
    messages.DocumentList: Permission("anyone", _READS),
    messages.ExecBegin: Permission("witness", _RECORDS, action="attribute the changes of other programs"),
    messages.ExecAsk: Permission(
        "witness", "Attributes less to a bracket of its session.", action="change a bracket"
    ),
    messages.ExecEnd: Permission(
        "witness", "Ends a bracket of its session or connection.", action="end a bracket"
    ),
    messages.Claim: Permission("witness", _RECORDS, action="attribute the changes of other programs"),
    messages.TurnBegin: Permission("session", _TURNS),
    messages.TurnNote: Permission("session", _TURNS),
    messages.TurnEnd: Permission("session", _TURNS),
    messages.Turns: Permission("anyone", _PROMPTS),
    messages.Seen: Permission("session", "Notes what its session has read."),
    messages.Subscribe: Permission("anyone", _READS),
    messages.Unsubscribe: Permission("anyone", "Ends a subscription of its connection."),
    messages.Gc: Permission("owner", "Removes history for good.", (_DRY,), action="remove history"),
    messages.Forget: Permission(
        "owner", "Removes contents for good; a dry run searches all.", action="forget contents"
    ),
    messages.Publish: Permission(
        "owner", "Writes to the user's git.", (_DRY,), right="publish", action="publish to git"
    ),
    messages.ConfigReload: Permission("owner", "Changes the daemon.", action="reload the configuration"),
    messages.RemoteInit: Permission("owner", _REACHES_OUT, action="found a shared log"),
    messages.RemoteJoin: Permission("owner", _REACHES_OUT, action="join a shared log"),
    messages.RemoteStatus: Permission("anyone", "Reads. The URL is shown without its password."),
    messages.RemoteNow: Permission("owner", _REACHES_OUT, action="start an exchange"),
    messages.RemoteLand: Permission("anyone", "Waits for the exchange, and starts none."),
    messages.RemotePause: Permission("owner", "Stops the exchange.", action="pause the exchange"),
    messages.RemoteResume: Permission("owner", _REACHES_OUT, action="resume the exchange"),
    messages.RemoteRepair: Permission("owner", _REACHES_OUT, action="repair the shared log"),
    messages.RemoteLeave: Permission("owner", "Ends the exchange.", action="leave the shared log"),
    messages.ProposalList: Permission("anyone", _READS),
    messages.ProposalGet: Permission("anyone", _READS),
    messages.ProposalApprove: Permission(
        "reviewer", _DECIDES, (_DRY,), right="review", action="decide about a proposal"
    ),
    messages.ProposalReject: _DECISION,
    messages.ProposalDecide: _DECISION,
    messages.ProposalWait: Permission("anyone", _READS),
    messages.ProposalComment: Permission("session", "Says something about a proposal, in its own name."),
    messages.ProposalSubmit: Permission("author", "Shows a draft to reviewers."),
    messages.ProposalWithdraw: Permission("author", "Takes a proposal back. A reviewer rejects it."),
    messages.ProposalReopen: Permission("holder", "Proposes again.", action="reopen another's proposal"),
    messages.ProposalCheck: Permission("session", "Reports a check in its own name. No rule counts it."),
    messages.ReviewAllow: Permission("reviewer", _DECIDES, right="review", action="let edits through"),
    messages.ReviewGrants: Permission("anyone", _READS),
    messages.ReviewRevoke: Permission("reviewer", _DECIDES, right="review", action="end a grant"),
    messages.ReviewMark: Permission("reviewer", _DECIDES, right="review", action="mark work as reviewed"),
    messages.ReviewUnlock: Permission(
        "witness", "Gives the PIN, which serves nothing beside a reviewers' socket.", action="give the PIN"
    ),
}


def verify_table(rows: Mapping[type[messages.Params], Permission] = PERMISSIONS) -> None:
    """Raise LookupError if a method has no row, or a row no method. Called when the daemon starts."""
    if missing := sorted(kind.method for kind in messages.REQUESTS.values() if kind not in rows):
        raise LookupError(f"methods without a row in the table of permissions: {', '.join(missing)}")
    if unknown := sorted(kind.method for kind in rows if kind.method not in messages.REQUESTS):
        raise LookupError(f"rows of the table of permissions without a method: {', '.join(unknown)}")
