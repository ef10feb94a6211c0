"""What others do to the files, in the history soon after, without anybody asking for it."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from editd.engine.external_changes import Reconciliation
from editd.server.engine_queue import EngineQueue
from editd.server.hook_runner import HookRunner
from editd.server.regex_pool import RegexPool
from editd.server.scanner import GIT_SECONDS, QUIET_SECONDS, PendingEvents, Scanner
from editd.server.watcher import WorkspaceWatcher
from editd.system.fs_watch import FsEvent
from editd.values.content import version_of
from editd_client.errors import EditdError
from support.harness import FILE_BYTES_MAX, Harness, path_of
from support.outsider import exchange
from support.workplace import TOP, Workplace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.engine.engine import Engine
    from editd.values.path import WorkspacePath
    from editd.wire.messages import Transaction
    from editd_client.client import Client

SECONDS = 15.0


class Watched:
    """A workplace with git in it, its daemon, and a client."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        place.write({"a.txt": "1\n2\n3\n", "sub/b.txt": "b\n", ".gitignore": "*.log\nbuild/\n"})
        for number in range(30):
            place.write({f"many/{number % 3}/{number}.txt": f"{number}\n"})
        place.git("init", "-q", "-b", "main")
        place.git("add", "-A")
        place.git("commit", "-qm", "first")
        self.client = place.start()
        self.client.settle()
        self.root = place.root

    def head(self) -> int:
        return self.client.status().head

    def log(self, after: int) -> list[Transaction]:
        """The transactions after `after`, oldest first."""
        return [tx for tx in reversed(self.client.log(limit=1000).transactions) if tx.seq > after]

    def until(self, is_so: Callable[[], bool], seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not is_so():
            assert time.monotonic() < end, (self.log(0)[-5:], self.client.status().watcher, self.place.log())
            time.sleep(0.005)

    def one(self, change: Callable[[], object]) -> Transaction:
        """The only transaction that comes of a change; `settle` is not called before it is there."""
        head = self.head()
        change()
        self.until(lambda: self.head() > head)
        self.client.settle()
        time.sleep(0.3)  # whatever else there is would come within that time
        made = self.log(head)
        assert len(made) == 1, made
        assert made[0].kind == "outside"
        return made[0]

    def version(self, path: str) -> str:
        return self.client.read(path).content


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with workplace(tmp_path_factory.mktemp("watching") / "place") as made:
        yield Watched(made)


@pytest.fixture
def here(shared: Watched) -> Watched:
    """The shared workspace, as git has it."""
    shared.place.git("checkout", "-qf", "main")
    shared.place.git("reset", "-q", "--hard")
    shared.place.git("clean", "-fdq")
    shared.client.settle()
    time.sleep(GIT_SECONDS + QUIET_SECONDS)
    shared.client.settle()
    return shared


def kinds(transaction: Transaction) -> dict[str, str]:
    return {os.fsdecode(file.path): file.change for file in transaction.files}


# ── seen without being asked ──


def test_what_is_written_outside_is_in_the_log_within_a_second(here: Watched) -> None:
    head = here.head()
    (here.root / "a.txt").write_text("outside\n")
    here.until(lambda: here.head() > head, seconds=1.0)
    assert kinds(here.log(head)[0]) == {"a.txt": "modified"}
    assert here.version("a.txt") == "outside\n"


def test_what_the_daemon_writes_makes_no_other_transaction(here: Watched) -> None:
    head = here.head()
    for number in range(20):
        here.client.apply([write("a.txt", f"{number}\n"), write(f"new/{number}.txt", "x\n")])
    here.client.settle()
    time.sleep(1.2)
    here.client.settle()
    assert here.head() == head + 20


def test_a_file_in_a_folder_that_is_just_made_is_seen(here: Watched) -> None:
    def change() -> None:
        (here.root / "x/y/z").mkdir(parents=True)
        (here.root / "x/y/z/file.txt").write_text("new\n")

    assert kinds(here.one(change)) == {"x/y/z/file.txt": "added"}


def test_a_folder_that_is_moved_is_one_transaction(here: Watched) -> None:
    made = here.one(lambda: (here.root / "many").rename(here.root / "moved"))
    assert {path.split("/")[0] for path in kinds(made)} == {"moved"}
    assert {*kinds(made).values()} == {"renamed"}
    here.client.undo(tx=made.seq)
    assert (here.root / "many/1/1.txt").read_text() == "1\n"


def test_two_folders_that_change_places(here: Watched) -> None:
    made = here.one(lambda: exchange(str(here.root / "many/0"), str(here.root / "many/1")))
    assert [*kinds(made).values()] == ["renamed"] * 20
    head = here.head()
    (here.root / "many/0/1.txt").write_text("after\n")
    here.until(lambda: here.head() > head)
    assert kinds(here.log(head)[0]) == {"many/0/1.txt": "modified"}


def test_ignored_files_are_left_alone_until_an_edit_touches_them(here: Watched) -> None:
    head = here.head()
    here.place.write({"noise.log": "1\n", "build/deep/out.txt": "1\n"})
    here.client.settle()
    assert here.head() == head
    here.client.apply([write("build/deep/out.txt", "2\n")])
    head = here.head()
    (here.root / "build/deep/out.txt").write_text("3\n")
    here.until(lambda: here.head() > head)
    assert kinds(here.log(head)[0]) == {"build/deep/out.txt": "modified"}
    head = here.head()
    (here.root / "noise.log").write_text("2\n")
    here.client.settle()
    assert here.head() == head


def test_what_is_ignored_no_more_comes_in(here: Watched) -> None:
    here.place.write({"build/one.txt": "1\n"})
    here.client.settle()
    head = here.head()
    (here.root / ".gitignore").write_text("*.log\n")
    here.client.settle()
    assert {path for tx in here.log(head) for path in kinds(tx)} >= {".gitignore", "build/one.txt"}


# ── the ways of saving: one modification each ──


def in_place(file: Path) -> None:
    file.write_text("saved\n")


def by_rename(file: Path) -> None:
    temporary = file.with_name(".saving.tmp")
    temporary.write_text("saved\n")
    temporary.rename(file)


def as_vim_does(file: Path) -> None:
    backup = file.with_name(file.name + "~")
    (file.parent / "4913").touch()
    (file.parent / "4913").unlink()
    file.rename(backup)
    time.sleep(0.1)  # it may take a while, on a slow disk
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    time.sleep(0.1)
    os.write(descriptor, b"saved\n")
    os.fsync(descriptor)
    os.close(descriptor)
    backup.unlink()


def by_sed(file: Path) -> None:
    subprocess.run(["sed", "-i", "s/.*/saved/;2,$d", file], check=True)


def truncated_first(file: Path) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
    time.sleep(0.1)
    os.write(descriptor, b"saved\n")
    os.close(descriptor)


def removed_first(file: Path) -> None:
    file.unlink()
    time.sleep(0.1)
    file.write_text("saved\n")


WAYS = [in_place, by_rename, as_vim_does, by_sed, truncated_first, removed_first]


@pytest.mark.parametrize("save", WAYS)
def test_a_save_is_one_modification(here: Watched, save: Callable[[Path], None]) -> None:
    made = here.one(lambda: save(here.root / "a.txt"))
    assert kinds(made) == {"a.txt": "modified"}
    assert (here.root / "a.txt").read_text() == "saved\n"
    here.client.undo(tx=made.seq)
    assert (here.root / "a.txt").read_text() == "1\n2\n3\n"


@pytest.mark.skipif(shutil.which("vim") is None, reason="vim is not installed")
@pytest.mark.parametrize("option", ["backupcopy=no", "backupcopy=yes", "backup"])
def test_a_real_vim_saves_once(here: Watched, option: str) -> None:
    argv = ["vim", "-Nu", "NONE", "-es", "-c", f"set {option} backupskip=", "-c", "1s/.*/by vim/", "-c", "wq"]

    def save() -> None:
        """For the daemon, vim takes no time, however long a busy machine lets it wait between two steps."""
        assert here.place.process is not None
        here.place.process.send_signal(signal.SIGSTOP)
        try:
            subprocess.run([*argv, str(here.root / "a.txt")], check=True, env=here.place.environment)
        finally:
            here.place.process.send_signal(signal.SIGCONT)

    made = here.one(save)
    assert kinds(made)["a.txt"] == "modified"
    assert "deleted" not in kinds(made).values()


# ── git ──


@pytest.fixture
def branched(here: Watched) -> Watched:
    """With a branch `other`, in which a good deal is different."""
    here.place.git("checkout", "-qB", "other")
    for number in range(0, 30, 2):
        here.place.write({f"many/{number % 3}/{number}.txt": "other\n"})
    (here.root / "sub/b.txt").unlink()
    here.place.write({"only/other.txt": "here\n"})
    here.place.git("add", "-A")
    here.place.git("commit", "-qm", "other")
    here.place.git("checkout", "-q", "main")
    here.client.settle()
    time.sleep(GIT_SECONDS + QUIET_SECONDS)
    here.client.settle()
    return here


def short(here: Watched, name: str) -> str:
    return here.place.git("rev-parse", name).strip()[:7]


def test_a_checkout_is_one_transaction_that_says_so_and_can_be_undone(branched: Watched) -> None:
    before = branched.place.files()
    made = branched.one(lambda: branched.place.git("checkout", "-q", "other"))
    main, other = short(branched, "main"), short(branched, "other")
    assert made.message == f"HEAD moved from {main} (main) to {other} (other)"
    assert len(made.files) == 17
    assert branched.place.files() != before
    branched.client.undo(tx=made.seq)
    assert branched.place.files() == before


def test_a_stash_is_one_transaction_and_so_is_taking_it_out(here: Watched) -> None:
    here.place.write({"a.txt": "mine\n", "sub/b.txt": "mine\n"})
    here.client.settle()
    made = here.one(lambda: here.place.git("stash"))
    assert made.message.startswith("Stashed: WIP on main: ")
    assert kinds(made) == {"a.txt": "modified", "sub/b.txt": "modified"}
    back = here.one(lambda: here.place.git("stash", "pop"))
    assert back.message.startswith("Stash taken out: WIP on main: ")
    here.client.undo(tx=back.seq)
    assert (here.root / "a.txt").read_text() == "1\n2\n3\n"


def test_a_rebase_is_one_transaction(branched: Watched) -> None:
    branched.place.git("checkout", "-qB", "topic", "main")
    for number in range(4):
        branched.place.write({f"topic{number}.txt": f"{number}\n"})
        branched.place.git("add", "-A")
        branched.place.git("commit", "-qm", f"topic {number}")
    branched.client.settle()
    time.sleep(GIT_SECONDS + QUIET_SECONDS)
    branched.client.settle()
    before, old = branched.place.files(), short(branched, "topic")
    made = branched.one(lambda: branched.place.git("rebase", "-q", "other"))
    assert made.message == f"HEAD moved from {old} (topic) to {short(branched, 'topic')} (topic)"
    branched.client.undo(tx=made.seq)
    assert branched.place.files() == before


def test_a_commit_of_what_is_there_makes_no_transaction_and_is_not_told_later(here: Watched) -> None:
    (here.root / "a.txt").write_text("committed\n")
    here.client.settle()
    head = here.head()
    here.place.git("commit", "-qam", "second")
    time.sleep(GIT_SECONDS * 2)
    here.client.settle()  # and git's own files are taken in by now, on a busy machine, too
    assert here.head() == head
    made = here.one(lambda: (here.root / "a.txt").write_text("later\n"))
    assert made.message == ""
    here.place.git("reset", "-q", "--hard", "HEAD~1")


def test_everything_removed_is_one_transaction(here: Watched) -> None:
    before = here.place.files()

    def remove() -> None:
        with here.place.unnoticed():
            subprocess.run(["rm", "-rf", here.root / "many", here.root / "sub"], check=True)

    made = here.one(remove)
    assert set(kinds(made).values()) == {"deleted"}
    assert len(made.files) == 31
    here.client.undo(tx=made.seq)
    assert here.place.files() == before


def test_while_git_has_the_index_locked_nothing_is_taken_in(here: Watched) -> None:
    head = here.head()
    lock = here.root / ".git/index.lock"
    lock.touch()
    (here.root / "a.txt").write_text("half\n")
    here.until(lambda: here.client.status().watcher["state"] == "holding")
    time.sleep(0.5)
    assert here.head() == head
    (here.root / "sub/b.txt").write_text("the other half\n")
    lock.unlink()
    here.until(lambda: here.head() > head)
    assert kinds(here.log(head)[0]) == {"a.txt": "modified", "sub/b.txt": "modified"}
    here.until(lambda: here.client.status().watcher["state"] == "ready")


def test_a_lock_in_a_linked_work_tree_holds_too_and_an_old_one_does_not(tmp_path: Path) -> None:
    with workplace(tmp_path / "place") as place:
        main = tmp_path / "main"
        subprocess.run(["git", "init", "-q", main], check=True)
        place.write({"../main/a.txt": "1\n"})
        place.root.rmdir()
        identity = ["-c", "user.name=S", "-c", "user.email=s@example.org"]
        (main / "a.txt").write_text("1\n")
        for argv in (["add", "-A"], [*identity, "commit", "-qm", "1"], ["worktree", "add", "-q", place.root]):
            subprocess.run(["git", "-C", main, *identity, *argv], check=True)
        client = place.start()
        head = client.settle().head
        lock = main / ".git/worktrees/workspace/index.lock"
        lock.touch()
        (place.root / "a.txt").write_text("2\n")
        time.sleep(0.5)
        assert client.status().head == head
        long_ago = time.time() - 100
        os.utime(lock, (long_ago, long_ago))
        assert client.settle().head == head + 1


@pytest.mark.parametrize("pause", [0.0, 0.15])
def test_what_a_formatter_writes_right_after_an_edit_of_ours_is_soon_seen(
    here: Watched, pause: float
) -> None:
    """A notice soon after an edit is taken for its own, which may hold up what somebody else wrote."""
    took: list[float] = []
    for number in range(6):
        made = here.client.apply([write("a.txt", f"{number}\n")]).transaction
        assert made is not None
        time.sleep(pause)
        (here.root / "a.txt").write_text(f"formatted {number}\n")
        began = time.monotonic()
        while (head := here.head()) == made.seq:
            time.sleep(0.005)
        took.append(time.monotonic() - began)
        assert head == made.seq + 1
    assert min(took) < 0.6, took


# ── settle ──


def test_write_settle_log_is_no_race(here: Watched, is_long: bool) -> None:
    for number in range(40 if is_long else 16):
        name = f"race/{number % 7}/{number % 3}.txt"
        here.place.write({name: f"{number}\n"})
        if number % 8 == 7:
            (here.root / "race").rename(here.root / f"raced{number}")
            name = f"raced{number}/{number % 7}/{number % 3}.txt"
        head = here.client.settle().head
        newest = here.client.log(limit=1).transactions[0]
        assert newest.seq == head
        assert name in kinds(newest), (number, newest)
    assert here.client.status().watcher["rebuilds"] == 0
    assert here.client.check().ok


def test_a_removal_is_settled_too(here: Watched) -> None:
    head = here.head()
    (here.root / "a.txt").unlink()
    assert here.client.settle().head == head + 1
    assert kinds(here.log(head)[0]) == {"a.txt": "deleted"}


def test_settle_is_refused_while_nothing_can_be_recorded_and_misses_nothing_afterwards(
    place: Workplace,
) -> None:
    place.write({"a.txt": "1\n"})
    client = place.start()
    client.settle()
    client.log()  # makes the files of the index, so that only the journal needs more room
    assert place.process is not None
    unlimited = resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE, (1, unlimited[1]))  # No file may grow.
    place.write({"a.txt": "2\n"})
    with pytest.raises(EditdError) as refusal:
        client.settle()
    assert refusal.value.name == "io_error"
    assert "journal" in refusal.value.message
    assert any(
        problem.startswith("The files and the history differ: a.txt") for problem in client.check().problems
    )
    resource.prlimit(place.process.pid, resource.RLIMIT_FSIZE, unlimited)
    wait_for(lambda: client.status().head == 1)  # Nobody needs to ask again.
    assert client.settle().head == 1
    assert client.check().ok


