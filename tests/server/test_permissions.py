"""The table of permissions: each method by each kind of client, and what happened to files and programs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from editd.config.paths import review_socket_path
from editd.engine.permissions import PERMISSIONS, verify_table
from editd.errors import PermissionDenied
from editd.server.connection import ClientState
from editd.server.gate import Gate
from editd.wire import messages
from editd_client.client import Client
from support.permission_walk import VICTIM, Line, requests
from support.reviewers import PIN, configure, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.server.connection import SocketConnection
    from support.workplace import Workplace

WALK = Path(__file__).parents[1] / "support" / "permission_walk.py"
OWN = '[review]\nsocket = "own"\ndefault = "ask"\n'

# For each kind of client, the classes that are open to it. This is said here a second time, on purpose.
OPEN = {
    "plain": {"anyone", "session", "witness", "holder", "plan", "owner", "reviewer"},
    "scoped": {"anyone", "session", "witness", "holder", "plan", "owner", "reviewer"},
    "paused": {"anyone", "session", "witness", "holder", "plan", "owner", "reviewer"},
    "agent": {"anyone", "session", "witness"},
    "sandbox": {"anyone", "session", "plan"},  # a rule makes a proposal of each change of the plan
    "review socket": {"anyone", "session", "witness", "holder", "plan", "owner", "reviewer"},
}


@dataclass
class Stage:
    """A workspace with work of others in it, and the traces that a request leaves."""

    place: Workplace
    owner: Client  # which takes no part in the walk
    lease: str = ""
    view: str = ""
    programs: Path = field(default_factory=Path)

    def traces(self) -> tuple[Any, ...]:
        """Return the files, the history, the git of the user and the started programs."""
        status = self.owner.status()
        git = sorted(str(path) for path in (self.place.root / ".git").rglob("*") if path.is_file())
        started = programs_of(self)
        return self.place.files(), status.head, status.config["problem"], git, started

    def requests(self) -> list[tuple[str, dict[str, Any]]]:
        return requests(self.lease, self.view, f"file://{self.place.root}/evil/r.git")


def provide_git(place: Workplace) -> Path:
    """Put a `git` before the real one on the daemon's PATH that notes each start; return the note."""
    folder, note = place.provide_editctl(), place.folder / "programs"
    real = shutil.which("git")
    (folder / "git").write_text(f'#!/bin/sh\necho "$@" >> "{note}"\nexec {real} "$@"\n')
    (folder / "git").chmod(0o755)
    place.variables["PATH"] = f"{folder}:{os.environ['PATH']}"
    return note


@contextmanager
def stage(place: Workplace, configuration: str = "") -> Iterator[Stage]:
    programs = provide_git(place)
    configure(place, configuration)
    set_pin(place)
    place.root.mkdir(exist_ok=True)
    subprocess.run(["git", "init", "-q", str(place.root)], check=True)
    place.write({"a.txt": "one\n"})
    place.start().close()
    path = review_socket_path(place.socket) if 'socket = "own"' in configuration else place.socket
    with Client(path, reconnect=False) as owner, place.client() as victim:
        owner.hello("ann")
        owner.apply([write("theirs.txt", "theirs\n")])
        owner.apply([write("undone.txt", "1\n")])
        owner.undo(2)
        victim.session_open(VICTIM)
        lease = victim.lease_acquire(["leased/**"], 600).lease
        victim.apply([write("proposed.txt", "1\n")], propose=True)
        victim.apply([replace("a.txt", "one", "two")], propose=True)
        victim.apply([write("withdrawn.txt", "1\n")], propose=True)
        victim.proposal_withdraw(3)
        landed = victim.apply([write("landed.txt", "1\n")])
        if isinstance(landed.proposal, messages.ProposedResult):
            owner.review_unlock(PIN)
            owner.proposal_approve(4, view=owner.proposal_get(4).view)
        made = Stage(place, owner, lease, owner.proposal_get(1).view or "", programs)
        yield made
    place.stop()


def programs_of(made: Stage) -> list[str]:
    """Return the command lines of git that the daemon has started."""
    return made.programs.read_text().splitlines() if made.programs.exists() else []


def is_closed(answer: dict[str, Any]) -> bool:
    """Return whether the table has refused a request, alone or for each of its proposals."""
    if "error" in answer:
        return "needs" in answer["error"]["data"].get("data", {})
    return any("needs" in one["error"]["data"] for one in answer["result"].get("left", ()))


def needs_of(method: str, params: dict[str, Any]) -> str:
    kind = messages.REQUESTS[method]
    return PERMISSIONS[kind].needs_of(msgspec.convert(params, kind))


def check_walk(name: str, made: Stage, line: Line | _Pipe) -> None:
    """Ask each method, and compare the answer and the traces with the table."""
    for method, params in made.requests():
        needs = needs_of(method, params)
        if needs in OPEN[name] and method in ("shutdown", "check"):
            continue  # they would end the daemon
        before = made.traces()
        answer = line.ask(method, params)
        if needs == "author":
            assert answer["error"]["data"]["name"] == "permission_denied", (name, method, answer)
        else:
            assert is_closed(answer) == (needs not in OPEN[name]), (name, method, needs, answer)
        if is_closed(answer) or name == "sandbox":
            assert made.traces() == before, (name, method)


