"""The helper against those who would use it for more than they may, and its beginning and end."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.resident import channel
from editd_client.resident import place as places
from editd_client.resident.state import Unknown, state_of
from support.resident import WAIT_SECONDS, children_of, end, state_letter, until

if TYPE_CHECKING:
    from support.resident import Resident

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no bubblewrap")
IN_SANDBOX = (
    "bwrap",
    "--bind",
    "/",
    "/",
    "--dev-bind",
    "/dev",
    "/dev",
    "--proc",
    "/proc",
    "--unshare-pid",
    "--",
)


def test_the_first_call_starts_the_helper_and_two_at_once_start_one(resident: Resident) -> None:
    calls = [
        subprocess.Popen([resident.editctl, "status"], cwd=resident.place.root, env=resident.environment(),
                         stdout=subprocess.DEVNULL)
        for _ in range(4)
    ]  # fmt: skip
    assert [call.wait(WAIT_SECONDS) for call in calls] == [0] * 4
    helper = resident.warm()
    assert resident.helpers() == [helper]
    assert os.stat(resident.sockets()[0].parent).st_mode & 0o777 == 0o700
    assert os.stat(resident.sockets()[0]).st_mode & 0o777 == 0o600


def test_the_daemon_starts_no_helper_and_no_helper_starts_with_the_switch(resident: Resident) -> None:
    with resident.place.client() as client:
        assert client.status().state == "ready"
    resident.run("status", way="no")
    resident.run("start")
    assert resident.sockets() == []


def test_status_shows_the_way_of_the_command(resident: Resident) -> None:
    helper = resident.warm()
    assert f"commands    by the resident process {helper}" in resident.run("status", "-v").stdout
    slow = resident.run("status", "-v", way="no").stdout
    assert "commands    each in a process of its own: EDITD_RESIDENT=no" in slow


def test_the_helper_keeps_nothing_of_the_process_that_starts_it(resident: Resident) -> None:
    reading, writing = os.pipe()
    subprocess.run(
        [resident.editctl, "status"], cwd=resident.place.root, pass_fds=[writing], check=True,
        env=resident.environment(SECRET="s3cret", EDITD_TOKEN=""), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(writing)
    assert os.read(reading, 1) == b""  # also the helper has closed it
    os.close(reading)
    helper = resident.warm()
    resident.run("status", SECRET="s3cret")
    assert b"s3cret" not in Path(f"/proc/{helper}/environ").read_bytes()
    assert os.readlink(f"/proc/{helper}/cwd") == "/"
    names = {os.readlink(f"/proc/{helper}/fd/{number}") for number in os.listdir(f"/proc/{helper}/fd")}
    assert {name for name in names if not name.startswith("socket:")} == {
        os.devnull, f"{resident.sockets()[0]}.lock"
    }  # fmt: skip


def test_a_call_leaves_no_process(resident: Resident) -> None:
    helper = resident.warm()
    resident.run("log")
    until(lambda: not children_of(helper))


# ── Attacks ───────────────────────────────────────────────────────────────────────────────────────


def answers(path: Path, prefix: tuple[str, ...] = ()) -> bool:
    """Return whether the helper greets a process that connects."""
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout(20);"
        "s.connect(sys.argv[1]); print(len(s.recv(100)))"
    )
    done = subprocess.run(
        [*prefix, sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True,
        timeout=WAIT_SECONDS,
    )  # fmt: skip
    return int(done.stdout) > 0


@needs_bubblewrap
def test_the_helper_runs_nothing_for_a_sandbox(resident: Resident) -> None:
    helper = resident.warm()
    (path,) = resident.sockets()
    assert answers(path)
    assert not answers(path, IN_SANDBOX)
    done = subprocess.run(
        [*IN_SANDBOX, resident.editctl, "status"], cwd=resident.place.root, env=resident.environment(),
        capture_output=True, text=True, check=False, timeout=WAIT_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert resident.reasons() == ["a process without new privileges"]
    assert resident.helpers() == [helper]


@pytest.mark.parametrize(
    "prefix",
    [
        ("setpriv", "--no-new-privs"),
        ("prlimit", "--nofile=1000:1000"),
        ("nice", "-n", "5"),
        ("unshare", "--mount"),
        ("unshare", "--user", "--map-root-user"),
        ("setpriv", "--bounding-set=-sys_admin"),
    ],
)
def test_the_helper_runs_nothing_for_a_process_in_another_state(
    resident: Resident, prefix: tuple[str, ...]
) -> None:
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"{prefix} is not possible here")
    resident.warm()
    assert not answers(resident.sockets()[0], prefix)


def listener_at(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    os.chmod(path, 0o600)
    listener.listen()
    return listener


def planted(resident: Resident) -> Path:
    """End the helper and return the path of its socket, free for another."""
    end(resident.warm())
    (path,) = resident.sockets()
    path.unlink()
    return path


def test_a_folder_or_a_socket_that_is_open_to_others_is_not_used(resident: Resident) -> None:
    path = planted(resident)
    with listener_at(path) as listener:
        listener.setblocking(False)
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
            assert resident.run("status").returncode == 0
            assert "it is no socket of this user" in resident.reasons()[0]
            os.chown(path, 0, 0)
        os.chmod(path.parent, 0o755)
        assert resident.run("status").returncode == 0
        assert "its folder is open to others" in resident.reasons()[0]
        os.chmod(path.parent, 0o700)
        other = path.with_name("other")
        path.rename(other)
        path.symlink_to(other)
        assert resident.run("status").returncode == 0
        assert "it is no socket of this user" in resident.reasons()[0]
        with pytest.raises(BlockingIOError):
            listener.accept()


@needs_bubblewrap
def test_a_listener_in_a_sandbox_gets_nothing(resident: Resident) -> None:
    path = planted(resident)
    code = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.bind(sys.argv[1]);"
        "s.listen(); print('listens', flush=True); c, _ = s.accept();"
        "import contextlib, marshal\n"
        "with contextlib.suppress(OSError): c.sendall(marshal.dumps((1,))); print(len(c.recv(1 << 20)))"
    )
    with subprocess.Popen(
        [*IN_SANDBOX, sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        assert resident.run("status").returncode == 0
        assert process.stdout.read() in ("", "0\n")
    assert len(resident.reasons()) == 1


def test_the_request_must_come_from_the_process_that_connected(resident: Resident) -> None:
    resident.warm()
    (path,) = resident.sockets()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stream:
        stream.settimeout(WAIT_SECONDS)
        stream.connect(str(path))
        assert stream.recv(100)
        child = os.fork()
        if child == 0:
            folder = os.open("/", os.O_PATH)
            life, _ = os.pipe()
            call = ("editctl", "editctl", ["--version"], dict(os.environb), 0)
            channel.send(stream, call, (0, 1, 2, folder, life))
            os._exit(0)
        os.waitpid(child, 0)
        assert stream.recv(100) == b""


def test_a_helper_that_hangs_before_the_request_costs_little(resident: Resident) -> None:
    helper = resident.warm()
    os.kill(helper, signal.SIGSTOP)
    done = resident.run("status", EDITD_TEST_ANSWER_SECONDS="0.1")
    assert (done.returncode, done.stderr) == (0, "")
    assert resident.reasons() == ["the resident process does not answer"]
    os.kill(helper, signal.SIGCONT)
    resident.warm()


@pytest.mark.parametrize(("program", "code"), [("editctl", 3), ("editd-hook", 0)])
def test_a_helper_that_dies_after_the_request_ends_the_call(
    resident: Resident, program: str, code: int
) -> None:
    """A hook harms no agent."""
    path = planted(resident)
    words = ["write", "b.txt"] if program == "editctl" else ["claude"]
    with listener_at(path) as listener, subprocess.Popen(
        [str(resident.folder / program), *words], cwd=resident.place.root, env=resident.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        listener.settimeout(WAIT_SECONDS)
        stream, _ = listener.accept()
        channel.send(stream, (os.getpid(),))
        assert stream.recv(1 << 20)
        stream.close()
        out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out) == (code, "")
    assert ("may or may not" in err) == (code == 3)
    assert resident.reasons() == []
    assert "b.txt" not in resident.place.files()


def test_a_call_that_is_too_large_runs_in_a_process_of_its_own(resident: Resident) -> None:
    resident.warm()
    done = resident.run("status", LARGE="x" * 120_000, LARGER="x" * 120_000)
    assert done.returncode == 0
    assert "cannot be handed over" in resident.reasons()[0]


def test_the_state_of_a_process_that_is_gone_is_unknown() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    with pytest.raises(Unknown):
        state_of(process.pid)


def test_another_limit_is_another_key() -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))

    code = "from editd_client.resident import place; print(place.key().path)"
    paths = {
        subprocess.run([sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, check=True,
                       preexec_fn=change).stdout
        for change in (None, None, limited)
    }  # fmt: skip
    assert len(paths) == 2


# ── The end of a helper ───────────────────────────────────────────────────────────────────────────


def helper_with(resident: Resident, setting: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a helper with a changed constant; return it and its socket."""
    code = f"import sys; from editd_client.resident import helper; {setting}; helper.main()"
    path = resident.place.runtime / "editd" / f"{places.PREFIX}test"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], env=resident.environment())
    return process, path


