"""The protocol's messages: one frozen type for each, as in docs/protocol.md.

A text is a `str` with surrogate escapes for bytes that are not UTF-8 (PEP 383). The codec converts those
to `bin` or `{"base64": …}` on the wire and back. Unknown keys are refused. A field that may be left out
has the type `UNSET`, a field that may be null has `None`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, dataclass_transform

import msgspec
from msgspec import UNSET, UnsetType

PROTOCOL = 1

OnStale = Literal["reject", "merge"]
OnUnsaved = Literal["merge", "reject", "ignore"]  # where another connection holds a file unsaved
OnConflict = Literal["fail", "force", "skip"]  # refuse, override the later change, or skip its site
Tx = int | str  # a seq, or a commit id or a unique prefix of one
Kind = Literal["baseline", "edit", "outside", "exec", "undo", "redo", "rollback", "restore", "claim"]
ChangeKind = Literal["added", "modified", "deleted", "renamed", "mode"]
LineEnd = Literal["lf", "crlf", "cr", "mixed", "none"]
Unread = Literal["allow", "reject"]
Mode = Literal["100644", "100755", "120000"]
PositionEncoding = Literal["utf-8", "utf-16", "utf-32"]
EventKind = Literal[
    "transaction", "session", "lease", "proposal", "review", "refusal", "document", "landed", "remote",
    "resync", "shutdown",
]  # fmt: skip
ProposalState = Literal["draft", "open", "landed", "partly", "rejected", "withdrawn", "expired", "moot"]
ProposalKind = Literal["edit", "undo", "redo", "rollback", "restore"]
HunkKind = Literal["lines", "file", "mode", "move"]
HunkState = Literal["fits", "there", "conflict", "landed", "rejected"]
RestOfHunks = Literal["keep", "reject"]  # what becomes of the hunks that a decision does not name
Verdict = Literal["approve", "reject"]
PauseAction = Literal["refuse", "propose"]  # what happens to the edits of a paused session
Proposes = Literal["always", "policy"]  # which edits of a session wait for a reviewer
Batch = Literal["each", "session", "draft"]  # a proposal for each edit, or one for all, perhaps a draft
SessionKind = Literal["person", "agent"]  # whom a session acts for
WaitFor = Literal["settled", "any"]
By = Literal["path", "time"]  # the evidence for the author of a change that a tool or command made
CallOutcome = Literal["ran", "failed", "denied", "interrupted"]
DecisionKind = Literal["approve", "reject", "submit", "withdraw", "expire", "moot", "reopen"]


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class MessageType(msgspec.StructMeta):
    """Marks the subclasses of `Message` as frozen for type checkers, as msgspec makes them."""


class Message(
    msgspec.Struct,
    metaclass=MessageType,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    gc=False,  # it holds plain values, so no cycle goes through it
):
    """The base of every message: immutable, by keyword, unknown keys refused."""


# ── Edits ──────────────────────────────────────────────────────────────────────────────────────


class Edit(Message, tag_field="op"):
    """One edit of an `apply`; `op` names its kind."""


class Write(Edit, tag="write"):
    """The whole file. Replacing a file that was not read needs `base` or `force`."""

    path: str
    content: str
    base: str | UnsetType | None = UNSET
    mode: Literal["100644", "100755"] | UnsetType = UNSET
    force: bool = False
    keep_form: bool = False  # text, in the encoding and with the line ends and mark of the file it replaces


class Replace(Edit, tag="replace"):
    """Exact text for exact text, in `count` places."""

    path: str
    old: str
    new: str
    count: int = 1
    base: str | UnsetType | None = UNSET
    guard: Literal["version", "text"] = "version"  # without a `base`, the check that it is not stale


class Position(Message):
    """A position as in LSP: a line and a character in it, from 0."""

    line: int
    character: int


class TextEdit(Message):
    """A text edit as in LSP: `text` replaces the text from `start` to `end`."""

    start: Position
    end: Position
    text: str


class EditText(Edit, tag="text"):
    """LSP's text edits, made for `base`."""

    path: str
    base: str | None
    edits: list[TextEdit]
    position_encoding: PositionEncoding = "utf-16"


class Patch(Edit, tag="patch"):
    """A unified or git diff; `fuzz` lines of context may differ."""

    patch: str
    fuzz: int = 0


class Delete(Edit, tag="delete"):
    """The deletion of a file."""

    path: str
    base: str | UnsetType | None = UNSET


class Move(Edit, tag="move"):
    """The move of a file to another path."""

    path: str
    to: str
    base: str | UnsetType | None = UNSET
    overwrite: bool = False


class Chmod(Edit, tag="chmod"):
    """A change of a file's executable bit."""

    path: str
    executable: bool


class Symlink(Edit, tag="symlink"):
    """A symlink to `target`."""

    path: str
    target: str
    base: str | UnsetType | None = UNSET


class Tool(Edit, tag="tool"):
    """A call of another system's edit tool, with that tool's own argument names."""

    dialect: str
    tool: str
    args: dict[str, Any]
    base: str | UnsetType | None = UNSET


FileEdit = Write | Replace | EditText | Patch | Delete | Move | Chmod | Symlink
AnyEdit = FileEdit | Tool


# ── Requests of a client, by method ────────────────────────────────────────────────────────────


class Params(Message):
    """The parameters of one method."""

    method: ClassVar[str]


class ReadVersion(Message):
    """A version of a file that a client had read on an earlier connection."""

    path: str
    version: str | None
    session: str | None = None


class Hello(Params):
    """Introduce this client (default: EDITD_ACTOR, then the login name), and act in `session`.

    `token` attaches the client to an open session. Refused with `unknown_session` if the session is open
    with another token.
    """

    method: ClassVar[str] = "hello"
    client: Any = None  # a name, or a map with name and version; only logged
    protocol: int = PROTOCOL
    session: str | None = None
    token: str | None = None
    errors: Literal["map", "text"] = "map"
    seen: list[ReadVersion] = []


class Status(Params):
    """Return the daemon's status, at once even if it is busy."""

    method: ClassVar[str] = "status"


class Check(Params):
    """Verify that history, journal and files agree. Waits for as long as that takes.

    Transactions that an earlier `check` has verified are not read again one by one, as long as the packs with
    them are the same, byte for byte. `full` reads them all.
    With `repair`, repairs the damage, and the daemon exits afterwards. Refused with `history_damaged` if
    something cannot be recovered, unless `lose` is true.
    """

    method: ClassVar[str] = "check"
    repair: bool = False
    lose: bool = False  # repair even if something cannot be brought back
    full: bool = False  # verify also what an earlier check has verified; a repair does so anyway


class Shutdown(Params):
    """Stop the daemon: returns when it has accepted, and waits until it closes the connection."""

    method: ClassVar[str] = "shutdown"


class Read(Params):
    """Return the current file, or as of right after `at`, or as `changeset` or `proposal` would leave it.

    With `unsaved`, the text that an editor holds of it unsaved, if one does: `unsaved_of` is then set.
    With `as_text`, a file that no encoding fits is refused with `not_text`, and does not count as read.

    `start_line` and `end_line` count from 1 and are both included. The version counts as seen from now
    on, except with `at` and `changeset`. Refused with `file_missing` and `not_a_file`, among others.
    """

    method: ClassVar[str] = "read"
    path: str
    session: str | None = None
    at: Tx | None = None
    changeset: str | None = None
    proposal: int | UnsetType = UNSET  # as this would leave the file
    start_line: int | None = None  # from 1; the lines are as `\n` ends them
    end_line: int | None = None  # included
    unsaved: bool = False  # the text that an editor holds unsaved, if one does
    as_text: bool = False  # refuse a file that no encoding fits, and do not count it as read


class Dialects(Params):
    """Return the edit tools of other systems for `Tool`, with the schemas of their arguments."""

    method: ClassVar[str] = "dialects"


class Stat(Params):
    """Return the version, mode, size (in bytes) and kind of each path, all None for a missing file.

    With `proposal`, as that would leave the files.
    """

    method: ClassVar[str] = "stat"
    paths: list[str]
    proposal: int | UnsetType = UNSET


