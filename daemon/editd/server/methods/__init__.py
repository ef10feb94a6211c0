"""The methods of the wire, by family.

A handler gets the `Services` that it needs, the parameters and the state of the client. It returns the
result, an awaitable of the result, or a `PendingAnswer`. It is called when the engine is free, and has it
until it returns or awaits. From then on it uses `EngineQueue.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import asyncio

    from editd.engine.access import AccessControl
    from editd.engine.commands import Changesets
    from editd.engine.engine import Engine
    from editd.engine.queries import Queries
    from editd.server.engine_queue import EngineQueue
    from editd.server.maintenance import Maintenance
    from editd.server.methods.config import Configuration
    from editd.server.methods.leases import LeaseMethods
    from editd.server.methods.sessions import ExecMethods, SessionMethods
    from editd.server.plan_workers import HookRunner, RegexPool
    from editd.server.retention import Retention
    from editd.server.scanner import Scanner
    from editd.server.subscriptions import Subscriptions
    from editd.server.watcher import WorkspaceWatcher


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
    scanner: Scanner
    watching: WorkspaceWatcher
    searcher: RegexPool
    hooker: HookRunner
    configuration: Configuration
    subscriptions: Subscriptions
    sessions: SessionMethods
    leases: LeaseMethods
    spans: ExecMethods
    changesets: Changesets
    publishing: asyncio.Lock  # one publish at a time
