"""Inner workspaces: folders of the workspace that are separate workspaces, and left out of it.

A linked worktree is one, and a folder with a separate history (`config.paths.is_separate`). The inner
workspace owns its files. The outer one records nothing there, and refuses to edit there. What it recorded
there earlier stays as it was, and is compared again when the folder is no inner workspace any more.

A folder is checked when it is needed: on the path of an edit or of a change that was found. The set of known
inner workspaces is for `status` only, so that an unnoticed change of folders is no risk.
"""

from __future__ import annotations

import os
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING

from editd.advice import Advice, command_term
from editd.config import paths
from editd.errors import PermissionDenied
from editd.values.path import ways_down

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from editd.values.path import WorkspacePath


FOLDERS_MAX = 4096  # cached with their paths to check, for edits of the same files


class InnerWorkspaces:
    """The inner workspaces of one workspace."""

    def __init__(self, root: str) -> None:
        self._root = os.fsencode(root)
        self._known: set[bytes] = set()
        self.signs_of = lru_cache(FOLDERS_MAX)(self._signs)
        """Return the two paths without which a folder is no inner workspace."""

    def refuse(self, path: WorkspacePath) -> None:
        """Raise PermissionDenied if an inner workspace contains `path`."""
        folder = path.raw
        while folder := folder.rpartition(b"/")[0]:
            if self.is_one(folder):
                raise self._refusal(path, folder)

    def top_over(self, folder: bytes) -> bytes:
        """Return the inner workspace that contains a folder, or is it; b"" if none does."""
        return self.lookup()(folder)

    def lookup(self) -> Callable[[bytes], bytes]:
        """Return `top_over` for many folders, with a single check of each."""
        tops = {b"": b""}

        def top_over(folder: bytes) -> bytes:
            for way in ways_down(folder, tops):
                tops[way] = tops[way.rpartition(b"/")[0]] or (way if self.is_one(way) else b"")
            return tops[folder]

        return top_over

    def served_folders(self) -> Iterator[bytes]:
        """Yield the inner workspaces with their own history, or the mark of one."""
        for inner in paths.served_below(os.fsdecode(self._root)):
            if paths.is_separate(inner):
                yield os.fsencode(inner)[len(self._root) + 1 :]

    def is_one(self, folder: bytes) -> bool:
        """Return whether a folder is an inner workspace now."""
        if not folder or not paths.is_separate(self._absolute(folder)):
            return False
        self._known.add(folder)
        return True

    def descriptions(self, seen: Iterable[bytes]) -> list[str]:
        """Return a sentence for each inner workspace that is known, or among the folders `seen` by a scan."""
        now = [folder for folder in sorted(self._known | set(seen)) if self.is_one(folder)]
        self._known.intersection_update(now)
        return [
            f"{os.fsdecode(folder)} is {self._kind(folder)}, a separate workspace: editd records nothing "
            f"in it here. `editctl -C {shlex.quote(self._absolute(folder))}` serves it."
            for folder in now
        ]

    def _refusal(self, path: WorkspacePath, top: bytes) -> PermissionDenied:
        folder = self._absolute(top)
        return PermissionDenied(
            f"{path} belongs to another workspace: {os.fsdecode(top)} is {self._kind(top)}.",
            hint=Advice(
                "Edit it through that workspace: ",
                command_term(f"-C {shlex.quote(folder)}"),
                ", or from inside it.",
            ),
            data={"path": path.text, "workspace": folder},
        )

    def _signs(self, folder: bytes) -> tuple[str, str]:
        absolute = self._absolute(folder)
        return os.path.join(absolute, paths.TOP_LEVEL), os.path.join(paths.state_of(absolute), paths.NESTED)

    def _kind(self, folder: bytes) -> str:
        is_worktree = paths.is_linked_worktree(self._absolute(folder))
        return "a linked worktree" if is_worktree else "a folder with a separate history"

    def _absolute(self, folder: bytes) -> str:
        return os.fsdecode(os.path.join(self._root, folder))
