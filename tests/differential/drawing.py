"""Random edits and outside commands, drawn from one `Random` and from what the files hold.

Each draw fits more often than not, so that most requests are carried out and some are refused.
"""

from __future__ import annotations

import contextlib
import shlex
from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from editd.wire.messages import (
    AnyEdit,
    Chmod,
    Delete,
    EditText,
    Move,
    Patch,
    Position,
    Replace,
    Symlink,
    TextEdit,
    Write,
)
from support.workspace_model import Files, Held, No, Sheet, patch_of, version_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

PATHS = ["a", "b", "c", "d/a", "d/f", "d/f/inner", "d/e/ä \udcff", "n/x"]
LINKS = ["link", "d/up", "dl"]  # the last one mostly leads to a folder
FOLDERS = ["d", "d/f", "d/e", "n"]
TARGETS = {"link": ["a", "d/a", "gone", "link"], "d/up": ["../a", "f", "../link"], "dl": ["d", "d/f", "n"]}
THROUGH = ["dl/a", "dl/x", "a/below"]  # by a link to a folder; below a file
ANY_PATH = [*PATHS, *PATHS, *LINKS, *THROUGH, "d"]
WORDS = ["x", "y", "z"]
ODD = [b"", b"\0\xff1", b"\0\xff2", b"no end", b"1 \xff\n"]
OPS = ["write", "write", "replace", "replace", "text", "patch", "delete", "move", "chmod", "symlink"]
COMMANDS = [
    *(2 * ["append", "cat", "mv"]),
    *("save", "mv folder", "cp", "rm", "rm folder", "mkdir", "chmod", "ln", "empty", "swap"),
]
GIT = [
    *(2 * ["commit", "checkout"]),
    *("checkout -f", "stash", "pop", "reset", "reset HEAD~1", "mv", "rm", "checkout path", "clean"),
]


