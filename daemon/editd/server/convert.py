"""Conversion between the types of the wire and the types of the engine: the only module that knows both.

Strings become paths, globs and versions; outcomes become results. Converted values need no second check. The
edits of a request stay as they are: the planner parses each one (`edits.plan`).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType, structs
from msgspec.structs import replace

from editd.advice import Advice, argument_term, method_term
from editd.edits.comparison import charge_files
from editd.edits.diff import unified_diff
from editd.engine.commands import Apply, Reader
from editd.engine.removal import Selection
from editd.engine.unsaved import HeldDocument
from editd.errors import InvalidParams, Refused
from editd.store.index_tables import LogQuery
from editd.store.transaction_record import microseconds, rfc3339
from editd.values import transaction
from editd.values.content import (
    NO_FALLBACK,
    FileState,
    Text,
    encode_text,
    line_end_of,
    lines_between,
    version_of,
)
from editd.values.glob import Glob, GlobSet, check_count, parse_all
from editd.values.path import WorkspacePath, is_among
from editd.values.path_rules import Bounds
from editd.values.proposal import HunkId, ProposalNumber, Reviewer
from editd.wire import messages
from editd.wire.raw_text import text_of
from editd.words import on_the_wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from editd.engine.removal import Removal
    from editd.engine.unshared import Unshared
    from editd.store.forgotten import ForgottenContent
    from editd.store.history import History
    from editd.store.session_store import Pause, ReviewNote
    from editd.system.process import Process
    from editd.tool_api.dialect import Dialect
    from editd.values.content import Change, Decoder, State, Version
    from editd.values.proposal import Via

Name = TypeVar("Name", bound=str)

EDITS_MAX = 100_000  # in one changeset
UNCHARGED_FILES = 100  # in a result: their descriptions take less than a millisecond
NAMES_MAX = 1000  # sessions, actors, kinds or paths in one query; SQLite takes 32,766 values

NUMBER_MAX = 2**62  # SQLite has integers of 64 bits
_HUNK_ID = re.compile(r"[0-9a-f]{16}")
LINES_MAX = 2**31  # more lines than any file that is read has

ANYBODY = "unknown"
NOBODY = transaction.Authorship("editd")  # of a decision that a rule makes
WILDCARDS = frozenset("*?[\\")
SECRET_CHARACTERS_MIN = 4


# ── requests ──


def apply(params: messages.Apply, reader: Reader, actor: str | None, session: str | None) -> Apply:
    """Convert an apply request, whose own fields override the connection's `actor` and `session`."""
    authorship = authorship_of(params, actor, session)
    return Apply(
        edits(params.edits),
        authorship,
        reader,
        params.on_stale,
        params.dry_run,
        fingerprint(params) if params.request_id is not None else "",
    )


def fingerprint(params: messages.Params) -> str:
    """Return a short hash of a request, to tell a retry from another request with the same id.

    A retry may wait for another time, or not at all.
    """
    fields = msgspec.to_builtins(params)
    fields.pop("wait", None)
    content = repr(fields).encode("utf-8", "surrogateescape")
    return hashlib.sha256(params.method.encode() + content).hexdigest()[:16]


def edits(given: Sequence[messages.AnyEdit]) -> tuple[messages.AnyEdit, ...]:
    """Return the edits of a request, which the planner parses. Raises InvalidParams for too many."""
    if len(given) > EDITS_MAX:
        raise InvalidParams(f"A changeset holds at most {EDITS_MAX} edits.")
    return tuple(given)


def content(text: str) -> bytes:
    """Return the bytes of a text. Raises InvalidParams."""
    return encode_text(text)


def path(text: str) -> WorkspacePath:
    return WorkspacePath.parse(text)


def known_path(text: str) -> WorkspacePath:
    """Return a path that the history or the engine has named."""
    return WorkspacePath(text)


def globs(texts: Sequence[str], what: str) -> GlobSet:
    """Parse the globs of `what`. Raises InvalidParams, also for too many of them."""
    return parse_all(texts, what)


def paths(texts: Sequence[str], what: str) -> list[WorkspacePath]:
    """Parse the paths of `what`, without repetitions. Raises InvalidParams, PathOutside."""
    check_count(texts, what)
    return list(dict.fromkeys(map(path, texts)))


def paths_or_globs(texts: Sequence[str], what: str) -> tuple[WorkspacePath | Glob, ...]:
    """Parse the paths of `what`; those with a wildcard are globs. Raises InvalidParams, PathOutside."""
    check_count(texts, what)
    return tuple(Glob.parse(text) if WILDCARDS & {*text} else path(text) for text in texts)


