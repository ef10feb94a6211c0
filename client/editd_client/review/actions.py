"""The actions of a reviewer: the key of each, the requests that it sends, and its preview in words.

Both faces have the same keys. Sends nothing: a face sends the prepared requests in their order, and stops at
the first that is refused. An undo and the like are shown before they are made: the `dry_run` of the request
is the preview.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from editd.wire.messages import ReviewedFile, UndoResult
from editd.words import in_the_way
from editd_client import requests
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from editd.wire.messages import ApplyResult, InTheWay, ProposalGetResult
    from editd_client.prepared_call import PreparedCall
    from editd_client.review.choices import HunkChoices

View = Literal["proposals", "timeline", "agents"]
AUTHORS_MAX = 8  # of transactions in the way
COUNTED_PATHS_MAX = 100  # files whose later transactions are counted
NEEDED_WORDS = "It is clean if these are undone first, in this order:"


class Action(Struct, frozen=True):
    """A key, and its effect in a few words. Three dots: asks before anything is sent."""

    key: str
    name: str
    effect: str
    views: tuple[View, ...]


EVERYWHERE: tuple[View, ...] = ("proposals", "timeline", "agents")
WITH_DIFF: tuple[View, ...] = ("proposals", "timeline")
ACTIONS: tuple[Action, ...] = (
    Action("j", "next", "next row", EVERYWHERE),
    Action("k", "previous", "previous row", EVERYWHERE),
    Action("?", "help", "all keys", EVERYWHERE),
    Action("/", "filter", "filter the list", EVERYWHERE),
    Action("space", "choose", "approve, reject or leave the hunk open", ("proposals",)),
    Action("]", "next-hunk", "next hunk", WITH_DIFF),
    Action("[", "previous-hunk", "previous hunk", WITH_DIFF),
    Action("}", "next-file", "next file", WITH_DIFF),
    Action("{", "previous-file", "previous file", WITH_DIFF),
    Action("space", "mark", "mark the hunk for an undo", ("timeline",)),
    Action("a", "approve", "land the chosen hunks", ("proposals",)),
    Action("x", "reject", "reject the proposal…", ("proposals",)),
    Action("c", "comment", "comment…", ("proposals",)),
    Action("e", "edit", "edit the proposed text…", ("proposals",)),
    Action("t", "try", "try a command on it…", ("proposals",)),
    Action("u", "undo", "undo the transaction…", ("timeline",)),
    Action("r", "redo", "redo the newest undo…", ("timeline",)),
    Action("S", "restore", "put the files back to this state…", ("timeline",)),
    Action("b", "blame", "blame the file", ("timeline",)),
    Action("R", "rollback", "roll back the session…", ("timeline", "agents")),
    Action("M", "review", "mark as reviewed", ("timeline", "agents")),
    Action("P", "pause", "pause or resume its edits…", ("agents",)),
    Action("m", "publish", "publish its work…", ("agents",)),
    Action("L", "leases", "end its leases…", ("agents",)),
    Action("K", "close", "close the session…", ("agents",)),
    Action("A", "allow", "let its edits land for a while…", ("proposals", "agents")),
    Action("X", "revoke", "end a grant…", ("agents",)),
)


def keys_of(view: View) -> list[Action]:
    """Return the actions of a view, in the order of the help."""
    return [one for one in ACTIONS if view in one.views]


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


def decision_of(choices: HunkChoices) -> HunkDecision:
    """Return the decision to land the chosen hunks and to reject those to be rejected."""
    return HunkDecision(
        proposal=choices.shown.proposal,
        view=choices.shown.view,
        approved=tuple(choices.hunks_with("approve")),
        rejected=tuple(choices.hunks_with("reject")),
        is_open=bool(choices.hunks_with("open")),
        there=tuple(there(choices.shown)),
    )


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


# ── The preview of an undo ────────────────────────────────────────────────────────────────────


class FileEffect(Struct, frozen=True):
    """The effect of an undo or the like on a file: a mark, and the words."""

    path: str
    is_clean: bool
    text: str


class ReversalPreview(Struct, frozen=True):
    """The result of a dry run in words: its effects, the clean ones first, and the work around it."""

    result: ApplyResult
    effects: tuple[FileEffect, ...]
    needed: tuple[int, ...] = ()  # transactions whose undo would make this one clean, in that order
    context: str = ""  # the later work that stays; nothing without any


async def preview_of(
    result: ApplyResult, ask: Callable[[PreparedCall[Any]], Awaitable[Any]], after: int | None = None
) -> ReversalPreview:
    """Ask for the work around the result of a dry run; with `after`, for the work since that transaction.

    Raises EditdError and Unreachable.
    """
    conflicts, authors = _conflicts(result), dict[int, str]()
    for seq in sorted({seq for one in conflicts for seq in one.blocking}, reverse=True)[:AUTHORS_MAX]:
        made = (await ask(requests.show(seq, diff=False))).transaction
        authors[seq] = made.session or made.actor
    paths = [file.path for file in result.files]
    kept = 0
    if after is not None and not conflicts and 0 < len(paths) <= COUNTED_PATHS_MAX:
        kept = (await ask(requests.log_count(path=paths, after=after))).count
    needed = sorted({seq for one in conflicts for seq in one.needs}, reverse=True)
    return ReversalPreview(result, tuple(effects(result, authors)), tuple(needed), _kept_text(kept))


def _kept_text(kept: int) -> str:
    if not kept:
        return ""
    return f"It keeps what {kept:,} later transaction{'s' * (kept != 1)} did to these files."


NO_AUTHORS: Mapping[int, str] = {}


def effects(preview: ApplyResult, authors: Mapping[int, str] = NO_AUTHORS) -> Iterator[FileEffect]:
    """Yield the effect on each file, by the result of a dry run; the clean ones first.

    An undo, a redo and a rollback keep what others did later, and a restore does not.
    """
    conflicts = _conflicts(preview)
    paths = {one.path for one in conflicts}
    modified = "merges" if isinstance(preview, UndoResult) else "becomes as it was"
    words = {"added": "comes back", "deleted": "goes", "renamed": "is moved back"}
    for file in preview.files:
        if file.change is not None and file.path not in paths:
            yield FileEffect(file.path, True, words.get(file.change, modified))
    for one in conflicts:
        yield FileEffect(one.path, False, _in_the_way(one, authors))


def _conflicts(preview: ApplyResult) -> Sequence[InTheWay]:
    conflicts = getattr(preview, "conflicts", None)
    return conflicts if isinstance(conflicts, list) else ()


def _in_the_way(one: InTheWay, authors: Mapping[int, str]) -> str:
    text = in_the_way(one.blocking, authors)
    lines = one.lines if isinstance(one.lines, list) else []
    places = ", ".join(
        str(part.start_line) if part.start_line == part.end_line else f"{part.start_line}-{part.end_line}"
        for part in lines
    )
    if places:
        text += f", line{'s' * (len(lines) > 1 or '-' in places)} {places}"
    return text
