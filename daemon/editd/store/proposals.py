"""The durable store of proposals: what waits for a reviewer, with its content, and what was decided.

It has the grants as well, which let edits land without a decision.

A write is durable on return, as in `session_store`. The database has the bytes of every base and of every
proposed file, so that neither a compaction nor the loss of the user's repository reaches it.

The history decides whether a hunk has landed. The row of a decision is written after its transaction, and
a start compares the two. A damaged database is put aside, and costs the open proposals, but no landed work.

Each method raises IoError if the database cannot be read or written.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, TypeVar, cast

from msgspec import MsgspecError, Struct
from msgspec.structs import replace

from editd.errors import IoError, Overloaded, Refused
from editd.store import sqlite
from editd.store.proposal_seals import (
    PARTS,
    PROPOSALS_FILE,
    SEAL_TABLES,
    Flaw,
    flaws_of,
    note_lost,
    rescue,
    seal,
    seal_all,
)
from editd.system.proc import boot_name
from editd.system.process import Process, ProcessKey  # noqa: TC001  # for msgspec, at run time
from editd.values.content import FileState, Version, version_of
from editd.values.glob import known_globs
from editd.values.grant import Grant
from editd.values.path import WorkspacePath
from editd.values.proposal import (
    Comment,
    Decision,
    HunkId,
    Proposal,
    ProposalNumber,
    ProposedFile,
    ProposedHunk,
    TrialResult,
    Verdict,
)
from editd.values.transaction import Authorship, Part, Seq, TurnMark

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from editd.values.content import GitMode
    from editd.values.glob import Glob
    from editd.values.proposal import ProposalKind, ProposalState

log = logging.getLogger(__name__)

OPEN_MAX = 1_000  # proposals that wait; a reviewer's list is then long past any use
OPEN_OF_ONE_MAX = 200  # of one session, or of all edits without one, so that no agent takes the whole queue
CONTENT_BYTES_MAX = 256 * 1024 * 1024  # of all bases and proposed files together
CONTENT_OF_ONE_MAX = 64 * 1024 * 1024  # of one session, open or settled, so that no agent takes all of it
PROPOSAL_TABLES = (
    """
create table if not exists proposal (
    number integer primary key autoincrement, state text not null, session text, request_id text,
    revision integer not null, changed_us integer not null, written blob not null);
create index if not exists proposal_state on proposal (state, number);
create table if not exists revision (
    proposal integer not null, revision integer not null, seq integer not null, time_us integer not null,
    request_id text, fingerprint text not null,
    primary key (proposal, revision)) without rowid;
create index if not exists revision_request on revision (request_id) where request_id is not null;
create table if not exists file (
    proposal integer not null, revision integer not null, position integer not null,
    path blob not null, source blob,
    base_version text, base_mode integer, base_permissions integer,
    proposed_version text, proposed_mode integer, proposed_permissions integer,
    primary key (proposal, revision, position)) without rowid;
create table if not exists hunk (
    proposal integer not null, revision integer not null, number integer not null,
    position integer not null, id text not null, kind text not null,
    old_start integer not null, old_end integer not null,
    new_start integer not null, new_end integer not null, verdict text,
    primary key (proposal, revision, number)) without rowid;
create table if not exists content (version text primary key, size integer not null, bytes blob not null);
create table if not exists decision (
    proposal integer not null, number integer not null, written blob not null,
    primary key (proposal, number)) without rowid;
create table if not exists comment (
    proposal integer not null, number integer not null, written blob not null,
    primary key (proposal, number)) without rowid;
create table if not exists check_result (
    proposal integer not null, number integer not null, written blob not null,
    primary key (proposal, number)) without rowid;
create table if not exists author (
    proposal integer not null, number integer not null, written blob not null,
    primary key (proposal, number)) without rowid;