def removal(params: messages.Forget) -> tuple[Selection, str | None]:
    """Parse the contents that a `forget` names, and its text. Raises InvalidParams."""
    ways = [params.paths, params.matching, params.content, params.text]
    named = [value for value in ways if value is not None]
    if len(named) != 1 or not named[0]:
        raise InvalidParams(
            "One of `paths`, `matching`, `content` and `text` names the contents.",
            hint="Give just one, and not an empty one.",
        )
    if params.text is not None and len(params.text.strip()) < SECRET_CHARACTERS_MIN:
        raise InvalidParams(
            f"`text` has fewer than {SECRET_CHARACTERS_MIN} characters, so nearly every content may have it.",
            hint="Give a longer part of the secret.",
        )
    versions = [base_version(text) for text in params.content or ()]
    return (
        Selection(
            frozenset(map(path, params.paths or ())),
            globs(params.matching or (), "A `forget`"),
            frozenset(version for version in versions if version is not None),
        ),
        params.text,
    )


def bounds(scope: messages.Scope) -> Bounds:
    """Parse the scope of a session. Raises InvalidParams."""
    check_count([*(scope.write or ()), *(scope.read or ())], "A scope")
    write, read = (None if texts is None else globs(texts, "A scope") for texts in (scope.write, scope.read))
    return Bounds(write, read)


def read_mark(version: str | None) -> transaction.ReadMark:
    """Return the mark of a whole file that was read at a version, or as absent."""
    return transaction.ReadMark(transaction.Base.parse(version), ())


def seen_mark(version: str | None) -> transaction.ReadMark:
    """Return the mark of a whole file at a version, or of an absent one. Raises InvalidParams."""
    return transaction.ReadMark(transaction.Base.parse(version))


def base_version(text: str | None) -> Version | None:
    """Parse the version that a client was shown; None is "no such file". Raises InvalidParams."""
    return transaction.Base.parse(text).version


def proposal_number(given: int) -> ProposalNumber:
    """Return the number of a proposal. Raises InvalidParams."""
    if not 0 < given < NUMBER_MAX:
        raise InvalidParams(f"{given} is not the number of a proposal.")
    return ProposalNumber(given)


def hunk_id(text: str) -> HunkId:
    """Return the id of a hunk. Raises InvalidParams."""
    if _HUNK_ID.fullmatch(text) is None:
        raise InvalidParams(
            f"{text[:60]!r} is not the id of a hunk.",
            hint=Advice(method_term("proposal.get"), " has the ids in ", argument_term("hunks"), "."),
        )
    return HunkId(text)


def reviewer(actor: str, session: str | None, via: Via, process: Process | None) -> Reviewer:
    """Return the reviewer. `process` has sent the request; None if it could not be seen."""
    pid, program = (None, None) if process is None else (process.pid, process.program)
    return Reviewer(actor, session, via, pid, program)


def time_us(text: str) -> int:
    """Parse a time of the wire to microseconds since the epoch."""
    try:
        return microseconds(text)
    except (ValueError, OverflowError):
        raise InvalidParams(
            f"{text[:100]!r} is not a time.", hint="Write times as in RFC 3339: `2026-03-01T12:00:00Z`."
        ) from None


def several(given: Name | list[Name] | None) -> tuple[Name, ...]:
    """Return the names of a field that holds one name, a list, or nothing.

    Raises InvalidParams for an empty list, because clients use it for "none" and for "all".
    """
    if given == []:
        raise InvalidParams("An empty list names nothing.", hint="Leave the field out for all.")
    if isinstance(given, list) and len(given) > NAMES_MAX:
        raise InvalidParams(f"A list holds at most {NAMES_MAX} names.")
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list) else (given,)


def wanted(params: messages.LogFilter) -> LogQuery:
    return LogQuery(
        params.before,
        params.after,
        tuple(map(path, several(params.path))),
        several(params.session),
        several(params.actor),
        several(params.kind),
        None if params.since is None else time_us(params.since),
        None if params.until is None else time_us(params.until),
        params.grep or None,
        is_unreviewed=params.unreviewed,
        turns=_turns(params),
    )


