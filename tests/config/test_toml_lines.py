"""config.toml_lines: the line on which each key of a TOML file begins."""

from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from editd.config.toml_lines import lines_of

FILE = '''\
# a comment
one = 1

two = [
    # in the middle
    "x",
]
text = """
[not] = "a table"
"""   # the end
[table]
"quoted key" = 3
a.b.c = true   # dotted

[other . inner]
in = { line = 1, more = [1, 2] }
'''


def test_a_key_is_on_the_line_where_its_statement_begins() -> None:
    found = lines_of(FILE)
    assert found == {
        ("one",): 2, ("two",): 4, ("text",): 8, ("table",): 11, ("table", "quoted key"): 12,
        ("table", "a"): 13, ("table", "a", "b"): 13, ("table", "a", "b", "c"): 13,
        ("other",): 15, ("other", "inner"): 15, ("other", "inner", "in"): 16,
        ("other", "inner", "in", "line"): 16, ("other", "inner", "in", "more"): 16,
    }  # fmt: skip


def test_what_is_not_whole_is_told_as_far_as_it_is() -> None:
    assert lines_of("a = 1\nb = [\n") == {("a",): 1}
    assert lines_of("") == {}


STATEMENTS = st.sampled_from(
    ["{} = 1", "{} = [\n  1,\n\n  2 ]", '{} = """\nx = 1\n"""', "# {}", "", "{} = '\\'  # x"]
)


@given(st.lists(STATEMENTS, max_size=12))
def test_every_key_has_a_line_and_its_own_text_is_there(statements: list[str]) -> None:
    text = "\n".join(statement.format(f"key{number}") for number, statement in enumerate(statements))
    found = lines_of(text)
    assert {name[0] for name in found} == set(tomllib.loads(text))
    for (name,), line in found.items():
        assert text.split("\n")[line - 1].startswith(f"{name} = ")
