"""What people complain of most in tools that let agents edit files; one test for each that editd removes.

The list is that of docs/multi-agent.md, in its order. Each through the real socket, and real git.
"""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.errors import EditdError, Unreachable
from support.crash_checks import transactions, wait_until
from support.workplace import TOP, Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client

LINES = "".join(f"line {number}\n" for number in range(1, 21))


def seq_of(answer: Any) -> int:
    assert answer.transaction is not None
    return int(answer.transaction.seq)


def refused(ask: Callable[..., object], *given: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        ask(*given, **more)
    return refusal.value


def text(place: Workplace, path: str) -> str:
    return place.files()[path].decode()


def repository(place: Workplace) -> None:
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "first")


def test_undo_in_one_session_destroys_other_sessions_work(place: Workplace) -> None:
    """I undid what my agent had done, and what the other agent had done in the same file was gone, too."""
    place.write({"a.txt": LINES})
    with place.start() as client:
        client.apply([replace("a.txt", "line 2\n", "mine\n"), write("mine.txt", "x")], session="mine")
        client.apply([replace("a.txt", "line 12\n", "theirs\n"), write("theirs.txt", "x")], session="theirs")
        client.apply([replace("a.txt", "line 19\n", "mine\n")], session="mine", on_stale="merge")
        client.undo(session="mine")
    assert text(place, "a.txt") == LINES.replace("line 12\n", "theirs\n")
    assert sorted(place.files()) == ["a.txt", "theirs.txt"]


def test_undo_eats_the_users_own_later_edits(place: Workplace) -> None:
    """I had fixed a line by hand after the agent; undoing the agent threw my line away without a word."""
    place.write({"a.txt": LINES, "b.txt": LINES})
    with place.start() as client:
        made = seq_of(client.apply([replace("a.txt", "line 2\n", "agent\n")]))
        other = seq_of(client.apply([replace("b.txt", "line 2\n", "agent\n")]))
        place.write({
            "a.txt": LINES.replace("line 2\n", "agent\n").replace("line 15\n", "by hand\n"),
            "b.txt": LINES.replace("line 2\n", "agent, and by hand\n"),
        })  # fmt: skip
        client.undo(made)
        assert text(place, "a.txt") == LINES.replace("line 15\n", "by hand\n")
        assert refused(client.undo, other).name == "conflict"
        assert text(place, "b.txt") == LINES.replace("line 2\n", "agent, and by hand\n")
        client.undo(other, on_conflict="force")
        newest = client.log(limit=1).transactions[0].seq
        client.undo(newest)
        assert text(place, "b.txt") == LINES.replace("line 2\n", "agent, and by hand\n")


def test_a_restore_cannot_be_undone(place: Workplace) -> None:
    """I went back to a checkpoint to have a look, and there was no way forward again."""
    place.write({"a.txt": "0\n"})
    with place.start() as client:
        for number in range(1, 6):
            client.apply([write("a.txt", f"{number}\n"), write(f"{number}.txt", "x")])
        before = place.files()
        made = client.restore(2)
        assert sorted(place.files()) == ["1.txt", "2.txt", "a.txt"]
        client.undo(seq_of(made))
        assert place.files() == before
        client.redo()
        assert sorted(place.files()) == ["1.txt", "2.txt", "a.txt"]


def test_restore_deletes_files_that_it_never_saved(place: Workplace) -> None:
    """Restoring a checkpoint ran a clean over my tree: .env and all that was not tracked was deleted."""
    place.write({"a.txt": "0\n", ".gitignore": ".env\nbuild/\n", ".env": "SECRET\n", "notes.txt": "mine\n"})
    repository(place)
    with place.start() as client:
        client.apply([write("a.txt", "1\n")], session="agent")
        edits = [write("new.txt", "agent\n"), write("kept.txt", "agent\n")]
        made = seq_of(client.apply(edits, session="agent"))
        place.write({"build/out.o": "built", "later.txt": "untracked", "kept.txt": "agent\nand me\n"})
        assert refused(client.rollback, "agent").name == "conflict"  # kept.txt is not the agent's alone
        client.rollback("agent", on_conflict="force")
        assert {".env", "notes.txt", "build/out.o", "later.txt"} <= place.files().keys()
        assert "new.txt" not in place.files()
        client.restore(made - 2)
        assert {".env", "notes.txt", "build/out.o"} <= place.files().keys()


