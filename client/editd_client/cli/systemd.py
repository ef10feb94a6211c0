"""`editctl systemd`: the daemon of a workspace as a user unit, activated by its first client.

The units are two templates from `systemd/` for all workspaces, and for each workspace two drop-ins for
the parts that a template cannot compute: the path of the socket, and the folder of the history.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import Unreachable, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd_client.cli.invocation import Invocation
    from editd_client.locate import Workspace

SYSTEMCTL_SECONDS_MAX = 100.0  # a daemon may finish long requests before it stops


@click.group("systemd")
def systemd_verb() -> None:
    """Let systemd start and supervise the daemon.

    systemd listens on the socket, and the first client starts the daemon. systemd restarts it after a
    crash or if it hangs, and lets it write only to the workspace and its own folders. Without a unit,
    editctl starts the daemon itself. docs/systemd.md has more.

    \b
    Examples:
      editctl systemd install --now
      editctl systemd status
      journalctl --user -u 'editd@*'
      editctl systemd uninstall
    """


@systemd_verb.command("install")
@click.option("--now", is_flag=True, help="Listen at once, not only after the next login.")
@click.option(
    "--remote", is_flag=True, help="Allow the network for `editctl remote` (default: if it is in a log)."
)
@as_json
@click.pass_obj
def install(invocation: Invocation, now: bool, remote: bool) -> None:
    """Install the units of this workspace, and enable its socket.

    Writes the units to `$XDG_CONFIG_HOME/systemd/user` (`~/.config/systemd/user`). They name the
    editd of this installation: install them again after you move it. A running daemon exits when
    systemd has the socket, and the next client starts it again.

    The unit has no network. A workspace that is in a log of several hosts gets a drop-in that allows
    what remotes by ssh and https need. --remote writes it before `editctl remote init` or `join`.

    \b
    Examples:
      editctl systemd install --now
      editctl systemd install --now --remote
      editctl -C ~/src/project systemd install
    """
    units = _units(invocation)
    os.makedirs(os.path.dirname(invocation.workspace.state_folder), 0o700, exist_ok=True)
    try:
        written = list(_write(units, is_remote=remote or _is_in_a_log(invocation.workspace)))
    except OSError as error:
        raise Unreachable(f"The units cannot be written: {error.strerror}: {error.filename}.") from error
    enable = ["enable", *(["--now"] if now else []), units.socket]
    pending = _tell_systemd([["daemon-reload"], enable])
    if invocation.json:
        facts = {"socket": units.socket, "service": units.service, "files": written, "run": pending}
        output.echo(output.json_text(facts))
        return
    for path in written:
        output.echo(path)
    _say_what_is_left(pending)
    if not pending:
        output.echo(
            f"{units.socket} is enabled" + (" and listens" if now else "; it listens from the next login on")
        )


@systemd_verb.command("uninstall")
@as_json
@click.pass_obj
def uninstall(invocation: Invocation) -> None:
    """Stop the daemon of this workspace, and remove its units.

    Keeps the history, and the units that another workspace needs. The next editctl starts the daemon
    itself, as without units.
    """
    units = _units(invocation)
    pending = _tell_systemd([["disable", "--now", units.socket], ["stop", units.service]])
    removed = list(_remove(units))
    pending += _tell_systemd([["daemon-reload"]])
    if invocation.json:
        output.echo(output.json_text({"files": removed, "run": pending}))
        return
    for path in removed:
        output.echo(f"removed {path}")
    if not removed:
        output.echo("this workspace has no units")
    _say_what_is_left(pending)


@systemd_verb.command("status")
@as_json
@click.pass_obj
def status(invocation: Invocation) -> int:
    """Show the units and their state in systemd.

    Exits with 3 if they are not installed. Starts no daemon.
    """
    units = _units(invocation)
    missing = [path for path in units.own_files() if not os.path.exists(os.path.join(_folder(), path))]
    facts: dict[str, str | bool] = {
        "installed": not missing,
        "enabled": _ask("is-enabled", units.socket),
        "socket": _ask("is-active", units.socket),
        "service": _ask("is-active", units.service),
    }
    if invocation.json:
        output.echo(output.json_text({"units": {"socket": units.socket, "service": units.service}, **facts}))
    else:
        output.echo(
            f"{'units':<12}" + ("installed" if not missing else "not installed: `editctl systemd install`")
        )
        output.echo(f"{'socket':<12}{facts['socket']}, {facts['enabled']} ({units.socket})")
        output.echo(f"{'service':<12}{facts['service']} ({units.service})")
    return 0 if not missing else 3


def _units(invocation: Invocation) -> Units:

    return Units.of(invocation.workspace)


def _folder() -> str:
    """Return the folder of a user's own units."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(configuration, "systemd", "user")


def _is_in_a_log(workspace: Workspace) -> bool:
    """Return whether the workspace exchanges with other hosts."""
    return os.path.exists(os.path.join(workspace.state_folder, "remote.json"))


