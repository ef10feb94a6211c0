"""The answers to commands: details for refusals, and the saved answer for a retry."""

from __future__ import annotations

import errno
import json
import os
from difflib import get_close_matches
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from editd.advice import Advice, command_term
from editd.edits.diff import unified_diff
from editd.engine.queries import changes_of
from editd.engine.undo_conflicts import UndoConflict
from editd.errors import InvalidParams, IoError, NoMatch, Refused, Stale, Timeout, TooLarge, join_names
from editd.store.line_blame import LineBlame
from editd.store.recorded_state import state_of
from editd.values.content import Change, FileState, Version
from editd.values.path import WorkspacePath
from editd.values.transaction import FileReport, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.engine.commands import Write
    from editd.errors import FileMissing
    from editd.store.history import History
    from editd.values.content import Decoder
    from editd.values.proposal import Decision
    from editd.values.transaction import Transaction


# Replay records: the parts of an answer that are not in its transaction, saved for a retry (C7).

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
    unchanged: list[Change[FileState]] = []
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


def first_landing(decision: Decision, history: History) -> Outcome:
    """Return the answer to the approval that made this decision, for a reviewer's repeated request."""
    if decision.seq is None:
        return Outcome((), reviewer_diff=decision.reviewer_diff)
    transaction = history.find(decision.seq)
    changes = changes_of(transaction, history)
    return Outcome(changes, transaction, reviewer_diff=decision.reviewer_diff)


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


# Refusal details: facts from the history that help the client to send a correct request next.

DIFF_BYTES_MAX = 4 * 1024 * 1024  # of one file in a `stale` answer, which takes libgit2 about 100 ms
CHANGED_BY_MAX = 20  # transactions in a `stale` answer, the newest
BLAME_BYTES_MAX = 1024 * 1024  # of a file in a `no_match` answer
BLAME_SECONDS_MAX = 0.05  # short, because all clients wait
NAMES_COMPARED_MAX = 2_000  # of one folder, which takes about 20 ms
SIMILAR_MAX = 3


def explained(
    refusal: Refused,
    history: History,
    current: Callable[[WorkspacePath], FileState | None],
    decoder: Decoder,
) -> Refused:
    """Return the refusal with details from the history. Call this after the batch is recorded.

    `current` returns the present state of a file, and `decoder` decodes what a diff shows of it.
    """
    if isinstance(refusal, UndoConflict):
        return refusal.explained(history, current)
    if isinstance(refusal, Stale):
        return _explained_stale(refusal, history, decoder)
    if isinstance(refusal, NoMatch) and refusal.applied is not None:
        return _explained_applied(refusal, *refusal.applied, history)
    return refusal


def _explained_stale(stale: Stale, history: History, decoder: Decoder) -> Stale:
    path = WorkspacePath(stale.data["path"])
    base, current = stale.data["base"], stale.data["current"]
    changed_by = _changes_since(history, path, base)
    return stale.revise(
        data={"changed_by": changed_by, "diff": _diff(history, path, (base, current), decoder)}
    )


def with_changes_since(outcome: Outcome, history: History, session: str | None) -> Outcome:
    """Return the outcome with the changes of others that its reader did not know."""
    until = outcome.transaction.seq if outcome.transaction is not None else history.head + 1
    changed_by = {
        path: [
            transaction
            for transaction in _changes_since(history, path, base.version)
            if transaction.seq < until and (session is None or transaction.authorship.session != session)
        ]
        for path, base in outcome.outdated.items()
    }
    return replace(outcome, changed_by={path: made for path, made in changed_by.items() if made})


def with_similar(
    missing: FileMissing,
    names: Callable[[WorkspacePath | None], list[str] | None],
    may_read: Callable[[WorkspacePath], bool],
) -> FileMissing:
    """Return the refusal of a missing file with existing paths of similar spelling."""
    path = missing.data.get("path")
    if not isinstance(path, str):
        return missing
    candidates = _similar(path.split("/"), names)
    similar = [near for near in candidates if near != path and may_read(WorkspacePath(near))]
    if not similar:
        return missing
    question = f"Did you mean {' or '.join(similar)}?"
    hint = Advice(f"{question} ", *missing.advice.parts) if missing.advice else question
    return missing.revise(hint=hint, data={"similar": similar})


