"""The guard: what a request's session may change, asked after planning and before anything is staged.

In this order: the session's scope (`permission_denied`), other sessions' leases (`leased`), and whether the
session has read what it edits (`unread`), where it was opened so or is in doubt: the daemon was killed since,
and what was read in the last second may be forgotten. Such an edit would otherwise be made over a version
that the session has never seen, and nothing would say so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.engine.commands import Apply
from editd.engine.leases import leased
from editd.engine.net_changes import format_ranges
from editd.engine.undo import invert
from editd.engine.undo_conflicts import blocking_by_path
from editd.engine.undo_selection import BySession
from editd.errors import NothingToUndo, PermissionDenied, Unread
from editd.values.glob import Exhausted, Glob, Meter, could_both_match
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from editd.edits.plan import Snapshot
    from editd.engine.commands import Reader, Undo, Write
    from editd.engine.leases import Leases
    from editd.engine.read_versions import ReadVersions
    from editd.engine.sessions import Sessions
    from editd.engine.snapshot import DiskSnapshot
    from editd.engine.undo import HistoryWalker
    from editd.engine.undo_selection import Scope, UndoTarget
    from editd.store.session_store import SessionStore
    from editd.system.clock import Clock
    from editd.values.changeset import Change
    from editd.values.content import FileState
    from editd.values.session import Session
    from editd.values.transaction import Seq, Transaction


class AccessControl(Struct, frozen=True):
    registry: SessionStore
    sessions: Sessions
    leases: Leases
    seen: ReadVersions
    clock: Clock

    def permit(
        self,
        request: Write,
        changes: Sequence[Change],
        expected: Container[tuple[Reader, WorkspacePath]],
        based: Container[WorkspacePath] = (),
        guarded: Container[WorkspacePath] = (),
    ) -> None:
        """Raises PermissionDenied, Leased or Unread.

        `expected`: what readers change in this very turn; `based`: the paths for which a base was given;
        `guarded`: those for which the searched text of an edit stands in for the base.
        """
        name = request.authorship.session
        session = self.sessions.get(name)
        if session is not None:
            self._check_bounds(session, changes)
        self._check_leases(name, changes)
        if session is not None and isinstance(request, Apply):
            is_free = session.unread == "allow"
            unguarded = [change for change in changes if not (is_free and change.path in guarded)]
            self._check_read(session, request, unguarded, expected, based)

    def spare_published(
        self, scope: Scope, targets: list[UndoTarget]
    ) -> tuple[list[UndoTarget], tuple[str, ...]]:
        """Return the targets that a scope may take back, and warnings about published work.

        A rollback leaves published work alone unless it asks for it: NothingToUndo where that is all.
        """
        by_seq = {target.transaction.seq: target for target in targets}
        published = self.registry.published(by_seq)
        commits: dict[str, list[Seq]] = {}
        for seq in by_seq:
            if (found := published.get(seq)) is not None:
                commits.setdefault(str(found), []).append(seq)
        listed = "; ".join(f"{format_ranges(seqs)} as {commit}" for commit, seqs in commits.items())
        if not commits:
            return targets, ()
        if not isinstance(scope, BySession) or scope.is_published_included:
            return targets, (f"This was published, and the commit stays: {listed}.",)
        left = [target for target in targets if target.transaction.seq not in published]
        if not left:
            raise NothingToUndo(
                f"All that session {scope.session} did and that is in force was published: {listed}.",
                hint="Use include_published to take it back in the files. The commit stays.",
                data={"published": sorted(map(int, published))},
            )
        return left, (f"Published work was left alone: {listed}.",)

    def check_own(
        self, request: Undo, targets: Sequence[UndoTarget], past: HistoryWalker, view: DiskSnapshot
    ) -> None:
        """Raise PermissionDenied where the undo would take back what another session did.

        A forced undo takes back the later changes in its way, too.
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
                hint="Leave force out, and ask whoever changed them.",
                data={"session": session},
            )
        by_seq = {int(target.transaction.seq): target for target in targets}
        in_the_way = {seq for seqs in blocking_by_path(past, places, by_seq).values() for seq in seqs}
        for transaction in past.history.index.transactions(in_the_way):
            if transaction.authorship.session != session:
                raise _not_own(transaction, session, "in the way")

    def within(self, view: Snapshot, name: str | None) -> Snapshot:
        """The view as the session may look at it: a refusal must not show what it may not read."""
        session = self.sessions.get(name)
        return view if session is None or session.bounds.read is None else ScopedSnapshot(view, session)

    def may_read(self, name: str | None, path: WorkspacePath) -> bool:
        """Return whether the scope of the session, if there is one, has the path."""
        session = self.sessions.get(name)
        return session is None or session.bounds.may_read(path)

    def permit_reading(self, name: str | None, paths: Sequence[WorkspacePath]) -> None:
        """Raises PermissionDenied where the session may not read one of the paths."""
        session = self.sessions.get(name)
        if session is None:
            return
        for path in paths:
            if not session.bounds.may_read(path):
                raise _outside(session, path, "read")

    def permit_leasing(self, name: str, globs: Sequence[Glob]) -> None:
        """Raise PermissionDenied if the session may not write all that a lease of `globs` would cover."""
        session = self.sessions.get(name)
        if session is None:
            return
        for glob in globs:
            try:
                path = session.bounds.unwritable(glob)
            except Exhausted:
                path = glob.text
            if path is not None:
                refusal = _outside(session, path, "write")
                refusal.message = f"{refusal.message[:-1]}, which a lease of {glob.text} would cover."
                refusal.data["glob"] = glob.text
                raise refusal

    def _check_bounds(self, session: Session, changes: Sequence[Change]) -> None:
        for change in changes:
            if not session.bounds.may_write(change.path):
                raise _outside(session, change.path, "write")
            if change.before is not None and not session.bounds.may_read(change.path):
                raise _outside(session, change.path, "read")

    def _check_leases(self, name: str | None, changes: Sequence[Change]) -> None:
        if not len(self.leases):
            return
        now_us = self.clock.now_us()
        for change in changes:
            for lease in self.leases.over(change.path, now_us, is_made=change.after is not None):
                if lease.session != name:
                    is_itself = lease.covers(change.path)
                    what = "is leased" if is_itself else "would be a file: what lies below it is leased"
                    refusal = leased(lease, f"{change.path} {what}")
                    refusal.data["path"] = change.path.text
                    raise refusal

    def _check_read(
        self,
        session: Session,
        request: Apply,
        changes: Sequence[Change],
        expected: Container[tuple[Reader, WorkspacePath]],
        based: Container[WorkspacePath],
    ) -> None:
        if session.unread == "allow" and not session.is_in_doubt:
            return
        for change in changes:
            is_own = (request.reader, change.path) in expected
            if change.before is None or change.path in based or is_own:
                continue
            if self.seen.by(request.reader, change.path) is None:
                raise _unread(session, change.path)


