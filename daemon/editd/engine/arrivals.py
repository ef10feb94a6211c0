"""The transactions that come from other hosts: their steps, as the exchange sends them, and their changes.

An arrival is planned by another process, on the files as the history had them a moment ago. So it is
recorded only if its files are still the same; otherwise it is planned again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.engine.commands import ArrivalChain, Arrive
from editd.engine.undo_conflicts import NoRoom
from editd.errors import FileExists, NotAFile, PathIgnored, PathOutside, PermissionDenied, Stale, TooLarge
from editd.store.recorded_state import recorded_state
from editd.system.proc import creation_mask
from editd.values.content import Change, Entry, FileState, Version, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Arrival, Attribution, Authorship, Part, Seq, TurnMark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.errors import Refused
    from editd.store.history import History

_FOR_GOOD = (FileExists, NotAFile, NoRoom, PathIgnored, PathOutside, PermissionDenied, TooLarge)
_NAMES_REFUSED = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL}  # by a file system that cannot hold them


def arrival_of(step: Mapping[str, Any], through: int, chain: ArrivalChain | None = None) -> Arrive:
    """Return the request for a step of the exchange, which was planned at transaction `through`.

    `chain` has the steps before it.
    """
    evidence, turn = step["attribution"], step.get("turn")
    shared = tuple(step.get("shared", ()))
    authorship = Authorship(
        step["actor"], step["session"], step["message"],
        attribution=None if evidence is None else Attribution(evidence[0], tuple(evidence[1])),
        arrival=Arrival(step["number"], step["host"], step["origin"], step["time_us"], shared),
        turn=None if turn is None else TurnMark(*turn),
    )  # fmt: skip
    expected: dict[WorkspacePath, Entry | None] = {}
    after: dict[WorkspacePath, FileState | None] = {}
    sources: dict[WorkspacePath, WorkspacePath] = {}
    for text, known, mode, content, source in step["changes"]:
        path = WorkspacePath.parse(text)
        expected[path] = None if known is None else Entry(known[0], Version(known[1]))
        after[path] = None if mode is None else FileState(content, mode[0], _permitted(mode[1]))
        if source is not None:
            sources[path] = WorkspacePath.parse(source)
    return Arrive(
        authorship, step["kind"], expected, after, through, sources, tuple(map(Seq, step["undoes"])),
        tuple(Part(Seq(seq), WorkspacePath.parse(path), tuple(hunks)) for seq, path, hunks in step["parts"]),
        chain or ArrivalChain(),
    )  # fmt: skip


def _permitted(permissions: int | None) -> int | None:
    """Return the permission bits of an arriving file, as far as the umask allows them for a new one."""
    return None if permissions is None else permissions & ~creation_mask()


class LogAuthor(Struct, frozen=True):
    """The origin of a line by the order of the log."""

    number: int | None  # the entry; None while the transaction waits
    seq: Seq | None  # on this host, if it has the transaction
    host: str | None  # None if it is this host
    actor: str
    session: str | None
    time_us: int  # by the clock of that host


def log_author(frame: Sequence[Any], host: str, history: History) -> LogAuthor:
    """Return the origin of lines, from the answer of the exchange's process."""
    number, origin, at, actor, session, time_us = frame
    is_own = at == host
    seqs = [] if origin is None else history.index.by_id(origin) or history.index.by_origin(origin)
    if session is not None and not is_own:
        session = f"{session}@{at}"
    return LogAuthor(number, Seq(seqs[0]) if seqs else None, None if is_own else at, actor, session, time_us)


def change_of(frame: Sequence[Any]) -> Change[FileState]:
    """Return a difference between two states of the log: a path, and mode and content of both sides."""
    path, *sides = frame
    before, after = (None if side is None else FileState(side[1], side[0]) for side in sides)
    return Change(WorkspacePath.parse(path), before, after)


def returned(changes: Sequence[Sequence[Any]], through: int, history: History) -> Arrive:
    """Return the request that takes back the changes of a failed join."""
    expected: dict[WorkspacePath, Entry | None] = {}
    after: dict[WorkspacePath, FileState | None] = {}
    for text, known, mode, content, _ in changes:
        path = WorkspacePath.parse(text)
        expected[path] = None if mode is None else Entry(mode[0], version_of(content))
        before = None if known is None else Entry(known[0], Version(known[1]))
        after[path] = recorded_state(before, history)
    authorship = Authorship("editd", None, "The log could not be joined")
    return Arrive(authorship, "restore", expected, after, through)


def arriving(
    request: Arrive, history: History, at: Callable[[WorkspacePath], FileState | None]
) -> tuple[Change[FileState], ...]:
    """Return the changes of an arrival. Raises Stale if a file is not as it was planned on."""
    changes: list[Change[FileState]] = []
    for path in sorted(request.after):
        now, after = at(path), request.after[path]
        _check_same(path, request.expected[path], now)
        touch = history.index.touch_at(path, history.head)
        if touch is not None and touch[0] > request.through:
            made = history.index.transaction(touch[0])
            if made is None or made.authorship.arrival is None:
                version = None if now is None else now.version
                raise Stale(path.text, version, version)
        if now is not None and after is not None and after.permissions is None:
            after = now.with_mode(after.mode).with_content(after.content)
        if now != after:
            changes.append(Change(path, now, after, request.sources.get(path)))
    return tuple(changes)


def unwritable(refusal: Refused, step: Mapping[str, Any]) -> list[str]:
    """Return the paths of a step that this host cannot have, by a refusal; none if a retry may succeed."""
    if not isinstance(refusal, _FOR_GOOD) and refusal.data.get("errno") not in _NAMES_REFUSED:
        return []
    paths = [str(change[0]) for change in step["changes"]]
    named = [refusal.data.get("path"), *(file["path"] for file in refusal.data.get("files", ()))]
    return [
        path
        for path in paths
        if any(f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/") for other in named)
    ] or paths


def _check_same(path: WorkspacePath, expected: Entry | None, now: FileState | None) -> None:
    known = None if expected is None else (expected.mode, expected.version)
    found = None if now is None else (now.mode, now.version)
    if known != found:
        raise Stale(path.text, known and known[1], found and found[1])
