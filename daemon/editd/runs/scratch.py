"""The scratch folder of a command: the proposed files that it gets, and its removal with all that is in it.

The client's form of proposed files is a *plan*, a folder: `files.json` has a list of `[path, mode,
has_content]`, and the file `N` has the content of entry N.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class TrialFile(NamedTuple):
    """A file as the proposal would leave it; `content` None means that it is gone."""

    path: str
    content: bytes | None
    mode: str | None = None  # as git has it: 100644, 100755, 120000


def remove_tree(folder: str) -> None:
    """Remove a scratch folder; a command leaves folders in it that even their owner may not enter."""
    for path, names, _ in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError, NotImplementedError):  # a symlink to a folder has no mode
                os.chmod(os.path.join(path, name), 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)


def write_files(root: str, files: Iterable[TrialFile]) -> None:
    """Bring the files below `root` to their proposed state. Raises OSError, also for one behind a link."""
    real = os.path.realpath(root)
    for file in files:
        path = os.path.join(real, file.path)
        folder = os.path.dirname(path)
        if os.path.realpath(folder) != folder:
            raise OSError(f"{file.path} is behind a symbolic link")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if file.content is None:
            continue
        os.makedirs(folder, exist_ok=True)
        if file.mode == "120000":
            os.symlink(file.content, os.fsencode(path))
            continue
        with open(path, "xb") as made:
            made.write(file.content)
        os.chmod(path, 0o755 if file.mode == "100755" else 0o644)


def read_plan(folder: str) -> Iterator[TrialFile]:
    """Yield the files of a plan."""
    with open(os.path.join(folder, "files.json"), encoding="utf-8", errors="surrogateescape") as file:
        entries = json.load(file)
    for number, (path, mode, has_content) in enumerate(entries):
        content = None
        if has_content:
            with open(os.path.join(folder, str(number)), "rb") as kept:
                content = kept.read()
        yield TrialFile(path, content, mode)
