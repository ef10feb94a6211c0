"""The scan worker: a process that takes the baseline, and walks the workspace when the daemon settles.

`python -m editd.engine.scan_worker ROOT STATE_FOLDER`, with frames (`system.frames`) on stdin and stdout.
It is a separate process because a walk takes unbounded time, which must not block the daemon.

`{do: "baseline", time, exclude}` → `{progress, bytes}` …,
`{baseline, tree, files, bytes, uncovered, linked, inner, budget_spent, excluded: [[version, path]]}`,
or `{failed}`.
The commit is durable, and head is not moved. The history may begin meanwhile: see `store.first_scan`. It has
no content of the excluded files.
`{do: "scan", id}` → `{id, folder, files: [[name, mode, version]]}` …, `{id, done, files, uncovered, linked,
inner, strays}`.
Names and paths are text with surrogate escapes.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.engine.borrowed_contents import take_over
from editd.errors import join_names
from editd.store.git_objects import EMPTY_TREE, Oid, commit_content, object_id, oid_of, tree_content
from editd.store.git_repository import FIRST_SCAN, add_pack, borrow, create_store, is_store
from editd.store.pack_writer import PackWriter
from editd.store.transaction_record import compose, ident
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import PATH_BYTES_MAX, WorkspacePath
from editd.values.transaction import Authorship
from editd.workspace.scan import FILE_BYTES_MAX, OID_BYTES, Walk, load_known, save_known
from editd.workspace.scope import WorkspaceScope
from editd.workspace.uncovered_paths import load_uncovered, save_uncovered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd.values.content import Version

FILES_MAX = 200_000  # read for the baseline; files that are clean in git are not counted
BYTES_MAX = 2 * 1024 * 1024 * 1024  # of those files, which takes about ten seconds
PROGRESS_SECONDS = 0.2
SHOWN_MAX = 200  # characters of a path in a message
NEWS_MAX = 1000  # unsaved cache entries: saving 100,000 entries takes 30 ms
BASELINE = Authorship("outside", None, "the workspace as first seen")


@dataclass
class ScanWorker:
    """The walks of one workspace, with the cache of known files."""

    root: str
    folder: str  # the state folder

    def __post_init__(self) -> None:
        self._cache = os.path.join(self.folder, "scan.cache")
        self._known = load_known(self._cache)
        self._uncovered = load_uncovered(self.folder)
        self._news = 0  # files that differ from the saved cache

    def baseline(self, time_us: int, rule: ExcludedPaths) -> dict[str, Any]:
        """Write the present workspace into the store, durably. Return the answer. Raises OSError.

        The contents of files that `rule` excludes are left out.
        """
        store = os.path.join(self.folder, "store.git")
        made = os.path.join(self.folder, FIRST_SCAN)
        if not is_store(store):  # otherwise the daemon may be using it
            create_store(store)
        shutil.rmtree(made, ignore_errors=True)  # left by an interrupted baseline
        blobs = _BlobWriter(PackWriter(made), rule)
        excluded: dict[Version, str] = {}
        walk = Walk(self.root, WorkspaceScope(self.root), {}, blobs.take, _Progress().report)
        try:
            commit, tree = self._write_commit(walk, blobs, excluded, time_us)
            indexes = [index for index in walk.indexes.values() if index is not None]
            borrow(store, sorted({folder for index in indexes for folder in index.objects}))
            name = blobs.writer.finish()
        except BaseException:
            blobs.writer.abandon()
            raise
        assert name is not None, "the pack has the commit at least"
        add_pack(store, made, name)
        os.rmdir(made)
        self._uncovered = frozenset(blobs.left)
        save_uncovered(self.folder, self._uncovered)
        self._known, self._news = walk.known, walk.news
        self.save()
        return {
            "baseline": commit.hex(),
            "tree": tree.hex(),
            "files": walk.files,
            "bytes": walk.content_bytes,
            "uncovered": self._uncovered_messages(walk),
            "too_large": _texts(walk.too_large),
            "linked": walk.linked,
            "inner": _texts(walk.scope.inner),
            "budget_spent": bool(blobs.left),
            "excluded": sorted(_excluded_alone(excluded, walk, rule).items()),
        }

    def _write_commit(
        self, walk: Walk, blobs: _BlobWriter, excluded: dict[Version, str], time_us: int
    ) -> tuple[Oid, Oid]:
        """Walk the workspace, and write its trees and the commit; return its id and its tree.

        The walk writes the blobs. `excluded` gets the versions of the excluded files.
        """
        writer = blobs.writer
        below: dict[bytes, list[tuple[bytes, bytes]]] = {}  # by folder: git's sort key, and the tree's entry
        for folder in walk.folders():
            prefix = folder.path + b"/" if folder.path else b""
            for name, (_, version) in folder.files.items():
                if blobs.is_excluded(prefix + name):
                    excluded[version] = os.fsdecode(prefix + name)
            below[folder.path] = [
                (name, b"%o %b\0%b" % (mode, name, bytes.fromhex(version)))
                for name, (mode, version) in folder.files.items()
            ]
        tree = EMPTY_TREE
        for path in reversed(list(below)):  # the walk comes to a folder after its parent
            above, _, name = path.rpartition(b"/")
            entries = below.pop(path)
            if path and entries:
                oid = writer.add("tree", tree_content(entries))
                below[above].append((name + b"/", b"40000 %b\0%b" % (name, oid)))
            elif not path:
                tree = writer.add("tree", tree_content(entries))
        who = ident("editd")
        message = compose(0, "baseline", BASELINE, time_us, [], [])
        return writer.add("commit", commit_content(tree, [], who, who, time_us, message)), tree

    def scan(self, number: int) -> None:
        """Walk the workspace. Send a frame for each folder, and a final one."""
        walk = Walk(self.root, WorkspaceScope(self.root), self._known, skipped=self._uncovered)
        for folder in walk.folders():
            prefix = folder.path + b"/" if folder.path else b""
            files = [
                [os.fsdecode(name), mode, version]
                for name, (mode, version) in folder.files.items()
                if prefix + name not in self._uncovered
            ]
            frame = {"id": number, "folder": os.fsdecode(folder.path), "files": files}
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
                "uncovered": self._uncovered_messages(walk),
                "too_large": _texts(walk.too_large),
                "linked": walk.linked,
                "inner": _texts(walk.scope.inner),
                "strays": _texts(walk.strays),
            },
        )

    def save(self) -> None:
        """Save the cache of known files, if it has changed."""
        if not self._news:
            return
        self._news = 0
        try:
            save_known(self._cache, self._known)
        except OSError as error:
            print(f"the scan's cache could not be saved: {error}", file=sys.stderr)  # noqa: T201  # to the log

    def _uncovered_messages(self, walk: Walk) -> list[str]:
        """Return messages about uncovered files, with examples."""
        groups = (
            (
                sorted(self._uncovered),
                "were too many for the baseline and are captured when an edit touches them",
            ),
            (walk.too_long, f"have a path of more than {PATH_BYTES_MAX} bytes, which no program can open"),
            (walk.unreadable, "could not be read"),
        )
        return [
            f"{count_sentence(len(paths), problem)}: {_some(paths)}" for paths, problem in groups if paths
        ]


def too_large(sizes: Mapping[bytes, int], file_bytes_max: int) -> list[str]:
    """Return messages about files over the limit of the scan, and over `file_bytes_max`, the edits' limit."""
    groups = (
        (
            [path for path, size in sizes.items() if size <= file_bytes_max],
            f"are over {FILE_BYTES_MAX >> 20} MiB and are captured when an edit touches them",
        ),
        (
            [path for path, size in sizes.items() if size > file_bytes_max],
            f"are over {file_bytes_max >> 20} MiB (`file_bytes_max`) and are never recorded, read or edited",
        ),
    )
    return [
        f"{count_sentence(len(paths), problem)}: {_some(sorted(paths))}" for paths, problem in groups if paths
    ]


