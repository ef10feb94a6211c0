"""Random runs of several hosts, with kills, cuts, lost replies, a server that goes, and copied state folders.

    python tests/remote/random_hosts.py --seeds 25 --transactions 800
    python tests/remote/random_hosts.py --first 17 --seeds 1            # one run again

Each edit has lines of its own in files that all hosts edit. At the end of a run, the log is walked and
compared with the answers of the daemons: L1 to L9 of docs/hosts.md. The clock of one host is a day off, git
says the opposite of what happened on another one, the server refuses some transactions, and one host does not
come back before the others have ended. A seed gives the requests of a run and their order, but not what the
daemons do meanwhile. The exit status is 1 if a run fails.
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

from editd_client.errors import EditdError, Unreachable
from random_host import IGNORED_FILE, SECRET, SECRET_FILE, Host
from random_upsets import Upsets, check_code, is_possible, leave_and_join, repair
from support.hosts import CLOCK_LIBRARY, bare_repository, forget_clocks, name_host, set_clock
from support.log_checker import (
    Acknowledged,
    Exempt,
    blobs,
    check_chain,
    check_log,
    keep_moves,
    log_of,
    objects_of,
    queued,
    unknown_lines,
)
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.wire.messages import ApplyResult, Replace, Transaction, Write
    from support.log_checker import Entry
    from support.workplace import Workplace

SHARED = [f"f{number}" for number in range(60)]
FILES = {path: "".join(f"base {path} {line}\n" for line in range(30)) for path in (*SHARED, IGNORED_FILE)}
HOSTS = (3, 4, 3, 5, 3, 6)  # of the runs, in turn; copies come to them
HOSTS_MAX = 8
SCHEMES = ("", "", "", "file://")  # of the runs, in turn: with a scheme, a host reads the refs by git, too
CLOCK_HOST = 2  # the number of the host whose clock is a day off
COPIES_MAX = 2  # of state folders, in a run
EDITS_APART, FILES_APART = 6, 3  # of each host, at the beginning of a run
REFUSED_MAX = 2  # transactions that the server does not take, in a run
DISTURBED_SHARE = 0.055  # of the requests, by default
DEEDS = {
    "kill": 12, "kill exchange": 3, "cut": 3, "pause": 2, "no server": 3, "copy": 1, "alone": 1,
    "no copy of the log": 1, "refused": 1, "gone": 1,
    "odd entry": 4, "odd queue": 1, "restore": 2, "leave": 2,
}  # fmt: skip
REST_SECONDS_MAX = 0.01  # between two requests
KILL_SECONDS_MAX = 0.06  # until a kill, while requests go on
PATIENCE_SECONDS = 300.0  # at the end of a run, until all hosts agree
SERVER_SECONDS_MAX = 0.5  # without a server
REFUSED = "refuse this"
# The server refuses a push with such a line until there is a file beside it.
HOOK = f"""#!/bin/sh
read old new ref
[ -e taken ] || ! git log -p "$old..$new" | grep -q "{REFUSED}" && exit
echo "Everything up-to-date" >&2
exit 1
"""


@dataclass
class Run:
    """The hosts of one run, and the answers to their clients."""

    folder: Path
    server: Path
    scheme: str
    drawn: random.Random
    stack: contextlib.ExitStack
    patience_seconds: float = PATIENCE_SECONDS
    has_clocks: bool = False  # the clock of a host is a day off
    hosts: list[Host] = field(default_factory=list)
    gone: list[Host] = field(default_factory=list)  # that do not come back before the others have ended
    lines: set[str] = field(default_factory=set)  # that were in any request
    acknowledged: list[Acknowledged] = field(default_factory=list)
    repeated: int = 0  # requests that were sent again, because a kill took their answer
    deeds: Counter[str] = field(default_factory=Counter)
    disturbed_share: float = DISTURBED_SHARE

    def __post_init__(self) -> None:
        self.upsets = Upsets(self.server, self.drawn)

    @property
    def url(self) -> str:
        return f"{self.scheme}{self.server}"

    def add_host(self, files: Mapping[str, str] | None = None) -> None:
        """Start one more host, which begins the log or joins it."""
        number = len(self.hosts)
        name, has_ignored = f"host{number}", number == 1
        place = self._workplace(name, files)
        if has_ignored:
            place.git("init", "-q")
            place.write({".git/info/exclude": f"{IGNORED_FILE}\n", IGNORED_FILE: f"{SECRET}\n"})
        host = Host(name, place, place.start(), files or {}, has_ignored)
        if files is None:
            host.client.remote_join(self.url)
        else:
            host.client.remote_init(self.url)
        self.hosts.append(host)
        host.use_faulty_git(self.server, has_words=number == 0)
        if self.has_clocks and number == CLOCK_HOST:
            set_clock(place, self.drawn.choice((-1, 1)))
        host.kill()

    def copy_host(self, host: Host) -> None:
        """Copy the files and the state of a host that was killed: both go on under the same name."""
        name = f"host{len(self.hosts) + len(self.gone)}"
        twin = self._workplace(name, None)
        host.end_with_children()
        name_host(twin, host.name)
        for source, target in ((host.place.root, twin.root), (host.place.state, twin.state)):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, symlinks=True)
        host.client = host.place.start()
        made = Host(name, twin, twin.start(), host.begun_with, host.has_ignored)
        self.hosts.append(made)
        for one in self.acknowledged:
            if one.is_of(host.name):
                one.copies.add(name)
        made.use_faulty_git(self.server, has_words=False)
        made.kill()

    def _workplace(self, name: str, files: Mapping[str, str] | None) -> Workplace:
        place = self.stack.enter_context(workplace(self.folder / name, files))
        name_host(place, name)
        return place

    # ── requests ──

    def request(self) -> None:
        """Send one request to one host, or disturb one."""
        host = self.drawn.choice(self.hosts)
        if self.drawn.random() < self.disturbed_share:
            self.disturb(host)
        elif self.acknowledged and self.drawn.random() < 0.05:
            self.undo(host)
        else:
            self.edit(host)

    def edit_apart(self) -> None:
        """Let each host edit the same few files while no other one sees it, so that much does not merge."""
        for host in self.hosts:
            host.client.remote_pause()
        for host in self.hosts:
            for _ in range(EDITS_APART):
                self.edit(host, SHARED[:FILES_APART])
        for host in self.hosts:
            host.client.remote_resume()

    def edit(self, host: Host, paths: Sequence[str] | None = None) -> None:
        """Replace or add a line in some files, as one transaction."""
        drawn = self.drawn
        edits: list[Replace | Write] = []
        added: dict[str, str] = {}
        removed: dict[str, str] = {}
        paths = paths or (SHARED if host.has_ignored else [*FILES])
        for path in drawn.sample(paths, drawn.choice((1, 1, 2, 3))):
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
        self._apply(host, edits, added, removed)

    def _apply(
        self, host: Host, edits: list[Replace | Write], added: dict[str, str], removed: dict[str, str]
    ) -> None:
        self.lines.update(added.values())
        request_id = f"{self.drawn.getrandbits(64):x}"
        made = self._sent(host, lambda: host.client.apply(edits, request_id=request_id))
        if made is not None:
            self.acknowledged.append(Acknowledged(host.name, made.id, made.seq, added, removed))

    def undo(self, host: Host) -> None:
        """Undo a transaction of any host, if it has arrived and nothing is in the way."""
        undone = self.drawn.choice(self.acknowledged[-100:])
        if host.has_ignored and IGNORED_FILE in undone.paths:
            return
        request_id = f"{self.drawn.getrandbits(64):x}"
        made = self._sent(host, lambda: host.client.undo(undone.id, request_id=request_id))
        if made is not None and any(
            file.path != SECRET_FILE for file in made.files
        ):  # otherwise all stays here
            back = Acknowledged(host.name, made.id, made.seq, dict(undone.removed), dict(undone.added))
            self.acknowledged.append(back)

    def _read(self, host: Host, path: str) -> list[str]:
        """Read a file, so that the daemon knows what the edit was made for."""
        with contextlib.suppress(Unreachable):
            return host.client.read(path).content.splitlines()
        host.kill()
        return host.client.read(path).content.splitlines()

    def _sent(self, host: Host, request: Callable[[], ApplyResult]) -> Transaction | None:
        """Send a request, again if a kill takes its answer; return its transaction if it is acknowledged."""
        for _ in range(2):
            try:
                return request().transaction
            except EditdError as error:
                check_code(error)
                return None  # an arrival has changed the line meanwhile, or it is undone already
            except Unreachable:
                self.repeated += 1
                host.kill()
        raise AssertionError("the daemon cannot be reached after its restart")

    # ── disturbances ──

    def disturb(self, host: Host) -> None:
        deed = self.drawn.choices([*DEEDS], [*DEEDS.values()])[0]
        if not self._may(deed, host):
            deed = "kill"
        self.deeds[deed] += 1
        match deed:
            case "kill":
                self.kill_amid_requests(host)
            case "kill exchange":
                host.kill_exchange()
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
            case "alone":
                host.exchange_alone()
            case "no copy of the log":
                host.end_with_children()
                shutil.rmtree(host.copy_of_log)
                host.exchange_alone()
            case "refused":
                path, line = f"refused/{host.name}", f"{REFUSED}: {self.drawn.getrandbits(48):x}"
                self._apply(host, [write(path, f"{line}\n", force=False)], {path: line}, {})
            case "gone":
                host.end()
                self.hosts.remove(host)
                self.gone.append(host)
            case "odd entry":
                self.upsets.push_odd_entry()
            case "odd queue":
                self.upsets.push_odd_queue()
            case "restore":
                self.upsets.back_up_or_restore()
                self._repair_all()
            case "leave":
                self.leave(host)
            case _:
                self.copy_host(host)

    def _may(self, deed: str, host: Host) -> bool:
        number = len(self.hosts) + len(self.gone)
        return {
            "copy": number < HOSTS_MAX and self.deeds["copy"] < COPIES_MAX,
            "gone": len(self.hosts) > 2 and not self.gone,
            "refused": self.deeds["refused"] < REFUSED_MAX,
            "leave": not any(one.copies for one in self.acknowledged if one.is_of(host.name)),
        }.get(deed, True)

    def leave(self, host: Host) -> None:
        """Have a host leave the log and join it again."""
        if leave_and_join(host, self.url, self.drawn):
            self.upsets.forget_backup()
            self.deeds["joined"] += 1

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
        (self.server / "taken").touch()
        for host in (*self.hosts, *self.gone):
            host.cut.unlink(missing_ok=True)
        for host in self.hosts:
            host.client.remote_resume()
            host.kill_exchange()  # the next one asks the server again to take what it had refused
        self._exchange_all()
        if self.gone:
            self._check_log()  # all others have ended without these
            for host in self.gone:
                host.client = host.place.start()
                host.client.remote_resume()
            self.hosts += self.gone
            self.gone.clear()
            self._exchange_all()
        entries = self._check_log()
        assert SECRET.encode() not in objects_of(self.server), "L9: the server has what stays on a host"
        known = {line for content in FILES.values() for line in content.splitlines()} | self.lines
        known |= self.upsets.lines
        assert not unknown_lines(self.server, known), "L9: the server has lines that are from no request"
        for host in self.hosts:
            host.check()
            self._check_unusable(host, entries)
            host.end()
        odd = sum(entry.is_unusable for entry in entries)
        aside = sum(not (entry.is_applied or entry.is_unusable) for entry in entries[1:])
        return (
            f"{len(self.hosts)} hosts, {len(self.acknowledged)} acknowledged, {self.repeated} repeated, "
            f"{len(entries) - 1} entries, {aside} set aside, {odd} unusable, "
            f"{dict(self.deeds)}"
        )

    def _exchange_all(self) -> None:
        """Exchange until no transaction waits, also none in a queue of a host that is gone."""
        until_time = time.monotonic() + self.patience_seconds
        while not self._is_exchanged():
            if time.monotonic() > until_time:
                print(*(host.client.remote_status() for host in self.hosts), sep="\n")
                self._check_log()  # it may know why
                raise AssertionError("the hosts do not agree")

    def _is_exchanged(self) -> bool:
        # Read first: afterwards nothing is left to land, if no host has a transaction that waits.
        is_landed = queued(self.server) <= {entry.origin for entry in log_of(self.server)[1:]}
        states = [host.client.remote_now(timeout=10) for host in self.hosts]
        if self.upsets.is_restored and self._repair_all():
            return False
        if any(state.state == "forked" for state in states):
            check_chain(self.server, self.acknowledged, self.upsets.unusable)  # it may know why
            raise AssertionError(f"L1: the log is forked: {[state.error for state in states]}")
        is_one = len({state.number for state in states}) == 1
        return is_landed and is_one and not any(state.tentative for state in states)

    def _repair_all(self) -> bool:
        """Repair the hosts that are forked; return whether any was."""
        return sum(repair(host) for host in self.hosts) > 0

    def _check_log(self) -> list[Entry]:
        baseline = {path: content.encode() for path, content in FILES.items()}
        final = blobs(log_of(self.server, self.upsets.unusable)[-1].tree)
        files = [self._files_of(host, final) for host in self.hosts]
        kept_back = {origin for host in (*self.hosts, *self.gone) for origin in host.kept_back()}
        exempt = Exempt(kept_back, {host.name for host in self.gone}, self.upsets.unusable)
        return check_log(self.server, self.acknowledged, baseline, files, exempt)

    def _files_of(self, host: Host, final: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the files of a host, and those of the log that it cannot have and names."""
        named = host.client.remote_status().held
        held = [path for path in final if path in named or not is_possible(path)]
        files = host.files()
        assert files.keys().isdisjoint(held), "a held file was written"
        return files | {path: final[path] for path in held}

    def _check_unusable(self, host: Host, entries: Sequence[Entry]) -> None:
        """Check that a host names the unusable entries, and that it is well."""
        named = {entry.number for entry in host.client.remote_status().unusable}
        expected = {entry.number for entry in entries if entry.is_unusable}
        assert named == expected, f"{host.name} names {named} and not {expected} as unusable"
        assert host.client.status().state == "ready"
        text = host.place.log()
        assert "Traceback" not in text, text
        assert "internal_error" not in text, text