create table if not exists intent (proposal integer primary key, written blob not null);
create table if not exists "grant" (number integer primary key autoincrement, written blob not null);
"""
    + SEAL_TABLES
)
_NOTES = ("proposal", "decision", "comment", "check_result", "intent")  # with text of people and programs
CHECKS_MAX = 100  # results of one proposal
LINES_MAX = 20  # lines of processes of one proposal's author


class _Proposal(Struct, frozen=True):
    """The stored form of a proposal. New fields come last, with a default."""

    kind: str
    actor: str
    message: str
    may_write: list[str] | None
    rule: str
    at: int
    created_us: int
    expires_us: int | None
    landed: list[int]
    fingerprint: str = ""
    undoes: list[int] = []
    parts: list[tuple[int, str, list[int]]] = []
    is_collecting: bool = False
    lands_after: list[str] = []
    turn: TurnMark | None = None


class Intent(Struct, frozen=True):
    """A decision that is about to land hunks, stored before its transaction is committed.

    `numbers` are the hunks' numbers. New fields come last, with a default.
    """

    revision: int
    numbers: tuple[int, ...]
    decision: Decision
    verdicts: dict[HunkId, Verdict]


class _Author(Struct, frozen=True):
    """The stored line of an author's process. New fields come last, with a default."""

    boot: str
    line: tuple[Process, ...]
    program: ProcessKey | None = None


Note = TypeVar("Note", Decision, Comment, TrialResult, _Author)


class _Grant(Struct, frozen=True):
    """The stored form of a grant. New fields come last, with a default."""

    session: str | None
    paths: list[str]
    expires_us: int
    uses: int | None
    lines: int | None
    actor: str
    by_session: str | None
    via: str = "socket"