@pytest.mark.long
def test_checkpoints_fill_the_disk(place: Workplace) -> None:
    """The snapshots of one small project took 500 GB, for each of them held the whole tree again."""
    noise = os.urandom(1 << 20)
    place.write({f"large/{number}.bin": noise + bytes([number]) for number in range(20)} | {"a.txt": LINES})
    with place.start() as client:
        client.settle()
        client.apply([replace("a.txt", "line 2\n", "first\n")])
        before = kept_bytes(place)
        for number in range(200):
            client.apply([write("a.txt", LINES.replace("line 2\n", f"{number}\n"))])
        assert client.check().ok
        grown = kept_bytes(place) - before
    assert grown < 200 * 4096, f"{grown} bytes for 200 edits of a file of {len(LINES)} bytes"
    for folder in ("/", str(Path.home())):
        done = place.editd("-C", folder, HOME=str(Path.home()))
        assert "too much to own" in done.stderr
    for nested in (place.folder, place.state.parent):
        done = place.editd("-C", str(nested))
        assert "overlap" in done.stderr


def kept_bytes(place: Workplace) -> int:
    """What the store and the index take; the journal's segments are made ahead, and used again."""
    files = [*(place.store / "objects").rglob("*"), *place.state.glob("index.db*")]
    return sum(file.stat().st_size for file in files if file.is_file())


@pytest.mark.long
def test_every_edit_takes_seconds_in_a_large_repository(place: Workplace) -> None:
    """In our monorepo each edit waits for a checkpoint that walks all of it: many seconds, every time."""
    with workplace(place.folder / "small", {"a.txt": LINES}) as small:
        few = edit_seconds(small)
    place.write({f"src/{number % 97}/{number}.txt": "x\n" for number in range(8_000)} | {"a.txt": LINES})
    many = edit_seconds(place)
    assert many < 5 * few, f"{many * 1000:.1f} ms among 8,000 files, {few * 1000:.1f} ms alone"


def edit_seconds(place: Workplace) -> float:
    """What an edit takes, in the middle of a hundred."""
    taken: list[float] = []
    with place.start() as client:
        client.settle()
        for number in range(100):
            began = time.perf_counter()
            client.apply([write("a.txt", f"{number}\n")])
            taken.append(time.perf_counter() - began)
    return median(taken)


def test_the_checkpoints_break_git(place: Workplace) -> None:
    """After a crash .git was called .git_disabled, my index was gone and HEAD was somewhere else."""
    place.write({"a.txt": LINES, "b.txt": "b\n"})
    repository(place)
    place.write({"b.txt": "staged\n"})
    place.git("add", "b.txt")
    before = {path: path.read_bytes() for path in (place.root / ".git").rglob("*") if path.is_file()}
    with place.start() as client:
        made = seq_of(client.apply([replace("a.txt", "line 2\n", "x\n"), write("new.txt", "n")], session="s"))
        place.write({"b.txt": "again\n"})
        client.settle()
        client.undo(made)
        client.restore(1)
        place.kill()
    with place.start() as client:
        assert client.check().ok
    after = {path: path.read_bytes() for path in (place.root / ".git").rglob("*") if path.is_file()}
    assert after == before


def test_without_git_or_with_nested_repositories_there_is_no_undo(place: Workplace) -> None:
    """Checkpoints are disabled: your workspace is no repository, or there is another one inside it."""
    place.write({"a.txt": "a\n", "inner/b.txt": "b\n", "inner/deeper/c.txt": "c\n"})
    for folder in ("inner", "inner/deeper"):
        subprocess.run(["git", "init", "-q", str(place.root / folder)], check=True)
    edits = [write(path, "agent\n") for path in ("a.txt", "inner/b.txt", "inner/deeper/c.txt")]
    with place.start() as client:
        client.settle()
        client.apply(edits)
        client.undo()
        assert refused(client.apply, [write("inner/.git/config", "x")]).name == "path_protected"
    assert {path: content for path, content in place.files().items() if not path.startswith("inner/.")} == {
        "a.txt": b"a\n", "inner/b.txt": b"b\n", "inner/deeper/c.txt": b"c\n",
    }  # fmt: skip


