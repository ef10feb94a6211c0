"""A changeset of the client: edits that a `with` block collects and commits as one transaction.

A version read in the block is the base of the edits: a file that changes in between makes the
transaction stale, and is not overwritten. If the connection is lost, the edits are staged again on
the next one. The commit has a `request_id`, so that it is carried out once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from editd.wire import messages
from editd_client import requests
from editd_client.errors import EditdError, Unreachable
from editd_client.prepared_call import Method, PreparedCall, call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Literal


Given = ParamSpec("Given")
Result = TypeVar("Result")

# ── The edits, one function for each ───────────────────────────────────────────────────────────


def write(
    path: str,
    content: str,
    *,
    base: str | UnsetType | None = UNSET,
    mode: Literal["100644", "100755"] | UnsetType = UNSET,
    force: bool = False,
) -> messages.Write:
    """Write a whole file. A file that was not read needs `base` or `force` (`base_required`)."""
    return messages.Write(path=path, content=content, base=base, mode=mode, force=force)


def replace(
    path: str, old: str, new: str, *, count: int = 1, base: str | UnsetType | None = UNSET
) -> messages.Replace:
    """Replace exact text in `count` places. Refused: `no_match`, `ambiguous`, `count_mismatch`."""
    return messages.Replace(path=path, old=old, new=new, count=count, base=base)


def text(
    path: str,
    base: str | None,
    edits: Sequence[messages.TextEdit],
    *,
    position_encoding: Literal["utf-8", "utf-16", "utf-32"] = "utf-16",
) -> messages.EditText:
    """Apply LSP's `TextEdit`s, made for `base`; lines and characters count from 0."""
    return messages.EditText(path=path, base=base, edits=list(edits), position_encoding=position_encoding)


def patch(patch: str, *, fuzz: int = 0) -> messages.Patch:
    """Apply a unified or git diff with up to `fuzz` differing context lines. Refused: `malformed_edit`."""
    return messages.Patch(patch=patch, fuzz=fuzz)


def delete(path: str, *, base: str | UnsetType | None = UNSET) -> messages.Delete:
    """Remove a file."""
    return messages.Delete(path=path, base=base)


def move(
    path: str, to: str, *, base: str | UnsetType | None = UNSET, overwrite: bool = False
) -> messages.Move:
    """Move a file. Refused with `file_exists` if `to` exists, unless `overwrite` is true."""
    return messages.Move(path=path, to=to, base=base, overwrite=overwrite)


def chmod(path: str, executable: bool) -> messages.Chmod:
    """Make a file executable, or not."""
    return messages.Chmod(path=path, executable=executable)


def symlink(path: str, target: str, *, base: str | UnsetType | None = UNSET) -> messages.Symlink:
    """Make a symlink to `target`."""
    return messages.Symlink(path=path, target=target, base=base)


def tool(
    dialect: str, tool: str, args: Mapping[str, Any], *, base: str | UnsetType | None = UNSET
) -> messages.Tool:
    """Call another system's edit tool with its own arguments; its own reply is in `answers`."""
    return messages.Tool(dialect=dialect, tool=tool, args=dict(args), base=base)


def edit_method(build: Callable[Given, messages.AnyEdit]) -> Method[Given, messages.ApplyResult]:
    """Return the method that stages the edit of `build`, and returns the effect of all staged edits."""
    return Method(build, lambda changeset, edit: changeset.stage([edit]))


# ── The requests, without a connection ────────────────────────────────────────────────────────

Steps = Generator[PreparedCall[Any], Any, Result]
"""A generator of requests, each made from the answers before it; a refusal is thrown into it."""

NOTHING = messages.ApplyResult(transaction=None, files=[])


