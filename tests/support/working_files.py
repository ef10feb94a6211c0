"""Files of a workspace as tests write and see them: from outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from editd.system.filesystem import Disk, ignore_lease_signal
from editd.values.content import SYMLINK, Change, FileState
from editd.values.path import WorkspacePath
from editd.workspace.reader import WorkspaceReader
from editd.workspace.replaced_files import Quarantine
from editd.workspace.staged_change import TransactionState
from editd.workspace.writer import WorkspaceWriter

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Literal

    from editd.workspace.staged_change import StagedFiles

OLD, NEW, THEIRS, NEWEST = FileState(b"old"), FileState(b"new"), FileState(b"theirs"), FileState(b"newest")
LINK = FileState(b"target", SYMLINK)
Held = dict[str, FileState]

ignore_lease_signal()  # as the daemon does at its start

is_spared = False  # whether `files_on` has spares to write into; the fixture `spared` says so


def files_on(disk: Disk, publish: Literal["exchange", "rename"] = "exchange") -> WorkspaceWriter:
    """What publishes on this disk, as the daemon has it: with spares, or where there can be none."""
    if not is_spared:
        return WorkspaceWriter(disk, publish=publish)
    files = WorkspaceWriter(disk, publish=publish, replaced=Quarantine(f"{os.fsdecode(disk.root)}.replaced"))
    make_ahead(files)
    return files


def commit_and_publish(files: WorkspaceWriter, staging: StagedFiles) -> None:
    """Publish as the engine does, once the record is durable."""
    staging.enter(TransactionState.COMMITTED)
    files.publish(staging)


def make_ahead(files: WorkspaceWriter) -> None:
    """Have some spares ready, as the daemon does in its pauses."""
    if (make := files.make_ahead()) is not None:
        files.made_ahead(make())


def written_since(
    files: WorkspaceWriter, now: float | None
) -> Generator[tuple[WorkspacePath | None, FileState]]:
    """What somebody wrote into what was replaced; None: at the end of it all."""
    check = files.check_quarantine(now)
    yield from files.late_writes([] if check is None else check())
    if now is None:
        files.end()


def put(root: Path, files: Held) -> None:
    """Make files as another program would, by a temporary and a rename."""
    for name, state in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.parent / "being saved~"
        if state.is_symlink:
            aside.symlink_to(os.fsdecode(state.content))
        else:
            aside.write_bytes(state.content)
            if state.is_executable:
                aside.chmod(0o755)
        aside.rename(path)


def held(root: Path) -> Held:
    """Return every file in the workspace, temporaries too, and each empty folder as a file `<path>/`."""
    disk = Disk(str(root))
    tree = WorkspaceReader(disk, file_bytes_max=1 << 20)
    found: Held = {}
    for folder, folders, names in os.walk(root):
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*names, *links]:
            path = os.path.relpath(f"{folder}/{name}", root)
            state = tree.read(WorkspacePath(path))
            assert state is not None
            found[path] = state
        if not names and not folders and folder != str(root):
            found[os.path.relpath(folder, root) + "/"] = FileState(b"")
    disk.close()
    return found


def change(
    path: str, before: FileState | None, after: FileState | None, source: str | None = None
) -> Change[FileState]:
    return Change(
        WorkspacePath.parse(path), before, after, None if source is None else WorkspacePath.parse(source)
    )


def changes_between(before: Held, after: Held) -> list[Change[FileState]]:
    paths = sorted(before.keys() | after.keys())
    return [change(p, before.get(p), after.get(p)) for p in paths if before.get(p) != after.get(p)]