def _turns(params: messages.LogFilter) -> tuple[int, ...]:
    """Parse the turns of a filter. Raises InvalidParams."""
    if params.turn is None:
        return ()
    turns = tuple(params.turn) if isinstance(params.turn, list) else (params.turn,)
    if params.session is None or not turns:
        raise InvalidParams("`turn` needs a `session`.", hint="Name the session of the turns.")
    return turns


_ABOUT_A_SESSION = (messages.Undo, messages.Rollback)


def authorship_of(
    params: messages.Apply
    | messages.Begin
    | messages.Undo
    | messages.Redo
    | messages.Rollback
    | messages.Restore,
    actor: str | None,
    session: str | None,
) -> transaction.Authorship:
    """Return the author of a request; `actor` and `session` are the connection's defaults."""
    # In these requests, `session` names the session whose work is undone, not the author.
    is_about = isinstance(params, _ABOUT_A_SESSION)
    own = None if is_about else params.session
    return transaction.Authorship(
        params.actor or actor or ANYBODY,
        own if own is not None else session,
        params.message or "",
        None if isinstance(params, messages.Begin) else params.request_id,
    )


def authorship_of_reviewer(params: messages.ProposalApprove, by: Reviewer) -> transaction.Authorship:
    return transaction.Authorship(by.actor, by.session, params.message or "", params.request_id)


# ── results ──


# One change is the usual case, and an empty comprehension costs as much as a call: so some are left out.


def outcome(
    given: transaction.Outcome,
    *,
    return_content: bool = False,
    diff: bool = False,
    decoder: Decoder = NO_FALLBACK,
) -> messages.ApplyResult:
    if len(given.changes) + len(given.unchanged) > UNCHARGED_FILES:
        charge_files(len(given.changes) + len(given.unchanged))
    made = None if given.transaction is None else transaction_result(given.transaction)
    changes, by_path = _shown(given.changes)
    files: list[messages.FileResult] = []
    for change in changes:
        shown = _file_result(
            given, change, by_path, return_content=return_content, diff=diff, decoder=decoder
        )
        files.append(shown)
    if given.unchanged:
        files += [
            _file_result(
                given, change, {}, return_content=return_content, diff=diff, unchanged=True, decoder=decoder
            )
            for change in given.unchanged
        ]
    has_answers = given.answers.count(None) < len(given.answers)
    return messages.ApplyResult(
        transaction=made,
        files=files,
        warnings=list(given.warnings),
        merged=[path.text for path in given.merged] if given.merged else [],
        answers=list(given.answers) if has_answers else UNSET,
    )


def dialects(given: Iterable[Dialect]) -> messages.DialectsResult:
    return messages.DialectsResult(
        dialects=[
            messages.DialectEntry(
                name=dialect.name,
                description=dialect.description,
                tools=[
                    messages.ToolEntry(
                        name=tool.name,
                        description=tool.description,
                        schema=dict(tool.schema),
                        read_only=tool.is_read_only,
                        destructive=tool.is_destructive,
                        idempotent=tool.is_idempotent,
                    )
                    for tool in dialect.tools
                ],
            )
            for dialect in given
        ]
    )


def _shown(
    changes: Sequence[Change[State]],
) -> tuple[Sequence[Change[State]], Mapping[WorkspacePath, Change[State]]]:
    """Return the changes as a person counts them, and if one is a move, all of them by their paths.

    A move is one change, under its new path. A move onto another file is two, as in git, so that the
    overwritten file is visible.
    """
    for change in changes:
        if change.source is not None:
            break
    else:
        return changes, {}
    given = [replace(one, source=None) if one.source and one.before else one for one in changes]
    left = {one.source for one in given if one.source is not None}
    shown = [one for one in given if not (one.after is None and one.path in left)]
    return shown, {change.path: change for change in changes}


def diff_of(changes: Iterable[Change[FileState]], decoder: Decoder | None = None) -> str:
    """Return one git-style diff of all the changes; with a `decoder`, one to read."""
    shown, by_path = _shown(tuple(changes))
    parts: list[str] = []
    for change in shown:
        source = None if change.source is None else by_path.get(change.source)
        old = change if source is None or source.before is None else source
        parts.append(unified_diff(old.path, old.before, change.after, change.path, decoder=decoder))
    return "".join(parts)


