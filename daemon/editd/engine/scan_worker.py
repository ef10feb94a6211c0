"""The surveying process: it takes the baseline, and walks the workspace when the daemon wants to settle.

`python -m editd.engine.scan_worker ROOT STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
Nothing of unbounded size runs in the daemon itself; here, a walk holds up nobody.

`{do: "baseline", time}` → `{progress, bytes}` …, `{baseline, files, bytes, uncovered, budget_spent}`, or
`{failed}`: the commit is durable, head is not moved.
`{do: "scan", id}` → `{id, folder, files: [[name, mode, version]]}` …, `{id, done, files, uncovered, strays}`.
Names and paths are text with surrogate escapes.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Any

from msgspec import Struct, field

from editd.store.commit_message import compose, ident
from editd.store.git_objects import EMPTY_TREE, TreeEntry, Trees, commit_content, object_id
from editd.store.git_repository import borrow, create_store
from editd.store.pack_writer import PackWriter
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame
from editd.values.path import PATH_BYTES_MAX
from editd.values.transaction import Authorship
from editd.workspace.scan import FILE_BYTES_MAX, Walk, load_known, save_known
from editd.workspace.scope import WorkspaceScope
from editd.workspace.uncaptured import load_uncovered, save_uncovered

FILES_MAX = 200_000  # read for the baseline; what git knows to be clean does not count
BYTES_MAX = 2 * 1024 * 1024 * 1024  # of those files: some ten seconds of reading and packing
PROGRESS_SECONDS = 0.2
SHOWN_MAX = 200  # letters of a path in a sentence
NEWS_MAX = 1000  # files to be read again after a kill; the cache of 100,000 files takes 30 ms to save
BASELINE = Authorship("outside", None, "the workspace as first seen")


@dataclass
class ScanWorker:
    root: str
    folder: str  # the state folder

    def __post_init__(self) -> None:
        self._cache = os.path.join(self.folder, "scan.cache")
        self._known = load_known(self._cache)
        self._uncovered = load_uncovered(self.folder)
        self._news = 0  # files that the saved cache does not know as they are now

    def baseline(self, time_us: int) -> dict[str, Any]:
        """Put the workspace as it is now into the store, durably; return the answer. Raises OSError."""
        store = os.path.join(self.folder, "store.git")
        packs = os.path.join(store, "objects", "pack")
        create_store(store)
        _remove_unfinished(packs)
        taking = _Taking(PackWriter(packs))
        walk = Walk(self.root, WorkspaceScope(self.root), {}, taking.take)
        try:
            commit = self._put(walk, taking.writer, time_us)
            indexes = [index for index in walk.indexes.values() if index is not None]
            borrow(store, sorted({folder for index in indexes for folder in index.objects}))
            taking.writer.finish()
        except BaseException:
            taking.writer.abandon()
            raise
        self._uncovered = frozenset(taking.left)
        save_uncovered(self.folder, self._uncovered)
        self._known, self._news = walk.known, walk.news
        self.save()
        return {
            "baseline": commit.hex(),
            "files": walk.files,
            "bytes": walk.content_bytes,
            "uncovered": self._left_out(walk),
            "too_large": [os.fsdecode(path) for path in walk.too_large],
            "budget_spent": bool(taking.left),
        }

    def _put(self, walk: Walk, writer: PackWriter, time_us: int) -> bytes:
        """Write the trees and the commit of what `walk` finds, the blobs being written on the way."""
        entries: list[tuple[bytes, TreeEntry | None]] = []
        told = time.monotonic()
        for found in walk.folders():
            prefix = found.path + b"/" if found.path else b""
            for name, (mode, version) in sorted(found.files.items()):  # so that each is put behind the last
                entries.append((prefix + name, TreeEntry(mode, bytes.fromhex(version))))
            if time.monotonic() - told > PROGRESS_SECONDS:
                told = time.monotonic()
                write_frame(sys.stdout.buffer, {"progress": walk.files, "bytes": walk.content_bytes})
        splice = Trees(EMPTY_TREE, dict[bytes, bytes]().__getitem__).update(entries)
        if splice.root == EMPTY_TREE:
            writer.add("tree", b"", EMPTY_TREE)
        for oid, raw in splice.trees.items():
            writer.add("tree", raw, oid)
        who = ident("editd")
        message = compose(0, "baseline", BASELINE, time_us, [], [])
        return writer.add("commit", commit_content(splice.root, [], who, who, time_us, message))

    def scan(self, number: int) -> None:
        """Walk the workspace and tell of every folder, then that it is done."""
        walk = Walk(self.root, WorkspaceScope(self.root), self._known, skipped=self._uncovered)
        for found in walk.folders():
            prefix = found.path + b"/" if found.path else b""
            files = [
                [os.fsdecode(name), mode, version]
                for name, (mode, version) in found.files.items()
                if prefix + name not in self._uncovered
            ]
            frame = {"id": number, "folder": os.fsdecode(found.path), "files": files}
            write_frame(sys.stdout.buffer, frame)
        self._news += walk.news
        if self._news >= NEWS_MAX:
            self.save()
        write_frame(
            sys.stdout.buffer,
            {
                "id": number,
                "done": True,
                "files": walk.files,
                "uncovered": self._left_out(walk),
                "too_large": [os.fsdecode(path) for path in walk.too_large],
                "strays": [os.fsdecode(stray) for stray in walk.strays],
            },
        )

    def save(self) -> None:
        """Keep what is known of the files for the next daemon, if that is more than was kept before."""
        if not self._news:
            return
        self._news = 0
        try:
            save_known(self._cache, self._known)
        except OSError as error:
            print(f"the scan's cache could not be saved: {error}", file=sys.stderr)  # noqa: T201  # to the log

    def _left_out(self, walk: Walk) -> list[str]:
        """What is not looked after, in sentences with examples."""
        said = (
            (
                sorted(self._uncovered),
                "were too many for the baseline and are captured when an edit touches them",
            ),
            (walk.too_long, f"have a path of more than {PATH_BYTES_MAX} bytes, which no program can open"),
            (walk.unreadable, "could not be read"),
        )
        return [f"{counted(len(paths), what)}: {_some(paths)}" for paths, what in said if paths]


def too_large(paths: list[bytes]) -> list[str]:
    """Return the sentence about files that are over the limit, if there are any."""
    what = f"are over {FILE_BYTES_MAX >> 20} MiB and are captured when an edit touches them"
    return [f"{counted(len(paths), what)}: {_some(sorted(paths))}"] if paths else []


def counted(files: int, what: str) -> str:
    """Return a sentence about so many files; `what` begins with its verb in the plural."""
    if files != 1:
        return f"{files} files {what}"
    singular = what.replace("were ", "was ").replace("are ", "is ")
    return f"1 file {singular.replace('an edit touches them', 'an edit touches it')}"


class _Taking(Struct):
    """Puts what the walk reads into a pack, as far as the budget goes."""

    writer: PackWriter
    files: int = 0
    content_bytes: int = 0
    left: list[bytes] = field(default_factory=list)

    def take(self, path: bytes, content: bytes) -> bool:
        if self.files >= FILES_MAX or self.content_bytes + len(content) > BYTES_MAX:
            self.left.append(path)
            return False
        self.files += 1
        self.content_bytes += len(content)
        self.writer.add("blob", content, object_id("blob", content))
        return True


def _some(paths: list[bytes]) -> str:
    shown = ", ".join(_shown(os.fsdecode(path) or ".") for path in paths[:3])
    return shown + (", …" if len(paths) > 3 else "")


def _shown(path: str) -> str:
    return path if len(path) <= SHOWN_MAX else f"{path[: SHOWN_MAX // 2]}…{path[-SHOWN_MAX // 2 :]}"


def _remove_unfinished(packs: str) -> None:
    """Remove what a baseline that was killed has left; nobody else writes packs before there is one."""
    for name in os.listdir(packs):
        if name.startswith("tmp_pack_"):
            os.unlink(os.path.join(packs, name))


def main() -> None:
    surveyor = ScanWorker(sys.argv[1], sys.argv[2])
    try:
        while (request := read_frame(sys.stdin.buffer)) is not None:
            answer(surveyor, request)
    except BrokenPipeError:  # The daemon is gone. What it has not read goes nowhere, without a complaint.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    surveyor.save()


def answer(surveyor: ScanWorker, request: dict[str, Any]) -> None:
    """Answer one request. Raises BrokenPipeError where nobody reads any more."""
    if request["do"] == "scan":
        surveyor.scan(request["id"])
        return
    try:
        told = surveyor.baseline(request["time"])
    except BrokenPipeError:
        raise
    except OSError as error:
        told = {"failed": str(error)}
    write_frame(sys.stdout.buffer, told)


if __name__ == "__main__":
    main()
    exit_fast()
