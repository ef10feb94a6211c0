"""Access control: verify that a request's session may make the planned changes, before anything is staged.

Three checks, in this order:

1. the scope of the session (`permission_denied`);
2. the leases of other sessions (`leased`);
3. whether the session has read each file that it changes (`unread`). This applies to a session opened with
   `unread: reject`, and to a session in doubt. A session is in doubt after the daemon was killed, because the
   reads of its last second may not have been saved. Without this check, such a session could silently
   overwrite a version that it has never seen.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from editd.advice import Advice, command_term, option_term, step_term
from editd.engine.changes_by_time import spare_by_time
from editd.engine.commands import Apply, Land
from editd.engine.leases import leased
from editd.engine.queries import format_ranges
from editd.engine.restore import state_before
from editd.engine.sessions import refused_by
from editd.engine.undo import invert
from editd.engine.undo_conflicts import blocking_by_path
from editd.engine.undo_selection import (
    BySession,
    batches_of,
    check_not_excluded,
    spare_dropped,
    times_warning,
    without_effect,
)
from editd.errors import (
    ContentExcluded,
    IoError,
    NothingToUndo,
    PathProtected,
    PermissionDenied,
    Stale,
    Unread,
)
from editd.values.content import Change, FileState
from editd.values.excluded_paths import ExcludedPaths
from editd.values.glob import Exhausted, Glob, GlobSet, Meter
from editd.values.name_key import key_of
from editd.values.path import WorkspacePath
from editd.values.path_rules import RuleOnPaths, fits

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from editd.config.schema import Config
    from editd.edits.overlay import Snapshot
    from editd.engine.commands import Reader, Restore, Undo, Write
    from editd.engine.external_changes import DiskSnapshot
    from editd.engine.leases import Leases
    from editd.engine.sessions import ReadVersions, Sessions
    from editd.engine.undo import UndoPlan
    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.store.history import History
    from editd.store.path_history import HistoryWalker
    from editd.store.session_store import Session, SessionStore
    from editd.system.clock import Clock
    from editd.values.transaction import Outcome, Seq, Transaction


# The edit policy: limits of the configuration for clients. Other programs' changes are recorded anyway.


class StoredBytes(Struct, frozen=True):
    """The bytes that clients have had the daemon keep."""

    history: int
    proposals: int = 0
    unsaved: int = 0
    index: int = 0
    marks: int = 0  # the versions that sessions have read, and open brackets

    @property
    def all(self) -> int:
        """All of them, which the quota limits."""
        return self.history + self.proposals + self.unsaved + self.index + self.marks


class EditPolicy(Struct, frozen=True):
    """The rule of the protected paths, if there are such, and the quota of the history."""

    protected: RuleOnPaths | None = None
    quota: int | None = None  # bytes of all of `StoredBytes`

    def permit(self, changes: Sequence[Change[FileState]]) -> None:
        """Raise PathProtected if one of the resolved paths is protected."""
        rule = self.protected
        if rule is None:
            return
        for change in changes:
            path, is_made = change.path, change.after is not None
            if fits(rule, path, is_made=is_made):
                globs = (replace(rule, globs=GlobSet([glob])) for glob in rule.globs)
                (glob,) = next(one.globs for one in globs if fits(one, path, is_made=is_made))
                raise PathProtected(
                    f"{path} is protected by the configuration ({glob.text}).",
                    hint=Advice("Nothing was changed. ", command_term("config"), " shows `protect`."),
                    data={"path": path.text, "protect": glob.text},
                )

    def check_room(self, stored: StoredBytes, more: int = 0) -> None:
        """Raise IoError (EDQUOT) if the quota is reached, or would be with `more` bytes.

        Not called for an undo that takes effect.
        """
        if self.quota is None or stored.all + more < self.quota:
            return
        raise IoError(
            OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)),
            f"The history takes {stored.history} bytes, proposals {stored.proposals}, unsaved texts "
            f"{stored.unsaved}, the index {stored.index} and read marks {stored.marks}, "
            f"and `history.quota` is {self.quota}",
            hint=Advice(
                "Nothing was changed. Remove old history and settled proposals with ", command_term("gc"),
                " (see `history.keep` and `review.keep`), or raise `history.quota`. Undo and reading still "
                "work.",
            ),
            data={"quota": self.quota, "bytes": stored.all},
        )  # fmt: skip


def policy_of(config: Config) -> EditPolicy:
    """Return the policy of the configuration."""
    globs = GlobSet(map(Glob.parse, config.protect))
    rule = RuleOnPaths("protect", "refuse", globs) if globs else None
    return EditPolicy(rule, config.history.quota)


def excluded_paths_of(config: Config) -> ExcludedPaths:
    """Return the paths whose contents the history does not keep, by the configuration."""
    return ExcludedPaths(config.history.exclude, config.history.exclude_except)


def permit_move(source: WorkspacePath, path: WorkspacePath, rule: ExcludedPaths) -> None:
    """Raise PathProtected if a move would make an excluded file a kept one, or the other way."""
    is_excluded = rule.covers(source)
    if is_excluded != rule.covers(path):
        problem = "would bring its content into the history" if is_excluded else "would end its history"
        raise PathProtected(
            f"{source} must not be moved to {path}: the configuration excludes only "
            f"{source if is_excluded else path} from the history, and the move {problem}.",
            hint=Advice(
                "Write the new file and delete the old one. ",
                command_term("config"),
                " shows `history.exclude`.",
            ),
            data={"path": path.text, "from": source.text},
        )


def permit_carried(source: WorkspacePath, path: WorkspacePath, rule: ExcludedPaths) -> None:
    """Raise PathProtected if a copy would bring the content of an excluded file into the history."""
    if rule.covers(source) and not rule.covers(path):
        raise PathProtected(
            f"{path} must not get the content of {source}: the configuration excludes {source} from the "
            "history, and the copy would bring its content into the history.",
            hint=Advice("Write the new file. ", command_term("config"), " shows `history.exclude`."),
            data={"path": path.text, "from": source.text},
        )


def permit_proposal(changes: Sequence[Change[FileState]], rule: ExcludedPaths) -> None:
    """Raise ContentExcluded if a proposal would keep the content of an excluded file."""
    for change in changes:
        if rule.covers(change.path):
            raise ContentExcluded(
                f"{change.path} cannot be proposed: the configuration excludes it from the history, and a "
                "proposal keeps its content.",
                hint="Leave the file out, or have the owner of the workspace edit it.",
                data={"path": change.path.text},
            )


class AccessControl(Struct, frozen=True):
    """The checks of a session's requests, on the state of all sessions and leases."""

    registry: SessionStore
    sessions: Sessions
    leases: Leases
    seen: ReadVersions
    clock: Clock

    def permit(
        self,
        request: Write,
        outcome: Outcome,
        expected: Container[tuple[Reader, WorkspacePath]],
    ) -> None:
        """Verify that the session of `request` may make the changes of `outcome`.

        `expected` has the paths that each reader changes in the same turn. Raises PermissionDenied, Leased or
        Unread.
        """
        changes, name = outcome.changes, request.authorship.session
        if self.sessions.paused:
            self._check_paused(request, name)
        session = None if name is None else self.sessions.get(name)
        if session is not None:
            self._check_bounds(session, changes)
        if self.leases.held:
            self._check_leases(name, changes)
        if session is not None and isinstance(request, Apply):
            is_free = session.unread == "allow"
            unguarded = [change for change in changes if not (is_free and change.path in outcome.guarded)]
            self._check_read(session, request, unguarded, expected, outcome.based)

    def permit_tool(
        self,
        name: str | None,
        reader: Reader,
        states: Mapping[WorkspacePath, FileState | None],
        whole: Collection[WorkspacePath],
        rules: EditPolicy,
    ) -> None:
        """Verify that a tool of the session's own may change these files, which it overwrites if in `whole`.

        Raises PathProtected, PermissionDenied, Leased, Stale or Unread.
        """
        changes = [Change(path, state, state or FileState(b"")) for path, state in states.items()]
        rules.permit(changes)
        session = None if name is None else self.sessions.get(name)
        if session is not None:
            self._check_bounds(session, changes)
        if self.leases.held:
            self._check_leases(name, changes)
        for path in whole:
            base, state = self.seen.by(reader, path), states[path]
            current = None if state is None else state.version
            if base is not None and base.version != current:
                raise Stale(path.text, base.version, current)
            if base is None and state is not None and session is not None and _must_read(session):
                raise _unread(session, path)

    def scope_of(self, session: str | None) -> tuple[Glob, ...] | None:
        """Return the paths that a session may write; None is all, also if no such session is open."""
        known = None if session is None else self.sessions.get(session)
        return None if known is None else known.bounds.write

    def spare_published(
        self, scope: Scope, targets: list[UndoTarget]
    ) -> tuple[list[UndoTarget], tuple[str, ...]]:
        """Return the targets that an undo of `scope` may take back, and warnings about published work.

        A rollback skips published transactions unless the request includes them.
        Raises NothingToUndo if all targets are published.
        """
        if not self.registry.has_published:
            return targets, ()
        by_seq = {target.transaction.seq: target for target in targets}
        published = self.registry.publications_of(by_seq)
        commits: dict[str, list[Seq]] = {}
        for seq in by_seq:
            if (commit := published.get(seq)) is not None:
                commits.setdefault(str(commit), []).append(seq)
        listed = "; ".join(f"{format_ranges(seqs)} as {commit}" for commit, seqs in commits.items())
        if not commits:
            return targets, ()
        if not isinstance(scope, BySession) or scope.is_published_included:
            return targets, (f"This was published, and the commit stays: {listed}.",)
        left = [target for target in targets if target.transaction.seq not in published]
        if not left:
            raise NothingToUndo(
                f"All that session {scope.session} did and that is in force was published: {listed}.",
                hint=Advice(
                    "Use ",
                    option_term("include_published"),
                    " to take it back in the files. The commit stays.",
                ),
                data={"published": sorted(map(int, published))},
            )
        return left, (f"Published work was left alone: {listed}.",)

    def check_taken_back(
        self, request: Undo, targets: Sequence[UndoTarget], past: HistoryWalker, view: DiskSnapshot
    ) -> None:
        """Raise PermissionDenied if an undo takes back the work of others without permission."""
        refusal = request.sender.refusal
        if refusal is None:
            return
        after = self.sessions.proved_after(request.authorship.session)
        if after is None or any(int(target.transaction.seq) <= after for target in targets):
            raise refusal
        try:
            self.check_own(request, targets, past, view)
        except PermissionDenied as reason:
            raise _with_reason(refusal, reason) from None

    def check_restored(
        self, request: Restore, changes: Sequence[Change[FileState]], history: History
    ) -> None:
        """Raise PermissionDenied if a restore takes back the work of others without permission."""
        refusal, session = request.sender.refusal, request.authorship.session
        if refusal is None or not changes:
            return
        after = self.sessions.proved_after(session)
        if after is None or request.files is not None:
            raise refusal
        later = {
            later
            for change in changes
            for later in history.index.touches_after(change.path, state_before(request, change.path, history))
        }
        for transaction in history.index.transactions(sorted(later)):
            if transaction.authorship.session != session or int(transaction.seq) <= after:
                raise _with_reason(refusal, _not_own(transaction, session, "to be taken back"))

    def check_own(
        self, request: Undo, targets: Sequence[UndoTarget], past: HistoryWalker, view: DiskSnapshot
    ) -> None:
        """Raise PermissionDenied if the undo would take back another session's transactions.

        This includes the later changes that a forced undo overrides.
        """
        session = request.authorship.session
        for target in targets:
            if target.transaction.authorship.session != session:
                raise _not_own(target.transaction, session, "to be undone")
        if request.on_conflict != "force":
            return
        places = invert(targets, past, view.file_at).places
        if any(place.path in view.strangers for place in places):
            raise PermissionDenied(
                "Another program has just changed the same lines.",
                hint="Undo without force, or ask the author of that change.",
                data={"session": session},
            )
        by_seq = {int(target.transaction.seq): target for target in targets}
        in_the_way = {seq for seqs in blocking_by_path(past, places, by_seq).values() for seq in seqs}
        for transaction in past.history.index.transactions(in_the_way):
            if transaction.authorship.session != session:
                raise _not_own(transaction, session, "in the way")

    def within(self, view: Snapshot, name: str | None) -> Snapshot:
        """Return `view` limited to the session's scope, so that a refusal shows no file outside of it."""
        session = None if name is None else self.sessions.get(name)
        return view if session is None or session.bounds.read is None else ScopedSnapshot(view, session)

    def may_read(self, name: str | None, path: WorkspacePath) -> bool:
        """Return whether the session may read the path. A session without a scope may read all paths."""
        session = self.sessions.get(name)
        return session is None or session.may_read(path)

    def permit_reading(self, name: str | None, paths: Sequence[WorkspacePath]) -> None:
        """Raise PermissionDenied if the session may not read one of the paths."""
        session = self.sessions.get(name)
        if session is None:
            return
        for path in paths:
            if not session.may_read(path):
                raise _outside(session, path, "read")

    def permit_holding(self, name: str | None, path: WorkspacePath) -> None:
        """Raise PermissionDenied if the session may not write the path, whose edits a held text refuses."""
        session = None if name is None else self.sessions.get(name)
        if session is not None and not session.may_write(path):
            raise _outside(session, path, "write")

    def permit_leasing(self, name: str, globs: Sequence[Glob]) -> None:
        """Raise PermissionDenied if a lease of `globs` would cover a path that the session may not write.

        All globs of the request share one meter. A glob that is not compared to the end is refused.
        """
        session = self.sessions.get(name)
        if session is None:
            return
        meter = Meter()
        for glob in globs:
            try:
                path = session.bounds.unwritable(glob, meter)
            except Exhausted:
                path = glob.text
            if path is not None:
                refusal = _outside(session, path, "write")
                raise refusal.revise(
                    message=f"{refusal.message[:-1]}, which a lease of {glob.text} would cover.",
                    data={"glob": glob.text},
                )

    def _check_paused(self, request: Write, name: str | None) -> None:
        """Raise PermissionDenied if the session is paused, unless a reviewer lands its work."""
        if not isinstance(request, Land):
            self.sessions.check_not_paused(name)
        elif request.passed is not None and (pause := self.sessions.pause_of(name)) is not None:
            raise refused_by(pause)

    def _check_bounds(self, session: Session, changes: Sequence[Change[FileState]]) -> None:
        for change in changes:
            if not session.may_write(change.path):
                raise _outside(session, change.path, "write")
            if change.before is not None and not session.may_read(change.path):
                raise _outside(session, change.path, "read")

    def _check_leases(self, name: str | None, changes: Sequence[Change[FileState]]) -> None:
        now_us = self.clock.now_us()
        for change in changes:
            for lease in self.leases.against(name, change.path, now_us, is_made=change.after is not None):
                is_covered = fits(lease.rule, change.path, name)
                problem = "is leased" if is_covered else "would be a file, but paths below it are leased"
                refusal = leased(lease, f"{change.path} {problem}")
                raise refusal.revise(data={"path": change.path.text})

    def _check_read(
        self,
        session: Session,
        request: Apply,
        changes: Sequence[Change[FileState]],
        expected: Container[tuple[Reader, WorkspacePath]],
        based: Container[WorkspacePath],
    ) -> None:
        if not _must_read(session):
            return
        for change in changes:
            is_own = (request.reader, change.path) in expected
            if change.before is None or change.path in based or is_own:
                continue
            if self.seen.by(request.reader, change.path) is None:
                raise _unread(session, change.path)