def transaction_result(
    given: transaction.Transaction,
    published: transaction.Published | None = None,
    number: int | None = None,
    reviewed: ReviewNote | None = None,
) -> messages.Transaction:
    """Return a transaction; `number` is its entry in the log of all hosts, if this host made it."""
    said = given.authorship
    touches, by_path = _shown(given.touches)
    files: list[messages.Change] = []
    for touch in touches:
        shown = _change(touch, by_path, in_part=given.undone_by is None)
        files.append(shown)
    return messages.Transaction(
        seq=given.seq,
        id=given.id,
        kind=given.kind,
        actor=said.actor,
        session=said.session,
        message=said.message,
        time=rfc3339(given.time_us),
        files=files,
        undoes=list(given.undoes),
        undone_by=given.undone_by,
        request_id=said.request_id,
        parts=parts(given.parts) if given.parts else UNSET,
        claims=list(given.claims) if given.claims else UNSET,
        claimed_by=UNSET if given.claimed_by is None else given.claimed_by,
        published=UNSET
        if published is None
        else messages.Published(commit=published.commit, branch=published.branch),
        reviewed_by=UNSET
        if reviewed is None
        else messages.ReviewedBy(actor=reviewed.actor, time=rfc3339(reviewed.time_us)),
        **({} if said.approval is None else _approval(said.approval)),
        **({} if said.attribution is None else _attribution(said.attribution)),
        **({} if said.turn is None else _turn(said.turn)),
        **({} if said.arrival is None and number is None else _arrival(said.arrival, number)),
    )


def with_unshared(
    shown: messages.Transaction, given: transaction.Transaction, unshared: Unshared
) -> messages.Transaction:
    """Return the result of a transaction with what does not reach other hosts: files, or all of it."""
    staying = unshared.staying(touch.path for touch in given.touches)
    kept_back = unshared.kept_back.get(int(given.seq))
    if staying:
        shown = replace(shown, stays=staying)
    return shown if kept_back is None else replace(shown, kept_back=kept_back.reason)


def with_gaps(
    shown: messages.Transaction, given: transaction.Transaction, history: History
) -> messages.Transaction:
    """Return the result of a transaction with its forgotten contents, and with its excluded files."""
    sides = (side for touch in given.touches for side in (touch.before, touch.after) if side is not None)
    versions = {side.version for side in sides if history.is_forgotten(side.version)}
    gaps = [forgotten(history.forgotten[version]) for version in sorted(versions)]
    excluded = sorted(touch.path.text for touch in given.touches if history.lacks_content_of(touch))
    if gaps:
        shown = replace(shown, forgotten=gaps)
    return replace(shown, excluded=excluded) if excluded else shown


def forgotten(given: ForgottenContent) -> messages.ForgottenVersion:
    return messages.ForgottenVersion(
        version=given.version, size=given.size, actor=given.actor, time=rfc3339(given.time_us)
    )


def forget_result(given: Removal) -> messages.ForgetResult:
    """Return the report of a removal, done or planned."""
    places = given.places
    return messages.ForgetResult(
        removed=[
            messages.RemovedContent(
                version=version,
                size=size,
                paths=sorted(path.text for path in places.paths.get(version, ())),
                transactions=sorted(places.transactions.get(version, ())),
            )
            for version, size in sorted(given.sizes.items())
        ],
        proposals=[int(number) for number in given.proposals],
        kept=sorted({path.text for version in given.kept for path in places.present[version]}),
        borrowed=sorted(given.borrowed),
        shared=sorted(given.shared),
        others=given.others,
        remaining=list(given.remaining),
        searched=given.searched,
    )


def forgotten_prompts(count: int) -> messages.ForgetResult:
    """Return the report of a removal of prompts."""
    return messages.ForgetResult(
        removed=[], proposals=[], kept=[], borrowed=[], shared=[], others=0, remaining=[], searched=0,
        prompts=count,
    )  # fmt: skip


def pause(given: Pause) -> messages.PauseEntry:
    return messages.PauseEntry(
        action=given.action, reason=given.reason, by=given.by, since=rfc3339(given.since_us)
    )


def parts(given: Iterable[transaction.Part]) -> list[messages.Part]:
    return [
        messages.Part(seq=part.seq, path=part.path.text, hunks=list(part.hunks) or UNSET) for part in given
    ]


def _approval(given: transaction.Approval) -> dict[str, Any]:
    """Return the fields of a transaction that was approved."""
    by = messages.ApprovedBy(actor=given.actor, session=given.session, rule=given.rule)
    fields: dict[str, Any] = {"approved_by": by}
    if given.proposal is not None:
        fields |= {"proposal": given.proposal, "modified": given.is_modified}
    return fields


