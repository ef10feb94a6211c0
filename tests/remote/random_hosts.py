"""Random runs of several hosts, with kills, cuts, lost replies, a server that goes, and copied state folders.

    python tests/remote/random_hosts.py --seeds 25 --transactions 800
    python tests/remote/random_hosts.py --first 17 --seeds 1            # one run again

Each edit has lines of its own in files that all hosts edit. At the end of a run, the log is walked and
compared with what the clients were told: L1 to L6 and L9 of docs/hosts.md. A seed gives the requests of a
run and their order, but not what the daemons do meanwhile. The exit status is 1 if a run fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from crash_checks import child
from editd_client.errors import EditdError, Unreachable
from hosts import bare_repository, exchange, name_host
from log_checker import Acknowledged, check_log, objects_of
from workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.wire.messages import ApplyResult, BriefTransaction, Replace, Write
    from editd_client.client import Client
    from workplace import Workplace

FILES = {f"f{number}": "".join(f"base {number} {line}\n" for line in range(30)) for number in range(60)}
SECRET_FILE, SECRET = ".env", "this stays on its host"
HOSTS = (3, 4, 3, 5, 3, 6)  # of the runs, in turn; copies come to them
HOSTS_MAX = 8
COPIES_MAX = 2  # of state folders, in a run
DISTURBED_SHARE = 0.055  # of the requests
DEEDS = {"kill": 12, "kill exchange": 3, "cut": 3, "pause": 2, "no server": 3, "copy": 1}
REST_SECONDS_MAX = 0.01  # between two requests
KILL_SECONDS_MAX = 0.06  # until a kill, while requests go on
EXCHANGE_SECONDS_MAX = 300.0  # at the end of a run
SERVER_SECONDS_MAX = 0.5  # without a server
# A git that is cut off while there is a file beside it. Of its calls one in 30 fails, of its pushes one in 10
# succeeds without an answer, and one in 20 is killed.
GIT = """#!/bin/sh
drawn=$(od -An -N1 -tu1 /dev/urandom)
[ ! -e {cut} ] || exit 1
[ $drawn -gt 8 ] || exit 1
case "$*" in *" push "*)
  if [ $drawn -le 32 ]; then {git} "$@"; exit 1; fi
  [ $drawn -gt 44 ] || exec timeout -s KILL 0.0$((drawn % 8 + 1)) {git} "$@";;
