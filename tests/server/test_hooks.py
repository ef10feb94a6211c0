"""Hooks, through the socket: what formatters make is what is written, and what checks refuse is not."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from editd.engine.hook_frames import HookAnswers
from editd.engine.hooks import HookJob
from editd.runs.reach import unheld_sentence
from editd.system.confinement import landlock_version
from editd.wire.messages import Delete, Move, Tool
from editd_client.errors import EditdError, Unreachable
from support.reach import HELD, REACH, SIGNAL, others_of
from support.workplace import Workplace, replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

PYTHON = sys.executable
UPPER = "import sys; sys.stdout.write(sys.stdin.read().upper())"
ADD_LINE = "import sys; sys.stdout.write(sys.stdin.read() + 'x\\n')"
IN_PLACE = """
import sys
for name in sys.argv[1:]:
    text = open(name).read()
    open(name, "w").write(text.rstrip("\\n") + f"  # {len(sys.argv) - 1}\\n")
"""
NO_SECRET = (
    "import sys; t = sys.stdin.read(); print('a secret!') if 'SECRET' in t else 0; sys.exit('SECRET' in t)"
)
WAIT_SECONDS = 10.0


def hook(name: str, script: str, *arguments: str, **keys: Any) -> str:
    """A table of the configuration; the command is a script of Python's."""
    said = {"name": name, "glob": ["**/*.txt"], "command": [PYTHON, "-I", "-c", script, *arguments], **keys}
    return "[[hook]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, Client]]:
    """One daemon for all tests that leave it alive."""
    with workplace(tmp_path_factory.mktemp("hooks") / "place") as place, place.start() as client:
        yield place, client


@pytest.fixture
def hooks(shared: tuple[Workplace, Client]) -> Iterator[Desk]:
    desk = Desk(*shared)
    yield desk
    desk.configure("")
    assert desk.scratch() == [], "no scratch folder is left"


class Desk:
    """A workspace, a client of it, and the configuration."""

    def __init__(self, place: Workplace, client: Client) -> None:
        self.place = place
        self.client = client

    def configure(self, *hooks: str) -> None:
        path = self.place.folder / "config" / "editd" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(hooks))
        self.client.config_reload()

    def refused(self, *edits: Any, **more: Any) -> EditdError:
        """The refusal of an edit, which has changed nothing."""
        before, head = self.place.files(), self.client.status().head
        with pytest.raises(EditdError) as caught:
            self.client.apply(list(edits), **more)
        assert self.place.files() == before
        assert self.client.status().head == head
        return caught.value

    def holds(self, path: str) -> str:
        return (self.place.root / path).read_text()

    def scratch(self) -> list[str]:
        folder = self.place.state / "hooks"
        return os.listdir(folder) if folder.exists() else []