class Settle(Params):
    """Return the newest transaction when all earlier changes are recorded.

    The daemon applies `timeout`, in seconds (None: 60), and refuses with `timeout` after it.
    """

    method: ClassVar[str] = "settle"
    timeout: float | None = None


class Apply(Params):
    """Make all `edits` one transaction, or none of them.

    Refused, with nothing changed, with `stale`, `no_match`, `conflict`, `leased` and others: see the
    protocol's errors. The result's `transaction` is None if nothing changes, and with `dry_run`.

    With `propose`, or if a review rule asks for it, the edit becomes a proposal. The result then has
    `proposal` and no transaction. With `wait`, in seconds, it comes after the decision if that is made in
    time, and a rejection is `rejected`. `proposal` is an open proposal that this one replaces.

    `on_unsaved` says what happens where an editor holds a file unsaved: by default the edit is refused with
    `unsaved` if it does not merge with that text.
    """

    method: ClassVar[str] = "apply"
    edits: list[AnyEdit]
    session: str | None = None
    actor: str | None = None
    message: str | None = None
    request_id: str | None = None
    on_stale: OnStale | None = None
    dry_run: bool = False
    return_content: bool = False
    diff: bool = False
    propose: bool | UnsetType = UNSET  # unset by default, so that a retry is the same request
    proposal: int | UnsetType = UNSET  # the proposal that this replaces
    wait: float | UnsetType = UNSET  # seconds for the decision
    on_unsaved: OnUnsaved | UnsetType = UNSET


class DocumentHold(Params):
    """Say what text of a file this connection holds unsaved, made from its version `base`.

    Without `content` it only says that there are unsaved changes. Say it again after each change of the text.
    It ends with `document.release`, with the connection, or when this connection writes that text.
    """

    method: ClassVar[str] = "document.hold"
    path: str
    base: str | None  # the version of the file that the text was made from; null for a new file
    content: str | None = None


class DocumentRelease(Params):
    """End a hold of this connection. `invalid_params` if it holds nothing there."""

    method: ClassVar[str] = "document.release"
    path: str


class DocumentList(Params):
    """List the files that clients hold unsaved, without their text."""

    method: ClassVar[str] = "document.list"


class Begin(Params):
    """Open a changeset to collect edits in steps; `Client.transaction` does this itself.

    With `propose`, its commit makes a proposal: a draft, until `proposal.submit`, if the session collects its
    edits in one.
    """

    method: ClassVar[str] = "begin"
    session: str | None = None
    actor: str | None = None
    message: str | None = None
    on_stale: OnStale | None = None
    propose: bool | UnsetType = UNSET


class Stage(Params):
    """Add edits to a changeset, and return the effect of all staged edits."""

    method: ClassVar[str] = "stage"
    changeset: str
    edits: list[AnyEdit]


class Commit(Params):
    """Apply the staged edits as one transaction. After a refusal the changeset stays open.

    `propose`, `proposal` and `wait` are as in `apply`.
    """

    method: ClassVar[str] = "commit"
    changeset: str
    on_stale: OnStale | None = None
    request_id: str | None = None
    propose: bool | UnsetType = UNSET
    proposal: int | UnsetType = UNSET
    wait: float | UnsetType = UNSET
    on_unsaved: OnUnsaved | UnsetType = UNSET


class Abort(Params):
    """Abort a changeset."""

    method: ClassVar[str] = "abort"
    changeset: str


class Filter(Message):
    """The transactions that an undo takes; `since` and `until` are included."""

    session: str | list[str] | None = None
    actor: str | list[str] | None = None
    since: Tx | None = None  # or an RFC 3339 time
    until: Tx | None = None
    paths: list[str] | None = None  # or globs
    kind: Kind | list[Kind] | None = None


class HunksOf(Message):
    """Hunks of what a transaction did to a file, by their numbers from 1."""

    path: str
    hunks: list[int]


class Undo(Params):
    """Take back `tx`, the `last` N, all of a `session`, or the matches of a `filter`, by a new transaction.

    Without any of them, takes back the newest edit that is not undone. Of `tx`, it can be limited to some
    `paths`, and in other files to `hunks` by their numbers from `show`. Refused with `conflict` if later
    changes do not merge, and with `nothing_to_undo`. With `dry_run`, the result lists the `conflicts`
    instead. With `own_only`, work of another session is refused with `permission_denied`.
    """

    method: ClassVar[str] = "undo"
    tx: Tx | None = None
    paths: list[str] | None = None
    hunks: list[HunksOf] | UnsetType | None = UNSET  # unset by default, so that a retry is the same request
    last: int | None = None
    filter: Filter | None = None
    session: str | None = None
    actor: str | None = None
    message: str | None = None
    request_id: str | None = None
    dry_run: bool = False
    on_conflict: OnConflict = "fail"
    own_only: bool = False  # refuse to undo another session's work
    propose: bool | UnsetType = UNSET
    wait: float | UnsetType = UNSET
    on_unsaved: OnUnsaved | UnsetType = UNSET
    elicited: bool | UnsetType = UNSET  # as in `proposal.decide`


class Redo(Params):
    """Undo the newest undo that is not redone. Refusals as for `undo`."""

    method: ClassVar[str] = "redo"
    session: str | None = None
    actor: str | None = None
    message: str | None = None
    request_id: str | None = None
    dry_run: bool = False
    on_conflict: OnConflict = "fail"
    own_only: bool = False
    propose: bool | UnsetType = UNSET
    wait: float | UnsetType = UNSET
    on_unsaved: OnUnsaved | UnsetType = UNSET
    elicited: bool | UnsetType = UNSET  # as in `proposal.decide`


class Rollback(Params):
    """Undo all work of `session`, from `since` on (a transaction or a time). Refusals as for `undo`.

    A glob such as `codex-1234*` is all sessions that match. Published work stays, unless `include_published`
    is true. A change during a command that another program may have made stays, unless `include_by_time` is.
    """

    method: ClassVar[str] = "rollback"
    session: str  # the session to roll back; the author is the connection's
    since: Tx | None = None  # or an RFC 3339 time
    actor: str | None = None
    message: str | None = None
    request_id: str | None = None
    dry_run: bool = False
    on_conflict: OnConflict = "fail"
    own_only: bool = False
    include_published: bool = False
    include_by_time: bool = False  # also changes during a command that another program may have made
    propose: bool | UnsetType = UNSET
    wait: float | UnsetType = UNSET
    on_unsaved: OnUnsaved | UnsetType = UNSET
    elicited: bool | UnsetType = UNSET  # as in `proposal.decide`


BEFORE_NEWEST = "before_newest"
"""The state of each path before its newest change, in place of a transaction: `to` of `restore`."""


class Restore(Params):
    """Put the workspace, or `paths`, back to the state right after `to` (a transaction or a time).

    First waits for as long as it takes to record the changes of other programs.
    """

    method: ClassVar[str] = "restore"
    to: Tx  # or an RFC 3339 time, or BEFORE_NEWEST
    paths: list[str] | None = None
    session: str | None = None
    actor: str | None = None
    message: str | None = None
    request_id: str | None = None
    dry_run: bool = False
    propose: bool | UnsetType = UNSET
    wait: float | UnsetType = UNSET
    on_unsaved: OnUnsaved | UnsetType = UNSET


class LogFilter(Params):
    """The transactions that a `log` or a `log.count` is about; None means all."""

    before: int | None = None
    after: int | None = None
    path: str | list[str] | None = None
    session: str | list[str] | None = None
    actor: str | list[str] | None = None
    kind: Kind | list[Kind] | None = None
    since: str | None = None  # RFC 3339
    until: str | None = None
    grep: str | None = None  # text in the message
    unreviewed: bool = False  # work of sessions, in force, that no person has approved or marked
    turn: int | list[int] | None = None  # of the session
    prompt: str | None = None  # text in the prompt of the turn