class ProposalStore:
    """The proposals of one workspace. Used by one thread at a time.

    `open` has the drafts and the open proposals by number, and `grants` the grants, always as they are on
    the disk. `is_whole` is False if the database was damaged, and `lost` then has what of it is gone.
    """

    def __init__(self, folder: str, now_us: int, *, is_accepted: bool = False) -> None:
        """Open the database in the state folder, or create it. Raises IoError.

        The loss of a damaged one is noted for `check`, unless the owner has accepted it.
        """
        self._path = os.path.join(folder, PROPOSALS_FILE)
        self._is_accepted = is_accepted
        self.open: dict[ProposalNumber, Proposal] = {}
        self.grants: dict[int, Grant] = {}
        self.content_bytes = 0
        self._programs: dict[ProposalNumber, ProcessKey | None] = {}  # the authors' programs
        self.requests: set[tuple[str | None, str]] = set()  # the ids of the authors' requests, by session
        self.lost: list[Flaw] = []
        with sqlite.refusing(f"The proposals, {self._path}, cannot be read"):
            self._database, self.is_whole = sqlite.open_or_replace(
                self._path, self._load, journal="wal", synchronous="full", tables=PROPOSAL_TABLES,
                rescue=self._rescue,
            )  # fmt: skip
            if not self.is_whole:
                # As for tokens of leases: higher than any number that was ever given.
                with sqlite.writing(self._database):
                    self._execute("delete from sqlite_sequence")
                    for table in ("proposal", "grant"):
                        self._execute("insert into sqlite_sequence values (?, ?)", table, now_us // 1_000_000)
            sqlite.is_open(self._database)
            self._used = sqlite.UsedBytes(self._database, PROPOSAL_TABLES)

    @property
    def stored_bytes(self) -> int:
        """The bytes of contents, revisions, comments, decisions and checks, as after the last write."""
        return self._used.bytes

    def add(
        self,
        proposal: Proposal,
        files: Sequence[ProposedFile],
        line: tuple[Process, ...] = (),
        program: ProcessKey | None = None,
    ) -> Proposal:
        """Store a new proposal under the next number, which replaces its own. Return it.

        `line` is the author's process with those above it, and `program` the agent or the program among
        them that shares one limit between all its sessions. Raises Overloaded if too many are open, or if
        their content is too large.
        """
        self._check_count(proposal.authorship.session, program)
        with self._writing():
            added = self._execute(
                "insert into proposal (state, session, request_id, revision, changed_us, written) "
                "values (?, ?, ?, ?, ?, ?)",
                *_row(proposal),
            )
            proposal = replace(proposal, number=ProposalNumber(cast("int", added.lastrowid)))
            self._programs[proposal.number] = program
            more = self._add_revision(proposal, files)
            self._add_line(proposal.number, line, program)
            self._seal(proposal.number)
        self._keep(proposal)
        self.content_bytes += more
        return proposal

    def revise(
        self,
        proposal: Proposal,
        files: Sequence[ProposedFile],
        line: tuple[Process, ...] = (),
        program: ProcessKey | None = None,
    ) -> None:
        """Store a proposal with the next revision, which has these files. Raises Overloaded."""
        with self._writing():
            self._put(proposal)
            more = self._add_revision(proposal, files)
            self._add_line(proposal.number, line, program)
            self._seal(proposal.number)
        self._keep(proposal)
        self.content_bytes += more

    def decide(
        self, proposal: Proposal, decision: Decision, verdicts: Mapping[HunkId, Verdict] | None = None
    ) -> None:
        """Store a decision, its verdicts on hunks of the current revision, and the proposal after it."""
        rows = [
            (verdict, proposal.number, proposal.revision, hunk) for hunk, verdict in (verdicts or {}).items()
        ]
        with self._writing():
            self._put(proposal)
            self._database.executemany(
                "update hunk set verdict = ? where proposal = ? and revision = ? and id = ?", rows
            )
            self._add_note("decision", proposal.number, decision)
            self._execute("delete from intent where proposal = ?", proposal.number)
            self._seal(proposal.number)
        self._keep(proposal)

    def intend(self, number: ProposalNumber, intent: Intent) -> None:
        """Store a decision before its transaction. `decide` removes it; after a crash it is still there."""
        with self._writing():
            self._execute("insert or replace into intent values (?, ?)", number, sqlite.encode(intent))
            self._seal(number)

    def intent(self, number: ProposalNumber) -> Intent | None:
        """Return the decision that was to land hunks of a proposal when the daemon ended, or None."""
        with self._reading():
            row = self._execute("select written from intent where proposal = ?", number).fetchone()
            return None if row is None else sqlite.decode(row[0], Intent)

    def comment(self, proposal: Proposal, comment: Comment) -> None:
        """Store a comment, and the proposal with the time of it."""
        with self._writing():
            self._put(proposal)
            self._add_note("comment", proposal.number, comment)
            self._seal(proposal.number)
        self._keep(proposal)

    def check(self, proposal: Proposal, result: TrialResult) -> None:
        """Store the result of a check, and the proposal with the time of it.

        A result of the daemon's own replaces the last one of that check. Raises Overloaded if there are
        too many others.
        """
        number = proposal.number
        with self._writing():
            self._put(proposal)
            kept = self.checks(number)
            if result.command:
                kept = [one for one in kept if not (one.command and one.name == result.name)]
            elif len(kept) >= CHECKS_MAX:
                raise Overloaded(
                    f"Proposal {number} has {CHECKS_MAX} results of checks.", hint="Propose it anew."
                )
            self._execute("delete from check_result where proposal = ?", number)
            for one in (*kept, result):
                self._add_note("check_result", number, one)
            self._seal(number)
        self._keep(proposal)

    def add_grant(self, grant: Grant) -> Grant:
        """Store a new grant under the next number, which replaces its own. Return it."""
        with self._writing():
            added = self._execute('insert into "grant" (written) values (?)', _grant_row(grant))
            grant = replace(grant, number=cast("int", added.lastrowid))
            seal(self._database, "grant", grant.number)
        self.grants[grant.number] = grant
        return grant

    def put_grants(self, grants: Iterable[Grant], ended: Iterable[int] = ()) -> None:
        """Store what is left of these grants, and delete the `ended` grants."""
        left, over = list(grants), list(ended)
        with self._writing():
            for grant in left:
                self._execute(
                    'update "grant" set written = ? where number = ?', _grant_row(grant), grant.number
                )
            for number in over:
                self._execute('delete from "grant" where number = ?', number)
            for number in (*(grant.number for grant in left), *over):
                seal(self._database, "grant", number)
        self.grants.update((grant.number, grant) for grant in left)
        for number in over:
            self.grants.pop(number, None)

    def get(self, number: ProposalNumber) -> Proposal | None:
        """Return a proposal, open or settled, or None."""
        with self._reading():
            row = self._execute("select * from proposal where number = ?", number).fetchone()
            return None if row is None else _proposal(*row)

    def by_request(self, session: str | None, request_id: str) -> tuple[Proposal, str] | None:
        """Return the newest proposal that a session's request with this id made or revised, or None.

        The fingerprint of the request comes with it.
        """
        with self._reading():
            row = self._execute(
                "select fingerprint, proposal.* from revision join proposal on proposal.number = proposal "
                "where revision.request_id = ? and session is ? order by number desc, revision.revision desc "
                "limit 1",
                request_id, session,
            ).fetchone()  # fmt: skip
            return None if row is None else (_proposal(*row[1:]), row[0])

    def of_requests(self, prefix: str) -> list[tuple[str, Proposal]]:
        """Return the proposals that were made by a request whose id begins so, each with the id."""
        with self._reading():
            rows = self._execute(
                "select revision.request_id, proposal.* from revision "
                "join proposal on proposal.number = proposal "
                "where revision.request_id >= ? and revision.request_id < ? and revision.revision = 1",
                prefix, prefix + chr(0x10FFFF),
            ).fetchall()  # fmt: skip
            return [(row[0], _proposal(*row[1:])) for row in rows]

    def find(
        self,
        states: Collection[ProposalState] = (),
        *,
        session: str | None = None,
        path: WorkspacePath | None = None,
        before: ProposalNumber | None = None,
        limit: int = 50,
    ) -> tuple[list[Proposal], bool]:
        """Return proposals, the newest first, and whether there are more than `limit`.

        `states` (default: all), `session`, and `path` (a file or a folder) restrict them, and `before` to
        those with a lower number.
        """
        conditions, values = ["true"], list[object]()
        if states:
            conditions.append(f"state in ({', '.join('?' * len(states))})")
            values += states
        if session is not None:
            conditions.append("session = ?")
            values.append(session)
        if before is not None:
            conditions.append("number < ?")
            values.append(before)
        if path is not None:
            conditions.append(_TOUCHES)
            values += [path.raw, path.raw + b"/", path.raw + b"0"] * 2  # "0" comes after "/"
        query = f"select * from proposal where {' and '.join(conditions)} order by number desc limit ?"  # noqa: S608  # ours
        with self._reading():
            proposals = [_proposal(*row) for row in self._execute(query, *values, limit + 1)]
        return proposals[:limit], len(proposals) > limit

    def files(self, number: ProposalNumber, revision: int) -> tuple[ProposedFile, ...]:
        """Return the files of a revision with their content and hunks; none for an unknown one."""
        with self._reading():
            hunks: dict[int, list[ProposedHunk]] = {}
            for position, *hunk in self._execute(
                "select position, id, number, kind, old_start, old_end, new_start, new_end, verdict "
                "from hunk where proposal = ? and revision = ? order by number",
                number, revision,
            ):  # fmt: skip
                hunks.setdefault(position, []).append(ProposedHunk(*hunk))
            rows = self._execute(
                "select * from file where proposal = ? and revision = ? order by position", number, revision
            ).fetchall()
            return tuple(
                ProposedFile(
                    WorkspacePath(os.fsdecode(path)),
                    None if source is None else WorkspacePath(os.fsdecode(source)),
                    self._state(*states[:3]),
                    self._state(*states[3:]),
                    tuple(hunks.get(position, ())),
                )
                for _, _, position, path, source, *states in rows
            )

    def decisions(self, number: ProposalNumber) -> list[Decision]:
        """Return the decisions on a proposal, in their order."""
        return self._notes("decision", number, Decision)

    def comments(self, number: ProposalNumber) -> list[Comment]:
        """Return the comments on a proposal, in their order."""
        return self._notes("comment", number, Comment)

    def checks(self, number: ProposalNumber) -> list[TrialResult]:
        """Return the results of checks of a proposal, in their order."""
        return self._notes("check_result", number, TrialResult)

    def lines(self, number: ProposalNumber) -> list[tuple[Process, ...]]:
        """Return the lines of the processes that have proposed this, of the present boot of the machine."""
        boot = boot_name()
        return [one.line for one in self._notes("author", number, _Author) if one.boot == boot]

    def forget_settled(self, before_us: int) -> int:
        """Delete the settled proposals that have not changed since `before_us`.

        Return the bytes of content that this frees.
        """
        query = "select number from proposal where state not in ('draft', 'open') and changed_us < ?"
        with self._reading():
            old = [row[0] for row in self._execute(query, before_us)]
        return self.delete(old) if old else 0

    def holders(
        self,
        is_wanted: Callable[[WorkspacePath, Version], bool],
        has_text: Callable[[bytes], bool],
    ) -> list[ProposalNumber]:
        """Return the proposals with a wanted content of a file, or with a text that `has_text` accepts."""
        numbers: set[int] = set()
        with self._reading():
            contents = self._execute("select version, bytes from content")
            versions = {version for version, content in contents if has_text(content)}
            files = self._execute("select proposal, path, base_version, proposed_version from file")
            for number, raw, *sides in files:
                path = WorkspacePath(os.fsdecode(raw))
                if any(side is not None and (side in versions or is_wanted(path, side)) for side in sides):
                    numbers.add(number)
            for table in _NOTES:
                key = "number" if table == "proposal" else "proposal"
                rows = self._execute(f"select {key}, written from {table}")  # noqa: S608  # ours
                numbers.update(number for number, written in rows if has_text(written))
        return sorted(map(ProposalNumber, numbers))

    def delete(self, numbers: Sequence[int]) -> int:
        """Delete settled proposals with their content. Return the bytes of content that this frees."""
        assert not self.open.keys() & set(numbers), "only settled proposals are deleted"
        chosen = [(number,) for number in numbers]
        with self._writing():
            for table in PARTS:
                self._database.executemany(f"delete from {table} where proposal = ?", chosen)  # noqa: S608  # ours
            self._database.executemany("delete from proposal where number = ?", chosen)
            for number in numbers:
                self._seal(number)
            self._execute(
                "delete from content where version not in (select base_version from file "
                "where base_version is not null union select proposed_version from file "
                "where proposed_version is not null)"
            )
            left = _content_bytes(self._database)
        freed = self.content_bytes - left
        self.content_bytes = left
        for number in numbers:
            self._programs.pop(ProposalNumber(number), None)
        return freed

    def scrub(self, *, pages: bool) -> None:
        """Remove deleted rows from the disk (`sqlite.scrub`)."""
        with sqlite.refusing(f"Deleted rows could not be removed from {self._path}"):
            sqlite.scrub(self._database, pages=pages)

    def close(self) -> None:
        self._database.close()

    def _load(self, database: sqlite3.Connection) -> None:
        """Read the database into memory. Raises ValueError if it is damaged."""
        seal_all(database)
        if flaws := flaws_of(database):
            raise ValueError(" ".join(flaw.sentence for flaw in flaws))
        self._programs.clear()
        proposals = [_proposal(*row) for row in database.execute("select * from proposal")]
        self.open = {one.number: one for one in proposals if not one.is_settled}
        self.requests = set(
            database.execute(
                "select session, revision.request_id from revision join proposal"
                " on proposal.number = proposal where revision.request_id is not null"
            )
        )
        self.grants = {row[0]: _grant(*row) for row in database.execute('select * from "grant"')}
        self.content_bytes = _content_bytes(database)
        boot = boot_name()
        for number, written in database.execute("select proposal, written from author order by number"):
            author = sqlite.decode(written, _Author)
            self._programs.setdefault(number, author.program if author.boot == boot else None)

    def _rescue(self, damaged: str, database: sqlite3.Connection) -> None:
        self.lost = rescue(damaged, database)
        for flaw in self.lost:
            log.error("lost: %s", flaw.sentence)
        try:
            note_lost(damaged, [] if self._is_accepted else self.lost)
        except OSError as error:
            log.error("the loss cannot be noted for `check`: %s", error)
        self._load(database)

    def _check_count(self, session: str | None, program: ProcessKey | None) -> None:
        if len(self.open) >= OPEN_MAX:
            raise Overloaded(f"{OPEN_MAX} proposals are open.", hint="Decide on some of them first.")
        own = sum(proposal.authorship.session == session for proposal in self.open.values())
        shared = sum(self._programs.get(number) == program for number in self.open) if program else 0
        if max(own, shared) >= OPEN_OF_ONE_MAX:
            of_author = _of(session) if own >= OPEN_OF_ONE_MAX else _OF_PROGRAM
            raise Overloaded(
                f"{OPEN_OF_ONE_MAX} proposals {of_author} are open.",
                hint="Withdraw some of them, or wait until they are decided.",
            )

    def _check_share(self, proposal: Proposal, of_all: int) -> None:
        """Raise Overloaded if an author's proposals have too much content. `of_all` has all bytes."""
        if of_all <= CONTENT_OF_ONE_MAX:
            return
        session, program = proposal.authorship.session, self._programs.get(proposal.number)
        shared = [number for number, other in self._programs.items() if program and other == program]
        values = (session, json.dumps(shared)) * 2
        own = int(self._execute(_BYTES_OF_AUTHOR, *values).fetchone()[0])
        if own > CONTENT_OF_ONE_MAX:
            raise Overloaded(
                f"All proposals {_OF_PROGRAM if shared else _of(session)} may have "
                f"{CONTENT_OF_ONE_MAX} bytes of content.",
                hint="Propose fewer or smaller files. `review.keep` says how long settled proposals stay.",
            )

    def _seal(self, number: int) -> None:
        seal(self._database, "proposal", number)

    def _keep(self, proposal: Proposal) -> None:
        """Note the stored state of a proposal, once it is durable."""
        if proposal.is_settled:
            self.open.pop(proposal.number, None)
        else:
            self.open[proposal.number] = proposal

    def _put(self, proposal: Proposal) -> None:
        self._execute(
            "update proposal set state = ?, session = ?, request_id = ?, revision = ?, changed_us = ?, "
            "written = ? where number = ?",
            *_row(proposal), proposal.number,
        )  # fmt: skip

    def _add_revision(self, proposal: Proposal, files: Sequence[ProposedFile]) -> int:
        """Write the rows of a new revision. Return the bytes of new content. Raises Overloaded."""
        key = proposal.number, proposal.revision
        self._execute(
            "insert into revision values (?, ?, ?, ?, ?, ?)",
            *key, proposal.at, proposal.changed_us, proposal.authorship.request_id, proposal.fingerprint,
        )  # fmt: skip
        if proposal.authorship.request_id is not None:
            self.requests.add((proposal.authorship.session, proposal.authorship.request_id))
        more = sum(map(self._add_content, _states(files)))
        if self.content_bytes + more > CONTENT_BYTES_MAX:
            raise Overloaded(
                f"All proposals together may have {CONTENT_BYTES_MAX} bytes of content.",
                hint="Decide on some of them first, or propose fewer files at once.",
            )
        for position, file in enumerate(files):
            source = None if file.source is None else file.source.raw
            self._execute(
                "insert into file values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *key, position, file.path.raw, source, *_state_row(file.base), *_state_row(file.proposed),
            )  # fmt: skip
            self._database.executemany(
                "insert into hunk values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (*key, hunk.number, position, hunk.id, hunk.kind, hunk.start, hunk.end, hunk.new_start,
                     hunk.new_end, hunk.verdict)
                    for hunk in file.hunks
                ],
            )  # fmt: skip
        self._check_share(proposal, self.content_bytes + more)
        return more

    def _add_content(self, state: FileState) -> int:
        """Store the bytes of a state. Return their number, or 0 if they were there."""
        size = len(state.content)
        added = self._execute(
            "insert or ignore into content values (?, ?, ?)", state.version, size, state.content
        )
        return size if added.rowcount else 0

    def _add_line(
        self, number: ProposalNumber, line: tuple[Process, ...], program: ProcessKey | None
    ) -> None:
        """Store the line of an author's process, unless it is known."""
        known = self._notes("author", number, _Author)
        author = _Author(boot_name(), line, program)
        if line and author not in known and len(known) < LINES_MAX:
            self._add_note("author", number, author)

    def _add_note(
        self, table: str, number: ProposalNumber, note: Decision | Comment | TrialResult | _Author
    ) -> None:
        self._execute(
            f"insert into {table} select ?, count(*) + 1, ? from {table} where proposal = ?",  # noqa: S608  # ours
            number, sqlite.encode(note), number,
        )  # fmt: skip

    def _notes(self, table: str, number: ProposalNumber, form: type[Note]) -> list[Note]:
        with self._reading():
            query = f"select written from {table} where proposal = ? order by number"  # noqa: S608  # ours
            return [sqlite.decode(written, form) for (written,) in self._execute(query, number)]

    def _state(self, version: str | None, mode: int, permissions: int | None) -> FileState | None:
        """Return a state with its content. Raises IoError if the content is damaged."""
        if version is None:
            return None
        row = self._execute("select bytes from content where version = ?", version).fetchone()
        if row is None or version_of(row[0]) != version:
            raise IoError(OSError(f"version {version} is damaged"), f"{self._path} cannot be read")
        return FileState(row[0], cast("GitMode", mode), permissions, Version(version))

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._database.execute(statement, values)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        failure = f"The proposals, {self._path}, cannot be written"
        with sqlite.refusing(failure), sqlite.writing(self._database):
            yield
        with sqlite.refusing(failure):
            self._used.measure()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        failure = f"The proposals, {self._path}, cannot be read"
        try:
            with sqlite.refusing(failure):
                yield
        except IoError:
            raise
        except (MsgspecError, ValueError, TypeError, Refused) as error:
            raise IoError(OSError(f"a row is damaged ({error})"), failure) from error


