"""Recalled reads: a reconnecting client restores the versions that it had read, to have its edits checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.server import convert
from editd.values.changeset import ReadMark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.engine.access import AccessControl
    from editd.server.dispatch import ClientState
    from editd.server.engine_queue import EngineQueue
    from editd.wire import messages


def restore_reads(
    sightings: Sequence[messages.ReadVersion], caller: ClientState, guard: AccessControl, queue: EngineQueue
) -> None:
    """Record these versions as read by the connection. Raises InvalidParams, PathOutside.

    An open session is left out: its reads are known here, or it is in doubt.
    """
    known = [
        (caller.reader(name), convert.path(one.path), ReadMark(convert.base_of(one.version), ()))
        for one in sightings
        for name in [one.session if one.session is not None else caller.session]
        if name is None or guard.sessions.get(name) is None
    ]

    def note() -> None:
        for reader, path, sight in known:
            if guard.seen.by(reader, path) is None:
                guard.seen.note(reader, path, sight)

    queue.when_idle(note)