class Log(LogFilter):
    """Return transactions, newest first, `limit` at most. `more` is true if that left some out.

    Each of `path`, `session`, `actor` and `kind` is one or several; any may match. `before` and
    `after` are transactions, themselves left out; `since` and `until` are RFC 3339 times. `grep` is text in
    the message, in either case of ASCII letters. `unreviewed` leaves the work of sessions that no person has
    approved or marked (`review.mark`). `turn` is one or several turns of the `session`, and `prompt` is text
    in the prompt of the turn, of those that the client may read. With `brief`, each transaction has
    `files_count` and the first `path` in place of its files. With `stat`, it has the lines `added` and
    `deleted` (None if counting took too long); `limit` is 200 at most then.
    """

    method: ClassVar[str] = "log"
    limit: int = 50
    brief: bool = False  # without the files, but with their number and the first path
    stat: bool = False  # with the lines added and deleted


class LogCount(LogFilter):
    """Return the number of transactions that `log` would list without a limit, and the newest one."""

    method: ClassVar[str] = "log.count"


class LogRefusals(Params):
    """Return the latest refusals of edits, newest first; with `after`, only those after that number."""

    method: ClassVar[str] = "log.refusals"
    session: str | None = None
    after: int | None = None  # the number of a refusal
    limit: int = 50


class Show(Params):
    """Return one transaction, with its diff unless `diff` is false. Refused with `unknown_transaction`.

    With `hunks`, also returns the hunks of each file, with their numbers for `undo`. With `decoded`,
    text of another encoding is decoded, to be read.
    """

    method: ClassVar[str] = "show"
    tx: Tx
    diff: bool = True
    hunks: bool = False
    decoded: bool = False  # text of another encoding as text, to be read, and not to be applied by git


class Diff(Params):
    """Return the diff from right after `from` (None: the baseline) to right after `to` (None: now).

    Without `to`, first waits for as long as it takes to record the changes of other programs. With
    `proposal`, returns what that would change. With `decoded`, text of another encoding is decoded, to
    be read.
    """

    method: ClassVar[str] = "diff"
    from_: Tx | None = msgspec.field(default=None, name="from")
    to: Tx | None = None
    paths: list[str] | None = None
    changeset: str | None = None
    proposal: int | UnsetType = UNSET
    decoded: bool = False  # as in `show`


class Publish(Params):
    """Commit the work of one or more sessions, or of `from` to `to`, onto a branch of the user's git.

    With `dry_run` nothing is changed: the result shows the content of the commit.
    """

    method: ClassVar[str] = "publish"
    message: str
    session: str | list[str] | None = None
    from_: Tx | None = msgspec.field(default=None, name="from")
    to: Tx | None = None
    branch: str | None = None
    author: str | None = None
    dry_run: bool = False


class Scope(Message):
    """The globs of the paths that a session may write and read; null is all paths."""

    write: list[str] | None = None
    read: list[str] | None = None


class SessionOpen(Params):
    """Open a session, and act in it from now on. `ttl` in seconds.

    With `propose="always"`, each of its edits waits for a reviewer. With `batch="session"`, all its edits
    are one proposal, and it reads the files as that would leave them; with `batch="draft"` that is a draft
    until `proposal.submit`. With `fresh` it gets a name that no session had before: `name`, or `NAME-2`,
    `NAME-3` … With `kind="agent"`, it is never taken for the owner's, and neither is the program that has
    started this one.

    The `token` in the result is returned only once. `hello` attaches another client with it.
    """

    method: ClassVar[str] = "session.open"
    name: str
    actor: str | None = None
    scope: Scope | None = None
    on_stale: OnStale | None = None
    unread: Unread = "allow"
    ttl: float | None = None
    fresh: bool = False  # a name that no session had before: this one, or the first free `NAME-2`, `NAME-3` …
    propose: Proposes = "policy"
    batch: Batch = "each"
    kind: SessionKind = "person"  # an agent's never acts as the owner


class SessionClose(Params):
    """Close a session (default: this client's own); with `withdraw`, take back its open proposals."""

    method: ClassVar[str] = "session.close"
    session: str | None = None
    force: bool = False
    withdraw: bool = False  # its open proposals as well


class SessionList(Params):
    """List the open sessions; with `all` also closed ones.

    With `closed`, a time (RFC 3339), also closed ones that were used since. `stat` counts edits, files and
    lines of each. `activity` tells what each does at present.
    """

    method: ClassVar[str] = "session.list"
    all: bool = False  # also closed sessions
    stat: bool = False  # count the edits, files and lines of each
    activity: bool = False  # what each does at present
    closed: str | None = (
        None  # also sessions that were closed, and were used at this time (RFC 3339) or later
    )


class SessionPause(Params):
    """Refuse the edits of a session until `session.resume`, or make them proposals (`"propose"`).

    The refusal has the `reason`. With `end_leases`, its leases end too.
    """

    method: ClassVar[str] = "session.pause"
    session: str
    action: PauseAction = "refuse"
    reason: str = ""  # which the refusal has
    end_leases: bool = False


class SessionResume(Params):
    """End the pause of a session."""

    method: ClassVar[str] = "session.resume"
    session: str


class LeaseAcquire(Params):
    """Lease the paths that match these globs; `ttl` and `wait` in seconds.

    Refused with `leased` if another session has them, and after `wait` with `timeout`.
    """

    method: ClassVar[str] = "lease.acquire"
    paths: list[str]
    ttl: float
    session: str | None = None
    wait: float | None = None


class LeaseRenew(Params):
    """Extend a lease to `ttl` seconds from now."""

    method: ClassVar[str] = "lease.renew"
    lease: str
    ttl: float


class LeaseRelease(Params):
    """End a lease. `force` is needed for another session's lease."""

    method: ClassVar[str] = "lease.release"
    lease: str
    force: bool = False


class LeaseList(Params):
    """List the held leases, and count the requests that wait for one."""

    method: ClassVar[str] = "lease.list"


class ExecBegin(Params):
    """Announce a command that changes files, or a tool that changes these `paths`.

    Waits for as long as it takes to record earlier changes, and up to `wait` seconds for other sessions. With
    a `key` it belongs to the session: any connection may end it, and the process `pid` and `ttl` end it, too.
    The `whole` ones of the paths are refused as stale if the session has not seen their present version.
    """

    method: ClassVar[str] = "exec.begin"
    command: str
    session: str | None = None
    paths: list[str] | None = None  # the files that a tool will change; none: a command, which may change any
    whole: list[str] = []  # files of `paths` that it overwrites or deletes without a look at their text
    key: str | None = None  # any connection of the session ends it with this
    call: str | None = None  # the agent's own id of the tool's call
    native_turn: str | None = None  # the agent's own id of its turn; by default the session's present turn
    pid: int | None = None  # it ends with this process
    ttl: float | None = None  # seconds
    wait: float | None = None  # seconds, for the brackets of other sessions


class ExecAsk(Params):
    """Announce that the agent asks its user about a tool, whose bracket has this `key`.

    Until its end, no change is known to be the tool's. Without a bracket of that key, all of the session's.
    """

    method: ClassVar[str] = "exec.ask"
    session: str | None = None
    key: str | None = None  # the bracket; without one, or if none has it, each of the session


class MadeText(Message):
    """A part of a tool's call: `new` in the place of `old`, or the whole file if that is null."""

    path: str
    new: str | None  # null: the file is deleted
    old: str | None = None


class ExecEnd(Params):
    """Record the changes of the command of `exec.begin`, ended with `status`, as one transaction.

    In place of its `name`, a `key` names the session's command, and `every` the commands of all its keys.
    With `seen`, the session's own changes to their paths count as read. `made` are the texts of the tool's
    call: by them its change is known after a question (`exec.ask`) or a missed beginning, which `command`
    stands for.
    """

    method: ClassVar[str] = "exec.end"
    exec: str | None = None  # exactly one of this and the next two
    key: str | None = None
    all: bool = False  # each bracket with a key of the session
    session: str | None = None
    status: int | None = None
    seen: bool = False  # the session knows its own changes to `paths`
    command: str | None = None  # with `key`: of a bracket whose beginning may have been missed
    made: list[MadeText] = []  # with `key`: the texts of the tool's call


