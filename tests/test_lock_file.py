"""The lock file of the gate: every package that pyproject.toml asks for, in one version, with its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TOP = Path(__file__).resolve().parent.parent
UNLOCKED = {"uvloop"}  # an extra that the gate does not install
NAME = re.compile(r"^([A-Za-z0-9._-]+)(?:\[.*\])?==([^ ;]+)")


def wanted() -> list[Requirement]:
    """Return each requirement of the package, its extras, its groups and its build."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    return [Requirement(text) for group in groups for text in group]


def locked() -> dict[str, tuple[str, int]]:
    """Return the version of each locked package, and the number of its hashes."""
    entries: dict[str, tuple[str, int]] = {}
    name = ""
    for line in (TOP / ".ci" / "requirements.txt").read_text().splitlines():
        if line.startswith("    --hash=sha256:"):
            version, hashes = entries[name]
            entries[name] = version, hashes + 1
        elif line and not line.startswith("#"):
            entry = NAME.match(line)
            assert entry, f"no locked package: {line}"
            name = canonicalize_name(entry[1])
            entries[name] = entry[2], 0
    return entries


def test_each_package_is_locked_in_a_version_that_pyproject_takes_with_hashes() -> None:
    entries = locked()
    assert all(hashes for _, hashes in entries.values())
    for requirement in wanted():
        name = canonicalize_name(requirement.name)
        if name not in UNLOCKED:
            assert name in entries, f"{name} is not locked: see docs/contributing.md"
            assert requirement.specifier.contains(entries[name][0]), f"{name} is locked in {entries[name][0]}"