class ScopedSnapshot(Struct, frozen=True):
    """A snapshot limited to the files that a session may read. Access to another file is refused."""

    view: Snapshot
    session: Session

    def at(self, path: WorkspacePath) -> FileState | None:
        state = self.view.at(path)
        if state is not None and not self.session.may_read(path):
            raise _outside(self.session, path, "read")
        return state

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        return self.view.resolve(path)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return self.view.resolve_folder(path)

    def link(self, path: WorkspacePath) -> str | None:
        return self.view.link(path)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """Return the names of the readable files in a folder, and of the folders that lead to such files."""
        names = self.view.names(folder)
        if names is None:
            return None
        prefix = "" if folder is None else f"{folder.text}/"
        return [name for name in names if self._may_see(prefix + name)]

    def _may_see(self, path: str) -> bool:
        if not path.endswith("/"):
            return self.session.may_read(WorkspacePath.parse(path))
        folder = key_of(path.removesuffix("/"))
        return any(glob.may_match_below(folder) for glob in self.session.bounds.read or ())


def _not_own(transaction: Transaction, session: str | None, role: str) -> PermissionDenied:
    authorship = transaction.authorship
    author = f"session {authorship.session!r}" if authorship.session is not None else authorship.actor
    return PermissionDenied(
        f"Transaction {transaction.seq}, which is {role}, is by {author}, and this is session {session!r}.",
        hint=Advice(step_term("undo_others"), "."),
        data={"seq": int(transaction.seq), "by": author, "session": session},
    )


