"""Recovery: at the start, redo the transactions of a hot journal in the files.

C5  Recovery changes only a file that is in its `before` state (possibly absent) or visibly torn by a power
    cut. A torn file is empty, NUL-filled, or a prefix of one of its contents, after a new boot or mount. Any
    other content belongs to another program: it is adopted as an outside transaction after the redone one.

If several transactions of the journal changed one path, each of its states counts as `before`, and only the
last state is written. After a power cut, all unsynced transactions are redone, even packed ones, because head
is durable earlier than the files. After a failed sync, files in their last state are written again as well,
because they may exist only in the page cache. A temporary file with unknown content was written by another
program during publishing: its content is moved back to the file's path.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.engine.external_changes import state_of
from editd.errors import InUse, NotAFile, PathOutside, Refused, TooLarge
from editd.store.journal_record import Committed, touch_of
from editd.values.changeset import Change
from editd.values.content import FileState
from editd.workspace.publish import ConcurrentWrite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.store.history import History
    from editd.values.path import WorkspacePath
    from editd.workspace.reader import WorkspaceReader
    from editd.workspace.writer import WorkspaceWriter

log = logging.getLogger(__name__)


class PathStates(Struct):
    """The states of one path through the hot journal. The first is the state before all of it."""

    states: list[FileState | None] = field(default_factory=list)
    is_torn_possible: bool = False

    @property
    def last(self) -> FileState | None:
        return self.states[-1]


def recover(
    history: History, tree: WorkspaceReader, files: WorkspaceWriter, boot: bytes
) -> dict[WorkspacePath, FileState | None]:
    """Bring the files to their last state in the journal. Return other programs' content, to be adopted.

    Raises IoError or PublishFailed if a file cannot be written.
    """
    strangers: dict[WorkspacePath, FileState | None] = {}
    same_boot = bool(boot) and all(record.boot == boot for record in history.unsynced)
    same_boot = same_boot and not history.is_in_doubt
    records = history.hot if same_boot else history.unsynced
    chains = _chains(records, history, is_torn_possible=not same_boot)
    blocked: list[WorkspacePath] = []  # A folder that becomes a file may still have a temporary file in it.
    for path, chain in sorted(chains.items()):
        if chain.last is not None and files.is_folder(path):
            blocked.append(path)
        else:
            strangers.update(_redo(path, chain, tree, files, is_rewritten=history.is_in_doubt))
    for record in records:
        for index, change in enumerate(_changes(record, history)):
            leftovers = _leftovers(files, change, record.token, index)
            path_states = chains.get(change.path)
            states = [change.before, change.after]  # not in a chain that begins with a later record
            if path_states is not None:
                states += path_states.states
            for leftover in leftovers:
                if not (leftover in states or (not same_boot and _is_torn(leftover, states))):
                    log.warning("%s: another program wrote to it during publishing", change.path.text)
                    strangers[change.path] = _move_back(files, path_states, change, leftover)
            # The folder of a deleted file may still exist.
            if leftovers or (change.after is None and change.path in chains):
                is_recorded = all(leftover in states for leftover in leftovers)
                files.remove_leftover(change, record.token, index, is_recorded=is_recorded)
    for path in blocked:
        strangers.update(_redo(path, chains[path], tree, files, is_rewritten=False))
    files.note_unsynced(touch_of(change).path for record in history.unsynced for change in record.changes)
    history.published.note(int(history.head))
    if records:
        log.info("recovered %d transactions from the journal", len(records))
    return strangers


def _chains(
    records: Sequence[Committed], history: History, *, is_torn_possible: bool
) -> dict[WorkspacePath, PathStates]:
    """Return the states of each path whose file may not be in its last state.

    The page cache keeps a published file when the daemon is killed, but not after a power cut or a new mount.
    If such a file has an older state after a kill, another program wrote that state.
    """
    noted = [record.published_through for record in records]
    published = 0 if is_torn_possible else max([history.published.through, *noted])
    chains: dict[WorkspacePath, PathStates] = {}
    for record in records:
        is_ours = bool(record.token) and record.seq > published
        for change in _changes(record, history):
            chain = chains.get(change.path)
            if chain is None and is_ours:
                chain = chains[change.path] = PathStates([change.before], is_torn_possible=is_torn_possible)
            if chain is not None:  # also for an adopted change, because the file had that state
                chain.states.append(change.after)
    return chains


def _redo(
    path: WorkspacePath,
    chain: PathStates,
    tree: WorkspaceReader,
    files: WorkspaceWriter,
    *,
    is_rewritten: bool,
) -> dict[WorkspacePath, FileState | None]:
    try:
        current = tree.read(path)
    except TooLarge as refusal:  # another program's content: the scan reports it
        log.warning("%s", refusal.text())
        return {}
    except (NotAFile, PathOutside) as obstacle:
        if chain.last is None:
            return {}  # The file is gone, as intended. The scan records whatever took its place.
        is_folder = files.is_folder(path)  # `put` replaces a folder without files
        if is_folder and files.put(path, chain.last, chain.states, secrets.token_hex(8)):
            return {}
        log.warning("%s could not be written: %s", path.text, obstacle.message)
        return {path: None}
    if current == chain.last:
        if is_rewritten and current is not None:
            _rewrite(path, current, files)
        return {}
    expected = list(chain.states)
    if chain.is_torn_possible and _is_torn(current, chain.states):
        expected.append(current)
    try:
        if files.put(path, chain.last, expected, secrets.token_hex(8)):
            return {}
    except ConcurrentWrite as write:
        return dict(write.orphans)
    return {path: tree.read(path)}


def _rewrite(path: WorkspacePath, state: FileState, files: WorkspaceWriter) -> None:
    if not files.rewrite(path, state, secrets.token_hex(8)):
        log.warning("%s: another program is writing to it, so it was not written again", path.text)


def _is_torn(current: FileState | None, states: Sequence[FileState | None]) -> bool:
    """Return whether a power cut can have left the file: empty, all NUL, or a prefix of one of `states`."""
    if current is None or current.is_symlink:
        return False
    contents = [state.content for state in states if state is not None and not state.is_symlink]
    if not current.content.strip(b"\0"):
        return bool(contents)
    return any(content.startswith(current.content) for content in contents)


def _leftovers(files: WorkspaceWriter, change: Change, token: str, index: int) -> list[FileState]:
    if not token:
        return []
    try:
        return files.leftovers(change, token, index)
    except (InUse, NotAFile, OSError) as error:
        log.warning("a temporary file of %s could not be read: %s", change.path.text, error)
        return []


def _move_back(
    files: WorkspaceWriter, chain: PathStates | None, change: Change, leftover: FileState
) -> FileState | None:
    """Write another program's content back to its path, unless the file changed again. Return the content."""
    expected: Sequence[FileState | None] = (
        chain.states if chain is not None else [change.before, change.after]
    )
    try:
        if files.put(change.path, leftover, expected, secrets.token_hex(8)):
            return leftover
    except Refused as refusal:
        log.warning("%s: could not be put back: %s", change.path.text, refusal.text())
    return leftover


def _changes(record: Committed, history: History) -> Iterator[Change]:
    """Yield the changes of a record. The content before is empty if the history lacks it."""
    for change in record.changes:
        touch = touch_of(change)
        after = None
        if touch.after is not None and change.after is not None and change.after.content is not None:
            made = touch.after
            after = FileState(change.after.content, made.mode, made.permissions, made.version)
        yield Change(touch.path, state_of(touch.before, history), after, touch.source)
