"""The start of the history after a compaction: the floor, the oldest transaction with all its content.

Git's own `shallow` file names its commit, so that plain git begins the history there. For editd that commit
is a baseline: its tree is known, its changes and all earlier ones are gone. Writing the file is the
compaction. Before that everything is available, and afterwards nothing before the floor is read.
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
    """The transaction with which the history begins; `commit` None means the baseline itself."""

    commit: Oid | None = None
    seq: int = 0
    time_us: int = 0  # of the compaction

    def seen(self, oid: Oid, content: bytes) -> bytes:
        """Return an object's content, with the floor's commit as a baseline without a parent."""
        return as_baseline(content) if oid == self.commit else content


def as_baseline(content: bytes) -> bytes:
    """Return the commit object of a baseline with the tree, the number and the time of this one."""
    commit = CommitObject.decode(content)
    written = commit_message.parse(commit.message)
    # Indexes hold this text, so it stays the same: another one would look like damage.
    message = f"what was before is compacted, up to transaction {written.seq}"
    authorship = Authorship("outside", None, message)
    ident = commit_message.ident("editd")
    composed = commit_message.compose(written.seq, "baseline", authorship, written.time_us, [], [])
    return commit_content(commit.tree, [], ident, ident, written.time_us, composed)


def read_history_start(store: str) -> HistoryStart:
    """Read the floor of a store, without its number, which its commit has. Raises HistoryDamaged."""
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
            f"The history is damaged: {path} names no commit, so the start of the history is unknown.",
            hint="Nothing was changed. Keep the state folder, and run `editctl check`.",
            data={"file": path},
        ) from None


def remove_partial(store: str) -> None:
    """Remove the temporary that a crash may have left. Only without a writer. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(store, NAME + ".lock"))


def write_history_start(store: str, commit: Oid) -> None:
    """Make `commit` the start of the history, atomically; durable on return. Raises OSError."""
    replace_file_durably(os.path.join(store, NAME), commit.hex().encode("ascii") + b"\n", temporary=".lock")
