"""The gate: gathers the facts about a connection, and asks the table of permissions about its requests.

Nothing else in the server decides who may call a method. The facts are read when a request needs them. The
line of processes above a client is read once for each connection: a process that loses an ancestor later
stays below it.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from editd.advice import Advice, argument_term, step_term
from editd.config.pin import pin_path, read_pin
from editd.engine import permissions
from editd.engine.commands import Sender
from editd.engine.permissions import PERMISSIONS, has_right, is_owner, lack_of
from editd.errors import PermissionDenied
from editd.review import reviewers
from editd.review.lineage import is_common_ground, launcher_of
from editd.review.reviewers import Candidate
from editd.system.process import is_in_own_namespace, line_above, sees_processes
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.config.schema import Config
    from editd.engine.permissions import AgentRight, Permission
    from editd.engine.sessions import Sessions
    from editd.review.proposals import Proposals
    from editd.server.connection import ClientState
    from editd.store.history import History
    from editd.system.process import Process, ProcessKey
    from editd.values.proposal import ProposalNumber


class Gate:
    def __init__(
        self,
        *,
        has_review_socket: bool,
        sessions: Sessions | None = None,
        history: History | None = None,
        proposals: Proposals | None = None,
    ) -> None:
        """The last three are None for the gate that serves until the history is open."""
        self.has_review_socket = has_review_socket
        self.trusts_elicitation = False  # whether an answer that an MCP client gives for its user decides
        self.sessions = sessions
        self.proposals = proposals
        self._history = history
        self._rights: frozenset[AgentRight] = frozenset()
        self._authors: dict[int, set[int]] = {}  # the proposals of each connection
        self._unlocked: set[int] = set()  # connections that have given the PIN

    def configure(self, config: Config) -> None:
        """Apply the settings of permissions."""
        self._rights = frozenset(config.permissions.agents)
        self.trusts_elicitation = config.review.elicitation == "trusted"

    @property
    def head(self) -> int:
        """The newest transaction, 0 before the history is open."""
        return 0 if self._history is None else int(self._history.head)

    def leave(self, caller: ClientState) -> None:
        """Forget a closed connection."""
        self._authors.pop(caller.number, None)
        self._unlocked.discard(caller.number)

    def unlock(self, caller: ClientState) -> None:
        """Note that the connection has given the PIN."""
        self._unlocked.add(caller.number)

    # ── facts ──

    def facts(self, caller: ClientState) -> permissions.Caller:
        """Return the facts about a connection."""
        agent = self.agent_of(caller)
        return permissions.Caller(
            has_review_socket=self.has_review_socket,
            is_on_review_socket=caller.listener.is_reviewers,
            is_readable=is_readable(caller),
            is_started_by_daemon=is_started_here(caller),
            agent=None if agent is None else agent.program,
            is_agents_session=(
                caller.session is not None
                and self.sessions is not None
                and self.sessions.is_agents(caller.session)
            ),
            has_pin=caller.number in self._unlocked,
            rights=self._rights,
        )

    def is_agent(self, caller: ClientState) -> bool:
        """Return whether an agent uses the connection: by its process, or by the session that it acts in."""
        facts = self.facts(caller)
        return facts.agent is not None or facts.is_agents_session

    def is_walled(self, caller: ClientState) -> bool:
        """Return whether the connection is on the ordinary socket beside a reviewers' socket."""
        return self.has_review_socket and not caller.listener.is_reviewers

    def sender(self, caller: ClientState, params: messages.Params) -> Sender:
        """Return the sender of an edit or an undo, with its permission to take back the work of others."""
        peer = caller.listener.peer
        row = PERMISSIONS[type(params)]
        return Sender(
            None if peer is None else peer.pid,
            is_reviewer=caller.listener.is_reviewers and is_owner(self.facts(caller)),
            refusal=self._refusal(row, params, caller) if row.needs == "plan" else None,
        )

    def weaker(self) -> list[str]:
        """Return the sentence of `status` if the processes of clients cannot be seen."""
        if sees_processes():
            return []
        return ["The processes of clients cannot be seen here: every client of yours counts as the owner."]

    # ── requests ──

    def check(self, params: messages.Params, caller: ClientState) -> None:
        """Raise PermissionDenied if the table closes the request to this connection.

        Note a method that is open to it for good, whatever its options and the state of the workspace.
        """
        row = PERMISSIONS[type(params)]
        needs = row.needs_of(params) if row.options else row.needs
        if needs != "anyone" and is_started_here(caller) and not isinstance(params, messages.Read):
            raise _denied(row, "the daemon has started this program")
        match needs:
            case "owner" | "reviewer" if not isinstance(params, messages.ProposalDecide):
                self._require(row, params, caller)
            case "witness" if self.is_walled(caller):
                raise _denied(
                    row, "this workspace has a separate socket for reviewers", needs_review_socket=True
                )
            case "anyone" | "session" | "plan" if not row.options:
                caller.open_methods.add(type(params))
            case _:
                return  # open, or decided with the object of the request

    def require_owner(self, params: messages.Params, caller: ClientState) -> None:
        """Raise PermissionDenied unless the owner asks. For an object that is not the caller's."""
        self._require(PERMISSIONS[type(params)], params, caller)

    def _require(self, row: Permission, params: messages.Params, caller: ClientState) -> None:
        refusal = self._refusal(row, params, caller)
        if refusal is not None:
            raise refusal

    def _refusal(
        self, row: Permission, params: messages.Params, caller: ClientState
    ) -> PermissionDenied | None:
        """Return the refusal of what only the owner may do; None for the owner, and for a granted right."""
        facts = self.facts(caller)
        lack = lack_of(facts)
        if lack is None or has_right(row, params, facts, caller.session):
            return None
        if getattr(params, "elicited", False) and self.trusts_elicitation and not self.is_walled(caller):
            return None
        return _denied(row, lack, needs_review_socket=self.is_walled(caller))

    # ── reviewers and authors ──

    def note_author(self, number: int, caller: ClientState) -> None:
        """Note that the connection has made a proposal."""
        self._authors.setdefault(caller.number, set()).add(number)

    def check_author(self, number: ProposalNumber, caller: ClientState) -> None:
        """Raise PermissionDenied unless the author of a proposal asks."""
        reviewers.check_author(number, is_author=self._is_author(number, caller))

    def check_proposal_holder(
        self, params: messages.Params, number: ProposalNumber, caller: ClientState
    ) -> None:
        """Raise PermissionDenied unless the author of a proposal or the owner asks."""
        if not self._is_author(number, caller):
            self._require(PERMISSIONS[type(params)], params, caller)

    def _is_author(self, number: ProposalNumber, caller: ClientState) -> bool:
        proposal = self._opened().get(number)
        session = proposal.authorship.session
        opened = None if self.sessions is None else self.sessions.get(session)

        def is_trusted() -> bool:
            return is_owner(self.facts(caller)) or self._is_agents_own(session, caller)

        opened_us = None if opened is None else opened.created_us
        return reviewers.is_author(self._candidate(caller), proposal, opened_us, is_trusted=is_trusted)

    def _is_agents_own(self, session: str | None, caller: ClientState) -> bool:
        """Return whether an agent's hooks use the session, and an agent has started the caller."""
        is_known = self.sessions is not None and session in self.sessions.agents.sessions
        return is_known and self.agent_of(caller) is not None

    def check_reviewer(
        self, params: messages.Params, number: ProposalNumber, caller: ClientState, *, is_elicited: bool
    ) -> None:
        """Raise PermissionDenied if the connection may not decide about the proposal."""
        proposal, row = self._opened().get(number), PERMISSIONS[type(params)]
        if is_elicited:
            reviewers.check_elicited(number, row.needs, is_trusted=self.trusts_elicitation)
        if not is_elicited or self.is_walled(caller):
            self._require(row, params, caller)
        authors = [] if is_elicited else self._opened().store.lines(number)  # an MCP client is kin
        reviewers.check_reviewer(self._candidate(caller), proposal, authors)

    def check_grant(self, session: str | None, caller: ClientState) -> None:
        """Raise PermissionDenied if the connection may not let a session's edits through, or all for None."""
        reviewers.check_grant(self._candidate(caller), session, self.lines_of(session))

    def check_person(self, session: str, caller: ClientState, action: str) -> None:
        """Raise PermissionDenied if the session is the caller's own, or its kin's and the PIN is missing."""
        reviewers.check_person(self._candidate(caller), session, self.lines_of(session), action)

    def _candidate(self, caller: ClientState) -> Candidate:
        return Candidate(
            caller.session, partial(line_of, caller), _is_pin_set,
            self._authors.get(caller.number, ()), caller.number in self._unlocked,
        )  # fmt: skip

    def lines_of(self, session: str | None) -> Iterator[tuple[Process, ...]]:
        """Yield the processes of a session that have proposed what waits; of any, for None."""
        store = self._opened().store
        for proposal in store.open.values():
            if session in (None, proposal.authorship.session):
                yield from store.lines(proposal.number)

    def _opened(self) -> Proposals:
        assert self.proposals is not None, "no request for a proposal is served before they are open"
        return self.proposals

    # ── turns ──

    def check_turn_writer(self, session: str, process: ProcessKey | None, caller: ClientState) -> None:
        """Raise PermissionDenied unless the connection acts in the session whose turn it writes.

        `process` is that of the session's agent, if it is known and runs.
        """
        assert self.sessions is not None, "the sessions are open when a turn is served"
        if self.sessions.get(session) is not None:
            return  # only its own connections are admitted
        is_other = caller.session not in (None, session) or self.is_walled(caller)
        is_foreign = process is not None and not is_below(caller, process)
        if is_other or is_foreign or self._is_persons(session):
            raise PermissionDenied(
                f"Only the session {session!r} may write its turns.",
                hint="Write the turns of your own session.",
                data={"session": session},
            )

    def sees_all_prompts(self, caller: ClientState) -> bool:
        """Return whether the connection may read the prompts of each session, as the owner does."""
        return is_owner(self.facts(caller))

    def sees_prompts(self, session: str, process: ProcessKey | None, caller: ClientState) -> bool:
        """Return whether the connection may read a session's prompts: the owner's, or the session's own."""
        facts = self.facts(caller)
        if is_owner(facts):
            return True
        if facts.is_started_by_daemon or caller.session not in (None, session) or self.sessions is None:
            return False
        if self.sessions.get(session) is not None:
            return self.sessions.is_attached(session, caller.number)
        return not self.is_walled(caller) and process is not None and is_below(caller, process)

    # ── agents ──

    def _is_persons(self, session: str) -> bool:
        """Return whether a session is a person's: open as such, or with work that no hook has announced."""
        assert self.sessions is not None, "the sessions are open when a hook is served"
        assert self._history is not None, "and so is the history"
        opened = self.sessions.get(session)
        if opened is not None:
            return opened.kind == "person"
        is_known = session in self.sessions.agents.sessions
        return not is_known and self._history.index.first_of(session) is not None

    def agent_of(self, caller: ClientState) -> Process | None:
        """Return the nearest agent that has started the program of a connection, or None."""
        agents = {} if self.sessions is None else self.sessions.agents.processes
        if not agents:
            return None
        return next((process for process in line_of(caller) if process.key in agents), None)

    def note_agent(self, session: str | None, pid: int | None, caller: ClientState) -> None:
        """Note the session of an agent and its process, as its own hook or MCP server names them.

        Only an ancestor of the client itself becomes an agent, and never a program that people start agents
        from. An MCP server names no process: its agent is the program that has started it. Raises IoError.
        """
        assert self.sessions is not None, "the sessions are open when a hook is served"
        if self.is_walled(caller) and (session is not None or pid is not None):
            return  # no client on that socket names an agent, but an MCP server there has one
        agents, line = self.sessions.agents, line_of(caller)
        if session is not None and not self._is_persons(session):
            agents.add_session(session, self.head)
        if pid is not None:
            process = next((one for one in line if one.pid == pid), None)
        else:
            process = launcher_of(line) if session is None else None
        if process is not None and not is_common_ground(process):
            agents.add_process(process.key)


