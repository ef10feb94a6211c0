"""A dialect: the edit tools of another system, with the originals' arguments, results and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.tool_api.arguments import refuse_unknown
from editd.tool_api.review_answers import ReviewAnswers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from editd.tool_api.file_access import ToolApi


class ToolDefinition(Struct, frozen=True):
    """One tool: `schema` is the JSON Schema of its arguments; `run` returns its own answer as text."""

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Callable[[Mapping[str, Any], ToolApi], str]
    is_read_only: bool = False
    is_destructive: bool = True
    is_idempotent: bool = False
    returns_content: bool = False  # the reply to the request holds the final content of each file
    searched: str = ""
    """The argument that names the one file of a call, if the time of a call is linear in its size."""
    undoes: Callable[[Mapping[str, Any]], str | None] = lambda _arguments: None
    """Return the file whose last edit by the session the call undoes, as the call names it.

    For such a call, `run` is never called.
    """
    also: frozenset[str] = frozenset()
    """Arguments that the original's clients send, and that are not offered to a model."""

    def refuse_unknown(self, arguments: Iterable[str]) -> None:
        """Raise InvalidParams for an argument that is not of this tool."""
        refuse_unknown(arguments, self.also | self.schema["properties"].keys())


class Dialect(Struct, frozen=True):
    """The tools of one system. `name` is the name of its entry point."""

    name: str
    description: str
    tools: tuple[ToolDefinition, ...]
    review: ReviewAnswers = field(default_factory=ReviewAnswers)

    def tool(self, name: str) -> ToolDefinition | None:
        """Return the tool of this name; None if there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)
