"""The workspace of an MCP client, and the session of each of its calls.

The session is the first of these that exists:

1. the session that `--session` or the environment names
2. the agent's own, as its hooks name it, if each call says it (`_meta.sessionId`, as Codex does)
3. the only one that the process which started this server has named in its hooks, at the first call
4. a new one of this connection, named after the client

Each session has its connection pool. Nobody opens the sessions of 2 and 3: their hooks act in them by
name. For any thread, once `introduce` and `choose` have run.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from editd_client.agents import ID_LENGTH, NAMES
from editd_client.connect import covering
from editd_client.errors import EditdError, Unreachable
from editd_client.handles import hosts_of, is_in_namespace_of
from editd_client.locate import Workspace, find_workspace
from editd_client.mcp.connection_pool import ConnectionPool, SessionClaim

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.wire.messages import AgentEntry
    from editd_client.mcp import Options

NAME_CHARACTERS_MAX = 100
CLIENT_SUFFIX = "-mcp-client"
NOBODY = "mcp"  # the session of a client without a name


class ClientSessions:
    """One client, with its pools of connections to the daemon from its first call on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = ""
        self._workspace: Workspace | None = None
        self._own: ConnectionPool | None = None
        self._shared: dict[str, ConnectionPool] = {}  # by session
        self._of_host: AgentEntry | None = None  # the session of 3, once it is known
        self._lock = threading.Lock()

    @property
    def client(self) -> str:
        """The client's name in the form of a session's."""
        return self._client or NOBODY

    @property
    def needs_roots(self) -> bool:
        """Whether the workspace is still to be chosen, and the client's roots count."""
        return self._workspace is None and not is_named(self._options.workspace)

    def introduce(self, name: str) -> None:
        """Note the client's name; only the first one counts."""
        self._client = self._client or _readable(name)

    def choose(self, roots: Sequence[str]) -> None:
        """Choose the workspace, once. Raises EditdError for a folder that editd refuses to own."""
        if self._workspace is None:
            self._workspace = choose_workspace(self._options.workspace, roots)

    def announce(self) -> None:
        """Let commands in the agent's shell act in the session, even before the first call opens it."""
        with self._lock:
            self._own_pool()

    def pool(self, session_id: str | None) -> ConnectionPool:
        """Return the connections of the session of a call, whose client may name its session by an id."""
        with self._lock:
            if self._options.session is None:
                if session_id and self.client in NAMES:
                    return self._shared_pool(f"{self.client}-{session_id[-ID_LENGTH:]}", self.client)
                if self._of_host is None and not self._own_pool().is_open():
                    self._of_host = self._agent_of_host()
                if self._of_host is not None:
                    return self._shared_pool(self._of_host.session, self._of_host.name)
            return self._own_pool()

    def close(self) -> None:
        """Close the session that was opened here: its leases end, and its work stays."""
        for pool in (self._own, *self._shared.values()):
            if pool is not None:
                pool.close()

    def _own_pool(self) -> ConnectionPool:
        if self._own is None:
            assert self._workspace is not None, "`choose` comes first"
            options = self._options
            claim = SessionClaim(
                options.session or self.client, is_exact=options.session is not None, token=options.token
            )
            self._own = ConnectionPool(self._workspace, claim, self.client)
            self._own.announce()
        return self._own

    def _shared_pool(self, session: str, actor: str) -> ConnectionPool:
        """Return the pool of a session that the agent's hooks name, which commands in its shell join."""
        if session not in self._shared:
            assert self._workspace is not None, "`choose` comes first"
            pool = ConnectionPool(self._workspace, SessionClaim(session, is_shared=True), actor)
            if self._own is None or not self._own.is_open():
                pool.announce()
            self._shared[session] = pool
        return self._shared[session]

    def _agent_of_host(self) -> AgentEntry | None:
        """Return the agent of the only session that the process which started this server has named."""
        hosts = {process.pid for process in hosts_of(os.getppid())}
        if not hosts:
            return None
        with contextlib.suppress(EditdError, Unreachable):  # The call itself will report it.
            status = self._own_pool().status()
            if is_in_namespace_of(status.pid):
                named = [agent for agent in status.agents if agent.pid in hosts]
                return named[0] if len(named) == 1 else None
        return None


def session_id_in(meta: Mapping[str, object] | None) -> str | None:
    """Return the id of the agent's session in the `_meta` of a call, or None."""
    session = (meta or {}).get("sessionId")
    return _plain(session) or None if isinstance(session, str) else None


def _readable(name: str) -> str:
    """Return a client's name in the form of a session's name, without the words that every client has."""
    return _plain(name).removesuffix(CLIENT_SUFFIX)[:NAME_CHARACTERS_MAX]


def _plain(name: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "", name).strip()


# ── The workspace ─────────────────────────────────────────────────────────────────────────────


def is_named(named: str | None) -> bool:
    """Whether the command line or the environment names it, so that the client's roots do not matter."""
    return bool(named or os.environ.get("EDITD_WORKSPACE"))


def choose_workspace(named: str | None, roots: Sequence[str]) -> Workspace:
    """Return the named workspace, otherwise of the client's root, otherwise of the current folder.

    With several roots, choose the current folder's workspace if it holds a root, otherwise the first
    root's. Raises EditdError for a folder that editd refuses to own.
    """
    if is_named(named):
        return covering(find_workspace(named), named or os.environ.get("EDITD_WORKSPACE"))
    folders = [folder for root in roots if (folder := _folder(root)) is not None]
    if not folders:
        return covering(find_workspace(), None)
    meant = [covering(find_workspace(start=folder), folder) for folder in folders]
    try:
        here = covering(find_workspace(), None)
    except EditdError:
        return meant[0]
    return here if len(meant) > 1 and any(workspace.root == here.root for workspace in meant) else meant[0]


def _folder(uri: str) -> str | None:
    """Return the folder that a root's URI names; None if that is no folder on this machine."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    path = os.fsdecode(unquote(parts.path, errors="surrogateescape").encode("utf-8", "surrogateescape"))
    return path if os.path.isdir(path) else None
