"""`editctl completion`, in the shells themselves."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace

BASH = """
eval "$(editctl completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_editctl_completion editctl 2>&1
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Outside a line editor zsh has no `_describe`; what the script hands to it is what it would show.
ZSH = """
compdef() { :; }
_describe() { print -rl -- "${(@P)3}"; }
compadd() { shift $(( $# - 1 )); print -rl -- "${(@P)1}"; }
_path_files() { print FILES; }
eval "$(editctl completion zsh)"
words=("$@"); CURRENT=$#
_editctl_completion 2>&1
"""
FISH = """
editctl completion fish | source
complete -C "$argv" 2>&1
"""


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def shell(place: Workplace) -> Workplace:
    """A workspace, and an `editctl` in the PATH."""
    place.variables |= {
        "PATH": f"{place.provide_editctl()}:{os.environ['PATH']}",
        "EDITD_WORKSPACE": str(place.root),
    }
    return place


def run(place: Workplace, *argv: str) -> list[str]:
    done = subprocess.run(
        argv, cwd=place.root, env=place.environment, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def bash(place: Workplace, *words: str) -> list[str]:
    return run(place, "bash", "--norc", "-c", BASH, "bash", "editctl", *words)


def busy(place: Workplace) -> None:
    """A daemon with two transactions and a session."""
    with place.start() as client:
        client.apply([write("a.txt", "a\n")], message="the first\nand more")
        client.apply([write("b.txt", "b\n")], message="the second")
        client.session_open("fixing-the-tests", actor="ann")
        client.apply([write("c.txt", "c\n")], propose=True)
        client.dialects()  # The first call loads their modules, for which completion does not wait.


@needs("bash")
def test_bash_completes_verbs_options_and_what_the_daemon_knows(shell: Workplace) -> None:
    assert bash(shell, "st") == ["start", "stop", "status"]
    assert "--dry-run" in bash(shell, "undo", "--")
    assert "disable" not in bash(shell, "systemd", "")
    assert bash(shell, "systemd", "un") == ["uninstall"]
    assert bash(shell, "undo", "") == [""], "no daemon runs, and none is started"
    assert not os.path.exists(shell.socket)
    busy(shell)
    assert bash(shell, "undo", "") == ["2", "1", "0"]
    assert bash(shell, "read", "a.txt", "--at", "1") == ["1"]
    assert bash(shell, "rollback", "") == ["fixing-the-tests"]
    assert bash(shell, "--session", "fix") == ["fixing-the-tests"]
    assert bash(shell, "proposal", "approve", "") == ["1"]
    assert bash(shell, "proposal", "reopen", "") == [""]
    assert bash(shell, "session", "open", "fix") == [""]
    assert bash(shell, "tool", "cli") == ["cline"]
    assert "replace_in_file" in bash(shell, "tool", "cline", "")


@needs("bash")
def test_help_completes_verbs_and_the_commands_below_them(shell: Workplace) -> None:
    (shell.root / "unfinished.txt").touch()
    assert bash(shell, "help", "un") == ["undo"]
    assert bash(shell, "help", "session", "op") == ["open"]
    assert bash(shell, "help", "undo", "") == bash(shell, "help", "nonsense", "") == [""]


@needs("zsh")
def test_zsh_completes_with_what_each_is(shell: Workplace) -> None:
    busy(shell)
    offered = run(shell, "zsh", "-f", "-c", ZSH, "zsh", "editctl", "undo", "")
    assert any(line.startswith("2:edit by ") and line.endswith(": the second") for line in offered), offered
    assert run(shell, "zsh", "-f", "-c", ZSH, "zsh", "editctl", "blame", "") == ["FILES"]


@needs("fish")
def test_fish_completes_with_what_each_is(shell: Workplace) -> None:
    busy(shell)
    offered = run(shell, "fish", "--no-config", "-c", FISH, "editctl undo ")
    assert [line.split("\t")[0] for line in offered] == ["0", "1", "2"]
    assert any(line.startswith("1\tedit by ") and line.endswith(": the first") for line in offered), offered
    shell.write({"src/app.py": ""})
    assert "src/" in run(shell, "fish", "--no-config", "-c", FISH, "editctl blame sr")


@needs("bash")
def test_each_script_is_one_that_its_shell_takes(shell: Workplace) -> None:
    for name, *check in (("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")):
        if shutil.which(name) is not None:
            script = shell.folder / f"completion.{name}"
            script.write_text("\n".join(run(shell, "editctl", "completion", name)))
            assert run(shell, name, *check, str(script)) == []


def test_a_daemon_that_does_not_answer_is_not_waited_for(shell: Workplace) -> None:
    shell.start().close()
    assert shell.process is not None
    os.kill(shell.process.pid, 19)  # SIGSTOP
    began = time.monotonic()
    try:
        assert bash(shell, "undo", "") == [""]
        assert time.monotonic() - began < 20.0  # of a shell and Python on a machine that is busy
    finally:
        os.kill(shell.process.pid, 18)


def test_completing_imports_one_verb_and_no_message_types(shell: Workplace) -> None:
    busy(shell)
    asked = (
        "import sys, json; from editd_client.cli import run; run([]); "
        "print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", asked], cwd=shell.root, check=True, capture_output=True,
        env={
            **shell.environment, "COMP_WORDS": "editctl\nundo\n", "COMP_CWORD": "2",
            "_EDITCTL_COMPLETE": "bash_complete",
        },
    )  # fmt: skip
    assert done.stdout.split() == [b"plain,2", b"plain,1", b"plain,0"]
    loaded = set(json.loads(done.stderr))
    assert "editd_client.cli.log" not in loaded
    assert not loaded & {"msgspec", "msgpack", "editd.wire.messages", "editd_client.client"}
