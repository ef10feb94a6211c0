"""`editctl log` and `show`: filters, ranges, formats and how they look on a terminal."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import pytest

from editd_client.cli import options, output
from editd_client.cli.contents import stats_of
from editd_client.cli.undo import parse_moment
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]


@contextlib.contextmanager
def history(place: Workplace) -> Iterator[Client]:
    """Run a daemon with three edits."""
    place.write({"a": "one\ntwo\n", "src/b": "one\n"})
    with place.start() as client:
        client.apply([write("a", "uno\ntwo\nthree\n")], actor="ann", session="s1", message="First: timeout")
        client.apply([replace("src/b", "one", "1"), replace("a", "two", "2")], actor="bob", session="s2")
        client.apply([write("c", "c\n")], actor="cid", message="Third: time-out")
        yield client


def runner(place: Workplace) -> Run:
    def run(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = place.editctl(*words)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """For the tests that change the history."""
    with history(place) as made:
        yield made


@pytest.fixture
def editctl(place: Workplace, client: Client) -> Run:
    assert client.status().state == "ready"
    return runner(place)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """One daemon for all tests that only read."""
    with workplace(tmp_path_factory.mktemp("log") / "place") as place, history(place):
        yield place


@pytest.fixture
def reader(shared: Workplace) -> Run:
    return runner(shared)


def seqs(done: subprocess.CompletedProcess[str]) -> list[int]:
    return [int(line.split()[0]) for line in done.stdout.splitlines()]


def test_work_that_nobody_has_reviewed_and_refused_edits_are_listed(editctl: Run, client: Client) -> None:
    assert seqs(editctl("log", "--oneline", "--unreviewed")) == [2, 1]
    assert editctl("review", "mark", "1..3").stdout == "3 marked as reviewed\n"
    assert editctl("log", "--unreviewed", "--oneline").stdout == ""
    assert editctl("review", "mark", "--unmark", "--of", "s2").stdout == "1 unmarked\n"
    assert seqs(editctl("log", "--oneline", "--unreviewed")) == [2]
    assert editctl("review", "mark", "--of", "s1", "--of", "s2").stdout == "1 marked as reviewed\n"
    assert "Name the transactions" in editctl("review", "mark", code=2).stderr
    editctl("replace", "a", "absent", "x", "--actor", "ann", code=1)
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d  refused apply by ann, a: .+\n",
        editctl("log", "--refused").stdout,
    )
    assert editctl("log", "--refused", "--of", "s1").stdout == ""


def test_a_repeated_filter_takes_each_of_its_values(reader: Run) -> None:
    """It kept the last value, and said nothing."""
    assert seqs(reader("log", "--oneline", "--actor", "ann", "--actor", "cid")) == [3, 1]
    assert seqs(reader("log", "--oneline", "--kind", "edit", "--kind", "baseline")) == [3, 2, 1, 0]
    assert seqs(reader("log", "--oneline", "--of", "s1", "--of", "s2")) == [2, 1]
    assert seqs(reader("log", "--oneline", "--session", "s1", "--session", "s2")) == [2, 1]
    assert seqs(reader("log", "--oneline", "c", "src")) == [3, 2]


def test_a_number_is_a_limit_as_in_git(reader: Run) -> None:
    assert seqs(reader("log", "--oneline", "-2")) == [3, 2]


def test_grep_matches_messages_by_a_regular_expression(reader: Run) -> None:
    assert seqs(reader("log", "--oneline", "--grep", "time-?out")) == [3, 1]
    assert seqs(reader("log", "--oneline", "--grep", "time-?out", "-1")) == [3]
    assert json.loads(reader("log", "--json", "--grep", "^First").stdout)["transactions"][0]["seq"] == 1
    assert "is not a regular expression" in reader("log", "--grep", "(", code=2).stderr


def test_format_prints_a_line_of_its_fields(reader: Run) -> None:
    told = reader("log", "-2", "--format", r"{seq:>3}\t{actor} {subject}|{files}").stdout
    assert told == "  3\tcid Third: time-out|c\n  2\tbob |a src/b\n"
    assert "The fields are seq, id," in reader("log", "--format", "{sequence}", code=2).stderr


def test_stat_counts_lines_as_git_does(reader: Run) -> None:
    told = reader("log", "-2", "--oneline", "--stat").stdout
    assert " c | 1 +\n 1 file changed, 1 insertion(+)\n" in told
    assert " a     | 2 +-\n src/b | 2 +-\n 2 files changed, 2 insertions(+), 2 deletions(-)\n" in told
    assert "2 files changed" in reader("show", "2", "--stat").stdout


def test_show_takes_a_range_both_ends_included(reader: Run) -> None:
    told = reader("show", "2..3").stdout
    assert re.findall(r"^transaction (\d+)", told, re.MULTILINE) == ["2", "3"]
    assert len(reader("show", "1..3", "--json").stdout.splitlines()) == 3
    assert "is empty" in reader("show", "3..2", code=2).stderr


def test_an_undo_in_part_is_marked(editctl: Run) -> None:
    editctl("undo", "2", "--path", "a")
    assert "2 " in editctl("log", "--oneline").stdout
    assert "edit by bob in s2, undone in part by 4" in editctl("log", "--oneline").stdout
    assert re.search(
        r"^4 \w+ undo by \w+, of 2 in part$", editctl("log", "-1", "--oneline").stdout, re.MULTILINE
    )
    shown = editctl("show", "2").stdout
    assert " M a (undone by 4)\n M src/b\n" in shown


def test_on_a_terminal_times_are_relative_and_columns_aligned(reader: Run, shared: Workplace) -> None:
    reader("settle")

    def lines(words: str) -> list[str]:
        told = subprocess.run(
            ["script", "-qec", f"{shared.provide_editctl()}/editctl {words}", "/dev/null"],
            cwd=shared.root, env={**shared.environment, "TERM": "dumb", "PAGER": "cat"},
            stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
        ).stdout.decode()  # fmt: skip
        return told.replace("\r\n", "\n").splitlines()

    rows = [line for line in lines("log --oneline") if re.match(r"\d ", line)]
    assert all(re.match(r"\d [0-9a-f]{7}  \d+ \w+ ago ", row) for row in rows), rows
    assert (
        len({row.index(word) for row, word in zip(rows, ("edit", "edit", "edit", "base"), strict=True)}) == 1
    )
    assert rows[0].index("Third") == rows[2].index("First")
    assert any(re.search(r"edit by cid, \d+ \w+ ago \(", line) for line in lines("log -1"))


def test_a_session_is_accepted_before_and_after_the_verb(editctl: Run) -> None:
    editctl("--session", "before", "replace", "a", "uno", "eins")
    editctl("replace", "a", "eins", "un", "--session", "after")
    told = json.loads(editctl("log", "--json", "-2").stdout)["transactions"]
    assert [one["session"] for one in told] == ["after", "before"]
    assert "names two sessions" in editctl("--session", "x", "rm", "a", "--session", "y", code=2).stderr
    editctl("status", "--session", "after")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2 hours ago", 7200), ("90s", 90), ("5 minutes", 300), ("3 days ago", 259200), ("1 week ago", 604800),
     ("2 months ago", 5184000), ("1h ago", 3600), ("1y", 31536000), ("now", 0)],
)  # fmt: skip
def test_a_time_may_be_given_as_git_takes_it(text: str, seconds: int) -> None:
    given = datetime.fromisoformat(options.parse_time(text))
    assert abs((datetime.now(UTC) - given).total_seconds() - seconds) < 5


def test_a_day_begins_at_midnight_of_the_users_zone() -> None:
    def local(text: str) -> datetime:
        return datetime.fromisoformat(options.parse_time(text)).astimezone()

    today = datetime.now(UTC).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    assert local("today") == today
    assert local("yesterday").date() == (today - timedelta(days=1)).date()
    assert (local("yesterday").hour, local("yesterday 14:30").hour, local("9:05").minute) == (0, 14, 5)
    assert parse_moment("yesterday") == options.parse_time("yesterday")
    assert (parse_moment("12"), parse_moment("abcd")) == (12, "abcd")
    for wrong in ("", "tomorrow", "25:99"):
        with pytest.raises(click.BadParameter, match="is not a time"):
            options.parse_time(wrong)


def test_an_age_has_the_largest_unit_of_which_there_are_two() -> None:
    def age(**ago: float) -> str:
        return output.age((datetime.now(UTC) - timedelta(**ago)).isoformat())

    assert age(seconds=1.5) == "1 second ago"
    assert age(seconds=119) == "119 seconds ago"
    assert age(minutes=119) == "119 minutes ago"
    assert age(hours=47.5) == "47 hours ago"
    assert age(days=13.5) == "13 days ago"
    assert age(days=30) == "4 weeks ago"
    assert age(days=800) == "2 years ago"


def test_a_line_that_looks_like_a_header_counts_as_content() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- old\n+++ new\n diff --git\n"
    (stat,) = stats_of(diff)
    assert (stat.name, stat.added, stat.removed) == ("x", 1, 1)


def test_a_text_is_searched_in_the_changes_and_not_in_the_messages(editctl: Run, client: Client) -> None:
    assert seqs(editctl("log", "--oneline", "-S", "three")) == [1]
    assert seqs(editctl("log", "--oneline", "-S", "2")) == [2]
    assert seqs(editctl("log", "--oneline", "-S", "uno\ntwo")) == [2, 1], "over lines"
    assert seqs(editctl("log", "--oneline", "-S", "timeout")) == []
    assert seqs(editctl("log", "--oneline", "-S", "1", "--actor", "ann")) == []
    client.undo(1, on_conflict="force")
    assert seqs(editctl("log", "--oneline", "-S", "three", "-1")) == [4]


def test_blame_of_some_lines(reader: Run) -> None:
    def numbers(*words: str) -> list[str]:
        return re.findall(r" (\d+)\) ", reader("blame", *words, "a").stdout)

    assert numbers("-L", "2,3") == ["2", "3"]
    assert numbers("-L", "2,+1") == ["2"]
    assert numbers("-L", "2") == ["2", "3"]
    assert numbers("-L", ",1") == ["1"]
    lines = json.loads(reader("blame", "--json", "-L", "3,3", "a").stdout)["lines"]
    assert [line["line"] for line in lines] == [3]
    for wrong in ("x", "0", "3,2", ",", "9,12"):
        assert "-L" in reader("blame", "-L", wrong, "a", code=2).stderr


def test_a_line_of_the_log_is_no_wider_than_the_terminal(
    client: Client, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.apply([write("d", "d\n")], actor="ann", message="A very long message, " * 20)
    transactions = client.log().transactions
    monkeypatch.setenv("NO_COLOR", "1")
    for width in (40, 60):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = list(output.columns(transactions))
        assert max(map(len, lines)) == width
        assert lines[0].endswith("…")
        assert re.search("edit by ann +A very", lines[0])


def test_a_binary_change_is_told_by_its_sizes(editctl: Run, client: Client, place: Workplace) -> None:
    for old in (b"", b"\0" * 120, bytes(range(256)) * 40):
        for content in (b"\0first", old, old + b"\0x"):
            (place.root / "picture").write_bytes(content)
            client.settle()
        shown = editctl("show", "--stat").stdout
        assert f"picture | binary, {len(old):,} → {len(old) + 2:,} bytes" in shown
    place.write({"picture": b"\0last", "text": "1\n"})
    client.settle()
    lines = editctl("show", "--stat").stdout.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["picture", "text", "2"]
