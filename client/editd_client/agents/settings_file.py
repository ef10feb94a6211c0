"""One settings file of an agent: read, changed as text, and replaced whole, with a record to restore it.

A file that cannot be read, or that is write-protected, is left alone. The record keeps the splices of each
change in the state folder, and no other part of the file, which may hold secrets.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass, field
from typing import Any

from editd.config import paths
from editd_client.agents.jsonc import Splice


@dataclass(slots=True)
class FileChange:
    """One file: its content before and after, None if there is no such file."""

    path: str
    before: bytes | None
    after: bytes | None
    mode: int = 0o644
    record: list[dict[str, Any]] | None = None  # the file's record afterwards
    folders: list[str] = field(default_factory=list)  # that were made for it, the innermost first


@dataclass(slots=True)
class Draft:
    """The text of a file while it is changed, with the splices that take each change back."""

    path: str
    original: bytes | None
    text: str
    mode: int
    record: list[dict[str, Any]]
    inverses: list[Splice] = field(default_factory=list)
    is_gone: bool = False
    is_restored: bool = False
    had_ours: bool = False  # something of editd's was in the file, and not by this record
    folders: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: str, record: list[dict[str, Any]], *, is_to_change: bool = True) -> Draft:
        """Read the file. Raises OSError, UnicodeError, and PermissionError if it is write-protected."""
        path = os.path.realpath(path)
        folders = _missing(os.path.dirname(path))
        if is_to_change:
            _check_writable(os.path.dirname(folders[-1]) if folders else os.path.dirname(path))
        try:
            with open(path, "rb") as file:
                content = file.read()
                mode = os.fstat(file.fileno()).st_mode & 0o7777
        except FileNotFoundError:
            return cls(path, None, "", 0o644, [], folders=folders)
        if is_to_change:
            _check_writable(path)
        if record and record[-1]["after"] != _digest(content):
            record = []  # it has changed since
        return cls(path, content, content.decode(), mode, record)

    @property
    def is_changed(self) -> bool:
        return self.after != self.original

    @property
    def after(self) -> bytes | None:
        is_none = self.is_gone or (self.original is None and not self.inverses)
        return None if is_none else self.text.encode()

    def splice(self, *splices: Splice) -> None:
        """Make these splices, one after the other."""
        for splice in splices:
            self.inverses.append(splice.inverse(self.text))
            self.text = splice.of(self.text)

    def restore(self) -> bool:
        """Take back all recorded splices, if the file has not changed since.

        Return whether nothing of editd's is left, so that no further removal is needed.
        """
        if self.record:
            for step in reversed(self.record):
                for start, end, old in reversed(step["inverse"]):
                    self.text = Splice(start, end, old).of(self.text)
            first = self.record[0]
            self.is_gone, self.folders = bool(first["is_new"]), list(first["folders"])
            self.is_restored = not first["had_ours"]
            self.record = []
        return self.is_restored

    def change(self, *, remove: bool) -> FileChange:
        after = self.after
        record = None
        if after is not None and not remove:
            step = {
                "after": _digest(after),
                "inverse": [(one.start, one.end, one.new) for one in self.inverses],
                "is_new": self.original is None,
                "folders": self.folders,
                "had_ours": self.had_ours,
            }
            record = [*self.record, step]
        return FileChange(self.path, self.original, after, self.mode, record, self.folders)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Records:
    """The splices that were made in each settings file, in one file of the state folder."""

    def __init__(self) -> None:
        self._path = os.path.join(paths.histories_folder(), "integrations.json")

    def of(self, path: str) -> list[dict[str, Any]]:
        entries = self._all().get(os.path.realpath(path), [])
        return entries if isinstance(entries, list) else []

    def set(self, path: str, record: list[dict[str, Any]] | None) -> None:
        known = self._all()
        known.pop(path, None)
        if record:
            known[path] = record
        os.makedirs(os.path.dirname(self._path), 0o700, exist_ok=True)
        _write(self._path, json.dumps(known).encode(), 0o600)

    def _all(self) -> dict[str, Any]:
        try:
            with open(self._path, "rb") as file:
                known = json.load(file)
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}


def _check_writable(path: str) -> None:
    """Raise PermissionError for a file or a folder that is write-protected, even for root."""
    if not (os.stat(path).st_mode & 0o222 and os.access(path, os.W_OK)):
        kind = "its folder" if os.path.isdir(path) else "it"
        raise PermissionError(f"{kind} is write-protected")


def _missing(folder: str) -> list[str]:
    """Return the folders that have to be made for a file in this one, the innermost first."""
    missing = []
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def replace_file(change: FileChange) -> None:
    """Replace the file, if it is as it was read. Raises OSError otherwise."""
    try:
        with open(change.path, "rb") as file:
            present: bytes | None = file.read()
    except FileNotFoundError:
        present = None
    if present != change.before:
        raise OSError(f"{change.path} changed meanwhile. It was left alone.")
    if change.after is None:
        os.unlink(change.path)
        with contextlib.suppress(OSError):  # it has other files
            for folder in change.folders:
                os.rmdir(folder)
        return
    os.makedirs(os.path.dirname(change.path), exist_ok=True)
    _write(change.path, change.after, change.mode)


def _write(path: str, content: bytes, mode: int) -> None:
    """Write the file whole or not at all; it keeps its owner and its attributes."""
    new = f"{path}.editd-{os.getpid()}"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(new, mode)
        if os.path.exists(path):
            known = os.stat(path)
            shutil.copystat(path, new)
            if (known.st_uid, known.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(new, known.st_uid, known.st_gid)
            os.utime(new)
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
