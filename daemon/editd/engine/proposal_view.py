"""The landing of a proposal's hunks, planned: its view on the present files, and the choice of a reviewer.

Everything here only reads. `Proposals` stores what comes of it, and the engine carries out the changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, argument_term
from editd.edits.rebase import (
    FittedFile,
    Present,
    land,
    land_text,
    rebase,
    reviewer_diff,
    state_with,
    view_token,
)
from editd.errors import Conflict, InvalidParams, PermissionDenied, Stale, UnknownTransaction, ViewChanged
from editd.store.path_history import HistoryWalker
from editd.values.glob import is_among
from editd.values.proposal import Decision
from editd.values.transaction import Approval

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from editd.engine.commands import Land, ReviewedText
    from editd.store.history import History
    from editd.values.content import Change, Decoder, FileState
    from editd.values.path import WorkspacePath
    from editd.values.proposal import (
        HunkId,
        Proposal,
        ProposalNumber,
        ProposedFile,
        ProposedHunk,
        Verdict,
    )
    from editd.values.transaction import Authorship, Seq

    Current = Callable[[WorkspacePath], FileState | None]


class View(Struct, frozen=True):
    """A proposal on the present files, and the token of what is shown."""

    proposal: Proposal
    files: tuple[FittedFile, ...]
    token: str
    head: Seq  # the newest transaction that it is shown on

    @property
    def undecided(self) -> dict[HunkId, ProposedHunk]:
        """The hunks that wait for a decision, by their ids."""
        return {hunk.id: hunk for fitted in self.files for hunk in fitted.file.undecided_hunks}

    @property
    def is_moot(self) -> bool:
        """Whether others have made all that is undecided."""
        undecided = self.undecided
        states = {one.state for fitted in self.files for one in fitted.hunks if one.hunk.id in undecided}
        return states == {"there"}


class Landing(Struct, frozen=True):
    """A planned decision to land hunks: its changes of the files, and its effect on the proposal."""

    view: View
    changes: tuple[Change[FileState], ...]
    authorship: Authorship  # of the transaction, with the approval
    decision: Decision
    verdicts: Mapping[HunkId, Verdict]
    is_as_proposed: bool  # the written bytes of each file are the proposed bytes


def view_of(proposal: Proposal, files: Iterable[ProposedFile], current: Current, history: History) -> View:
    """Return a proposal on the present files. `current` returns the state of a path.

    A file that others have moved since is looked for at its new path.
    """
    walker = HistoryWalker(history)
    fitted = tuple(_fitted(file, int(proposal.at), current, walker) for file in files)
    return View(proposal, fitted, view_token(fitted), history.head)


def check_view(view: View, token: str) -> None:
    """Raise ViewChanged if the view is not the one with this token, but for hunks that only moved."""
    if token.partition("-")[0] != view.token.partition("-")[0]:
        raise view_changed(view.proposal.number, view.token, ())


def plan_landing(view: View, request: Land, history: History, now_us: int, decoder: Decoder) -> Landing:
    """Plan the landing that a reviewer asks for.

    Raises ViewChanged, Conflict, Stale, PermissionDenied if the author's session could not write a path, and
    InvalidParams.
    """
    proposal = view.proposal
    texts = {text.path: text for text in request.texts}
    chosen = _chosen(view, request, texts)
    if request.passed is not None and (request.view != view.token or view.undecided.keys() != chosen):
        raise view_changed(proposal.number, view.token, ())
    if proposal.is_decided_whole:
        _check_whole(view, request, chosen)
        _check_in_force(proposal, history)
    files = _landed_files(view, texts, chosen, history, decoder)
    _check_scope(proposal, files.changes)
    undecided = view.undecided
    verdicts: dict[HunkId, Verdict] = dict.fromkeys(chosen, "landed")
    if request.rejects_rest:
        verdicts |= dict.fromkeys(undecided.keys() - verdicts.keys(), "rejected")
    decision = Decision(
        now_us, request.by, "approve", tuple(sorted(chosen)), request.comment, is_modified=files.is_modified,
        request_id=request.authorship.request_id, fingerprint=request.fingerprint,
        reviewer_diff=files.diff[:DIFF_CHARACTERS_MAX],
    )  # fmt: skip
    numbers = sorted(undecided[hunk].number for hunk in chosen)
    approval = Approval(
        proposal.number, proposal.revision, tuple(numbers), request.by.actor, request.by.session,
        is_modified=files.is_modified,
    )  # fmt: skip
    message = request.authorship.message or proposal.authorship.message
    authorship = replace(proposal.authorship, approval=approval, message=message)
    return Landing(view, files.changes, authorship, decision, verdicts, files.is_as_proposed)


class _LandedFiles(Struct, frozen=True):
    """What a landing makes of the files, and the diff from what was proposed to that."""

    changes: tuple[Change[FileState], ...]
    diff: str
    is_modified: bool
    is_as_proposed: bool


def _landed_files(
    view: View,
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


def view_changed(number: ProposalNumber, token: str | None, changed: Collection[HunkId]) -> ViewChanged:
    """Return the refusal of a decision about something else than what is there now."""
    return ViewChanged(
        f"Proposal {number} has changed since it was shown.",
        hint="Show it again, and decide on what it is now.",
        data={"proposal": number, "view": token, "changed": sorted(changed)},
    )


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


def _fitted(file: ProposedFile, at: int, current: Current, walker: HistoryWalker) -> FittedFile:
    state = current(file.path)
    if file.source is not None:
        return rebase(file, Present(state, current(file.source)))
    if file.base is None:
        return rebase(file, Present(state))
    path = walker.follow_path(file.path, at).path
    if path == file.path:
        return rebase(file, Present(state))
    return replace(rebase(file, Present(current(path))), path=path)


def _chosen(view: View, request: Land, texts: Mapping[WorkspacePath, ReviewedText]) -> frozenset[HunkId]:
    """Return the hunks to land, with all of each file that has the reviewer's text.

    Raises ViewChanged if they are not the shown hunks, and InvalidParams if the request names none.
    """
    number = view.proposal.number
    undecided = view.undecided
    replaced = {
        hunk.id for fitted in view.files if fitted.file.path in texts for hunk in fitted.file.undecided_hunks
    }
    if request.hunks is not None:
        if missing := request.hunks - undecided.keys():
            raise view_changed(number, view.token, missing)
        chosen = request.hunks
    elif request.view is not None:
        check_view(view, request.view)
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


def _check_whole(view: View, request: Land, chosen: Collection[HunkId]) -> None:
    """Raise InvalidParams or Conflict if not all of an undo or the like would land."""
    proposal, undecided = view.proposal, view.undecided
    if request.texts:
        check_is_whole(proposal, (), undecided)
    if request.hunks is not None:
        check_is_whole(proposal, request.hunks, undecided)
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
    scope = proposal.may_write
    for change in changes:
        if scope is not None and not is_among(change.path, scope):
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