def test_a_snapshot_turns_out_to_be_missing_when_it_is_needed(place: Workplace) -> None:
    """It said nothing while it worked; only when I went back it turned out that there was no snapshot."""
    place.write({"a.txt": "what I had\n", ".gitignore": "ignored.txt\n", "ignored.txt": "what I had\n"})
    with place.start() as client:
        client.apply([write("a.txt", "agent\n"), write("ignored.txt", "agent\n")])
        place.kill()  # with the answer, and nothing else, the earlier bytes are safe
    with place.start() as client:
        client.undo()
    assert text(place, "a.txt") == text(place, "ignored.txt") == "what I had\n"


def test_what_the_shell_changes_and_deletes_is_not_covered(place: Workplace) -> None:
    """Only its edit tool makes checkpoints: what its shell commands deleted, nobody could bring back."""
    place.write({"a.txt": LINES, "b.txt": "b\n", "gone/c.txt": "c\n"})
    with place.start() as client:
        client.session_open("agent", actor="claude")
        command = "rm -r gone && sed -i s/line/LINE/ a.txt && echo new > d.txt; exit 3"
        bracket = client.exec_begin(command).exec
        status = subprocess.run(["sh", "-c", command], cwd=place.root, check=False).returncode
        made = client.exec_end(bracket, status).transaction
        assert made is not None
        assert (made.kind, made.session, made.actor) == ("exec", "agent", "claude")
        assert sorted(change.path for change in made.files) == ["a.txt", "d.txt", "gone/c.txt"]
        assert command in made.message
        client.undo(made.seq)
    assert place.files() == {"a.txt": LINES.encode(), "b.txt": b"b\n", "gone/c.txt": b"c\n"}


def test_modified_since_read_is_a_false_alarm_or_a_loop(place: Workplace) -> None:
    """It says that the file was modified since it was read; it was not, and to read it again is no help."""
    place.write({"a.txt": LINES})
    with place.start() as client:
        client.hello("agent", session="agent")
        base = client.read("a.txt").version
        os.utime(place.root / "a.txt", (1, 1))
        place.write({"a.txt": LINES})  # the same bytes, another time: no change
        client.apply([replace("a.txt", "line 2\n", "two\n", base=base)])
        place.write({"a.txt": text(place, "a.txt").replace("line 15\n", "fifteen\n")})
        refusal = refused(client.apply, [write("a.txt", "all of it\n", force=False)])
        assert refusal.name == "stale"
        assert "+fifteen" in refusal.data["diff"]
        client.apply([write("a.txt", "all of it\n", base=refusal.data["current"])])  # at the first try
    assert text(place, "a.txt") == "all of it\n"


def test_a_formatter_makes_every_next_edit_fail(place: Workplace) -> None:
    """Our format-on-save hook touches the file after each edit, so that each next edit is refused."""
    place.write({"a.txt": LINES})
    with place.start() as client:
        client.hello("agent", session="agent")
        client.read("a.txt")
        client.apply([replace("a.txt", "line 2\n", "two\n")])
        wanted = text(place, "a.txt").replace("line 5\n", "five\n")
        place.write({"a.txt": text(place, "a.txt").replace("line 18\n", "line  18\n")})  # the formatter
        answer = client.apply([write("a.txt", wanted, force=False)], on_stale="merge")
        assert answer.merged == ["a.txt"]
        assert text(place, "a.txt") == wanted.replace("line 18\n", "line  18\n")
        place.write({"a.txt": text(place, "a.txt").replace("five\n", "f i v e\n")})
        refusal = refused(
            client.apply, [write("a.txt", wanted.replace("five", "5"), force=False)], on_stale="merge"
        )
        assert refusal.name == "conflict"
        assert refusal.data["files"][0]["path"] == "a.txt"