def _with_reason(refusal: PermissionDenied, reason: PermissionDenied) -> PermissionDenied:
    """Return the refusal of what only the owner may do, with the work that makes it so."""
    return PermissionDenied(
        f"{refusal.message} {reason.message}", hint=refusal.hint, data=reason.data | refusal.data
    )


def _outside(session: Session, path: WorkspacePath | str, access: str) -> PermissionDenied:
    globs = session.bounds.write if access == "write" else session.bounds.read
    texts = [glob.text for glob in globs or ()]
    return PermissionDenied(
        f"The session {session.name!r} may not {access} {path}.",
        hint=f"Choose a path in its scope: {', '.join(texts)}." if texts else "Its scope is empty.",
        data={"path": str(path), "session": session.name, access: texts},
    )


def _must_read(session: Session) -> bool:
    return session.unread != "allow" or session.is_in_doubt


def _unread(session: Session, path: WorkspacePath) -> Unread:
    reason = (
        "editd was killed since, and may have lost the record of a read."
        if session.unread == "allow"
        else "It was opened with `unread: reject`."
    )
    return Unread(
        f"The session {session.name!r} has not read {path}. {reason}",
        hint="Read the file, then send the edit again.",
        data={"path": path.text, "session": session.name},
    )


def plan_undo(
    request: Undo, past: HistoryWalker, view: DiskSnapshot, guard: AccessControl | None
) -> tuple[list[UndoTarget], UndoPlan, tuple[str, ...]]:
    """Return the targets of an undo, its plan, and warnings. Raises NothingToUndo if it has no effect.

    An undo of the newest transaction also undoes newer ones that no longer have an effect.
    """
    targets: list[UndoTarget] = []
    scope = request.scope
    warnings = times_warning(getattr(scope, "since", None), getattr(scope, "until", None), past.history)
    for candidates in batches_of(request.scope, past.history):
        more = candidates
        if isinstance(scope, BySession):
            more, notes = spare_by_time(scope, candidates, past.history)
            warnings += notes
        if request.on_conflict == "skip":
            more, notes = spare_dropped(more, past.history)
            warnings += notes
        elif past.history.excluded.paths:
            check_not_excluded(more, past.history)
        if guard is not None:
            more, notes = guard.spare_published(request.scope, more)
            warnings += notes
            if request.is_own_only:
                guard.check_own(request, more, past, view)
        inverted = invert(more, past, view.file_at, request.on_conflict)
        is_first = not targets
        targets += more
        if inverted.changes or inverted.places:
            if not is_first:
                inverted = invert(targets, past, view.file_at, request.on_conflict)
            return targets, inverted, warnings
    raise without_effect(targets, warnings)
