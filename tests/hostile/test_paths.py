"""Every method and every tool on every path that leads, or might lead, where it should not.

Each is refused as documented or works; nothing outside and nothing of git's is touched, nobody waits, and
what works is undone without a trace. The long form asks every method about every path, both ways of opening
folders; the short one some of them.
"""

from __future__ import annotations

import os
import random
import socket
import stat
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import ApplyResult
from support import without
from support.every_method import FOUND, METHODS
from support.outside import Outside, asked, history_tells, tells
from support.seeds import seed
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.workplace import Workplace

METHODS_SHORT = 2  # of the methods beside `read` and `write`, at each path by the seed of the commit
SECONDS_MAX = 10.0  # for what takes milliseconds: whoever opens a fifo waits for ever
LINKS = 41  # one more than path_resolution(7) follows

# What `read` says, and what `write` says; None where it is done.
Said = tuple[str | None, str | None]
OUTSIDE: Said = ("path_outside", "path_outside")
PROTECTED: Said = ("path_protected", "path_protected")
INVALID: Said = ("invalid_params", "invalid_params")
NO_FILE: Said = ("not_a_file", "not_a_file")
FINE: Said = (None, None)
BY_TEXT: dict[str, Said] = {
    "/etc/passwd": OUTSIDE, "../outside/f": OUTSIDE, "d/../../outside/f": OUTSIDE, "d/../plain": OUTSIDE,
    "..": OUTSIDE, "d/..": OUTSIDE, "": INVALID, ".": INVALID, "d//f": INVALID, "d/": INVALID,
    "./plain": INVALID, "d/./f": INVALID, "nul\0": INVALID, "n" * 256: INVALID, "é" * 128: INVALID,
    "/".join(["n" * 200] * 21): INVALID,
    ".git": PROTECTED, ".git/config": PROTECTED, ".GIT/config": PROTECTED, ".Git/hooks/x": PROTECTED,
    ".git./config": PROTECTED, ".git /config": PROTECTED, ".git . ./config": PROTECTED,
    "git~1/config": PROTECTED, "GIT~1/config": PROTECTED, ".git::$INDEX_ALLOCATION/config": PROTECTED,
    ".git:x": PROTECTED, ".g\u200cit/config": PROTECTED, ".\ufeffgit/config": PROTECTED,
    ".gi\u00adt/config": PROTECTED, ".git\\config": PROTECTED, "d\\.git\\config": PROTECTED,
    "nested/.git/config": PROTECTED, "nested/.git": PROTECTED, "linked/.git": PROTECTED,
    "linked/.GIT/x": PROTECTED, ".git\udcff": PROTECTED,
    ".editd-0123456789abcdef-0": PROTECTED, "d/.editd-cookie-1": PROTECTED, ".editd-x/y": PROTECTED,
}  # fmt: skip
BY_WHAT_IS_THERE: dict[str, Said] = {
    "out": OUTSIDE, "outdir": OUTSIDE, "outdir/f": OUTSIDE, "outdir/new": OUTSIDE, "outdir/sub/f": OUTSIDE,
    "up": OUTSIDE, "d/up": OUTSIDE, "dangling-out": OUTSIDE, "loop": OUTSIDE, "loop/x": OUTSIDE,
    "loop-a": OUTSIDE, "chain0": OUTSIDE, "magic": OUTSIDE, "magic-cwd/f": OUTSIDE, "etc/passwd": OUTSIDE,
    "to-git": PROTECTED, "git-folder/config": PROTECTED, "git-around": PROTECTED, "to-editd": PROTECTED,
    "nested/to-git": PROTECTED,
    "fifo": NO_FILE, "to-fifo": NO_FILE, "socket": NO_FILE, "device": NO_FILE, "to-device": OUTSIDE,
    "fifo/x": ("file_missing", "not_a_file"), "plain/x": ("file_missing", "not_a_file"),
    "plain/x/y": ("file_missing", "not_a_file"), "dangling/x": ("file_missing", None),
    "d": NO_FILE, "empty": NO_FILE, "to-root": NO_FILE, "to-root/plain": FINE,
    "to-root/outdir/f": OUTSIDE,
    "hard": (None, "permission_denied"), "read-only": (None, "permission_denied"),
    "dangling": ("file_missing", None), "inside": FINE, "inside-absolute": FINE, "folder-absolute/f": FINE,
    "d/link-up": FINE, "gone/f": ("file_missing", None),
}  # fmt: skip