class TurnBegin(Params):
    """Begin a turn of the session, because its agent got a prompt. The turn before it and its brackets end.

    `conversation` and `native` are the agent's own ids of the conversation, which goes on after a resume, and
    of the turn. A repeated `native` is the same turn. `parent` is the session whose turn started this agent.
    `pid` is the process of the agent. Only the session itself may write its turns.
    """

    method: ClassVar[str] = "turn.begin"
    conversation: str
    session: str | None = None
    native: str | None = None
    source: str | None = None  # the origin of the prompt, in the agent's own words
    model: str | None = None
    prompt: str | None = None  # kept without secrets, as `turns.prompts` of the configuration says
    transcript: str | None = None  # the agent's own file of the conversation
    parent: str | None = None
    pid: int | None = None


class TurnNote(Params):
    """Note the model of the session's present turn, or what became of a tool's `call` in it.

    With `asked`, the agent has asked its user about the call.
    """

    method: ClassVar[str] = "turn.note"
    session: str | None = None
    model: str | None = None
    call: str | None = None
    asked: bool = False
    outcome: CallOutcome | None = None


class TurnEnd(Params):
    """End the session's present turn; with `native`, only if it has that id. Later edits have no turn."""

    method: ClassVar[str] = "turn.end"
    session: str | None = None
    native: str | None = None
    reason: str | None = None


class Turns(Params):
    """Return turns, newest first, `limit` at most: of a session and its sub-agents, or of all sessions.

    Each has its transactions, and the proposals that wait. `before` is an RFC 3339 time, left out. With
    `stat`, each transaction has the lines `added` and `deleted`, and `limit` is 200 at most. The text of a
    prompt is for the owner and for the turn's own session only.
    """

    method: ClassVar[str] = "turns"
    session: str | None = None
    before: str | None = None  # RFC 3339
    limit: int = 50
    stat: bool = False


class Claim(Params):
    """Attribute to the session the unannounced changes of these paths since then.

    `since` is an RFC 3339 time, at most 60 seconds ago. For an agent that tells of its edits afterwards.
    """

    method: ClassVar[str] = "claim"
    command: str
    paths: list[str]
    since: str  # RFC 3339, at most 60 seconds ago
    session: str | None = None


class SeenFile(Message):
    """A part of a file that a session has read without the daemon: all of it, or some lines."""

    path: str
    version: str | UnsetType | None = UNSET
    start_line: int | None = None
    end_line: int | None = None


class Seen(Params):
    """Note files as read by the session, without their content: for an agent's own reads.

    `pid` is the process of the agent.
    """

    method: ClassVar[str] = "seen"
    files: list[SeenFile]
    session: str | None = None
    pid: int | None = None  # of the agent


class Blame(Params):
    """Return the transaction of each line. Slow for a file with very many versions."""

    method: ClassVar[str] = "blame"
    path: str


class Why(Params):
    """Return the reason of a line of a file, or of the lines up to `end_line`: transaction, turn and prompt.

    With `at`, of the file as it was right after that transaction. The text of a prompt is for the owner and
    for the turn's own session only. Refusals as for `blame`.
    """

    method: ClassVar[str] = "why"
    path: str
    line: int  # from 1
    end_line: int | None = None  # included
    at: Tx | None = None


class ProposalList(Params):
    """Return proposals without their files, newest first; by default proposals that wait for a decision."""

    method: ClassVar[str] = "proposal.list"
    state: list[ProposalState] | None = None  # by default `draft` and `open`
    session: str | None = None
    path: str | None = None  # a file or a folder
    before: int | None = None
    limit: int = 50


class ProposalGet(Params):
    """Return a proposal with its files and hunks on the present files, and its `view` token.

    With `content`, each file has its text now (`old`) and as it would be (`new`). `context` is the number
    of unchanged lines around each hunk. Refused with `unknown_proposal`.
    """

    method: ClassVar[str] = "proposal.get"
    proposal: int
    revision: int | None = None
    paths: list[str] | None = None
    content: bool = False
    context: int = 3


class ReviewedFile(Message):
    """The reviewer's own text of a file, written for the version `base` that was shown."""

    path: str
    content: str
    base: str | None


class ProposalApprove(Params):
    """Land the `hunks` with these ids, or all that fit in the `view` that was shown.

    `files` are the reviewer's own texts. Other hunks stay open, or are rejected (`rest`). Refused with
    `stale` if the view has changed since, `conflict`, `decided` and `permission_denied`.
    """

    method: ClassVar[str] = "proposal.approve"
    proposal: int
    hunks: list[str] | None = None
    view: str | None = None
    files: list[ReviewedFile] = []
    rest: RestOfHunks = "keep"
    comment: str | None = None
    message: str | None = None
    request_id: str | None = None
    dry_run: bool = False


class ProposalReject(Params):
    """Reject the `hunks` with these ids, or all that are open. Refused as an approval."""

    method: ClassVar[str] = "proposal.reject"
    proposal: int
    hunks: list[str] | None = None
    comment: str | None = None
    request_id: str | None = None


class ProposalView(Message):
    """A proposal and the token of the view that was shown."""

    proposal: int
    view: str


class ProposalDecide(Params):
    """Decide about several proposals, each as it was shown; the refused ones are in `left`.

    `elicited` says that an MCP client gave this answer for its user, see docs/reviewing.md.
    """

    method: ClassVar[str] = "proposal.decide"
    proposals: list[ProposalView]
    what: Verdict
    comment: str | None = None
    elicited: bool = False  # an MCP client gave this answer for its user; it counts only if that is trusted


class ProposalWait(Params):
    """Return a proposal when it is settled, or after `timeout` seconds as it is then.

    With `until="any"`, after the next change of it, later than the time `since` (RFC 3339).
    """

    method: ClassVar[str] = "proposal.wait"
    proposal: int
    timeout: float = 60
    until: WaitFor = "settled"
    since: str | None = None  # RFC 3339: for `any`, a change after this time


class ProposalComment(Params):
    """Add a comment to a proposal, to one of its hunks, or to a line of a file."""

    method: ClassVar[str] = "proposal.comment"
    proposal: int
    text: str
    hunk: str | None = None
    path: str | None = None
    line: int | None = None


class ProposalSubmit(Params):
    """Open a draft for review."""

    method: ClassVar[str] = "proposal.submit"
    proposal: int


class ProposalWithdraw(Params):
    """Take back an open proposal of the own session."""

    method: ClassVar[str] = "proposal.withdraw"
    proposal: int


class ProposalReopen(Params):
    """Make a new proposal of one that was rejected, withdrawn or has expired."""

    method: ClassVar[str] = "proposal.reopen"
    proposal: int


class ProposalCheck(Params):
    """Note the result of a command that was run on the files as the proposal would leave them.

    With `hunks`, only those were in the files.
    """

    method: ClassVar[str] = "proposal.check"
    proposal: int
    view: str
    name: str
    exit: int
    seconds: float
    output: str
    hunks: list[str] | None = None  # that the files had; all that fit by default


class ReviewAllow(Params):
    """Let edits of these paths land without a decision, for `ttl` seconds, a day at most."""

    method: ClassVar[str] = "review.allow"
    paths: list[str]
    ttl: float
    session: str | None = None
    uses: int | None = None
    lines: int | None = None


class ReviewGrants(Params):
    """List the grants in force, and what is left of each."""

    method: ClassVar[str] = "review.grants"


class ReviewRevoke(Params):
    """End a grant."""

    method: ClassVar[str] = "review.revoke"
    grant: int


class ReviewMark(Params):
    """Mark transactions as reviewed, or take the marks back. Refused with `permission_denied` to authors."""

    method: ClassVar[str] = "review.mark"
    transactions: list[int]
    reviewed: bool = True


class ReviewUnlock(Params):
    """Give the user's PIN, so that this connection may decide about what its own kin proposed."""

    method: ClassVar[str] = "review.unlock"
    pin: str


