"""The manifests of the plugins agree with pyproject.toml and with each other."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

import editd
from support.workplace import TOP

EDITORS = TOP / "client" / "editors"
ADDRESS = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
VSCODE = json.loads((EDITORS / "vscode/package.json").read_text())


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("vscode/package.json", r'"repository": \{ "type": "git", "url": "(\S+)"'),
        ("vscode/README.md", r"\[editd\]\((\S+)\)"),
        ("neovim/editd.nvim-scm-1.rockspec", r'url = "git\+(\S+)\.nvim"'),
        ("emacs/editd.el", r"^;; URL: (\S+)$"),
        ("emacs/README.md", r"package-vc-install '\(editd :url \"(\S+)\""),
        ("emacs/README.md", r":fetcher git :url \"(\S+)\""),
    ],
)
def test_a_manifest_has_the_address_of_the_project(name: str, form: str) -> None:
    assert re.findall(form, (EDITORS / name).read_text(), re.MULTILINE) == [ADDRESS]


def test_the_plugins_have_the_version_of_the_daemon() -> None:
    emacs = re.search(r"^;; Version: (\S+)$", (EDITORS / "emacs/editd.el").read_text(), re.MULTILINE)
    assert emacs
    assert emacs[1] == VSCODE["version"] == editd.__version__


def test_the_extension_is_compiled_against_the_lowest_version_that_it_promises() -> None:
    """Newer declarations would let it call what that version does not have."""
    assert VSCODE["engines"]["vscode"] == f"^{VSCODE['devDependencies']['@types/vscode']}"