@pytest.mark.usefixtures("forked_workers")
def test_a_file_that_is_as_before_when_it_is_settled_is_not_recorded_by_a_scan_as_it_was_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("editd.server.engine_queue.SLICE_SECONDS", 0.0)  # others come after each file
    harness = Harness(tmp_path)
    harness.baseline({f"{number}.txt": "before\n" for number in range(300)})
    harness.write({f"{number}.txt": "meanwhile\n" for number in range(300)})
    inspections = list[Reconciliation]()

    async def settle_while_it_scans(engine: Engine) -> WorkspacePath:
        searcher = RegexPool(1.0)
        hooker = HookRunner(str(harness.state), str(harness.root), FILE_BYTES_MAX)
        queue = EngineQueue(engine, searcher.find, hooker.run, searcher.compare)
        scanner = Scanner(str(harness.root), str(harness.state))
        watcher = WorkspaceWatcher(str(harness.root), scanner, lambda _is_watched: False)
        watcher.begin()
        watcher.start(engine, queue, frozenset(), await watcher.ready(SECONDS), lambda _event, _body: None)
        scan = asyncio.create_task(scanner.settle(engine, queue))
        while not (inspections and inspections[0].found):  # noqa: ASYNC110  # it has no notification
            await asyncio.sleep(0)
        path = next(iter(inspections[0].found))
        harness.write({path.text: "before\n"})
        await watcher.settle()
        await scan
        for close in (watcher.close, scanner.close, searcher.close, hooker.close):
            await close()
        return path

    with harness.engine() as engine:
        inspect = engine.recorder.inspect

        def inspected() -> Reconciliation:
            inspections.append(inspect())
            return inspections[-1]

        monkeypatch.setattr(engine.recorder, "inspect", inspected)
        path = asyncio.run(settle_while_it_scans(engine))
        entry = engine.history.entry(path)
        assert entry is not None
        assert entry.version == version_of(b"before\n")