def play(
    folder: Path,
    seed: int,
    number: int,
    is_enough: Callable[[Run], bool],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    has_clocks: bool = False,
    disturbed_share: float = DISTURBED_SHARE,
) -> Run:
    """Make a run with `number` hosts until there is enough of it, and verify it."""
    has_clocks = has_clocks and CLOCK_LIBRARY.exists()
    with contextlib.ExitStack() as stack:
        server = bare_repository(folder / "server.git")
        keep_moves(server)
        hook = server / "hooks" / "pre-receive"
        hook.write_text(HOOK)
        hook.chmod(0o755)
        scheme = SCHEMES[seed % len(SCHEMES)]
        made = Run(
            folder, server, scheme, random.Random(seed), stack, patience_seconds, has_clocks,
            disturbed_share=disturbed_share,
        )  # fmt: skip
        stack.callback(forget_clocks)
        made.add_host(FILES)
        while len(made.hosts) < number:
            made.add_host()
        made.edit_apart()
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
    parser.add_argument(
        "--patience", type=float, default=PATIENCE_SECONDS, metavar="SECONDS",
        help="until all hosts agree at the end of a run (default: %(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--disturbed", type=float, default=DISTURBED_SHARE, metavar="SHARE",
        help="of the requests that something disturbs (default: %(default)g)",
    )  # fmt: skip
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
                patience_seconds=options.patience,
                has_clocks=True,
                disturbed_share=options.disturbed,
            )
        except Exception:  # noqa: BLE001  # the report has it, and other runs go on
            failed += 1
            print(f"seed {seed} failed, in {folder}\n{traceback.format_exc()}", flush=True)
            continue
        acknowledged += len(made.acknowledged)
        deeds.update(made.deeds)
        shutil.rmtree(folder, ignore_errors=True)  # a process of a killed daemon may still end there
    print(
        f"{options.seeds} seeds, {failed} failed, {acknowledged} acknowledged, {dict(deeds)}, "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