esac
exec {git} "$@"
"""


@dataclass
class Host:
    """One daemon of a run, and its client."""

    name: str
    place: Workplace
    client: Client

    @property
    def cut(self) -> Path:
        """The file that cuts this host off."""
        return self.place.folder / "cut"

    def files(self) -> dict[str, bytes]:
        """Return the files of this host, without the one that it shares with nobody."""
        files = self.place.files()
        files.pop(SECRET_FILE, None)
        return files

    def kill(self) -> None:
        """Kill the daemon, and start it again."""
        self.client.close()
        if self.place.process is not None and self.place.process.poll() is None:
            self.place.kill()
        self.client = self.place.start()


@dataclass
class Run:
    """The hosts of one run, and what their clients were told."""

    folder: Path
    server: Path
    drawn: random.Random
    stack: contextlib.ExitStack
    hosts: list[Host] = field(default_factory=list)
    acknowledged: list[Acknowledged] = field(default_factory=list)
    repeated: int = 0  # requests that were sent again, because a kill took their answer
    deeds: Counter[str] = field(default_factory=Counter)

    def add_host(self, files: Mapping[str, str] | None = None) -> None:
        """Start one more host, which begins the log or joins it."""
        name = f"host{len(self.hosts)}"
        place = self._workplace(name, files)
        host = Host(name, place, place.start())
        if files is None:
            host.client.remote_join(str(self.server))
        else:
            host.client.remote_init(str(self.server))
        self.hosts.append(host)
        use_faulty_git(host)

    def copy_host(self, host: Host) -> None:
        """Copy the files and the state of a host that was killed: both go on under the same name."""
        name = f"host{len(self.hosts)}"
        twin = self._workplace(name, None)
        host.client.close()
        host.place.kill()
        name_host(twin, host.name)
        for source, target in ((host.place.root, twin.root), (host.place.state, twin.state)):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        host.client = host.place.start()
        made = Host(name, twin, twin.start())
        self.hosts.append(made)
        use_faulty_git(made)
        made.kill()

    def _workplace(self, name: str, files: Mapping[str, str] | None) -> Workplace:
        place = self.stack.enter_context(workplace(self.folder / name, files))
        name_host(place, name)
        return place

    # ── requests ──

    def request(self) -> None:
        """Send one request to one host, or disturb one."""
        host = self.drawn.choice(self.hosts)
        if self.drawn.random() < DISTURBED_SHARE:
            self.disturb(host)
        elif self.acknowledged and self.drawn.random() < 0.05:
            self.undo(host)
        else:
            self.edit(host)

    def edit(self, host: Host) -> None:
        """Replace or add a line in some files, as one transaction."""
        drawn = self.drawn
        edits: list[Replace | Write] = []
        added: dict[str, str] = {}
        removed: dict[str, str] = {}
        for path in drawn.sample(sorted(FILES), drawn.choice((1, 1, 2, 3))):
            lines = self._read(host, path)
            line, token = drawn.choice(lines), f"{host.name} {drawn.getrandbits(48):x}"
            is_replaced = drawn.random() < 0.5
            new = token if is_replaced else f"{line}\n{token}"
            edits.append(replace(path, f"{line}\n", f"{new}\n"))
            added[path] = token
            if is_replaced:
                removed[path] = line
        if drawn.random() < 0.1:
            path, token = (
                f"new/{host.name}/{drawn.getrandbits(32):x}",
                f"{host.name} {drawn.getrandbits(48):x}",
            )
            edits.append(write(path, f"{token}\n"))
            added[path] = token
        if drawn.random() < 0.05:
            edits.append(write(SECRET_FILE, f"{SECRET}: {drawn.getrandbits(48):x}\n"))
        request_id = f"{drawn.getrandbits(64):x}"
        made = self._sent(host, lambda: host.client.apply(edits, request_id=request_id))
        if made is not None:
            self.acknowledged.append(Acknowledged(host.name, made.id, made.seq, added, removed))

    def undo(self, host: Host) -> None:
        """Undo a transaction of any host, if it has arrived and nothing is in the way."""
        undone = self.drawn.choice(self.acknowledged[-100:])
        request_id = f"{self.drawn.getrandbits(64):x}"
        made = self._sent(host, lambda: host.client.undo(undone.id, request_id=request_id))
        if made is not None:
            back = Acknowledged(host.name, made.id, made.seq, dict(undone.removed), dict(undone.added))
            self.acknowledged.append(back)

    def _read(self, host: Host, path: str) -> list[str]:
        """Read a file, so that the daemon knows what the edit was made for."""
        with contextlib.suppress(Unreachable):
            return host.client.read(path).content.splitlines()
        host.kill()
        return host.client.read(path).content.splitlines()

    def _sent(self, host: Host, request: Callable[[], ApplyResult]) -> BriefTransaction | None:
        """Send a request, again if a kill takes its answer; return its transaction if it is acknowledged."""
        for _ in range(2):
            try:
                return request().transaction
            except EditdError:
                return None  # an arrival has changed the line meanwhile, or it is undone already
            except Unreachable:
                self.repeated += 1
                host.kill()
        raise AssertionError("the daemon cannot be reached after its restart")

    # ── disturbances ──

    def disturb(self, host: Host) -> None:
        deed = self.drawn.choices([*DEEDS], [*DEEDS.values()])[0]
        if deed == "copy" and (len(self.hosts) >= HOSTS_MAX or self.deeds["copy"] >= COPIES_MAX):
            deed = "kill"
        self.deeds[deed] += 1
        match deed:
            case "kill":
                self.kill_amid_requests(host)
            case "kill exchange":
                kill_exchange(host)
            case "cut":
                if host.cut.exists():
                    host.cut.unlink()
                else:
                    host.cut.touch()
            case "pause":
                if host.client.remote_status().state == "paused":
                    host.client.remote_resume()
                else:
                    host.client.remote_pause()
            case "no server":
                gone = self.server.with_name("gone.git")
                os.rename(self.server, gone)
                time.sleep(self.drawn.random() * SERVER_SECONDS_MAX)
                os.rename(gone, self.server)
            case _:
                self.copy_host(host)

    def kill_amid_requests(self, host: Host) -> None:
        """Kill a daemon a moment later, while its client goes on with requests."""
        process = host.place.process
        assert process is not None
        timer = threading.Timer(
            self.drawn.random() * KILL_SECONDS_MAX, process.send_signal, (signal.SIGKILL,)
        )
        timer.start()
        while timer.is_alive() and host.place.process is process:
            self.edit(host)
        timer.join()
        if host.place.process is process:
            host.kill()

    # ── the end ──

    def verify(self) -> str:
        """Let all hosts exchange, check what they have, and return a line about the run."""
        for host in self.hosts:
            host.cut.unlink(missing_ok=True)
            host.client.remote_resume()
        exchange(*(host.client for host in self.hosts), seconds=EXCHANGE_SECONDS_MAX)
        baseline = {path: content.encode() for path, content in FILES.items()}
        files = [host.files() for host in self.hosts]
        entries = check_log(self.server, self.acknowledged, baseline, files)
        assert SECRET.encode() not in objects_of(self.server), "L9: the server has what stays on a host"
        for host in self.hosts:
            assert host.client.check().problems == []
            host.client.close()
        aside = sum(not entry.is_applied for entry in entries[1:])
        return (
            f"{len(self.hosts)} hosts, {len(self.acknowledged)} acknowledged, {self.repeated} repeated, "
            f"{len(entries) - 1} entries, {aside} set aside, {dict(self.deeds)}"
        )


def kill_exchange(host: Host) -> None:
    """Kill the process of the exchange with the git that it has called, if there is one."""
    pid = child(host.place, "editd.remote.exchange_worker")
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def use_faulty_git(host: Host) -> None:
    """Use the git with faults from the next start of the daemon on."""
    program = host.place.folder / "bin" / "git"
    program.parent.mkdir(exist_ok=True)
    program.write_text(GIT.format(git=shutil.which("git"), cut=host.cut))
    program.chmod(0o755)
    host.place.variables["PATH"] = f"{program.parent}:{os.environ['PATH']}"


def play(folder: Path, seed: int, number: int, is_enough: Callable[[Run], bool]) -> Run:
    """Make a run with `number` hosts until there is enough of it, and verify it."""
    with contextlib.ExitStack() as stack:
        made = Run(folder, bare_repository(folder / "server.git"), random.Random(seed), stack)
        made.add_host(FILES)
        while len(made.hosts) < number:
            made.add_host()
        while not is_enough(made):
            made.request()
            time.sleep(made.drawn.random() * REST_SECONDS_MAX)
        print(f"seed {seed}: {made.verify()}", flush=True)
        return made


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--transactions", type=int, default=800, help="to be acknowledged in each run")
    options = parser.parse_args(arguments)
    begun, acknowledged, failed = time.monotonic(), 0, 0
    deeds: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.seeds):
        folder = tempfile.mkdtemp(prefix="random-hosts-")
        try:
            made = play(
                Path(folder),
                seed,
                HOSTS[seed % len(HOSTS)],
                lambda run: len(run.acknowledged) >= options.transactions,
            )
        except Exception:  # noqa: BLE001  # the report has it, and other runs go on
            failed += 1
            print(f"seed {seed} failed, in {folder}\n{traceback.format_exc()}", flush=True)
            continue
        acknowledged += len(made.acknowledged)
        deeds.update(made.deeds)
        shutil.rmtree(folder)
    print(
        f"{options.seeds} seeds, {failed} failed, {acknowledged} acknowledged, {dict(deeds)}, "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