class Notify(Message):
    """The form of a subscriber's events, in place of `event`: a method, and its first arguments."""

    method: str
    prefix: list[Any] = []


class Subscribe(Params):
    """Subscribe to these `events`, about files that match these globs, after `since`.

    With `brief`, transactions have no files, as in `log`.
    """

    method: ClassVar[str] = "subscribe"
    events: list[EventKind] | None = None
    paths: list[str] | None = None
    since: int | None = None
    notify: Notify | None = None
    brief: bool = False  # transactions without their files, as in `log`


class Unsubscribe(Params):
    """End a subscription; closing the events does this."""

    method: ClassVar[str] = "unsubscribe"
    subscription: int


class Gc(Params):
    """Compact transactions beyond `history.keep`, and free unused data. Waits for as long as that takes."""

    method: ClassVar[str] = "gc"
    dry_run: bool = False


class Forget(Params):
    """Remove contents from the history for good, and prove it. Waits for as long as that takes.

    Exactly one of `paths`, `matching` (globs), `content` (versions) and `text` names the contents. Of a file
    the present content stays. Refused with `conflict` if a named content, or the text, is in a file now.
    In their place, `prompts` names a session, whose prompts are removed.
    """

    method: ClassVar[str] = "forget"
    paths: list[str] | None = None  # files and folders: all their contents but the present one
    matching: list[str] | None = None  # globs, which mean the same
    content: list[str] | None = None  # versions
    text: str | None = None  # every content that has it
    prompts: str | None = None  # a session: the prompts of its turns, and of its sub-agents
    dry_run: bool = False


class RemoteInit(Params):
    """Begin a log of this workspace in a git repository. A dry run counts the files that would be sent."""

    method: ClassVar[str] = "remote.init"
    url: str
    ref: str | None = None
    host: str | None = None
    dry_run: bool = False


class RemoteJoin(Params):
    """Take the files of a log, and exchange with its hosts. Refused with `conflict` if files differ.

    With `take="log"`, files that differ are replaced or deleted. The history keeps them. With
    `keep="mine"`, they become an edit of this host.
    """

    method: ClassVar[str] = "remote.join"
    url: str
    ref: str | None = None
    host: str | None = None
    take: Literal["log"] | None = None
    keep: Literal["mine"] | None = None


class RemoteStatus(Params):
    """Return the state of the exchange with other hosts."""

    method: ClassVar[str] = "remote.status"


class RemoteNow(Params):
    """Exchange at once, until all transactions of this host are in the log, or for `timeout` seconds."""

    method: ClassVar[str] = "remote.now"
    timeout: float = 30


class RemoteLand(Params):
    """Wait until a transaction is in the log (default: the newest). Refused with `timeout` if it is not."""

    method: ClassVar[str] = "remote.land"
    tx: Tx | None = None
    timeout: float = 30


class RemotePause(Params):
    """Stop the exchange until `remote.resume`. Edits go on."""

    method: ClassVar[str] = "remote.pause"


class RemoteResume(Params):
    """Go on with the exchange."""

    method: ClassVar[str] = "remote.resume"


class RemoteRepair(Params):
    """Follow the log on the server although it does not continue the known one, and land what it lacks."""

    method: ClassVar[str] = "remote.repair"


class RemoteLeave(Params):
    """End the exchange for good. The files and the history stay.

    Refused with `conflict` if transactions are not in the log yet, unless `lose` is true.
    """

    method: ClassVar[str] = "remote.leave"
    lose: bool = False  # also if transactions are not in the log yet


class ConfigReload(Params):
    """Reload the daemon's configuration. Refused with `invalid_params` if a file is wrong."""

    method: ClassVar[str] = "config.reload"


class HooksRun(Params):
    """Run the hooks on the current files without changing them. Refused: `rejected`, `timeout`."""

    method: ClassVar[str] = "hooks.run"
    paths: list[str]
    session: str | None = None


# ── Results ────────────────────────────────────────────────────────────────────────────────────


class Result(Message, forbid_unknown_fields=False):
    """A message from the daemon: clients skip fields that a later version has added."""


class Empty(Result):
    """`{}`"""


class Server(Result):
    name: str
    version: str


class Workspace(Result):
    root: str
    id: str


class HelloResult(Result):
    server: Server
    protocol: int
    workspace: Workspace
    head: int
    limits: dict[str, int]
    dialects: list[str]
    encodings: list[str]


class AgentEntry(Result):
    """An agent that tells the daemon what its own tools do, and the last method it called."""

    name: str
    session: str
    event: str
    time: str
    pid: int | None = None  # the process that it named last, while that runs
    missed: int = 0  # calls without a beginning, an end or a change that fits: a change may be `outside`


class InstalledPart(Result):
    """An optional part of editd, found by its entry point."""

    group: str  # `editd.tools` or `editd.parts`
    name: str
    distribution: str
    error: str | None = None  # the reason if it cannot be used


class StatusResult(Result):
    root: str
    head: int
    uptime: float  # seconds
    version: str
    state: Literal["ready", "scanning", "broken"]
    reason: str | None  # for the state `broken`
    sessions: int
    leases: int
    proposals: int
    watcher: dict[str, Any]
    journal: dict[str, int]
    history: dict[str, Any]
    config: dict[str, Any]
    hooks: list[dict[str, Any]]
    clients: int
    weaker: list[str]  # guarantees that this file system or the current state cannot give
    uncovered: list[str]  # files outside the baseline, and why
    pid: int
    id: str
    system: dict[str, Any] = {}  # the kind of file system, and the missing system calls
    review_socket: str | None = None  # the reviewers' socket, if they have their own
    remote: dict[str, Any] | None = None  # the exchange with other hosts, as in `remote.status`
    agents: list[AgentEntry] = []  # the last heard first
    documents: int = 0  # that editors hold unsaved
    notices: list[str] = []  # what fills the history
    outer: str | None = None  # the workspace around this one, which leaves this one out
    parts: list[InstalledPart] = []  # the optional parts


class CheckResult(Result):
    ok: bool
    problems: list[str]
    repaired: list[str]  # the repairs made; the daemon ends after them
    lost: list[str]  # things that could not be brought back
    aside: str | None  # the folder that the damaged files were moved to
    known: int | None = None  # up to this transaction an earlier check counts; null: all was verified now
    known_time: str | None = None  # of that check


class HeldBy(Result, kw_only=True):
    """Who holds a file unsaved, and in what version; null without the text."""

    client: str
    session: str | None
    base: str | None
    version: str | None
    lines: list[LineRange] | UnsetType = UNSET  # of its text that are not saved, in the answer to a `read`


class DocumentEntry(HeldBy):
    path: str
    since: str


class DocumentHoldResult(Result):
    version: str | None


class DocumentListResult(Result):
    documents: list[DocumentEntry]


class ReadResult(Result):
    path: str
    content: str
    version: str
    mode: Mode
    kind: Literal["file", "symlink"]
    encoding: str | None  # null if the content is not text
    bom: bool
    eol: LineEnd
    size: int  # bytes
    lines: int | UnsetType = UNSET  # of the whole file, if the request named some
    unsaved: list[HeldBy] | UnsetType = UNSET  # the others that hold it unsaved
    unsaved_of: HeldBy | UnsetType = UNSET  # whose unsaved text this is, if the request asked for that


class ToolEntry(Result):
    """A tool as `tools/list` of MCP has it: `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]
    read_only: bool
    destructive: bool
    idempotent: bool


class DialectEntry(Result):
    name: str
    description: str
    tools: list[ToolEntry]


class DialectsResult(Result):
    dialects: list[DialectEntry]


class StatEntry(Result):
    path: str
    version: str | None
    mode: Mode | None
    size: int | None
    kind: Literal["file", "symlink"] | None


class StatResult(Result):
    files: list[StatEntry]


class SettleResult(Result):
    head: int


class Change(Result):
    path: str
    change: ChangeKind
    base: str | None
    version: str | None
    from_: str | UnsetType = msgspec.field(default=UNSET, name="from")
    mode: Mode | None = None
    undone_by: int | UnsetType = UNSET  # if this path of a transaction is undone


class Part(Result):
    seq: int
    path: str
    hunks: list[int] | UnsetType = UNSET  # if only these of it are undone


class Published(Result):
    """The commit in the user's git that a transaction was published in."""

    commit: str
    branch: str


