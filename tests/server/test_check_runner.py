"""Checks of proposals through the real socket: they run on each view, and a rule can wait for one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.runs.check_worker import requests_of
from editd.runs.reach import CommandReach
from editd.system.confinement import landlock_version
from editd.system.frames import read_frame, write_frame
from editd.wire import messages
from editd_client.errors import EditdError
from support.reach import HELD, REACH, SIGNAL, others_of
from support.reviewers import author_of, reviewer_of, set_pin
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

SECONDS_MAX = 30.0
LINES = "".join(f"{number}\n" for number in range(1, 31))
CHECK = """
[[review.check]]
name = "tests"
command = ["sh", "-c", "{script}"]
paths = ["**/*.txt"]
seconds = {seconds}
"""
RULE = """
[[review.rule]]
name = "when tested"
paths = ["**"]
action = "land"
check = "tests"
"""


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    with author_of(place, {"a.txt": LINES, "b.txt": LINES, "c.md": LINES}) as made:
        yield made


def configure(
    place: Workplace, client: Client | None, script: str, more: str = "", seconds: float = 20
) -> None:
    folder = Path(place.environment["XDG_CONFIG_HOME"]) / "editd"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CHECK.format(script=script, seconds=seconds) + more)
    if client is not None:
        client.config_reload()


def propose(client: Client, *edits: messages.AnyEdit, wish: bool = True) -> int:
    made = client.apply(list(edits), propose=True) if wish else client.apply(list(edits))
    assert made.transaction is None
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.proposal is not None
    return made.proposal.proposal


def checked(client: Client, number: int, times: int = 1) -> list[messages.CheckReport]:
    """Return the results of a proposal, once it has so many current ones."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        checks = client.proposal_get(number).checks
        if sum(one.is_current for one in checks) >= times:
            return checks
        time.sleep(0.05)
    raise AssertionError(f"no result: {client.proposal_get(number).checks}")


def wait_for(file: Path) -> str:
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        if file.exists() and file.read_text():
            return file.read_text()
        time.sleep(0.02)
    raise AssertionError(f"{file} was not written")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_for_end(pid: int) -> None:
    until = time.monotonic() + SECONDS_MAX
    while is_alive(pid):
        assert time.monotonic() < until, f"process {pid} still runs"
        time.sleep(0.02)


def test_a_check_sees_the_proposed_files_and_changes_nothing(place: Workplace, author: Client) -> None:
    configure(place, author, "grep -c five a.txt; cat c.md | head -1; echo x >b.txt; rm c.md; exit 3")
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
    (result,) = checked(author, number)
    assert (result.name, result.exit, result.output) == ("tests", 3, "1\n1\n")
    assert (result.by.actor, result.by.via) == ("editd", "rule")
    assert place.files() == {name: LINES.encode() for name in ("a.txt", "b.txt", "c.md")}
    assert os.listdir(place.state / "checks") == []


@pytest.mark.needs("/proc")
@pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
@pytest.mark.parametrize(
    ("keys", "outside", "network"),
    [
        ("writable = []", "PermissionError", "ConnectionRefusedError"),
        ("writable = []\nnetwork = true", "PermissionError", "done"),
        ("writable = ['OUTSIDE']", "done", "ConnectionRefusedError"),
        ("", "done", "done"),
    ],
)
def test_a_check_writes_and_connects_only_as_its_keys_say(
    place: Workplace, tmp_path: Path, keys: str, outside: str, network: str
) -> None:
    """The attack: proposed code, which nobody has approved, changes files of the user or sends them away."""
    folder = tmp_path / "of the user"
    folder.mkdir()
    (folder / "leased").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        command = json.dumps([sys.executable, "-I", "-c", REACH, port, str(folder)])
        text = (
            f'[[review.check]]\nname = "reach"\ncommand = {command}\n{keys.replace("OUTSIDE", str(folder))}\n'
        )
        config = Path(place.environment["XDG_CONFIG_HOME"]) / "editd"
        config.mkdir(parents=True, exist_ok=True)
        (config / "config.toml").write_text(text)
        with author_of(place, {"a.txt": LINES}) as author:
            number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
            (result,) = checked(author, number)
            weaker = [sentence for sentence in author.status().weaker if "'reach'" in sentence]
    unix = "PermissionError" if keys else "done"
    signal = SIGNAL if keys else "done"
    answers = json.loads(result.output)
    assert answers == HELD | others_of(answers, is_confined=bool(keys)) | {
        "outside": outside, "network": network, "unix": unix, "signal": signal
    }  # fmt: skip
    assert (folder / "by-hook").exists() is (outside == "done")
    assert bool(weaker) is (not keys), weaker
    assert place.files() == {"a.txt": LINES.encode()}