_TOUCHES = """exists (select 1 from file
    where file.proposal = proposal.number and file.revision = proposal.revision and
    (path = ? or path between ? and ? or source = ? or source between ? and ?))"""


_BYTES_OF_AUTHOR = """select coalesce(sum(size), 0) from content where version in (
    select base_version from file join proposal on proposal.number = proposal
        where session is ? or proposal.number in (select value from json_each(?))
    union select proposed_version from file join proposal on proposal.number = proposal
        where session is ? or proposal.number in (select value from json_each(?)))"""

_OF_PROGRAM = "of all sessions of this program"


def _of(session: str | None) -> str:
    return "without a session" if session is None else f"of session {session}"


def _content_bytes(database: sqlite3.Connection) -> int:
    return int(database.execute("select coalesce(sum(size), 0) from content").fetchone()[0])


def _states(files: Iterable[ProposedFile]) -> list[FileState]:
    return [state for file in files for state in (file.base, file.proposed) if state is not None]


def _state_row(state: FileState | None) -> tuple[str | None, int | None, int | None]:
    return (None, None, None) if state is None else (state.version, state.mode, state.permissions)


def _row(proposal: Proposal) -> tuple[str, str | None, str | None, int, int, bytes]:
    """Return the columns of a proposal but for its number."""
    author = proposal.authorship
    written = _Proposal(
        proposal.kind, author.actor, author.message, _texts(proposal.may_write), proposal.rule, proposal.at,
        proposal.created_us, proposal.expires_us, list(proposal.landed), proposal.fingerprint,
        list(proposal.undoes), [(part.seq, part.path.text, list(part.hunks)) for part in proposal.parts],
        proposal.is_collecting, list(proposal.lands_after), author.turn,
    )  # fmt: skip
    return (
        proposal.state, author.session, author.request_id, proposal.revision, proposal.changed_us,
        sqlite.encode(written),
    )  # fmt: skip