def _attribution(given: transaction.Attribution) -> dict[str, Any]:
    """Return the fields of a transaction that was made while a bracket was open."""
    by: messages.By = "path" if given.is_by_path else "time"
    return {"by": by} | ({"candidates": list(given.candidates)} if given.candidates else {})


def _turn(given: transaction.TurnMark) -> dict[str, Any]:
    """Return the fields of a transaction of an agent's turn."""
    return {"turn": given.number} | ({} if given.model is None else {"model": given.model})


def _arrival(given: transaction.Arrival | None, number: int | None) -> dict[str, Any]:
    """Return the fields of a transaction that came from another host, or that is in the log by `number`."""
    if given is None:
        return {} if number is None else {"number": number}
    shown = {"number": given.number, "host": given.host, "made": rfc3339(given.time_us)}
    return shown | ({"rest_on": given.host} if given.shared else {})


def file_results(made: Iterable[transaction.Transaction]) -> list[messages.FileResult]:
    """Return the files that these transactions have changed, each as the last of them left it."""
    files: dict[str, messages.FileResult] = {}
    for one in made:
        touches, by_path = _shown(one.touches)
        for touch in touches:
            shown = _change(touch, by_path)
            files[shown.path] = messages.FileResult(
                path=shown.path,
                version=shown.version,
                base=shown.base,
                change=shown.change,
                from_=shown.from_,
                mode=shown.mode,
            )
    return list(files.values())


def brief_transaction(
    given: messages.Transaction, count: int, first: str | None
) -> messages.BriefTransaction:
    """Return a transaction without its files, but with their number and the first path."""
    fields = structs.asdict(given)
    for name in ("files", "forgotten", "excluded", "stays"):
        del fields[name]
    return messages.BriefTransaction(**fields | {"files_count": count, "path": first})


def diff_result(
    changes: Sequence[Change[FileState]],
    paths: AbstractSet[WorkspacePath] | None = None,
    decoder: Decoder | None = None,
) -> messages.DiffResult:
    """Return the changes of these paths and below them, or all."""
    wanted = [one for one in changes if paths is None or is_among(one.path, paths)]
    return messages.DiffResult(diff=diff_of(wanted, decoder), files=_changes_result(wanted))


def published(result: messages.PublishResult) -> transaction.Published:
    return transaction.Published(result.commit, result.branch)


def _changes_result(changes: Iterable[Change[FileState]]) -> list[messages.Change]:
    shown, by_path = _shown(tuple(changes))
    return [_change(change, by_path) for change in shown]


def _change(
    change: Change[State], by_path: Mapping[WorkspacePath, Change[State]], *, in_part: bool = False
) -> messages.Change:
    """Convert one change of `_shown`. `in_part` is whether its transaction may be undone in part."""
    source = change if change.source is None else by_path.get(change.source)  # of a move
    before, after = None if source is None else source.before, change.after
    return messages.Change(
        path=change.path.text,
        change=change.kind,
        base=None if before is None else before.version,
        version=None if after is None else after.version,
        from_=UNSET if change.source is None else change.source.text,
        mode=None if after is None else _MODES.get(after.mode) or _mode_name(after.mode),
        undone_by=change.undone_by if in_part and change.undone_by is not None else UNSET,
    )


def mode_of(state: FileState | None) -> messages.Mode | None:
    return None if state is None else _mode_name(state.mode)


def lines_wanted(params: messages.Read | messages.SeenFile) -> tuple[int, int] | None:
    """Return the requested lines, from 1 and both included; None for the whole file."""
    if params.start_line is None and params.end_line is None:
        return None
    first = 1 if params.start_line is None else params.start_line
    last = LINES_MAX if params.end_line is None else params.end_line
    if not 1 <= first <= last:
        raise InvalidParams(
            f"Lines {first} to {last} are not a range.",
            hint="Count lines from 1; both ends are included.",
        )
    return first, last


def read_result(
    path: WorkspacePath, state: FileState, lines: tuple[int, int] | None = None, *, fallback: str | None
) -> messages.ReadResult:
    text = None if state.is_symlink else Text.decode_if_text(state.content, fallback)
    content = state.content
    total: int | UnsetType = UNSET
    if lines is not None:
        content, total = lines_between(content, *lines) if text is None else text.lines_between(*lines)
    return messages.ReadResult(
        path=path.text,
        content=text_of(content),
        version=state.version,
        mode=_mode_name(state.mode),
        kind="symlink" if state.is_symlink else "file",
        encoding=None if text is None else text.encoding,
        bom=bool(text is not None and text.bom),
        eol="none" if text is None else line_end_of(text.text),
        size=len(state.content),
        lines=total,
    )


