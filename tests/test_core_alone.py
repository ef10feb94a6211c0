"""The core without its optional parts: `tools`, `remote`, `screen` and `web` cannot be found."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Replace, Tool, Write
from editd_client.errors import EditdError
from support.distributions import core_alone
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """A workspace whose daemon and `editctl` have no part."""
    with workplace(tmp_path / "place", {"a.txt": "one\n"}) as place:
        place.is_forked = False  # a forked daemon has the path of the fork server
        place.variables["PYTHONPATH"] = str(core_alone(tmp_path / "core"))
        yield place


def document(place: Workplace, *words: str, status: int = 0) -> Any:
    """Return the JSON that `editctl` prints."""
    done = place.editctl(*words, "--json")
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_the_core_starts_edits_and_undoes(place: Workplace) -> None:
    with place.start() as client:
        assert client.hello("tester").dialects == []
        assert client.dialects().dialects == []
        made = client.apply([Replace(path="a.txt", old="one", new="two"), Write(path="b.txt", content="b\n")])
        assert made.transaction is not None
        assert (place.root / "a.txt").read_text() == "two\n"
        client.undo(made.transaction.seq)
        assert (place.root / "a.txt").read_text() == "one\n"
        assert not (place.root / "b.txt").exists()
        assert client.check().ok
        status = client.status()
        assert (status.state, status.parts, status.remote) == ("ready", [], None)
        assert not [sentence for sentence in status.weaker if "cannot be used" in sentence]


def test_editctl_works(place: Workplace) -> None:
    place.start().close()
    assert place.editctl("replace", "a.txt", "one", "two").returncode == 0
    assert (place.root / "a.txt").read_text() == "two\n"
    assert place.editctl("undo").returncode == 0
    assert (place.root / "a.txt").read_text() == "one\n"
    assert [one["kind"] for one in document(place, "log")["transactions"]] == ["undo", "edit", "baseline"]
    verbose = place.editctl("status", "-v").stdout
    assert [line.split() for line in verbose.splitlines() if line.startswith(("parts", "tools"))] == [
        ["parts", "none"],
        ["tools", "none"],
    ]


def test_a_request_for_a_missing_part_is_refused(place: Workplace, tmp_path: Path) -> None:
    with place.start() as client:
        for ask in (
            lambda: client.apply([Tool(dialect="claude", tool="any", args={})]),
            lambda: client.remote_init(str(tmp_path / "server.git")),
            lambda: client.remote_join(str(tmp_path / "server.git")),
        ):
            with pytest.raises(EditdError) as refused:
                ask()
            assert refused.value.name == "not_installed", refused.value
            assert "Install or repair it" in refused.value.hint
        assert client.remote_status().state == "none"
        assert client.status().head == 0


@pytest.mark.parametrize(
    "words",
    [("web",), ("review",), ("tool", "claude", "any", "--args", "{}"), ("remote", "init", "/tmp/none.git")],
)
def test_a_command_that_needs_a_missing_part_names_it(place: Workplace, words: tuple[str, ...]) -> None:
    place.start().close()
    done = place.editctl(*words)
    assert done.returncode == 1, done.stderr
    assert "installed" in done.stderr
    assert "Install or repair it, and run `editctl stop`" in done.stderr


def test_a_host_in_a_log_says_that_the_exchange_is_missing(place: Workplace) -> None:
    place.start().close()
    place.stop()
    joined = {
        "url": "file:///no/server.git", "ref": "refs/heads/editd/x", "host": "here",
        "exclude": [], "excluded": [], "through": 0, "paused": False, "held": [],
    }  # fmt: skip
    (place.state / "remote.json").write_text(json.dumps(joined))
    with place.start() as client:
        client.apply([Write(path="b.txt", content="b\n")])
        assert client.remote_now().state == "refused"
        status = client.status()
        assert status.remote is not None
        assert status.remote["state"] == "refused"
        assert "The exchange with other hosts is not installed." in status.remote["error"]


def test_the_parts_are_not_found_in_this_environment(place: Workplace) -> None:
    """The claims above are about the core alone: Python itself finds no part there."""
    code = "import importlib.util as u; print([u.find_spec(n) for n in ('editd.tools', 'editd.remote', "
    code += "'editd_client.web', 'editd_client.screen')])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=place.environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([None] * 4)
