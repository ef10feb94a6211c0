"""Proposals as the protocol has them, and the requests of reviewers as the engine takes them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from editd.advice import Advice, method_term
from editd.edits.diff import line_counts, unified_diff
from editd.edits.line_changes import lines_of
from editd.edits.rebase import hunk_texts
from editd.engine.commands import Land
from editd.errors import InvalidParams, Timeout, TooLarge
from editd.review.choice import ReviewedText
from editd.server import convert
from editd.store.transaction_record import rfc3339
from editd.wire import messages
from editd.wire.raw_text import text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from editd.edits.rebase import FittedFile, FittedHunk
    from editd.engine.commands import Reader
    from editd.review.fit import FittedProposal
    from editd.values.content import Decoder, FileState
    from editd.values.grant import Grant
    from editd.values.path import WorkspacePath
    from editd.values.proposal import Comment, Decision, HunkId, Proposal, Reviewer, TrialResult
    from editd.values.transaction import Authorship

    Blocking = Callable[[FittedFile, FittedHunk], Sequence[int]]

HUNKS_MAX = 100_000  # in one decision
TEXTS_MAX = 1_000
CONTEXT_MAX = 1_000  # lines around a hunk


class ProposalSummary(Struct, frozen=True):
    """What a list shows of a proposal's view."""

    token: str
    head: int
    counts: Mapping[str, int]  # hunks by state
    added: int
    deleted: int
    paths: tuple[WorkspacePath, ...]


class ProposalNotes(Struct, frozen=True):
    """What was said about a proposal, and who waits for it."""

    decisions: Sequence[Decision] = ()
    comments: Sequence[Comment] = ()
    checks: Sequence[TrialResult] = ()
    running: Sequence[tuple[str, float | None]] = ()  # checks, with the seconds since each began
    waiting: int = 0


# ── requests ──


def landing(params: messages.ProposalApprove, authorship: Authorship, reader: Reader, by: Reviewer) -> Land:
    """Return the command of an approval. Raises InvalidParams."""
    if params.hunks is None and params.view is None and not params.files:
        raise InvalidParams(
            "`hunks` or `view` is required.",
            hint=Advice(method_term("proposal.get"), " shows the hunks and the token of the view."),
        )
    if len(params.hunks or ()) > HUNKS_MAX or len(params.files) > TEXTS_MAX:
        raise InvalidParams(f"An approval names at most {HUNKS_MAX} hunks and {TEXTS_MAX} files.")
    texts = tuple(
        ReviewedText(
            convert.path(file.path),
            convert.content(file.content),
            convert.base_version(file.base),
        )
        for file in params.files
    )
    return Land(
        authorship,
        reader,
        convert.proposal_number(params.proposal),
        by,
        hunks=hunk_ids(params.hunks),
        view=params.view,
        texts=texts,
        rejects_rest=params.rest == "reject",
        comment=params.comment or "",
        dry_run=params.dry_run,
        fingerprint=convert.fingerprint(params) if params.request_id is not None else "",
    )


def hunk_ids(given: Collection[str] | None) -> frozenset[HunkId] | None:
    """Return the ids of hunks. Raises InvalidParams for an empty list, which some clients use for "all"."""
    if given is None:
        return None
    if not given:
        raise InvalidParams("`hunks` names no hunk.", hint="Leave it out for all of them.")
    return frozenset(map(convert.hunk_id, given))


# ── results ──


def summary(view: FittedProposal) -> ProposalSummary:
    """Return what a list shows of a view."""
    counts = Counter[str](one.state for fitted in view.files for one in fitted.hunks)
    added = deleted = 0
    for fitted in view.files:
        more, fewer = _line_counts(fitted)
        added += more
        deleted += fewer
    paths = tuple(fitted.file.path for fitted in view.files)
    return ProposalSummary(view.token, int(view.head), dict(counts), added, deleted, paths)


