"""The keys for their users: the file of `editctl config init`, and docs/configuration.md's part."""

from __future__ import annotations

import json
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from editd.config.load import keys
from editd.config.schema import Config, ConfigSection, HistoryKeys, HookKeys, Keep, Serena, Wcgw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.config.load import Key

WIDTH = 96
_SECTIONS: dict[str, type[ConfigSection]] = {
    "": Config, "history": HistoryKeys, "history.keep": Keep, "serena": Serena, "wcgw": Wcgw,
    "[hook]": HookKeys,
}  # fmt: skip
_ABOUT = """\
The configuration of editd. Each key is here with its default, as a comment. Remove the `#` to set it.
`editctl config check` prints all errors. `editctl config reload` makes a running daemon read the file again.
"""


def template() -> str:
    """Return a file with every key as a comment, which sets nothing until a `#` is removed."""
    lines = list(_commented(_ABOUT))
    for table, of_table in _tables():
        if table:
            lines += ["", *_commented(_about(table)), f"# [{table}]"]
        for key in of_table:
            lines += ["", *_commented(_said(key)), f"# {_own_name(key)} = {_assigned(key)}"]
    return "\n".join(lines) + "\n"


def reference() -> str:
    """Return the keys as Markdown, a list for each table."""
    lines: list[str] = []
    hooks = ("[hook]", list(keys(HookKeys)))  # a table that may occur any number of times
    for table, of_table in (*_tables(), hooks):
        lines += ["", f"### `[{table}]`" if table else "### At the top", ""]
        if table:
            lines += [_about(table), ""]
        lines += ["| key | default | |", "|---|---|---|"]
        for key in of_table:
            example = "" if key.example is msgspec.UNSET else f" Such as `{toml(key.example)}`."
            default = "–" if key.default in (None, msgspec.NODEFAULT) else f"`{toml(key.default)}`"
            said = _said(key).replace("|", "\\|")
            lines.append(f"| `{_own_name(key)}` | {default} | {said}{example} |")
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
            field.name: said
            for field in msgspec.structs.fields(value)
            if (said := getattr(value, field.name)) != field.default
        }
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {toml(said)}' for name, said in value.items())} }}"
    return str(value)


def _tables() -> Iterator[tuple[str, list[Key]]]:
    for table, of_table in groupby(keys(), lambda key: key.name.rpartition(".")[0]):
        yield table, list(of_table)


def _about(table: str) -> str:
    return (_SECTIONS[table].__doc__ or "").strip()


def _own_name(key: Key) -> str:
    return key.name.rpartition(".")[2]


def _said(key: Key) -> str:
    return key.description + (" Needs a restart." if key.needs_restart else "")


def _assigned(key: Key) -> str:
    if key.default is None or key.default == ():
        return toml(key.example)
    return toml(key.default)


def _commented(text: str) -> Iterator[str]:
    for line in text.splitlines():
        yield from (f"# {part}" for part in textwrap.wrap(line, WIDTH))


if __name__ == "__main__":
    print(reference())  # noqa: T201  # for docs/configuration.md
