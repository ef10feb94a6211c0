"""system.confinement: a confined process writes and reads nowhere else, and reaches no network."""

from __future__ import annotations

import errno
import json
import os
import platform
import socket
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from editd.system import confinement
from editd.system.call_filter import MACHINES, family_filter, socket_filter
from editd.system.confinement import (
    DEVICES,
    OF_A_FILE,
    READING,
    WRITING,
    FileAccess,
    landlock_version,
    missing,
    rules_of,
)

if TYPE_CHECKING:
    from pathlib import Path

HAS_LANDLOCK = pytest.mark.skipif(not landlock_version(), reason="this system has no Landlock")
HOLDS_SIGNALS = pytest.mark.skipif(
    landlock_version() < confinement.SIGNALS_SINCE, reason="this kernel does not hold signals"
)
HAS_FILTER = pytest.mark.skipif(not confinement.has_filter(), reason="this system has no seccomp filter")

ATTACK = """
import fcntl, json, os, socket, sys
inside, outside = sys.argv[1], sys.argv[2]

def attempt(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0

def program():
    script = "exec 2>/dev/null; : > " + outside + "/kept"
    if os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", script]):
        raise PermissionError(13, "refused")

def lease(descriptor):
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)

def attack(*_, **__):
    calls = {
        "write inside": lambda: open(inside + "/new", "w").close(),
        "truncate": lambda: os.truncate(outside + "/kept", 0),
        "write": lambda: open(outside + "/kept", "w"),
        "create": lambda: open(outside + "/new", "w"),
        "unlink": lambda: os.unlink(outside + "/kept"),
        "mkdir": lambda: os.mkdir(outside + "/folder"),
        "symlink": lambda: os.symlink("x", outside + "/link"),
        "move out": lambda: os.rename(inside + "/old", outside + "/old"),
        "move in": lambda: os.rename(outside + "/kept", inside + "/kept"),
        "link": lambda: os.link(outside + "/kept", inside + "/link"),
        "fifo": lambda: os.mkfifo(outside + "/fifo"),
        "read": lambda: open(outside + "/kept").read(),
        "list": lambda: os.listdir(outside),
        "lease": lambda: lease(os.open(outside + "/leased", os.O_RDONLY)),
        "internet": lambda: socket.socket(socket.AF_INET).close(),
        "unix": lambda: socket.socket(socket.AF_UNIX).close(),
        "program": program,
        "null": lambda: open("/dev/null", "w").write("x"),
        "signal": lambda: os.kill(os.getppid(), 0),
    }
    sys.stderr.write(json.dumps({name: attempt(call) for name, call in calls.items()}))
    sys.stderr.flush()
    os._exit(0)
"""
OUTSIDE = (
    "truncate", "write", "create", "unlink", "mkdir", "symlink", "move out", "move in", "link", "fifo",
    "program",
)  # fmt: skip


