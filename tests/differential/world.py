"""A real daemon and its model, with the comparisons between them.

The model has the content of the files and the changes of each transaction. The daemon's own changes must
equal those of the model. Outside changes are read from the disk: a transaction of kind `outside` may come at
any time and in several parts, and must record the real content of each path.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from drawing import text_of
from editd_client.errors import EditdError
from support.crash_checks import fsck, strays
from support.workspace_model import Changes, Files, Held, History, Step, differences, merged_with, version_at

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from editd.wire.messages import ApplyResult, Transaction
    from editd_client.client import Client
    from support.workplace import Workplace

NAMES = ("ann", "bob", "cat")  # the sessions: "ann" is opened, the others are names only
OPENED = "ann"
FORGOTTEN_SECONDS = 5.0  # a killed daemon may forget its last second of reads; more for a slow machine

Sight = str | None | UnsetType
"""The version of a path that a session read last: None for a missing file, UNSET if it read none."""


class Disagreement(AssertionError):
    """The daemon and the model do not agree."""


class Undecided(Exception):
    """The outcome depends on the daemon's record of the session's read of this path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


@dataclass
class Actor:
    """A session, or a connection without one (no name), and the versions that it has read."""

    name: str | None
    client: Client
    seen: dict[str, str | None] = field(default_factory=dict)
    doubts: dict[str, frozenset[Sight]] = field(default_factory=dict)  # the possible records of the daemon
    is_in_doubt: bool = False
    token: str | None = None
    _kept: dict[str, frozenset[Sight]] = field(default_factory=dict)  # the same, at the daemon's start
    _noted: dict[str, list[tuple[float, str | None]]] = field(default_factory=dict)  # later reads, with times

    def __str__(self) -> str:
        return self.name or "nobody"

    def has_seen(self, path: str, version: str | None) -> None:
        self.seen[path] = version
        self.doubts.pop(path, None)
        self._noted.setdefault(path, []).append((time.monotonic(), version))

    def stopped(self) -> None:
        """Note a clean end of the daemon, which keeps all reads."""
        self._kept |= {path: frozenset({noted[-1][1]}) for path, noted in self._noted.items()}
        self._noted.clear()

    def killed(self) -> None:
        """Note a kill: the daemon keeps the last read of each path, or one from shortly before it."""
        durable = time.monotonic() - FORGOTTEN_SECONDS
        for path, noted in self._noted.items():
            recent = frozenset(version for then, version in noted if then >= durable)
            older = [version for then, version in noted if then < durable]
            before = frozenset(older[-1:]) or self._kept.get(path, frozenset({UNSET}))
            self._kept[path] = recent | before
        self._noted.clear()
        self.doubts = {path: sights for path, sights in self._kept.items() if len(sights) > 1}
        self.is_in_doubt = True


