"""What lies outside of a workspace and must stay as it is: not read, not changed, nothing put beside it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from editd_client.errors import EditdError
from support.crash_checks import history_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workplace import Workplace

SECRET = "do not tell anybody 7f3a9c"
FILES = ("f", "x", "sub/f", "config")


@dataclass
class Outside:
    """A folder beside the workspace, full of secrets, with what it was like when it was made."""

    folder: Path
    made: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in FILES:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{SECRET}\n")
        for path in sorted(self.folder.rglob("*")):
            if path.is_file():
                os.utime(path, ns=(0, path.stat().st_mtime_ns))  # who reads it now moves its access time
        self.made = self.seen()

    def seen(self) -> dict[str, tuple[object, ...]]:
        """Every name with all that a look from here does not change itself."""
        seen: dict[str, tuple[object, ...]] = {}
        for path in [self.folder, *sorted(self.folder.rglob("*"))]:
            found = path.lstat()
            times = found.st_mtime_ns, found.st_ctime_ns
            read = None if path.is_dir() else (found.st_size, found.st_atime_ns)
            seen[str(path)] = (found.st_mode, found.st_ino, found.st_uid, found.st_nlink, times, read)
        return seen

    def check(self) -> None:
        """Nothing was created, changed, removed or so much as read here."""
        assert self.seen() == self.made


def asked(call: Callable[[], object]) -> tuple[str | None, object]:
    """What a call says: the name of its refusal, None where it is done, and all that it tells."""
    try:
        return None, call()
    except EditdError as refusal:
        return refusal.name, (refusal.message, refusal.data)


def tells(told: object) -> bool:
    """Whether an answer holds what is outside."""
    return SECRET in repr(told)


def history_tells(place: Workplace) -> bool:
    """Whether the history of a stopped daemon holds what is outside: in its journal, or in an object."""
    if any(SECRET.encode() in content for content in history_files(place).values()):
        return True
    done = subprocess.run(
        ["git", "--git-dir", str(place.store), "cat-file", "--batch-all-objects", "--batch"],
        env=place.environment, capture_output=True, check=True,
    )  # fmt: skip
    return SECRET.encode() in done.stdout