def count_sentence(files: int, predicate: str) -> str:
    """Return a sentence about a number of files. `predicate` begins with its verb in the plural."""
    if files != 1:
        return f"{files} files {predicate}"
    singular = predicate.replace("were ", "was ").replace("are ", "is ").replace("have ", "has ")
    return f"1 file {singular.replace('an edit touches them', 'an edit touches it')}"


class _Progress(Struct):
    """Progress of a baseline, sent to the daemon now and then."""

    reported: float = 0.0

    def report(self, files: int, content_bytes: int) -> None:
        now = time.monotonic()
        if now - self.reported > PROGRESS_SECONDS:
            self.reported = now
            frame = {"progress": files, "bytes": content_bytes}
            write_frame(sys.stdout.buffer, frame)


class _BlobWriter(Struct):
    """Writes the files that the walk reads into a pack, within the budget."""

    writer: PackWriter
    rule: ExcludedPaths
    files: int = 0
    content_bytes: int = 0
    left: list[bytes] = field(default_factory=list)

    def is_excluded(self, path: bytes) -> bool:
        return self.rule.covers(WorkspacePath(os.fsdecode(path)))

    def take(self, path: bytes, content: bytes) -> bool:
        """Write a file, unless it is excluded, and return whether the budget allows it."""
        if self.is_excluded(path):
            return True
        if self.files >= FILES_MAX or self.content_bytes + len(content) > BYTES_MAX:
            self.left.append(path)
            return False
        self.files += 1
        self.content_bytes += len(content)
        self.writer.add("blob", content, object_id("blob", content))
        return True


def _excluded_alone(excluded: dict[Version, str], walk: Walk, rule: ExcludedPaths) -> dict[Version, str]:
    """Return the excluded versions that no other file has.

    The history needs the rest for the other file, perhaps in the user's git only.
    """
    if not excluded:
        return excluded
    oids = {oid_of(version): version for version in excluded}
    for path, record in walk.known.items():
        version = oids.get(record[-OID_BYTES:])
        if version is not None and not rule.covers(WorkspacePath(os.fsdecode(path))):
            excluded.pop(version, None)
    return excluded


def _texts(paths: Iterable[bytes]) -> list[str]:
    return [os.fsdecode(path) for path in sorted(paths)]


def _some(paths: list[bytes]) -> str:
    return join_names([_shorten(os.fsdecode(path) or ".") for path in paths])


def _shorten(path: str) -> str:
    return path if len(path) <= SHOWN_MAX else f"{path[: SHOWN_MAX // 2]}…{path[-SHOWN_MAX // 2 :]}"


def main() -> None:
    """Serve requests until stdin closes."""
    worker = ScanWorker(sys.argv[1], sys.argv[2])
    try:
        while (request := read_frame(sys.stdin.buffer)) is not None:
            answer(worker, request)
    except BrokenPipeError:  # The daemon is gone. Discard unread output without an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    worker.save()


def answer(worker: ScanWorker, request: dict[str, Any]) -> None:
    """Answer one request. Raises BrokenPipeError if the daemon is gone."""
    if request["do"] == "scan":
        worker.scan(request["id"])
        return
    try:
        if request["do"] == "baseline":
            result = worker.baseline(request["time"], ExcludedPaths.of(request["exclude"]))
        else:
            result = take_over(worker.root, worker.folder, request["commits"])
    except BrokenPipeError:
        raise
    except OSError as error:
        result = {"failed": str(error)}
    write_frame(sys.stdout.buffer, result)


if __name__ == "__main__":
    main()
    exit_fast()
