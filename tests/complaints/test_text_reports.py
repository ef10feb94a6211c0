"""Public reports about the text that a tool writes: one test for each, with its repository and number.

Each through the real socket, with the tool that the report is about, or with editd's own edits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Tool
from editd_client.errors import EditdError
from workplace import Workplace

if TYPE_CHECKING:
    from editd_client.client import Client


def call(client: Client, dialect: str, tool: str, **args: Any) -> Any:
    return client.apply([Tool(dialect=dialect, tool=tool, args=args)], session="agent")


def refused(client: Client, dialect: str, tool: str, **args: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        call(client, dialect, tool, **args)
    return refusal.value


def test_the_marker_of_a_block_is_written_into_the_file(place: Workplace) -> None:
    """cline/cline#4216: `>>>>>>> REPLACE` was saved as text."""
    place.write({"a.txt": "a\nb\n"})
    diff = "<<<<<<< SEARCH\na\n=======\nA\n>>>>>>> REPLACE</diff>\n"
    with place.start() as client:
        assert refused(client, "cline", "replace_in_file", path="a.txt", diff=diff).name == "malformed_edit"
    assert place.files() == {"a.txt": b"a\nb\n"}
