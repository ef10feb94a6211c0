"""docs/hooks.md: every recipe of the page does what it is there for."""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.config.reference import toml
from editd_client.errors import EditdError
from support.workplace import Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hooks.md").read_text()
RECIPES: dict[str, dict[str, Any]] = {
    hook["name"]: hook
    for block in re.findall(r"<!-- recipes -->\n```toml\n(.*?)```\n<!-- /recipes -->", PAGE, re.DOTALL)
    for hook in tomllib.loads(block)["hook"]
}
FIRST = re.search(r"```toml\n(# ~/\.config.*?)```", PAGE, re.DOTALL)
SETTINGS = """
[tool.ruff.format]
quote-style = "single"
[tool.black]
skip-string-normalization = true
"""
SAMPLES: dict[str, tuple[str, str, str | None]] = {
    # recipe: a path, what is written there, and what stands there then; None where it is refused
    "ruff": ("src/a.py", "x = { 'a':1 }\n", "x = {'a': 1}\n"),
    "black": ("src/b.py", "x = { 'a':1 }\n", "x = {'a': 1}\n"),
    "prettier": ("web/src/a.ts", "let  a  =  1\n", "let a = 1;\n"),
    "gofmt": ("a.go", "package  a\n", "package a\n"),
    "jq": ("a.json", '{"a":1}', '{\n  "a": 1\n}\n'),
    "secrets": ("deep/key", "x\n-----BEGIN RSA PRIVATE KEY-----\n", None),
    "parses": ("src/c.py", "def\n", None),
}
INSTALLED = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Client]]:
    """One daemon, whose PATH has a stand-in for each program that is not installed."""
    folder = tmp_path_factory.mktemp("hooks-page")
    stand_ins = folder / "bin"
    stand_ins.mkdir()
    for name, hook in RECIPES.items():
        if shutil.which(hook["command"][0], path=INSTALLED) is None:
            _make_stand_in(stand_ins / hook["command"][0], hook["command"], *SAMPLES[name])
    with workplace(folder / "place", {"pyproject.toml": SETTINGS}) as place:
        place.variables["PATH"] = os.pathsep.join([INSTALLED, str(stand_ins)])
        with place.start() as client:
            yield place, client


def _make_stand_in(program: Path, command: list[str], path: str, given: str, made: str | None) -> None:
    """A program that takes these arguments and this content only."""
    arguments = [part.replace("{path}", path) for part in command[1:]]
    program.write_text(
        f"#!{sys.executable}\nimport sys\n"
        f"assert sys.argv[1:] == {arguments!r}, sys.argv\n"
        f"assert sys.stdin.read() == {given!r}\n"
        f"sys.stdout.write({made!r})\n"
    )
    program.chmod(stat.S_IRWXU)


def configure(place: Workplace, client: Client, text: str) -> None:
    path = place.folder / "config" / "editd" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    client.config_reload()


def test_every_recipe_has_a_sample() -> None:
    assert RECIPES.keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_does_what_it_is_there_for(shared: tuple[Workplace, Client], name: str) -> None:
    place, client = shared
    table = "".join(f"{key} = {toml(value)}\n" for key, value in RECIPES[name].items())
    configure(place, client, f"[[hook]]\n{table}")
    path, given, made = SAMPLES[name]
    if made is None:
        with pytest.raises(EditdError) as caught:
            client.apply([write(path, given)])
        assert (caught.value.name, caught.value.data["hook"]) == ("rejected", name)
        client.apply([write(path, "fine = 1\n")])
        assert (place.root / path).read_text() == "fine = 1\n"
        return
    answer = client.apply([write(path, given)])
    assert answer.warnings == []
    assert answer.files[0].warnings == [f"formatted by {name}"]
    assert (place.root / path).read_text() == made


def test_the_first_example_formats_what_it_can_and_refuses_what_is_wrong(
    shared: tuple[Workplace, Client],
) -> None:
    place, client = shared
    assert FIRST is not None
    configure(place, client, FIRST[1])
    client.apply([write("d.py", "x = { 'a':1 }\n")])
    assert (place.root / "d.py").read_text() == "x = {'a': 1}\n"
    with pytest.raises(EditdError, match=r"ruff-check refused d.py .*F401"):
        client.apply([write("d.py", "import os\n")])
