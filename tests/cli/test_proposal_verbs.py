"""`editctl proposal` and `editctl review`, as people and scripts use them, with questions on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from editd.config.pin import PinHash, hash_pin
from editd_client.cli import output
from editd_client.cli.proposal_text import marked_words
from editd_client.locate import current_actor
from support.reviewers import author_of
from support.workplace import replace, write

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from editd.wire.messages import AnyEdit
    from editd_client.client import Client
    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]

LINES = "".join(f"#{n}\n" for n in range(1, 31))
PIN = "1234"
SECONDS_MAX = 60.0


def pin_file(place: Workplace) -> Path:
    return place.folder / "config" / "editd" / "review.pin"


@pytest.fixture
def author(place: Workplace) -> Iterator[Client]:
    with author_of(place, {"a": LINES, "b": LINES}) as made:
        yield made


@pytest.fixture
def editctl(place: Workplace, author: Client) -> Run:
    assert author.status().state == "ready"

    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = place.editctl(*words)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


def on_terminal(
    place: Workplace, words: Sequence[str], answers: Sequence[tuple[str, str]], code: int = 0
) -> str:
    """Run `editctl` on a terminal; type each answer once its question is there. Return what it printed."""
    environment = {**place.environment, "TERM": "xterm", "PAGER": "cat"}
    editctl = place.provide_editctl() / "editctl"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.root)
        os.execve(editctl, [str(editctl), *words], environment)
    printed, until, seen = "", time.monotonic() + SECONDS_MAX, 0
    waiting = list(answers)
    while time.monotonic() < until:
        if waiting and waiting[0][0] in printed[seen:]:
            seen = printed.index(waiting[0][0], seen) + len(waiting[0][0])
            os.write(terminal, waiting.pop(0)[1].encode())
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # it has ended
            break
        printed += piece.decode("utf-8", "replace")
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == code, printed
    assert not waiting, printed
    return printed


def set_pin(place: Workplace) -> None:
    pin_file(place).parent.mkdir(parents=True, exist_ok=True)
    pin_file(place).write_bytes(msgspec.json.encode(hash_pin(PIN)))


def propose(author: Client) -> None:
    author.apply(
        [replace("a", "#5\n", "#five\n"), replace("a", "#20\n", "#twenty\n")], propose=True, message="Words"
    )


def test_an_edit_is_proposed_listed_and_shown(place: Workplace, author: Client, editctl: Run) -> None:
    made = editctl("replace", "a", "#5", "#five", "--propose", "-m", "Words")
    assert made.stdout == "[P1] waits for a reviewer (rule: request); nothing was changed\n M a\n"
    assert place.files()["a"].decode() == LINES
    assert re.fullmatch(
        r"P1 open \S+, \d+ seconds? ago: Words \(1 fits; \+1 -1\)\n", editctl("proposal", "list").stdout
    )
    shown = editctl("proposal", "show", "P1").stdout
    assert "M a\n  hunk 1\n@@ -2,7 +2,7 @@\n #2\n" in shown
    assert "-#5\n+#five\n" in shown
    document = json.loads(editctl("proposal", "show", "1", "--json").stdout)
    assert document["files"][0]["hunks"][0]["state"] == "fits"
    assert document["view"] in shown
    assert editctl("proposal", "list", "--state", "landed").stdout == "no proposals\n"


def test_each_verb_on_a_terminal(place: Workplace, author: Client, tmp_path: Path) -> None:
    """The questions, the marks and the colours, as a reviewer meets them one after the other."""
    set_pin(place)
    pin = ("PIN:", f"{PIN}\n")

    def on(*words: str, answers: Sequence[tuple[str, str]] = (), code: int = 0) -> str:
        printed = on_terminal(place, ["proposal", *words], answers, code)
        assert "\x1b[0m\x1b[0m" not in printed
        return printed.replace("\r\n", "\n")

    edits: list[AnyEdit] = [
        replace("a", "#5\n", "# 5 five\n"),
        replace("a", "#20\n", "#twenty\n"),
        write("n", "\u202ex\x1b\n"),
    ]
    author.apply(edits, propose=True, message="Words\n\nand a body")
    assert "\x1b[33mP1\x1b[0m \x1b[33mopen\x1b[0m \x1b[36mclaude in agent\x1b[0m" in on("list")
    shown = on("show", "1")
    assert "\x1b[1mM a\x1b[0m\n\x1b[1m  hunk 1\x1b[0m\n\x1b[36m@@ -2,7 +2,7 @@\x1b[0m\n #2\n" in shown
    words = on("show", "1", "--path", "a", "-U", "0")
    assert "\x1b[32m+#\x1b[7m \x1b[27m5\x1b[7m five\x1b[27m\x1b[0m\n" in words, words
    assert "\x1b[32m+\\u202ex\\x1b\x1b[0m\n" in shown
    assert "\n    Words\n    \n    and a body\n" in shown
    on("comment", "1", "why twenty?", "--hunk", "2")
    assert "dry run: nothing was changed" in on("approve", "1", "--dry-run")
    no = on("approve", "1", answers=[("Land this proposal? [y/N]:", "n\n")])
    assert no.endswith("Nothing was landed.\n")
    wrong = [("Land this proposal?", "y\n"), ("PIN:", "0000\n")]
    assert "not the PIN" in on("approve", "1", answers=wrong, code=1)
    assert place.files()["a"].decode() == LINES
    answers = [("(1/3) Land this hunk", "?\n"), ("(1/3)", "n\n"), ("(2/3)", "y\n"), ("(3/3)", "q\n"), pin]
    asked = on("approve", "1", "-i", answers=answers)
    assert "\x1b[31my - land this hunk\x1b[0m\n" in asked
    assert place.files()["a"].decode() == LINES.replace("#20\n", "#twenty\n")
    shown = on("show", "1")
    assert "\x1b[32m\x1b[1m✓ hunk 2 (landed)\x1b[0m\n" in shown
    assert f"\n{current_actor()} about hunk 2: why twenty?\n" in shown
    assert on("try", "1", "--", "wc", "-c", "n") == "6 n\n"
    on("checkout", "1", str(tmp_path / "copy"))
    assert (tmp_path / "copy" / "n").exists()
    rejected = on("reject", "1", "-m", "no", answers=[pin])
    assert "\x1b[33mP1\x1b[0m \x1b[36mpartly\x1b[0m" in rejected
    assert author.proposal_get(1).decisions[0].by.actor == current_actor()
    decided = on("approve", "1", code=1)
    assert "\x1b[31m\x1b[1meditctl: \x1b[0mP1 is partly." in decided
    assert "Land" not in decided
    assert "PIN" not in on("reject", "1", code=1)
    assert "P2" in on("reopen", "1")
    assert "Proposal 2 is not of this session." in on("withdraw", "2", code=1)
    assert "why twenty?" in on("wait", "1")


def test_a_draft_is_submitted_and_withdrawn_by_its_session(
    place: Workplace, author: Client, editctl: Run
) -> None:
    opened = editctl("session", "open", "d", "--draft").stdout
    place.variables |= dict(word.split("=", 1) for word in opened.split()[1:])
    said = editctl("replace", "a", "#5", "#five").stdout
    assert "[P1] is a draft; nothing was changed. `editctl proposal submit 1` opens it" in said
    editctl("replace", "a", "#five", "#V")
    assert "P1 is a draft." in editctl("proposal", "reject", "1", code=1).stderr
    assert "P1 open" in editctl("proposal", "submit", "1").stdout
    assert "+#V" in editctl("proposal", "show", "1").stdout
    assert "P1 withdrawn" in editctl("proposal", "withdraw", "1").stdout


def test_without_a_terminal_a_view_is_named_and_kin_are_refused(
    place: Workplace, author: Client, editctl: Run
) -> None:
    propose(author)
    assert "--view" in editctl("proposal", "approve", "1", code=2).stderr
    view = json.loads(editctl("proposal", "show", "1", "--json").stdout)["view"]
    refused = editctl("proposal", "approve", "1", "--view", view, code=1).stderr
    assert "only with the PIN" in refused
    assert "editctl review pin" in refused
    assert place.files()["a"].decode() == LINES


def test_a_hunk_or_a_proposal_that_is_not_there_is_refused(
    place: Workplace, author: Client, editctl: Run
) -> None:
    propose(author)
    assert "P1 open" in editctl("proposal", "wait", "1", "--timeout", "0", code=1).stdout
    assert "no hunk 9" in editctl("proposal", "comment", "1", "x", "--hunk", "9", code=1).stderr
    assert "not a proposal" in editctl("proposal", "show", "x", code=2).stderr


def test_a_command_is_tried_on_the_proposed_files(place: Workplace, author: Client, editctl: Run) -> None:
    propose(author)
    tried = editctl("proposal", "try", "1", "--", "sh", "-c", "grep -c five a; rm a; exit 3", code=3)
    assert tried.stdout == "1\n"
    assert place.files()["a"].decode() == LINES
    shown = editctl("proposal", "show", "1").stdout
    assert re.search(r"check sh -c .*: failed \(3\) in \d+\.\d s, as \S+ claims\n", shown)
    one = editctl("proposal", "try", "1", "--hunks", "2", "--", "grep", "-c", "five", "a", code=1)
    assert one.stdout == "0\n"
    shown = editctl("proposal", "show", "1").stdout
    assert re.search(r"check grep -c five a: failed \(1\) on hunk 2 in \d+\.\d s, as ", shown)


def test_an_edit_that_waits_for_a_check_says_so_and_then_that_it_has_landed(
    place: Workplace, author: Client, editctl: Run
) -> None:
    pin_file(place).parent.mkdir()
    (pin_file(place).parent / "config.toml").write_text(CHECKED)
    author.config_reload()
    waits = editctl("replace", "a", "#5", "#five").stdout
    assert "[P1] lands by itself once grep has passed (rule: tested); nothing was changed yet\n" in waits
    assert "waits for a reviewer" not in editctl("replace", "b", "#5", "#five", "--wait", "30").stdout
    assert b"#five" in place.files()["b"]
    editctl("proposal", "wait", "1")
    assert re.search(
        r"check grep: passed in \d+\.\d s, run by the daemon\n", editctl("proposal", "show", "1").stdout
    )
    assert author.proposal_list(state=["landed"]).proposals[0].lands_after == ["grep"]


CHECKED = """
[[review.check]]
name = "grep"
command = ["grep", "-rq", "five", "."]
[[review.rule]]
name = "tested"
paths = ["**"]
action = "land"
check = "grep"
"""


def test_a_copy_has_the_proposal(place: Workplace, author: Client, editctl: Run, tmp_path: Path) -> None:
    propose(author)
    editctl("proposal", "checkout", "1", str(tmp_path / "copy"))
    assert "#twenty" in (tmp_path / "copy" / "a").read_text()
    assert (tmp_path / "copy" / "b").read_text() == LINES
    assert "not empty" in editctl("proposal", "checkout", "1", str(tmp_path / "copy"), code=1).stderr


# ── the PIN, and grants ──


def test_a_pin_is_set_changed_and_removed(place: Workplace, author: Client, editctl: Run) -> None:
    new = [("New PIN:", "secret\n"), ("once more:", "secret\n")]
    assert "The PIN is set." in on_terminal(place, ["review", "pin"], new)
    kept = pin_file(place).read_bytes()
    assert b"secret" not in kept
    assert msgspec.json.decode(kept, type=PinHash).matches("secret")
    assert pin_file(place).stat().st_mode & 0o777 == 0o600
    wrong = on_terminal(place, ["review", "pin"], [("Present PIN:", "other\n")], code=1)
    assert "not the PIN" in wrong
    unlike = [("Present PIN:", "secret\n"), ("New PIN:", "12345\n"), ("once more:", "54321\n")]
    assert "not the same" in on_terminal(place, ["review", "pin"], unlike, code=1)
    on_terminal(place, ["review", "pin", "--remove"], [("Present PIN:", "secret\n")])
    assert not pin_file(place).exists()
    assert "needs a terminal" in editctl("review", "pin", code=1).stderr


def test_grants_are_made_listed_and_revoked(place: Workplace, author: Client, editctl: Run) -> None:
    assert (
        "grant 1, until"
        in editctl("review", "allow", "tests/**", "--for", "10m", "--of", "agent", "--lines", "9").stdout
    )
    listed = editctl("review", "grants").stdout
    assert re.fullmatch(r"1 tests/\*\* of agent, until [\d :-]+, 9 lines left, by \S+\n", listed)
    assert editctl("review", "revoke", "1").stdout == "grant 1 has ended\n"
    assert editctl("review", "grants").stdout == ""
    assert "duration" in editctl("review", "allow", "x", "--for", "soon", code=2).stderr


# ── the marks of words ──


def test_changed_words_are_marked_on_a_coloured_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    diff = "@@ -1 +1 @@\n-the old text\n+the new text\n"
    assert list(marked_words(diff)) == diff.splitlines()
    monkeypatch.setattr("editd_client.cli.output.is_coloured", lambda _stream: True)
    removed, added = (line.replace(output.MARK, "\x1b") for line in list(marked_words(diff))[1:3])
    assert "\x1b[7mold\x1b[27m" in removed
    assert "\x1b[7mnew\x1b[27m" in added
    assert "\x1b[7mthe" not in removed