def build(place: Workplace, outside: Outside) -> Callable[[], None]:
    """Make all that is there; return what makes the hard link again where it was parted."""
    root = place.root
    place.write({"plain": f"{FOUND}\n", "d/f": f"{FOUND}\n", "nested/f": "", "linked/f": ""})
    place.git("init", "-q")
    place.git("add", "-A")
    place.git("commit", "-qm", "first")
    place.git("init", "-q", "nested")
    (root / "linked/.git").write_text(f"gitdir: {outside.folder}/sub\n")
    links = {
        "out": f"{outside.folder}/f", "outdir": str(outside.folder), "up": "../../outside/f",
        "d/up": "../../../outside/f", "dangling-out": f"{outside.folder}/made", "loop": "loop",
        "loop-a": "loop-b", "loop-b": "loop-a", "magic": f"/proc/self/root{outside.folder}/f",
        "magic-cwd": "/proc/self/cwd", "etc": "/etc", "to-git": ".git/config", "git-folder": ".git",
        "git-around": "d/../.git/config", "to-editd": ".editd-x", "nested/to-git": ".git/config",
        "to-fifo": "fifo", "to-device": "/dev/null", "to-root": ".", "dangling": "nowhere",
        "inside": "d/f", "inside-absolute": f"{root}/d/f", "folder-absolute": f"{root}/d",
        "d/link-up": "../plain",
    } | {f"chain{number}": f"chain{number + 1}" for number in range(LINKS)}  # fmt: skip
    for name, target in links.items():
        (root / name).symlink_to(target)
    (root / "empty").mkdir()
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as listening:
        descriptor = os.open(root, os.O_RDONLY)
        listening.bind(f"/proc/self/fd/{descriptor}/socket")
        os.close(descriptor)
    if os.geteuid() == 0:
        os.mknod(root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        os.mkfifo(root / "device")
    place.write({"read-only": FOUND})
    (root / "read-only").chmod(0o444)
    twin = place.folder / "twin"
    twin.write_text(f"{FOUND}\n")

    def link() -> None:
        assert twin.read_text() == f"{FOUND}\n"
        if twin.stat().st_nlink == 1:
            (root / "hard").unlink(missing_ok=True)
            (root / "hard").hardlink_to(twin)

    link()
    return link


def seen(root: Path) -> dict[str, tuple[int, object]]:
    """Everything in the workspace but git's: what it is, and what it holds."""
    found: dict[str, tuple[int, object]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        holds: object = None
        if stat.S_ISLNK(mode):
            holds = os.readlink(path)
        elif stat.S_ISREG(mode):
            holds = path.read_bytes()
        found[str(path.relative_to(root))] = mode, holds
    return found


def git_seen(root: Path) -> dict[str, tuple[int, int]]:
    """All of git's folders, with the times of their files."""
    tops = [root / ".git", root / "nested/.git", root / "linked/.git"]
    paths = [path for top in tops for path in [top, *top.rglob("*")]]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in paths}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", ["openat2", pytest.param("walk", marks=pytest.mark.long)])
def test_no_method_gets_out_by_any_path(place: Workplace, way: str, is_long: bool) -> None:
    outside = Outside(place.folder / "outside")
    link = build(place, outside)
    if way == "walk":
        place.launcher = without.launcher("openat2")
    chance = random.Random(f"{way} {seed()}")
    tried = done = 0
    expected = BY_TEXT | BY_WHAT_IS_THERE
    with place.start() as client:
        client.settle()
        before, git_before = seen(place.root), git_seen(place.root)
        for path, by_name in expected.items():
            names = (
                list(METHODS) if is_long else ["read", "write", *chance.sample(list(METHODS), METHODS_SHORT)]
            )
            for name in names:
                tried += 1
                began = time.monotonic()
                said, told = asked(partial(METHODS[name], client, str(place.root), path))
                assert time.monotonic() - began < SECONDS_MAX, (name, path)
                assert said != "internal_error", (name, path, place.log())
                assert not tells(told), (name, path)
                if name in ("read", "write"):
                    assert said == by_name[name == "write"], (name, path, told)
                if isinstance(told, ApplyResult) and told.transaction is not None:
                    done += 1
                    client.undo(told.transaction.seq)
                link()
                assert seen(place.root) == before, (name, path)
                outside.check()
            assert git_seen(place.root) == git_before, path
        assert client.status().state == "ready", place.log()
    place.stop()
    assert not history_tells(place)
    print(f"{way}: {len(expected)} paths, {tried} calls, of them {done} made a transaction that was undone")
    assert done


@pytest.mark.parametrize(
    "kind", ["symlink out", "folder", "fifo", "folder is a symlink out", "folder is a file"]
)
@pytest.mark.parametrize("verb", ["undo", "redo", "rollback", "restore"])
def test_what_is_put_back_goes_nowhere_where_something_else_has_come(
    place: Workplace, kind: str, verb: str, is_long: bool
) -> None:
    if verb in ("redo", "rollback") and not is_long:
        pytest.skip("which go the same way as an undo: with --long")
    outside = Outside(place.folder / "outside")
    place.write({"d/f": "0\n", "plain": "0\n"})
    with place.start() as client:
        client.settle()
        client.apply([write("d/f", "1\n"), write("plain", "1\n")], session="s")
        if verb == "redo":
            client.undo()
        put_in_the_way(place.root, kind, outside)
        client.settle()
        before = seen(place.root)
        backs: dict[str, Callable[[], object]] = {
            "undo": lambda: client.undo(1, on_conflict="force"),
            "redo": lambda: client.redo(on_conflict="force"),
            "rollback": lambda: client.rollback("s", on_conflict="force"),
            "restore": lambda: client.restore(0),
        }
        said, told = asked(backs[verb])
        assert said in {None, "path_outside", "not_a_file", "conflict"}, told
        assert said is None or seen(place.root) == before
        assert not tells(told)
        outside.check()
        assert client.status().state == "ready", place.log()
        assert client.check().problems == []


def put_in_the_way(root: Path, kind: str, outside: Outside) -> None:
    """Let something else stand where `d/f` was."""
    (root / "d/f").unlink()
    match kind:
        case "symlink out":
            (root / "d/f").symlink_to(outside.folder / "f")
        case "folder":
            (root / "d/f").mkdir()
            (root / "d/f/theirs").write_text("theirs\n")
        case "fifo":
            os.mkfifo(root / "d/f")
        case "folder is a symlink out":
            (root / "d").rmdir()
            (root / "d").symlink_to(outside.folder)
        case _:
            (root / "d").rmdir()
            (root / "d").write_text("theirs\n")