def _line_counts(fitted: FittedFile) -> tuple[int, int]:
    """Return the lines that a file gains and loses; its hunks' lines if the texts cannot be compared."""
    try:
        return line_counts(fitted.now, fitted.after)
    except (Timeout, TooLarge):
        changes = [one.change for one in fitted.hunks if one.change is not None]
        return sum(len(one.lines) for one in changes), sum(one.end - one.start for one in changes)


def entry(proposal: Proposal, shown: ProposalSummary, notes: ProposalNotes) -> messages.ProposalEntry:
    """Return a proposal without its files."""
    author = proposal.authorship
    return messages.ProposalEntry(
        proposal=proposal.number,
        state=proposal.state,
        kind=proposal.kind,
        actor=author.actor,
        session=author.session,
        message=author.message,
        request_id=author.request_id,
        created=rfc3339(proposal.created_us),
        changed=rfc3339(proposal.changed_us),
        expires=None if proposal.expires_us is None else rfc3339(proposal.expires_us),
        rule=proposal.rule,
        revision=proposal.revision,
        at=proposal.at,
        head=shown.head,
        view=shown.token,
        counts=dict(shown.counts),
        lines=messages.LineCount(added=shown.added, deleted=shown.deleted),
        paths=[path.text for path in shown.paths],
        landed=list(proposal.landed),
        decisions=[_decision(one) for one in notes.decisions],
        comments=comments(notes.comments),
        checks=[_check(one, shown.token) for one in notes.checks],
        running=[messages.RunningCheck(name=name, seconds=seconds) for name, seconds in notes.running],
        waiting=notes.waiting,
        lands_after=list(proposal.lands_after),
    )


def whole(
    view: FittedProposal,
    shown: messages.ProposalEntry,
    blocking: Blocking,
    decoder: Decoder,
    *,
    paths: Collection[WorkspacePath] | None = None,
    content: bool = False,
    context: int = 3,
) -> messages.ProposalGetResult:
    """Return a proposal with its files, or those at `paths`. Raises InvalidParams."""
    if not 0 <= context <= CONTEXT_MAX:
        raise InvalidParams(f"`context` is a number of lines, at most {CONTEXT_MAX}.")
    wanted = [fitted for fitted in view.files if paths is None or fitted.file.path in paths]
    files = [_file(fitted, blocking, content=content, context=context, decoder=decoder) for fitted in wanted]
    diff = "".join(_diff(fitted, decoder) for fitted in wanted)
    return messages.ProposalGetResult(**asdict(shown), files=files, diff=diff)


def reply_of(proposal: Proposal, shown: ProposalSummary) -> messages.ProposedResult:
    """Return what the answer to an edit says about the proposal that it became."""
    return messages.ProposedResult(
        proposal=proposal.number,
        state=proposal.state,
        revision=proposal.revision,
        view=shown.token,
        rule=proposal.rule,
        lands_after=list(proposal.lands_after),
    )


def would_propose(rule: str) -> messages.ProposedResult:
    """Return what the answer to a dry run says about the proposal that the edit would become."""
    return messages.ProposedResult(proposal=None, state=None, revision=None, view=None, rule=rule)


def comments(given: Iterable[Comment]) -> list[messages.ReviewComment]:
    return [
        messages.ReviewComment(
            number=number,
            revision=one.revision,
            hunk=one.hunk,
            path=one.path,
            line=one.line,
            text=one.text,
            by=decider(one.by),
            time=rfc3339(one.time_us),
        )
        for number, one in enumerate(given, 1)
    ]


def decider(by: Reviewer) -> messages.Decider:
    return messages.Decider(actor=by.actor, session=by.session, via=by.via, pid=by.pid, program=by.program)


def grant(given: Grant) -> messages.GrantEntry:
    return messages.GrantEntry(
        grant=given.number,
        session=given.session,
        paths=[glob.text for glob in given.paths],
        expires=rfc3339(given.expires_us),
        uses=given.uses,
        lines=given.lines,
        by=messages.Decider(actor=given.actor, session=given.by_session, via=given.via),
    )


def _decision(one: Decision) -> messages.DecisionEntry:
    return messages.DecisionEntry(
        time=rfc3339(one.time_us),
        by=decider(one.by),
        what=one.what,
        hunks=list(one.hunks),
        comment=one.comment or None,
        seq=one.seq,
        modified=one.is_modified,
    )


