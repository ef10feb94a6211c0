"""Recovery: at the start, finish what a hot journal tells.

C5  Recovery touches only a file that is `before`, absent where `before` was absent, or visibly torn by a
    power cut (another boot or mount, and empty, NUL-filled, or a cut-off prefix of what it held on the way).
    Anything else is somebody's: it is adopted as an outside transaction after the one that is being redone.

Where several transactions of the journal changed one path, each state on the way counts as `before`, and
only the last is put in place. After a power cut that is done for all that was not synced, be it packed or
not, for head is durable before the files are; and after a sync that failed, when what is as it should be is
written anew as well, since it may be so in the page cache only. What lies under the name of a temporary and
is no state of ours was written by somebody in the moment of publishing: it goes back into its place.
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
from editd.workspace.writer import ConcurrentWrite, WorkspaceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.store.history import History
    from editd.values.path import WorkspacePath
    from editd.workspace.reader import WorkspaceReader

log = logging.getLogger(__name__)


class PathStates(Struct):
    """The states of one path on the way through the hot journal, the first being what was there before."""

    states: list[FileState | None] = field(default_factory=list)
    is_torn_possible: bool = False

    @property
    def last(self) -> FileState | None:
        return self.states[-1]


def recover(
    history: History, tree: WorkspaceReader, files: WorkspaceWriter, boot: bytes
) -> dict[WorkspacePath, FileState | None]:
    """Bring the files to where the journal says; return what is somebody else's, to be adopted.

    Raises IoError or HalfPublished where a file cannot be put in place.
    """
    strangers: dict[WorkspacePath, FileState | None] = {}
    same_boot = bool(boot) and all(record.boot == boot for record in history.unsynced)
    same_boot = same_boot and not history.is_in_doubt
    records = history.hot if same_boot else history.unsynced
    chains = _chains(records, history, is_torn_possible=not same_boot)
    blocked: list[WorkspacePath] = []  # A temporary may still lie in a folder that becomes a file.
    for path, chain in sorted(chains.items()):
        if chain.last is not None and files.is_folder(path):
            blocked.append(path)
        else:
            strangers.update(_redo(path, chain, tree, files, is_written_anew=history.is_in_doubt))
    for record in records:
        for index, change in enumerate(_changes(record, history)):
            leftovers = _leftovers(files, change, record.token, index)
            its_chain = chains.get(change.path)
            states = [change.before, change.after]  # which a chain lacks that begins with a later record
            if its_chain is not None:
                states += its_chain.states
            for found in leftovers:
                if not (found in states or (not same_boot and _is_torn(found, states))):
                    log.warning("%s: somebody wrote while it was being published", change.path.text)
                    strangers[change.path] = _put_theirs_back(files, its_chain, change, found)
            # Its folder may not have gone yet.
            if leftovers or (change.after is None and change.path in chains):
                is_recorded = all(found in states for found in leftovers)
                files.remove_leftover(change, record.token, index, is_recorded=is_recorded)
    for path in blocked:
        strangers.update(_redo(path, chains[path], tree, files, is_written_anew=False))
    files.note_unsynced(touch_of(change).path for record in history.unsynced for change in record.changes)
    history.published.note(int(history.head))
    if records:
        log.info("recovered %d transactions from the journal", len(records))
    return strangers


def _chains(
    records: Sequence[Committed], history: History, *, is_torn_possible: bool
) -> dict[WorkspacePath, PathStates]:
    """What each path went through in these records, where its files may not be as they should.

    A published file is in the page cache at least, and that outlives a killed daemon; but not a power cut,
    nor a disk that died and was mounted again. If such a file is as it was before, somebody put it back.
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
            if chain is not None:  # what was adopted in between counts, too: it is what stood there then
                chain.states.append(change.after)
    return chains


def _redo(
    path: WorkspacePath,
    chain: PathStates,
    tree: WorkspaceReader,
    files: WorkspaceWriter,
    *,
    is_written_anew: bool,
) -> dict[WorkspacePath, FileState | None]:
    try:
        current = tree.read(path)
    except TooLarge as refusal:  # somebody else's: the scan reports it
        log.warning("%s", refusal.text())
        return {}
    except (NotAFile, PathOutside) as obstacle:
        if chain.last is None:
            return {}  # The file is gone, as it should be. The scan looks at what stands in its place.
        is_folder = files.is_folder(path)  # one with no file in it makes way
        if is_folder and files.put(path, chain.last, chain.states, secrets.token_hex(8)):
            return {}
        log.warning("%s could not be put in place: %s", path.text, obstacle.message)
        return {path: None}
    if current == chain.last:
        if is_written_anew and current is not None:
            _write_anew(path, current, files)
        return {}
    expected = list(chain.states)
    if chain.is_torn_possible and _is_torn(current, chain.states):
        expected.append(current)
    try:
        if files.put(path, chain.last, expected, secrets.token_hex(8)):
            return {}
    except ConcurrentWrite as overtaken:
        return dict(overtaken.orphans)
    return {path: tree.read(path)}


def _write_anew(path: WorkspacePath, state: FileState, files: WorkspaceWriter) -> None:
    if not files.rewrite(path, state, secrets.token_hex(8)):
        log.warning("%s: somebody is writing it, so it was not written anew", path.text)


def _is_torn(found: FileState | None, states: Sequence[FileState | None]) -> bool:
    """Does a file look as a power cut leaves it: empty, all NUL, or the beginning of what it ever held?"""
    if found is None or found.is_symlink:
        return False
    held = [state.content for state in states if state is not None and not state.is_symlink]
    if not found.content.strip(b"\0"):
        return bool(held)
    return any(content.startswith(found.content) for content in held)


def _leftovers(files: WorkspaceWriter, change: Change, token: str, index: int) -> list[FileState]:
    if not token:
        return []
    try:
        return files.leftovers(change, token, index)
    except (InUse, NotAFile, OSError) as error:
        log.warning("a temporary of %s could not be looked at: %s", change.path.text, error)
        return []


def _put_theirs_back(
    files: WorkspaceWriter, chain: PathStates | None, change: Change, found: FileState
) -> FileState | None:
    expected: Sequence[FileState | None] = (
        chain.states if chain is not None else [change.before, change.after]
    )
    try:
        if files.put(change.path, found, expected, secrets.token_hex(8)):
            return found
    except Refused as refusal:
        log.warning("%s: could not be put back: %s", change.path.text, refusal.text())
    return found


def _changes(record: Committed, history: History) -> Iterator[Change]:
    """The changes of a record, with the bytes before where the history has them."""
    for change in record.changes:
        touch = touch_of(change)
        after = None
        if touch.after is not None and change.after is not None and change.after.content is not None:
            made = touch.after
            after = FileState(change.after.content, made.mode, made.permissions, made.version)
        yield Change(touch.path, state_of(touch.before, history), after, touch.source)
