"""The actions of a reviewer: the key of each, the requests that it sends, and its preview in words.

Both faces have the same keys. Sends nothing: a face sends the prepared requests in their order, and stops at
the first that is refused. An undo and a rollback are shown before they are made: their `dry_run` is the
preview.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from editd.wire.messages import ReviewedFile  # noqa: TC001  # a field of HunkDecision
from editd_client import requests
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.wire.messages import InTheWay, ProposalGetResult, ProposalResult, UndoResult
    from editd_client.requests import PreparedCall
    from editd_client.review.choices import HunkChoices

View = Literal["proposals", "timeline", "agents"]


class Action(Struct, frozen=True):
    """A key, and its effect in a few words. Three dots: asks before anything is sent."""

    key: str
    name: str
    effect: str
    views: tuple[View, ...]


EVERYWHERE: tuple[View, ...] = ("proposals", "timeline", "agents")
ACTIONS: tuple[Action, ...] = (
    Action("j", "next", "next row", EVERYWHERE),
    Action("k", "previous", "previous row", EVERYWHERE),
    Action("?", "help", "all keys", EVERYWHERE),
    Action("/", "filter", "filter the list", EVERYWHERE),
    Action("space", "choose", "approve, reject or leave the hunk open", ("proposals",)),
    Action("]", "next-hunk", "next hunk", ("proposals",)),
    Action("[", "previous-hunk", "previous hunk", ("proposals",)),
    Action("}", "next-file", "next file", ("proposals",)),
    Action("{", "previous-file", "previous file", ("proposals",)),
    Action("a", "approve", "land the chosen hunks", ("proposals",)),
    Action("x", "reject", "reject the proposal…", ("proposals",)),
    Action("c", "comment", "comment…", ("proposals",)),
    Action("e", "edit", "edit the proposed text…", ("proposals",)),
    Action("t", "try", "try a command on it…", ("proposals",)),
    Action("u", "undo", "undo the transaction…", ("timeline",)),
    Action("r", "redo", "redo the newest undo…", ("timeline",)),
    Action("R", "rollback", "roll back the session…", ("timeline", "agents")),
    Action("A", "allow", "let its edits land for a while…", ("proposals", "agents")),
    Action("X", "revoke", "end a grant…", ("agents",)),
)


def keys_of(view: View) -> list[Action]:
    """Return the actions of a view, in the order of the help."""
    return [one for one in ACTIONS if view in one.views]


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


def decide(choices: HunkChoices, *, comment: str | None, request_id: str) -> list[PreparedCall[Any]]:
    """Return the requests that land the chosen hunks and reject those to be rejected.

    Raises EditdError if nothing is chosen.
    """
    decision = HunkDecision(
        proposal=choices.shown.proposal,
        view=choices.shown.view,
        approved=tuple(choices.chosen("approve")),
        rejected=tuple(choices.chosen("reject")),
        is_open=bool(choices.chosen("open")),
        there=tuple(there(choices.shown)),
    )
    return decision.calls(comment=comment, request_id=request_id)


class HunkDecision(Struct, frozen=True, kw_only=True):
    """The choices about a proposal as it was shown, by the ids of its hunks."""

    proposal: int
    view: str
    approved: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    is_open: bool = False  # some hunks are left open, or were not shown
    there: tuple[str, ...] = ()  # hunks that the files have already
    files: tuple[ReviewedFile, ...] = ()  # the reviewer's own texts

    def calls(self, *, comment: str | None, request_id: str) -> list[PreparedCall[Any]]:
        """Return one request, or two if some hunks are rejected and others stay open.

        They name the hunks by their ids, or if all of them are to land, the view. So what was not shown does
        not land. Raises EditdError if nothing is chosen.
        """
        calls: list[PreparedCall[Any]] = []
        is_landing = bool(self.approved or self.files)
        if not is_landing and not self.rejected:
            raise refusal("invalid_params", "No hunk is chosen.", hint="Choose hunks to approve or reject.")
        if is_landing:
            is_all = not self.rejected and not self.is_open
            calls.append(
                requests.proposal_approve(
                    self.proposal,
                    hunks=None if is_all else [*self.approved, *self.there],
                    view=self.view,
                    files=self.files,
                    rest="reject" if self.rejected and not self.is_open else "keep",
                    comment=comment,
                    request_id=request_id,
                )
            )
        if self.rejected and (self.is_open or not is_landing):
            hunks = list(self.rejected) if self.is_open else None
            ident = f"{request_id}-rest"
            calls.append(
                requests.proposal_reject(self.proposal, hunks=hunks, comment=comment, request_id=ident)
            )
        return calls


def there(shown: ProposalGetResult) -> list[str]:
    """Return the hunks that the files have already: they count as landed with the others."""
    return [hunk.hunk for file in shown.files for hunk in file.hunks if hunk.state == "there"]


def reject(shown: ProposalGetResult, *, comment: str | None, request_id: str) -> PreparedCall[ProposalResult]:
    """Return the request that rejects all that is left of a proposal."""
    return requests.proposal_reject(shown.proposal, comment=comment, request_id=request_id)


# ── The timeline ──────────────────────────────────────────────────────────────────────────────


def undo(
    seq: int,
    *,
    hunks: Mapping[str, Sequence[int]] | None = None,
    dry_run: bool = False,
    only_fitting: bool = False,
    request_id: str | None = None,
) -> PreparedCall[UndoResult]:
    """Return the request that undoes a transaction, some of its hunks, or what of it does not conflict."""
    return requests.undo(
        seq, hunks=hunks, dry_run=dry_run, request_id=request_id,
        on_conflict="skip" if only_fitting else "fail",
    )  # fmt: skip


def rollback(
    session: str, *, dry_run: bool = False, only_fitting: bool = False, request_id: str | None = None
) -> PreparedCall[UndoResult]:
    """Return the request that takes back all the work of a session."""
    return requests.rollback(
        session, dry_run=dry_run, request_id=request_id, on_conflict="skip" if only_fitting else "fail"
    )


class FileEffect(Struct, frozen=True):
    """The effect of an undo on a file: a mark, and the words."""

    path: str
    is_clean: bool
    text: str


def effects(preview: UndoResult) -> Iterator[FileEffect]:
    """Yield the effect on each file, by the result of a dry run; the clean ones first."""
    conflicts = preview.conflicts if isinstance(preview.conflicts, list) else []
    in_the_way = {one.path for one in conflicts}
    for file in preview.files:
        if file.change is not None and file.path not in in_the_way:
            words = {"added": "comes back", "deleted": "goes", "renamed": "is moved back"}
            yield FileEffect(file.path, True, words.get(file.change, "merges"))
    for one in conflicts:
        yield FileEffect(one.path, False, _in_the_way(one))


def needed_first(preview: UndoResult) -> list[int]:
    """Return the transactions whose undo would make this one clean, in that order."""
    conflicts = preview.conflicts if isinstance(preview.conflicts, list) else []
    return sorted({seq for one in conflicts for seq in one.needs}, reverse=True)


def _in_the_way(one: InTheWay) -> str:
    by = ", ".join(map(str, one.blocking))
    text = f"in the way: {by}" if by else "in the way"
    lines = one.lines if isinstance(one.lines, list) else []
    places = ", ".join(
        str(part.start_line) if part.start_line == part.end_line else f"{part.start_line}-{part.end_line}"
        for part in lines
    )
    if places:
        text += f", line{'s' * (len(lines) > 1 or '-' in places)} {places}"
    return text