def test_an_idle_helper_ends_and_leaves_no_file(resident: Resident) -> None:
    process, path = helper_with(resident, "helper.IDLE_SECONDS, helper.LOOK_SECONDS = 0.2, 0.1")
    assert process.wait(WAIT_SECONDS) == 0
    assert not path.exists()
    assert not path.with_name(path.name + ".lock").exists()


def test_a_helper_ends_when_its_socket_is_gone(resident: Resident) -> None:
    process, path = helper_with(resident, "helper.LOOK_SECONDS = 0.1")
    until(path.exists)
    until(lambda: answers(path))
    path.unlink()
    assert process.wait(WAIT_SECONDS) == 0


def test_a_helper_ends_when_a_loaded_module_is_changed(resident: Resident, tmp_path: Path) -> None:
    module = tmp_path / "loaded.py"
    module.write_text("")
    process, path = helper_with(resident, f"sys.path.append({str(tmp_path)!r}); import loaded")
    until(path.exists)
    until(lambda: answers(path))
    module.write_text("# another version\n")
    assert not answers(path)
    assert process.wait(WAIT_SECONDS) == 0


def test_a_second_helper_leaves_the_first_alone_and_removes_killed_ones(
    resident: Resident,
) -> None:
    first, path = helper_with(resident, "helper.LOOK_SECONDS = 0.1")
    until(path.exists)
    until(lambda: answers(path))
    second, _ = helper_with(resident, "helper.LOOK_SECONDS = 0.1")
    assert second.wait(WAIT_SECONDS) == 0
    assert answers(path)
    end(first.pid)
    first.wait()
    assert path.exists()
    resident.warm()
    assert path not in resident.sockets()


