"""The systemd units of a workspace: their names and their content.

Two templates from `systemd/` for all workspaces, and for each workspace two drop-ins for the parts that a
template cannot compute: the path of the socket, and the folder of the history. Only computes text: never
writes a file or runs systemctl.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd_client.locate import Workspace

SERVICE, SOCKET = "editd@.service", "editd@.socket"
DROP_IN = "workspace.conf"
FILE_NAME_MAX = 255  # bytes of the drop-in folder's name, the longest of all
VARIABLES = (
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "EDITD_SOCKET",
)  # variables that the daemon needs, if they are set
_PLAIN = re.compile(rb"[A-Za-z0-9:_.]")


class Units(Struct, frozen=True):
    """The units of one workspace."""

    instance: str
    workspace: Workspace

    @classmethod
    def of(cls, workspace: Workspace) -> Units:
        """Return the units. Raises EditdError (`invalid_params`) for a path too long for a unit's name."""
        instance = escape_path(workspace.root)
        longest = f"editd@{instance}.service.d"
        if len(longest) > FILE_NAME_MAX:
            raise refusal(
                "invalid_params",
                f"{workspace.root} is too long for the name of a unit, by {len(longest) - FILE_NAME_MAX} "
                "characters.",
                hint="Use editctl without a unit: it starts the daemon itself.",
            )
        return cls(instance, workspace)

    @property
    def socket(self) -> str:
        return f"editd@{self.instance}.socket"

    @property
    def service(self) -> str:
        return f"editd@{self.instance}.service"

    def files(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return each file's path, below the folder of the user's units, with its content."""
        return {
            SERVICE: _with_our_command(template(SERVICE)),
            SOCKET: template(SOCKET),
            f"{self.socket}.d/{DROP_IN}": "\n".join(self._of_the_socket(environment)) + "\n",
            f"{self.service}.d/{DROP_IN}": "\n".join(self._of_the_service(environment)) + "\n",
        }

    def own_files(self) -> list[str]:
        """Return the files that no other workspace needs."""
        return [f"{self.socket}.d/{DROP_IN}", f"{self.service}.d/{DROP_IN}"]

    def _of_the_socket(self, environment: Mapping[str, str]) -> Iterator[str]:
        yield f"# {_in_a_comment(self.workspace.root)}: the socket for its clients."
        yield "[Socket]"
        if given := environment.get("EDITD_SOCKET"):
            yield f"ListenStream={_literal(os.path.abspath(given))}"
        else:
            yield f"ListenStream=%t/editd/{self.workspace.id}.sock"

    def _of_the_service(self, environment: Mapping[str, str]) -> Iterator[str]:
        yield f"# {_in_a_comment(self.workspace.root)}: the daemon's environment and its writable folders."
        yield "[Service]"
        for name in VARIABLES:
            if value := environment.get(name):
                yield f"Environment={_quoted(f'{name}={value}')}"
        for folder in (os.path.dirname(self.workspace.state_folder), *_git_folders(self.workspace.root)):
            yield f"ReadWritePaths={_quoted('-' + folder)}"


def template(name: str) -> str:
    """Return the unit as shipped: from the package, or in a checkout from the folder beside it."""
    shipped = resources.files("editd_client").joinpath("systemd", name)
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[2] / "systemd" / name).read_text(encoding="utf-8")


def escape_path(path: str) -> str:
    """Return the output of `systemd-escape --path` for an absolute path."""
    names = [name for name in os.fsencode(path).split(b"/") if name]
    if not names:
        return "-"
    return "-".join(map(_escape_name, names)) if names[0][:1] != b"." else "\\x2e" + _escaped_from(names, 1)


def _escaped_from(names: list[bytes], start: int) -> str:
    return "-".join([_escape_name(names[0][start:]), *map(_escape_name, names[1:])])


def _escape_name(name: bytes) -> str:
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"\\x{byte:02x}" for byte in name)


def _with_our_command(service: str) -> str:
    """Return the unit with the editd of this installation, by its absolute path."""
    # -P: otherwise Python would import from the current folder. The `:` is a part of the first word.
    command = " ".join([_quoted(f":{sys.executable}"), "-P", "-m", "editd", "--foreground", "-C", "%f"])
    return re.sub(r"(?m)^ExecStart=.*$", lambda _: f"ExecStart={command}", service)


def _git_folders(root: str) -> Iterator[str]:
    """Yield the outside git folders of a linked worktree or a submodule; `publish` writes to them."""
    try:
        text = Path(root, ".git").read_bytes()
    except OSError:
        return  # a folder, or missing
    if not text.startswith(b"gitdir: "):
        return
    folder = os.path.join(root, os.fsdecode(text.removeprefix(b"gitdir: ").rstrip(b"\n")))
    try:
        common = os.fsdecode(Path(folder, "commondir").read_bytes().rstrip(b"\n"))
    except OSError:
        common = "."
    yield os.path.realpath(os.path.join(folder, common))


def _literal(text: str) -> str:
    """Return the text for a setting that takes the rest of the line literally, except `%`."""
    _refuse_lines(text)
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """Return the text as one word of a unit."""
    _refuse_lines(text)
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", text) or not text else escaped


def _refuse_lines(text: str) -> None:
    if not text.isprintable():
        raise refusal(
            "invalid_params",
            f"{text!r} has characters that a unit cannot hold.",
            hint="Put the history and the socket in folders with printable names.",
        )


def _in_a_comment(text: str) -> str:
    """Return the text on one line, without a backslash that would continue it."""
    return ascii(text)[1:-1].rstrip("\\")
