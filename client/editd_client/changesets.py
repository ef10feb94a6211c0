"""A changeset of a client's own: edits that are put together in a `with` block, and become one transaction.

What is read in the block is what the edits are made for: a file that somebody else changes in between
makes the transaction stale, and is not written over. Where the connection is lost, what was staged is
staged again on the next one; the commit has a `request_id`, so that it comes about once.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from editd.wire import messages
from editd_client import requests
from editd_client.errors import EditdError, Unreachable
from editd_client.requests import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Literal

    from editd_client.client import Client

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
    """The whole file. Over one that was not read, `base` or `force` is needed (`base_required`)."""
    return messages.Write(path=path, content=content, base=base, mode=mode, force=force)


def replace(
    path: str, old: str, new: str, *, count: int = 1, base: str | UnsetType | None = UNSET
) -> messages.Replace:
    """Exact text for exact text, in `count` places. Refused: `no_match`, `ambiguous`, `count_mismatch`."""
    return messages.Replace(path=path, old=old, new=new, count=count, base=base)


def text(
    path: str,
    base: str | None,
    edits: Sequence[messages.TextEdit],
    *,
    position_encoding: Literal["utf-8", "utf-16", "utf-32"] = "utf-16",
) -> messages.EditText:
    """LSP's `TextEdit`s, made for `base`; lines and characters count from 0."""
    return messages.EditText(path=path, base=base, edits=list(edits), position_encoding=position_encoding)


def patch(patch: str, *, fuzz: int = 0) -> messages.Patch:
    """A unified or git diff; `fuzz` is how many lines of context may differ. Refused: `malformed_edit`."""
    return messages.Patch(patch=patch, fuzz=fuzz)


def delete(path: str, *, base: str | UnsetType | None = UNSET) -> messages.Delete:
    """Remove a file."""
    return messages.Delete(path=path, base=base)


def move(
    path: str, to: str, *, base: str | UnsetType | None = UNSET, overwrite: bool = False
) -> messages.Move:
    """Move a file. Refused with `file_exists` where there is one at `to`, unless `overwrite` is true."""
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
    """A call of another system's edit tool, with its own arguments; its words are in `answers`."""
    return messages.Tool(dialect=dialect, tool=tool, args=dict(args), base=base)


# ── What is asked for them, without a connection ───────────────────────────────────────────────

Steps = Generator[Request[Any], Any, Result]
"""Requests one after another, each made of the answers before it; a refusal is thrown in."""

NOTHING = messages.ApplyResult(transaction=None, files=[])


class ChangesetDraft:
    """The edits that were taken, what they were made for, and where the daemon keeps them.

    `generation` tells the connection: a changeset is gone with its own.
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
        self._name: tuple[str, int] | None = None  # the daemon's for it, on the connection of that number
        self._earlier: list[str] = []  # on connections that were lost while it was committed

    def stage(self, edits: Sequence[messages.AnyEdit]) -> Steps[messages.ApplyResult]:
        """Stage these, made for what was read of their files."""
        bound = [self._bound(edit) for edit in edits]
        result = yield from self._within(lambda name: requests.stage(name, bound))
        self._edits.extend(bound)
        for file in result.files:
            self._touched.add(file.path)
            if isinstance(file.from_, str):
                self._touched.add(file.from_)
        return result

    def read(self, path: str) -> Steps[messages.ReadResult]:
        """Read a file as the staged edits leave it, and remember what later edits of it are made for."""
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
        """Ask what all that is staged would change."""
        return (yield from self._within(lambda name: requests.diff(changeset=name)))

    def commit(self) -> Steps[messages.ApplyResult]:
        """Have it come about, once, also where the connection is lost in the middle of it."""
        while self._edits:
            name = yield from self._opened()
            try:
                result: messages.ApplyResult = yield self._commit(name)
            except EditdError as refusal:
                if self._earlier and refusal.data.get("request_id") == self._request_id:
                    return (yield from self._committed_before())
                if self._is_open:
                    raise
                self._earlier.append(name)
            else:
                self._name = None
                return result
        return NOTHING

    def abort(self) -> Steps[None]:
        """Abort it, where it is open; with its connection it is gone anyway."""
        if self._name is not None and self._is_open:
            with contextlib.suppress(EditdError, Unreachable):
                yield requests.abort(self._name[0])
        self._name = None

    def _commit(self, name: str) -> Request[messages.ApplyResult]:
        return requests.commit(name, on_stale=self._opening.on_stale, request_id=self._request_id)

    def _committed_before(self) -> Steps[messages.ApplyResult]:
        """The first answer to the commit that came about after all, under one of its earlier names."""
        result: messages.ApplyResult
        *others, last = self._earlier
        for name in others:
            with contextlib.suppress(EditdError):
                result = yield self._commit(name)
                return result
        result = yield self._commit(last)
        return result

    def _within(self, build: Callable[[str], Request[Result]]) -> Steps[Result]:
        """Ask about the changeset; again, where it was lost with its connection."""
        while True:
            name = yield from self._opened()
            try:
                result: Result = yield build(name)
            except EditdError:
                if self._is_open:
                    raise
            else:
                return result

    def _opened(self) -> Steps[str]:
        """Its name on this connection, with all in it that was staged."""
        while not self._is_open:
            begun: messages.BeginResult = yield requests.call(self._opening, messages.BeginResult)
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

    def _bound(self, edit: messages.AnyEdit) -> messages.AnyEdit:
        """The edit, with what was read of its file as its base, unless it says one itself."""
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


# ── The synchronous one ────────────────────────────────────────────────────────────────────────


class Staging(Generic[Given]):
    """A method that stages the edit that `build` makes of its arguments.

    What comes back is what all that is staged would do. Raises EditdError where it is refused; the
    edits before it stay.
    """

    if TYPE_CHECKING:

        def __get__(
            self, changeset: Changeset, kind: type[Changeset]
        ) -> Callable[Given, messages.ApplyResult]: ...


def edit_method(build: Callable[Given, messages.AnyEdit]) -> Staging[Given]:
    """The method of that name: its parameters and its text are those of `build`."""

    @functools.wraps(build)
    def method(changeset: Changeset, *args: Given.args, **kwargs: Given.kwargs) -> messages.ApplyResult:
        return changeset.stage([build(*args, **kwargs)])

    return cast("Staging[Given]", requests.as_method(method, build))


class Changeset:
    """Made by `Client.transaction`. `result` is that of the commit, once the block has ended."""

    def __init__(self, client: Client, draft: ChangesetDraft) -> None:
        self.result: messages.ApplyResult = NOTHING
        self._client = client
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

    def stage(self, edits: Sequence[messages.AnyEdit]) -> messages.ApplyResult:
        """Stage any edits, all of them or none; what comes back is what all that is staged would do."""
        return self._carry_out(self._draft.stage(edits))

    def read(self, path: str) -> messages.ReadResult:
        """A file as the staged edits leave it; edits of it are made for the version that is read here."""
        return self._carry_out(self._draft.read(path))

    def diff(self) -> messages.DiffResult:
        """What all that is staged would change."""
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
                    answer = self._client.ask(asked)
                except (EditdError, Unreachable) as error:
                    asked = steps.throw(error)
                else:
                    asked = steps.send(answer)
        except StopIteration as end:
            return cast("Result", end.value)
