"""The beginning of an exchange: the first host makes the log, and others join it.

A host takes a name in the log that no other has. Its queue is the proof, so it is made with the name.
"""

from __future__ import annotations

import contextlib
import json
import os
from itertools import dropwhile
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.errors import Conflict, join_names
from editd.remote.entries import (
    Tentative,
    differences,
    flaw_of,
    hold_trees,
    write_baseline,
    write_empty_queue,
    write_entry,
)
from editd.remote.exchange import INCOMING, LOGS, progress_file, shared_of, transport_of
from editd.remote.log_chain import FileChecks, Forked, commits_back, read_entries
from editd.remote.log_objects import LogObjects
from editd.remote.merged_tree import MergedTree
from editd.remote.own_history import earliest_of, origins_after
from editd.remote.step_frames import change_frames
from editd.remote.transport import Offline
from editd.store.git_objects import EMPTY_TREE, CommitObject, Trees, oid_of
from editd.store.history import store_of
from editd.system.files import replace_file_durably
from editd.values.content import Change
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import folders_of
from editd.values.transaction import Authorship, CommitId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.remote.entries import LogEntry
    from editd.remote.member import Member
    from editd.remote.transport import Transport
    from editd.store.git_objects import Oid
    from editd.system.frames import Frame
    from editd.values.content import Entry
    from editd.values.path import WorkspacePath

NAMES_MAX = 100  # hosts of the same name
SEND_TRIES = 10  # of a host that joins, while others land


def begin_log(folder: str, member: Member, head: Oid, time_us: int) -> Frame:
    """Make the log with this host's files as entry 0. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        root = _tree_at(objects, head)
        member = _without_missing(objects, member, root)
        tree = _shared_tree(objects, root, member.sender())
        objects.write()
        objects.share_all(tree)
        commit = write_baseline(objects, tree, member.host, time_us)
        objects.write()
        transport = transport_of(objects, folder, member)
        transport.push(commit, member.ref, None)
        host = _claim(objects, transport, member, folder)
        return {
            "taken": commit.hex(), "ref": member.ref, "host": host, "number": 0,
            "excluded": [rule.texts for rule in member.excluded],
        }  # fmt: skip
    finally:
        objects.close()


def count_files(folder: str, member: Member, head: Oid) -> Frame:
    """Count the files that this host would send to begin a log."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        root = _tree_at(objects, head)
        is_shared = _without_missing(objects, member, root).sender()
        sizes = [
            objects.size(oid_of(entry.version))
            for path, _, entry in differences(objects, EMPTY_TREE, root)
            if entry is not None and is_shared(path)
        ]
        return {"files": len(sizes), "bytes": sum(sizes)}
    finally:
        objects.close()


def join_log(folder: str, member: Member, head: Oid) -> Frame:
    """Compare this host's files with the log. Raises Offline, Forked.

    The answer has the changes from this host's files to the log's. It lists the files that the changes would
    replace or delete. It also lists the paths that are a file on one side and a folder on the other.
    """
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        member = _without_missing(objects, member, _tree_at(objects, head))
        return _compared(objects, transport_of(objects, folder, member), member, head)[1]
    finally:
        objects.close()


def send_mine(folder: str, member: Member, head: Oid, time_us: int) -> Frame:
    """Land one entry with the files of this host that differ from the log. Return the comparison with it.

    Nothing of this host has changed until then. Raises Offline, Forked, Conflict.
    """
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        transport = transport_of(objects, folder, member)
        member = _without_missing(objects, member, _tree_at(objects, head))
        for _ in range(SEND_TRIES):
            entry, answer = _compared(objects, transport, member, head)
            if answer["clashes"]:
                raise Conflict(f"The log has changed: {join_names(answer['clashes'])}.", hint="Join again.")
            commit = _entry_of_mine(objects, member, head, entry, time_us)
            if commit is None:
                return answer
            with contextlib.suppress(Offline):
                transport.push(commit, member.ref, entry.commit)
                return _compared(objects, transport, member, head)[1]
            now = transport.heads(member.ref).get(member.ref)
            if now == commit:  # the reply was lost
                return _compared(objects, transport, member, head)[1]
            if now == entry.commit:
                transport.push(commit, member.ref, entry.commit)  # the reason of the refusal
        raise Conflict("Other hosts were faster each time.", hint="Join again.")
    finally:
        objects.close()


