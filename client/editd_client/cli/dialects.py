"""`editctl dialects`: the edit tools of other systems that `editctl tool` calls."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import DialectEntry, ToolEntry
    from editd_client.cli.invocation import Invocation

WIDTH = 96  # characters, of a description


@click.command()
@click.argument("dialect", required=False)
@as_json
@click.pass_obj
def verb(invocation: Invocation, dialect: str | None) -> None:
    """List the tools of `editctl tool` and their arguments.

    With DIALECT, prints the description and the arguments of each of its tools. With --json, prints
    their JSON schemas.

    \b
    Examples:
      editctl dialects
      editctl dialects cline
      editctl dialects --json | jq '.dialects[] | select(.name == "wcgw") | .tools[].schema'
    """
    with invocation.client() as client:
        result = client.dialects()
    if dialect is not None and dialect not in (names := [entry.name for entry in result.dialects]):
        raise refusal(
            "invalid_params", f"There is no dialect {dialect!r}.", hint=f"There are {', '.join(names)}."
        )
    if invocation.say_json(result):
        return
    for entry in result.dialects:
        if dialect is None:
            output.echo(f"{output.paint(f'{entry.name:<8}', 'cyan')} {_names(entry)}")
        elif entry.name == dialect:
            for line in _described(entry):
                output.echo(line)


def _names(entry: DialectEntry) -> str:
    return ", ".join(tool.name for tool in entry.tools)


def _described(entry: DialectEntry) -> Iterator[str]:
    yield entry.description
    for tool in entry.tools:
        yield ""
        yield output.paint(f"{entry.name} {tool.name}", None, bold=True)
        yield from textwrap.wrap(tool.description, WIDTH)
        for name, about in _arguments(tool):
            yield f"  {output.paint(name, 'cyan')}"
            yield from textwrap.wrap(about, WIDTH, initial_indent="      ", subsequent_indent="      ")


def _arguments(tool: ToolEntry) -> Iterator[tuple[str, str]]:
    """Yield each argument with its type, and its description."""
    properties: dict[str, dict[str, Any]] = tool.schema.get("properties", {})
    required = tool.schema.get("required", [])
    for name, spec in properties.items():
        kind = spec.get("type", "")
        kinds = " or ".join(kind) if isinstance(kind, list) else str(kind)
        choices = ", ".join(map(str, spec.get("enum", ())))
        yield (
            f"{name}: {kinds}{'' if name in required else ', optional'}",
            " ".join(filter(None, [spec.get("description", ""), choices and f"One of {choices}."])),
        )