class ScopedSnapshot(Struct, frozen=True):
    """A snapshot in which a session sees the files that it may read, and is refused the others."""

    view: Snapshot
    session: Session

    def at(self, path: WorkspacePath) -> FileState | None:
        state = self.view.at(path)
        if state is not None and not self.session.bounds.may_read(path):
            raise _outside(self.session, path, "read")
        return state

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        return self.view.resolve(path)

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return self.view.resolve_folder(path)

    def link(self, path: WorkspacePath) -> str | None:
        return self.view.link(path)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        """Return the names in a folder of what the session may read, and of the folders on the way there."""
        names = self.view.names(folder)
        if names is None:
            return None
        prefix = "" if folder is None else f"{folder.text}/"
        return [name for name in names if self._may_see(prefix + name)]

    def _may_see(self, path: str) -> bool:
        if not path.endswith("/"):
            return self.session.bounds.may_read(WorkspacePath.parse(path))
        below = Glob.parse(_WILDCARD.sub(r"[\g<0>]", path))
        return any(could_both_match(below, glob, Meter()) for glob in self.session.bounds.read or ())


_WILDCARD = re.compile(r"[*?\[]")


def _not_own(transaction: Transaction, session: str | None, what: str) -> PermissionDenied:
    said = transaction.authorship
    who = f"session {said.session!r}" if said.session is not None else said.actor
    return PermissionDenied(
        f"Transaction {transaction.seq}, which is {what}, is by {who}, and this is session {session!r}.",
        hint="Leave own_only out to take back what others did.",
        data={"seq": int(transaction.seq), "by": who, "session": session},
    )


def _outside(session: Session, path: WorkspacePath | str, what: str) -> PermissionDenied:
    globs = session.bounds.write if what == "write" else session.bounds.read
    texts = [glob.text for glob in globs or ()]
    return PermissionDenied(
        f"The session {session.name!r} may not {what} {path}.",
        hint=f"It was opened for: {', '.join(texts) or 'nothing'}.",
        data={"path": str(path), "session": session.name, what: texts},
    )


def _unread(session: Session, path: WorkspacePath) -> Unread:
    why = (
        "editd was killed since, and may have forgotten what was read."
        if session.unread == "allow"
        else "It was opened with `unread: reject`."
    )
    return Unread(
        f"The session {session.name!r} has not read {path}. {why}",
        hint="Read the file, then send the edit again.",
        data={"path": path.text, "session": session.name},
    )