class ReviewedBy(Result):
    """The person who marked a transaction as reviewed."""

    actor: str
    time: str


class BriefTransaction(Result):
    """A transaction without its files."""

    seq: int
    id: str
    kind: Kind
    actor: str
    session: str | None
    message: str
    time: str  # RFC 3339, UTC, microseconds
    undoes: list[int]
    undone_by: int | None
    request_id: str | None
    by: By | UnsetType = UNSET  # if a bracket was open for it
    candidates: list[str] | UnsetType = UNSET  # the possible authors of an ambiguous `outside`
    turn: int | UnsetType = UNSET  # of the agent's session, if it was made in one
    model: str | UnsetType = UNSET  # of that turn
    parts: list[Part] | UnsetType = UNSET  # of those in `undoes` that are undone only in part: these paths
    claims: list[int] | UnsetType = UNSET  # of a `claim`: the transactions that are its author's
    claimed_by: int | UnsetType = UNSET  # of such a transaction
    published: Published | UnsetType = UNSET  # in `log` and `show`
    reviewed_by: ReviewedBy | UnsetType = UNSET  # in `log` and `show`, if a person has marked it
    proposal: int | UnsetType = UNSET  # this and the following if it was approved
    approved_by: ApprovedBy | UnsetType = UNSET
    modified: bool | UnsetType = UNSET  # by the reviewer
    number: int | UnsetType = UNSET  # of its entry in the log of several hosts, once it has landed
    host: str | UnsetType = UNSET  # this and the next if it came from another host
    made: str | UnsetType = UNSET  # the time by the clock of that host
    rest_on: str | UnsetType = UNSET  # that host, if further files of the transaction stay there
    kept_back: str | UnsetType = UNSET  # in `log` and `show`: the reason, if it is not sent to other hosts
    files_count: int | UnsetType = UNSET  # this and the next if the request has `brief`
    path: str | UnsetType | None = UNSET  # the first of its files
    added: int | UnsetType | None = UNSET  # lines, if the request has `stat`; null if counting took too long
    deleted: int | UnsetType | None = UNSET


class ForgottenVersion(Result):
    """A version whose content a person had removed from the history."""

    version: str
    size: int
    actor: str
    time: str  # of the removal


class Transaction(BriefTransaction):
    files: list[Change] = []
    forgotten: list[ForgottenVersion] | UnsetType = UNSET  # in `log` and `show`: contents of these files
    excluded: list[str] | UnsetType = UNSET  # in `log` and `show`: files whose contents are not kept
    stays: list[str] | UnsetType = UNSET  # in `log` and `show`: files that do not reach other hosts


class ProposedResult(Result):
    """The proposal that an edit became, or would become (a dry run: without number and view)."""

    proposal: int | None
    state: ProposalState | None
    revision: int | None
    view: str | None
    rule: str
    lands_after: list[str] = []  # it lands when these checks have passed


class ApprovedBy(Result):
    """Who let a transaction land: a reviewer, or a rule."""

    actor: str | None = None
    session: str | None = None
    rule: str | None = None


class Decider(Result):
    actor: str
    session: str | None
    via: str  # `socket`, `review socket`, `web`, `rule` or `log` (on another host)
    pid: int | None = None
    program: str | None = None


class ReviewComment(Result):
    number: int
    revision: int
    hunk: str | None
    path: str | None
    line: int | None
    text: str
    by: Decider
    time: str


class FileResult(Result):
    path: str
    version: str | None
    base: str | None
    change: ChangeKind | None  # null if the edit does not change the file
    from_: str | UnsetType = msgspec.field(default=UNSET, name="from")
    mode: Mode | UnsetType | None = UNSET
    content: str | UnsetType | None = UNSET
    diff: str | UnsetType = UNSET
    replacements: int | UnsetType = UNSET
    warnings: list[str] = []
    changed_by: list[Transaction] | UnsetType = UNSET  # by others, since the session read the file
    unsaved: Literal["merged"] | UnsetType = UNSET  # another connection holds it unsaved, and it merges


class ApplyResult(Result):
    transaction: Transaction | None
    files: list[FileResult]
    warnings: list[str] = []
    merged: list[str] = []
    answers: list[str | None] | UnsetType = UNSET  # of each edit's tool, in its own words; null for others
    proposal: ProposedResult | UnsetType = UNSET  # if the edit waits, or waited, for a reviewer
    would_propose: ProposedResult | UnsetType = UNSET  # in a dry run
    approved_by: ApprovedBy | UnsetType = UNSET  # this and the following if it was decided within `wait`
    transactions: list[Transaction] | UnsetType = UNSET
    comments: list[ReviewComment] | UnsetType = UNSET
    reviewer_diff: str | UnsetType = UNSET


class LineRange(Result):
    """Lines of a file, from 1, both included."""

    start_line: int
    end_line: int


class InTheWay(Result):
    """A file with a conflict of an undo."""

    path: str
    blocking: list[int]  # the later transactions there
    needs: list[int]  # the transactions, blocking and others, to undo first
    reason: str | UnsetType = UNSET
    lines: list[LineRange] | UnsetType = UNSET  # of the current file that conflict
    hunks: list[str] | UnsetType = UNSET  # the later history of the lines to undo


class UndoResult(ApplyResult):
    conflicts: list[InTheWay] | UnsetType = UNSET  # in a dry run, and after `on_conflict: skip`
    by_time: list[Part] | UnsetType = UNSET  # in a dry run: the changes that were found during a command


class BeginResult(Result):
    changeset: str


class LogResult(Result):
    transactions: list[Transaction]
    more: bool
    warnings: list[str] | UnsetType = UNSET


class BriefLogResult(Result):
    """The result of a `log` with `brief`; a client reads it as a `LogResult` without files."""

    transactions: list[BriefTransaction]
    more: bool
    warnings: list[str] | UnsetType = UNSET


class LogCountResult(Result):
    count: int
    head: int
    warnings: list[str] | UnsetType = UNSET


class RefusalEntry(Result):
    """The refusal of a request that would have changed files."""

    number: int  # from 1 since the daemon began
    time: str
    method: str
    error: str  # its name
    message: str
    session: str | None
    actor: str | None
    paths: list[str]
    head: int  # the newest transaction then
    attempt: str = ""  # the text that the edits would have put into the files


class LogRefusalsResult(Result):
    refusals: list[RefusalEntry]


class Hunk(Result):
    """A hunk of a transaction's change to a file; an undo names it by its path and number."""

    path: str
    hunk: int
    diff: str


class ShowResult(Result):
    transaction: Transaction
    diff: str | None
    hunks: list[Hunk] | UnsetType = UNSET  # if the request has `hunks`


class DiffResult(Result):
    diff: str
    files: list[Change]


class PublishedFile(Result):
    """A file of a published commit, with its lines added and removed; null for a binary file."""

    path: str
    change: Literal["added", "modified", "deleted"]
    added: int | None
    removed: int | None


class PublishResult(Result):
    commit: str  # empty for a dry run
    branch: str
    left_out: list[str]  # paths that `git add` would not take, and excluded files
    transactions: list[int] = []  # that the commit holds
    files: list[PublishedFile] = []
    message: str = ""  # with its trailers


class SessionOpenResult(Result):
    session: str
    token: str


class LastTransaction(Result):
    """The newest transaction of a session, in brief."""

    seq: int
    time: str
    kind: Kind
    path: str | None  # the first of its files
    message: str