def _proposal(
    number: int,
    state: str,
    session: str | None,
    request_id: str | None,
    revision: int,
    changed_us: int,
    written: bytes,
) -> Proposal:
    kept = sqlite.decode(written, _Proposal)
    return Proposal(
        ProposalNumber(number),
        cast("ProposalState", state),
        cast("ProposalKind", kept.kind),
        Authorship(kept.actor, session, kept.message, request_id, turn=kept.turn),
        _globs(kept.may_write),
        kept.rule,
        Seq(kept.at),
        kept.created_us,
        changed_us,
        kept.expires_us,
        revision,
        tuple(map(Seq, kept.landed)),
        kept.fingerprint,
        tuple(map(Seq, kept.undoes)),
        tuple(Part(Seq(seq), WorkspacePath(path), tuple(hunks)) for seq, path, hunks in kept.parts),
        kept.is_collecting,
        tuple(kept.lands_after),
    )


def _grant_row(grant: Grant) -> bytes:
    written = _Grant(
        grant.session, [glob.text for glob in grant.paths], grant.expires_us, grant.uses, grant.lines,
        grant.actor, grant.by_session, grant.via,
    )  # fmt: skip
    return sqlite.encode(written)


def _grant(number: int, written: bytes) -> Grant:
    kept = sqlite.decode(written, _Grant)
    return Grant(
        number, kept.session, known_globs(kept.paths), kept.expires_us, kept.uses, kept.lines,
        kept.actor, kept.by_session, kept.via,
    )  # fmt: skip


def _texts(globs: tuple[Glob, ...] | None) -> list[str] | None:
    return None if globs is None else [glob.text for glob in globs]


def _globs(texts: list[str] | None) -> tuple[Glob, ...] | None:
    return None if texts is None else known_globs(texts)
