"""A headless Neovim with the plugin in it, driven over MessagePack-RPC on its standard streams."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgpack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

PLUGIN = Path(__file__).resolve().parents[2] / "client" / "editors" / "neovim"
DRIVER = Path(__file__).resolve().parents[1] / "editors" / "driver.lua"
PROGRAM = os.environ.get("EDITD_TEST_NVIM") or shutil.which("nvim")
SECONDS = 20
TEN = "".join(f"line {number}\n" for number in range(1, 11))


class NeovimError(Exception):
    """What Neovim answered with in place of a result."""


@dataclass
class Neovim:
    """One editor. `driver.lua` has noted what the user was told, and chooses for them."""

    process: subprocess.Popen[bytes]

    def __post_init__(self) -> None:
        self.unpacker = msgpack.Unpacker(raw=False, unicode_errors="surrogateescape", strict_map_key=False)
        self.ids = count(1)

    def call(self, method: str, *params: object) -> Any:
        """Call an API function, and return its result."""
        assert self.process.stdin is not None
        number = next(self.ids)
        packed = msgpack.packb([0, number, method, params], unicode_errors="surrogateescape")
        self.process.stdin.write(packed)
        self.process.stdin.flush()
        while True:
            message = self._message()
            if message[0] == 1 and message[1] == number:
                if message[2] is not None:
                    raise NeovimError(message[2][1])
                return message[3]

    def _message(self) -> list[Any]:
        assert self.process.stdout is not None
        while True:
            message: list[Any]
            for message in self.unpacker:
                return message
            some = os.read(self.process.stdout.fileno(), 1 << 16)
            if not some:
                raise NeovimError("it has ended")
            self.unpacker.feed(some)

    def lua(self, code: str, *arguments: object) -> Any:
        """Run Lua; an expression's value is what comes back."""
        return self.call("nvim_exec_lua", code if "return" in code else f"return {code}", arguments)

    def command(self, text: str) -> None:
        """Run Ex commands, one a line."""
        self.call("nvim_exec", text, False)

    def edit(self, path: Path | str) -> None:
        self.command(f"edit {path}")

    @property
    def lines(self) -> list[str]:
        found: list[str] = self.call("nvim_buf_get_lines", 0, 0, -1, False)
        return found

    @lines.setter
    def lines(self, lines: list[str]) -> None:
        self.call("nvim_buf_set_lines", 0, 0, -1, False, lines)

    @property
    def is_modified(self) -> bool:
        return bool(self.lua("vim.bo.modified"))

    @property
    def info(self) -> dict[str, Any]:
        """What the plugin knows of the current buffer."""
        found: dict[str, Any] = self.lua("require('editd').info() or vim.empty_dict()")
        return found

    def said(self) -> list[str]:
        """What the user was told since this was last asked."""
        found: list[str] = self.lua("local said = _G.said; _G.said = {}; return said")
        return found

    def choose(self, choice: str | None) -> None:
        """Answer the next questions so, by the item; None: turn away."""
        self.lua("_G.choice = ... return true", choice)

    def until(self, condition: str, *arguments: object) -> Any:
        """Wait until a Lua expression holds, and return its value."""
        end = time.monotonic() + SECONDS
        while not (value := self.lua(condition, *arguments)):
            if time.monotonic() > end:
                messages = self.lua("vim.fn.execute('messages')")
                raise AssertionError(f"{condition} never was; said: {self.said()}; messages: {messages}")
            time.sleep(0.005)
        return value

    def end(self) -> None:
        """Have it end by itself, whatever is not saved."""
        with contextlib.suppress(NeovimError, BrokenPipeError):
            self.command("qall!")
        self.process.wait(SECONDS)

    def close(self) -> None:
        """However things stand, leave no process behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def environment(place: Workplace) -> dict[str, str]:
    """The workplace's, with an `editctl` to be found."""
    given = place.environment
    data = {f"XDG_{name}_HOME": str(place.folder / name.lower()) for name in ("DATA", "CACHE")}
    return {**given, **data, "PATH": f"{place.provide_editctl()}{os.pathsep}{given['PATH']}"}


@contextlib.contextmanager
def neovim(place: Workplace, setup: str = "") -> Iterator[Neovim]:
    """Start one in the workspace; `setup` is Lua that is run before the plugin is loaded."""
    assert PROGRAM is not None
    script = place.folder / "init.lua"
    script.write_text(f"vim.opt.runtimepath:prepend('{PLUGIN}')\n{setup}\ndofile('{DRIVER}')\n")
    argv = [*PROGRAM.split(), "--embed", "--headless", "-n", "-i", "NONE", "-u", str(script)]
    with (place.folder / "nvim-errors").open("wb") as errors:
        process = subprocess.Popen(
            argv,
            cwd=place.root,
            env=environment(place),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    editor = Neovim(process)
    try:
        yield editor
    finally:
        editor.close()


def opened(vim: Neovim, place: Workplace, name: str, content: bytes | str = TEN) -> Path:
    """Edit a new file of that name, which the daemon knows."""
    place.write({name: content})
    with place.client() as client:
        client.settle()
    vim.edit(name)
    return place.root / name