def _check(one: TrialResult, token: str) -> messages.CheckReport:
    return messages.CheckReport(
        name=one.name,
        view=one.view,
        exit=one.exit,
        seconds=one.seconds,
        output=one.output,
        by=decider(one.by),
        is_current=one.view == token,
        hunks=list(one.hunks) or None,
    )


def _file(
    fitted: FittedFile, blocking: Blocking, *, content: bool, context: int, decoder: Decoder
) -> messages.ProposalFile:
    file = fitted.file
    states = (file.base, file.proposed, fitted.now)
    texts = {hunk: decoder.lines(text, *states) for hunk, text in hunk_texts(fitted, context).items()}
    return messages.ProposalFile(
        path=file.path.text,
        change=file.change.kind,
        mode=convert.mode_of(file.proposed),
        base=_version(file.base),
        now=_version(fitted.now),
        proposed=_version(fitted.after),
        hunks=[_hunk(fitted, one, texts.get(one.hunk.id, ""), blocking, decoder) for one in fitted.hunks],
        from_=UNSET if file.source is None else file.source.text,
        old=_text(fitted.now, decoder) if content else UNSET,
        new=_text(fitted.after, decoder) if content else UNSET,
        encoding=decoder.name(fitted.after or fitted.now) if content else UNSET,
    )


def _hunk(
    fitted: FittedFile, one: FittedHunk, text: str, blocking: Blocking, decoder: Decoder
) -> messages.ProposalHunk:
    hunk, move = one.hunk, fitted.open_move
    is_conflict = one.state == "conflict"
    start, end = (one.change.start, one.change.end) if one.change is not None else one.region
    new_start = hunk.new_start if one.change is None else one.change.first_line - bool(one.change.lines)
    if hunk.verdict is not None:
        start, end = hunk.start, hunk.end
    now: str | UnsetType = UNSET
    if is_conflict:
        now = decoder.lines(fitted.now_text(one).decode("utf-8", "surrogateescape"), fitted.now)
    return messages.ProposalHunk(
        hunk=hunk.id,
        number=hunk.number,
        kind=hunk.kind,
        state=one.state,
        old_start=start + 1,
        old_lines=end - start,
        new_start=new_start + 1,
        new_lines=hunk.new_end - hunk.new_start,
        text=text or _whole_text(fitted, hunk.kind, decoder),
        needs=[] if move is None or hunk.id == move else [move],
        blocking=list(blocking(fitted, one)) if is_conflict else UNSET,
        now_text=now,
    )


def _whole_text(fitted: FittedFile, kind: str, decoder: Decoder) -> str:
    """Return the diff of a hunk without its own lines."""
    file = fitted.file
    if kind == "file":
        return unified_diff(file.path, file.base, file.proposed, with_binary=False, decoder=decoder)
    if kind == "mode" and file.base is not None and file.proposed is not None:
        return f"old mode {file.base.mode:o}\nnew mode {file.proposed.mode:o}\n"
    if kind == "move" and file.source is not None:
        return f"rename from {file.source}\nrename to {file.path}\n"
    return ""


def _diff(fitted: FittedFile, decoder: Decoder) -> str:
    """Return the diff from the present file to the file with all hunks that fit."""
    return unified_diff(fitted.path, fitted.now, fitted.after, fitted.file.path, decoder=decoder)


def _version(state: FileState | None) -> str | None:
    return None if state is None else state.version


def _text(state: FileState | None, decoder: Decoder) -> str | None:
    shown = decoder.in_utf8(state)
    return None if shown is None else text_of(shown.content)


def region_lines(fitted: FittedFile, one: FittedHunk) -> range:
    """Return the present lines of a conflict, from 0; the neighbours if all of its lines are gone."""
    start, end = one.region
    total = len(lines_of(fitted.now.content)) if fitted.now is not None else 0
    return range(start, end) if end > start else range(max(start - 1, 0), min(start + 1, total))
