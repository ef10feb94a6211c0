"""The beginning of an exchange: the first host makes the log, and others join it.

A host takes a name in the log that no other has. Its queue is the proof, so it is made with the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.remote.entries import differences, hold_trees, write_baseline, write_empty_queue
from editd.remote.exchange import INCOMING, LOGS, Place, shared_of, transport_of
from editd.remote.log_chain import FileChecks, Forked, commits_back, read_entries
from editd.remote.log_objects import LogObjects
from editd.remote.step_frames import change_frames
from editd.remote.transport import Offline
from editd.store.git_objects import EMPTY_TREE, CommitObject, Trees, oid_of
from editd.store.history import store_of
from editd.values.content import Change
from editd.values.excluded_paths import ExcludedPaths

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.remote.transport import Transport
    from editd.store.git_objects import Oid
    from editd.system.process import Frame
    from editd.values.path import WorkspacePath

NAMES_MAX = 100  # hosts of the same name


def begin_log(folder: str, place: Place, head: Oid, time_us: int) -> Frame:
    """Make the log with this host's files as entry 0. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        root = CommitObject.decode(objects.commit(head)).tree
        place = _without_missing(objects, place, root)
        tree = _shared_tree(objects, root, place.chooser())
        objects.write()
        objects.share_all(tree)
        commit = write_baseline(objects, tree, place.host, time_us)
        objects.write()
        transport = transport_of(objects, folder, place)
        transport.push(commit, place.ref, None)
        host = _claim(objects, transport, place)
        return {
            "taken": commit.hex(), "ref": place.ref, "host": host, "number": 0,
            "excluded": [rule.texts for rule in place.excluded],
        }  # fmt: skip
    finally:
        objects.close()


def count_files(folder: str, place: Place, head: Oid) -> Frame:
    """Count the files that this host would send to begin a log."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        root = CommitObject.decode(objects.commit(head)).tree
        is_shared = _without_missing(objects, place, root).chooser()
        sizes = [
            objects.size(oid_of(entry.version))
            for path, _, entry in differences(objects, EMPTY_TREE, root)
            if entry is not None and is_shared(path)
        ]
        return {"files": len(sizes), "bytes": sum(sizes)}
    finally:
        objects.close()


def join_log(folder: str, place: Place, head: Oid) -> Frame:
    """Compare this host's files with the log, and take a name in it. Raises Offline, Forked.

    The answer has the steps that make the files those of the log, and the paths at which files of this host
    would be replaced or deleted.
    """
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        transport = transport_of(objects, folder, place)
        refs = transport.heads(place.ref or LOGS + "*")
        if len(refs) != 1:
            known = ", ".join(sorted(refs)) or "none"
            raise Forked(f"The repository must have one log, and has {known}.", hint="Name one with `--ref`.")
        ref = next(iter(refs))
        place = replace(place, ref=ref)
        transport.fetch(f"+{ref}:{INCOMING}")
        commits, _ = commits_back(objects, refs[ref], ())
        entry = read_entries(objects, commits, None, {}, FileChecks())[-1]
        mine = CommitObject.decode(objects.commit(head)).tree
        place = _without_missing(objects, place, mine)
        is_shared = place.chooser()
        changes = [
            Change(path, old, new)
            for path, old, new in differences(objects, mine, entry.tree)
            if is_shared(path)
        ]
        return {
            "taken": entry.commit.hex(), "ref": ref, "number": entry.number,
            "host": place.host, "excluded": [rule.texts for rule in place.excluded],
            "differs": [change.path.text for change in changes if change.before is not None],
            "changes": change_frames(objects, changes),
        }  # fmt: skip
    finally:
        objects.close()


def claim_name(folder: str, place: Place) -> Frame:
    """Take a name in the log that no other host has. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        return {"host": _claim(objects, transport_of(objects, folder, place), place)}
    finally:
        objects.close()


def release_name(folder: str, place: Place) -> None:
    """Give back the name of this host, whose queue is empty. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        queue = write_empty_queue(objects, place.host)
        transport_of(objects, folder, place).remove(place.queues + place.host, queue)
    finally:
        objects.close()


def _claim(objects: LogObjects, transport: Transport, place: Place) -> str:
    """Make the queue of this host, under the first name that is free. Return the name. Raises Offline."""
    taken = {name.removeprefix(place.queues) for name in transport.heads(place.queues + "*")}
    for number in range(1, NAMES_MAX):
        host = place.host if number == 1 else f"{place.host}-{number}"
        if host in taken:
            continue
        commit = write_empty_queue(objects, host)
        objects.write()
        try:
            transport.push(commit, place.queues + host, None)
        except Offline:
            if place.queues + host not in transport.heads(place.queues + host):
                raise
            continue
        return host
    raise Offline(f"{NAMES_MAX} hosts are called {place.host}.", hint="Set `host` in `[remote]`.")


def _without_missing(objects: LogObjects, place: Place, root: Oid) -> Place:
    """Return the place with a rule for the files whose contents the history lacks: they stay here for good.

    An earlier rule of the history excluded them. Its removal does not bring the contents back.
    """
    is_shared = place.chooser()
    missing = [
        path
        for path, _, entry in differences(objects, EMPTY_TREE, root)
        if entry is not None and is_shared(path) and not objects.has_content(oid_of(entry.version))
    ]
    if not missing:
        return place
    return replace(place, excluded=(*place.excluded, ExcludedPaths.of_files(missing)))


def _shared_tree(objects: LogObjects, root: Oid, is_shared: Callable[[WorkspacePath], bool]) -> Oid:
    """Return the tree without the paths that must not leave this host."""
    trees = Trees(root, objects.tree)
    left_out = [path for path, _, _ in differences(objects, EMPTY_TREE, root) if not is_shared(path)]
    update = trees.update((path.raw, None) for path in left_out)
    hold_trees(objects, update.root, update.trees)
    return update.root
