"""The floor: the oldest transaction that the store still has whole, once the past before it was compacted.

Git's own `shallow` file names its commit, so that plain git takes the history to begin there. For editd that
commit is a baseline: its tree is what there was, and what it and those before it did is gone. Writing the
file is what compacts; until then everything is there, and from then on nothing before it is asked for.
"""

from __future__ import annotations

import contextlib
import os

from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.store import commit_message
from editd.store.git_objects import CommitObject, Oid, commit_content
from editd.system.atomic_file import replace_file_durably
from editd.values.transaction import Authorship

NAME = "shallow"  # gitrepository-layout(5)


class HistoryStart(Struct, frozen=True):
    """Where the history begins; `commit` None is with the baseline itself."""

    commit: Oid | None = None
    seq: int = 0
    time_us: int = 0  # when it was compacted

    def seen(self, oid: Oid, content: bytes) -> bytes:
        """An object's content, in which the floor's commit is a baseline without a parent."""
        return as_baseline(content) if oid == self.commit else content


def as_baseline(content: bytes) -> bytes:
    """The commit object of a baseline with the tree, the number and the time of this one."""
    commit = CommitObject.decode(content)
    written = commit_message.parse(commit.message)
    message = f"what was before is compacted, up to transaction {written.seq}"
    said = Authorship("outside", None, message)
    who = commit_message.ident("editd")
    composed = commit_message.compose(written.seq, "baseline", said, written.time_us, [], [])
    return commit_content(commit.tree, [], who, who, written.time_us, composed)


def read_history_start(store: str) -> HistoryStart:
    """The floor of a store, but for its number, which its commit tells. Raises HistoryDamaged."""
    path = os.path.join(store, NAME)
    try:
        with open(path, "rb") as file:
            line = file.read(42)
            time_us = os.fstat(file.fileno()).st_mtime_ns // 1000
    except FileNotFoundError:
        return HistoryStart()
    try:
        if len(line) != 41:
            raise ValueError("not one line with an id")
        return HistoryStart(bytes.fromhex(line.decode("ascii").removesuffix("\n")), 0, time_us)
    except ValueError:
        raise HistoryDamaged(
            f"The history is damaged: {path} names no commit, so where the history begins is not known.",
            hint="Nothing was changed. Keep the state folder, and run `editctl check`.",
            data={"file": path},
        ) from None


def remove_partial(store: str) -> None:
    """Remove what a crash has left beside the file; nobody is writing it now. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(store, NAME + ".lock"))


def write_history_start(store: str, commit: Oid) -> None:
    """Let the history begin with `commit`, in one step; durable on return. Raises OSError."""
    replace_file_durably(os.path.join(store, NAME), commit.hex().encode("ascii") + b"\n", temporary=".lock")
