"""engine.git_branch: what `git add` makes of the line ends, asked of git itself."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pygit2
import pytest

from editd.engine.git_branch import converting_attribute, ends_of, to_blob
from editd.values.content import version_of

if TYPE_CHECKING:
    from pathlib import Path

CONTENTS = (
    b"", b"a\n", b"a\r\n", b"a\r\nb\n", b"a\rb\r\n", b"\0\r\n", b"\x01\r\n",
    b"\x01" + b"text " * 200 + b"\r\n",
    b"a\r\n\x1a", b"\x08\t\x1b\x0c\r\n", b"\x7f\r\n", "caf\u00e9\r\n".encode(), b"caf\xe9\r\n",
)  # fmt: skip
ATTRIBUTES = (
    "", "text", "-text", "text=auto", "text=input", "crlf", "-crlf", "crlf=input", "eol=lf", "eol=crlf",
    "text=auto eol=crlf", "-text eol=lf", "binary", "text=odd",
)  # fmt: skip


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("autocrlf", ["", "true", "input", "false"])
def test_the_blob_is_that_of_git_for_every_setting(tmp_path: Path, attributes: str, autocrlf: str) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitattributes").write_text(f"* {attributes}\n" if attributes else "")
    if autocrlf:
        subprocess.run(["git", "-C", str(tmp_path), "config", "core.autocrlf", autocrlf], check=True)
    repository = pygit2.Repository(str(tmp_path))
    for number, content in enumerate(CONTENTS):
        (tmp_path / str(number)).write_bytes(content)
    paths = "".join(f"{number}\n" for number in range(len(CONTENTS)))
    by_git = subprocess.run(
        ["git", "-C", str(tmp_path), "-c", "core.safecrlf=false", "hash-object", "--stdin-paths"],
        input=paths, text=True, capture_output=True, check=True,
    ).stdout.split()  # fmt: skip
    ours = [
        version_of(to_blob(content, ends_of(repository, str(number)), None))
        for number, content in enumerate(CONTENTS)
    ]
    assert ours == by_git


def test_what_else_git_would_convert_is_named(tmp_path: Path) -> None:
    repository = pygit2.init_repository(str(tmp_path))
    (tmp_path / ".gitattributes").write_text(
        "a filter=lfs\nb ident\nc working-tree-encoding=UTF-16\nd -filter text\n"
    )
    found = [converting_attribute(repository, path) for path in ("a", "b", "c", "d", "e")]
    assert found == ["filter=lfs", "ident", "working-tree-encoding=UTF-16", None, None]
