"""`editctl show --hunks`, `undo --hunk` and `undo -i`, the last on a terminal of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Delete
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

    Run = Callable[..., subprocess.CompletedProcess[str]]
    Choose = Callable[..., str]

LINES = "".join(f"#{n}\n" for n in range(1, 31))
END = b"\x04"  # Ctrl-D
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    place.write({"a": LINES, "src/b": LINES, "gone": "G\n"})
    with place.start() as client:
        client.settle()
        yield client


@pytest.fixture
def editctl(place: Workplace, client: Client) -> Run:
    def run(*words: str, code: int = 0, folder: str = "") -> subprocess.CompletedProcess[str]:
        done = place.editctl("-C", str(place.root), *words, folder=folder)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


@pytest.fixture
def choose(place: Workplace, client: Client) -> Choose:
    """Run `editctl undo WORDS` on a terminal, type the keys, and return what it printed.

    After the keys the input ends, or with `is_interrupted` SIGINT comes.
    """

    def run(*words: str, keys: str, code: int = 0, is_interrupted: bool = False) -> str:
        ours, theirs = os.openpty()
        with subprocess.Popen(
            _argv(place, "undo", *words), cwd=place.root, env={**place.environment, "TERM": "xterm"},
            stdin=theirs, stdout=theirs, stderr=theirs,
        ) as process:  # fmt: skip
            os.close(theirs)
            os.write(ours, "".join(f"{key}\n" for key in keys).encode() + (b"" if is_interrupted else END))
            shown = b""
            while True:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # EIO: the other end is closed
                    break
                if is_interrupted and shown.count(b"]? ") > len(keys):
                    process.send_signal(signal.SIGINT)
                    is_interrupted = False
        os.close(ours)
        printed = COLOUR.sub("", shown.decode().replace("\r\n", "\n"))
        assert process.returncode == code, printed
        return printed

    return run


def _argv(place: Workplace, *words: str) -> list[str]:
    return [str(place.provide_editctl() / "editctl"), "-C", str(place.root), *words]


def change(client: Client, *edits: object) -> int:
    made = client.apply(list(edits)).transaction  # type: ignore[arg-type]
    assert made is not None
    return made.seq


def six_hunks(client: Client) -> int:
    """Change the lines 5, 15 and 25 of two files."""
    edits = [replace(path, f"#{n}\n", f"new {n}\n") for path in ("a", "src/b") for n in (5, 15, 25)]
    return change(client, *edits)


def new(place: Workplace) -> list[str]:
    """Return each line of `six_hunks` that nobody has undone, as PATH:LINE."""
    return [
        f"{path}:{number}"
        for path in ("a", "src/b")
        for number, line in enumerate((place.root / path).read_text().splitlines(), 1)
        if line == f"new {number}"
    ]


# ── By name ────────────────────────────────────────────────────────────────────────────────────


def test_show_names_each_hunk_as_undo_takes_it_from_the_same_folder(
    editctl: Run, client: Client, place: Workplace
) -> None:
    seq = six_hunks(client)
    shown = editctl("show", str(seq), "--hunks", folder="src").stdout
    assert "\nb:2\n@@ -12,7 +12,7 @@\n #12\n #13\n #14\n-#15\n+new 15\n #16\n" in shown
    names = re.findall(r"(?m)^\S+:\d+$", shown)
    assert names == ["../a:1", "../a:2", "../a:3", "b:1", "b:2", "b:3"]
    done = editctl("undo", str(seq), "--hunk", "../a:2", "--hunk", "b:3,1", folder="src")
    assert done.stdout.splitlines()[1:] == [" M a", " M src/b"]
    assert new(place) == ["a:5", "a:25", "src/b:15"]


def test_show_lists_the_files_that_are_undone_only_as_a_whole(editctl: Run, client: Client) -> None:
    seq = change(client, replace("a", "#5\n", "five\n"), write("new", "N\n"))
    shown = editctl("show", str(seq), "--hunks").stdout
    assert shown.endswith("without hunks, for --path:\n A new\n")


def test_show_gives_the_hunks_as_json(editctl: Run, client: Client) -> None:
    seq = six_hunks(client)
    document = json.loads(editctl("show", str(seq), "--hunks", "--json").stdout)
    assert [(hunk["path"], hunk["hunk"]) for hunk in document["hunks"]][:2] == [("a", 1), ("a", 2)]
    assert document["hunks"][0]["diff"].startswith("@@ -2,7 +2,7 @@\n")


def test_hunks_and_paths_go_together(editctl: Run, client: Client, place: Workplace) -> None:
    seq = six_hunks(client)
    editctl("undo", str(seq), "--hunk", "a:1", "--path", "src", "-m", "Only the first")
    assert new(place) == ["a:15", "a:25"]
    document = json.loads(editctl("show", "--json").stdout)
    assert document["transaction"]["parts"] == [
        {"seq": seq, "path": "a", "hunks": [1]}, {"seq": seq, "path": "src/b"}
    ]  # fmt: skip


REFUSED = [
    ("1 --hunk a:9", 1, "no hunk 9.\nhint: Use `editctl show 1 --hunks` to list them."),
    ("1 --hunk a", 2, "'a' is not PATH:K, such as src/app.py:2."),
    ("1 --hunk a:x", 2, "is not PATH:K"),
    ("1 --hunk :1", 2, "is not PATH:K"),
    ("1 --hunk a:1,", 2, "is not PATH:K"),
    ("--hunk a:1", 2, "--hunk needs one TX."),
    ("1..1 --hunk a:1", 2, "--hunk needs one TX."),
    ("1 -i --hunk a:1", 2, "Use --hunk or -i, not both."),
    ("-i --last 2", 2, "-i needs exactly one transaction."),
    ("-i --json", 2, "Use -i or --json, not both."),
]


def test_a_hunk_that_is_not_there_is_refused(editctl: Run, client: Client, place: Workplace) -> None:
    six_hunks(client)
    for words, code, reason in REFUSED:
        assert reason in editctl("undo", *words.split(), code=code).stderr, words
        assert len(new(place)) == 6


def test_completion_offers_the_hunks_of_the_transaction(
    editctl: Run, client: Client, place: Workplace
) -> None:
    seq = six_hunks(client)
    variables = {"_EDITCTL_COMPLETE": "bash_complete", "COMP_CWORD": "6"}
    done = subprocess.run(
        _argv(place)[:4], cwd=place.root / "src", capture_output=True, text=True, check=True,
        env={**place.environment, **variables, "COMP_WORDS": f"editctl -C {place.root} undo {seq} --hunk b:"},
    )  # fmt: skip
    assert done.stdout.split() == ["plain,b:1", "plain,b:2", "plain,b:3"]


# ── On a terminal ──────────────────────────────────────────────────────────────────────────────


def test_on_a_terminal_each_hunk_is_asked_for(choose: Choose, client: Client, place: Workplace) -> None:
    seq = six_hunks(client)
    printed = choose(str(seq), "-i", "-m", "Chosen", keys="ynynyn")
    assert " M a\n@@ -2,7 +2,7 @@\n #2\n #3\n #4\n-#5\n+new 5\n #6\n" in printed
    assert "(1/6) Undo this hunk [y,n,q,a,d,j,?]? " in printed
    assert "(2/6) Undo this hunk [y,n,q,a,d,j,?]? " in printed
    assert "(6/6) Undo this hunk [y,n,q,a,d,?]? " in printed
    assert printed.endswith("Chosen\n M a\n M src/b\n")
    assert new(place) == ["a:15", "src/b:5", "src/b:25"]


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        ("yq", ["a:15", "a:25", "src/b:5", "src/b:15", "src/b:25"]),
        ("yz?", ["a:15", "a:25", "src/b:5", "src/b:15", "src/b:25"]),  # the end of the input quits
        ("nad", ["a:5", "src/b:5", "src/b:15", "src/b:25"]),
        ("da", ["a:5", "a:15", "a:25"]),
        ("jjykdnyd", ["a:5", "a:15", "src/b:5", "src/b:25"]),
        ("Yaa", []),
    ],
)
def test_the_keys_are_those_of_git(
    choose: Choose, client: Client, place: Workplace, keys: str, left: list[str]
) -> None:
    six_hunks(client)
    printed = choose("-i", keys=keys)
    assert new(place) == left, printed
    assert ("y - undo this hunk\n" in printed) == ("?" in keys)


def test_choosing_nothing_changes_nothing(choose: Choose, client: Client) -> None:
    seq = six_hunks(client)
    assert choose("-i", keys="q").endswith("No hunk was chosen. Nothing was changed.\n")
    choose("-i", keys="y", code=130, is_interrupted=True)
    assert client.status().head == seq


def test_what_is_undone_already_is_not_asked_for_again(
    choose: Choose, client: Client, place: Workplace
) -> None:
    seq = six_hunks(client)
    choose("-i", keys="ndd")
    choose("-i", "--path", "a", keys="nyn")
    printed = choose("-i", keys="ya")
    assert "(2/6)" not in printed
    assert new(place) == ["src/b:5", "src/b:15", "src/b:25"]
    files = client.show(seq).transaction.files
    assert [file.path for file in files if isinstance(file.undone_by, int)] == ["a"]
    choose("-i", keys="a")
    assert client.show(seq).transaction.undone_by is not None
    assert "Nothing to undo." in choose("-i", keys="", code=1)
    assert "would change nothing" in choose(str(seq), "-i", keys="", code=1) or new(place) == []


def test_files_without_hunks_are_asked_for_as_a_whole(
    choose: Choose, client: Client, place: Workplace
) -> None:
    change(client, replace("a", "#5\n", "new 5\n"), write("new", "N\n"), Delete(path="gone"))
    printed = choose("-i", keys="nyy")
    assert "(2/3) Undo all changes of this file [" in printed
    assert (place.root / "gone").exists()
    assert not (place.root / "new").exists()
    assert new(place) == ["a:5"]


def test_a_hunk_that_does_not_merge_is_marked(choose: Choose, client: Client, place: Workplace) -> None:
    seq = six_hunks(client)
    later = change(client, replace("a", "new 15\n", "later\n"))
    printed = choose(str(seq), "-i", keys="yyndd", code=1)
    assert f"+new 15\n #16\n #17\n #18\ndoes not merge, in the way: {later}\n(2/6)" in printed
    assert "hint: Undo" in printed
    choose(str(seq), "-i", "--what-fits", keys="yynd", code=1)
    assert new(place) == ["a:25", "src/b:5", "src/b:15", "src/b:25"]


def test_a_dry_run_shows_what_was_chosen(choose: Choose, client: Client, place: Workplace) -> None:
    six_hunks(client)
    printed = choose("-i", "--dry-run", keys="yq")
    assert "dry run: nothing was changed" in printed
    assert "-new 5\n+#5\n" in printed
    assert len(new(place)) == 6


def test_without_a_terminal_it_says_how_to_name_hunks(editctl: Run, client: Client) -> None:
    six_hunks(client)
    said = editctl("undo", "1", "-i", code=1).stderr
    assert "-i needs a terminal" in said
    assert "hint: Name the hunks: `editctl show 1 --hunks` lists them" in said
