"""The paths of one daemon: its workspace, its state folder and its socket."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from editd.config import paths
from editd.errors import PermissionDenied
from editd.values.path import WorkspacePath
from editd.workspace.scope import WorkspaceScope


class WorkspacePaths(Struct, frozen=True):
    """The paths of a workspace's daemon."""

    root: str
    name: str  # the workspace's id
    state: str
    socket: str

    @classmethod
    def of(cls, workspace: str, *, nested: bool = False) -> WorkspacePaths:
        """Return the paths of the workspace that contains `workspace`; with `nested`, of that very folder.

        Raises PermissionDenied for `/`, a home folder, and a folder that contains its own history or
        is inside another one.
        """
        root = os.path.realpath(workspace) if nested else paths.workspace_root(workspace)
        if not os.path.isdir(root):
            raise PermissionDenied(f"{workspace} is not a folder.", hint="Give the workspace's top folder.")
        if paths.is_system_root(root) or paths.is_home(root):
            raise PermissionDenied(
                f"{root} is too much to own: editd does not take the root or a home folder.",
                hint="Choose the folder of one project.",
            )
        states = os.path.realpath(paths.histories_folder())
        if os.path.commonpath([root, states]) in (root, states):
            raise PermissionDenied(
                f"{root} and {states}, the folder of editd's histories, overlap.",
                hint="Choose another folder, or another folder for the histories: XDG_STATE_HOME.",
            )
        name = paths.workspace_id(root)
        return cls(root, name, paths.state_folder(name), paths.socket_path(name))

    def other_path(self) -> str:
        """Return the path by which another running daemon of this user has this folder; "" for none."""
        with suppress(OSError):
            for name in os.listdir(os.path.dirname(self.state)):
                state = paths.state_folder(name)
                if state != self.state and paths.is_running(state):
                    root = os.fsdecode(Path(state, "root").read_bytes().removesuffix(b"\n"))
                    if os.path.samefile(root, self.root):
                        return root
        return ""

    def allow_nesting(self) -> None:
        """Record that this workspace may be inside another one, for later starts too."""
        Path(self.state, paths.NESTED).touch(0o600)

    def check_not_nested(self) -> None:
        """Refuse a workspace whose files a running daemon owns as part of a folder above.

        Raises PermissionDenied. A folder that the outer workspace ignores is not its own.
        """
        if os.path.exists(os.path.join(self.state, paths.NESTED)):
            return
        for outer in paths.upwards(self.root)[1:]:
            if not paths.is_running(paths.state_folder(paths.workspace_id(outer))):
                continue
            inside = WorkspacePath.parse(os.path.join(os.path.relpath(self.root, outer), "file"))
            if WorkspaceScope(outer).is_in(inside):
                raise PermissionDenied(
                    f"A running daemon owns {outer}, and {self.root} is part of it.",
                    hint=f"Use that workspace (`editctl -C {outer}`), or pass `--nested` for one inside it.",
                )
