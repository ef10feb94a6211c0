"""The resources and prompts of `editctl mcp`, read by the SDK's own client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from support.agent import LEGACY, MODERN, Agent, agent
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """Transaction 1 is by `other`, 2 by `caf\u00e9 bar`, and 3 by the agent `agent`."""
    with workplace(tmp_path_factory.mktemp("resources") / "place") as made:
        with made.start() as client:
            for session, text in (("other", "one\ntwo\n"), ("caf\u00e9 bar", "one\n2\n")):
                client.hello("ann", session)
                client.apply([write("a.txt", text, force=True)], message=f"By {session}")
        yield made
        made.stop()


@pytest.fixture(scope="module", params=[LEGACY, MODERN])
def made(request: pytest.FixtureRequest, shared: Workplace) -> Iterator[Agent]:
    with agent(shared, "--session", f"agent {request.param}", mode=request.param) as connected:
        connected.does(
            "apply_edits", edits=[{"op": "write", "path": f"{request.param}.txt", "content": "x\n"}]
        )
        yield connected


def read(made: Agent, uri: str) -> str:
    (contents,) = made.portal.call(made.client.read_resource, uri).contents
    assert str(contents.uri) == uri
    assert contents.mime_type == "text/plain"
    assert isinstance(contents, types.TextResourceContents)
    return contents.text


def prompt(made: Agent, name: str, **arguments: str) -> str:
    (message,) = made.portal.call(made.client.get_prompt, name, arguments).messages
    assert message.role == "user"
    assert isinstance(message.content, types.TextContent)
    return message.content.text


def test_the_log_and_each_transaction_are_resources(made: Agent) -> None:
    listed = made.portal.call(made.client.list_resources).resources
    assert [str(one.uri) for one in listed] == ["editd://log"]
    templates = made.portal.call(made.client.list_resource_templates).resource_templates
    assert {one.uri_template for one in templates} == {"editd://tx/{number}", "editd://log/{session}"}
    log = read(made, "editd://log")
    assert "edit by ann in other: By other" in log
    assert "baseline" in log
    one = read(made, "editd://tx/2")
    assert "By caf\u00e9 bar" in one.splitlines()[0]
    assert "-two\n+2\n" in one
    assert "By caf\u00e9 bar" in read(made, "editd://log/caf%C3%A9%20bar")
    assert "By other" not in read(made, "editd://log/caf%C3%A9%20bar")
    assert read(made, "editd://log/nobody") == "No transactions."


@pytest.mark.parametrize(
    "uri",
    [
        "editd://tx/999",
        "editd://tx/x",
        "editd://tx/-1",
        "editd://tx/",
        "editd://nothing",
        "file:///etc/passwd",
    ],
)
def test_a_resource_that_is_not_there_is_an_error(made: Agent, uri: str) -> None:
    with pytest.raises(MCPError) as raised:
        read(made, uri)
    assert raised.value.error.code in (-32002, -32602)


def test_the_prompts_hold_the_facts(made: Agent) -> None:
    listed = {one.name: one for one in made.portal.call(made.client.list_prompts).prompts}
    assert set(listed) == {"review_session", "roll_back_session", "explain_file"}
    review = prompt(made, "review_session", session="other")
    assert "Review the work of session other" in review
    assert "+one\n+two\n" in review
    assert "no change in force" in prompt(made, "review_session", session="nobody")
    own = prompt(made, "roll_back_session")
    assert '{"dry_run": true}' in own
    assert "in agent " in own
    assert '"session": "other"' in prompt(made, "roll_back_session", session="other")
    explained = prompt(made, "explain_file", path="a.txt")
    assert "1-1: 1 ann in other" in explained
    assert "2-2: 2 ann in caf\u00e9 bar" in explained


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("review", {}, "Did you mean `review_session`?"),
        ("explain_file", {}, "needs the argument `path`"),
        ("explain_file", {"file": "a.txt"}, "Did you mean `path`?"),
        ("explain_file", {"path": "none.txt"}, "none.txt"),
    ],
)
def test_a_wrong_prompt_or_argument_is_refused_with_the_right_one(
    made: Agent, name: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(MCPError) as raised:
        prompt(made, name, **arguments)
    assert said in raised.value.error.message


def test_a_long_work_is_cut_to_the_newest_changes(shared: Workplace) -> None:
    with shared.client() as client:
        client.hello("ann", "busy")
        for number in range(25):
            client.apply([write("busy.txt", f"{number}\n", force=True)])
    with agent(shared) as made:
        review = prompt(made, "review_session", session="busy")
    assert "The newest 20 of 25 transactions follow." in review
    assert "+24\n" in review
    assert "+4\n" not in review