# ── The caller stays the process that the command belongs to ──────────────────────────────────────

AGENT = """
import json, subprocess, sys
hook, editctl, folder = sys.argv[1:]
event = {"hook_event_name": "PreToolUse", "session_id": "a-session", "tool_name": "Edit", "cwd": folder,
         "tool_input": {"file_path": "a.txt", "old_string": "one", "new_string": "1"}, "tool_use_id": "call"}
subprocess.run([hook, "claude"], input=json.dumps(event).encode(), check=True)
done = subprocess.run([editctl, "undo", "1"], capture_output=True, text=True)
print(json.dumps([done.returncode, done.stderr]))
"""


@pytest.mark.parametrize("way", ["yes", "no"])
def test_the_daemon_knows_the_agent_above_the_caller(resident: Resident, way: str) -> None:
    helper = resident.warm()
    resident.run("write", "b.txt", stdin="b\n")
    agent = subprocess.run(
        [sys.executable, "-c", AGENT, resident.hook, resident.editctl, str(resident.place.root)],
        cwd=resident.place.root, env=resident.environment(EDITD_RESIDENT=way), check=True, text=True,
        stdout=subprocess.PIPE, timeout=WAIT_SECONDS,
    )  # fmt: skip
    code, text = json.loads(agent.stdout)
    assert code == 1
    assert "has started this program" in text
    assert resident.reasons() == (["EDITD_RESIDENT=no"] if way == "no" else [])
    assert state_letter(helper)
    assert resident.run("undo", "1").returncode == 0  # a person's, by the same helper


def test_a_daemon_that_a_call_starts_is_a_child_of_the_caller(resident: Resident) -> None:
    """And so is in its sandbox, and not in the helper's."""
    helper = resident.warm()
    resident.place.stop()
    done = resident.run("log")
    assert done.returncode == 0, done.stderr
    assert resident.reasons() == []
    daemon = int((resident.place.state / "lock").read_text().split()[0])
    assert daemon not in children_of(helper)
    with open(f"/proc/{daemon}/environ", "rb") as file:
        assert b"EDITD_TEST_REASONS" not in file.read()  # the daemon gets the kept variables alone
    resident.place.terminate()
