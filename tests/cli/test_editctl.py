"""`editctl` itself: its verbs, its help, its exit codes."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import editd_client.cli as editctl

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

SHARED = {
    "asker",
    "binary_patch",
    "invocation",
    "options",
    "output",
    "progress",
    "proposal_text",
    "tour_hosts",
    "tour_workspace",
}
VERBS = {verb: said for section in editctl.VERBS.values() for verb, said in section.items()}


def test_every_module_has_verbs_or_is_shared() -> None:
    in_families = {verb for verbs in editctl.MODULES.values() for verb in verbs}
    with_verbs = set(editctl.MODULES) | set(VERBS) - in_families
    assert in_families <= set(VERBS)
    assert {module.name for module in pkgutil.iter_modules(editctl.__path__)} == with_verbs | SHARED


@pytest.mark.parametrize("name", VERBS)
def test_a_verbs_help_begins_as_the_list_says_and_gives_examples(name: str) -> None:
    said = editctl.command_of(name).help
    assert said is not None
    first = " ".join(said.split("\n\n")[0].split())
    assert first.startswith(VERBS[name].rstrip("."))
    examples = [line for line in said.partition("Examples:")[2].splitlines() if "editctl" in line]
    assert 2 <= len(examples) <= 4


def test_help_imports_neither_messages_nor_verbs() -> None:
    program = (
        "import sys; from editd_client.cli import run; code = run(['--help']);"
        "assert not {'msgspec', 'msgpack', 'subprocess', 'asyncio'} & set(sys.modules), sys.modules.keys();"
        "assert 'editd_client.cli.edits' not in sys.modules; sys.exit(code)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for name, said in VERBS.items():
        assert name in result.stdout
        assert said in result.stdout


def test_no_verb_needs_pygit2_or_asyncio() -> None:
    program = (
        "import sys; from editd_client import cli, client;"
        "[cli.command_of(verb) for section in cli.VERBS.values() for verb in section];"
        "assert not {'pygit2', 'asyncio', 'rich'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--version"], editctl.DONE),
        (["nonsense"], editctl.USAGE),
        (["replace", "a", "only one text"], editctl.USAGE),
        (["undo", "3", "--last", "2"], editctl.USAGE),
        (["-C", "/", "log"], editctl.REFUSED),
        (["-C", "/nowhere", "log", "--json"], editctl.REFUSED),
    ],
)
def test_an_exit_code_says_what_kind_of_answer_it_was(words: list[str], code: int) -> None:
    assert editctl.run(words) == code


def test_a_verb_that_is_not_there_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert editctl.run(["stauts"]) == editctl.USAGE
    assert "No such command 'stauts'. Did you mean 'status'?" in capsys.readouterr().err
    assert editctl.run(["xyzzy"]) == editctl.USAGE
    assert capsys.readouterr().err.endswith("No such command 'xyzzy'.\n")


@pytest.mark.parametrize("verb", ["status", "stop"])
def test_status_and_stop_start_no_daemon(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDITD_SOCKET", str(tmp_path / "none.sock"))
    assert editctl.run(["-C", str(tmp_path), verb]) == editctl.UNREACHABLE
    assert "No daemon answers" in capsys.readouterr().err
    assert editctl.run(["-C", str(tmp_path), verb, "--json"]) == editctl.UNREACHABLE
    assert capsys.readouterr().out.startswith('{"error":{"code":null,"name":"unreachable"')


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_completion_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert editctl.run(["completion", shell]) == editctl.DONE
    assert "_EDITCTL_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["log", "--help"]])
def test_help_that_cannot_be_written_is_told_as_any_other_answer(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == editctl.UNWRITTEN
    assert done.stderr.startswith("editctl: done, but the answer could not be written: No space")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_reader_who_has_seen_enough_makes_no_error(buffering: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as closed:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", "completion", "fish"],
            env={**os.environ, "PYTHONUNBUFFERED": buffering},
            stdout=closed, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (editctl.DONE, b"")


def test_help_and_version_are_verbs_as_well(place: Workplace) -> None:
    assert place.editctl("help").stdout == place.editctl("--help").stdout
    assert place.editctl("help", "undo").stdout == place.editctl("undo", "--help").stdout
    assert place.editctl("help", "session", "open").stdout == place.editctl("session", "open", "-h").stdout
    assert place.editctl("version").stdout == place.editctl("--version").stdout
    wrong = place.editctl("help", "undoo")
    assert (wrong.returncode, "undo" in wrong.stderr) == (2, True)
    assert "except `status` and `stop`" in place.editctl("help").stdout
