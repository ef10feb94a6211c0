"""The methods of the wire, by family; the services that they get, among them the configuration in force.

A handler gets the `Services` that it needs, the parameters and the state of the client. It returns the
result, an awaitable of the result, or a `PendingAnswer`. It is called when the engine is free, and has it
until it returns or awaits. From then on it uses `EngineQueue.run`.

A wrong file changes nothing: the old configuration stays, and `status` shows the problem.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.config.load import ConfigError, config_path, keys, read_config, value_of, workspace_config_path
from editd.runs.reach import CommandReach
from editd.wire import messages

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from editd.config.schema import Config, HookKeys, ReviewCheckKeys
    from editd.engine.access import AccessControl
    from editd.engine.changesets import Changesets
    from editd.engine.engine import Engine
    from editd.engine.queries import Queries
    from editd.engine.turns import SessionTurns
    from editd.server.check_runner import CheckRunner
    from editd.server.connection import ClientState
    from editd.server.content_removal import ContentRemoval
    from editd.server.engine_queue import EngineQueue
    from editd.server.gate import Gate
    from editd.server.hook_runner import HookRunner
    from editd.server.lenders import Lenders
    from editd.server.maintenance import Maintenance
    from editd.server.methods.documents import DocumentMethods
    from editd.server.methods.exec_spans import ExecMethods
    from editd.server.methods.leases import LeaseMethods
    from editd.server.methods.proposals import ProposalMethods
    from editd.server.methods.sessions import SessionMethods
    from editd.server.methods.turns import TurnMethods
    from editd.server.refusals import Refusals
    from editd.server.regex_pool import RegexPool
    from editd.server.retention import Retention
    from editd.server.scanner import Scanner
    from editd.server.shared_log import SharedLog
    from editd.server.subscriptions import Subscriptions
    from editd.server.watcher import WorkspaceWatcher

log = logging.getLogger(__name__)

RELAXED = (
    'durability = "relaxed": an edit is answered before it is synced, so a power cut may cost the edits of '
    "the last second."
)


class Configuration:
    def __init__(self, config: Config, workspace: str) -> None:
        """`config` is the configuration of the workspace with this id."""
        self.config = config
        self._workspace = workspace
        self._problem: str | None = None
        self._waiting: list[str] = []
        self._takers: list[Callable[[Config], None]] = []

    def take(self, taker: Callable[[Config], None]) -> None:
        """Call `taker` with the configuration, now and whenever it changes."""
        self._takers.append(taker)
        taker(self.config)

    def reload(self) -> tuple[list[str], list[str]]:
        """Read the configuration again; return the keys now in force, and the keys that wait for a restart.

        Raises ConfigError.
        """
        try:
            config = read_config(self._workspace).config
        except ConfigError as wrong:
            self._problem = wrong.message
            log.error("the configuration is unchanged: %s", wrong.message)
            raise
        self._problem = None
        changed = [key for key in keys() if value_of(config, key.name) != value_of(self.config, key.name)]
        applied = [key.name for key in changed if not key.needs_restart]
        # Such a key was read at the start and is not read again.
        self._waiting = sorted({*self._waiting, *(key.name for key in changed if key.needs_restart)})
        self.config = config
        for taker in self._takers:
            taker(config)
        log.info("the configuration is reloaded: %s", ", ".join(key.name for key in changed) or "no change")
        return applied, self._waiting

    def reload_quietly(self) -> None:
        """Reload on a signal: the log and `status` show a failure."""
        try:
            self.reload()
        except ConfigError:
            return  # already logged

    def weaker(self) -> list[str]:
        """Return sentences on the guarantees that the configuration gives up."""
        sentences = [RELAXED] if self.config.durability == "relaxed" else []
        entries: list[tuple[str, HookKeys | ReviewCheckKeys]] = [
            (f"hook {one.name!r}", one) for one in self.config.hook
        ]
        entries += [(f"check {one.name!r}", one) for one in self.config.review.check]
        sentences += [
            f"The {name} has neither `writable` nor `network`, so it may write wherever you can, and connect."
            for name, one in entries
            if CommandReach.of(one.writable, one.network, one.unix_sockets) is None
        ]
        return sentences

    def status(self) -> dict[str, Any]:
        return {
            "files": [config_path(), workspace_config_path(self._workspace)],
            "problem": self._problem,
            "restart": self._waiting,
        }

    def reload_now(self, _params: messages.ConfigReload, _caller: ClientState) -> messages.ConfigReloadResult:
        applied, restart = self.reload()
        return messages.ConfigReloadResult(applied=applied, restart=restart)


class Services(Struct):
    """The daemon's services, once its workspace is open."""

    root: str  # the workspace's real path
    fallback_encoding: str | None
    engine: Engine
    queue: EngineQueue
    queries: Queries
    guard: AccessControl
    background: Maintenance
    retention: Retention
    removal: ContentRemoval
    lenders: Lenders
    scanner: Scanner
    watching: WorkspaceWatcher
    searcher: RegexPool
    shared_log: SharedLog
    hooker: HookRunner
    checks: CheckRunner
    configuration: Configuration
    subscriptions: Subscriptions
    gate: Gate
    sessions: SessionMethods
    leases: LeaseMethods
    proposals: ProposalMethods
    documents: DocumentMethods
    spans: ExecMethods
    turns: SessionTurns
    turn_methods: TurnMethods
    changesets: Changesets
    publishing: asyncio.Lock  # one publish at a time
    refusals: Refusals