def test_the_gate_checks_a_method_anew_unless_its_row_alone_decides() -> None:
    gate = Gate(has_review_socket=False)
    caller = ClientState(1, cast("SocketConnection", None), is_started_here=False)
    begun = messages.ExecBegin(session="s", command="make")
    for params in (
        messages.Apply(edits=[]),
        messages.Undo(),
        messages.Check(),
        messages.Gc(dry_run=True),
        begun,
    ):
        gate.check(params, caller)
    assert caller.open_methods == {messages.Apply, messages.Undo}


def test_the_gate_opens_no_method_of_a_session_to_a_program_of_the_daemon() -> None:
    gate = Gate(has_review_socket=False)
    caller = ClientState(1, cast("SocketConnection", None), is_started_here=True)
    for params in (messages.Apply(edits=[]), messages.Undo()):
        for _ in range(2):
            with pytest.raises(PermissionDenied):
                gate.check(params, caller)
    assert caller.open_methods == set()


def test_a_method_without_a_row_does_not_start_the_daemon() -> None:
    verify_table()
    rows = dict(PERMISSIONS)
    del rows[messages.Publish]
    with pytest.raises(LookupError, match="publish"):
        verify_table(rows)
    assert {
        kind.method
        for kind, _ in ((messages.REQUESTS[method], params) for method, params in requests("", "", ""))
    } == set(messages.REQUESTS)


def test_every_row_that_may_refuse_has_a_sentence_for_it() -> None:
    open_classes = ("anyone", "session", "author")
    closed = {
        kind.method: row
        for kind, row in PERMISSIONS.items()
        if row.needs not in open_classes or any(option.needs not in open_classes for option in row.options)
    }
    assert {method for method, row in closed.items() if not row.action} == set()
    assert {kind.method for kind, row in PERMISSIONS.items() if row.action} == set(closed)


@pytest.mark.parametrize("name", ["plain", "scoped", "paused"])
def test_a_connection_of_the_owner_may_do_everything(place: Workplace, name: str) -> None:
    with stage(place) as made:
        line = Line(place.socket)
        line.ask("review.unlock", {"pin": PIN})  # the victim's process is this one, so they are kin
        if name != "plain":
            line.ask("session.open", {"name": name, "scope": {"write": ["walk*"]}})
        if name == "paused":
            made.owner.session_pause(name)
        check_walk(name, made, line)
        assert programs_of(made), "a start of git leaves no trace"


def test_an_agent_may_do_only_what_its_session_may(place: Workplace) -> None:
    with (
        stage(place) as made,
        subprocess.Popen(
            [sys.executable, str(WALK), place.socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        line = _Pipe(process)
        line.ask("seen", {"files": [], "session": "claude", "pid": process.pid})
        check_walk("agent", made, line)
        process.terminate()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap")
def test_an_agent_in_a_sandbox_changes_no_byte_starts_no_program_and_learns_no_fact(place: Workplace) -> None:
    """The wall, as docs/reviewing.md sets it up."""
    with stage(place, OWN) as made:
        secret = made.place.folder / "config" / "editd"
        made.owner.review_allow(["docs/**"], 60)  # whose maker the answers name
        made.owner.proposal_comment(1, "by the owner")
        heard: list[str] = []
        with subprocess.Popen(
            sandboxed(place, "python3", str(WALK), place.socket),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            pipe = _Pipe(process, heard)
            check_walk("sandbox", made, pipe)
            claim = {"proposals": [{"proposal": 1, "view": made.view}], "what": "approve", "elicited": True}
            assert is_closed(pipe.ask("proposal.decide", claim))
            pipe.end()
        said = "".join(heard)
        for fact in (str(secret), review_socket_path(place.socket), ".review.sock"):
            assert fact not in said
        assert set(re.findall(r'"pid": (\w+)', said)) <= {"0", "null"}
        line = Line(place.socket)  # outside of the sandbox, the ordinary socket is no different
        for method, params in made.requests():
            if needs_of(method, params) in ("owner", "witness"):
                assert is_closed(line.ask(method, params)), method


def sandboxed(place: Workplace, *command: str) -> list[str]:
    """Return the command of docs/reviewing.md: read-only files, and the ordinary socket alone."""
    folder = str(Path(place.socket).parent)
    hidden = [
        str(place.folder / name) for name in ("state", "config", "home") if (place.folder / name).exists()
    ]
    return [
        "bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid", "--unshare-net",
        *(word for one in hidden for word in ("--tmpfs", one)),
        "--tmpfs", folder, "--bind", place.socket, place.socket, "--die-with-parent", "--", *command,
    ]  # fmt: skip


def test_the_review_socket_is_the_owner_s(place: Workplace) -> None:
    with stage(place, OWN) as made:
        line = Line(review_socket_path(place.socket))
        line.ask("review.unlock", {"pin": PIN})
        check_walk("review socket", made, line)


class _Pipe:
    """The same as `Line`, through a process that runs this walk."""

    def __init__(self, process: subprocess.Popen[str], heard: list[str] | None = None) -> None:
        self._process = process
        self._heard = [] if heard is None else heard

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, params]) + "\n")
        self._process.stdin.flush()
        text = self._process.stdout.readline()
        self._heard.append(text)
        answer: dict[str, Any] = json.loads(text)[1]
        return answer
