"""What a client had read on a connection that is gone: with `hello` it says so, and is judged by it again."""

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
    """Take these up as what the visitor has seen. Raises InvalidParams, PathOutside.

    A session that was opened is left out: what it has seen is known here, or it is in doubt.
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
