"""Proposals as a reviewer sees them: the list that follows events, and one proposal hunk by hunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from editd.wire.codec import convert
from editd.wire.messages import ProposalEntry
from editd.words import in_the_way
from editd_client.review.patch import rows_of
from editd_client.review.query import is_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd.wire.messages import (
        CheckReport,
        HunkState,
        ProposalFile,
        ProposalGetResult,
        ProposalHunk,
        ReviewComment,
        RunningCheck,
    )
    from editd_client.review.patch import Row
    from editd_client.review.query import TransactionQuery

WAITING = ("draft", "open")
MARKS: Mapping[HunkState, str] = {
    "fits": " ", "there": "=", "conflict": "!", "landed": "✓", "rejected": "✗",
}  # fmt: skip
ASKED = {"request": "the author asked for it", "session": "its session asks for each edit"}


class ShownHunk(Struct, frozen=True):
    """A hunk with its rows, the comments about it, and of a conflict the present lines."""

    hunk: ProposalHunk
    rows: tuple[Row, ...]
    comments: tuple[ReviewComment, ...] = ()

    @property
    def blocking(self) -> tuple[int, ...]:
        """The transactions in the way."""
        return tuple(self.hunk.blocking) if isinstance(self.hunk.blocking, list) else ()

    @property
    def present_lines(self) -> tuple[str, ...]:
        """The lines of the present file that conflict."""
        text = self.hunk.now_text
        return tuple(text.removesuffix("\n").split("\n")) if isinstance(text, str) and text else ()


class ShownFile(Struct, frozen=True):
    """A file of a proposal, with its hunks and the comments about it."""

    file: ProposalFile
    hunks: tuple[ShownHunk, ...]
    comments: tuple[ReviewComment, ...] = ()

    @property
    def title(self) -> str:
        source = self.file.from_
        return f"{source} → {self.file.path}" if isinstance(source, str) else self.file.path


def shown_files(proposal: ProposalGetResult) -> tuple[ShownFile, ...]:
    """Return the files of a proposal with their rows and comments."""
    return tuple(
        ShownFile(
            file,
            tuple(
                ShownHunk(
                    hunk,
                    tuple(rows_of(hunk.text)),
                    tuple(one for one in proposal.comments if one.hunk == hunk.hunk),
                )
                for hunk in file.hunks
            ),
            tuple(one for one in proposal.comments if one.hunk is None and one.path == file.path),
        )
        for file in proposal.files
    )


def general_comments(proposal: ProposalGetResult) -> list[ReviewComment]:
    """Return the comments that are about no hunk and no file of the present revision."""
    hunks = {hunk.hunk for file in proposal.files for hunk in file.hunks}
    paths = {file.path for file in proposal.files}
    return [
        one
        for one in proposal.comments
        if one.hunk not in hunks and (one.hunk is not None or one.path not in paths)
    ]


# ── In words ──────────────────────────────────────────────────────────────────────────────────


def subject(proposal: ProposalEntry) -> str:
    """Return the first line of the message, otherwise the paths."""
    more = f" and {len(proposal.paths) - 1} more" if len(proposal.paths) > 1 else ""
    return proposal.message.partition("\n")[0] or "".join(proposal.paths[:1]) + more


def author(proposal: ProposalEntry) -> str:
    """Return the session of a proposal, which a reviewer knows its author by; without one, the actor."""
    return proposal.session or proposal.actor


def fit(proposal: ProposalEntry) -> str:
    """Return how a proposal fits the present files, or its state once it is decided."""
    if proposal.state != "open":
        return proposal.state
    counts = proposal.counts
    left = sum(counts.get(state, 0) for state in ("fits", "there", "conflict"))
    if conflicts := counts.get("conflict", 0):
        return f"{conflicts} of {left} in conflict"
    return "fits" if counts.get("fits", 0) else "all there already"


def reason(proposal: ProposalEntry) -> str:
    """Return why a proposal waits for a reviewer."""
    return ASKED.get(proposal.rule, f"rule: {proposal.rule}")


def hunk_title(hunk: ProposalHunk, before: ProposalHunk | None = None) -> str:
    """Return the fit of a hunk in words; `before` is the hunk as it was shown last."""
    kind = {"file": "whole file", "mode": "change of mode", "move": "move"}.get(hunk.kind, "")
    if hunk.state == "conflict":
        by = hunk.blocking if isinstance(hunk.blocking, list) else []
        state = f"conflict, {in_the_way(by)}" if by else "conflict"
    elif hunk.state == "there":
        state = "is in the file already"
    else:
        state = {"fits": "fits", "landed": "has landed", "rejected": "was rejected"}[hunk.state]
    if before is not None and (moved := hunk.old_start - before.old_start):
        state += f", moved by {moved:+d}"
    return f"{kind}: {state}" if kind else state


def check_text(check: CheckReport, shown: ProposalGetResult) -> str:
    """Return the result of a check in words."""
    result = "passed" if check.exit == 0 else f"failed ({check.exit})"
    numbers = {hunk.hunk: hunk.number for file in shown.files for hunk in file.hunks}
    some = [str(numbers.get(hunk, "of an earlier revision")) for hunk in check.hunks or ()]
    on = f" on hunk{'s' * (len(some) > 1)} {', '.join(some)}" if some else ""
    by = "run by the daemon" if check.by.via == "rule" else f"as {check.by.actor} claims"
    old = ", on an earlier view" if shown.state == "open" and not check.is_current else ""
    return f"{result}{on} in {check.seconds:.1f} s, {by}{old}"


def check_name(check: CheckReport) -> str:
    """Return the name of a check for a list; one of some hunks says so, since it is not about all of it."""
    return f"{check.name} in part" if check.hunks else check.name


def running_text(check: RunningCheck) -> str:
    """Return the state of a check that has no result yet."""
    return "waits for its turn" if check.seconds is None else f"running for {check.seconds:.0f} s"


# ── The list ──────────────────────────────────────────────────────────────────────────────────


def matching(entries: Iterable[ProposalEntry], query: TransactionQuery) -> list[ProposalEntry]:
    """Return the proposals that match a query, as `log` matches transactions."""
    return [
        one
        for one in entries
        if is_named(one.session, query.session)
        and is_named(one.actor, query.actor)
        and (not query.kind or one.kind in query.kind)
        and (not query.path or any(map(query.is_below, one.paths)))
        and query.grep.casefold() in one.message.casefold()
    ]


class ProposalRows:
    """The proposals that wait, newest first. Follows the events `proposal`."""

    def __init__(self, entries: Iterable[ProposalEntry] = ()) -> None:
        self._by_number = {one.proposal: one for one in entries}

    @property
    def entries(self) -> list[ProposalEntry]:
        return [self._by_number[number] for number in sorted(self._by_number, reverse=True)]

    def __len__(self) -> int:
        return len(self._by_number)

    def get(self, number: int) -> ProposalEntry | None:
        return self._by_number.get(number)

    def take(self, data: Mapping[str, Any]) -> ProposalEntry:
        """Take the data of an event `proposal`; return the proposal as it is now."""
        entry = convert(data["proposal"], ProposalEntry)
        self.put(entry)
        return entry

    def put(self, entry: ProposalEntry) -> None:
        """List a proposal if it waits, and otherwise remove it."""
        if entry.state in WAITING:
            self._by_number[entry.proposal] = entry
        else:
            self._by_number.pop(entry.proposal, None)

    def nearest(self, number: int) -> int | None:
        """Return the proposal to select in place of one that has left the list: the next older one."""
        if not self._by_number or number in self._by_number:
            return number if number in self._by_number else None
        older = [one for one in self._by_number if one < number]
        return max(older) if older else min(self._by_number)
