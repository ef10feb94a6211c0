"""The landing of a proposal's hunks, planned by the choice of a reviewer.

Everything here only reads. `Proposals` stores what comes of it, and the engine carries out the changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, argument_term
from editd.edits.rebase import (
    FittedFile,
    land,
    land_text,
    reviewer_diff,
    state_with,
)
from editd.errors import Conflict, InvalidParams, PermissionDenied, Stale, UnknownTransaction
from editd.review.fit import FittedProposal, check_view, view_changed
from editd.values.path_rules import Bounds, fits
from editd.values.proposal import Decision
from editd.values.transaction import Approval

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from editd.store.history import History
    from editd.values.content import Change, Decoder, FileState, Version
    from editd.values.path import WorkspacePath
    from editd.values.proposal import (
        HunkId,
        Proposal,
        ProposalNumber,
        Reviewer,
        Verdict,
    )
    from editd.values.transaction import Authorship


class ReviewedText(Struct, frozen=True):
    """A reviewer's own text of a file, written for the version `base` that was shown."""

    path: WorkspacePath
    content: bytes
    base: Version | None  # None is "no such file"


class Choice(Struct, frozen=True):
    """A reviewer's choice of the hunks that land.

    The `authorship` is the reviewer's. Its message, if there is one, replaces the proposal's.
    `hunks` are ids; None is all that fit in the view with the token `view`. A text replaces all hunks of
    its file. `rejects_rest` rejects the hunks that are left; otherwise they stay open.

    If the checks `passed` are given, no reviewer decides but the rules, and only about exactly this view.
    """

    authorship: Authorship
    reader: str
    proposal: ProposalNumber
    by: Reviewer
    hunks: frozenset[HunkId] | None = None
    view: str | None = None
    texts: tuple[ReviewedText, ...] = ()
    rejects_rest: bool = False
    comment: str = ""
    dry_run: bool = False
    fingerprint: str = ""
    passed: frozenset[str] | None = None


class Landing(Struct, frozen=True):
    """A planned decision to land hunks: its changes of the files, and its effect on the proposal."""

    view: FittedProposal
    changes: tuple[Change[FileState], ...]
    authorship: Authorship  # of the transaction, with the approval
    decision: Decision
    verdicts: Mapping[HunkId, Verdict]
    is_as_proposed: bool  # the written bytes of each file are the proposed bytes


def plan_landing(
    view: FittedProposal, choice: Choice, history: History, now_us: int, decoder: Decoder
) -> Landing:
    """Plan the landing that a reviewer asks for.

    Raises ViewChanged, Conflict, Stale, PermissionDenied if the author's session could not write a path, and
    InvalidParams.
    """
    proposal = view.proposal
    texts = {text.path: text for text in choice.texts}
    chosen = _chosen(view, choice, texts)
    if choice.passed is not None and (choice.view != view.token or view.undecided.keys() != chosen):
        raise view_changed(proposal.number, view.token, ())
    if proposal.is_decided_whole:
        _check_whole(view, choice, chosen)
        _check_in_force(proposal, history)
    files = _landed_files(view, texts, chosen, history, decoder)
    _check_scope(proposal, files.changes)
    undecided = view.undecided
    verdicts: dict[HunkId, Verdict] = dict.fromkeys(chosen, "landed")
    if choice.rejects_rest:
        verdicts |= dict.fromkeys(undecided.keys() - verdicts.keys(), "rejected")
    decision = Decision(
        now_us, choice.by, "approve", tuple(sorted(chosen)), choice.comment, is_modified=files.is_modified,
        request_id=choice.authorship.request_id, fingerprint=choice.fingerprint,
        reviewer_diff=files.diff[:DIFF_CHARACTERS_MAX],
    )  # fmt: skip
    numbers = sorted(undecided[hunk].number for hunk in chosen)
    approval = Approval(
        proposal.number, proposal.revision, tuple(numbers), choice.by.actor, choice.by.session,
        is_modified=files.is_modified,
    )  # fmt: skip
    message = choice.authorship.message or proposal.authorship.message
    authorship = replace(proposal.authorship, approval=approval, message=message)
    return Landing(view, files.changes, authorship, decision, verdicts, files.is_as_proposed)


class _LandedFiles(Struct, frozen=True):
    """The changes of a landing, and the diff from the proposed files to the landed ones."""

    changes: tuple[Change[FileState], ...]
    diff: str
    is_modified: bool
    is_as_proposed: bool


def _landed_files(
    view: FittedProposal,
    texts: dict[WorkspacePath, ReviewedText],
    chosen: Collection[HunkId],
    history: History,
    decoder: Decoder,
) -> _LandedFiles:
    """Land the chosen hunks, and the reviewer's own `texts` in place of all hunks of their files.

    Raises InvalidParams if a text is for a file that the proposal lacks, Stale and Conflict.
    """
    changes: list[Change[FileState]] = []
    diffs = []
    is_modified = False
    is_as_proposed = True
    for fitted in view.files:
        text = texts.pop(fitted.file.path, None)
        if text is None:
            theirs = land(fitted, chosen)
            landed = state_with(fitted, chosen)
        else:
            content = decoder.as_in(fitted.after or fitted.now, text.content)
            theirs = land_text(fitted, content, _shown(text, fitted, history))
            landed = theirs[-1].after if theirs else fitted.now
            is_modified |= landed != fitted.after
        if theirs or text is not None:
            diffs.append(reviewer_diff(fitted, landed, decoder))
        is_as_proposed &= not theirs or landed == fitted.file.proposed
        changes += theirs
    if texts:
        path = next(iter(texts))
        raise InvalidParams(f"Proposal {view.proposal.number} has no file {path}.", data={"path": path.text})
    return _LandedFiles(tuple(changes), "".join(diffs), is_modified, is_as_proposed)