def line_of(caller: ClientState) -> tuple[Process, ...]:
    """Return the process of a client and those above it, as they were at the first look."""
    if caller.line is None:
        process = caller.listener.peer_process
        line = () if process is None else line_above(process.pid)
        # Another process may have its number by now: then the holder of the connection is unknown.
        caller.line = line if line and process is not None and line[0].key == process.key else ()
    return caller.line


def is_below(caller: ClientState, process: ProcessKey) -> bool:
    """Return whether the program of a connection is this process, or was started by it."""
    return any(one.key == process for one in line_of(caller))


def is_started_here(caller: ClientState) -> bool:
    """Return whether the daemon has started the program of a connection, such as a check or a hook."""
    if caller.is_started_here is None:
        caller.is_started_here = any(process.pid == os.getpid() for process in line_of(caller))
    return caller.is_started_here


def is_readable(caller: ClientState) -> bool:
    """Return whether the process of a client is visible, and in the daemon's own pid namespace."""
    line = line_of(caller)
    if line and is_in_own_namespace(line[0].pid):
        return True
    return not sees_processes()  # then no process is visible, and `status` says so


def behind_wall(status: messages.StatusResult) -> messages.StatusResult:
    """Return the status for the ordinary socket beside a reviewers' socket: without processes and files."""
    problem = "The configuration has a problem." if status.config.get("problem") else None
    return replace(
        status,
        pid=0,
        agents=[replace(agent, pid=None) for agent in status.agents],
        config={**status.config, "files": [], "problem": problem},
        review_socket=None,
    )


def _is_pin_set() -> bool:
    return read_pin(pin_path()) is not None


def _denied(row: Permission, lack: str, *, needs_review_socket: bool = False) -> PermissionDenied:
    data: dict[str, Any] = {"needs": row.needs}
    if needs_review_socket:
        data["needs_review_socket"] = True
        hint = Advice(step_term("reviewers_socket"))
    else:
        data["needs_pin"] = _is_pin_set()
        hint = Advice("Ask the user. Their own terminal, or ", step_term("unlock"), ", makes it the owner's.")
    if row.needs == "plan":
        hint = Advice(
            "Undo your own session's work",
            argument_term("propose", lead=", or propose this with "),
            ". The user may allow it to agents: `permissions.agents` in the configuration.",
        )
    action = row.action or "change anything"
    return PermissionDenied(f"Only the owner may {action}, and {lack}.", hint=hint, data=data)
