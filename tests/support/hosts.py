"""Several hosts of one workspace: folders with a daemon each, and a bare repository between them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from editd.wire.messages import RemoteResult
    from editd_client.client import Client
    from support.git_servers import GitServer
    from support.workplace import Workplace

WAIT_SECONDS = 30
MEMORY = Path("/dev/shm")
CLOCK_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")

Hosts = tuple[list["Workplace"], list["Client"], "Path"]  # with their clients, and the repository of the log


def bare_repository(folder: Path) -> Path:
    """Make the repository on the server."""
    subprocess.run(["git", "init", "-q", "--bare", folder], check=True)
    return folder


@contextlib.contextmanager
def hosts(
    folder: Path,
    number: int,
    files: Mapping[str, bytes | str] | None = None,
    *,
    join: bool = True,
    scheme: str = "",
    server: GitServer | None = None,
) -> Iterator[Hosts]:
    """Start daemons on as many folders; the first begins the log with `files`, and the others join it.

    With the scheme `file://`, git reads the refs, too. `server` is another server than a folder.
    """
    with contextlib.ExitStack() as stack:
        repository = bare_repository(folder / "server.git") if server is None else server.repository
        url = f"{scheme}{repository}" if server is None else server.url
        places, clients = [], []
        for one in range(number):
            place = stack.enter_context(workplace(folder / f"host{one}", files if one == 0 else None))
            name_host(place, f"host{one}")
            place.variables |= {} if server is None else server.variables
            places.append(place)
            clients.append(stack.enter_context(place.start()))
        clients[0].remote_init(url)
        if join:
            for client in clients[1:]:
                client.remote_join(url)
        yield places, clients, repository


def name_host(place: Workplace, name: str, more: str = "") -> None:
    """Configure the name of a host."""
    config = place.folder / "config" / "editd"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(f'[remote]\nhost = "{name}"\npoll = 0.2\n{more}')


def set_clock(place: Workplace, days: int) -> None:
    """Have the clock of a host be so many days ahead, from the next start of its daemon on.

    The processes of the daemon read the file, because it does not keep the variables of libfaketime.
    """
    place.is_forked = False
    (place.folder / "home/.faketimerc").write_text(f"{days:+d}d\n")
    place.variables |= {
        "LD_PRELOAD": str(CLOCK_LIBRARY), "FAKETIME": f"{days:+d}d", "DONT_FAKE_MONOTONIC": "1"
    }  # fmt: skip


def forget_clocks() -> None:
    """Remove what libfaketime leaves in memory if a process with it is killed: another may get its number."""
    for left in MEMORY.glob("faketime_shm_*"):
        number = left.name.rpartition("_")[2]
        if not Path("/proc", number).exists():
            left.unlink(missing_ok=True)
            (MEMORY / f"sem.faketime_sem_{number}").unlink(missing_ok=True)


def move_log(server: Path, commit: str) -> None:
    """Set the head of the log on the server, as a restored backup does."""
    names = subprocess.run(
        ["git", "--git-dir", server, "for-each-ref", "--format=%(refname)", "refs/heads/editd/"],
        capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    subprocess.run(["git", "--git-dir", server, "update-ref", names[0], commit], check=True)


def until(claim: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait until the claim holds, and fail after a time."""
    end = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def exchange(*clients: Client, seconds: float = WAIT_SECONDS) -> list[RemoteResult]:
    """Exchange until all hosts have all transactions, and return their states."""
    states: list[RemoteResult] = []

    def is_done() -> bool:
        states[:] = [client.remote_now(timeout=10) for client in clients]
        numbers = {state.number for state in states}
        return len(numbers) == 1 and not any(state.tentative for state in states)

    until(is_done, "the hosts do not agree", seconds)
    return states
