"""workspace.protection: a refusal by the file system names its cause, and the next step."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace


@pytest.fixture
def flagged() -> Iterator[list[Path]]:
    """A list of files that get back their flags at the end."""
    files: list[Path] = []
    yield files
    for file in files:
        subprocess.run(["chattr", "-i", "-a", file], check=True)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("chattr") is None, reason="root sets these flags")
@pytest.mark.parametrize(
    ("flag", "on", "path", "fact"),
    [
        ("+i", "a", "a", "it is immutable"),
        ("+a", "a", "a", "it is append-only"),
        ("+i", "d", "d/b", "its folder is immutable"),
        ("+i", "d", "d/new", "its folder is immutable"),
        ("+a", "d", "d/b", "its folder is append-only"),
    ],
)
def test_a_flag_of_chattr_is_named(
    place: Workplace, flagged: list[Path], flag: str, on: str, path: str, fact: str
) -> None:
    place.write({"a": "a\n", "d/b": "b\n"})
    before = place.files()
    with place.start() as client:
        client.settle()
        if subprocess.run(["chattr", flag, place.root / on], capture_output=True, check=False).returncode:
            pytest.skip("the file system has no flags")
        flagged.append(place.root / on)
        with pytest.raises(EditdError) as refused:
            client.apply([write(path, "new\n")])
        assert refused.value.name == "permission_denied"
        assert fact in refused.value.message
        assert refused.value.hint is not None
        assert f"chattr -{flag[1]}" in refused.value.hint
        assert "chmod" not in refused.value.hint
        assert place.files() == before
        assert client.status().head == 0
