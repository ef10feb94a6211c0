"""Inspecting: where a scan or a notice says that something may have changed, and what is there indeed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Protocol

from editd.engine.snapshot import DiskSnapshot
from editd.errors import NotAFile, PathOutside, Refused
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from editd.store.history import History
    from editd.values.content import FileState, GitMode, Version
    from editd.values.transaction import Entry, Transaction
    from editd.workspace.reader import WorkspaceReader
    from editd.workspace.writer import WorkspaceWriter

log = logging.getLogger(__name__)


class Adopt(Protocol):
    """Commits what was found on disk, and returns the transactions that record it."""

    def __call__(
        self, found: Mapping[WorkspacePath, FileState | None], message: str = ""
    ) -> list[Transaction]: ...


class Reconciliation:
    """Files looked at one after another, while the engine goes on, and recorded together at the end.

    A notice or a scan only says where to look; what is read here, and the hash, decides.
    """

    def __init__(
        self,
        tree: WorkspaceReader,
        history: History,
        adopt: Adopt,
    ) -> None:
        self._tree = tree
        self._history = history
        self._adopt = adopt
        self._found: dict[WorkspacePath, tuple[Entry | None, FileState | None]] = {}
        self.failed: list[str] = []  # paths that could not be read, and why

    def look(self, path: WorkspacePath) -> None:
        """Compare the file with the history, and keep what is different until `record`."""
        view = DiskSnapshot(self._tree, self._history, patient=False)
        try:
            view.at(path)
        except (NotAFile, PathOutside):
            pass  # or a symlink above: where the history has a file, the view has noted that it is gone
        except Refused as refusal:
            self.failed.append(f"{path.text}: {refusal.message}")
        for stranger, state in view.strangers.items():
            self._found[stranger] = (self._history.entry(stranger), state)

    @property
    def has_found(self) -> bool:
        """Whether anything was different."""
        return bool(self._found)

    def record(self, message: str = "") -> list[Transaction]:
        """Adopt what was found, in one transaction; what was edited in the meantime is looked at again."""
        history = self._history
        for path in [path for path, (known, _) in self._found.items() if history.entry(path) != known]:
            del self._found[path]
            self.look(path)
        return self._adopt({path: state for path, (_, state) in self._found.items()}, message)


def suspects_in(
    history: History, folder: str, found: Mapping[bytes, tuple[GitMode, Version]]
) -> list[WorkspacePath]:
    """The paths of one folder where a scan did not find what the history says."""
    known, _ = history.folder_at_head(folder)
    if known == found:
        return []
    prefix = os.fsencode(folder) + b"/" if folder else b""
    return [
        WorkspacePath(os.fsdecode(prefix + name))
        for name in known.keys() | found.keys()
        if known.get(name) != found.get(name)
    ]


def suspects_unseen(history: History, seen: set[str]) -> Iterable[WorkspacePath]:
    """The paths that the history knows in folders that a scan did not come to."""
    return known_below(history, "", seen)


def known_below(history: History, top: str, seen: AbstractSet[str] = frozenset()) -> Iterator[WorkspacePath]:
    """The paths that the history knows in and below a folder, "" for the root, but not right in those `seen`.

    A folder is read when it is its turn.
    """
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        files, below = history.folder_at_head(folder)
        prefix = folder + "/" if folder else ""
        waiting.extend(prefix + os.fsdecode(name) for name in below)
        if folder not in seen:
            yield from (WorkspacePath(prefix + os.fsdecode(name)) for name in files)


def sweep(files: WorkspaceWriter, history: History, strays: Iterable[bytes]) -> None:
    """Remove temporaries of daemons that are gone, and folders that were made for them.

    One whose bytes are not in the history is an edit that was never made, or, after a crash in the wrong
    moment, all that is left of what somebody wrote: those bytes are kept beside the history.
    """
    for stray in strays:
        try:
            state = files.stray(stray)
            if state is not None and history.content(state.version) is None:
                history.quarantine(state.version, state.content)
                log.warning("%s was left behind, and is kept as %s", os.fsdecode(stray), state.version)
            files.sweep(stray)
        except (Refused, OSError) as error:
            log.warning("a temporary could not be removed: %s: %s", os.fsdecode(stray), error)
    files.remove_left_folders()