@dataclass(frozen=True)
class Recollection(Mapping[str, str | None]):
    """The reads of an actor in a possible record of the daemon. `decided` has the doubtful ones.

    Raises Undecided for a doubtful path that is missing in `decided`.
    """

    actor: Actor
    decided: Mapping[str, Sight]

    def __getitem__(self, path: str) -> str | None:
        if path in self.decided:
            sight = self.decided[path]
        elif path in self.actor.doubts:
            raise Undecided(path)
        else:
            sight = self.actor.seen.get(path, UNSET)
        if isinstance(sight, UnsetType):
            raise KeyError(path)
        return sight

    def __iter__(self) -> Iterator[str]:
        return (path for path in self.actor.seen if path in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass
class World:
    """The daemon of a scratch folder, the model of its files and history, and the sessions."""

    place: Workplace
    story: list[str] = field(default_factory=list)
    disk: Files = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    history: History = field(default_factory=lambda: History.of({}))
    actors: dict[str | None, Actor] = field(default_factory=dict)
    written: set[bytes] = field(default_factory=set)  # every content that any file ever had
    requests: int = 0
    is_strict: bool = True  # Follow the recipe of each conflict.

    def begin(self, files: Mapping[str, bytes]) -> None:
        self.place.write(files)
        self.place.git("init", "-q", "-b", "main")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "first")
        self.git("branch", "side")
        self.observe()
        self.history = History.of(self.disk)
        self.start()
        self.settle()

    def end(self) -> None:
        """Compare everything once more, and stop the daemon."""
        self.check()
        for seq in range(self.history.head + 1):
            self.read_at(seq, sorted(self.history.steps[seq].after))
        self.check_undone()
        self.stop()
        fsck(self.place)
        self.agree("no temporaries of the daemon's are left", strays(self.place.root), [])

    def note(self, text: object) -> None:
        self.story.append(str(text))

    def agree(self, what: str, told: object, expected: object) -> None:
        if told != expected:
            raise Disagreement(f"{what}\n    daemon: {told!r}\n    model:  {expected!r}")

    # ── Start and stop ──────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the daemon. It no longer knows the reads of connections and of unopened sessions."""
        before = self.actors
        self.actors = {None: Actor(None, self.place.start())}
        for name in NAMES:
            self.actors[name] = Actor(name, self.place.client())
            if name != OPENED:
                self.actors[name].client.hello(session=name)
        opened = self.actors[OPENED]
        if OPENED in before:
            opened = self.actors[OPENED] = replace(before[OPENED], client=opened.client)
            opened.client.hello(session=OPENED, token=opened.token)
        else:
            opened.token = opened.client.session_open(OPENED).token

    def leave(self) -> None:
        for actor in self.actors.values():
            actor.client.close()

    def stop(self) -> None:
        self.leave()
        self.place.stop()
        self.actors[OPENED].stopped()

    def kill(self) -> None:
        self.place.kill()
        self.leave()
        self.actors[OPENED].killed()

    @property
    def client(self) -> Client:
        return self.actors[None].client

    def request_id(self) -> str:
        self.requests += 1
        return f"request {self.requests}"

    # ── Outside changes ─────────────────────────────────────────────────────────────────────────

    def shell(self, command: str, content: bytes = b"") -> None:
        self.note(f"$ {command}" + (f"   < {content!r}" if content else ""))
        self.written.add(content)
        subprocess.run(
            ["sh", "-c", os.fsencode(command)], cwd=self.place.root, env=self.place.environment,
            input=content, capture_output=True, check=False, timeout=30,
        )  # fmt: skip
        self.observe()

    def git(self, *argv: str) -> None:
        self.note(f"$ git {' '.join(argv)}")
        try:
            self.place.git(*argv)
        except subprocess.CalledProcessError as failed:
            self.note(f"  failed: {failed.stderr.decode(errors='replace').strip().splitlines()[:1]}")
        self.observe()

    def observe(self) -> None:
        """Update the model's files from the disk."""
        self.disk, self.folders = on_disk(self.place.root)
        self.written |= {held.content for held in self.disk.values()}

    def check_files(self) -> None:
        found, self.folders = on_disk(self.place.root)
        changes = differences(self.disk, found)
        self.agree("the files", changes, {path: self.disk.get(path) for path in changes})

    # ── The daemon's answers ───────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        self.note("settle")
        self.client.settle()
        self.catch_up()
        missing = differences(self.history.states[-1], self.disk)
        self.agree("all is recorded once it has settled", {}, missing)

    def check(self) -> None:
        self.settle()
        self.agree("check", self.client.check().problems, [])

    def refused(self, names: Collection[str], actor: Actor, ask: Callable[[], object]) -> EditdError:
        """Verify that the request is refused with one of these names, and changes nothing."""
        folders = self.folders
        try:
            answer = ask()
        except EditdError as refusal:
            self.fits(refusal, names, actor, folders)
            return refusal
        raise Disagreement(f"it must be refused with {sorted(names)}, and is answered {answer}")

    def fits(
        self,
        refusal: EditdError,
        names: Collection[str],
        actor: Actor,
        folders: frozenset[str],
        beside: Collection[str] = (),
    ) -> None:
        """Verify that the refusal has one of these names, and that nothing has changed.

        `folders` are those before it; `beside` other kinds of transactions that may come with it.
        """
        self.note(f"  {actor}: refused, {refusal.name}: {refusal.message}")
        if refusal.name not in names:
            raise Disagreement(f"refused by {refusal.name}, not {sorted(names)}: {refusal.message}") from None
        self.catch_up(kinds=("outside", *beside))
        self.check_files()
        self.agree("folders after a refusal", folders - self.folders, frozenset())

    def done(
        self,
        kind: str,
        actor: Actor,
        answer: ApplyResult,
        expected: Files,
        undone: Mapping[int, frozenset[str]] | None = None,
        *,
        beside: Collection[str] = (),
        moved: Collection[str] = (),
    ) -> None:
        """Take the step in the model. Verify that the daemon's answer, log and files are the same.

        `undone` has each undone transaction with its undone paths. `beside` has other kinds of transactions
        that may occur in the same step, and `moved` the two paths of each move.
        """
        changes, undone = differences(self.disk, expected), undone or {}
        made = answer.transaction
        if made is None:
            self.agree(f"{kind} without a transaction", changes, {})
            self.agree(f"{kind} without a transaction", bool(undone), False)
            self.catch_up(kinds=("outside", *beside))
            return
        self.disk = expected
        self.written |= {held.content for held in expected.values()}
        for path in changes:
            actor.has_seen(path, version_at(expected, path))
        self.catch_up(made.seq, ("outside", *beside))
        self.history.steps[made.seq].mingled |= {*moved}
        self.agree(f"the changes of {made.seq}", self.history.steps[made.seq].after, changes)
        parts = {
            seq: paths for seq, paths in undone.items() if paths != frozenset(self.history.steps[seq].after)
        }
        told = kind, actor.name, sorted(undone), parts
        self.agree(f"{made.seq} by its kind, session and undone transactions", about(made), told)
        if not changes:
            raise Disagreement(f"transaction {made.seq} changes nothing")
        self.check_files()

    def trust(
        self, kind: str, actor: Actor, answer: ApplyResult, undone: Mapping[int, frozenset[str]]
    ) -> None:
        """Accept the daemon's report of its changes. Still verify that the files have them."""
        made = answer.transaction
        if made is not None:
            self.done(kind, actor, answer, merged_with(self.disk, self.told(made)), undone)

    def catch_up(self, own: int | None = None, kinds: Collection[str] = ("outside",)) -> list[int]:
        """Add new transactions to the model. Verify numbers, old contents, and `outside` changes."""
        log = self.client.log(limit=10_000, after=self.history.head).transactions[::-1]
        first = self.history.head + 1
        self.agree("the numbers", [made.seq for made in log], list(range(first, first + len(log))))
        for made in log:
            if made.seq != own and made.kind not in kinds:
                raise Disagreement(f"nobody asked for this: {made}")
            self.take_in(made, is_own=made.seq == own)
        if log and self.history.unsure:
            self.trust_marks()
        return [made.seq for made in log]

    def trust_marks(self) -> None:
        """Accept the daemon's undone marks if they depend on a move that is not in the log."""
        marks: dict[tuple[int, str], int] = {}
        for made in self.client.log(limit=10_000, before=self.history.head + 1).transactions:
            for change in made.files:
                by = change.undone_by if made.undone_by is None else made.undone_by
                if isinstance(by, int):
                    marks[made.seq, change.path] = by
                    if isinstance(change.from_, str):
                        marks[made.seq, change.from_] = by
        self.history.trust(marks)

    def take_in(self, made: Transaction, *, is_own: bool) -> None:
        after, before = self.told(made), self.history.states[-1]
        for change in made.files:
            source = change.from_ if isinstance(change.from_, str) else change.path
            self.agree(f"{made.seq}, {source} before", change.base, version_at(before, source))
        for path, held in after.items():
            if not (is_own or held is None or self.was_written(held.content)):
                raise Disagreement(f"{made.seq}: {path} never held {held}")
        moves = {change.path: change.from_ for change in made.files if isinstance(change.from_, str)}
        shown = [p if held else f"no {p}" for p, held in after.items() if p not in moves.values()]
        self.note(f"  {made.seq} {made.kind}: {sorted(shown)} {moves or ''}")
        kind, session, undoes, parts = about(made)
        step = Step(kind, {p: before.get(p) for p in after}, after, moves, tuple(undoes), session, parts)
        self.history.add(step)

    def was_written(self, content: bytes) -> bool:
        """Return whether a file ever had this content, even while it was being written."""
        return content in self.written or any(whole.startswith(content) for whole in self.written)

    def told(self, made: Transaction) -> Changes:
        """Return the reported changes of a transaction, with the content of their versions."""
        changes: Changes = {}
        for change in made.files:
            if isinstance(change.from_, str):
                changes[change.from_] = None
        for change in made.files:
            changes[change.path] = None
            if change.version is not None:
                read = self.client.read(change.path, at=made.seq)
                self.agree(
                    f"{change.path} at {made.seq}", (read.version, read.mode), (change.version, change.mode)
                )
                changes[change.path] = Held(read.content.encode("utf-8", "surrogateescape"), read.mode)
        return changes

    def read_at(self, seq: int, paths: Iterable[str]) -> None:
        for path in paths:
            held = self.history.states[seq].get(path)
            try:
                read = self.client.read(path, at=seq)
                told: object = (read.content, read.mode)
            except EditdError as refusal:
                told = refusal.name
            expected = "file_missing" if held is None else (text_of(held.content), held.mode)
            self.agree(f"{path} at {seq}", told, expected)

    def check_undone(self) -> None:
        """Compare the undone marks of each transaction and path with the model."""
        for made in self.client.log(limit=10_000).transactions:
            step = self.history.steps[made.seq]
            whole = step.undone_by
            if (made.undone_by is None) != (whole is None):
                self.agree(f"what has undone {made.seq}, {sorted(step.after)}", made.undone_by, step.undone)
            if whole is not None and made.undone_by not in step.undone.values():
                self.agree(f"what has undone {made.seq}", made.undone_by, whole)
            if whole is None:
                told = {c.path: c.undone_by for c in made.files if isinstance(c.undone_by, int)}
                known = {path: by for path, by in step.undone.items() if path not in step.moves.values()}
                self.agree(f"the paths of {made.seq} that are undone", told, known)


def about(made: Transaction) -> tuple[str, str | None, list[int], dict[int, frozenset[str]]]:
    """Return the kind, the session, the undone transactions, and the partly undone ones."""
    parts: dict[int, frozenset[str]] = {}
    for part in made.parts if isinstance(made.parts, list) else []:
        parts[part.seq] = parts.get(part.seq, frozenset()) | {part.path}
    return made.kind, made.session, sorted(made.undoes), parts


def on_disk(root: Path) -> tuple[Files, frozenset[str]]:
    """Return every file and symlink by path, and the folders, without `.git` and temporary files."""
    files: Files = {}
    folders: set[str] = set()

    def look(folder: str, above: str) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = above + entry.name
                if entry.name.startswith(".editd-"):
                    continue
                if entry.is_symlink():
                    files[path] = Held(os.fsencode(os.readlink(entry.path)), "120000")
                elif entry.is_dir():
                    if path != ".git":
                        folders.add(path)
                        look(entry.path, path + "/")
                else:
                    mode = entry.stat(follow_symlinks=False).st_mode
                    content = Path(entry.path).read_bytes()
                    files[path] = Held(content, "100755" if mode & 0o100 else "100644")

    look(str(root), "")
    return files, frozenset(folders)