def held_document(
    params: messages.DocumentHold, path: WorkspacePath, who: tuple[int, str, str | None], now_us: int
) -> HeldDocument:
    """Return what a connection holds; `who` is its number, its client and its session.

    Raises InvalidParams.
    """
    text = None if params.content is None else content(params.content)
    version = None if text is None else version_of(text)
    return HeldDocument(path, *who, base_version(params.base), text, version, now_us)


def unsaved_state(saved: FileState | None, document: HeldDocument) -> FileState:
    """Return the state of a file with the text that is held unsaved."""
    content = document.content or b""
    return FileState(content) if saved is None else saved.with_content(content)


def held_by(
    document: HeldDocument, changed: Sequence[tuple[int, int]] | UnsetType = UNSET
) -> messages.HeldBy:
    lines = (
        changed if changed is UNSET else [messages.LineRange(start_line=a, end_line=b) for a, b in changed]
    )
    return messages.HeldBy(
        client=document.client,
        session=document.session,
        base=document.base,
        version=document.version,
        lines=lines,
    )


def document_entry(document: HeldDocument) -> messages.DocumentEntry:
    return messages.DocumentEntry(
        path=document.path.text,
        client=document.client,
        session=document.session,
        base=document.base,
        version=document.version,
        since=rfc3339(document.since_us),
    )


def stat_entry(given: WorkspacePath, state: FileState | None) -> messages.StatEntry:
    return messages.StatEntry(
        path=given.text,
        version=None if state is None else state.version,
        mode=None if state is None else _mode_name(state.mode),
        size=None if state is None else len(state.content),
        kind=None if state is None else "symlink" if state.is_symlink else "file",
    )


def error(refusal: Refused) -> messages.Error:
    data = {name: _error_value(value) for name, value in refusal.data.items()}
    if refusal.advice:
        data.setdefault("hint", refusal.hint)
    if refusal.advice.has_terms:
        data.setdefault("advice", on_the_wire(refusal.advice))
    return messages.Error(
        code=messages.ERROR_CODES[refusal.code], name=refusal.code, message=refusal.text(), data=data
    )


def _error_value(value: object) -> object:
    if isinstance(value, transaction.Transaction):
        return msgspec.to_builtins(transaction_result(value))
    if isinstance(value, list):
        return [_error_value(item) for item in value]
    return value


def _file_result(
    given: transaction.Outcome,
    change: Change[FileState],
    by_path: Mapping[WorkspacePath, Change[FileState]],
    *,
    return_content: bool,
    diff: bool,
    unchanged: bool = False,
    decoder: Decoder,
) -> messages.FileResult:
    """Convert the change of one file; `by_path` has the sources of moves."""
    report = given.reports.get(change.path, transaction.FileReport())
    source = change if change.source is None else by_path.get(change.source)
    before, after = None if source is None else source.before, change.after
    changed_by = given.changed_by.get(change.path)
    content: str | UnsetType | None = UNSET
    warnings = list(report.warnings)
    if return_content:
        content = None if after is None or after.missing else text_of(after.content)
        if after is not None and after.missing:
            warnings.append(after.missing)
    shown: str | UnsetType = UNSET
    if diff and unchanged:
        shown = ""
    elif diff:
        known = given.diffs.get(change.path)
        origin = change.source or change.path
        shown = unified_diff(origin, before, after, change.path, decoder=decoder) if known is None else known
    return messages.FileResult(
        path=change.path.text,
        version=None if after is None else after.version,
        base=None if before is None else before.version,
        change=None if unchanged else change.kind,
        from_=UNSET if change.source is None else change.source.text,
        mode=None if after is None else _MODES.get(after.mode) or _mode_name(after.mode),
        content=content,
        diff=shown,
        replacements=UNSET if report.replacements is None else report.replacements,
        warnings=warnings,
        changed_by=[transaction_result(tx) for tx in changed_by] if changed_by else UNSET,
        unsaved="merged" if change.path in given.unsaved else UNSET,
    )


def _mode_name(mode: int) -> messages.Mode:
    """Return the name of a file's mode. A history may have others from a log of an earlier version."""
    return _MODES.get(mode) or ("100755" if mode & 0o100 else "100644")


_MODES: dict[int, messages.Mode] = {0o100644: "100644", 0o100755: "100755", 0o120000: "120000"}
