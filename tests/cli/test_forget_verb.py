"""`editctl forget`, as people and scripts use it."""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import TYPE_CHECKING

import pytest

from support.pseudo_terminal import PseudoTerminal
from support.state_search import holders
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

TRIES = 20


@pytest.fixture
def secret(place: Workplace) -> str:
    text = f'it\'s "{secrets.token_hex(16)}" ü'
    place.git("init", "-q")
    with place.start() as client:
        client.apply([write("app.conf", f"password = {text}\n")])
        client.apply([write("app.conf", "password = $PASSWORD\n")])
    return text


def test_a_secret_from_standard_input_is_forgotten_and_named(place: Workplace, secret: str) -> None:
    planned = place.editctl("forget", "--text", "-", "--dry-run", stdin=f"{secret}\n")
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "1 content would be forgotten" in planned.stdout
    assert "app.conf  in 1, 2" in planned.stdout
    assert holders(place.state, secret.encode()) != []
    done = place.editctl("forget", "--text", "-", "--yes", stdin=f"{secret}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 content forgotten" in done.stdout
    assert "none has them" in done.stdout
    assert secret not in planned.stdout + done.stdout
    assert holders(place.state, secret.encode()) == []
    shown = place.editctl("show", "1").stdout
    assert "was forgotten at" in shown
    assert "was forgotten at" in place.editctl("log", "-1", "--before", "2").stdout
    refused = place.editctl("undo", "2")
    assert (refused.returncode, "was forgotten at" in refused.stderr) == (1, True)


def test_paths_are_relative_to_the_current_folder_and_json_has_the_protocols_result(
    place: Workplace, secret: str
) -> None:
    (place.root / "sub").mkdir()
    done = place.editctl("forget", "../app.conf", "--yes", "--json", folder="sub")
    result = json.loads(done.stdout)
    assert (result["kept"], result["remaining"], len(result["removed"])) == (["app.conf"], [], 1)
    assert holders(place.state, secret.encode()) == []


def test_what_stays_is_named_with_an_exit_code_of_its_own(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a.txt", "x\n")], message="the key is swordfish")
    done = place.editctl("forget", "--text", "-", "--yes", stdin="swordfish")
    assert done.returncode == 4
    assert "still has the message of transaction 1." in done.stdout


WRONG: dict[tuple[str, ...], str] = {
    (): "Give just one: ",
    ("a.txt", "--matching", "*"): "Give just one: ",
    ("a.txt",): "asks on a terminal first",
    ("--text", "swordfish", "--yes"): "'swordfish' is not '-'",
}


def test_wrong_usage_is_refused_before_anything_is_removed(place: Workplace) -> None:
    place.start().close()
    for words, reason in WRONG.items():
        done = place.editctl("forget", *words)
        assert done.returncode == 2, words
        assert reason in done.stderr


def test_on_a_terminal_it_shows_the_contents_and_asks(place: Workplace, secret: str) -> None:
    argv = [str(place.provide_editctl() / "editctl"), "forget", "app.conf"]
    for answer, is_gone in (("n\n", False), ("y\n", True)):
        with PseudoTerminal(
            argv, (100, 30), folder=str(place.root), environment=place.environment
        ) as terminal:
            terminal.until("Forget them for good")
            assert b"1 content would be forgotten" in terminal.text()
            terminal.send(answer)
            assert terminal.process.wait(30) == (0 if is_gone else 1)
        assert (holders(place.state, secret.encode()) == []) is is_gone


def test_the_step_is_shown_and_a_replaced_file_that_a_program_holds_open_is_named(
    place: Workplace, secret: str
) -> None:
    argv = [str(place.provide_editctl() / "editctl"), "forget", "app.conf", "--yes"]
    with (
        place.client() as client,
        held_replaced_file(place, client, secret) as name,
        PseudoTerminal(argv, (100, 30), folder=str(place.root), environment=place.environment) as terminal,
    ):
        terminal.until("forgetting: journal and databases")
        terminal.until(f"replaced/{name} still has")
        assert terminal.process.wait(30) == 4
    assert "none has them" in place.editctl("forget", "app.conf", "--yes").stdout
    assert holders(place.state, secret.encode()) == []


@contextlib.contextmanager
def held_replaced_file(place: Workplace, client: Client, secret: str) -> Iterator[str]:
    """Hold a replaced file with the secret open for writing; yield its name."""
    for number in range(TRIES):
        client.apply([write("app.conf", f"password = {secret} {number}\n")])
        client.apply([write("app.conf", f"password = $PASSWORD {number}\n")])
        for path in (place.state / "replaced").iterdir():
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                if secret.encode() in file.read() and path.exists():
                    yield path.name
                    return
    raise AssertionError(f"each of {TRIES} replaced files was emptied at once")


def test_the_prompts_of_a_session_are_forgotten(place: Workplace) -> None:
    with place.start() as client:
        client.hello("codex")
        client.turn_begin("talk", session="codex-1", prompt="why the walrus sings")
    planned = place.editctl("forget", "--prompts", "codex-1", "--dry-run")
    assert (planned.returncode, planned.stdout) == (0, "1 prompt would be forgotten\n")
    assert holders(place.state, b"walrus") != []
    assert place.editctl("forget", "--prompts", "codex-1").returncode == 2, "it asks on a terminal only"
    done = place.editctl("forget", "--prompts", "codex-1", "--yes")
    assert (done.returncode, done.stdout) == (0, "1 prompt forgotten\n")
    assert holders(place.state, b"walrus") == []
    unknown = place.editctl("forget", "--prompts", "nobody", "--yes")
    assert (unknown.returncode, "No turn of the session" in unknown.stderr) == (1, True)
    both = place.editctl("forget", "a.txt", "--prompts", "codex-1")
    assert both.returncode == 2
