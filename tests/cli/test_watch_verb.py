"""`editctl watch` with diffs, counts and commands, through the real command and the real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.pseudo_terminal import PseudoTerminal
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

    Watch = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    place.write({"a": "one\n", "b": "one\n"})
    place.variables["EDITD_WORKSPACE"] = str(place.root)
    with place.start() as client:
        yield client


@pytest.fixture
def watch(place: Workplace, client: Client) -> Iterator[Watch]:
    """Starts `editctl watch --since 0`, and kills it at the end."""
    client.settle()
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [place.provide_editctl() / "editctl", "watch", "--since", "0", *words],
                cwd=place.root, env=place.environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield start


def lines(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def test_a_transaction_is_printed_with_its_counts_and_its_diff(client: Client, watch: Watch) -> None:
    client.apply([replace("a", "one", "1")], actor="ann", message="Digits")
    subject, stat, total, *diff = lines(watch("--stat", "-p"), 10)
    assert subject.endswith("edit by ann: Digits")
    assert stat.split() == ["a", "|", "2", "+-"]
    assert total.split()[:3] == ["1", "file", "changed,"]
    assert diff[0] == "diff --git a/a b/a"
    assert diff[-2:] == ["-one", "+1"]


def test_on_a_terminal_a_line_has_the_time_the_files_and_the_counts(client: Client, place: Workplace) -> None:
    client.settle()
    client.apply([replace("a", "one", "1")], actor="ann", message="Digits")
    client.apply([replace("b", "one", "1\n2"), write("c", "x\n")], actor="ann", message="More")
    client.undo()
    client.apply([write("d", "x\n")], actor="ann")
    argv = [str(place.provide_editctl() / "editctl"), "watch", "--since", "0"]
    with PseudoTerminal(argv, (100, 20), folder=str(place.root), environment=place.environment) as terminal:
        terminal.until(r"edit by ann: d  \+1 -0")
        rows = [line.strip() for line in terminal.text().decode().splitlines()]
    assert all(re.match(r"\d\d:\d\d:\d\d  \d ", row) for row in rows)
    ends = [row.partition(" by ")[2] for row in rows]
    assert ends[:2] == ["ann: Digits  a  +1 -1", "ann, undone by 3: More  2 files  +3 -1"]
    assert ends[2].endswith(", of 2  2 files  +1 -3")


def test_a_refused_edit_is_printed(client: Client, watch: Watch) -> None:
    process = watch("a", "--of", "s")
    client.apply([replace("a", "one", "1")], session="other")
    client.apply([replace("a", "1", "2")], session="s", message="First")
    assert lines(process, 1)[0].endswith(": First")
    for session in ("other", "s"):
        with pytest.raises(EditdError):
            client.apply([replace("a", "absent", "x")], actor="ann", session=session)
    assert lines(process, 1)[0].startswith("refused apply by ann in s, a: ")


def test_a_command_runs_on_each_transaction_in_order_and_a_failure_does_not_end_the_watch(
    client: Client, watch: Watch, tmp_path: Path
) -> None:
    client.apply([replace("a", "one", "1")], message="First")
    client.apply([replace("b", "one", "1")], message="Not watched")
    client.apply([replace("a", "1", "2")], message="Second")
    events = tmp_path / "events"
    process = watch("a", "--exec", f'cat >> "{events}"; echo ran $EDITD_SEQ; [ $EDITD_SEQ != 1 ]')
    first, ran_first, second, ran_second = lines(process, 4)
    assert first.endswith(": First")
    assert second.endswith(": Second")
    assert [ran_first, ran_second] == ["ran 1", "ran 3"]
    assert process.stderr is not None
    assert process.stderr.readline() == "editctl: the command for transaction 1 failed (exit status 1)\n"
    messages = [json.loads(event)["transaction"]["message"] for event in events.read_text().splitlines()]
    assert messages == ["First", "Second"]


def test_a_slow_command_misses_no_transaction(client: Client, watch: Watch, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    client.apply([replace("a", "one", "0")])
    process = watch("--json", "--exec", f'[ $EDITD_SEQ != 1 ] || read line < "{gate}"; echo $EDITD_SEQ')
    lines(process, 1)
    for number in range(100):
        client.apply([write("a", f"line {number}\n")], message="much text " * 6000)
    gate.write_text("go on\n")
    assert [int(line) for line in lines(process, 201)[::2]] == list(range(1, 102))


def test_events_and_diffs_cannot_be_mixed(place: Workplace, client: Client) -> None:
    client.settle()
    refused = place.editctl("watch", "--json", "-p")
    assert refused.returncode == 2
    assert "--json prints events" in refused.stderr
