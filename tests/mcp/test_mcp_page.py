"""docs/mcp.md: its table is the code's, and its snippets start a server.

`python tests/mcp/test_mcp_page.py` writes the table anew.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.mcp.tools import OWN
from support.agent import agent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

PAGE = Path(__file__).resolve().parents[2] / "docs" / "mcp.md"
SECTION = re.compile(r"(?<=<!-- tools -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table() -> str:
    lines = ["| tool | what it does | arguments | annotations |", "|---|---|---|---|"]
    for tool in OWN:
        required = tool.schema.get("required", ())
        arguments = [f"`{name}`" + ("" if name in required else "?") for name in tool.schema["properties"]]
        flags = (
            ("read-only", tool.is_read_only),
            ("destructive", tool.is_destructive),
            ("idempotent", tool.is_idempotent),
        )
        annotations = ", ".join(name for name, is_so in flags if is_so)
        lines.append(f"| `{tool.name}` | {tool.description} | {', '.join(arguments)} | {annotations} |")
    return "\n".join(lines) + "\n"


def test_the_table_is_the_code_s() -> None:
    found = SECTION.search(PAGE.read_text())
    assert found is not None
    assert found[0] == table(), "python tests/mcp/test_mcp_page.py writes it anew"


def snippets() -> Iterator[tuple[str, list[str]]]:
    """Each configuration on the page: its key and the command in it."""
    for found in re.finditer(r"^```json\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        configuration: dict[str, Any] = json.loads(found[1])
        for key, servers in configuration.items():
            assert list(servers) == ["editd"]
            yield key, [servers["editd"]["command"], *servers["editd"]["args"]]


def test_every_configuration_is_json_and_names_this_command() -> None:
    keys = [key for key, _ in snippets()]
    assert keys == ["mcpServers", "mcpServers", "mcpServers", "context_servers", "servers"]
    assert {words[0] for _, words in snippets()} == {"editctl"}
    by_hand = re.findall(r"`claude mcp add editd -- (.*?)`", PAGE.read_text())
    assert [shlex.split(words) for words in by_hand] == [["editctl", "mcp"]]


@pytest.mark.parametrize("words", sorted({tuple(words[2:]) for _, words in snippets()}), ids=" ".join)
def test_the_command_of_a_configuration_starts(
    place: Workplace, words: tuple[str, ...], is_long: bool
) -> None:
    if "cline" not in words and not is_long:
        pytest.skip("the short form starts the longest only")
    named = {"/home/ann/project", "${workspaceFolder}"}
    with agent(place, *(str(place.root) if word in named else word for word in words)) as made:
        dialect = {"gemini": "replace", "cline": "replace_in_file"}
        listed = {tool.name for tool in made.tools()}
        assert listed == {tool.name for tool in OWN} | {dialect[word] for word in words if word in dialect}
        made.does("log")
    place.terminate()


if __name__ == "__main__":
    sys.stdout.write(f"{PAGE}\n")
    PAGE.write_text(SECTION.sub(lambda _: table(), PAGE.read_text()))
