"""`editctl session`, `lease` and `exec`, through the real command and the real daemon."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]

TEXT = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def editctl(place: Workplace) -> Iterator[Run]:
    """Runs `editctl` in the workspace; the daemon that it starts is ended."""
    place.write({"app.txt": TEXT, "src/other.txt": TEXT})
    place.variables["EDITD_WORKSPACE"] = str(place.root)

    def run(*words: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        done = place.editctl(*words, **environment)
        assert done.returncode == code, (
            f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{place.log()}"
        )
        return done

    run("settle")
    yield run
    run("stop")


def opened(editctl: Run, name: str, *options: str) -> dict[str, str]:
    """The environment of a shell that has evaluated what `session open` printed."""
    line = editctl("session", "open", name, *options).stdout
    assert line.startswith("export ")
    return dict(word.split("=", 1) for word in shlex.split(line)[1:])


def newest(editctl: Run) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(editctl("log", "-n", "1", "--json").stdout)["transactions"][0]
    return made


def test_a_session_acts_through_the_environment_and_nobody_else_does(editctl: Run) -> None:
    ours = opened(editctl, "my work", "--actor", "claude", "--write", "src/**", "--must-read", "--merge")
    assert "has not read" in editctl("replace", "src/other.txt", "two", "2", code=1, **ours).stderr
    editctl("read", "src/other.txt", **ours)
    editctl("replace", "src/other.txt", "two", "2", **ours)
    assert (newest(editctl)["session"], newest(editctl)["actor"]) == ("my work", "claude")
    assert "may not write app.txt" in editctl("replace", "app.txt", "two", "2", code=1, **ours).stderr
    assert "opened with a token" in editctl("--session", "my work", "redo", code=1).stderr
    editctl("--session", "my work", "lease", "list", EDITD_TOKEN=ours["EDITD_TOKEN"])
    editctl("replace", "app.txt", "two", "2", EDITD_SESSION="my work", EDITD_TOKEN="wrong", code=1)
    listed = editctl("session", "list").stdout
    assert re.fullmatch(r"my work by claude, writes src/\*\*, merges, must read, last used .*\n", listed)
    editctl("session", "close", "my work", code=1, EDITD_SESSION="my work", EDITD_TOKEN="wrong")
    editctl("session", "close", **ours)
    assert editctl("session", "list").stdout == ""
    assert "There is no session" in editctl("replace", "app.txt", "two", "2", code=1, **ours).stderr


def test_a_session_that_was_left_behind_is_closed_by_force(editctl: Run) -> None:
    opened(editctl, "lost")
    editctl("session", "close", "--force", code=2)
    assert json.loads(editctl("session", "close", "lost", "--force", "--json").stdout) == {}
    assert json.loads(editctl("session", "list", "--json").stdout) == {"sessions": []}
    opened(editctl, "another")
    editctl("session", "close", "another")  # the owner needs no token, and no option
    assert json.loads(editctl("session", "list", "--json").stdout) == {"sessions": []}


def test_a_lease_keeps_others_out_until_it_is_released(editctl: Run) -> None:
    ours, theirs = opened(editctl, "ours"), opened(editctl, "theirs")
    lease = editctl("lease", "acquire", "src/**", "--ttl", "60", **ours).stdout.strip()
    listed = editctl("lease", "list", TZ="UTC").stdout
    assert re.fullmatch(rf"{lease} ours src/\*\*, until \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d\n", listed)
    assert editctl("lease", "list", TZ="Fiji-12").stdout != listed  # it is a person's own time
    refused = editctl("replace", "src/other.txt", "two", "2", code=1, **theirs)
    assert "src/other.txt is leased by the session 'ours' until " in refused.stderr
    editctl("lease", "acquire", "src/", "--wait", "0.1", code=1, **theirs)
    editctl("lease", "release", lease, code=1, **theirs)
    assert editctl("lease", "renew", lease, **ours).stdout.startswith("until ")
    editctl("lease", "release", lease, **ours)
    editctl("replace", "src/other.txt", "two", "2", **theirs)
    assert "needs a session" in editctl("lease", "acquire", "src/", code=1).stderr


def test_exec_hands_everything_on_and_records_what_changed(editctl: Run, place: Workplace) -> None:
    ours = opened(editctl, "ours", "--actor", "claude")
    script = "echo out; echo err >&2; sed -i s/two/2/ app.txt; echo new > new.txt; exit 3"
    done = editctl("exec", "--", "sh", "-c", script, code=3, **ours)
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\n")
    assert "exec by claude in ours: sh -c " in done.stderr
    made = newest(editctl)
    assert (made["kind"], made["session"], made["actor"]) == ("exec", "ours", "claude")
    assert made["message"] == f"{shlex.join(['sh', '-c', script])} (exit status 3)"
    assert [file["path"] for file in made["files"]] == ["app.txt", "new.txt"]
    editctl("undo", str(made["seq"]))
    assert place.files()["app.txt"] == TEXT.encode()
    assert "new.txt" not in place.files()


def test_exec_says_what_a_shell_says_of_what_cannot_be_run_or_was_killed(
    editctl: Run, place: Workplace
) -> None:
    assert "No such file" in editctl("exec", "no-such-command", code=127).stderr
    locked = place.folder / "locked"
    locked.mkdir(0o000)  # which only root may look into
    path = f"{locked}:{os.environ['PATH']}"
    assert "No such file" in editctl("exec", "no-such-command", code=127, PATH=path).stderr
    assert "Permission denied" in editctl("exec", "./app.txt", code=126).stderr
    assert editctl("exec", "--", "sh", "-c", "kill -TERM $$", code=128 + signal.SIGTERM).stdout == ""
    done = editctl("exec", "--json", "--", "sh", "-c", "echo x > app.txt")
    assert json.loads(done.stderr)["transaction"]["kind"] == "exec"
    editctl("exec", code=2)
    editctl("exec", "--session", "just a name", "sh", "-c", "echo y > app.txt")
    assert newest(editctl)["session"] == "just a name"


def test_what_runs_within_exec_acts_in_the_same_session(editctl: Run) -> None:
    ours = opened(editctl, "ours")
    inner = [sys.executable, "-P", "-m", "editd_client", "replace", "app.txt", "two", "2"]
    editctl("exec", "--", *inner, **ours)
    assert (newest(editctl)["kind"], newest(editctl)["session"]) == ("edit", "ours")


def test_a_tools_edit_of_a_file_that_others_changed_names_the_transaction(editctl: Run) -> None:
    ours = opened(editctl, "reader")
    editctl("read", "app.txt", **ours)
    editctl("replace", "app.txt", "five", "5", "-m", "Digits", "--actor", "bob")
    arguments = '{"path": "app.txt", "command": "str_replace", "old_str": "one", "new_str": "1"}'
    said = editctl("tool", "claude", "str_replace_based_edit_tool", "--args", arguments, **ours).stdout
    assert "app.txt was changed since this session read it, by 1 " in said
    assert "edit by bob: Digits" in said


def test_changes_that_nobody_announced_are_claimed_for_a_session(place: Workplace, editctl: Run) -> None:
    place.write({"app.txt": "changed\n"})
    assert editctl("claim", "--session", "aider-1", "-m", "rename", "app.txt").stdout == "Claimed: 1.\n"
    log = editctl("log", "--oneline").stdout.splitlines()
    assert re.fullmatch(r"2 [0-9a-f]{7} claim by \S+ in aider-1, of 1: rename", log[0]), log[0]
    assert re.fullmatch(r"1 [0-9a-f]{7} exec by \S+ in aider-1, claimed by 2: app.txt", log[1]), log[1]
    assert editctl("claim", "--session", "other", "app.txt").stdout == "Nothing to claim.\n"
    old = editctl("claim", "--session", "aider-1", "--since", "2h", "app.txt", code=1)
    assert "more than 60 seconds ago" in old.stderr
    assert "Give --session NAME" in editctl("claim", "app.txt", code=1).stderr
    made = json.loads(editctl("claim", "--json", "--session", "aider-1", "app.txt").stdout)
    assert made == {"transactions": [1]}, "a second time changes nothing"
    editctl("rollback", "aider-1")
    assert place.files()["app.txt"] == TEXT.encode()


def test_a_session_is_paused_and_does_not_resume_itself(editctl: Run) -> None:
    ours = opened(editctl, "claude")
    said = editctl("session", "pause", "claude", "-m", "Wait for the release").stdout
    assert said == "the edits of claude are refused\n"
    refused = editctl("replace", "app.txt", "one", "1", code=1, **ours).stderr
    assert "The session 'claude' is paused by " in refused
    assert ": Wait for the release.\n" in refused
    assert "one" in editctl("read", "app.txt", **ours).stdout
    assert "may not resume itself" in editctl("session", "resume", "claude", code=1, **ours).stderr
    assert re.search(r"claude paused by \S+: Wait for the release, ", editctl("session", "list").stdout)
    editctl("session", "pause", "claude", "--propose", "-m", "Show me")
    waits = editctl("replace", "app.txt", "one", "1", **ours).stdout
    assert "[P1] waits for a reviewer (rule: pause)" in waits
    assert ": Show me." in waits
    assert "paused, proposes by" in editctl("sessions").stdout
    assert editctl("session", "pause", "cluade", code=1).stderr.startswith(
        "editctl: There is no session 'cluade'."
    )
    assert "only with the PIN" in editctl("session", "resume", "claude", code=1).stderr, (
        "it is kin of P1's author"
    )
    editctl("proposal", "withdraw", "1", **ours)
    editctl("session", "resume", "claude")
    assert "paused" not in editctl("session", "list").stdout