class ChangesetDraft:
    """The staged edits, the versions they are based on, and the daemon's name for the changeset.

    `generation` returns the number of the connection, because a changeset ends with its connection.
    """

    def __init__(
        self,
        opening: messages.Begin,
        request_id: str | None,
        generation: Callable[[], int],
    ) -> None:
        self._opening = opening
        self._request_id = request_id or os.urandom(16).hex()
        self._generation = generation
        self._edits: list[messages.AnyEdit] = []
        self._bases: dict[str, str | None] = {}
        self._touched: set[str] = set()
        self._name: tuple[str, int] | None = None  # the daemon's name for it, and its connection's number
        self._earlier: list[str] = []  # names on connections that were lost during a commit

    def stage(self, edits: Sequence[messages.AnyEdit]) -> Steps[messages.ApplyResult]:
        """Stage these edits, based on the versions read."""
        bound = [self._bind(edit) for edit in edits]
        result = yield from self._within(lambda name: requests.stage(name, bound))
        self._edits.extend(bound)
        for file in result.files:
            self._touched.add(file.path)
            if isinstance(file.from_, str):
                self._touched.add(file.from_)
        return result

    def read(self, path: str) -> Steps[messages.ReadResult]:
        """Read a file with the staged edits applied, and remember its version as the base of later edits."""
        plain: messages.ReadResult
        if path not in self._touched:
            try:
                plain = yield requests.read(path, session=self._opening.session)
            except EditdError as refusal:
                if refusal.name == "file_missing":
                    self._bases[path] = None
                raise
            self._bases[path] = plain.version
            if not self._edits:
                return plain
        return (yield from self._within(lambda name: requests.read(path, changeset=name)))

    def diff(self) -> Steps[messages.DiffResult]:
        """Request the diff of all staged edits."""
        return (yield from self._within(lambda name: requests.diff(changeset=name)))

    def commit(self) -> Steps[messages.ApplyResult]:
        """Commit once, even if the connection is lost in the middle."""
        while self._edits:
            name = yield from self._ensure_open()
            try:
                result: messages.ApplyResult = yield self._commit(name)
            except EditdError as refusal:
                if self._earlier and refusal.data.get("request_id") == self._request_id:
                    return (yield from self._earlier_commit())
                if self._is_open:
                    raise
                self._earlier.append(name)
            else:
                self._name = None
                return result
        return NOTHING

    def abort(self) -> Steps[None]:
        """Abort the changeset, if it is open: it ends with its connection anyway."""
        if self._name is not None and self._is_open:
            with contextlib.suppress(EditdError, Unreachable):
                yield requests.abort(self._name[0])
        self._name = None

    def _commit(self, name: str) -> PreparedCall[messages.ApplyResult]:
        return requests.commit(name, on_stale=self._opening.on_stale, request_id=self._request_id)

    def _earlier_commit(self) -> Steps[messages.ApplyResult]:
        """Return the first answer to a commit that was carried out under one of its earlier names."""
        result: messages.ApplyResult
        *others, last = self._earlier
        for name in others:
            with contextlib.suppress(EditdError):
                result = yield self._commit(name)
                return result
        result = yield self._commit(last)
        return result

    def _within(self, build: Callable[[str], PreparedCall[Result]]) -> Steps[Result]:
        """Send a request about the changeset; open it again if it was lost with its connection."""
        while True:
            name = yield from self._ensure_open()
            try:
                result: Result = yield build(name)
            except EditdError:
                if self._is_open:
                    raise
            else:
                return result

    def _ensure_open(self) -> Steps[str]:
        """Return its name on this connection, after staging all its edits there if needed."""
        while not self._is_open:
            begun: messages.BeginResult = yield call(self._opening, messages.BeginResult)
            generation = self._generation()
            try:
                if self._edits:
                    yield requests.stage(begun.changeset, self._edits)
            except EditdError:
                if generation == self._generation():
                    raise
            else:
                self._name = begun.changeset, generation
        assert self._name is not None, "it is open"
        return self._name[0]

    @property
    def _is_open(self) -> bool:
        return self._name is not None and self._name[1] == self._generation()

    def _bind(self, edit: messages.AnyEdit) -> messages.AnyEdit:
        """Return the edit with the version read as its base, unless it has a base."""
        match edit:
            case (
                messages.Write(base=UnsetType())
                | messages.Replace(base=UnsetType())
                | messages.Delete(base=UnsetType())
                | messages.Move(base=UnsetType())
                | messages.Symlink(base=UnsetType())
            ) if edit.path in self._bases:
                return msgspec.structs.replace(edit, base=self._bases[edit.path])
            case _:
                return edit


# ── The changesets of both clients ─────────────────────────────────────────────────────────────


class ChangesetBase:
    """A changeset of either kind of client, and its methods that are one edit each.

    They raise EditdError if the edit is refused; the earlier ones stay. `ask` sends a request.
    """

    def __init__(self, ask: Callable[[PreparedCall[Any]], Any], draft: ChangesetDraft) -> None:
        self.result: messages.ApplyResult = NOTHING
        self._ask = ask
        self._draft = draft

    write = edit_method(write)
    replace = edit_method(replace)
    text = edit_method(text)
    patch = edit_method(patch)
    delete = edit_method(delete)
    move = edit_method(move)
    chmod = edit_method(chmod)
    symlink = edit_method(symlink)
    tool = edit_method(tool)


class Changeset(ChangesetBase):
    """A changeset of `Client.transaction`. `result` is the commit's result, set after the block."""

    def stage(self, edits: Sequence[messages.AnyEdit]) -> messages.ApplyResult:
        """Stage any edits, all or none, and return the effect of all staged edits."""
        return self._carry_out(self._draft.stage(edits))

    def read(self, path: str) -> messages.ReadResult:
        """Return a file with the staged edits applied. Its version becomes the base of later edits of it."""
        return self._carry_out(self._draft.read(path))

    def diff(self) -> messages.DiffResult:
        """Return the diff of all staged edits."""
        return self._carry_out(self._draft.diff())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.result = self._carry_out(self._draft.commit())
        finally:
            self._carry_out(self._draft.abort())

    def _carry_out(self, steps: Steps[Result]) -> Result:
        try:
            asked = next(steps)
            while True:
                try:
                    answer = self._ask(asked)
                except (EditdError, Unreachable) as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as end:
            return cast("Result", end.value)


class AsyncChangeset(ChangesetBase):
    """A changeset of `AsyncClient.transaction`. `result` is the commit's result, set after the block."""

    async def stage(self, edits: Sequence[messages.AnyEdit]) -> messages.ApplyResult:
        """Stage any edits, all or none, and return the effect of all staged edits."""
        return await self._carry_out(self._draft.stage(edits))

    async def read(self, path: str) -> messages.ReadResult:
        """Return a file with the staged edits applied. Its version becomes the base of later edits of it."""
        return await self._carry_out(self._draft.read(path))

    async def diff(self) -> messages.DiffResult:
        """Return the diff of all staged edits."""
        return await self._carry_out(self._draft.diff())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.result = await self._carry_out(self._draft.commit())
        finally:
            await self._carry_out(self._draft.abort())

    async def _carry_out(self, steps: Steps[Result]) -> Result:
        try:
            asked = next(steps)
            while True:
                try:
                    answer = await self._ask(asked)
                except (EditdError, Unreachable) as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as end:
            return cast("Result", end.value)
