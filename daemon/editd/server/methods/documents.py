"""The methods `document.*`: the files that an editor has changed and not saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from editd.advice import Advice, leave_out, method_term
from editd.engine.unsaved import UnsavedRule, changed_lines
from editd.errors import InvalidParams
from editd.server import convert
from editd.wire import messages

if TYPE_CHECKING:
    from editd.engine.access import AccessControl
    from editd.engine.commands import Apply, Restore, Undo
    from editd.engine.engine import Engine
    from editd.engine.unsaved import HeldDocument
    from editd.server.connection import ClientState
    from editd.server.subscriptions import Subscriptions
    from editd.values.path import WorkspacePath

Marked = TypeVar("Marked", "Apply", "Undo", "Restore")


class DocumentMethods:
    def __init__(
        self, engine: Engine, guard: AccessControl, subscriptions: Subscriptions, fallback: str | None
    ) -> None:
        """`fallback` is the encoding of text that is not UTF-8, or None."""
        self._guard = guard
        self.held = engine.landing.documents
        self.held.on_change.append(self._tell)
        self._engine = engine
        self._subscriptions = subscriptions
        self._fallback = fallback

    def marked(
        self, request: Marked, on_unsaved: messages.OnUnsaved | UnsetType, caller: ClientState
    ) -> Marked:
        """Return the request with its connection, whose own unsaved text is not in its way, and its wish."""
        action = "merge" if on_unsaved is UNSET else on_unsaved
        return replace(request, unsaved=UnsavedRule(caller.number, action))

    # ── the methods ──

    def hold(self, params: messages.DocumentHold, caller: ClientState) -> messages.DocumentHoldResult:
        path = self._engine.tree.resolve(convert.path(params.path))
        self._guard.permit_holding(caller.session, path)
        who = caller.number, caller.name or convert.ANYBODY, caller.session
        document = convert.held_document(params, path, who, self._engine.clock.now_us())
        if (more := self.held.growth(document)) > 0:
            self._engine.landing.check_room(more)
        self.held.hold(document)
        return messages.DocumentHoldResult(version=document.version)

    def release(self, params: messages.DocumentRelease, caller: ClientState) -> messages.Empty:
        path = self._engine.tree.resolve(convert.path(params.path))
        if not self.held.release(path, caller.number):
            raise InvalidParams(
                f"This connection does not hold {path} unsaved.",
                hint=Advice(method_term("document.list"), " shows what is held."),
                data={"path": path.text},
            )
        return messages.Empty()

    def list_documents(
        self, _params: messages.DocumentList, _caller: ClientState
    ) -> messages.DocumentListResult:
        held = [document for by_owner in self.held.by_path.values() for document in by_owner.values()]
        held.sort(key=lambda document: (document.path, document.since_us))
        return messages.DocumentListResult(documents=list(map(convert.document_entry, held)))

    def leave(self, caller: ClientState) -> None:
        """Release everything that a closed connection held."""
        self.held.leave(caller.number)

    def _tell(self, event: str, document: HeldDocument) -> None:
        body = {
            "what": event,
            "path": document.path.text,
            "client": document.client,
            "session": document.session,
        }
        self._subscriptions.tell("document", body, (document.path,))

    # ── reading ──

    def read(
        self,
        params: messages.Read,
        path: WorkspacePath,
        lines: tuple[int, int] | None,
        caller: ClientState,
    ) -> messages.ReadResult | None:
        """Return the newest text that another connection holds unsaved, or None. Raises InvalidParams."""
        if params.at is not None or params.changeset is not None or params.proposal is not UNSET:
            raise InvalidParams(
                "`unsaved` reads what an editor holds now.",
                hint=leave_out("at", "changeset", "proposal"),
            )
        here = self._engine.tree.resolve(path)
        held = [one for one in self.held.others(here, caller.number) if one.content is not None]
        if not held:
            return None
        state = convert.unsaved_state(self._engine.recorder.look(here), held[-1])
        result = convert.read_result(here, state, lines, fallback=self._fallback)
        return replace(self.told(result, here, caller), unsaved_of=convert.held_by(held[-1]))

    def told(
        self, result: messages.ReadResult, path: WorkspacePath, caller: ClientState
    ) -> messages.ReadResult:
        """Add to a file that was read the others who hold it unsaved."""
        held = self.held.others(path, caller.number) if self.held.by_path else []
        if not held:
            return result
        content_of = self._engine.history.content
        return replace(result, unsaved=[convert.held_by(one, changed_lines(one, content_of)) for one in held])