def test_of_parallel_edits_of_one_file_all_report_success_and_one_survives(place: Workplace) -> None:
    """Eight edits of one file were sent at once, eight said that all was well, and one was in the file."""
    place.write({"a.txt": LINES})
    with place.start() as client:
        base = client.read("a.txt").version

        def edit(number: int) -> None:
            with place.client() as hand:
                change = replace("a.txt", f"line {number}\n", f"hand {number}\n", base=base)
                hand.apply([change], session=f"s{number}", on_stale="merge")

        with ThreadPoolExecutor(8) as hands:
            list(hands.map(edit, range(2, 18, 2)))
        expected = LINES
        for number in range(2, 18, 2):
            expected = expected.replace(f"line {number}\n", f"hand {number}\n")
        assert text(place, "a.txt") == expected
        refusals = [
            refused(client.apply, [write("a.txt", "x", base=base, force=False)]).name for _ in range(2)
        ]
    assert refusals == ["stale", "stale"]


@pytest.mark.parametrize(
    "content",
    [
        b"one\r\ntwo\nthree\r\n",
        b"\xef\xbb\xbfone\ntwo\n",
        b"caf\xe9 one\r\ntwo",
        "one two\n".encode("utf-16"),
    ],
    ids=["mixed", "bom", "latin-1", "utf-16"],
)
def test_line_ends_and_encoding_of_other_lines_are_changed(place: Workplace, content: bytes) -> None:
    """One word was to be replaced; every line of the file was in the diff, for its line ends had changed."""
    place.write({"a.txt": content})
    (place.root / "a.txt").chmod(0o750)
    (place.folder / "config/editd").mkdir()
    (place.folder / "config/editd/config.toml").write_text('encoding = "latin-1"\n')
    with place.start() as client:
        client.apply([replace("a.txt", "two", "2")])
    encoding = "utf-16-le" if content.startswith(b"\xff\xfe") else "ascii"
    assert place.files()["a.txt"] == content.replace("two".encode(encoding), "2".encode(encoding))
    assert (place.root / "a.txt").stat().st_mode & 0o777 == 0o750


@pytest.mark.long
def test_a_crash_leaves_an_empty_or_truncated_file(place: Workplace) -> None:
    """The machine ran out of memory in the middle of an edit, and the file was there with zero bytes."""
    place.write({"a.txt": "0" * 100_000, "b.txt": "0" * 100_000})
    for _ in range(3):
        with place.start() as client, place.client() as other, ThreadPoolExecutor() as apart:
            enough = other.status().head + 5
            writing = apart.submit(write_on, client)
            wait_until(lambda: other.status().head >= enough, "no edits")  # noqa: B023
            place.kill()
            acknowledged = writing.result(30)
        with place.start() as client:
            assert client.check().ok
            files = place.files()
            assert files["a.txt"] == files["b.txt"] == files["a.txt"][:1] * 100_000
            assert client.status().head >= acknowledged
        place.stop()


def write_on(client: Client) -> int:
    """Edit two files at once until the daemon is gone; return the last transaction that was acknowledged."""
    done = 0
    for number in range(1, 1_000_000):
        content = str(number % 10) * 100_000
        try:
            done = seq_of(client.apply([write("a.txt", content), write("b.txt", content)]))
        except Unreachable:
            break
    return done


def test_an_agents_git_stash_or_checkout_wipes_others_work(place: Workplace) -> None:
    """One agent ran git checkout to start afresh, and a day's uncommitted work of everyone was gone."""
    place.write({f"{number}.txt": LINES for number in range(10)})
    repository(place)
    with place.start() as client:
        for number in range(10):
            client.apply([replace(f"{number}.txt", "line 2\n", "a day's work\n")], session=f"s{number % 2}")
        place.write({"3.txt": text(place, "3.txt").replace("line 9\n", "by hand, never told to editd\n")})
        client.settle()
        before = place.files()
        head = client.status().head
        place.git("checkout", "-q", "--", ".")
        client.settle()
        assert place.files() != before
        wiped = transactions(client, head)
        assert len(wiped) == 1
        assert wiped[0].kind == "outside"
        client.undo(wiped[0].seq)
    assert place.files() == before


