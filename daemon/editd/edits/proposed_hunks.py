"""The hunks of a proposal: a planned change, split into parts that are decided one by one.

A hunk is a run of changed lines without context. Its id has no line numbers, so that it stays the same
wherever the lines move. Hunks with equal lines in one file get different ids, from their order and their
count. If a new revision has another count of them, all of their ids are new.

Never diffs a second time after a part has landed: another diff could align the lines differently.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.line_changes import LineChange, apply_changes, hunks_between, lines_of
from editd.values.proposal import HunkId, ProposedFile, ProposedHunk, is_whole

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from editd.values.content import Change, FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import HunkKind

FILE_HUNKS_MAX = 2_000  # more runs of lines in one file are one hunk, because no reviewer decides so many
_ID_DIGITS = 16


def proposed_files(changes: Iterable[Change[FileState]]) -> tuple[ProposedFile, ...]:
    """Split the changes of a plan into hunks, numbered from 1 through all files.

    The two changes of a move become one file with a `source`, unless the move replaces a file or
    another file takes its old place. Then each path is a separate file. A change without an effect has
    no hunks and is left out.
    """
    by_path = {change.path: change for change in changes}
    moves = {
        change.path: change.source
        for change in by_path.values()
        if change.source is not None and _is_plain_move(change, by_path.get(change.source))
    }
    gone = set(moves.values())
    files = []
    number = 1
    for path, change in by_path.items():
        if path in gone:
            continue
        source = moves.get(path)
        base = change.before if source is None else by_path[source].before
        hunks = _split(path, source, base, change.after, number)
        if hunks:
            files.append(ProposedFile(path, source, base, change.after, hunks))
        number += len(hunks)
    return tuple(files)


def landed_base(file: ProposedFile) -> FileState | None:
    """Return the base with all hunks that have landed; None for "no such file"."""
    return with_hunks(file, {hunk.id for hunk in file.hunks if hunk.verdict == "landed"})


def with_hunks(file: ProposedFile, chosen: Collection[HunkId]) -> FileState | None:
    """Return the base with only the `chosen` hunks; None for "no such file". A move changes no content."""
    kinds = {hunk.kind for hunk in file.hunks if hunk.id in chosen}
    if file.base is None or file.proposed is None or file.is_whole:
        return file.proposed if "file" in kinds else file.base
    state = file.base.with_mode(file.proposed.mode) if "mode" in kinds else file.base
    if "file" in kinds:
        return state.with_content(file.proposed.content)
    if "lines" not in kinds:
        return state
    changes = [change for hunk, change in line_changes(file) if hunk.id in chosen]
    return state.with_content(apply_changes(state.content, changes))


def line_changes(file: ProposedFile) -> Iterator[tuple[ProposedHunk, LineChange]]:
    """Yield each hunk of lines with its change of the base, in their order."""
    lines = lines_of(file.proposed.content) if file.proposed is not None else ()
    for hunk in file.hunks:
        if hunk.kind == "lines":
            new = lines[hunk.new_start : hunk.new_end]
            yield hunk, LineChange(hunk.start, hunk.end, hunk.new_start + bool(new), new)


def open_line_changes(file: ProposedFile) -> Iterator[tuple[ProposedHunk, LineChange]]:
    """Yield each undecided hunk of lines with its change of `landed_base`, in their order."""
    offset = added = 0
    for hunk, change in line_changes(file):
        more = len(change.lines) - (change.end - change.start)
        if hunk.verdict is None:
            start, end = change.start + offset, change.end + offset
            first_line = start + added + bool(change.lines)
            yield hunk, LineChange(start, end, first_line, change.lines)
            added += more
        elif hunk.verdict == "landed":
            offset += more


class _Draft(Struct, frozen=True):
    """A hunk without its id and number: the kind, the text before and after, and the lines."""

    kind: HunkKind
    old: bytes
    new: bytes
    lines: tuple[int, int, int, int] = (0, 0, 0, 0)


def _is_plain_move(change: Change[FileState], origin: Change[FileState] | None) -> bool:
    """Return whether a file moved to a free path, and left its old path free."""
    is_free = change.before is None and change.after is not None
    return is_free and origin is not None and origin.after is None and origin.before is not None


def _split(
    path: WorkspacePath,
    source: WorkspacePath | None,
    base: FileState | None,
    proposed: FileState | None,
    number: int,
) -> tuple[ProposedHunk, ...]:
    drafts = list(_drafts(path, source, base, proposed))
    counts = Counter((draft.kind, draft.old, draft.new) for draft in drafts)
    seen: Counter[tuple[str, bytes, bytes]] = Counter()
    hunks = []
    for index, draft in enumerate(drafts):
        key = (draft.kind, draft.old, draft.new)
        seen[key] += 1
        twins = b"" if counts[key] == 1 else b"%d of %d" % (seen[key], counts[key])
        digest = _id(draft.kind.encode(), path.raw, draft.old, draft.new, twins)
        hunks.append(ProposedHunk(digest, number + index, draft.kind, *draft.lines))
    return tuple(hunks)


def _drafts(
    path: WorkspacePath,
    source: WorkspacePath | None,
    base: FileState | None,
    proposed: FileState | None,
) -> Iterator[_Draft]:
    if source is not None:
        yield _Draft("move", source.raw, path.raw)
    if base == proposed:
        return
    if base is None or proposed is None or is_whole(base, proposed):
        yield _Draft("file", _state_text(base), _state_text(proposed))
        return
    if base.mode != proposed.mode:
        yield _Draft("mode", b"%o" % base.mode, b"%o" % proposed.mode)
    if base.version != proposed.version:
        yield from _content_drafts(base, proposed)


def _content_drafts(base: FileState, proposed: FileState) -> Iterator[_Draft]:
    is_binary = b"\0" in base.content or b"\0" in proposed.content
    changes = [] if is_binary else hunks_between(base.content, proposed.content)
    if is_binary or len(changes) > FILE_HUNKS_MAX:
        yield _Draft("file", base.version.encode(), proposed.version.encode())
        return
    old = lines_of(base.content)
    for change in changes:
        start = change.first_line - bool(change.lines)
        lines = change.start, change.end, start, start + len(change.lines)
        yield _Draft("lines", b"".join(old[change.start : change.end]), b"".join(change.lines), lines)


def _state_text(state: FileState | None) -> bytes:
    return b"" if state is None else b"%o %b" % (state.mode, state.version.encode())


def _id(*parts: bytes) -> HunkId:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return HunkId(digest.hexdigest()[:_ID_DIGITS])
