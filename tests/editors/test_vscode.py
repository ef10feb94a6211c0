"""The VS Code extension: its pure parts in node, and all of it in a real VS Code with a real daemon."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from support import vscode
from support.neovim import environment
from support.reviewers import config_folder, set_pin
from support.workplace import workplace

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

TESTS = vscode.EXTENSION / "test"
NAMES = [
    "in a folder that is not trusted nothing runs",
    *re.findall(r"^test\('(.+)', async", (TESTS / "vscode.ts").read_text(), re.MULTILINE),
]
# The window's own extension, which only holds the tests: the extension itself is installed.
TESTS_MANIFEST = {"name": "tests", "publisher": "editd", "version": "0.0.0", "engines": {"vscode": "*"}}
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


def identify(root: Path | str) -> str:
    """Return the id of the workspace with this real path."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:16]


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


def package(folder: Path) -> Path:
    """Make `editd.vsix` in a folder, as `npm run package` does."""
    folder.mkdir()
    for name in ("package.json", "README.md", "LICENSE", ".vscodeignore"):
        shutil.copy(vscode.EXTENSION / name, folder)
    bundle("src/extension.ts", folder / "dist" / "extension.js")
    words = ("package", "--no-dependencies", "--out", "editd.vsix")
    done = subprocess.run(
        [str(vscode.NODE), str(vscode.VSCE), *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "editd.vsix"


@needs_node
def test_the_extension_is_strictly_typed() -> None:
    done = npm_program("tsc")
    assert done.returncode == 0, done.stdout


@needs_node
def test_lines_merge_and_places_are_found(tmp_path: Path) -> None:
    tests = bundle("test/lines.ts", tmp_path / "lines.js")
    known = {"EXPECTED_ID": identify("/w"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["node", "--test", str(tests)],
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@needs_node
def test_the_next_step_of_a_refusal_has_the_words_of_an_editor(tmp_path: Path) -> None:
    tests = bundle("test/advice.ts", tmp_path / "advice.js")
    done = subprocess.run(["node", "--test", str(tests)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@needs_node
def test_a_connection_starts_daemons_and_repeats_safe_requests(tmp_path: Path) -> None:
    tests = bundle("test/connection.ts", tmp_path / "connection.js")
    with workplace(tmp_path / "place", {"README": "read me\n"}) as place:
        place.git("init", "-q")
        place.git("init", "-q", "../own")
        own = place.folder / "own"
        give_reviewers_socket(place, own)
        place.start().close()
        assert place.editctl("-C", str(own), "start").returncode == 0
        known = {
            "EDITD_TEST_ROOT": str(place.root),
            "EDITD_TEST_OWN_ROOT": str(own),
            "EDITD_TEST_PROGRAM": f"{place.provide_editctl()}/editctl",
        }
        try:
            done = subprocess.run(
                ["node", "--test", str(tests)],
                env=environment(place) | known,
                capture_output=True,
                text=True,
                check=False,
            )
        finally:
            assert place.editctl("-C", str(own), "stop").returncode == 0
    assert done.returncode == 0, done.stdout


def give_reviewers_socket(place: Workplace, root: Path) -> None:
    """Configure a workspace so that it has a reviewers' socket, and set the PIN."""
    settings = config_folder(place) / "workspaces" / f"{identify(root)}.toml"
    settings.parent.mkdir()
    settings.write_text('[review]\nsocket = "own"\n')
    set_pin(place)


def chosen(session: pytest.Session) -> str:
    """Return an expression that matches the chosen tests of `vscode.ts`."""
    names = {item.name.partition("[")[2].rstrip("]") for item in session.items}
    return "^(" + "|".join(re.escape(name) for name in NAMES if ascii_id(name) in names) + ")$"


def ascii_id(name: str) -> str:
    """Return a parameter as pytest has it in the name of a test."""
    return name.encode("ascii", "backslashreplace").decode()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the failure of each chosen test in VS Code, or an empty text.

    The extension is the packaged one. The first window does not trust its folder, the second has two
    repositories and a folder without one.
    """
    if reason := vscode.missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("vscode")
    tests = folder / "tests"
    tests.mkdir()
    (tests / "package.json").write_text(json.dumps(TESTS_MANIFEST))
    untrusted = bundle("test/untrusted.ts", tests / "untrusted.js")
    trusted = bundle("test/vscode.ts", tests / "vscode.js")
    with workplace(folder / "place", {"README": "read me\n"}) as place:
        for words in (
            ["init", "-q"],
            ["config", "user.name", "Somebody"],
            ["config", "user.email", "somebody@example.org"],
            ["add", "README"],
            ["commit", "-qm", "first"],
            ["init", "-q", "../second"],
        ):
            place.git(*words)
        (place.folder / "loose").mkdir()
        window = place.folder / "tests.code-workspace"
        window.write_text(
            json.dumps({"folders": [{"path": "loose"}, {"path": "workspace"}, {"path": "second"}]})
        )
        (config_folder(place) / "config.toml").write_text(HOOKS)
        give_reviewers_socket(place, place.folder / "second")
        place.start().close()
        server = vscode.Server(
            place.folder / "vscode",
            place.environment
            | {"PATH": environment(place)["PATH"], "EDITD_TEST_ONLY": chosen(request.session)},
        )
        server.install(package(folder / "package"))
        try:
            with server.running():
                server.configure({"security.workspace.trust.startupPrompt": "never"})
                first = vscode.run(server.address(place.root, untrusted, tests))
                server.configure({"security.workspace.trust.enabled": False})
                second = vscode.run(server.address(window, trusted, tests))
                if not second.results:  # a window without its folders, as on a busy machine
                    second = vscode.run(server.address(window, trusted, tests))
        finally:
            for name in ("workspace", "second"):
                place.editctl("-C", str(place.folder / name), "stop")
    for done in (first, second):
        assert done.status is not None, "\n".join(done.lines)
    return first.results | second.results


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", NAMES)
def test_in_vscode(name: str, results: dict[str, str]) -> None:
    assert results.get(name, "it did not run") == ""
