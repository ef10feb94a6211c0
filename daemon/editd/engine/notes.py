"""What an answer says beside its transaction, kept with it so that a retry gets the same answer (C7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from editd.values.changeset import FileReport
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from editd.engine.requests import Outcome


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """JSON in a trailer of the commit, and in the journal's record."""

    fingerprint: str = ""
    replacements: dict[str, int] = {}
    warnings: list[str] = []
    file_warnings: dict[str, list[str]] = {}
    merged: list[str] = []
    unchanged: list[str] = []


def encode(outcome: Outcome, fingerprint: str) -> bytes:
    """One line of JSON. A path goes in as latin-1 of its bytes, since JSON cannot hold every name."""
    reports = outcome.reports.items()
    notes = Notes(
        fingerprint,
        {_out(path): r.replacements for path, r in reports if r.replacements is not None},
        list(outcome.warnings),
        {_out(path): list(r.warnings) for path, r in reports if r.warnings},
        [_out(path) for path in outcome.merged],
        [_out(change.path) for change in outcome.unchanged],
    )
    return msgspec.json.encode(notes)


def decode(notes: bytes) -> Notes:
    return msgspec.json.decode(notes, type=Notes) if notes else Notes()


def reports_of(notes: Notes) -> dict[WorkspacePath, FileReport]:
    names = notes.replacements.keys() | notes.file_warnings.keys()
    return {
        path_of(name): FileReport(notes.replacements.get(name), tuple(notes.file_warnings.get(name, ())))
        for name in names
    }


def path_of(name: str) -> WorkspacePath:
    """A path that `encode` wrote."""
    return WorkspacePath(name.encode("latin-1").decode("utf-8", "surrogateescape"))


def _out(path: WorkspacePath) -> str:
    return path.raw.decode("latin-1")