class ContestedLock(asyncio.Lock):
    """A lock that notes that a task waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_contested = asyncio.Event()

    async def acquire(self) -> Literal[True]:
        if self.locked():
            self.is_contested.set()
        return await super().acquire()


@pytest.mark.usefixtures("forked_workers")
def test_a_file_that_is_as_before_when_a_scan_begins_is_not_recorded_afterwards_as_it_was_meanwhile(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path)
    harness.baseline({"a": "before\n"})

    async def scan_during_an_inspection(engine: Engine) -> None:
        searcher = RegexPool(1.0)
        hooker = HookRunner(str(harness.state), str(harness.root), FILE_BYTES_MAX)
        queue = EngineQueue(engine, searcher.find, hooker.run, searcher.compare)
        scanner = Scanner(str(harness.root), str(harness.state))
        queue.inspecting = lock = ContestedLock()
        async with lock:  # as the watcher does
            inspection = engine.recorder.inspect()
            harness.write({"a": "meanwhile\n"})
            inspection.look(path_of("a"))
            harness.write({"a": "before\n"})
            scan = asyncio.create_task(scanner.settle(engine, queue))
            await lock.is_contested.wait()
            inspection.record()
        await scan
        for close in (scanner.close, searcher.close, hooker.close):
            await close()

    with harness.engine() as engine:
        asyncio.run(scan_during_an_inspection(engine))
        entry = engine.history.entry(path_of("a"))
        assert entry is not None
        assert entry.version == version_of(b"before\n")


def test_nothing_of_the_cookies_is_left(here: Watched) -> None:
    here.client.settle()
    assert not [name for name in os.listdir(here.root) if name.startswith(".editd-")]


# ── what goes wrong is mended ──


def mortal(place: Workplace) -> Client:
    """A daemon of which a signal kills the watcher."""
    place.launcher = (sys.executable, str(TOP / "tests/support/deaf_watcher_daemon.py"))
    client = place.start()
    client.settle()
    return client


@pytest.mark.parametrize("how", [signal.SIGUSR1, signal.SIGUSR2])
def test_a_watcher_that_is_killed_is_built_anew_and_nothing_is_missed(
    place: Workplace, how: signal.Signals
) -> None:
    place.write({"a.txt": "1\n", "sub/b.txt": "1\n"})
    client = mortal(place)
    head = client.status().head
    assert place.process is not None
    place.process.send_signal(how)
    time.sleep(0.1)
    place.write({"a.txt": "2\n", "new/c.txt": "1\n"})
    assert client.settle().head > head
    assert client.read("new/c.txt").content == "1\n"
    until(client, lambda watcher: watcher["rebuilds"] == 1 and watcher["state"] == "ready")
    head = client.status().head
    place.write({"new/c.txt": "2\n"})
    wait_for(lambda: client.status().head > head)
    assert client.check().ok


def test_a_watcher_whose_thread_ends_is_mended_though_nobody_asks(place: Workplace) -> None:
    client = mortal(place)
    head = client.status().head
    assert place.process is not None
    place.process.send_signal(signal.SIGUSR2)
    place.write({"a.txt": "2\n"})
    wait_for(lambda: client.status().head > head)


def test_an_overflow_is_counted_and_everything_is_looked_at_again(place: Workplace) -> None:
    place.write({"a.txt": "1\n", "old/x.txt": "1\n"})
    client = place.start()
    client.settle()
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    assert place.process is not None
    place.process.send_signal(signal.SIGSTOP)
    for number in range(most // 4 + 100):
        (place.root / "noise").write_text(str(number))
        (place.root / "noise").chmod(0o600 + number % 2 * 0o100)
        (place.root / "noise").rename(place.root / "noise2")
        (place.root / "noise2").rename(place.root / "noise")
    place.write({"a.txt": "2\n", "made/in/between.txt": "1\n"})
    (place.root / "old").rename(place.root / "moved")
    place.process.send_signal(signal.SIGCONT)
    until(client, lambda watcher: watcher["overflows"] == 1 and watcher["state"] == "ready")
    recorded = {file.path for transaction in client.log().transactions for file in transaction.files}
    assert {"a.txt", "made/in/between.txt", "moved/x.txt"} <= recorded
    assert client.read("made/in/between.txt").content == "1\n"
    head = client.status().head
    place.write({"moved/x.txt": "2\n"})
    wait_for(lambda: client.status().head > head)
    assert client.check().ok


def test_a_subscriber_is_told_to_look_again(place: Workplace) -> None:
    client = mortal(place)
    head = client.status().head
    with socket.socket(socket.AF_UNIX) as subscriber:
        subscriber.settimeout(SECONDS)
        subscriber.connect(place.socket)
        subscriber.sendall(b'{"id": 1, "method": "subscribe", "params": {"events": ["resync"]}}\n')
        lines = subscriber.makefile()
        assert "result" in json.loads(lines.readline())
        assert place.process is not None
        place.process.send_signal(signal.SIGUSR2)
        place.write({"a.txt": "2\n"})
        told = json.loads(lines.readline())["params"]
    assert (told["event"], told["from"], told["head"]) == ("resync", head, head + 1)
    assert "SystemExit" in told["reason"]


def test_where_the_limit_is_reached_settle_looks_everywhere(tmp_path: Path) -> None:
    """In a user namespace of its own, the limit is nobody else's business."""
    with workplace(tmp_path / "place") as place:
        place.write({f"d{number}/file.txt": "1\n" for number in range(20)})
        argv = ["unshare", "--user", "--map-root-user", "sh", "-c"]
        script = 'echo 8 > /proc/sys/user/max_inotify_watches && exec "$@"'
        daemon = [sys.executable, "-m", "editd", "-C", str(place.root)]
        reading, writing = os.pipe()
        place.process = subprocess.Popen(
            [*argv, script, "sh", *daemon, "--ready-fd", str(writing)],
            env=place.environment,
            pass_fds=[writing],
        )
        os.close(writing)
        with os.fdopen(reading) as pipe:
            if pipe.readline().strip() != "ready":
                pytest.skip("this machine gives nobody a limit of his own")
        client = place.client()
        head = client.settle().head
        watcher = client.status().watcher
        # Some of the 8 may go to the folders above the socket, which the daemon watches as well.
        assert watcher["state"] == "partial"
        assert 0 < watcher["directories"] <= 8
        assert watcher["directories"] + watcher["failed"] == 21
        for number in range(20):
            place.write({f"d{number}/file.txt": "2\n"})
        client.settle()
        changed = {path for tx in client.log().transactions if tx.seq > head for path in kinds(tx)}
        assert changed == {f"d{number}/file.txt" for number in range(20)}


