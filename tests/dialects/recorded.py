"""The vectors: what the originals did, one call each, and where this house does otherwise.

They lie in `vectors/`, or where EDITD_VECTORS says: JSON lines as `docs/dialects.md` describes them.
`deviations/DIALECT.toml` has each vector that comes out otherwise here, with the reason.
"""

from __future__ import annotations

import base64
import json
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = Path(os.environ.get("EDITD_VECTORS", HERE / "vectors"))
TOOLS = {
    "serena": "replace_content",
    "gemini": "replace",
    "gemini-smart": "replace",
    "gemini-head": "replace",
    "wcgw": "FileWriteOrEdit",
    "roo": "search_and_replace",
    "cline": "replace_in_file",
}
ERRORS = {
    "not_found": {"no_match"},
    "too_many_tolerances": {"no_match"},
    "ambiguous": {"ambiguous"},
    "count_mismatch": {"count_mismatch"},
    "malformed_blocks": {"malformed_edit"},
    "invalid_argument": {"invalid_params"},
    "path_not_absolute": {"invalid_params"},
    "invalid_regex": {"invalid_regex"},
    "path_outside": {"path_outside"},
    "file_missing": {"file_missing"},
    "file_exists": {"file_exists"},
    "not_read": {"unread"},
    "ignored": {"path_ignored", "path_protected"},
    "no_change": {"no_change"},
    "other": {
        "not_a_file",
        "not_text",
        "permission_denied",
        "invalid_params",
        "path_outside",
        "invalid_regex",
    },
}


@dataclass(frozen=True)
class Expected:
    """The name of the refusal, or the files afterwards."""

    errors: frozenset[str] = frozenset()
    files: dict[str, bytes] | None = None
    warnings: frozenset[str] | None = None  # their kinds; None: not said


@dataclass(frozen=True)
class Vector:
    id: str
    dialect: str
    tags: frozenset[str]
    files: dict[str, bytes]
    call: dict[str, Any]
    expected: Expected
    symlinks: dict[str, str] = field(default_factory=dict)
    outside: dict[str, bytes] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()
    state: dict[str, Any] = field(default_factory=dict)
    reason: str = ""  # why it differs from the original, if it does

    @property
    def tool(self) -> str:
        return TOOLS[self.dialect]


def vectors(dialect: str) -> list[Vector]:
    """All vectors of a dialect, with what they come to here."""
    path = FOLDER / f"{dialect}.jsonl"
    table = deviations(dialect)
    with path.open(newline="\n", encoding="utf-8") as lines:
        return [_vector(dialect, json.loads(line), table) for line in lines]


def deviations(dialect: str) -> dict[str, dict[str, Any]]:
    path = HERE / "deviations" / f"{dialect}.toml"
    if not path.exists():
        return {}
    listed: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("deviation", [])
    assert len({entry["vector"] for entry in listed}) == len(listed), f"{path}: a vector is there twice"
    return {entry["vector"]: entry for entry in listed}


def rooted(value: Any, root: str) -> Any:
    """The arguments with `{ROOT}` as the workspace's root."""
    if isinstance(value, str):
        return value.replace("{ROOT}", root)
    if isinstance(value, dict):
        return {name: rooted(inner, root) for name, inner in value.items()}
    return value


def contents(given: dict[str, Any]) -> dict[str, bytes]:
    files = {path: text.encode("utf-8", "surrogatepass") for path, text in given.get("files", {}).items()}
    return files | {path: base64.b64decode(raw) for path, raw in given.get("files_b64", {}).items()}


def _vector(dialect: str, raw: dict[str, Any], table: dict[str, dict[str, Any]]) -> Vector:
    state = {**raw.get("setup", {}), **raw.get("state", {})}
    dialect, _, generation = dialect.partition("-")
    if generation:
        state["generation"] = generation
    files = contents(raw)
    outside = {path.removeprefix("../"): files.pop(path) for path in list(files) if path.startswith("../")}
    outside |= {f"outside/{name}": text.encode() for name, text in state.get("outside_files", {}).items()}
    expected, reason = _original(raw), ""
    if raw["id"] in table:
        entry = table[raw["id"]]
        reason = entry["reason"]
        expected = _ours(entry, expected, files)
    return Vector(
        raw["id"], dialect, frozenset(raw["tags"]), files, raw["call"], expected,
        state.get("symlinks", {}), outside, tuple(state.get("steps", ())), state, reason,
    )  # fmt: skip


def _original(raw: dict[str, Any]) -> Expected:
    said = raw.get("expect_fixed", raw["expect"])
    if "error" in said:
        return Expected(frozenset(ERRORS[said["error"]]))
    warnings = said.get("warnings") if raw["id"].startswith("wcgw") else None
    after = {path: content for path, content in contents(said).items() if not path.startswith("../")}
    return Expected(files=after, warnings=None if warnings is None else frozenset(warnings))


def _ours(entry: dict[str, Any], original: Expected, before: dict[str, bytes]) -> Expected:
    if entry["outcome"] != "ok":
        return Expected(frozenset({entry["outcome"]}))
    files = dict(before if original.files is None else original.files) | contents(entry)
    for path in entry.get("gone", ()):
        files.pop(path, None)
    warnings = entry.get("warnings")
    return Expected(files=files, warnings=None if warnings is None else frozenset(warnings))