def text_of(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


class Drawing:
    """Draws from one `Random`, so that a step is drawn the same way each time."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def rarely(self) -> bool:
        return self.chance.random() < 0.15

    def one(self, choices: Sequence[Any]) -> Any:
        return self.chance.choice(choices)

    # ── Contents ───────────────────────────────────────────────────────────────────────────────

    def lines(self) -> bytes:
        return b"".join(b"%d %s\n" % (n, self.one(WORDS).encode()) for n in range(self.chance.randint(8, 14)))

    def varied(self, content: bytes) -> bytes:
        """The text with some lines changed, left out or put in, so that two such changes mostly merge."""
        lines = content.splitlines(keepends=True)
        for _ in range(self.one([1, 1, 2])):
            place = self.chance.randint(0, len(lines))
            new = self.one([[], [b"%d X\n" % place], [b"%d Y\n" % place], [b"new\n"], [b"p\n", b"q\n"]])
            lines[place : place + self.chance.randint(0, 2)] = new
        return b"".join(lines)

    def content(self, held: Held | None) -> bytes:
        if self.rarely():
            return self.one(ODD) if self.rarely() else self.lines()
        if held is None or held.mode == "120000" or not held.is_text:
            return self.lines()
        return self.varied(held.content)

    # ── Edits ──────────────────────────────────────────────────────────────────────────────────

    def path(self, sheet: Sheet) -> str:
        there = sorted(sheet.now)
        return str(self.one(ANY_PATH if self.chance.random() < 0.3 or not there else there))

    def base(self, path: str, sheet: Sheet, past: Sequence[Files]) -> Any:
        """Mostly what is right; at times none, or what the path held at some time, or that it is missing."""
        which = self.one(["right", "right", "right", "right", "none", "none", "old", "missing"])
        if which == "none":
            return UNSET
        if which == "missing":
            return None
        return version_at(self.one(past) if which == "old" else sheet.start, path)

    def edit(self, sheet: Sheet, past: Sequence[Files]) -> AnyEdit:
        op, path = self.one(OPS), self.path(sheet)
        target = path
        with contextlib.suppress(No):
            target = sheet.follow(path)
        held = sheet.now.get(target)
        base = self.base(target, sheet, past)
        match op:
            case "replace":
                return self.replace(path, held, base)
            case "text" if held is not None and held.is_text and held.content[-1:] in (b"", b"\n"):
                line = self.chance.randint(0, held.content.count(b"\n"))
                end = min(held.content.count(b"\n"), line + self.chance.randint(0, 2))
                start, stop = Position(line=line, character=0), Position(line=end, character=0)
                edits = [TextEdit(start=start, end=stop, text=self.one(["", "new\n"]))]
                return EditText(path=path, base=held.version, edits=edits)
            case "patch" if held is None or held.mode != "120000":
                old = None if held is None or not held.content else held.content
                new = self.content(held) or None
                if old != new and old != b"" and not path.startswith("dl"):
                    return Patch(patch=patch_of(path, old, None if old and self.rarely() else new))
            case "delete":
                return Delete(path=path, base=base)
            case "move":
                to = self.one(sorted(sheet.now)) if sheet.now and self.rarely() else self.one(ANY_PATH)
                return Move(path=path, to=str(to), base=base, overwrite=self.chance.random() < 0.5)
            case "chmod" if held is None or held.mode != "120000":
                return Chmod(path=path, executable=self.chance.random() < 0.5)
            case "symlink":
                link = str(self.one(LINKS))
                return Symlink(path=link, target=str(self.one(TARGETS[link])), base=base)
        force = self.chance.random() < 0.5
        mode = self.one([UNSET, UNSET, "100644", "100755"])
        content = text_of(self.content(held))
        return Write(path=path, content=content, mode=mode, force=force, base=UNSET if force else base)

    def replace(self, path: str, held: Held | None, base: Any) -> Replace:
        words = held.content.decode().splitlines() if held is not None and held.is_text else []
        old = self.one([word for word in words if word] or WORDS) if not self.rarely() else self.one(WORDS)
        count = held.content.count(old.encode()) if held is not None and not self.rarely() else 1
        new = self.one(WORDS) + self.one(["", "\nmore"])
        return Replace(path=path, old=old, new=new, count=max(count, 1), base=base)

    # ── What others do ─────────────────────────────────────────────────────────────────────────

    def shell(self, files: Files) -> tuple[str, bytes]:
        """A command line of `sh`, and what it reads from its standard input."""
        path = str(self.one(sorted(files) if files and self.chance.random() < 0.7 else [*PATHS, *LINKS]))
        other = str(self.one(PATHS))
        p, q, above = shlex.quote(path), shlex.quote(other), shlex.quote(str(self.one(FOLDERS)))
        content = self.content(files.get(path))
        make = f'mkdir -p "$(dirname {p})"'
        match self.one(COMMANDS):
            case "append":
                return f"echo {self.one(WORDS)} >> {p}", b""
            case "cat":
                return f"{make} && cat > {p}", content
            case "save":
                return f"{make} && cat > n.tmp && mv -T n.tmp {p}", content
            case "mv":
                return f'mkdir -p "$(dirname {q})" && mv -T {p} {q}', b""
            case "mv folder":
                return f"mv -T {above} {shlex.quote(str(self.one(['m', *FOLDERS])))}", b""
            case "cp":
                return f'mkdir -p "$(dirname {q})" && cp -a {p} {q}', b""
            case "rm":
                return f"rm -f {p}", b""
            case "rm folder":
                return f"rm -rf {above}", b""
            case "mkdir":
                return f"mkdir -p {self.one([*FOLDERS, 'd/empty', 'a'])}", b""
            case "chmod":
                return f"test -L {p} || chmod {self.one(['+x', '-x'])} {p}", b""
            case "ln":
                link = str(self.one(LINKS))
                return f"mkdir -p d && ln -sfn {self.one(TARGETS[link])} {link}", b""
            case "empty":
                return f": > {p}", b""
        return f"mv -T {p} n.tmp && mv -T {q} {p} && mv -T n.tmp {q}", b""

    def git(self, files: Files) -> list[list[str]]:
        """Commands of git, by their arguments; each may fail, as it does for anybody."""
        path = str(self.one(sorted(files) if files else PATHS))
        branch = str(self.one(["main", "side"]))
        match self.one(GIT):
            case "commit":
                return [["add", "-A"], ["commit", "-q", "-m", "more"]]
            case "checkout":
                return [["checkout", "-q", branch]]
            case "checkout -f":
                return [["checkout", "-q", "-f", branch]]
            case "stash":
                return [["stash", "push", "-q", *(["-u"] if self.rarely() else [])]]
            case "pop":
                return [["stash", "pop", "-q"]]
            case "reset":
                return [["reset", "-q", "--hard"]]
            case "reset HEAD~1":
                return [["reset", "-q", "--hard", "HEAD~1"]]
            case "mv":
                return [["mv", "-f", path, str(self.one(PATHS))]]
            case "rm":
                return [["rm", "-q", "-f", path]]
            case "checkout path":
                return [["checkout", "-q", "HEAD", "--", path]]
        return [["clean", "-f", "-d", "-q"]]
