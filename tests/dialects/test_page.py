"""docs/dialects.md says what the tables say, and the MCP server's copy of the tools what the daemon says."""

from __future__ import annotations

from page import LISTING, PAGE, listing, rendered


def test_the_page_is_as_the_vectors_and_tables_make_it() -> None:
    page = PAGE.read_text()
    assert rendered(page) == page, "python tests/dialects/page.py --write"


def test_the_tools_that_the_mcp_server_lists_by_itself_are_the_daemon_s() -> None:
    assert LISTING.read_text() == listing(), "python tests/dialects/page.py --write"
