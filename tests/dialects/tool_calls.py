"""A workspace in memory in which tools of dialects are called, through the real planning.

`on({"a.txt": "text"}).call("cline", "replace_in_file", {...})`: it changes the files, or raises the Refused.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from editd.edits.plan import plan
from editd.errors import Refused, Unread
from editd.tool_api.dialect import Dialect
from editd.tool_api.tool_paths import ToolPaths
from editd.tool_api.tool_set import ToolSet
from editd.tool_api.tool_settings import ToolSettings
from editd.values.content import FileState
from editd.values.transaction import Base, ReadMark
from editd.wire.messages import Tool
from support.in_memory import InMemory, Told, link_to, path_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.edits.search import Match, Search
    from editd.values.transaction import Outcome
    from editd.wire.messages import OnStale

ROOT = "/workspace"


def dialect(name: str) -> Dialect:
    found = importlib.import_module(f"editd.tools.{name}").DIALECT
    assert isinstance(found, Dialect)
    return found


class AtOnce:
    """Expressions that are searched for here and now, by what the worker runs."""

    def matches(self, search: Search) -> tuple[Match, ...]:
        from editd.engine import text_search  # not needed by those dialects that search for none

        return text_search.search(search)


@dataclass
class Workspace:
    files: dict[str, bytes]
    links: dict[str, str] = field(default_factory=dict)
    settings: ToolSettings = field(default_factory=ToolSettings)
    encoding: str | None = None  # the configured fallback
    told: Told = field(default_factory=Told)

    def call(
        self,
        name: str,
        tool: str,
        args: Mapping[str, Any],
        *,
        base: Base | None = None,
        on_stale: OnStale | None = None,
    ) -> Outcome:
        """Plan the call, and make it in the files; what it noted as read is known from now on."""
        states = {path: FileState(content) for path, content in self.files.items()}
        snapshot = InMemory(states | {link: link_to(target) for link, target in self.links.items()})
        call = Tool(dialect=name, tool=tool, args=dict(args), base=UNSET if base is None else base.version)
        try:
            result = plan(
                [call],
                snapshot,
                self.told,
                on_stale=on_stale,
                fallback_encoding=self.encoding,
                tools=ToolSet({name: dialect(name)}, ToolPaths(ROOT), self.settings, AtOnce()),
            )
        except Unread as refusal:
            self._note(refusal.sights)
            raise
        for change in result.changes:
            if change.after is None:
                del self.files[change.path.text]
            else:
                self.files[change.path.text] = change.after.content
        self._note(result.sights)
        return result

    def refusal(self, name: str, tool: str, args: Mapping[str, Any]) -> Refused:
        """The refusal of a call, which changes nothing."""
        before = dict(self.files)
        try:
            self.call(name, tool, args)
        except Refused as refusal:
            assert self.files == before
            return refusal
        raise AssertionError(f"{name} did not refuse {args}")

    def read(self, reader: str, path: str, first: int | None = None, last: int | None = None) -> None:
        """Let a reader see the file, or lines of it."""
        base = Base(FileState(self.files[path]).version)
        lines = None if first is None or last is None else ((first, last),)
        self.told.sights[reader, path] = ReadMark(base, lines)

    def text(self, path: str) -> str:
        return self.files[path].decode()

    def _note(self, sights: tuple[Any, ...]) -> None:
        for reader, path, sight in sights:
            self.told.sights[reader, path_of(path.text).text] = sight


def on(files: Mapping[str, str | bytes], **more: Any) -> Workspace:
    """A workspace with these files; `more` are the other fields of `Workspace`."""
    contents = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
    return Workspace(contents, **more)