WITHOUT_OVERLAY = """
import editd.runs.check_worker as worker
def refuse(*_, **__):
    raise OSError(1, "no overlay")
worker.enter_overlay = refuse
worker.main()
"""


@pytest.mark.needs("/proc")
@pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
def test_a_check_in_a_copy_is_confined_as_well(tmp_path: Path) -> None:
    root, scratch, folder = tmp_path / "root", tmp_path / "scratch", tmp_path / "folder"
    for made in (root, scratch / "tmp", folder):
        made.mkdir(parents=True)
    (folder / "leased").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        command = [sys.executable, "-I", "-c", REACH, port, str(folder)]
        environment = {"TMPDIR": str(scratch / "tmp")}
        frames = requests_of(str(root), str(scratch), command, 20, environment, [], CommandReach())
        argv = [sys.executable, "-c", WITHOUT_OVERLAY]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            for frame in frames:
                write_frame(worker.stdin, frame)
            answer = read_frame(worker.stdout)
    assert answer is not None
    answers = json.loads(answer["output"])
    expected = HELD | others_of(answers, is_confined=True) | {
        "outside": "PermissionError", "network": "ConnectionRefusedError", "unix": "PermissionError",
        "signal": SIGNAL,
    }  # fmt: skip
    assert (answers, answer["unheld"]) == (expected, [])
    assert (os.listdir(folder), os.listdir(root)) == (["leased"], [])


def test_a_check_is_for_its_paths_and_its_subscribers_hear_of_it(place: Workplace, author: Client) -> None:
    configure(place, author, "true")
    with place.client() as other, other.subscribe(events=["proposal"]) as events:
        propose(author, replace("c.md", "\n5\n", "\nfive\n"))
        number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
        heard = [events.wait(SECONDS_MAX) for _ in range(3)]
    told = [(one.data["what"], one.data["proposal"]["proposal"]) for one in heard if one is not None]
    assert told == [("opened", 1), ("opened", number), ("checked", number)]
    assert author.proposal_get(1).checks == []


def test_a_result_is_struck_out_when_the_view_moves_and_the_check_runs_again(
    place: Workplace, author: Client
) -> None:
    configure(place, author, "grep -c twenty a.txt; true")
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
    (first,) = checked(author, number)
    place.write({"a.txt": LINES.replace("\n20\n", "\ntwenty\n")})
    author.settle()
    assert author.proposal_get(number).view != first.view
    (second,) = checked(author, number)
    assert (first.output, second.output) == ("0\n", "1\n")
    assert second.view == author.proposal_get(number).view


def test_an_edit_lands_by_itself_once_its_check_has_passed(place: Workplace, author: Client) -> None:
    configure(place, author, "grep -q five a.txt", RULE)
    made = author.apply([replace("a.txt", "\n5\n", "\nfive\n")], wait=SECONDS_MAX)
    assert made.transaction is not None
    assert made.transaction.approved_by == messages.ApprovedBy(rule="when tested")
    assert isinstance(made.proposal, messages.ProposedResult)
    assert (made.proposal.state, made.proposal.lands_after) == ("landed", ["tests"])
    assert b"five" in place.files()["a.txt"]
    (decision,) = author.proposal_get(1).decisions
    assert (decision.by.actor, decision.by.via, decision.seq) == ("when tested", "rule", 1)


