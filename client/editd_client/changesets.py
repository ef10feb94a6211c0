"""A changeset of a client's own: edits that are put together in a `with` block, and become one transaction.

What is read in the block is what the edits are made for: a file that somebody else changes in between
makes the transaction stale, and is not written over. Where the connection is lost, what was staged is
staged again on the next one; the commit has a `request_id`, so that it comes about once.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from editd.wire import messages
from editd_client import requests
from editd_client.errors import EditdError, Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType
    from typing import Literal

    from editd_client.client import Client
    from editd_client.requests import Asked

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


# ── What a changeset knows, without a connection ───────────────────────────────────────────────


class Draft:
    """The edits that were taken, what they were made for, and where the daemon keeps them.

    `changeset` is the daemon's name for it, on the connection of `generation`; None before the first edit.
    """

    def __init__(
        self, opening: messages.Begin, on_stale: messages.OnStale | None, request_id: str | None
    ) -> None:
        self.opening = opening
        self.on_stale: messages.OnStale | None = on_stale
        self.request_id = request_id or os.urandom(16).hex()
        self.changeset: str | None = None
        self.generation = 0
        self.edits: list[messages.AnyEdit] = []
        self.earlier: list[str] = []  # its names on connections that were lost while it was committed
        self._bases: dict[str, str | None] = {}
        self._touched: set[str] = set()

    @property
    def session(self) -> str | None:
        """Whose edits these are."""
        return self.opening.session

    def begin(self) -> Asked[messages.BeginResult]:
        """Open it on this connection."""
        return requests.asking(self.opening, messages.BeginResult)

    def opened(self, changeset: str, generation: int) -> None:
        self.changeset, self.generation = changeset, generation

    def is_open(self, generation: int) -> bool:
        """Whether it is on the connection of this generation."""
        return self.changeset is not None and self.generation == generation

    def bound(self, edit: messages.AnyEdit) -> messages.AnyEdit:
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

    def staged(self, edits: Sequence[messages.AnyEdit], result: messages.ApplyResult) -> None:
        """These were taken, and with those before they do this."""
        self.edits.extend(edits)
        for file in result.files:
            self._touched.add(file.path)
            if isinstance(file.from_, str):
                self._touched.add(file.from_)

    def is_touched(self, path: str) -> bool:
        return path in self._touched

    def has_read(self, path: str, version: str | None) -> None:
        """The edits of `path` from here on are made for this version, unless they have changed it before."""
        if path not in self._touched:
            self._bases[path] = version

    def commit(self, changeset: str) -> Asked[messages.ApplyResult]:
        return requests.commit(changeset, on_stale=self.on_stale, request_id=self.request_id)

    def is_known(self, refusal: EditdError) -> bool:
        """Whether it is refused since it has come about, under an earlier name."""
        return bool(self.earlier) and refusal.data.get("request_id") == self.request_id


NOTHING = messages.ApplyResult(transaction=None, files=[])

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


def stages(build: Callable[Given, messages.AnyEdit]) -> Staging[Given]:
    """The method of that name: its parameters and its text are those of `build`."""

    @functools.wraps(build)
    def method(changeset: Changeset, *args: Given.args, **kwargs: Given.kwargs) -> messages.ApplyResult:
        return changeset.stage([build(*args, **kwargs)])

    return cast("Staging[Given]", requests.as_method(method, build))


class Changeset:
    """Made by `Client.transaction`. `result` is that of the commit, once the block has ended."""

    def __init__(
        self,
        client: Client,
        message: str | None,
        session: str | None,
        actor: str | None,
        on_stale: messages.OnStale | None,
        request_id: str | None,
    ) -> None:
        self.result: messages.ApplyResult = NOTHING
        self._client = client
        self._draft = Draft(
            messages.Begin(session=session, actor=actor, message=message), on_stale, request_id
        )

    write = stages(write)
    replace = stages(replace)
    text = stages(text)
    patch = stages(patch)
    delete = stages(delete)
    move = stages(move)
    chmod = stages(chmod)
    symlink = stages(symlink)
    tool = stages(tool)

    def stage(self, edits: Sequence[messages.AnyEdit]) -> messages.ApplyResult:
        """Stage any edits, all of them or none."""
        bound = [self._draft.bound(edit) for edit in edits]
        result = self._within(lambda changeset: requests.stage(changeset, bound))
        self._draft.staged(bound, result)
        return result

    def read(self, path: str) -> messages.ReadResult:
        """A file as the staged edits leave it; edits of it are made for the version that is read here."""
        try:
            plain = None
            if not self._draft.is_touched(path):
                plain = self._client.read(path, session=self._draft.session)
                self._draft.has_read(path, plain.version)
            if plain is not None and not self._draft.edits:
                return plain
            return self._within(lambda changeset: requests.read(path, changeset=changeset))
        except EditdError as refusal:
            if refusal.name == "file_missing":
                self._draft.has_read(path, None)
            raise

    def diff(self) -> messages.DiffResult:
        """What all that is staged would change."""
        return self._within(lambda changeset: requests.diff(changeset=changeset))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._draft.edits:
                self.result = self._commit()
                self._draft.changeset = None
        finally:
            self._give_up()

    def _commit(self) -> messages.ApplyResult:
        while True:
            changeset = self._opened()
            try:
                return self._client.ask(self._draft.commit(changeset))
            except EditdError as refusal:
                if self._draft.is_known(refusal):
                    return self._committed_before()
                if self._draft.is_open(self._client.generation):
                    raise
                self._draft.earlier.append(changeset)

    def _committed_before(self) -> messages.ApplyResult:
        """The first answer to the commit that came about after all."""
        *others, last = self._draft.earlier
        for changeset in others:
            with contextlib.suppress(EditdError):
                return self._client.ask(self._draft.commit(changeset))
        return self._client.ask(self._draft.commit(last))

    def _give_up(self) -> None:
        changeset = self._draft.changeset
        if changeset is not None and self._draft.is_open(self._client.generation):
            with contextlib.suppress(EditdError, Unreachable):
                self._client.abort(changeset)

    def _within(self, build: Callable[[str], Asked[Result]]) -> Result:
        """Ask about the changeset; again, where it was lost with its connection."""
        while True:
            changeset = self._opened()
            try:
                return self._client.ask(build(changeset))
            except EditdError:
                if self._draft.is_open(self._client.generation):
                    raise

    def _opened(self) -> str:
        """Its name on this connection, with all in it that was staged."""
        while self._draft.changeset is None or not self._draft.is_open(self._client.generation):
            changeset = self._client.ask(self._draft.begin()).changeset
            generation = self._client.generation
            try:
                if self._draft.edits:
                    self._client.ask(requests.stage(changeset, self._draft.edits))
                self._draft.opened(changeset, generation)
            except EditdError:
                if generation == self._client.generation:
                    raise
        return self._draft.changeset
