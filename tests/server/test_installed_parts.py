"""installed_parts: dialects of other distributions work, and one that fails is shown and harms no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.parts import parts
from editd.wire.messages import Tool, Write
from editd_client.errors import EditdError
from support.distributions import HELLO_DIALECT, HELLO_ENTRY_POINTS, install
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

FAILING = {  # dialects by name: the module of each, and the reason
    "raising": ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
    "lacking": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "odd": ("DIALECT = 7", "odd:DIALECT is no Dialect"),
    "renamed": (HELLO_DIALECT, "its Dialect has the name 'hello'"),
    "double": (
        HELLO_DIALECT.replace('"hello", "Greetings.", (GREET,)', '"double", "Greetings.", (GREET, GREET)'),
        "it names the tool 'greet' twice",
    ),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """A workspace whose daemon has three more distributions on its path."""
    site = tmp_path / "site"
    install(site, "greetings", HELLO_ENTRY_POINTS, {"greetings": HELLO_DIALECT})
    lines = "".join(f"{name} = {name}:DIALECT\n" for name in FAILING)
    install(site, "failures", f"[editd.tools]\n{lines}", {name: text for name, (text, _) in FAILING.items()})
    install(
        site, "twins", "[editd.tools]\nhello = greetings:DIALECT\nroo = greetings:DIALECT\nbad line\n", {}
    )
    with workplace(tmp_path / "place", {"a.txt": "a\n"}) as place:
        place.is_forked = False  # a forked daemon has the path of the fork server
        place.variables["PYTHONPATH"] = str(site)
        yield place


def greet(**arguments: str) -> Tool:
    return Tool(dialect="hello", tool="greet", args=dict(arguments))


def test_a_dialect_of_another_distribution_is_one_like_any_other(place: Workplace) -> None:
    with place.start() as client:
        assert "hello" in client.hello("tester").dialects
        assert "greet" in [tool.name for one in client.dialects().dialects for tool in one.tools]
        made = client.apply([greet(path="a.txt")])
        assert made.answers == ["Greeted."]
        assert (place.root / "a.txt").read_text() == "a\nhello\n"
        client.undo(made.transaction.seq if made.transaction is not None else None)
        assert (place.root / "a.txt").read_text() == "a\n"
        with pytest.raises(EditdError, match="`name` is no argument of this tool") as unknown:
            client.apply([greet(path="a.txt", name="x")])
        assert unknown.value.name == "invalid_params"


def test_a_dialect_that_fails_is_shown_and_harms_no_other(place: Workplace) -> None:
    with place.start() as client:
        status = client.status()
        errors = {(part.name, part.distribution): part.error for part in status.parts}
        assert errors["hello", "greetings"] is None
        assert errors["serena", "editd"] is None
        assert errors["hello", "twins"] == "greetings has a part of the same name"
        assert errors["roo", "twins"] == "editd has a part of the same name"
        assert errors["bad line", "twins"] == "its line is not `name = module:object`"
        for name, (_, reason) in FAILING.items():
            assert errors[name, "failures"] == reason
            assert f"The part {name} of failures (editd.tools) cannot be used: {reason}." in status.weaker
            with pytest.raises(EditdError) as refused:
                client.apply([Tool(dialect=name, tool="greet", args={"path": "a.txt"})])
            assert refused.value.name == "not_installed"
            assert reason in refused.value.fact
            assert "Install or repair it" in refused.value.hint
        offered = [entry.name for entry in client.dialects().dialects]
        assert {"hello", "serena", "roo"} < set(offered)
        assert not set(offered) & set(FAILING)
        client.apply([greet(path="a.txt")])
        assert client.status().head == 1


def test_a_tool_that_raises_changes_nothing(place: Workplace) -> None:
    text = HELLO_DIALECT.replace('return "Greeted."', 'raise KeyError("oh")')
    (place.folder.parent / "site" / "greetings.py").write_text(text)
    with place.start() as client:
        with pytest.raises(EditdError) as refused:
            client.apply([greet(path="a.txt")])
        assert refused.value.name == "internal_error"
        assert "KeyError: 'oh'" in place.log()
        assert (place.root / "a.txt").read_text() == "a\n"
        client.apply([Write(path="a.txt", content="b\n", base=client.read("a.txt").version)])
        assert client.status().state == "ready"


def test_a_package_in_the_workspace_is_none_of_the_daemon_s(tmp_path: Path) -> None:
    """The current folder is not on the path of the daemon, nor on that of the `editctl` that starts it."""
    with workplace(tmp_path, {"a.txt": "a\n"}) as place:
        place.is_forked = False
        install(place.root, "greetings", HELLO_ENTRY_POINTS, {"greetings": HELLO_DIALECT})
        done = place.editctl("dialects", "--json")
        assert done.returncode == 0, done.stderr
        assert '"serena"' in done.stdout
        assert "hello" not in done.stdout
        assert place.editctl("stop").returncode == 0


def test_editds_own_parts_have_no_error() -> None:
    from editd.server.installed_parts import installed_parts, weaker

    assert [part.name for part in installed_parts()] == [part.name for part in parts()]
    assert weaker() == []