class SessionActivity(Result):
    """What a session does at present."""

    last: LastTransaction | None
    edits: int  # of kind `edit` and `exec`
    in_force: int  # edits that are not undone
    added: int | None  # lines of those in force; null if counting took too long
    deleted: int | None
    proposals: list[int]  # that wait for a decision
    leases: list[str]
    running: list[str]  # commands between `exec.begin` and `exec.end`
    waits_for: Literal["review", "lease"] | None
    since: str | None = None  # of that, otherwise of the newest command
    wants: list[str] = []  # the paths of the lease that it waits for
    holders: list[str] = []  # the sessions that hold a lease of these
    missed: int = 0  # calls of its agent whose beginning or end did not come


class PauseEntry(Result):
    """The pause of a session."""

    action: PauseAction
    reason: str
    by: str  # an actor
    since: str


class SessionPauseResult(Result):
    paused: PauseEntry
    leases: list[str]  # that have ended


class SessionEntry(Result):
    session: str
    actor: str | None
    scope: Scope
    on_stale: OnStale | None
    unread: Unread
    ttl: float
    created: str  # RFC 3339, UTC, microseconds
    used: str
    connections: int
    in_doubt: bool  # the daemon was killed since; see Sessions
    kind: SessionKind = "person"
    state: Literal["connected", "open", "closed"] | UnsetType = UNSET
    edits: int | UnsetType = UNSET  # of kind `edit` and `exec`, in force; this and the following with `stat`
    files: int | UnsetType = UNSET
    added: int | UnsetType | None = UNSET  # lines; null if counting took too long
    removed: int | UnsetType | None = UNSET
    published: list[Published] | UnsetType = UNSET
    activity: SessionActivity | UnsetType = UNSET
    paused: PauseEntry | None = None


class SessionListResult(Result):
    sessions: list[SessionEntry]


class LeaseAcquireResult(Result):
    lease: str
    token: int
    expires: str


class LeaseRenewResult(LeaseAcquireResult):
    """As the lease was granted, with its new end."""


class LeaseEntry(Result):
    lease: str
    session: str
    token: int
    paths: list[str]
    expires: str


class LeaseListResult(Result):
    leases: list[LeaseEntry]
    waiting: int


class ExecBeginResult(Result):
    exec: str
    waited: float = 0.0  # seconds
    unrecorded: list[str] = []  # files that were never recorded, the largest 100


class ExecEndResult(Result):
    transaction: Transaction | None
    transactions: list[int] = []
    unrecorded: list[str] = []  # files that were deleted or changed, and never recorded before
    warnings: list[str] = []


class TurnBeginResult(Result):
    turn: int  # its number in the session, from 1
    warnings: list[str] = []  # about the brackets of the turn before


class TurnOf(Result):
    """A turn of another session."""

    session: str
    turn: int | None


class TurnTransaction(Result):
    """A transaction of a turn, in brief."""

    seq: int
    kind: Kind
    message: str
    undone_by: int | None
    added: int | UnsetType | None = UNSET  # lines, if the request has `stat`; null if counting took too long
    deleted: int | UnsetType | None = UNSET


class TurnEntry(Result):
    """A turn of an agent's session. What is null is unknown, or not for this client."""

    session: str
    turn: int
    agent: str | None
    model: str | None
    source: str | None
    parent: TurnOf | None  # the turn that started this sub-agent
    began: str
    ended: str | None
    reason: str | None  # of the end
    characters: int | None  # of the prompt
    redactions: int  # secrets that were replaced in it
    prompt: str | None  # this and the rest for the owner and the turn's own session only
    conversation: str | None
    native: str | None
    transcript: str | None
    transactions: list[TurnTransaction]
    proposals: list[int]  # that wait for a decision
    calls: dict[str, int]  # of tools, by their outcome


class TurnsResult(Result):
    turns: list[TurnEntry]
    more: bool


class ClaimResult(Result):
    transactions: list[int]


class BlameLine(Result):
    line: int  # from 1
    seq: int
    actor: str
    session: str | None
    time: str
    number: int | UnsetType = UNSET  # of the entry in the log of several hosts
    host: str | UnsetType = UNSET  # if it came from another host


class BlameResult(Result):
    version: str
    lines: list[BlameLine]
    gaps: list[int] | UnsetType = UNSET  # these may have lines of earlier ones, whose content was forgotten


class WhyLine(Result):
    """The reason of a line. What is null is unknown, or not for this client."""

    line: int  # from 1
    path: str
    transaction: int
    kind: Kind
    message: str
    actor: str
    session: str | None
    agent: str | None
    model: str | None
    turn: int | None
    prompt: str | None
    characters: int | None  # of the prompt as it was given
    began: str | None  # the time of the prompt
    time: str
    reviewed: ReviewedBy | None
    host: str | None  # if it came from another host
    transcript: str | None  # the agent's own file, as the prompt


class WhyResult(Result):
    version: str
    lines: list[WhyLine]


class SubscribeResult(Result):
    subscription: int
    head: int


class ProposalHunk(Result):
    """A hunk of a proposal. Lines are numbered from 1: of the present file, and of the file with the hunk."""

    hunk: str
    number: int
    kind: HunkKind
    state: HunkState
    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    text: str
    needs: list[str] = []
    blocking: list[int] | UnsetType = UNSET  # the transactions in the way, of a conflict
    now_text: str | UnsetType = UNSET


class ProposalFile(Result):
    path: str
    change: ChangeKind
    mode: Mode | None
    base: str | None  # the version that it was proposed on
    now: str | None
    proposed: str | None  # the version that would land
    hunks: list[ProposalHunk]
    from_: str | UnsetType = msgspec.field(default=UNSET, name="from")
    old: str | UnsetType | None = UNSET  # the contents of `now` and `proposed`, with `content`
    new: str | UnsetType | None = UNSET
    encoding: str | UnsetType | None = UNSET  # of `new`, and used for both texts; None: no text


class DecisionEntry(Result):
    time: str
    by: Decider
    what: DecisionKind
    hunks: list[str]
    comment: str | None
    seq: int | None
    modified: bool


class CheckReport(Result):
    name: str
    view: str
    exit: int
    seconds: float
    output: str
    by: Decider
    is_current: bool
    hunks: list[str] | None = None  # that the files had, if only some


class RunningCheck(Result):
    name: str
    seconds: float | None  # since it began; None while it waits for its turn


class LineCount(Result):
    added: int
    deleted: int


class ProposalEntry(Result):
    """A proposal without its files."""

    proposal: int
    state: ProposalState
    kind: ProposalKind
    actor: str
    session: str | None
    message: str
    request_id: str | None
    created: str
    changed: str
    expires: str | None
    rule: str
    revision: int
    at: int
    head: int
    view: str
    counts: dict[str, int]  # hunks by state
    lines: LineCount
    paths: list[str]
    landed: list[int]
    decisions: list[DecisionEntry]
    comments: list[ReviewComment]
    checks: list[CheckReport]
    running: list[RunningCheck]
    waiting: int
    lands_after: list[str]  # it lands when these checks have passed


class ProposalListResult(Result):
    proposals: list[ProposalEntry]
    more: bool


class ProposalGetResult(ProposalEntry):
    files: list[ProposalFile]
    diff: str


class ProposalResult(Result):
    proposal: ProposalEntry


class ProposalApproveResult(Result):
    transaction: Transaction | None
    files: list[FileResult]
    proposal: ProposalEntry
    reviewer_diff: str
    warnings: list[str] = []


class DecidedProposal(Result):
    proposal: int
    seq: int | None


class LeftProposal(Result):
    proposal: int
    error: Error


class ProposalDecideResult(Result):
    done: list[DecidedProposal]
    left: list[LeftProposal]


class ProposalWaitResult(Result):
    state: ProposalState
    proposal: ProposalEntry
    transactions: list[Transaction]
    files: list[FileResult]
    comments: list[ReviewComment]
    reviewer_diff: str


class GrantEntry(Result):
    grant: int
    session: str | None
    paths: list[str]
    expires: str
    uses: int | None  # edits that are left
    lines: int | None
    by: Decider


class ReviewAllowResult(Result):
    grant: int
    expires: str
    matching: list[int]  # open proposals that the grant would let land


class ReviewGrantsResult(Result):
    grants: list[GrantEntry]