def test_a_root_that_was_moved_away_and_back_is_watched_again(place: Workplace) -> None:
    place.write({"a.txt": "1\n"})
    client = place.start()
    head = client.settle().head
    place.root.rename(place.folder / "away")
    (place.folder / "away/a.txt").write_text("2\n")
    time.sleep(0.3)
    assert client.status().head == head
    (place.folder / "away").rename(place.root)
    until(client, lambda watcher: watcher["state"] == "ready")
    wait_for(lambda: client.status().head > head)
    head = client.status().head
    place.write({"a.txt": "3\n"})
    wait_for(lambda: client.status().head > head)


def test_status_tells_of_the_watcher_while_the_baseline_is_taken(place: Workplace) -> None:
    place.write({f"{number}": "x" for number in range(2000)})
    with place.start() as client:
        early = client.status().watcher
        client.settle()
        assert early.keys() >= client.status().watcher.keys()


def test_status_answers_while_much_is_taken_in(place: Workplace) -> None:
    client, other = place.start(), place.client()
    client.settle()
    head = client.status().head
    for number in range(3000):
        place.write({f"d{number % 50}/{number}.txt": f"{number}\n" * 20})
    slowest = 0.0
    end = time.monotonic() + SECONDS
    while other.status().head == head:
        began = time.monotonic()
        other.status()
        slowest = max(slowest, time.monotonic() - began)
        assert time.monotonic() < end
    assert slowest < 0.25, slowest  # 50 ms by itself; these machines are shared


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def until(client: Client, is_so: Callable[[dict[str, object]], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not is_so(watcher := client.status().watcher):
        assert time.monotonic() < end, watcher
        time.sleep(0.01)


# ── when it is time ──


def test_it_is_time_when_it_is_quiet_or_when_it_never_becomes_so() -> None:
    pending = PendingEvents()
    assert pending.due() == 0.0
    pending.add(FsEvent(frozenset({b"a"})), 10.0, is_echo=False)
    assert pending.due() == pytest.approx(10.05)
    for step in range(1, 30):
        pending.add(FsEvent(frozenset({b"a"})), 10.0 + step * 0.04, is_echo=False)
    assert pending.due() == pytest.approx(11.0)
    pending.add(FsEvent(frozenset({b"b"})), 11.2, is_echo=False)
    assert pending.due() == pytest.approx(11.25)


def test_our_own_echo_is_looked_at_later_and_holds_up_nothing() -> None:
    pending = PendingEvents()
    pending.add(FsEvent(frozenset({b"ours"})), 10.0, is_echo=True)
    assert pending.due() == pytest.approx(10.25)
    pending.add(FsEvent(frozenset({b"theirs"})), 10.2, is_echo=False)
    assert pending.due() == pytest.approx(10.25)


def test_the_echo_of_edit_after_edit_is_looked_at_once_a_second() -> None:
    pending = PendingEvents()
    for step in range(10):
        pending.add(FsEvent(frozenset({b"ours"})), 10.0 + step * 0.04, is_echo=True)
    assert pending.due() == pytest.approx(10.41), "it is quiet then"
    for step in range(10, 30):
        pending.add(FsEvent(frozenset({b"ours"})), 10.0 + step * 0.04, is_echo=True)
    assert pending.due() == pytest.approx(11.0)
    again = PendingEvents()
    again.add(FsEvent(frozenset({b"ours"})), 11.1, is_echo=True)
    again.take_back(pending)
    assert again.due() == pytest.approx(11.0)


def test_what_is_taken_back_is_all_looked_at_again() -> None:
    taken, pending = PendingEvents(), PendingEvents()
    taken.add(
        FsEvent(frozenset({b"a"}), frozenset({b"d"}), repositories=frozenset({b"/r"})), 9.0, is_echo=False
    )
    pending.add(FsEvent(frozenset({b"b"}), frozenset({b"e"})), 10.0, is_echo=False)
    pending.take_back(taken)
    assert (pending.paths, pending.folders, pending.repositories) == ({b"a", b"b"}, {b"d", b"e"}, {b"/r"})
    assert (pending.first, pending.last) == (9.0, 10.0)