def _write(units: Units, *, is_remote: bool) -> Iterator[str]:
    for name, content in units.files(os.environ, is_remote=is_remote).items():
        path = os.path.join(_folder(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        new = f"{path}.new"
        with open(new, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        os.replace(new, path)
        yield path


def _remove(units: Units) -> Iterator[str]:
    """Remove this workspace's files, and the templates with the last of all workspaces."""

    paths = [os.path.join(_folder(), name) for name in (*units.own_files(), units.remote_file)]
    for path in paths:
        if os.path.exists(path):
            os.unlink(path)
            yield path
    for folder in {os.path.dirname(path) for path in paths}:
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
    others = os.listdir(_folder()) if os.path.isdir(_folder()) else []
    if not any(name.startswith("editd@") and name.endswith(".d") for name in others):
        for path in (os.path.join(_folder(), name) for name in (SERVICE, SOCKET)):
            if os.path.exists(path):
                os.unlink(path)
                yield path


def _tell_systemd(commands: list[list[str]]) -> list[str]:
    """Run these commands of `systemctl --user`; without a manager, return them for the user to run.

    Raises Unreachable if a command fails.
    """
    if not _answers():
        return [
            " ".join(["systemctl", "--user", *(_for_a_shell(word) for word in words)]) for words in commands
        ]
    for words in commands:
        done = _systemctl(*words)
        missing = "not loaded" in done.stderr or "does not exist" in done.stderr
        if done.returncode != 0 and not (missing and words[0] in ("disable", "stop")):
            raise Unreachable(
                f"`systemctl --user {' '.join(words)}` failed: {done.stderr.strip()}",
                hint=f"`systemctl --user status {_for_a_shell(words[-1])}` shows more.",
            )
    return []


def _answers() -> bool:
    """Whether a manager of this user's units answers."""
    state = _systemctl("is-system-running")
    return state.stdout.strip() not in ("", "offline", "unknown")


def _ask(question: str, unit: str) -> str:
    """Return systemd's answer to `is-enabled` or `is-active`, unchanged."""
    return _systemctl(question, unit).stdout.strip() or "unknown: systemctl --user does not answer"


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["systemctl", "--user", *words],
            capture_output=True, text=True, errors="replace", timeout=SYSTEMCTL_SECONDS_MAX, check=False,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(words, 1, "", str(error))


def _for_a_shell(word: str) -> str:
    import shlex

    return shlex.quote(word)


def _say_what_is_left(commands: list[str]) -> None:
    if commands:
        output.print_error("hint: no systemd answers here. When it does, run:")
        for command in commands:
            output.print_error(f"  {command}")


# ── The units ─────────────────────────────────────────────────────────────────────────────────


SERVICE, SOCKET, REMOTE = "editd@.service", "editd@.socket", "editd-remote.conf"
DROP_IN, REMOTE_DROP_IN = "workspace.conf", "remote.conf"
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

    @property
    def remote_file(self) -> str:
        """The drop-in that allows what remotes need."""
        return f"{self.service}.d/{REMOTE_DROP_IN}"

    def files(self, environment: Mapping[str, str], *, is_remote: bool = False) -> dict[str, str]:
        """Return each file's path, below the folder of the user's units, with its content."""
        return {
            **({self.remote_file: template(REMOTE)} if is_remote else {}),
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
        if path := environment.get("EDITD_SOCKET"):
            yield f"ListenStream={_literal(os.path.abspath(path))}"
        else:
            yield f"ListenStream=%t/editd/{self.workspace.id}.sock"

    def _of_the_service(self, environment: Mapping[str, str]) -> Iterator[str]:
        yield f"# {_in_a_comment(self.workspace.root)}: the daemon's environment and its writable folders."
        yield "[Service]"
        for name in VARIABLES:
            if value := environment.get(name):
                yield f"Environment={_quote(f'{name}={value}')}"
        for folder in (os.path.dirname(self.workspace.state_folder), *_git_folders(self.workspace.root)):
            yield f"ReadWritePaths={_quote('-' + folder)}"


def template(name: str) -> str:
    """Return the unit as shipped: from the package, or in a checkout from the folder beside it."""
    shipped = resources.files("editd_client").joinpath("systemd", name)
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8")
    return (Path(__file__).resolve().parents[3] / "systemd" / name).read_text(encoding="utf-8")


def escape_path(path: str) -> str:
    """Return the output of `systemd-escape --path` for an absolute path."""
    names = [name for name in os.fsencode(path).split(b"/") if name]
    if not names:
        return "-"
    return "-".join(map(_escape_name, names)) if names[0][:1] != b"." else "\\x2e" + _escape_from(names, 1)


def _escape_from(names: list[bytes], start: int) -> str:
    return "-".join([_escape_name(names[0][start:]), *map(_escape_name, names[1:])])


def _escape_name(name: bytes) -> str:
    return "".join(chr(byte) if _PLAIN.match(bytes([byte])) else f"\\x{byte:02x}" for byte in name)


def _with_our_command(service: str) -> str:
    """Return the unit with the editd of this installation, by its absolute path."""
    # -P: otherwise Python would import from the current folder. The `:` is a part of the first word.
    command = " ".join([_quote(f":{sys.executable}"), "-P", "-m", "editd", "--foreground", "-C", "%f"])
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


def _quote(text: str) -> str:
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
