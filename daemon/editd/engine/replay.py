"""Replay records: the parts of an answer that are not in its transaction, saved for a retry (C7)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from editd.engine.external_changes import state_of
from editd.engine.queries import changes_of
from editd.errors import InvalidParams
from editd.values.changeset import Change, FileReport, Outcome
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from editd.engine.commands import Write
    from editd.store.history import History
    from editd.values.transaction import Transaction


_ENCODER = json.JSONEncoder(separators=(",", ":"))


class ReplayRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """JSON in a trailer of the commit, and in the journal's record."""

    fingerprint: str = ""
    replacements: dict[str, int] = {}
    warnings: list[str] = []
    file_warnings: dict[str, list[str]] = {}
    merged: list[str] = []
    unchanged: list[str] = []
    answers: list[str | None] = []
    formatted_by: list[str] = []


def encode_notes(outcome: Outcome, fingerprint: str) -> bytes:
    """Return the record of an outcome as one line of JSON.

    The bytes of a path are decoded as latin-1, because JSON cannot represent every file name. The JSON is
    ASCII, because warnings may have such names with surrogates, which JSON represents as escapes.
    """
    reports = outcome.reports.items()
    notes = ReplayRecord(
        fingerprint,
        {_out(path): r.replacements for path, r in reports if r.replacements is not None},
        list(outcome.warnings),
        {_out(path): list(r.warnings) for path, r in reports if r.warnings},
        [_out(path) for path in outcome.merged],
        [_out(change.path) for change in outcome.unchanged],
        list(outcome.answers) if any(answer is not None for answer in outcome.answers) else [],
        list(outcome.formatted_by),
    )
    return _ENCODER.encode(msgspec.to_builtins(notes)).encode()


def first_answer(request: Write, history: History) -> Outcome | None:
    """Return the first answer to a repeated request, or None if its id is new (C7).

    Raises InvalidParams if the id was used for a different request.
    """
    key = request.authorship.request_id
    seq = history.index.by_request(key, request.authorship.session) if key is not None else None
    if seq is None:
        return None
    transaction = history.find(seq)
    kept = _decode(history.index.notes(seq))
    if kept.fingerprint != request.fingerprint:
        raise InvalidParams(
            f"request_id {key!r} was used for a different request, which became transaction {seq}.",
            hint="Use a new id for a new request.",
            data={"request_id": key, "seq": seq},
        )
    unchanged: list[Change] = []
    for name in kept.unchanged:
        state = state_of(history.entry_at(_path_of(name), seq), history)
        unchanged.append(Change(_path_of(name), state, state))
    return Outcome(
        changes_of(transaction, history),
        transaction,
        _reports_of(kept),
        tuple(unchanged),
        tuple(_path_of(name) for name in kept.merged),
        warnings=tuple(kept.warnings),
        answers=tuple(kept.answers),
    )


def request_of(request_id: str, fingerprint: str, history: History) -> Transaction | None:
    """Return the transaction of the request with this id and fingerprint, of any session, or None."""
    for seq in history.index.requests(request_id):
        if _decode(history.index.notes(seq)).fingerprint == fingerprint:
            return history.find(seq)
    return None


def _decode(notes: bytes) -> ReplayRecord:
    return msgspec.convert(json.loads(notes), ReplayRecord) if notes else ReplayRecord()


def _reports_of(notes: ReplayRecord) -> dict[WorkspacePath, FileReport]:
    names = notes.replacements.keys() | notes.file_warnings.keys()
    return {
        _path_of(name): FileReport(notes.replacements.get(name), tuple(notes.file_warnings.get(name, ())))
        for name in names
    }


def _path_of(name: str) -> WorkspacePath:
    """Return a path that `_out` encoded."""
    return WorkspacePath(name.encode("latin-1").decode("utf-8", "surrogateescape"))


def _out(path: WorkspacePath) -> str:
    return path.raw.decode("latin-1")
