"""Changes of a configuration file: one key, or all of it by a person, but never to an invalid file."""

from __future__ import annotations

import os
import tempfile
import tomllib
from typing import Any

from editd.config.load import check_text
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
    """Return the file's text with a key set; everything else, comments included, stays as it is.

    `value` is TOML, or a string without its quotes. Raises ConfigError if the file is wrong, or would be.
    Raises EditdError (`conflict`) if the key does not fit between the lines around it.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    check_text(text, name)
    *tables, own = key.split(".")
    parsed = _parsed(value)
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for above in tables:
            if not isinstance(table.get(above), dict):
                table[above] = tomlkit.table()
            table = table[above]
        table[own] = parsed
        changed = tomlkit.dumps(document)
        is_alone = tomllib.loads(changed) == _set(tomllib.loads(text), [*tables, own], parsed)
    except (TOMLKitError, ValueError):
        changed, is_alone = text, False
    if not is_alone:
        raise refusal(
            "conflict", f"{key} cannot be set in {name} without changing its surroundings.",
            hint="Edit the file with `editctl config edit`.",
        )  # fmt: skip
    check_text(changed, name)
    return changed


def _parsed(value: str) -> Any:
    """Return the value of the TOML text, otherwise the text as a string."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _set(tree: dict[str, Any], names: list[str], value: object) -> dict[str, Any]:
    """Return the tree with the value under these names."""
    first, *others = names
    inner = tree.get(first)
    own = _set(inner if isinstance(inner, dict) else {}, others, value) if others else value
    return tree | {first: own}
