"""The VS Code extension: its pure parts in node, and all of it in a real VS Code with a real daemon."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import vscode
from neovim import environment
from reviewers import config_folder, set_pin
from workplace import workplace

if TYPE_CHECKING:
    from pathlib import Path

TESTS = vscode.EXTENSION / "test"
NAMES = re.findall(r"^test\('(.+)', async", (TESTS / "vscode.ts").read_text(), re.MULTILINE)
HOOKS = """
[[hook]]
name = "loud"
glob = ["**/*.loud"]
command = ["tr", "a-z", "A-Z"]

[[hook]]
name = "never"
glob = ["**/*.never"]
command = ["false"]
kind = "check"
"""

needs_node = pytest.mark.skipif(
    shutil.which("node") is None or not (vscode.EXTENSION / "node_modules").exists(),
    reason="node is not installed, or `npm ci` was not run in client/editors/vscode",
)


def npm_program(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the extension's packages to its end."""
    program = vscode.EXTENSION / "node_modules" / ".bin" / name
    return subprocess.run(
        [str(program), *words], cwd=vscode.EXTENSION, capture_output=True, text=True, check=False
    )


def bundle(source: str, output: Path) -> Path:
    """Bundle a source of the extension or of its tests into one file."""
    done = npm_program(
        "esbuild", source, "--bundle", "--platform=node", "--target=node20", "--format=cjs",
        "--external:vscode", f"--outfile={output}", "--log-level=warning",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


@needs_node
def test_the_extension_is_strictly_typed() -> None:
    done = npm_program("tsc")
    assert done.returncode == 0, done.stdout


@needs_node
def test_lines_merge_and_places_are_found(tmp_path: Path) -> None:
    tests = bundle("test/lines.ts", tmp_path / "lines.js")
    known = {"EXPECTED_ID": hashlib.sha256(b"/w").hexdigest()[:16], "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["node", "--test", str(tests)],
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The failure of each test in VS Code, or an empty text. All of them run in one start."""
    if reason := vscode.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("vscode")
    development = folder / "extension"
    development.mkdir()
    shutil.copy(vscode.EXTENSION / "package.json", development)
    bundle("src/extension.ts", development / "dist" / "extension.js")
    tests = bundle("test/vscode.ts", folder / "tests.js")
    with workplace(folder / "place", {"README": "read me\n"}) as place:
        for words in (
            ["init", "-q"],
            ["config", "user.name", "Somebody"],
            ["config", "user.email", "somebody@example.org"],
            ["add", "README"],
            ["commit", "-qm", "first"],
        ):
            place.git(*words)
        (config_folder(place) / "config.toml").write_text(HOOKS)
        set_pin(place)
        place.start().close()
        with vscode.server(place, {}, {"PATH": environment(place)["PATH"]}) as server:
            done = vscode.run(server.address(place.root, tests, development))
    assert done.status is not None, "\n".join(done.lines)
    return done.results


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_in_vscode(name: str, results: dict[str, str]) -> None:
    assert results.get(name, "it did not run") == ""