def test_after_a_failed_check_a_reviewer_decides(place: Workplace, author: Client) -> None:
    configure(place, author, "exit 1", RULE)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"), wish=False)
    checked(author, number)
    waited = author.proposal_wait(number, timeout=1)
    assert waited.state == "open"
    assert place.files()["a.txt"] == LINES.encode()


def test_a_claim_of_the_author_satisfies_no_rule(place: Workplace, author: Client) -> None:
    configure(place, author, "exit 1", RULE)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"), wish=False)
    checked(author, number)
    author.proposal_check(number, author.proposal_get(number).view, "tests", exit=0, seconds=1, output="")
    assert author.proposal_wait(number, timeout=1).state == "open"
    own, claim = checked(author, number, 2)
    assert (own.by.via, claim.by.via) == ("rule", "socket")
    assert (own.exit, claim.exit) == (1, 0)


@pytest.mark.parametrize("wish", [True, False])
def test_what_asks_for_a_reviewer_does_not_land_by_a_check(
    place: Workplace, author: Client, wish: bool
) -> None:
    """A wish of the request, and a rule that asks about another path of the same edit."""
    ask = '[[review.rule]]\nname = "docs"\npaths = ["*.md"]\naction = "ask"\n' + RULE
    configure(place, author, "true", ask)
    edits = [replace("a.txt", "\n5\n", "\nfive\n")]
    if not wish:
        edits.append(replace("c.md", "\n5\n", "\nfive\n"))
    number = propose(author, *edits, wish=wish)
    checked(author, number)
    assert author.proposal_wait(number, timeout=1).state == "open"
    assert author.proposal_get(number).lands_after == []


def test_a_run_on_an_earlier_view_ends_and_decides_nothing(
    place: Workplace, author: Client, tmp_path: Path
) -> None:
    """The first run would pass. Before it ends, somebody changes the file, and the second one fails."""
    note = tmp_path / "pid"
    script = f"if grep -q twenty a.txt; then exit 1; fi; echo $$ >{note}; sleep 600"
    configure(place, author, script, RULE, seconds=600)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"), wish=False)
    first = int(wait_for(note))
    place.write({"a.txt": LINES.replace("\n20\n", "\ntwenty\n")})
    author.settle()
    (result,) = checked(author, number)
    assert result.exit == 1
    assert not is_alive(first)
    assert author.proposal_wait(number, timeout=0.5).state == "open"


