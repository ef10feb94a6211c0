"""config.reference: the file that `config init` writes and docs/configuration.md say what the schema says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from editd.config.load import check_text, keys
from editd.config.reference import reference, template, toml
from editd.config.value_parsers import in_units

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def uncommented() -> str:
    """The file with each key that stands as a comment in it set."""
    lines = template().split("\n")
    return "\n".join(
        line.removeprefix("# ") if re.match(r"# (\w+ = .+|\[[\w.]+\]|    .+|\])$", line) else line
        for line in lines
    )


def flat(tree: dict[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    return found


def test_the_file_says_nothing_until_somebody_takes_a_comment_sign_away() -> None:
    assert tomllib.loads(template()) == {}


def test_the_file_has_every_key_with_its_default_or_an_example() -> None:
    given = flat(tomllib.loads(uncommented()))
    assert list(given) == [key.name for key in keys()]
    for key in keys():
        shown = key.default if key.default not in (None, ()) else key.example
        if key.form in ("duration", "term") and isinstance(shown, float):
            shown = in_units(shown)
        assert given[key.name] == (list(shown) if isinstance(shown, tuple) else shown)
    check_text(uncommented(), "template")


def test_no_line_of_the_file_is_longer_than_a_terminal_is_wide() -> None:
    assert max(len(line) for line in template().split("\n")) <= 100


def test_docs_configuration_has_what_the_schema_has() -> None:
    """`python -m editd.config.reference` prints what is to stand there."""
    _, marked, rest = PAGE.read_text().partition("<!-- keys -->\n")
    assert marked
    assert rest.partition("<!-- /keys -->")[0].strip() == reference().strip()


def test_every_key_says_what_it_does() -> None:
    for key in keys():
        assert key.description.endswith(".") or key.description.endswith("anything."), key.name
        assert key.default is not None or key.example is not msgspec.UNSET, key.name


def test_a_value_is_written_as_toml_reads_it() -> None:
    for value in (True, 3, 2.5, 'a "b" \\ ü', ["x", "y"], []):
        assert tomllib.loads(f"x = {toml(value)}")["x"] == value