def check_is_whole(proposal: Proposal, chosen: Collection[HunkId], undecided: Collection[HunkId]) -> None:
    """Raise InvalidParams if a decision on an undo or the like is about a part of it only."""
    if proposal.is_decided_whole and set(chosen) != set(undecided):
        raise InvalidParams(
            f"Proposal {proposal.number} is {_ARTICLES[proposal.kind]}, which is decided as a whole.",
            hint=Advice("Leave ", argument_term("hunks"), " out, or name all of them."),
            data={"proposal": proposal.number, "kind": proposal.kind},
        )


DIFF_CHARACTERS_MAX = 1_000_000  # of a reviewer's diff that is kept for the author
_ARTICLES = {
    "edit": "an edit",
    "undo": "an undo",
    "redo": "a redo",
    "rollback": "a rollback",
    "restore": "a restore",
}


def _chosen(
    view: FittedProposal, choice: Choice, texts: Mapping[WorkspacePath, ReviewedText]
) -> frozenset[HunkId]:
    """Return the hunks to land, with all of each file that has the reviewer's text.

    Raises ViewChanged if they are not the shown hunks, and InvalidParams if the request names none.
    """
    number = view.proposal.number
    undecided = view.undecided
    replaced = {
        hunk.id for fitted in view.files if fitted.file.path in texts for hunk in fitted.file.undecided_hunks
    }
    if choice.hunks is not None:
        if missing := choice.hunks - undecided.keys():
            raise view_changed(number, view.token, missing)
        chosen = choice.hunks
    elif choice.view is not None:
        check_view(view, choice.view)
        chosen = frozenset(
            one.hunk.id for fitted in view.files for one in fitted.hunks if one.state in ("fits", "there")
        )
    elif texts:
        chosen = frozenset()
    else:
        raise InvalidParams("`hunks` or `view` is required.", hint="Show the proposal first.")
    chosen |= replaced
    if not chosen:
        raise Conflict(
            f"No hunk of proposal {number} fits the present files.",
            hint="Reject it, or give the text that a file should have.",
            data={"proposal": number, "view": view.token},
        )
    return chosen


def _check_whole(view: FittedProposal, choice: Choice, chosen: Collection[HunkId]) -> None:
    """Raise InvalidParams or Conflict if not all of an undo or the like would land."""
    proposal, undecided = view.proposal, view.undecided
    if choice.texts:
        check_is_whole(proposal, (), undecided)
    if choice.hunks is not None:
        check_is_whole(proposal, choice.hunks, undecided)
    if left := undecided.keys() - set(chosen):
        raise Conflict(
            f"Proposal {proposal.number} is {_ARTICLES[proposal.kind]}, and a part of it no longer fits.",
            hint="Reject it, and ask for it anew.",
            data={"proposal": proposal.number, "view": view.token, "hunks": sorted(left)},
        )


def _check_in_force(proposal: Proposal, history: History) -> None:
    """Raise Conflict if something that the proposal undoes was undone meanwhile, or is forgotten."""
    paths = {seq: [part.path for part in proposal.parts if part.seq == seq] for seq in proposal.undoes}
    for seq, parts in paths.items():
        try:
            transaction = history.find(seq)
        except UnknownTransaction:
            is_undone = True
        else:
            undone = {touch.path for touch in transaction.touches if touch.undone_by is not None}
            is_undone = transaction.undone_by is not None or not undone.isdisjoint(parts)
        if is_undone:
            raise Conflict(
                f"Transaction {seq}, which proposal {proposal.number} undoes, is no longer in force.",
                hint="Reject the proposal.",
                data={"proposal": proposal.number, "seq": int(seq)},
            )


def _check_scope(proposal: Proposal, changes: Iterable[Change[FileState]]) -> None:
    session = proposal.authorship.session
    scope = Bounds(proposal.may_write).rule("refuse", session)
    for change in changes:
        if scope is not None and fits(scope, change.path, session):
            raise PermissionDenied(
                f"The session of proposal {proposal.number} may not write {change.path}.",
                hint="Leave the hunks of this file out.",
                data={"path": change.path.text, "proposal": proposal.number},
            )


def _shown(text: ReviewedText, fitted: FittedFile, history: History) -> FileState | None:
    """Return the file that the reviewer edited. Raises Stale if its content is nowhere."""
    if text.base is None:
        return None
    for state in (fitted.now, fitted.file.base):
        if state is not None and state.version == text.base:
            return state
    content = history.content(text.base)
    model = fitted.now or fitted.file.base
    if content is None or model is None:
        raise Stale(text.path.text, text.base, None if fitted.now is None else fitted.now.version)
    return model.with_content(content)