def test_a_check_has_a_time_limit(place: Workplace, author: Client, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ >{note}; sleep 60' & echo begun; sleep 60"
    configure(place, author, script, RULE, seconds=1.5)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"), wish=False)
    (result,) = checked(author, number)
    assert (result.exit, result.output) == (124, "begun\n\nIt was still running after 1.5 s.\n")
    wait_for_end(int(wait_for(note)))


def test_a_check_that_stops_its_worker_is_ended_with_all_its_processes(
    place: Workplace, author: Client, tmp_path: Path
) -> None:
    """The attack: a stopped worker cannot kill, and the kernel kills only the command itself with it."""
    note = tmp_path / "pid"
    script = f"setsid sh -c 'echo $$ >{note}; exec sleep 600' & kill -STOP $PPID; sleep 600"
    configure(place, author, script, seconds=600)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
    left = int(wait_for(note))
    author.proposal_withdraw(number)
    wait_for_end(left)


def test_a_check_that_leaves_a_link_to_a_folder_has_its_result_and_leaves_nothing(
    place: Workplace, author: Client
) -> None:
    configure(place, author, "mkdir kept; ln -s kept one; ln -s / two; exit 3")
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
    (result,) = checked(author, number)
    assert (result.exit, result.output) == (3, "")
    assert os.listdir(place.state / "checks") == []


def test_a_daemon_starts_after_a_kill_that_left_a_link_to_a_folder(place: Workplace) -> None:
    with place.start():
        place.kill()
    left = place.state / "checks" / "left"
    left.mkdir(parents=True)
    (left / "link").symlink_to("/")
    with place.start() as client:
        assert client.check().ok
    assert not left.exists()


@pytest.mark.parametrize("ends", ["stop", "kill"])
def test_no_check_is_left_when_the_daemon_ends_and_the_next_one_runs_it(
    place: Workplace, author: Client, tmp_path: Path, ends: str
) -> None:
    note = tmp_path / "pid"
    configure(place, author, f"echo $$ >{note}; sleep 60", RULE)
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"), wish=False)
    left = int(wait_for(note))
    getattr(place, ends)()
    wait_for_end(left)
    configure(place, None, "grep -q five a.txt", RULE)
    with place.start() as client:
        assert client.proposal_wait(number, timeout=SECONDS_MAX).state == "landed"
        assert os.listdir(place.state / "checks") == []


def test_two_checks_run_at_once_and_the_others_wait_for_their_turn(
    place: Workplace, author: Client, tmp_path: Path
) -> None:
    """Each run notes its begin and its end; there are never three begun and not ended."""
    note, gate = tmp_path / "runs", tmp_path / "gate"
    script = f"echo + >>{note}; while [ ! -e {gate} ]; do sleep 0.02; done; sleep 0.1; echo - >>{note}"
    configure(place, author, script)
    numbers = [propose(author, write(f"{name}.txt", name)) for name in "wxyz"]
    until = time.monotonic() + SECONDS_MAX
    under_way: list[messages.RunningCheck] = []
    while len(under_way) < len(numbers) or sum(one.seconds is not None for one in under_way) < 2:
        assert time.monotonic() < until, under_way
        time.sleep(0.05)
        under_way = [one for number in numbers for one in author.proposal_get(number).running]
    assert {one.name for one in under_way} == {"tests"}
    assert sum(one.seconds is None for one in under_way) == 2
    gate.touch()
    for number in numbers:
        checked(author, number)
        assert author.proposal_get(number).running == []
    running = most = 0
    for sign in note.read_text().split():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert (most, running) == (2, 0)


def test_a_reviewers_decision_about_a_part_ends_the_rule(place: Workplace, author: Client) -> None:
    configure(place, author, "exit 1", RULE)
    number = propose(
        author, replace("a.txt", "\n5\n", "\nfive\n"), replace("a.txt", "\n20\n", "\ntwenty\n"), wish=False
    )
    checked(author, number)
    shown = author.proposal_get(number)
    set_pin(place)
    with reviewer_of(place) as ann:
        ann.proposal_reject(number, hunks=[shown.files[0].hunks[0].hunk])
    configure(place, author, "true", RULE)
    until = time.monotonic() + SECONDS_MAX
    while checked(author, number)[0].exit != 0:
        assert time.monotonic() < until
    assert author.proposal_wait(number, timeout=1).state == "open"


def test_proposed_code_may_not_decide(place: Workplace, author: Client, tmp_path: Path) -> None:
    """A check that approves the proposal that it runs on, as code of an agent might try."""
    note = tmp_path / "said"
    (tmp_path / "approve.py").write_text(APPROVE.format(socket=place.socket, note=str(note)))
    python = os.environ.get("PYTHON", "python3")
    configure(place, author, f"{python} {tmp_path}/approve.py")
    number = propose(author, replace("a.txt", "\n5\n", "\nfive\n"))
    assert "the daemon has started this program" in wait_for(note)
    assert author.proposal_get(number).state == "open"


APPROVE = """
import json, socket
stream = socket.socket(socket.AF_UNIX)
stream.connect({socket!r})
file = stream.makefile("rw")
def ask(method, **params):
    file.write(json.dumps(dict(jsonrpc="2.0", id=1, method=method, params=params)) + "\\n")
    file.flush()
    return json.loads(file.readline())
view = ask("proposal.get", proposal=1)["result"]["view"]
open({note!r}, "w").write(json.dumps(ask("proposal.approve", proposal=1, view=view)))
"""


def test_a_rule_for_a_check_that_is_not_there_is_refused(place: Workplace, author: Client) -> None:
    with pytest.raises(EditdError, match=r"there is no review\.check 'test'"):
        configure(place, author, "true", RULE.replace('"tests"', '"test"'))