def _similar(parts: list[str], names: Callable[[WorkspacePath | None], list[str] | None]) -> list[str]:
    """Return the files whose path differs from `parts` by misspelled names."""
    folder: WorkspacePath | None = None
    for part in parts[:-1]:
        near = _close(part + "/", names(folder))
        if not near:
            return []
        folder = _below(folder, near[0].removesuffix("/"))
    return [_below(folder, name).text for name in _close(parts[-1], names(folder))]


def _close(name: str, names: list[str] | None) -> list[str]:
    """Return the names similar to `name`, best first, of the same kind: a folder's name ends in `/`."""
    is_folder = name.endswith("/")
    same_kind = [other for other in names or () if other.endswith("/") == is_folder]
    if name in same_kind:
        return [name]
    return get_close_matches(name, same_kind[:NAMES_COMPARED_MAX], SIMILAR_MAX)


def _below(folder: WorkspacePath | None, name: str) -> WorkspacePath:
    return WorkspacePath(name if folder is None else f"{folder.text}/{name}")


def _changes_since(history: History, path: WorkspacePath, base: str | None) -> list[Transaction]:
    """Return the newest transactions that changed a path after it had version `base`."""
    index = history.index
    made_by = index.version_made_by(path, Version(base)) if base is not None else None
    since = index.touches_after(path, made_by or 0)
    return [history.find(seq) for seq in since[-CHANGED_BY_MAX:]]


def _explained_applied(refusal: NoMatch, first: int, lines: tuple[str, ...], history: History) -> NoMatch:
    """Return the refusal with the transaction that wrote the new text.

    Without it if the search takes long or the file has changed.
    """
    path = refusal.path
    entry = None if path is None else history.entry(path)
    content = None if entry is None else history.content(entry.version)
    if path is None or entry is None or content is None or len(content) > BLAME_BYTES_MAX:
        return refusal
    numbers = range(first - 1, first - 1 + len(lines))
    recorded = [line.rstrip(b"\r") for line in content.split(b"\n")]
    if recorded[numbers.start : numbers.stop] != [line.encode("utf-8", "surrogateescape") for line in lines]:
        return refusal
    blame = LineBlame(history, path, entry.version, numbers)
    if not blame.run_for(BLAME_SECONDS_MAX):
        return refusal
    transaction = history.find(max(blame.seqs[number] for number in numbers))
    hint = refusal.advice.with_parts(f" {_origin(transaction)}")
    return refusal.revise(hint=hint, data={"applied_by": transaction})


def _origin(transaction: Transaction) -> str:
    if transaction.kind == "baseline":
        return "The text is part of the baseline."
    author = transaction.authorship
    session = f" in {author.session}" if author.session else ""
    number = int(transaction.seq)
    return f"Transaction {number} wrote the new text, {transaction.kind} by {author.actor}{session}."


def _diff(
    history: History, path: WorkspacePath, versions: tuple[str | None, str | None], decoder: Decoder
) -> str | None:
    """Return the diff of two versions of a path, or None if one is unknown or too large."""
    states: list[FileState | None] = []
    for version in versions:
        content = None if version is None else history.content(Version(version))
        if version is not None and (content is None or len(content) > DIFF_BYTES_MAX):
            return None
        states.append(None if content is None else FileState(content))
    try:
        return unified_diff(path, states[0], states[1], path, with_binary=False, decoder=decoder)
    except (Timeout, TooLarge):
        return None


def folder_missing(root: str) -> Refused:
    cause = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    gone = IoError(
        cause,
        "The workspace's folder was moved or removed",
        hint="Put it back, or stop the daemon. The history keeps all recorded transactions.",
    )
    if not os.path.isdir(root):
        return gone
    return gone.revise(
        message=f"The workspace's folder was moved or removed, and {root} is another folder now.",
        hint=Advice(
            "Put the old folder back, or run ", command_term("stop"), " and ", command_term("start"),
            ": a new daemon records this folder as one outside change, which you can undo.",
        ),
    )  # fmt: skip


def kept_changing(request: Write) -> Refused:
    paths = sorted(getattr(edit, "path", "") for edit in getattr(request, "edits", ()))
    return Stale(paths[0] if paths else "", None, None).revise(
        message=f"{join_names(paths) or 'A file'} kept changing while the edit was being made.",
        hint="Try again when the program that writes to it has finished.",
    )