def test_several_agents_need_a_worktree_each(place: Workplace) -> None:
    """Each agent needs a worktree of its own, 80 GB of them, and what was not committed there was lost."""
    place.write({"a.txt": LINES})
    repository(place)
    with place.start() as client:
        for number, (who, line) in enumerate((("one", 2), ("two", 12), ("one", 4), ("two", 18))):
            change = replace("a.txt", f"line {line}\n", f"{who} {number}\n")
            client.apply([change], session=who, actor=who, on_stale="merge")
        for who in ("one", "two"):
            client.publish(f"What {who} did", session=who, branch=f"agents/{who}")
    for who, other in (("one", "two"), ("two", "one")):
        published = place.git("show", f"agents/{who}:a.txt")
        assert published.count(who) == 2
        assert other not in published
    subprocess.run(["rm", "-rf", str(place.root)], check=True)
    assert place.git("show", "history:a.txt", store=True).count("two") == 2  # without the folder, too


def test_locks_do_not_lock(place: Workplace) -> None:
    """Two agents both had the lock: one on src/**, one on src/*.py, and the text was not the same."""
    place.write({"src/a.py": "a = 1\n", "docs/a.md": "a\n"})
    with place.start() as one, place.client() as two:
        one.session_open("one")
        two.session_open("two")
        held = one.lease_acquire(["src/**"], 60)
        assert refused(two.lease_acquire, ["src/*.py"], 60).name == "leased"
        assert refused(two.lease_acquire, ["**/a.py"], 60).name == "leased"
        two.lease_acquire(["docs/**"], 60)
        refusal = refused(two.apply, [replace("src/a.py", "1", "2")])
        assert (refusal.name, "one" in refusal.message) == ("leased", True)
        one.apply([replace("src/a.py", "1", "3")])
        one.session_close()  # which ends its leases
        assert two.lease_acquire(["src/*.py"], 60).token > held.token
        two.apply([replace("src/a.py", "3", "4")])
    assert text(place, "src/a.py") == "a = 4\n"


def test_a_retry_after_a_timeout_applies_twice(place: Workplace) -> None:
    """The answer was lost, the client tried again, and the line was in the file fifteen times."""
    place.write({"a.txt": "one\n"})
    edits = [replace("a.txt", "one\n", "one\none more\n")]
    with place.start() as client:
        first = seq_of(client.apply(edits, request_id="add-a-line"))
        assert seq_of(client.apply(edits, request_id="add-a-line")) == first
        place.kill()
    with place.start() as client:
        assert seq_of(client.apply(edits, request_id="add-a-line")) == first
        other = refused(client.apply, [write("a.txt", "another\n")], request_id="add-a-line")
    assert other.name == "invalid_params"
    assert text(place, "a.txt") == "one\none more\n"


def test_a_restore_touches_every_file_so_that_all_is_built_again(place: Workplace) -> None:
    """Restoring one file gave all files a new time, and the build started from nothing."""
    place.write({f"{number}.c": "int x;\n" for number in range(20)})
    with place.start() as client:
        made = seq_of(client.apply([write("3.c", "int y;\n")]))
        times = {path.name: path.stat().st_mtime_ns for path in place.root.iterdir()}
        client.restore(made - 1) if made > 1 else client.restore(0)
        now = {path.name: path.stat().st_mtime_ns for path in place.root.iterdir()}
    assert {name for name in times if times[name] != now[name]} == {"3.c"}


def test_every_complaint_of_the_page_has_its_test() -> None:
    page = (TOP / "docs/multi-agent.md").read_text()
    here = [name for name in globals() if name.startswith("test_") and "every_complaint" not in name]
    missing = [name for name in here if f"`{name}`" not in page]
    assert not missing
    assert page.count("| `test_") == len(here)
