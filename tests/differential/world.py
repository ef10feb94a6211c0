"""A real daemon and a model of it beside each other, and what must agree between them.

The model knows what the files hold and what each transaction changed. What the daemon itself did must be
exactly what the model says. What others did is read from the disk: a transaction of kind `outside` may come
at any time and in several pieces, and must tell of each path what it really held.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from drawing import text_of
from editd_client.errors import EditdError
from modelling import Changes, Files, Held, History, Step, differences, merged_with, version_at
from torment import fsck, strays

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from editd.wire.messages import ApplyResult, Transaction
    from editd_client.client import Client
    from workplace import Workplace

NAMES = ("ann", "bob", "cat")  # the sessions; "ann" is opened, the others are just names
OPENED = "ann"
IN_DOUBT = frozenset({"unread", "stale", "base_required"})  # what a killed daemon may have forgotten leads to


class Disagreement(AssertionError):
    """The daemon and the model do not agree."""


@dataclass
class Actor:
    """A session, or with no name a connection without one, and what it has seen of each path."""

    name: str | None
    client: Client
    seen: dict[str, str | None] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)  # paths of which the daemon may know less than that
    is_in_doubt: bool = False
    token: str | None = None

    def __str__(self) -> str:
        return self.name or "nobody"

    def has_seen(self, path: str, version: str | None) -> None:
        self.seen[path] = version
        self.doubtful.discard(path)


@dataclass
class World:
    """The daemon at a scratch folder, the model of its files and history, and the sessions."""

    place: Workplace
    story: list[str] = field(default_factory=list)
    disk: Files = field(default_factory=dict)
    folders: frozenset[str] = frozenset()
    history: History = field(default_factory=lambda: History.of({}))
    actors: dict[str | None, Actor] = field(default_factory=dict)
    written: set[bytes] = field(default_factory=set)  # all that any file has ever held
    requests: int = 0
    is_strict: bool = True  # Hold the recipe of a conflict to its promise.

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
        """Look at everything once more, and stop the daemon."""
        self.check()
        for seq in range(self.history.head + 1):
            self.read_at(seq, sorted(self.history.steps[seq].after))
        self.check_undone()
        self.leave()
        self.place.stop()
        fsck(self.place)
        self.agree("no temporaries of the daemon's are left", strays(self.place.root), [])

    def note(self, text: object) -> None:
        self.story.append(str(text))

    def agree(self, what: str, told: object, expected: object) -> None:
        if told != expected:
            raise Disagreement(f"{what}\n    daemon: {told!r}\n    model:  {expected!r}")

    # ── The daemon's life ──────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the daemon; what unnamed readers and names have seen is forgotten with the former one."""
        before = self.actors
        self.actors = {None: Actor(None, self.place.start())}
        for name in NAMES:
            self.actors[name] = Actor(name, self.place.client())
            if name != OPENED:
                self.actors[name].client.hello(session=name)
        opened = self.actors[OPENED]
        if OPENED in before:
            opened.seen, opened.doubtful = before[OPENED].seen, before[OPENED].doubtful
            opened.is_in_doubt, opened.token = before[OPENED].is_in_doubt, before[OPENED].token
            opened.client.hello(session=OPENED, token=opened.token)
        else:
            opened.token = opened.client.session_open(OPENED).token

    def leave(self) -> None:
        for actor in self.actors.values():
            actor.client.close()

    def kill(self) -> None:
        self.place.kill()
        self.leave()
        opened = self.actors[OPENED]
        opened.is_in_doubt, opened.doubtful = True, set(opened.seen)

    @property
    def client(self) -> Client:
        return self.actors[None].client

    def request_id(self) -> str:
        self.requests += 1
        return f"request {self.requests}"

    # ── What others do ─────────────────────────────────────────────────────────────────────────

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
        """Take what is on the disk for what the files hold."""
        self.disk, self.folders = on_disk(self.place.root)
        self.written |= {held.content for held in self.disk.values()}

    def check_files(self) -> None:
        found, self.folders = on_disk(self.place.root)
        changes = differences(self.disk, found)
        self.agree("the files", changes, {path: self.disk.get(path) for path in changes})

    # ── What the daemon says ───────────────────────────────────────────────────────────────────

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
        """What is asked must be refused by one of these names, and change nothing."""
        folders = self.folders
        try:
            answer = ask()
        except EditdError as refusal:
            self.note(f"  {actor}: refused, {refusal.name}: {refusal.message}")
            if refusal.name not in names:
                raise Disagreement(
                    f"refused by {refusal.name}, not {sorted(names)}: {refusal.message}"
                ) from None
            self.catch_up()
            self.check_files()
            self.agree("folders after a refusal", folders - self.folders, frozenset())
            return refusal
        raise Disagreement(f"it must be refused with {sorted(names)}, and is answered {answer}")

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
        """The model takes the step; the daemon's answer, log and files must be the same.

        `undone` has each transaction that is taken back, with the paths that are; `beside` other kinds of
        transactions that may come with it, `moved` the ends of moves.
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
        self.agree(f"{made.seq} by its kind, session and what it undoes", about(made), told)
        if not changes:
            raise Disagreement(f"transaction {made.seq} changes nothing")
        self.check_files()

    def trust(
        self, kind: str, actor: Actor, answer: ApplyResult, undone: Mapping[int, frozenset[str]]
    ) -> None:
        """Take the daemon's word for what it changed; that this is in the files is looked at all the same."""
        made = answer.transaction
        if made is not None:
            self.done(kind, actor, answer, merged_with(self.disk, self.told(made)), undone)

    def catch_up(self, own: int | None = None, kinds: Collection[str] = ("outside",)) -> list[int]:
        """Take in what the log has new: no gap, each from what the one before left, `outside` as on disk."""
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
        """Take the daemon's word for what is undone if that hangs on a move that the log does not tell."""
        for made in self.client.log(limit=10_000).transactions:
            told = {change.path: change.undone_by for change in made.files}
            step = self.history.steps[made.seq]
            for seq, path in self.history.unsure:
                if seq == made.seq:
                    by = told.get(path) if made.undone_by is None else made.undone_by
                    step.undone.pop(path, None)
                    if isinstance(by, int):
                        step.undone[path] = by

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
        """Whether a file held it at some time, be it in the middle of being written."""
        return content in self.written or any(whole.startswith(content) for whole in self.written)

    def told(self, made: Transaction) -> Changes:
        """What a transaction says that it changed, its versions read back."""
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
        """What the daemon says is undone, by whom, of each transaction and of each path."""
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
    """The kind of a transaction, its session, what it undoes, and what of that only in part."""
    parts: dict[int, frozenset[str]] = {}
    for part in made.parts if isinstance(made.parts, list) else []:
        parts[part.seq] = parts.get(part.seq, frozenset()) | {part.path}
    return made.kind, made.session, sorted(made.undoes), parts


def on_disk(root: Path) -> tuple[Files, frozenset[str]]:
    """Every file and symlink by its path, `.git` and the daemon's temporaries left out; and the folders."""
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