@contextmanager
def within(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def eventually(is_so: Any) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < until, "it does not come about"
        time.sleep(0.01)


def in_vain(client: Client, *edits: Any) -> None:
    """An edit whose daemon ends before it can be made."""
    with pytest.raises((EditdError, Unreachable)):
        client.apply(list(edits))


def is_running(mark: str) -> bool:
    """Does any process have this among its arguments?"""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes():
                return True
        except OSError:
            continue
    return False


# ── formatters ──


def test_what_a_formatter_makes_is_written_answered_and_the_next_edits_base(hooks: Desk) -> None:
    hooks.configure(hook("upper", UPPER))
    answer = hooks.client.apply(
        [write("a.txt", "one\n"), write("b.other", "two\n")], return_content=True, diff=True, request_id="r1"
    )
    first, second = answer.files
    assert (first.content, first.warnings) == ("ONE\n", ["formatted by upper"])
    assert "+ONE" in str(first.diff)
    assert (second.content, second.warnings) == ("two\n", [])
    assert hooks.holds("a.txt") == "ONE\n"
    assert hooks.client.read("a.txt").version == first.version

    # The next edit goes by the answer, whether it names its version or not.
    hooks.client.apply([replace("a.txt", "ONE", "three", base=first.version)])
    hooks.client.apply([replace("a.txt", "THREE", "four")])
    assert hooks.holds("a.txt") == "FOUR\n"
    # A retry gets the first answer, and the history says who formatted.
    again = hooks.client.apply(
        [write("a.txt", "one\n"), write("b.other", "two\n")], return_content=True, diff=True, request_id="r1"
    )
    assert again == answer
    hooks.client.check()
    shown = hooks.place.git("log", "--format=%B", "history", store=True)
    assert '"formatted_by":["upper"]' in shown


def test_a_dry_run_and_a_commit_are_formatted_and_a_stage_is_not(hooks: Desk) -> None:
    hooks.configure(hook("upper", UPPER))
    dry = hooks.client.apply([write("dry.txt", "one\n")], dry_run=True)
    assert "+ONE" in str(dry.files[0].diff)
    assert "dry.txt" not in hooks.place.files()
    with hooks.client.transaction() as transaction:
        transaction.write("staged.txt", "one\n", force=True)
        staged = transaction.diff()
    assert "+one" in staged.diff
    assert hooks.holds("staged.txt") == "ONE\n"


def test_undo_redo_and_restore_are_exact(hooks: Desk) -> None:
    hooks.client.apply([write("undo.txt", "one\n")])
    hooks.configure(hook("upper", UPPER))
    made = hooks.client.apply([write("undo.txt", "two\n")]).transaction
    assert made is not None
    hooks.client.undo(made.seq)
    assert hooks.holds("undo.txt") == "one\n"
    hooks.client.redo()
    assert hooks.holds("undo.txt") == "TWO\n"
    hooks.client.restore(made.seq - 1, paths=["undo.txt"])
    assert hooks.holds("undo.txt") == "one\n"


def test_hooks_run_in_their_order_each_on_what_the_one_before_it_made(hooks: Desk) -> None:
    hooks.configure(
        hook("line", ADD_LINE), hook("upper", UPPER), hook("mark", IN_PLACE, "{files}"),
        hook("each", IN_PLACE, "{file}"),
    )  # fmt: skip
    files = hooks.client.apply([write("c/1.txt", "a\n"), write("c/2.txt", "b\n")], return_content=True).files
    assert [file.content for file in files] == ["A\nX  # 2  # 1\n", "B\nX  # 2  # 1\n"]
    assert files[0].warnings == ["formatted by line, upper, mark, each"]


def test_a_formatter_that_gives_back_what_was_there_leaves_nothing_to_record(hooks: Desk) -> None:
    hooks.configure(hook("upper", UPPER))
    hooks.client.apply([write("same.txt", "same\n")])
    head = hooks.client.status().head
    answer = hooks.client.apply([replace("same.txt", "SAME", "same")])
    assert answer.transaction is None
    assert answer.files[0].change is None
    assert answer.files[0].warnings == ["formatted by upper, and the file is unchanged as a result"]
    assert hooks.client.status().head == head


def test_bytes_that_are_no_text_come_and_go_as_they_are(hooks: Desk) -> None:
    hooks.configure(hook("twice", "import sys; b = sys.stdin.buffer.read(); sys.stdout.buffer.write(b + b)"))
    content = bytes(range(256)).decode("utf-8", "surrogateescape")
    hooks.client.apply([write("bytes.txt", content)])
    assert (hooks.place.root / "bytes.txt").read_bytes() == bytes(range(256)) * 2


def test_a_tools_own_answer_says_that_it_was_formatted_and_holds_the_final_content(hooks: Desk) -> None:
    hooks.client.apply([write("tool.txt", "one\n")])
    hooks.configure(hook("upper", UPPER))
    diff = "------- SEARCH\none\n=======\ntwo\n+++++++ REPLACE\n"
    call = Tool(dialect="cline", tool="replace_in_file", args={"path": "tool.txt", "diff": diff})
    answer = hooks.client.apply([call])
    assert answer.files[0].content == "TWO\n"
    assert "tool.txt was then formatted by upper." in str(answer.answers)


def test_moves_deletions_and_links_are_no_formatters_business_but_a_check_sees_moves(hooks: Desk) -> None:
    hooks.client.apply([write("from.other", "SECRET\n"), write("gone.txt", "x\n")])
    hooks.configure(hook("upper", ADD_LINE), hook("secrets", NO_SECRET, kind="check"))
    refusal = hooks.refused(Move(path="from.other", to="to.txt"))
    assert refusal.data["hook"] == "secrets"
    hooks.configure(hook("upper", ADD_LINE))
    hooks.client.apply([Move(path="from.other", to="to.txt"), Delete(path="gone.txt")])
    assert hooks.holds("to.txt") == "SECRET\n"


# ── checks ──


def test_a_check_refuses_with_its_output_and_lets_the_rest_pass(hooks: Desk) -> None:
    hooks.configure(hook("secrets", NO_SECRET, kind="check"))
    refusal = hooks.refused(write("ok.txt", "fine\n"), write("bad.txt", "SECRET\n"))
    assert refusal.name == "rejected"
    assert refusal.data == {
        "hook": "secrets", "kind": "check", "exit": 1, "output": "a secret!", "files": ["bad.txt"],
        "hint": refusal.data["hint"],
    }  # fmt: skip
    assert "secrets refused bad.txt (exit status 1): a secret!" in str(refusal)
    shown = hooks.client.status().hooks[0]
    assert (shown["name"], shown["failure"]["message"]) == ("secrets", "refused bad.txt")
    hooks.client.apply([write("ok.txt", "fine\n")])
    assert hooks.holds("ok.txt") == "fine\n"


def test_a_changeset_that_a_check_refuses_stays_open_and_can_be_put_right(hooks: Desk) -> None:
    hooks.configure(hook("secrets", NO_SECRET, kind="check"))
    changeset = hooks.client.begin().changeset
    hooks.client.stage(changeset, [write("staged2.txt", "SECRET\n")])
    with pytest.raises(EditdError, match="a secret!"):
        hooks.client.commit(changeset)
    hooks.client.stage(changeset, [replace("staged2.txt", "SECRET", "fine")])
    hooks.client.commit(changeset)
    assert hooks.holds("staged2.txt") == "fine\n"


# ── where a hook cannot do its work ──


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "is not there": ({"command": ["/nowhere/at/all"]}, "cannot be run: No such file or directory"),
    "fails": ({"command": [PYTHON, "-c", "raise SystemExit('no syntax')"]}, "exit status 1. no syntax"),
    "empties": ({"command": [PYTHON, "-c", ""]}, "made bad.txt empty"),
    "dies": ({"command": [PYTHON, "-c", "import os; os.kill(os.getpid(), 11)"]}, "killed by SIGSEGV"),
    "floods": (
        {"command": [PYTHON, "-c", "while 1: print('x' * 10**6)"], "seconds": 30}, "printed more than 64 MiB"
    ),
    "complains without end": (
        {"command": ["/bin/sh", "-c", "yes >&2"], "seconds": 30}, "printed more than 64 MiB",
    ),
    "removes the file": (
        {"command": ["/bin/sh", "-c", "rm \"$0\"", "{file}"]}, "afterwards, bad.txt is no regular file",
    ),
    "puts a link there": (
        {"command": ["/bin/sh", "-c", "rm \"$0\"; ln -s /etc/hostname \"$0\"", "{file}"]}, "no regular file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("how", BAD)
def test_a_formatter_that_cannot_do_its_work_refuses_or_is_left_out(hooks: Desk, how: str) -> None:
    keys, said = BAD[how]
    hooks.configure(hook("bad", "", **keys))
    refusal = hooks.refused(write("bad.txt", f"{how}\n"))
    assert refusal.name == "rejected"
    assert said in str(refusal)
    assert "on_error" in refusal.data["hint"]
    hooks.configure(hook("bad", "", **keys, on_error="skip"), hook("upper", UPPER))
    answer = hooks.client.apply([write("bad.txt", f"{how}\n")])
    assert hooks.holds("bad.txt") == f"{how}\n".upper()
    assert said in answer.warnings[0]
    assert answer.warnings[0].endswith("It was left out.")
    failure = hooks.client.status().hooks[0]["failure"]["message"]
    assert said.removesuffix(" no syntax") in failure
    assert "no syntax" not in failure  # Only the sender gets the output.


FAILS_OF_ONE = "import sys; text = sys.stdin.read(); print(end=text.upper()); sys.exit('bad' in text)"
ON_FILES = ["/bin/sh", "-c", 'tr a-z A-Z <"$0" >new && cat new >"$0"', "{file}"]


@pytest.mark.parametrize(
    ("keys", "bad"), [({}, "0.txt"), ({"command": ON_FILES}, "+0.txt")], ids=["its command", "its name"]
)
def test_a_hook_that_is_left_out_of_one_file_formats_the_others(
    hooks: Desk, keys: dict[str, Any], bad: str
) -> None:
    hooks.configure(hook("upper", FAILS_OF_ONE, **keys, on_error="skip"))
    answer = hooks.client.apply([write(bad, "bad\n"), write("1.txt", "good\n")])
    assert "It was left out." in answer.warnings[0]
    assert (hooks.holds(bad), hooks.holds("1.txt")) == ("bad\n", "GOOD\n")
    hooks.client.undo()


@pytest.mark.parametrize("on_error", ["skip", "refuse"])
def test_a_path_too_long_for_the_scratch_folder_is_that_hooks_failure(hooks: Desk, on_error: str) -> None:
    room = os.pathconf("/", "PC_PATH_MAX") - 1 - len(f"{hooks.place.root}/")  # less than its tree leaves
    folder = "/".join(["d" * 199] * 21)[: room - len("/n.txt")].rstrip("/")
    path = f"{folder}/n.txt"
    hooks.configure(hook("look", "", kind="check", on_error=on_error))
    if on_error == "skip":
        answer = hooks.client.apply([write(path, "one\n")])
        assert "scratch folder cannot be used: File name too long. It was left out." in str(answer)
        hooks.client.apply([Delete(path=path)])
    else:
        refusal = hooks.refused(write(path, "one\n"))
        assert refusal.name == "rejected"
        assert "scratch folder cannot be used: File name too long" in refusal.message
    assert "File name too long" in hooks.client.status().hooks[0]["failure"]["message"]


def test_a_hook_that_is_left_out_of_a_file_that_is_not_utf8_is_told_again_to_who_asks_again(
    hooks: Desk,
) -> None:
    hooks.configure(hook("fails", "raise SystemExit(1)", on_error="skip"))
    edit = write(os.fsdecode(b"caf\xe9.txt"), "one\n")
    first = hooks.client.apply([edit], request_id="latin")
    assert first.transaction is not None
    again = hooks.client.apply([edit], request_id="latin")
    assert again.transaction == first.transaction
    assert "It was left out." in str(first)
    assert (again.warnings, again.files[0].warnings) == (first.warnings, first.files[0].warnings)


def test_a_hook_that_hangs_is_killed_and_others_are_served_meanwhile(hooks: Desk) -> None:
    hooks.configure(hook("hangs", "import time; time.sleep(60.125)", seconds=1.0))
    refusals: list[EditdError] = []
    with hooks.place.client() as other:

        def ask() -> None:
            with pytest.raises(EditdError) as caught:
                other.apply([write("hang.txt", "x\n")])
            refusals.append(caught.value)

        asking = threading.Thread(target=ask)
        with within(10):
            asking.start()
            eventually(lambda: is_running("60.125"))
            with within(0.9):  # while it hangs
                hooks.client.apply([write("meanwhile.other", f"{time.time()}\n")])
                assert not refusals
            asking.join()
    assert refusals[0].name == "timeout"
    assert "was still running after 1 s" in str(refusals[0])
    assert not is_running("60.125")


STOPS_ITS_PARENT = "import os, time; os.kill(os.getppid(), 19); time.sleep(64.75)"  # SIGSTOP


@pytest.mark.long
def test_a_hook_that_stops_the_process_it_runs_in_holds_up_its_edit_for_a_time_only(hooks: Desk) -> None:
    hooks.configure(hook("stops", STOPS_ITS_PARENT, seconds=0.5))
    with within(30):
        refusal = hooks.refused(write("stops.txt", "x\n"))
    assert refusal.name == "timeout"
    assert "had not answered after 15.5 s" in refusal.message
    assert not is_running("64.75")


def test_a_hook_that_kills_the_process_it_runs_in_changes_nothing_and_leaves_no_file(hooks: Desk) -> None:
    hooks.configure(hook("kills", "import os, time; os.kill(os.getppid(), 9); time.sleep(64.5)"))
    assert "The process that runs the hooks died." in hooks.refused(write("kills.txt", "x\n")).message
    assert hooks.scratch() == []
    assert not is_running("64.5")
    hooks.configure("")
    hooks.client.apply([write("kills.txt", "x\n")])


FORKS_AWAY = """
import os, sys, time
sys.stdout.write(sys.stdin.read())
sys.stdout.flush()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("/proc/self/comm", "w").write("away")
        time.sleep(61.25)
    os._exit(0)
"""


def test_what_a_hook_leaves_behind_is_killed_whatever_session_it_is_in(hooks: Desk) -> None:
    hooks.configure(hook("forks", FORKS_AWAY + "time.sleep(0.2)"))
    with within(10):
        hooks.client.apply([write("forks.txt", "x\n")])
    assert not is_running("61.25")


def test_a_hook_that_reads_nothing_holds_up_nobody(hooks: Desk) -> None:
    hooks.configure(hook("deaf", "print('new')"))
    hooks.client.apply([write("deaf.txt", "x" * 5_000_000)])
    assert hooks.holds("deaf.txt") == "new\n"


LOOK_ROUND = """
import os, sys
sys.stdin.read()
names = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
fds = [os.readlink(name) for name in names if os.path.lexists(name)]
print(os.getcwd(), oct(os.stat(os.path.dirname(os.getcwd())).st_mode), sorted(os.listdir(".")))
print(len(fds), [name for name in fds if name.startswith("socket")])
print(sorted(os.environ))
"""


def test_a_hook_has_a_scratch_folder_an_environment_and_descriptors_of_its_own(hooks: Desk) -> None:
    hooks.place.write({"tool.cfg": "x\n"})
    hooks.configure(hook("look", LOOK_ROUND, with_files=["tool.cfg", "missing.cfg"]))
    hooks.client.apply([write("look.txt", "x\n")])
    where, descriptors, names = hooks.holds("look.txt").splitlines()
    assert where.startswith(str(hooks.place.state / "hooks"))
    assert where.endswith("0o40700 ['tool.cfg']")
    assert descriptors.endswith("[]")
    assert int(descriptors.split()[0]) <= 4  # the three, and the folder that it lists
    assert not any("EDITD_SOCKET" in name or "XDG" in name for name in names.split(","))


def test_a_hook_sees_the_files_beside_it_as_the_same_edit_makes_them(hooks: Desk) -> None:
    hooks.place.write({"beside.cfg": "old\n", "gone.cfg": "old\n"})
    script = (
        "import os; print([open(name).read() for name in sorted(os.listdir('.')) if name[-4:] == '.cfg'])"
    )
    hooks.configure(hook("look", script, with_files=["beside.cfg", "gone.cfg"]))
    hooks.client.apply([write("seen.txt", "x\n"), write("beside.cfg", "new\n"), Delete(path="gone.cfg")])
    assert hooks.holds("seen.txt") == "['new\\n']\n"


def test_no_file_of_the_workspace_is_run_nor_taken_for_an_option(hooks: Desk) -> None:
    hooks.configure(hook("upper", "print(open('-c.txt').read().upper(), end='')", "{path}"))
    script = "import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write(p + t)"
    hooks.configure(hook("name", script, "{file}"))
    hooks.client.apply([write("-c.txt", "x\n")])
    assert hooks.holds("-c.txt") == "./-c.txtx\n"
    with pytest.raises(EditdError, match="must be a name in PATH, or an absolute path"):
        hooks.configure(hook("here", "", command=["./run.txt"]))


@pytest.mark.parametrize(
    "command", [["perl", "-pe", "1"], ["sh", "-c", 'exec perl -pe 1 "$1"', "sh"]], ids=str
)
def test_no_hook_runs_on_a_name_that_perl_would_run(hooks: Desk, tmp_path: Path, command: list[str]) -> None:
    """The attack: perl runs the name of a file that ends with `|`."""
    keys = {"name": "perl", "glob": ["**"], "command": [*command, "{file}"], "kind": "check"}
    hooks.configure("[[hook]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    name = f"x;cd {'..;cd ' * 12}..;cd {os.fsdecode(tmp_path)[1:].replace('/', ';cd ')};touch ran|"
    error = hooks.refused(write(name, "x\n"))
    assert "could run as code" in error.message
    assert not (tmp_path / "ran").exists()


def test_the_name_of_a_file_is_never_a_part_of_a_hooks_command(hooks: Desk) -> None:
    """The attack: a client chooses a name with a command in it, and a shell runs the name."""
    made = hooks.place.folder / "run"
    name = f"$(touch {made}).txt"
    for command in (
        ["sh", "-c", "cat; : {path}"], ["sh", "-c", "{path}"], ["{path}"],
        ["env", "PS4={path}", "sh", "-xc", "cat"], ["find", ".", "-exec", "sh", "-c", "{path}", ";"],
    ):  # fmt: skip
        with pytest.raises(EditdError, match=r"hook.1.command: \{path\} must"):
            hooks.configure(hook("shell", "", command=command))
        hooks.client.apply([write(name, "x\n")])
        hooks.client.apply([Delete(path=name)])
        assert not made.exists()
    for command in (
        ["sh", "-c", 'printf "%s\\n" "$1"', "sh", "{path}"],
        ["env", "NAME={path}", "sh", "-c", 'printf "%s\\n" "$NAME"'],
    ):
        hooks.configure(hook("shell", "", command=command))
        hooks.client.apply([write(name, "x\n")])
        assert hooks.holds(name) == f"{name}\n"
        hooks.client.apply([Delete(path=name)])
    assert not made.exists()


@pytest.mark.needs("/proc")
@pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
@pytest.mark.parametrize(
    ("keys", "outside", "network"),
    [
        ({"writable": []}, "PermissionError", "ConnectionRefusedError"),
        ({"network": False}, "PermissionError", "ConnectionRefusedError"),
        ({"writable": [], "network": True}, "PermissionError", "done"),
        ({"writable": ["OUTSIDE"]}, "done", "ConnectionRefusedError"),
        ({"unix_sockets": True}, "PermissionError", "ConnectionRefusedError"),
        ({}, "done", "done"),
    ],
    ids=str,
)
def test_a_hook_writes_and_connects_only_as_its_keys_say(
    hooks: Desk, tmp_path: Path, keys: dict[str, Any], outside: str, network: str
) -> None:
    """The attack: a formatter that runs an agent's text changes files of the user, or sends them away."""
    keys = {key: [str(tmp_path)] if value == ["OUTSIDE"] else value for key, value in keys.items()}
    (tmp_path / "leased").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        hooks.configure(hook("reach", REACH, port, str(tmp_path), **keys))
        hooks.client.apply([write("r.txt", "x\n")])
    answers = json.loads(hooks.holds("r.txt"))
    assert answers == HELD | others_of(answers, is_confined=bool(keys)) | {
        "outside": outside,
        "network": network,
        "unix": "done" if keys.get("unix_sockets", not keys) else "PermissionError",
        "signal": SIGNAL if keys else "done",
    }
    assert (tmp_path / "by-hook").exists() is (outside == "done")
    weaker = [sentence for sentence in hooks.client.status().weaker if "'reach'" in sentence]
    assert [sentence.partition(",")[0] for sentence in weaker] == (
        [] if keys else ["The hook 'reach' has neither `writable` nor `network`"]
    )
    hooks.client.apply([Delete(path="r.txt")])


def test_a_hook_that_cannot_be_confined_runs_and_status_says_so(hooks: Desk) -> None:
    answers = HookAnswers(HookJob((), ()))
    answers.add_frame({"of": "reach", "unheld": ["files", "network", "unix_sockets", "processes"]})
    assert answers.unheld == {"reach": ["files", "network", "unix_sockets", "processes"]}
    assert unheld_sentence("hook 'reach'", answers.unheld["reach"]) == (
        "The hook 'reach' could write to other paths than `writable` and reach the network and connect to "
        "Unix sockets and change the limits and priorities of other processes: this system cannot hold it."
    )
    with pytest.raises(EditdError, match="expected a list of absolute paths"):
        hooks.configure(hook("wrong", UPPER, writable=["cache"]))


@pytest.mark.parametrize("folder", [".", "bin"])
def test_a_hook_finds_no_program_in_the_workspace_by_its_name(tmp_path: Path, folder: str) -> None:
    with workplace(tmp_path / "place", {}) as place:
        made = place.root / folder / "made-here"
        made.parent.mkdir(exist_ok=True)
        made.write_text("#!/bin/sh\necho run\n")
        made.chmod(0o755)
        place.variables["PATH"] = f"{made.parent}{os.pathsep}{os.environ['PATH']}"
        with place.start() as client:
            desk = Desk(place, client)
            desk.configure(hook("here", "", command=["made-here"]))
            desk.refused(write("a.txt", "x\n"))


# ── others meanwhile ──


GATED = """
import os, sys, time
text = sys.stdin.read()
with open(sys.argv[1] + "/began", "a") as began:
    began.write("x")
runs = os.path.getsize(sys.argv[1] + "/began")
while os.path.getsize(sys.argv[1] + "/go") < runs:
    time.sleep(0.01)
sys.stdout.write(text.upper())
"""


def test_an_edit_that_somebody_overtakes_is_judged_anew_and_formatted_anew(
    hooks: Desk, tmp_path: Path
) -> None:
    began, go = tmp_path / "began", tmp_path / "go"
    for file in (began, go):
        file.touch()
    live = hooks.place.root / "race.txt"
    outcomes: list[object] = []

    def edit(*edits: Any) -> None:
        with hooks.place.client() as other:
            try:
                outcomes.append(other.apply(list(edits)))
            except EditdError as refusal:
                outcomes.append(refusal)

    def overtake(run: int, text: str) -> None:
        """While the hook runs for that time, somebody else writes the file."""
        eventually(lambda: began.stat().st_size >= run)
        live.write_text(text)
        go.write_text("x" * run)

    hooks.client.apply([write("race.txt", "one\ntwo\n")])
    version = hooks.client.read("race.txt").version
    hooks.configure(hook("slow", GATED, str(tmp_path)))
    based = threading.Thread(target=edit, args=[replace("race.txt", "one", "three", base=version)])
    based.start()
    overtake(1, "one\ntwo\nfour\n")
    based.join()
    assert isinstance(outcomes[0], EditdError)
    assert outcomes[0].name == "stale"

    blind = threading.Thread(target=edit, args=[replace("race.txt", "one", "three")])
    blind.start()
    overtake(2, "one\ntwo\nfive\n")
    overtake(3, "one\ntwo\nfive\n")
    blind.join()
    assert hooks.holds("race.txt") == "THREE\nTWO\nFIVE\n"
    assert began.stat().st_size == 3, "what the hook has seen already, it does not see again"


def test_a_hook_that_writes_to_the_live_file_is_somebody_else(hooks: Desk) -> None:
    hooks.client.apply([write("live.txt", "one\n")])
    version = hooks.client.read("live.txt").version
    live = str(hooks.place.root / "live.txt")
    meddle = f"import sys, time; open({live!r}, 'a').write('meddled\\n'); sys.stdout.write(sys.stdin.read())"
    hooks.configure(hook("meddles", meddle))
    with pytest.raises(EditdError) as caught:
        hooks.client.apply([replace("live.txt", "one", "two", base=version)])
    assert caught.value.name == "stale"
    assert hooks.holds("live.txt") == "one\nmeddled\n"
    newest = hooks.client.log(limit=1).transactions[0]
    assert (newest.kind, [file.path for file in newest.files]) == ("outside", ["live.txt"])


def test_one_that_does_so_each_time_is_given_up(hooks: Desk) -> None:
    hooks.client.apply([write("endless.txt", "one\n")])
    live = str(hooks.place.root / "endless.txt")
    meddle = f"import sys; t = sys.stdin.read(); open({live!r}, 'a').write('m\\n'); sys.stdout.write(t)"
    hooks.configure(hook("meddles", meddle))
    with pytest.raises(EditdError) as caught:
        hooks.client.apply([replace("endless.txt", "one", "two")])
    assert caught.value.name in ("overloaded", "stale")
    assert hooks.holds("endless.txt").startswith("one\n")


def test_many_clients_each_get_their_own(hooks: Desk) -> None:
    hooks.configure(hook("upper", UPPER))
    wanted = {f"many/{number}.txt": f"text {number}\n" for number in range(8)}

    def apply(path: str, text: str) -> None:
        with hooks.place.client() as other:
            other.apply([write(path, text)])

    waiting = [threading.Thread(target=apply, args=item) for item in wanted.items()]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    assert {path: hooks.holds(path) for path in wanted} == {
        path: text.upper() for path, text in wanted.items()
    }


# ── the configuration, and looking ──


def test_hooks_can_be_run_on_files_as_they_are_which_changes_nothing(hooks: Desk) -> None:
    hooks.client.apply([write("as_is.txt", "one\n"), write("as_is.other", "two\n")])
    hooks.configure(hook("upper", UPPER))
    before = hooks.place.files()
    answer = hooks.client.hooks_run(["as_is.txt", "as_is.other"])
    assert answer.hooks == ["upper"]
    assert answer.files == [
        {"path": "as_is.txt", "formatted_by": ["upper"]}, {"path": "as_is.other", "formatted_by": []}
    ]  # fmt: skip
    assert "+ONE" in answer.diff
    (hooks.place.root / "link.txt").symlink_to("as_is.txt")
    assert hooks.client.hooks_run(["link.txt"]).diff == answer.diff
    before = hooks.place.files()
    hooks.configure(hook("no", "raise SystemExit('never')", kind="check"))
    with pytest.raises(EditdError, match="never"):
        hooks.client.hooks_run(["as_is.txt"])
    with pytest.raises(EditdError, match="does not exist"):
        hooks.client.hooks_run(["nowhere.txt"])
    assert hooks.place.files() == before


def test_hooks_in_the_workspace_itself_count_for_nothing(hooks: Desk) -> None:
    hooks.client.apply(
        [write("editd/config.toml", hook("upper", UPPER)), write(".editd.toml", hook("u", UPPER))]
    )
    hooks.client.config_reload()
    assert hooks.client.status().hooks == []
    hooks.client.apply([write("inside.txt", "one\n")])
    assert hooks.holds("inside.txt") == "one\n"


# ── the daemon's end ──


def test_a_daemon_that_is_killed_while_a_hook_runs_leaves_nothing_behind(place: Workplace) -> None:
    place.write({"a.txt": "one\n"})
    with place.start() as client:
        desk = Desk(place, client)
        desk.configure(hook("hangs", FORKS_AWAY.replace("61.25", "62.5") + "time.sleep(62.5)", seconds=60))
        asking = threading.Thread(target=in_vain, args=[client, write("a.txt", "x\n")])
        asking.start()
        eventually(lambda: is_running("62.5"))
        place.kill()
        asking.join()
    eventually(lambda: not is_running("62.5"))
    eventually(lambda: not desk.scratch())
    with place.start() as client:
        assert place.files() == {"a.txt": b"one\n"}
        assert client.status().head == 0
        assert client.check().ok
        assert desk.scratch() == []


def test_a_daemon_that_is_told_to_end_ends_its_hooks(place: Workplace, is_long: bool) -> None:
    if not is_long:
        pytest.skip("it takes the ten seconds that what is under way is given (--long)")
    with place.start() as client:
        desk = Desk(place, client)
        desk.configure(hook("hangs", "import time; time.sleep(63.5)", seconds=600))
        asking = threading.Thread(target=in_vain, args=[client, write("a.txt", "x\n")])
        asking.start()
        eventually(lambda: is_running("63.5"))
        with within(20):
            place.stop()
        asking.join()
    assert not is_running("63.5")
    assert desk.scratch() == []
    assert place.files() == {}


def test_a_slow_hook_leaves_a_request_its_patience_with_a_file_that_is_open_for_writing(hooks: Desk) -> None:
    """A request waits 2 s for a writer; the time that its hook takes is not part of these."""
    hooks.configure(hook("slow", "import time; time.sleep(2.2)", kind="check", seconds=10))
    path = hooks.place.root / "patient.txt"
    path.write_text("1\n")
    hooks.client.settle()

    def hold() -> None:
        time.sleep(1.5)
        with path.open("r+"):
            time.sleep(1.5)

    writer = threading.Thread(target=hold)
    writer.start()
    hooks.client.apply([write("patient.txt", "2\n")])
    writer.join()
    assert hooks.holds("patient.txt") == "2\n"
