"""Changes of a configuration file: one key, or all of it by a person, but never to an invalid file."""

from __future__ import annotations

import os
import tempfile
import tomllib
from typing import Any

from editd.config.load import check_text
from editd.config.reference import toml
from editd.config.toml_lines import lines_of
from editd_client.errors import refusal


def read_text(path: str) -> str:
    """Return the file's text, empty for a missing file. Raises EditdError (`io_error`) on failure."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise refusal("io_error", f"{path} cannot be read: {error}.") from None


def write_text(path: str, text: str) -> None:
    """Replace the file, or what it links to, in one step. Raises EditdError (`io_error`)."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, target)
    except OSError as error:
        raise refusal("io_error", f"{path} cannot be written: {error}.") from None


def with_key(text: str, key: str, value: str, name: str) -> str:
    """Return the file's text with a key set, and nothing else changed.

    `value` is TOML, or a string without its quotes. Raises ConfigError if the file is wrong, or would be.
    Raises EditdError (`conflict`) if the key is inside a larger value, which a person has to edit.
    """
    given = _value(value)
    wanted = _set(tomllib.loads(text) if check_text(text, name) is not None else {}, key.split("."), given)
    for changed in _ways(text, key, toml(given) if not isinstance(given, dict) else value):
        try:
            if tomllib.loads(changed) == wanted:
                check_text(changed, name)
                return changed
        except tomllib.TOMLDecodeError:
            continue
    raise refusal(
        "conflict", f"{key} cannot be set in {name} without changing its surroundings.",
        hint="Edit the file with `editctl config edit`.",
    )  # fmt: skip


def _value(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _set(tree: dict[str, Any], names: list[str], value: Any) -> dict[str, Any]:
    first, *rest = names
    if not rest:
        return tree | {first: value}
    below = tree.get(first)
    return tree | {first: _set(below if isinstance(below, dict) else {}, rest, value)}


def _ways(text: str, key: str, value: str) -> list[str]:
    """Return the candidate texts: the key's own line replaced, a new one in its table, or one at the top."""
    lines = text.split("\n")
    known = lines_of(text)
    name = tuple(key.split("."))
    table, own = ".".join(name[:-1]), name[-1]
    ways: list[list[str]] = []
    if name in known:
        at = known[name] - 1
        left = lines[at].partition("=")[0].rstrip()
        ways += [[*lines[:at], f"{left} = {value}", *lines[end:]] for end in range(at + 1, len(lines) + 1)]
    if name[:-1] in known:
        at = known[name[:-1]]
        ways.append([*lines[:at], f"{own} = {value}", *lines[at:]])
    first = next((at for at, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    while first and not lines[first - 1].strip():
        first -= 1
    ways.append([*lines[:first], f"{key} = {value}", *lines[first:]])
    if table:
        ways.append([*lines, f"[{table}]", f"{own} = {value}", ""])
    return ["\n".join(way).rstrip("\n") + "\n" for way in ways]
