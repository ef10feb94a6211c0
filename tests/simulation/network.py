"""A simulated network: several hosts of one workspace, each on a fake disk, and a fake server between them.

All is in one process and one thread, and depends on the seed alone. A scheduler picks the host that runs the
next callback of its loop. A host dies at any call of its own disk, or in the middle of an exchange. While its
git is at the server, other hosts go on. The clock passes only when no host has anything to do.

A history is a list of steps: see `WEIGHTS`. At its end all hosts must agree: see `_verify`. The repository of
the log on each host is real, because a fetch can make it again (L7): a power cut takes it as a whole.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import shutil
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from editd.engine.commands import Undo
from editd.engine.undo_selection import ByTransaction
from editd.remote import transport
from editd.system.git_command import GitFailed
from editd.values.transaction import Authorship
from editd.wire.messages import Replace
from simulation import rules
from simulation.calls import Current, in_force
from simulation.disk import FakeDisk
from simulation.history import Failure
from simulation.host import Asked, ExchangeKilled, Host
from simulation.mirror import remove
from simulation.server import LOG, URL, Server
from simulation.world import CUT, KILL, SCRATCH, FakeClock, Start, World, deterministic
from support.harness import apply, write
from support.log_checker import Exempt, check_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd.wire.messages import AnyEdit
    from support.log_checker import Acknowledged

WEIGHTS = {
    "edit": 8, "edit at once": 6, "undo": 2, "turn": 6, "wait": 3, "race": 4, "kill": 3, "cut": 1,
    "kill in exchange": 3, "kill exchange": 2, "lost reply": 3, "no server": 2, "restore": 1,
}  # fmt: skip
STEPS = 12
HOSTS = 3
LINES = 12  # of each file at the beginning
PATHS = ("a.txt", "b.txt", "c.txt")
FILES = {path: "".join(f"base {path} {line}\n" for line in range(LINES)) for path in PATHS}
CALLBACKS_MAX = 120  # of all hosts after a step
CALLS_MAX = 60  # until a kill
GITS_MAX = 3  # calls of git until something happens
TURNS_MAX = 60  # callbacks of other hosts while a git is at the server
QUIET_SECONDS = 200.0  # on the fake clock, in which all hosts must agree
VERIFIED_SHARE = 10  # one history of so many is verified as `check` does


def steps_of(seed: int, count: int = STEPS) -> list[str]:
    """Return the kinds of the steps of a history."""
    return Random(seed).choices([*WEIGHTS], [*WEIGHTS.values()], k=count)


@dataclass
class Network:
    """The hosts and their server, on their way through one history."""

    seed: int
    hosts: list[Host]
    server: Server
    clock: FakeClock
    acknowledged: list[Acknowledged]
    story: list[str]
    chance: Random  # of the scheduler
    busy: list[Host] = field(default_factory=list)  # in the middle of a callback
    at_git: list[tuple[str, Callable[[Host], None], str]] = field(default_factory=list)
    is_restored: bool = False
    requests: int = 0

    def __post_init__(self) -> None:
        self.server.before, self.server.after = self._before_git, self._after_git

    # ── the scheduler ──

    def advance(self) -> None:
        """Let one host run its next callback; if none has any now, let the time pass."""
        now = self.clock.monotonic()
        due = {host.name: host.next_at() for host in self.hosts if host not in self.busy}
        ready = [host for host in self.hosts if (at := due.get(host.name)) is not None and at <= now]
        if not ready:
            times = [at for at in due.values() if at is not None]
            if times:
                self.clock.pass_(max(min(times) - now, 0.0) + 2e-6)
            return
        host = self.chance.choice(ready)
        self.busy.append(host)
        try:
            host.run()
        finally:
            self.busy.remove(host)

    def advance_by(self, callbacks: int) -> None:
        for _ in range(callbacks):
            self.advance()

    def advance_until(self, claim: Callable[[], bool], what: str, seconds: float = QUIET_SECONDS) -> None:
        end = self.clock.monotonic() + seconds
        while not claim():
            assert self.clock.monotonic() < end, what
            self.advance_by(20)

    # ── git at the server ──

    def _host_at(self, folder: str) -> Host:
        (host,) = [one for one in self.hosts if folder.startswith(f"{one.world.folder}/")]
        return host

    def _before_git(self, folder: str, verb: str) -> None:
        self._at_git("before", self._host_at(folder), verb)

    def _after_git(self, folder: str, verb: str) -> None:
        self._at_git("after", self._host_at(folder), verb)

    def _at_git(self, moment: str, host: Host, verb: str) -> None:
        host.world.calls._enter()  # a dead process makes no call
        for one in list(self.at_git):
            when, happen, wanted = one
            if when == moment and wanted in (verb, "any"):
                self.at_git.remove(one)
                happen(host)

    # ── steps ──

    def take(self, kind: str, chance: Random) -> None:
        self.story.append(kind)
        getattr(self, f"_{kind.replace(' ', '_')}")(chance)
        self.advance_by(chance.randint(0, CALLBACKS_MAX))

    def _edit(self, chance: Random) -> None:
        self._edit_at(chance.choice(self.hosts), chance)

    def _edit_at_once(self, chance: Random) -> None:
        for host in self.hosts:
            self._edit_at(host, chance)

    def _edit_at(self, host: Host, chance: Random) -> None:
        """Replace or add a line in some files, as one transaction."""
        files = host.files()
        edits: list[AnyEdit] = []
        added: dict[str, str] = {}
        removed: dict[str, str] = {}
        self.requests += 1
        token = f"{host.name} request {self.requests}"
        whole = [path for path in PATHS if files.get(path)]  # the last line of a file may be replaced
        for path in chance.sample(whole, min(len(whole), chance.choice((1, 1, 2, 3)))):
            line = chance.choice(files[path].decode().splitlines())
            is_replaced = chance.random() < 0.5
            new = token if is_replaced else f"{line}\n{token}"
            edits.append(Replace(path=path, old=f"{line}\n", new=f"{new}\n"))
            added[path] = token
            if is_replaced:
                removed[path] = line
        if chance.random() < 0.1:
            path = f"new/{self.requests}.txt"
            edits.append(write(path, f"{token}\n"))
            added[path] = token
        if not edits:
            return
        host.submit(token, Asked(apply(*edits, request_id=token, message=token), added, removed))

    def _undo(self, chance: Random) -> None:
        """Undo a transaction of any host, if it has arrived."""
        host = chance.choice(self.hosts)
        if not self.acknowledged or not host.is_up:
            return
        undone = chance.choice(self.acknowledged)
        index = host.engine.history.index
        with host.running():
            seqs = index.by_id(undone.id) or index.by_origin(undone.id)
        if len(seqs) != 1:
            return
        self.requests += 1
        token = f"{host.name} undo {self.requests}"
        command = Undo(Authorship("somebody", None, token, token), "connection 1", ByTransaction(seqs[0]))
        host.submit(token, Asked(command, dict(undone.removed), dict(undone.added)))

    def _turn(self, chance: Random) -> None:
        self.advance_by(CALLBACKS_MAX + chance.randint(0, CALLBACKS_MAX))

    def _wait(self, chance: Random) -> None:
        until = self.clock.monotonic() + chance.choice((0.3, 1.0, 6.0))
        self.advance_until(lambda: self.clock.monotonic() >= until, "time passes")

    def _race(self, chance: Random) -> None:
        """Let other hosts go on while the next push is on its way."""
        turns = chance.randint(1, TURNS_MAX)
        self.at_git.append((chance.choice(("before", "after")), lambda _: self._go_on(turns), "push"))

    def _go_on(self, turns: int) -> None:
        if len(self.busy) < len(self.hosts):
            self.advance_by(turns)

    def _kill(self, chance: Random) -> None:
        host = chance.choice(self.hosts)
        host.world.later(chance.randint(1, CALLS_MAX), KILL, host.world.die)

    def _cut(self, chance: Random) -> None:
        host = chance.choice(self.hosts)
        host.world.later(chance.randint(1, CALLS_MAX), CUT, lambda: self._cut_now(host))

    def _cut_now(self, host: Host) -> None:
        if self.chance.random() < 0.5:
            remove(str(host.world.folder / "state/remote/log.git"))
        host.world.cut()

    def _kill_in_exchange(self, chance: Random) -> None:
        self._at_some_git(chance, lambda host: host.world.die())

    def _kill_exchange(self, chance: Random) -> None:
        self._at_some_git(chance, _kill_exchange)

    def _lost_reply(self, _chance: Random) -> None:
        self.at_git.append(("after", _fail, "push"))

    def _no_server(self, chance: Random) -> None:
        for _ in range(chance.randint(1, GITS_MAX)):
            self.at_git.append(("before", _fail, chance.choice(("any", "push"))))

    def _at_some_git(self, chance: Random, happen: Callable[[Host], None]) -> None:
        self.at_git.append(
            (chance.choice(("before", "after")), happen, chance.choice(("any", "push", "push", "fetch")))
        )

    def _restore(self, _chance: Random) -> None:
        """Restore the server from a backup, or make one."""
        if self.server.back_up_or_restore():
            self.is_restored = True
            self.story.append("  the server is restored")

    # ── the end ──

    def end(self) -> None:
        """Let all hosts come back and agree, and verify the whole."""
        self.story.append("end")
        self.at_git.clear()
        for host in self.hosts:
            host.world.forget_events()
        self.advance_until(lambda: all(host.is_up for host in self.hosts), "a host does not start")
        self.advance_until(self._is_quiet, "the hosts do not agree")
        self._verify()

    def _is_quiet(self) -> bool:
        """Return whether nothing waits anywhere; have forked hosts repaired."""
        states = [host.log.status() if host.is_up else {} for host in self.hosts]
        for host, state in zip(self.hosts, states, strict=True):
            if state.get("state") == "forked":
                assert self.is_restored, "L1: a host is forked"
                self.story.append(f"  {host.name} is repaired")
                task = host.do(host.log.repair())
                self.advance_until(task.done, "a repair does not end")
                task.exception()
                return False
        heads = {state.get("number") for state in states}
        return (
            len(heads) == 1
            and all(state["state"] == "current" and not state["tentative"] for state in states)
            and not any(host.unanswered for host in self.hosts)
        )

    def _verify(self) -> None:
        baseline = {path: content.encode() for path, content in FILES.items()}
        entries = check_log(
            self.server.folder, self.acknowledged, baseline,
            [host.files() for host in self.hosts], Exempt(kept_back=self.server.kept_back),
        )  # fmt: skip
        landed = {entry.origin for entry in entries[1:] if not entry.is_decision}
        for host in self.hosts:
            with host.running():
                self._verify_history(host, landed)
                if self.seed % VERIFIED_SHARE == 0:
                    rules.verify_store(host.world)

    def _verify_history(self, host: Host, landed: set[str]) -> None:
        """Verify that a host has each transaction once, and each acknowledged one of its own."""
        made = rules.made_by(host.engine)
        requests = Counter(one.message for one in made if one.kind == "edit")
        twice = [message for message, count in requests.items() if count > 1]
        assert not twice, f"{host.name} has these twice: {twice}"
        ids = {one.id for one in made}
        lost = [one.id for one in self.acknowledged if one.host == host.name and one.id not in ids]
        assert not lost, f"{host.name} has lost {lost}"
        _ = landed


def _fail(_host: Host) -> None:
    raise GitFailed("The server does not answer.")


def _kill_exchange(_host: Host) -> None:
    raise ExchangeKilled


@dataclass
class _HostStart:
    """One host at the beginning of each history."""

    start: Start
    log: Path  # a copy of its repository of the log


class Networks:
    """A scratch folder, and the start of all histories in it: hosts that have joined one log."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="editd-network-", dir=SCRATCH))
        self._starts: list[_HostStart] = []
        self._refs: dict[str, str] = {}
        self._us = 0
        with self._made(0, FakeClock()) as network:
            self._begin(network)

    def _begin(self, network: Network) -> None:
        """Have the first host begin the log, and the others join it. Keep their disks."""
        first, *others = network.hosts
        for host in network.hosts:
            host.world.disk.make_folder(host.world.disk.root, b"state", 0o700)
            host.world.restore(Start(b"", {}))
            with host.running():
                for made in (host.world.harness.root, host.world.harness.store):
                    made.mkdir(parents=True, exist_ok=True)
                os.mkdir(host.world.folder / "state" / "remote")
                (host.world.folder / "state" / "remote" / "log.git").parent.mkdir(exist_ok=True)
                host.world._follow_store()
                host.world.harness.baseline(FILES)
            Path_mkdir(host.world.folder / "state" / "remote")
            host.down_until = -1.0
        network.advance_until(lambda: all(host.is_up for host in network.hosts), "a host does not start")
        self._done(network, first.do(first.log.init(URL, LOG, first.name)))
        for host in others:
            self._done(network, host.do(host.log.join(URL, LOG, host.name, None, None)))
        network.advance_until(network._is_quiet, "the hosts do not join")
        for host in network.hosts:
            self._done(network, host.do(host.log.close()))
            assert host.loop is not None
            with host.running():
                host.loop.kill()
                host.loop = None
                host.world.opened.close()
                host.world.close()
            self._keep(host)
        self._refs, self._us = network.server.refs(), network.clock.us

    def _done(self, network: Network, task: object) -> None:
        network.advance_until(task.done, "the hosts do not join")  # type: ignore[attr-defined]
        task.result()  # type: ignore[attr-defined]

    def _keep(self, host: Host) -> None:
        host.world.disk.sync_all()
        state = host.world.folder / "state"
        databases = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
        log = self.folder / f"{host.name} log.git"
        shutil.copytree(state / "remote/log.git", log)
        self._starts.append(_HostStart(Start(pickle.dumps(host.world.disk), databases), log))

    @contextlib.contextmanager
    def _made(self, seed: int, clock: FakeClock) -> Iterator[Network]:
        """Yield hosts with empty disks, and a server."""
        story: list[str] = []
        acknowledged: list[Acknowledged] = []
        hosts: list[Host] = []
        current = Current()
        for number in range(HOSTS):
            folder = self.folder / f"host{number}" / "world"
            Path_mkdir(folder)
            disk = FakeDisk() if not self._starts else pickle.loads(self._starts[number].start.disk)
            world = World(folder, Random(f"{seed} disk {number}"), disk, clock, story=story)
            hosts.append(Host(f"host{number}", world, Random(f"{seed} host {number}"), current, acknowledged))
        server = Server(self.folder / "server.git")
        network = Network(seed, hosts, server, clock, acknowledged, story, Random(f"{seed} network"))
        drawn = Random(f"{seed} drawn")
        with in_force(current), deterministic(clock, seed), pytest.MonkeyPatch.context() as patched:
            patched.setattr(transport, "run_git", server.run_git)
            patched.setattr(time, "monotonic", clock.monotonic)
            patched.setattr(secrets, "randbelow", drawn.randrange)
            try:
                yield network
            finally:
                for host in hosts:
                    host.end()

    @contextlib.contextmanager
    def network(self, seed: int) -> Iterator[Network]:
        """Yield a network at its start: all hosts have joined, and none is started."""
        with self._made(seed, FakeClock(self._us)) as network:
            network.server.set_refs(self._refs)
            for host, start in zip(network.hosts, self._starts, strict=True):
                host.world.restore(start.start)
                shutil.copytree(start.log, host.world.folder / "state/remote/log.git")
            yield network

    def close(self) -> None:
        shutil.rmtree(self.folder)


def Path_mkdir(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


@contextlib.contextmanager
def networks() -> Iterator[Networks]:
    """Yield a scratch folder for networks, and remove it afterwards."""
    made = Networks()
    try:
        yield made
    finally:
        made.close()


def play(networks: Networks, seed: int, kinds: Sequence[str], only: Sequence[int]) -> Failure | None:
    """Play the steps of these numbers in a new network."""
    at: int | None = -1
    with networks.network(seed) as network:
        try:
            network.advance_until(lambda: all(host.is_up for host in network.hosts), "a host does not start")
            for at in only:
                network.take(kinds[at], Random(f"{seed} {at}"))
            at = None
            network.end()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the failure of this history
            frames = [
                f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)[-6:]
            ]
            text = f"{type(error).__name__}: {error}\n  by {' < '.join(reversed(frames))}"
            states = [str(host.log.status()) for host in network.hosts if host.is_up]
            story = [*network.story, *network.server.moves, *states]
            return Failure(seed, at, text.replace(os.fspath(networks.folder), ""), story)
    return None