def attacked(tmp_path: Path, script: str) -> dict[str, int]:
    """Return the error number of each attack, made by a process of its own at the given place."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    (inside / "old").write_text("old")
    (outside / "kept").write_text("kept")
    (outside / "leased").write_text("leased")
    argv = [sys.executable, "-c", ATTACK + script, str(inside), str(outside)]
    done = subprocess.run(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        text=True, check=False,
    )  # fmt: skip
    assert done.stderr.startswith("{"), done.stderr
    answers: dict[str, int] = json.loads(done.stderr)
    if all(answers[name] for name in OUTSIDE):
        assert (outside / "kept").read_text() == "kept"
        assert sorted(os.listdir(outside)) == ["kept", "leased"]
    return answers


def test_without_a_confinement_each_attack_works(tmp_path: Path) -> None:
    answers = attacked(tmp_path, "attack()")
    free = ("write inside", "write", "create", "list", "lease", "unix", "signal")
    assert [name for name in free if answers[name]] == []


@HAS_LANDLOCK
@HAS_FILTER
def test_a_confined_process_and_its_children_write_only_where_they_may(tmp_path: Path) -> None:
    script = "from editd.system.confinement import confine\nassert confine([inside]) == []\nattack()"
    answers = attacked(tmp_path, script)
    assert {answers[name] for name in OUTSIDE} <= {errno.EACCES, errno.EXDEV}
    assert {answers[name] for name in ("lease", "internet", "unix")} == {errno.EACCES}
    assert [answers[name] for name in ("write inside", "read", "list", "null")] == [0, 0, 0, 0]


@HOLDS_SIGNALS
def test_a_confined_process_signals_nothing_outside(tmp_path: Path) -> None:
    """The attack: a check of proposed code ends the daemon, which is the parent of its worker."""
    script = (
        "import subprocess\nfrom editd.system.confinement import confine\nconfine([inside])\n"
        "child = subprocess.Popen(['sleep', '60'])\nchild.kill()\nassert child.wait() == -9\nattack()"
    )
    assert attacked(tmp_path, script)["signal"] == errno.EPERM


@HAS_LANDLOCK
def test_a_command_keeps_its_network_if_it_may(tmp_path: Path) -> None:
    script = "from editd.system.confinement import confine\nconfine([inside], network=True)\nattack()"
    answers = attacked(tmp_path, script)
    assert (answers["internet"], answers["write"]) == (0, errno.EACCES)


WORKERS = {  # the start of each worker, whose first step after its confinement is the attack
    "regular expressions": "import editd.engine.regex_worker as worker\nworker.read_frame = attack",
    "packing": "import editd.store.pack_worker as worker\nworker.take = attack",
    "compaction": "import editd.store.compaction as worker\nworker.take = attack",
    "verification": "import contextlib, editd.store.verify_worker as worker\nworker.shared_lock = attack\n"
    "worker.read_frame = lambda _: {'through': 0}\nworker._beside = lambda _: contextlib.nullcontext()",
}


@HAS_LANDLOCK
@HAS_FILTER
@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_reaches_nothing_that_it_does_not_need(tmp_path: Path, name: str) -> None:
    answers = attacked(tmp_path, f"{WORKERS[name]}\nworker.main()")
    assert all(answers[attack] for attack in (*OUTSIDE, "internet", "unix")), answers
    is_of_regex = name == "regular expressions"
    assert [answers[one] != 0 for one in ("write inside", "read", "list")] == [is_of_regex] * 3


def test_the_rules_hold_only_what_the_version_knows() -> None:
    held, rules = rules_of(["/a"], None, 1)
    assert not held & (READING | FileAccess.REFER | FileAccess.TRUNCATE)
    assert [rule.path for rule in rules] == ["/a", *DEVICES]
    assert rules[0].rights == held
    assert all(not rule.rights & ~OF_A_FILE for rule in rules[1:])
    held, rules = rules_of(["/a"], ["/b"], 7)
    assert held == WRITING | READING
    assert [(rule.path, rule.rights) for rule in rules[:2]] == [("/a", held), ("/b", READING)]
    assert FileAccess.REFER in rules_of((), None, 2)[0]
    assert FileAccess.TRUNCATE not in rules_of((), None, 2)[0]
    assert FileAccess.TRUNCATE in rules_of((), None, 3)[0]


def test_the_filter_ends_in_a_permission_and_a_refusal() -> None:
    for calls in MACHINES.values():
        program = socket_filter(calls, OWN)
        assert program[-16:] == bytes.fromhex("0600000000 00ff7f 06000000 0d000500".replace(" ", ""))


MACHINE, SOCKET, PAIR, OWN = 0xC000003E, 41, 53, 1234
CALLS = {  # of x86_64, and whether the filter for the families lets them pass
    (MACHINE, SOCKET, socket.AF_INET, 1): True,
    (MACHINE, SOCKET, socket.AF_UNIX, 1): False,
    (MACHINE, SOCKET, 40, 1): False,
    (MACHINE, PAIR, socket.AF_UNIX, socket.SOCK_STREAM): True,
    (MACHINE, PAIR, socket.AF_UNIX, socket.SOCK_DGRAM | 0o2000000): False,
    (MACHINE, PAIR, 30, socket.SOCK_STREAM): False,
    (MACHINE, 1, socket.AF_UNIX, 1): True,
    (MACHINE, 425, 0, 0): False,  # io_uring_setup(2)
    (MACHINE, SOCKET | 0x40000000, socket.AF_INET, 1): False,
    (0x40000003, 359, socket.AF_INET, 1): False,
    (MACHINE, 302, 0, 0): True,  # prlimit(2) of itself, and of another process
    (MACHINE, 302, 1 << 32, 0): True,  # the kernel ignores the upper half
    (MACHINE, 302, OWN, 0): True,
    (MACHINE, 302, 1, 0): False,
    (MACHINE, 203, OWN, 8): True,  # sched_setaffinity(2)
    (MACHINE, 203, 1 << 32 | 1, 8): False,
    (MACHINE, 144, 1, 0): False,  # sched_setscheduler(2)
    (MACHINE, 141, 0, 0): True,  # setpriority(2) of a process, of a group, and of a user
    (MACHINE, 141, 0, OWN): True,
    (MACHINE, 141, 0, 1): False,
    (MACHINE, 141, 1, 0): False,
    (MACHINE, 141, 2, 0): False,
    (MACHINE, 251, 1, 0): True,  # ioprio_set(2)
    (MACHINE, 251, 1, 1): False,
    (MACHINE, 251, 3, 0): False,
    (MACHINE, 31, 0, 0): False,  # shmctl(2)
    (MACHINE, 71, 0, 0): False,  # msgctl(2)
    (MACHINE, 241, 0, 0): False,  # mq_unlink(2)
    (MACHINE, 250, 0, 0): False,  # keyctl(2)
    (MACHINE, 72, 3, 1): True,  # fcntl(2): F_GETFD, F_SETLEASE
    (MACHINE, 72, 3, 1024): False,
    (MACHINE, 72, 3, 1 << 32 | 1024): False,
}


@pytest.mark.parametrize("call", CALLS)
def test_the_filter_of_families_decides_about_each_call(call: tuple[int, int, int, int]) -> None:
    program = family_filter(MACHINES["x86_64"], OWN, [socket.AF_INET, socket.AF_INET6])
    machine, number, first, second = call
    assert is_let_pass(program, struct.pack("=IIQQQ", number, machine, 0, first, second)) is CALLS[call]


@pytest.mark.parametrize("has_unix_sockets", [False, True])
def test_a_command_with_a_network_has_the_families_of_the_internet(has_unix_sockets: bool) -> None:
    program = confinement._family_filter_of(has_unix_sockets)(MACHINES["x86_64"], OWN)
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_UNIX, 17, 40)
    passed = [
        family
        for family in families
        if is_let_pass(program, struct.pack("=IIQQQ", SOCKET, MACHINE, 0, family, socket.SOCK_DGRAM))
    ]
    assert passed == list(families[: 4 if has_unix_sockets else 3])


def is_let_pass(program: bytes, call: bytes) -> bool:
    """Run a filter as the kernel does; return whether it ends in the permission."""
    steps = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        code, taken, missed, value = steps[at]
        at += 1
        if code == 0x06:
            return bool(value == 0x7FFF0000)
        if code == 0x20:
            accumulator = struct.unpack_from("=I", call, value)[0]
        elif code == 0x54:
            accumulator &= value
        else:
            at += taken if (accumulator >= value if code == 0x35 else accumulator == value) else missed


SOCKETS = """
import json, socket, sys
from editd.system.confinement import confine
lost = confine([], network=True, unix_sockets=len(sys.argv) > 2)
def attempt(call):
    try:
        call()
    except OSError as error:
        return error.errno
    return 0