class ReviewMarkResult(Result):
    marked: int  # transactions whose mark has changed


class GcResult(Result):
    oldest: int  # the history begins with this transaction
    compacted: int  # transactions that this run has dropped, or a dry run would
    freed: int  # bytes
    bytes: int  # the size of the history afterwards


class RemovedContent(Result):
    """A content that is removed from the history, and its places there."""

    version: str
    size: int
    paths: list[str]
    transactions: list[int]


class ForgetResult(Result):
    """The contents that are removed, or would be; what stays is named as well."""

    removed: list[RemovedContent]
    proposals: list[int]  # settled ones that had such content, and are removed whole
    kept: list[str]  # files whose present content stays
    borrowed: list[str]  # versions that the user's own git repository has
    shared: list[str]  # versions that the log of all hosts has
    others: int  # files in lost and found, refusals and lines of the daemon's log that are removed
    remaining: list[str]  # what still has such content, by a search of the whole state folder
    searched: int  # contents that this search has compared, 0 for a dry run
    prompts: int = 0  # that are removed, or would be


RemoteState = Literal["none", "current", "behind", "offline", "refused", "forked", "paused"]


class NamedEntry(Result):
    """An entry of the log that this host cannot use, or not all of it."""

    number: int
    host: str | None  # null if it cannot be read
    reason: str


class RemoteResult(Result):
    state: RemoteState
    error: str | None  # the reason of `offline`, `refused` and `forked`, in git's own words if it has some
    url: str | None = None  # without credentials; this and the rest if the state is not `none`
    ref: str | None = None
    host: str | None = None  # the name of this host in the log
    number: int | None = None  # the last entry that is taken in
    head: int | None = None  # the last entry of the log, as far as known
    tentative: int = 0  # transactions of this host that are not in the log yet
    oldest: float | None = None  # age of the first of these, in seconds
    aside: int = 0  # transactions of all hosts that do not merge, and have no decision
    in_part: list[int] = []  # transactions that another host has undone, but for their files that stay here
    returned: list[int] = []  # the newest 100 transactions that returned files of this host to the log's
    kept_back: list[int] = []  # transactions that are not sent; the others go on
    reasons: dict[str, str] = {}  # for each of these, by its number
    unusable: list[NamedEntry] = []  # the newest 100 entries that no host can use: they change nothing
    unusable_entries: int = 0  # the number of all of them
    newer: list[NamedEntry] = []  # the newest 100 entries of a newer version; their files are taken
    newer_entries: int = 0
    version: int | None = None  # of the format, that all entries together need
    held: list[str] = []  # paths that are kept out of the exchange, as long as this host cannot have them
    exclude: list[str] = []  # globs of the files that stay on this host, by both keys `exclude`
    stays: list[str] = []  # the first hundred of these files
    hosts: dict[str, int] = {}  # the last entry of each
    files: int | UnsetType = UNSET  # of a dry run: the number of files that would be sent, and their bytes
    bytes: int | UnsetType = UNSET


class RemoteLandResult(Result):
    seq: int
    number: int
    outcome: Literal["applied", "aside"]


class ConfigReloadResult(Result):
    applied: list[str]  # keys that are in force now
    restart: list[str]  # keys that have changed and wait for a restart


class HooksRunResult(Result):
    hooks: list[str]  # the hooks that ran
    files: list[dict[str, Any]]  # of each its path, and the hooks that would change it
    diff: str  # the changes that they would make
    warnings: list[str]  # of hooks that failed and are left out


# ── Errors ─────────────────────────────────────────────────────────────────────────────────────

ERROR_CODES: dict[str, int] = {
    "parse_error": -32700,
    "invalid_request": -32600,
    "method_not_found": -32601,
    "invalid_params": -32602,
    "internal_error": -32603,
    "stale": 1,
    "conflict": 2,
    "no_match": 3,
    "ambiguous": 4,
    "count_mismatch": 5,
    "malformed_edit": 6,
    "invalid_regex": 7,
    "timeout": 8,
    "path_outside": 9,
    "path_protected": 10,
    "path_ignored": 11,
    "file_missing": 12,
    "file_exists": 13,
    "not_a_file": 14,
    "not_text": 15,
    "too_large": 16,
    "base_required": 17,
    "leased": 18,
    "permission_denied": 19,
    "unknown_transaction": 20,
    "unknown_session": 21,
    "unread": 22,
    "rejected": 23,
    "nothing_to_undo": 24,
    "io_error": 25,
    "shutting_down": 26,
    "overloaded": 27,
    "history_damaged": 28,
    "no_change": 29,
    "unknown_proposal": 30,
    "decided": 31,
    "unsaved": 32,
    "content_forgotten": 33,
    "content_excluded": 34,
    "not_installed": 35,
}


class Error(Result):
    """An error reply. `message` states the fact and the next step."""

    code: int
    name: str
    message: str
    data: dict[str, Any] = {}


# ── Methods ────────────────────────────────────────────────────────────────────────────────────

ANSWERS: dict[type[Params], type[Result]] = {
    Hello: HelloResult,
    Status: StatusResult,
    Check: CheckResult,
    Shutdown: Empty,
    Dialects: DialectsResult,
    Read: ReadResult,
    Stat: StatResult,
    Settle: SettleResult,
    Apply: ApplyResult,
    Begin: BeginResult,
    Stage: ApplyResult,
    Commit: ApplyResult,
    Abort: Empty,
    Undo: UndoResult,
    Redo: UndoResult,
    Rollback: UndoResult,
    Restore: ApplyResult,
    Log: LogResult,
    LogCount: LogCountResult,
    LogRefusals: LogRefusalsResult,
    Show: ShowResult,
    Diff: DiffResult,
    Publish: PublishResult,
    SessionOpen: SessionOpenResult,
    SessionClose: Empty,
    SessionList: SessionListResult,
    SessionPause: SessionPauseResult,
    SessionResume: Empty,
    LeaseAcquire: LeaseAcquireResult,
    LeaseRenew: LeaseRenewResult,
    LeaseRelease: Empty,
    LeaseList: LeaseListResult,
    DocumentHold: DocumentHoldResult,
    DocumentRelease: Empty,
    DocumentList: DocumentListResult,
    ExecBegin: ExecBeginResult,
    ExecAsk: Empty,
    ExecEnd: ExecEndResult,
    Claim: ClaimResult,
    Seen: Empty,
    TurnBegin: TurnBeginResult,
    TurnNote: Empty,
    TurnEnd: Empty,
    Turns: TurnsResult,
    Blame: BlameResult,
    Why: WhyResult,
    Subscribe: SubscribeResult,
    Unsubscribe: Empty,
    Gc: GcResult,
    Forget: ForgetResult,
    RemoteInit: RemoteResult,
    RemoteJoin: RemoteResult,
    RemoteStatus: RemoteResult,
    RemoteNow: RemoteResult,
    RemoteLand: RemoteLandResult,
    RemotePause: RemoteResult,
    RemoteResume: RemoteResult,
    RemoteRepair: RemoteResult,
    RemoteLeave: RemoteResult,
    ConfigReload: ConfigReloadResult,
    HooksRun: HooksRunResult,
    ProposalList: ProposalListResult,
    ProposalGet: ProposalGetResult,
    ProposalApprove: ProposalApproveResult,
    ProposalReject: ProposalResult,
    ProposalDecide: ProposalDecideResult,
    ProposalWait: ProposalWaitResult,
    ProposalComment: ProposalResult,
    ProposalSubmit: ProposalResult,
    ProposalWithdraw: ProposalResult,
    ProposalReopen: ProposalResult,
    ProposalCheck: ProposalResult,
    ReviewAllow: ReviewAllowResult,
    ReviewGrants: ReviewGrantsResult,
    ReviewRevoke: Empty,
    ReviewMark: ReviewMarkResult,
    ReviewUnlock: Empty,
}
"""The result of each method, by its parameters. `Empty` is a result without data."""

REQUESTS: dict[str, type[Params]] = {kind.method: kind for kind in ANSWERS}
