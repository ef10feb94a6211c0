"""A workspace inside another one that a running daemon owns, through the real command."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def editctl(place: Workplace) -> Iterator[Run]:
    started: list[str] = []

    def run(*words: str, code: int = 0, folder: str = "") -> subprocess.CompletedProcess[str]:
        done = place.editctl(*words, folder=folder)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        if "start" in words and code == 0:
            started.append(folder)
        return done

    yield run
    for folder in started:
        place.editctl("stop", folder=folder)


def root_of(done: subprocess.CompletedProcess[str]) -> str:
    root: str = json.loads(done.stdout)["root"]
    return root


def test_a_repository_inside_a_served_workspace_is_part_of_it_unless_nested(
    editctl: Run, place: Workplace
) -> None:
    place.write({"a": "1\n", "inner/b": "2\n"})
    place.git("init", "-q", ".")
    place.git("init", "-q", "inner")
    root = os.path.realpath(place.root)
    assert root_of(editctl("start", "--json")) == root
    assert root_of(place.editctl("start", "--json", folder="inner")) == root
    refused = place.editd("-C", f"{root}/inner", "--exact", "--foreground")
    assert refused.returncode == 1
    assert f"{root}/inner is part of the workspace {root}." in refused.stderr
    assert "--nested" in refused.stderr
    assert root_of(editctl("--nested", "start", "--json", folder="inner")) == f"{root}/inner"
    editctl("stop", folder="inner")
    assert root_of(editctl("start", "--json", folder="inner")) == f"{root}/inner", "it was allowed once"


def test_a_nested_workspace_is_found_again_without_the_option(editctl: Run, place: Workplace) -> None:
    place.write({"a": "1\n", "src/deep/b": "2\n"})
    place.git("init", "-q", ".")
    root = os.path.realpath(place.root)
    assert root_of(editctl("-C", "src", "--nested", "start", "--json", folder="")) == f"{root}/src"
    assert root_of(editctl("status", "--json", folder="src/deep")) == f"{root}/src"
    editctl("-C", "src", "stop")
    editctl("status", code=3)


def test_a_folder_that_the_outer_workspace_ignores_may_be_a_workspace(editctl: Run, place: Workplace) -> None:
    place.write({".gitignore": "trees/\n", "a": "1\n", "trees/one/b": "2\n"})
    place.git("init", "-q", ".")
    place.git("init", "-q", "trees/one")
    editctl("start")
    assert root_of(editctl("start", "--json", folder="trees/one")).endswith("/trees/one")


def test_a_workspace_without_git_owns_its_folders_also_while_its_daemon_is_stopped(
    editctl: Run, place: Workplace
) -> None:
    """The fault: after a stop, `log` and `write` in a folder of it made the folder another workspace."""
    place.write({"sub/a": "1\n"})
    root = os.path.realpath(place.root)
    assert root_of(editctl("start", "--json")) == root
    editctl("write", "b", "sub/a")
    editctl("stop")
    assert f"the workspace is {root}/sub" not in editctl("status", code=3, folder="sub").stderr
    assert editctl("log", "--oneline", folder="sub").stdout.startswith("1 ")
    editctl("write", "new", "a", folder="sub")
    assert root_of(editctl("status", "--json", folder="sub")) == root
    assert place.files()["sub/new"] == b"1\n"
    editctl("stop", folder="sub")
    assert sorted(os.listdir(place.state.parent)) == [place.state.name]