def return_to_log(folder: str, member: Member, first: str, joined: int, head: Oid) -> None:
    """Go back to the last entry up to which this host's history has each transaction of the log.

    This is for a host that has no copy of the log any more, with a server that was restored. The host joined
    at entry `first`, and `joined` was its last transaction then. All that it has taken in since waits to be
    landed, unless it is in the log. Raises Offline, Forked.
    """
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        transport = transport_of(objects, folder, member)
        now = transport.heads(member.ref).get(member.ref)
        if now is None:
            raise Forked(
                f"Neither the server nor this host has the log {member.ref}.",
                hint="Leave the log, and begin a new one. The history of this host has all its transactions.",
            )
        transport.fetch(f"+{member.ref}:{INCOMING}")
        commits, _ = commits_back(objects, now, ())
        entries = read_entries(objects, commits, None, {}, FileChecks())
        start = next((entry.number for entry in entries if entry.commit.hex() == first), None)
        if start is None:
            raise Forked(
                "The log on the server lacks the entry at which this host joined.",
                hint="Leave the log, and join this one.",
            )
        seqs = origins_after(objects, head, joined)
        taken = _last_of_both(entries[start:], seqs, joined)
        content = json.dumps({"taken": taken.commit.hex(), "through": max(seqs.values(), default=joined)})
        replace_file_durably(progress_file(folder), content.encode())
    finally:
        objects.close()


def _last_of_both(entries: Sequence[LogEntry], seqs: Mapping[CommitId | None, int], joined: int) -> LogEntry:
    """Return the last entry before the first one whose transaction this host lacks.

    `seqs` has the transactions of this host's history since the host joined, at the first of the entries.
    """
    last, *later = entries
    if seqs and min(seqs.values()) > joined + 1:  # the oldest ones were compacted: they have landed
        later = list(dropwhile(lambda entry: entry.arrival.origin not in seqs, later))
    for entry in later:
        origin = entry.arrival.origin
        if origin is not None and origin not in seqs and not entry.problem and entry.outcome == "applied":
            break
        last = entry
    return last


def _entry_of_mine(
    objects: LogObjects, member: Member, head: Oid, entry: LogEntry, time_us: int
) -> Oid | None:
    """Write an entry with the differing files of this host behind `entry`; None if there are none.

    Raises Conflict if no host could read it.
    """
    is_shared, mine = member.sender(), _tree_at(objects, head)
    changes = tuple(
        Change(path, theirs, own)
        for path, theirs, own in differences(objects, entry.tree, mine)
        if own is not None and is_shared(path)
    )
    if not changes:
        return None
    author = Authorship("editd", None, "Keep the files of this host")
    kept = Tentative(CommitId(os.urandom(20).hex()), member.host, "restore", author, time_us, changes)
    if (flaw := flaw_of(kept)) is not None:
        raise Conflict(flaw)
    tree = MergedTree(objects, entry.tree)
    for change in changes:
        if change.after is not None:
            objects.share(change.after.version)
    tree.put((change.path, change.after) for change in changes)
    hold_trees(objects, tree.root, tree.trees)
    commit = write_entry(objects, kept, entry.number + 1, entry.commit, tree.root, is_applied=True)
    objects.write()
    return commit


def _compared(objects: LogObjects, transport: Transport, member: Member, head: Oid) -> tuple[LogEntry, Frame]:
    """Fetch the log, and return its newest entry with the comparison. Raises Offline, Forked."""
    refs = transport.heads(member.ref or LOGS + "*")
    if len(refs) != 1:
        known = ", ".join(sorted(refs)) or "none"
        raise Forked(f"The repository must have one log, and has {known}.", hint="Name one with `--ref`.")
    ref = next(iter(refs))
    transport.fetch(f"+{ref}:{INCOMING}")
    commits, _ = commits_back(objects, refs[ref], ())
    entries = read_entries(objects, commits, None, {}, FileChecks())
    entry, origins = entries[-1], {one.arrival.origin for one in entries if one.arrival.origin is not None}
    mine, is_shared = _tree_at(objects, head), member.sender()
    changes = [
        Change(path, old, new) for path, old, new in differences(objects, mine, entry.tree) if is_shared(path)
    ]
    answer: Frame = {
        "taken": entry.commit.hex(), "ref": ref, "number": entry.number,
        "host": member.host, "excluded": [rule.texts for rule in member.excluded],
        "differs": [change.path.text for change in changes if change.before is not None],
        "clashes": _clashes(changes),
        "earlier": earliest_of(objects, head, origins),
        "changes": change_frames(objects, changes),
    }  # fmt: skip
    return entry, answer


