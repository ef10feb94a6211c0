"""`editctl hooks`, as people and scripts use it."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import TYPE_CHECKING

from editd_client.cli import run as main

if TYPE_CHECKING:
    import pytest

    from support.workplace import Workplace

CONFIG = f"""
[[hook]]
name = "upper"
glob = ["*.txt"]
command = [{sys.executable!r}, "-c", "import sys; sys.stdout.write(sys.stdin.read().upper())"]

[[hook]]
name = "short"
glob = ["*.long"]
kind = "check"
command = [{sys.executable!r}, "-c", "raise SystemExit('too long')"]
"""


def test_hooks_are_shown_run_and_told_of(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (place.environment | {"EDITD_WORKSPACE": str(place.root)}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place.root)
    config = place.folder / "config" / "editd" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG)
    place.write({"a.txt": "one\n", "b.txt": "TWO\n", "c.long": "x\n", "d.other": "x\n"})

    def editctl(*words: str, code: int = 0) -> str:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert main(words) == code, err.getvalue()
        return out.getvalue() + err.getvalue()

    with place.start():
        said = editctl("hooks")
        assert "upper  format  *.txt" in said
        assert "ran 0 times, 10 s at most, on_error = refuse" in said

        said = editctl("hooks", "run", "a.txt", "b.txt")
        assert said.startswith("a.txt: upper would change it\nb.txt: stays as it is\n")
        assert "-one\n+ONE\n" in said
        assert json.loads(editctl("hooks", "run", "a.txt", "--json"))["hooks"] == ["upper"]
        assert editctl("hooks", "run", "d.other") == "no hook matches these files\n"
        assert "short refused c.long (exit status 1): too long" in editctl("hooks", "run", "c.long", code=1)
        assert place.files()["a.txt"] == b"one\n"

        said = editctl("hooks")
        assert "ran 2 times, " in said
        assert "ran once, " in said
        assert "last failure: " in said
        assert "hint: Name a file in it." in editctl("hooks", "run", str(place.root), code=1)
        shown = json.loads(editctl("hooks", "--json"))["hooks"]
        assert [(hook["name"], hook["runs"]) for hook in shown] == [("upper", 2), ("short", 1)]
        assert "formatted by upper" in editctl("replace", "a.txt", "one", "two")
        assert place.files()["a.txt"] == b"TWO\n"
        assert '= [{ name = "upper", glob = ["*.txt"], command = [' in editctl("config")
