"""The steps of an exchange as the daemon gets them: plain values, with the content of the files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from editd.errors import join_names
from editd.remote.replica import Step
from editd.store.git_objects import oid_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.remote.entries import Tentative
    from editd.remote.log_objects import LogObjects
    from editd.system.frames import Frame
    from editd.values.content import Change, Entry
    from editd.values.path import WorkspacePath
    from editd.values.transaction import CommitId

TAKE_IN = "Take in from the log"  # begins the message of a transaction that returns files to the log's
STEP_BYTES_MAX = 16 * 1024 * 1024  # of content in one answer; a single step may be larger


def frames_of_steps(
    objects: LogObjects,
    steps: Sequence[Step],
    seqs: Mapping[CommitId, int],
    shared: Callable[[CommitId], Sequence[str]],
) -> list[Frame]:
    """Return the first steps, as many as fit into one answer. `seqs` has this host's numbers.

    `shared` returns the paths of a transaction of this host that the log has, if it lacks others.
    """
    frames: list[Frame] = []
    room = STEP_BYTES_MAX
    for step in steps:
        made = _taken_back(objects, step)
        for undo in step.undos:
            made += _landed(objects, Step(undo, (), (), (), is_undo=True), seqs, shared)
        made += _landed(objects, step, seqs, shared)
        room -= sum(len(change[3] or b"") for frame in made for change in frame["changes"])
        if room < 0 and frames:
            break
        frames += made
    return frames


def _taken_back(objects: LogObjects, step: Step) -> list[Frame]:
    """Return the transaction that takes back work of this host, because it does not merge."""
    if not step.lost:
        return []
    arrival = step.entry.arrival
    seqs = sorted(one.seq for one in step.lost)
    parts = [[one.seq, change.path.text, []] for one in step.lost if one.is_part for change in one.changes]
    shown = ", ".join(map(str, seqs))
    return [
        {
            "number": arrival.number, "host": arrival.host, "time_us": arrival.time_us,
            "actor": "editd", "session": None, "attribution": None,
            "message": f"Set aside {shown}: no merge with entry {arrival.number} of {arrival.host}",
            "kind": "undo", "origin": None, "undoes": seqs, "parts": parts,
            "changes": change_frames(objects, step.taken_back),
        }
    ]  # fmt: skip


def _landed(
    objects: LogObjects,
    step: Step,
    seqs: Mapping[CommitId, int],
    shared: Callable[[CommitId], Sequence[str]],
) -> list[Frame]:
    """Return the transaction that an entry is on this host."""
    if step.is_catch_up:
        return [_caught_up(objects, step)]
    if not step.has_effect:
        return []
    message, arrival = step.entry.message, step.entry.arrival
    evidence, turn = message.authorship.attribution, message.authorship.turn
    undone = [seqs.get(origin) for origin in step.entry.undone]
    return [
        {
            "number": arrival.number, "host": arrival.host, "time_us": arrival.time_us,
            "actor": message.authorship.actor,
            "session": session_at(message.authorship.session, arrival.host),
            "attribution": None if evidence is None else [evidence.is_by_path, list(evidence.candidates)],
            "message": message.authorship.message,
            "turn": None if turn is None else [turn.number, turn.model],
            "kind": message.kind, "origin": arrival.origin,
            "undoes": list(dict.fromkeys(seq for seq in undone if seq is not None)),  # two may be one here
            "shared": list(arrival.shared),
            "parts": _parts(step, undone, shared),
            "changes": change_frames(objects, step.changes),
        }
    ]  # fmt: skip


def _parts(
    step: Step, undone: Sequence[int | None], shared: Callable[[CommitId], Sequence[str]]
) -> list[list[object]]:
    """Return the parts that an entry undoes. Of a transaction in part in the log, no other file is undone."""
    parts: list[list[object]] = [
        [undone[part.seq - 1], part.path.text, list(part.hunks)]
        for part in dict.fromkeys(step.entry.message.parts)
        if part.seq <= len(undone) and undone[part.seq - 1] is not None
    ]
    in_part = {seq for seq, *_ in parts}
    for origin, seq in dict.fromkeys(zip(step.entry.undone, undone, strict=True)):
        if seq is not None and seq not in in_part:
            parts += [[seq, path, []] for path in shared(origin)]
    return parts


def _caught_up(objects: LogObjects, step: Step) -> Frame:
    arrival = step.entry.arrival
    paths = join_names([change.path.text for change in step.changes])
    return {
        "number": arrival.number, "host": arrival.host, "time_us": arrival.time_us, "origin": None,
        "actor": "editd", "session": None, "attribution": None, "kind": "restore", "undoes": [], "parts": [],
        "message": f"{TAKE_IN}: {paths}", "changes": change_frames(objects, step.changes),
    }  # fmt: skip


def frame_of_aside(
    objects: LogObjects, aside: Tentative, number: int, is_shared: Callable[[WorkspacePath], bool]
) -> Frame:
    """Return a transaction that is set aside, to make a proposal of it."""
    shared = [change for change in aside.changes if is_shared(change.path)]
    return {
        "origin": aside.origin, "number": number, "host": aside.host,
        "actor": aside.authorship.actor, "session": aside.authorship.session,
        "message": aside.authorship.message,
        "changes": [
            [frame, None if change.before is None else objects.blob(oid_of(change.before.version))]
            for change, frame in zip(
                shared, change_frames(objects, shared), strict=True
            )
        ],
    }  # fmt: skip


def change_frames(objects: LogObjects, changes: Iterable[Change[Entry]]) -> list[list[Any]]:
    """Return each change: path, mode and version before, mode and permissions after, content, source."""
    return [
        [
            change.path.text,
            None if change.before is None else [change.before.mode, change.before.version],
            None if change.after is None else [change.after.mode, change.after.permissions],
            None if change.after is None else objects.blob(oid_of(change.after.version)),
            None if change.source is None else change.source.text,
        ]
        for change in changes
    ]


def session_at(session: str | None, host: str) -> str | None:
    """Return the name of another host's session."""
    return None if session is None else f"{session}@{host}"