def _clashes(changes: Sequence[Change[Entry]]) -> list[str]:
    """Name the files of this host in the place of a folder of the log, and the other way round."""
    mine = {change.path for change in changes if change.before is not None}
    theirs = {change.path for change in changes if change.after is not None and change.before is None}
    clashes = [
        *(f"{folder} is a file here and a folder in the log" for path in theirs for folder in folders_of(path)
          if folder in mine),
        *(f"{folder} is a folder here and a file in the log" for path in mine for folder in folders_of(path)
          if folder in theirs),
    ]  # fmt: skip
    return sorted(set(clashes))


def claim_name(folder: str, member: Member) -> Frame:
    """Take a name in the log that no other host has. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        return {"host": _claim(objects, transport_of(objects, folder, member), member, folder)}
    finally:
        objects.close()


def release_name(folder: str, member: Member) -> None:
    """Give back the name of this host, whose queue is empty. Raises Offline."""
    objects = LogObjects(shared_of(folder), store_of(folder))
    try:
        known = _Claim.read(folder)
        transport_of(objects, folder, member).remove(member.queues + member.host, oid_of(known[member.host]))
        _Claim.write(folder, {})
    finally:
        objects.close()


def _claim(objects: LogObjects, transport: Transport, member: Member, folder: str) -> str:
    """Make the queue of this host, under the first name that is free. Return the name. Raises Offline.

    A name that an earlier try of this host has taken, and did not give back, is free for it.
    """
    queues, known = transport.heads(member.queues + "*"), _Claim.read(folder)
    taken = {name.removeprefix(member.queues): oid.hex() for name, oid in queues.items()}
    for number in range(1, NAMES_MAX):
        host = member.host if number == 1 else f"{member.host}-{number}"
        if host in taken:
            if known.get(host) == taken[host]:
                return host
            continue
        commit = write_empty_queue(objects, host, os.urandom(8).hex())
        objects.write()
        _Claim.write(folder, {host: commit.hex()})
        try:
            transport.push(commit, member.queues + host, None)
        except Offline:
            if member.queues + host not in transport.heads(member.queues + host):
                raise
            continue
        return host
    raise Offline(f"{NAMES_MAX} hosts are called {member.host}.", hint="Set `host` in `[remote]`.")


def _tree_at(objects: LogObjects, head: Oid) -> Oid:
    return CommitObject.decode(objects.commit(head)).tree


def _without_missing(objects: LogObjects, member: Member, root: Oid) -> Member:
    """Return the member with a rule for the files whose contents the history lacks: they stay here for good.

    An earlier rule of the history excluded them. Its removal does not bring the contents back.
    """
    is_shared = member.sender()
    missing = [
        path
        for path, _, entry in differences(objects, EMPTY_TREE, root)
        if entry is not None and is_shared(path) and not objects.history_has(oid_of(entry.version))
    ]
    if not missing:
        return member
    return replace(member, excluded=(*member.excluded, ExcludedPaths.of_files(missing)))


class _Claim:
    """The file with the names that this host takes in a log until it has joined: each with its queue."""

    @staticmethod
    def read(folder: str) -> dict[str, str]:
        try:
            with open(os.path.join(folder, "remote", "claim.json"), encoding="utf-8") as file:
                return dict(json.load(file))
        except (FileNotFoundError, ValueError):
            return {}

    @staticmethod
    def write(folder: str, claims: dict[str, str]) -> None:
        replace_file_durably(os.path.join(folder, "remote", "claim.json"), json.dumps(claims).encode())


def _shared_tree(objects: LogObjects, root: Oid, is_shared: Callable[[WorkspacePath], bool]) -> Oid:
    """Return the tree without the paths that must not leave this host."""
    trees = Trees(root, objects.tree)
    left_out = [path for path, _, _ in differences(objects, EMPTY_TREE, root) if not is_shared(path)]
    update = trees.update((path.raw, None) for path in left_out)
    hold_trees(objects, update.root, update.trees)
    return update.root
