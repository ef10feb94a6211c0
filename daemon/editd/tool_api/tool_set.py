"""The tools of all dialects with their settings, as planning uses them: a call leads to its tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, field

from editd.edits.plan import base_of
from editd.edits.search import SearchResults
from editd.errors import InvalidParams, NotInstalled, Unread
from editd.parts import TOOLS
from editd.tool_api.file_access import ToolApi
from editd.tool_api.review_answers import ReviewAnswers
from editd.tool_api.tool_paths import ToolPaths
from editd.tool_api.tool_settings import ToolSettings
from editd.wire.messages import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from editd.edits.plan import PlanBuilder
    from editd.edits.search import Match, Search, SearchSource
    from editd.errors import Refused
    from editd.tool_api.dialect import Dialect, ToolDefinition
    from editd.wire.messages import AnyEdit


class ToolSet(Struct, frozen=True):
    """The dialects' tools with their settings and regular expression results, for planning."""

    dialects: Mapping[str, Dialect] = field(default_factory=dict)
    """By name. A dialect that cannot be loaded raises NotInstalled."""
    paths: ToolPaths = field(default_factory=ToolPaths)
    settings: ToolSettings = field(default_factory=ToolSettings)
    expressions: SearchSource = field(default_factory=lambda: SearchResults({}))

    @property
    def root(self) -> str:
        """The workspace's real path."""
        return self.paths.root

    @property
    def home(self) -> str:
        """The user's home folder; empty if it is not known."""
        return self.settings.home

    def with_results(self, results: Mapping[Search, tuple[Match, ...] | Refused]) -> ToolSet:
        """Return a copy with the results of these searches."""
        return msgspec.structs.replace(self, expressions=SearchResults(results))

    def usable_dialects(self) -> Iterator[Dialect]:
        """Yield each dialect that can be loaded, by name. `status` shows the others."""
        for name in self.dialects:
            try:
                yield self.dialects[name]
            except NotInstalled:
                continue

    def tool(self, call: Tool) -> ToolDefinition:
        """Return the tool that a call names. Raises InvalidParams without such a tool, and NotInstalled."""
        if not self.dialects:
            raise NotInstalled(
                "No edit tools of other systems are installed.", data={"group": TOOLS, "part": call.dialect}
            )
        dialect = self.dialects.get(call.dialect)
        if dialect is None:
            raise InvalidParams(
                f"There is no dialect {call.dialect!r}.",
                hint=f"There are {', '.join(sorted(self.dialects))}.",
                data={"dialect": call.dialect},
            )
        tool = dialect.tool(call.tool)
        if tool is not None:
            return tool
        raise InvalidParams(
            f"The dialect {call.dialect} has no tool {call.tool!r}.",
            hint=f"It has {', '.join(tool.name for tool in dialect.tools)}.",
            data={"dialect": call.dialect, "tool": call.tool},
        )

    def review_answers(self, call: Tool) -> ReviewAnswers:
        """Return the answers of a call's dialect to a review. A dialect that is gone has editd's words."""
        dialect = self._dialect_of(call)
        return ReviewAnswers() if dialect is None else dialect.review

    def returns_content(self, edits: Iterable[AnyEdit]) -> bool:
        """Return whether the reply to these edits holds the files' final content, as a tool requires."""
        return any(self._returns_content(edit) for edit in edits if isinstance(edit, Tool))

    def run(self, work: PlanBuilder, edit: Tool) -> str:
        """Execute one call and return the tool's own answer; an `Unread` refusal keeps its read marks."""
        tool = self.tool(edit)
        tool.refuse_unknown(edit.args)
        api = ToolApi(work, self.paths, self.settings, self.expressions, base_of(edit))
        try:
            return tool.run(edit.args, api)
        except Unread as refusal:
            raise refusal.revise(sights=tuple(work.sights)) from None

    def _returns_content(self, call: Tool) -> bool:
        dialect = self._dialect_of(call)
        tool = None if dialect is None else dialect.tool(call.tool)
        return tool is not None and tool.returns_content

    def _dialect_of(self, call: Tool) -> Dialect | None:
        try:
            return self.dialects.get(call.dialect)
        except NotInstalled:
            return None
