"""The keys for their users: the file of `editctl config init`, and docs/configuration.md's part.

`python -m editd.config.reference` prints the keys for docs/configuration.md.
"""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from editd.config.load import Key, fields_of, keys
from editd.config.schema import (
    AgentKeys,
    Config,
    ConfigSection,
    Gemini,
    HistoryKeys,
    HookKeys,
    Keep,
    PermissionKeys,
    RemoteKeys,
    ReviewCheckKeys,
    ReviewKeys,
    ReviewRuleKeys,
    Serena,
    TurnKeys,
    Wcgw,
)
from editd.config.value_parsers import in_units

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 96
_SECTIONS: dict[str, type[ConfigSection]] = {
    "": Config, "agents": AgentKeys, "history": HistoryKeys, "history.keep": Keep, "serena": Serena,
    "gemini": Gemini,
    "wcgw": Wcgw, "permissions": PermissionKeys, "remote": RemoteKeys, "review": ReviewKeys,
    "[hook]": HookKeys, "[review.rule]": ReviewRuleKeys, "[review.check]": ReviewCheckKeys,
    "turns": TurnKeys,
}  # fmt: skip
_ABOUT = """\
The configuration of editd. Each key is here with its default, as a comment. Remove the `#` to set it.
`editctl config check` prints all errors. `editctl config reload` makes a running daemon read the file again.
"""


def template() -> str:
    """Return a file with every key as a comment, which sets nothing until a `#` is removed."""
    lines = list(_comment(_ABOUT))
    for table, of_table in _tables():
        if table:
            lines += ["", *_comment(_about(table)), f"# [{table}]"]
        for key in of_table:
            lines += ["", *_comment(_describe(key)), *_assignment(f"{_own_name(key)} = {_example(key)}")]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return the keys as Markdown, a list for each table."""
    lines: list[str] = []
    # The tables that may occur any number of times.
    repeated = [(name, list(keys(section))) for name, section in _SECTIONS.items() if name.startswith("[")]
    for table, of_table in (*_tables(), *repeated):
        lines += ["", f"### `[{table}]`" if table else "### At the top", ""]
        if table:
            lines += [_about(table), ""]
        lines += ["| key | default | |", "|---|---|---|"]
        for key in of_table:
            example = "" if key.example is msgspec.UNSET else f" Such as `{toml(key.example)}`."
            default = "–" if key.default in (None, msgspec.NODEFAULT) else f"`{_default(key)}`"
            description = _describe(key).replace("|", "\\|")
            name = key.name if table.startswith("[") else _own_name(key)
            lines.append(f"| `{name}` | {default} | {description}{example} |")
    return "\n".join(lines).lstrip("\n") + "\n"


def toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, ConfigSection):
        value = {
            field.name: content
            for field in fields_of(type(value))
            if (content := getattr(value, field.name)) != field.default
        }
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(content)}' for name, content in value.items())} }}"
    return str(value)


def _tables() -> Iterator[tuple[str, list[Key]]]:
    for table, of_table in groupby(keys(), lambda key: key.name.rpartition(".")[0]):
        yield table, list(of_table)


def _about(table: str) -> str:
    return (_SECTIONS[table].__doc__ or "").strip()


def _own_name(key: Key) -> str:
    return key.name.rpartition(".")[2]


def _describe(key: Key) -> str:
    return key.description + (" Needs a restart." if key.needs_restart else "")


def _example(key: Key) -> str:
    if key.default is None or key.default == ():
        return toml(key.example)
    return _default(key)


def _assignment(text: str) -> Iterator[str]:
    """Yield the lines of a key that is a comment; a long list takes several, indented."""
    if len(text) <= WIDTH:
        yield f"# {text}"
        return
    begin, _, items = text.partition("[")
    yield f"# {begin}["
    wrapped = textwrap.wrap(
        items.removesuffix("]"), WIDTH - 4, break_long_words=False, break_on_hyphens=False
    )
    yield from (f"#     {line}" for line in wrapped)
    yield "# ]"


def _default(key: Key) -> str:
    return toml(in_units(key.default) if key.form in ("duration", "term") else key.default)


def _comment(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (f"# {part}" for part in textwrap.wrap(line, WIDTH))


if __name__ == "__main__":
    print(reference())  # noqa: T201  # for docs/configuration.md