pair = socket.socketpair()
print(json.dumps([lost, {
    "stream": attempt(lambda: socket.socket(socket.AF_UNIX).connect(sys.argv[1])),
    "datagram": attempt(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)),
    "pair of datagrams": attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)),
    "pair": attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)),
    "a paired one again": attempt(lambda: pair[0].connect(sys.argv[1])),
    "internet": attempt(lambda: socket.socket(socket.AF_INET).close()),
    "internet, IPv6": attempt(lambda: socket.socket(socket.AF_INET6).close()),
    "netlink": attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()),
    "vsock": attempt(lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)),
    "packet": attempt(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW)),
}]))
"""


@HAS_FILTER
def test_a_command_without_unix_sockets_connects_to_no_program_of_the_machine(tmp_path: Path) -> None:
    """The attack: a hook without a network asks docker or systemd to run a program."""
    refused = {"stream": errno.EACCES, "datagram": errno.EACCES, "pair of datagrams": errno.EACCES}
    assert sockets_of(tmp_path) == FREE | refused


@HAS_FILTER
def test_no_command_reaches_a_hypervisor(tmp_path: Path) -> None:
    """The attack: no namespace holds the sockets of a virtual machine, so a check reaches its host."""
    answers = sockets_of(tmp_path, "unix sockets")
    assert answers == FREE | {"stream": 0, "datagram": 0, "pair of datagrams": 0}


def error_of_ipv6() -> int:
    """Return 0, or the error number of a system that has no IPv6."""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError as error:
        return error.errno or -1
    return 0


FREE = {  # the answers with any reach
    "pair": 0, "a paired one again": errno.EISCONN, "internet": 0, "netlink": 0,
    "internet, IPv6": error_of_ipv6(), "vsock": errno.EACCES, "packet": errno.EACCES,
}  # fmt: skip


def sockets_of(tmp_path: Path, *reach: str) -> dict[str, int]:
    """Return the error number of each socket that a confined command makes."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        argv = [sys.executable, "-c", SOCKETS, path, *reach]
        lost, answers = json.loads(subprocess.run(argv, capture_output=True, check=True).stdout)
    assert lost == []
    sockets: dict[str, int] = answers
    return sockets


def test_what_the_system_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(version: int, *, has_filter: bool) -> str:
        monkeypatch.setattr(confinement, "landlock_version", lambda: version)
        monkeypatch.setattr(confinement, "has_filter", lambda: has_filter)
        return " ".join(missing())

    assert said(7, has_filter=True) == ""
    assert "no Landlock" in said(0, has_filter=True)
    assert "truncate(2)" in said(2, has_filter=True)
    assert "could reach the network" in said(3, has_filter=False)
    assert "end the daemon by its limits" in said(7, has_filter=False)
    assert "signals" in said(5, has_filter=True)


@HAS_FILTER
def test_a_machine_without_a_filter_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(machine: str) -> Any:
        monkeypatch.setattr(platform, "machine", lambda: machine)
        confinement.has_filter.cache_clear()
        return confinement.has_filter()

    try:
        assert lost("vax") is False
        assert lost("aarch64") is True
    finally:
        confinement.has_filter.cache_clear()
