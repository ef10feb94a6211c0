"""The agents of a workspace: the processes and the sessions of programs that act for a person.

A hook or an MCP server introduces its agent. The entries survive a restart of the daemon, because the agent
does, too. The oldest are evicted: a process ends, and a forgotten session has nothing to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from editd.store.session_store import SessionStore

AGENTS_MAX = 1000  # sessions, and as many processes


class AgentRegistry:
    def __init__(self, registry: SessionStore) -> None:
        """Load the agents of the previous daemon."""
        self._registry = registry
        self.sessions = dict(registry.agent_sessions)  # the newest transaction before each, the oldest first
        self.processes = dict.fromkeys(registry.agent_processes)  # by pid and start, the oldest first

    def add_session(self, name: str, head: int) -> None:
        """Note that a session is an agent's; durable on return. Raises IoError.

        Its work comes after transaction `head`: it proves nothing about older work under the same name.
        """
        if name in self.sessions:
            return
        self._registry.put_agent_session(name, head)
        self.sessions[name] = head
        if len(self.sessions) > AGENTS_MAX:
            oldest = next(iter(self.sessions))
            self._registry.drop_agent_session(oldest)
            del self.sessions[oldest]

    def add_process(self, key: tuple[int, int]) -> None:
        """Note that a process is an agent's, by its pid and start; durable on return. Raises IoError."""
        if key in self.processes:
            return
        self._registry.put_agent_process(key)
        self.processes[key] = None
        if len(self.processes) > AGENTS_MAX:
            oldest = next(iter(self.processes))
            self._registry.drop_agent_process(oldest)
            del self.processes[oldest]
