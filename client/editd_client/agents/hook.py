"""`editd-hook AGENT`: tell the daemon about an agent's own edits and commands, before and after each.

Reads the agent's event from standard input. Before an edit or a command it opens a bracket, by a key that
the later call finds again. If the daemon refuses it, the answer on standard output is the agent's refusal.

Never harms the agent: without a daemon, or after any failure, it prints nothing and exits with 0. It waits
200 ms for the daemon's first answer, and 2 s once the tool has run. It starts a daemon at the start of the
agent's session only.

Imports the light half of the standard library alone, because the agent waits for each call: `_socket`
is `socket` without its 3 ms of enumerations and selectors.
"""

from __future__ import annotations

import _socket
import json
import os
import sys
import time
from functools import lru_cache

from editd.config import paths
from editd.config.program_names import SHELLS
from editd_client import caller
from editd_client.agents import ID_LENGTH, NAMES, commands
from editd_client.agents.adapter import (
    AFTER,
    ASKED,
    BEFORE,
    DENIED,
    FAILED,
    PATCH,
    START,
    TURN_END,
    Adapter,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from editd_client.agents.adapter import Plugin

FIRST_SECONDS_MAX = 0.2  # to connect, and to get the first answer, before the agent's tool runs
END_SECONDS_MAX = 2.0  # the same afterwards, when the agent waits for the tool in any case
MADE_LENGTH_MAX = 4_000_000  # of the texts of a call, in characters
ANSWER_SECONDS_MAX = 3.0  # for the others: a bracket may wait 2 s for another agent's edit of the file
FAILURES_MAX = 3  # in a row, before the hook stays silent for a while
SILENT_SECONDS = 10.0
DIFF_LENGTH_MAX = 4000  # characters
COMMAND_LENGTH_MAX = 10_000  # the daemon's limit, in characters
KEY_LENGTH_MAX = 1000
STATUS_LENGTH_MAX = 10  # of an exit status in a text, in digits
AGENT_ID_LENGTH = 4  # the last characters of a sub-agent's id
REFUSALS = ("leased", "stale", "permission_denied", "path_protected", "unread")


class RefusedError(Exception):
    """A refusal by the daemon: the text for the model, and the name of the error."""

    def __init__(self, error: dict[str, Any]) -> None:
        details = error["data"]
        self.name = str(details.get("name", ""))
        data = details.get("data") or {}
        self.needs_review_socket = data.get("needs_review_socket") is True
        diff = data.get("diff")
        text = f"editd: {error['message']}"
        if isinstance(diff, str) and diff:
            text += f"\nThe changes since it was read:\n{diff[:DIFF_LENGTH_MAX]}"
        super().__init__(text)


def main() -> None:
    """Run the command `editd-hook`, and exit with 0 even after an error."""
    words = sys.argv[1:]
    if words[:1] == ["--self-test"]:
        sys.exit(self_test(os.getcwd()))
    if not words or words[0] not in NAMES:
        sys.stderr.write(f"usage: editd-hook {{{','.join(NAMES)}}} [--strict], or editd-hook --self-test\n")
        sys.exit(1)  # not 2, the status of a hook that refuses a tool
    run(words[0], sys.stdin.buffer.read(), is_strict="--strict" in words)


def run(agent: str, payload: bytes, *, is_strict: bool = False) -> None:
    """Carry out one event of the agent, and print the answer, if there is one."""
    began = time.monotonic()
    problem = ""
    try:
        answer = answer_to(agent, payload, is_strict=is_strict)
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001  # the agent must go on after any error
        problem = repr(error)
    if log := os.environ.get("EDITD_HOOK_LOG"):
        _write_log(log, f"{agent} {(time.monotonic() - began) * 1000:.1f} ms {problem}\n")


def answer_to(agent: str, payload: bytes, *, is_strict: bool = False) -> dict[str, object] | None:
    """Send the requests for the event; return the refusal in the agent's form, or None."""
    adapter = adapter_of(agent)
    if not isinstance(adapter, Adapter):
        return None
    _root_of.cache_clear()
    event = Event(adapter, decoded(payload))
    if event.moment is None or not event.session_id:
        return None
    home = workspace_root(event.folder)
    if event.moment == START:
        if home is not None:
            _begin_session(home, event)
        return None
    return _answer_of_each(event, home, is_strict=is_strict)


def _answer_of_each(event: Event, home: str | None, *, is_strict: bool) -> dict[str, object] | None:
    """Send the requests to the daemon of each workspace that the event concerns; return the first refusal.

    A daemon that does not answer does not keep the others from it. Raises its error at the end.
    """
    asked: list[str] = []
    failure: Exception | None = None
    for root in event.roots(home):
        request = event.request(root, is_strict=is_strict, is_home=root == home)
        if request is None:
            continue
        try:
            answer = _ask(root, event, *request)
        except (OSError, ValueError, RefusedError) as error:
            failure = failure or error
            if event.moment == AFTER and root != home:
                _warn_of_no_daemon(root, error)
            continue
        if answer is not None:
            _take_back(asked, event)
            return answer
        asked.append(root)
    if failure is not None:
        raise failure
    if event.moment == AFTER and event.is_in_background and asked:
        hint = "editd: run a command that goes on in the background as `editctl exec -- COMMAND`, "
        sys.stderr.write(hint + "so that its later changes are yours.\n")
    return None


def _warn_of_no_daemon(root: str, error: Exception) -> None:
    """Print that an edit in another workspace, such as a linked worktree, is not recorded."""
    if isinstance(error, FileNotFoundError | ConnectionRefusedError):
        import shlex

        sys.stderr.write(
            f"editd: this edit is not recorded, because no daemon runs for {root}. "
            f"Start one with `editctl -C {shlex.quote(root)} start`.\n"
        )


def _ask(root: str, event: Event, method: str, params: dict[str, Any]) -> dict[str, object] | None:
    """Send one request; return the refusal in the agent's form. Raises RefusedError, OSError, ValueError."""
    try:
        _tell(root, event, method, params)
    except RefusedError as refused:
        if refused.needs_review_socket:  # the edit goes on, as the edit of an unknown program
            if event.moment == BEFORE:
                sys.stderr.write(f"{refused} This call is recorded as one from outside.\n")
            raise
        if event.moment == BEFORE and refused.name in REFUSALS:
            return event.adapter.deny(event.name, str(refused))
        raise
    return None


def _take_back(roots: Sequence[str], event: Event) -> None:
    """End the brackets of a call that the daemon of another workspace has refused."""
    for root in roots:
        try:
            with DaemonLink(root, seconds=END_SECONDS_MAX) as daemon:
                daemon.introduce(event.adapter.name)
                daemon.ask("exec.end", {"session": event.session, "key": event.key})
        except (OSError, ValueError, RefusedError):
            continue  # the bracket ends with the turn


def _tell(root: str, event: Event, method: str, params: dict[str, Any]) -> None:
    """Send the request of an event, and print the warnings of its answer. Raises RefusedError and OSError."""
    is_before = event.moment in (BEFORE, ASKED)
    try:
        with DaemonLink(root, seconds=FIRST_SECONDS_MAX if is_before else END_SECONDS_MAX) as daemon:
            daemon.introduce(event.adapter.name)
            if method in ("exec.begin", "seen"):
                params |= daemon.agent_process()
            result = daemon.ask(method, params)
    except (FileNotFoundError, ConnectionRefusedError):
        raise  # no daemon runs
    except (OSError, ValueError):
        if method == "exec.end" and event.moment in (AFTER, FAILED):
            _note_missed(root, event, params)
        raise
    for warning in result.get("warnings", ()):
        sys.stderr.write(f"editd: {warning}\n")


def _note_missed(root: str, event: Event, params: dict[str, Any]) -> None:
    """Note a call whose end gets no answer in a file beside the socket, where the daemon counts it.

    A failed edit has changed nothing. A failed command may have.
    """
    if params["status"] != 0 and "made" in params:
        return
    line = json.dumps([event.adapter.name, event.session, event.key]).encode() + b"\n"
    path = paths.missed_calls_path(paths.socket_path(paths.workspace_id(root)))
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    if os.fstat(descriptor).st_size + len(line) <= paths.MISSED_BYTES_MAX:
        os.write(descriptor, line)
    os.close(descriptor)


def decoded(payload: bytes | str) -> dict[str, Any]:
    """Return the object in a payload, empty for any other value. Raises ValueError."""
    try:
        value = json.loads(payload)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value if isinstance(value, dict) else {}


def adapter_of(agent: str) -> Adapter | Plugin:
    """Import the table of an agent."""
    module = __import__(f"editd_client.agents.{agent}", fromlist=["ADAPTER"])
    adapter: Adapter | Plugin = module.ADAPTER
    return adapter


class Event:
    """One event of an agent: the values that its table finds in the payload."""

    def __init__(self, adapter: Adapter, payload: dict[str, Any]) -> None:
        self.adapter = adapter
        self.payload = payload
        self.name = str(payload.get(adapter.event, ""))
        is_foreign = self._first(adapter.foreign) is not None
        self.moment = None if is_foreign else adapter.events.get(self.name)
        self.session_id = str(self._first(adapter.session) or "")
        self.agent_id = str(self._first(adapter.agent) or "")
        folder = str(self._first(adapter.folder) or "")
        self.folder = folder if folder and _is_path(folder) else os.getcwd()
        self.tool = str(self._first(adapter.tool) or "")
        arguments = self._first(adapter.arguments)
        self.arguments: dict[str, Any] = arguments if isinstance(arguments, dict) else {}

    @property
    def session(self) -> str:
        """The session's name: from the environment, otherwise made of the agent's ids."""
        if named := os.environ.get("EDITD_SESSION"):
            return named
        sub = f"-{self.agent_id[-AGENT_ID_LENGTH:]}" if self.agent_id else ""
        return f"{self.adapter.name}-{self.session_id[-ID_LENGTH:]}{sub}"

    @property
    def key(self) -> str:
        """The bracket's name, for the call after the tool to find it."""
        call = str(self._first(self.adapter.call) or "") or self._digest(self.tool, self.arguments)
        key = f"{self.adapter.name}:{self.session_id}:{self.agent_id}:{call}"
        return key if len(key) <= KEY_LENGTH_MAX else f"{self.adapter.name}:{self._digest(key)}"

    @property
    def status(self) -> int:
        """The exit status of the tool, 0 if the agent does not tell."""
        status = self._first(self.adapter.status)
        if isinstance(status, int) and not isinstance(status, bool):
            return status
        output = self._first(self.adapter.output)
        if isinstance(output, str) and "Exit Code: " in output:
            words = output.rpartition("Exit Code: ")[2].split(None, 1)
            is_number = bool(words) and words[0].isdecimal() and len(words[0]) <= STATUS_LENGTH_MAX
            return int(words[0]) if is_number else 1
        return int(self.moment == FAILED or self._first(self.adapter.success) is False)

    @property
    def is_in_background(self) -> bool:
        return self._first(self.adapter.background) is True

    def roots(self, home: str | None) -> list[str]:
        """Return the workspaces of the event's files, otherwise the agent's `home`."""
        roots: dict[str | None, None] = {}
        if self.tool and self.moment != TURN_END:
            named = [os.path.join(self.folder, name) for name in self._named()]
            roots = dict.fromkeys(owner_of(path) for path in named if _is_path(path))
        if not roots or self.tool in self.adapter.shells:
            roots = {home: None} | roots
        return [root for root in roots if root is not None]

    def _named(self) -> list[str]:
        """Return the files that the tool's call names."""
        if self.tool in self.adapter.shells:
            command = self._argument(self.adapter.shells[self.tool])
            inner = commands.patch_folder(command)
            if inner is None:
                return self._read()
            return [os.path.join(inner, name) for name in commands.patched_paths(command)[0]]
        place = self.adapter.edits.get(self.tool)
        if place is None:
            return self._read()
        argument = self._argument(place.removeprefix(PATCH))
        if place.startswith(PATCH):
            return list(commands.patched_paths(argument)[0])
        return [argument] if argument else []

    def request(
        self, root: str, *, is_strict: bool, is_home: bool = True
    ) -> tuple[str, dict[str, Any]] | None:
        """Return the method and the parameters; None if the event concerns no file of the workspace.

        `is_home`: it is the agent's own workspace, which a command concerns.
        """
        if self.moment == TURN_END:
            return "exec.end", {"all": True, "session": self.session, "status": 0}
        if self.moment == ASKED:
            is_question = self._is_question()
            key = {"key": self.key} if self.tool else {}
            return ("exec.ask", {"session": self.session, **key}) if is_question else None
        if self.moment == DENIED:
            return "exec.end", {"session": self.session, "key": self.key}
        bracket = self._bracket(root, is_strict=is_strict)
        if bracket is not None and "paths" not in bracket and not is_home:
            return None
        if bracket is None:
            files = [{"path": _wire(one)} for one in inside(self._read(), self.folder, root)]
            is_over = self.moment == AFTER and files
            return ("seen", {"session": self.session, "files": files}) if is_over else None
        if self.moment == BEFORE:
            return "exec.begin", {"session": self.session, "key": self.key, **bracket}
        end = {"key": self.key, "status": self.status, "seen": True, "command": bracket["command"]}
        if "paths" in bracket:
            end["made"] = self._made(root)
        return "exec.end", {"session": self.session, **end}

    def _is_question(self) -> bool:
        """Whether a notification is a question about a tool."""
        question = self.adapter.question
        return question is None or self._first(question[:1]) == question[1]

    def _made(self, root: str) -> list[dict[str, Any]]:
        """Return the texts of an edit tool's call, by the paths that it changes."""
        texts: list[tuple[str, str | None, str | None]] = []
        place = self.adapter.edits.get(self.tool, "")
        if self.tool in self.adapter.shells:
            command = self._argument(self.adapter.shells[self.tool])
            folder = os.path.join(self.folder, commands.patch_folder(command) or "")
            texts = commands.patched_texts(command)
        else:
            folder, name = self.folder, self._argument(place.removeprefix(PATCH))
            if place.startswith(PATCH):
                texts = commands.patched_texts(name)
            elif self.tool in self.adapter.written:
                texts = [(name, None, self._text(self.arguments, self.adapter.written[self.tool]))]
            elif self.tool in self.adapter.replaced:
                before, after = self.adapter.replaced[self.tool]
                edits = self.arguments.get("edits")
                calls = edits if isinstance(edits, list) else [self.arguments]
                known = [one for one in calls if isinstance(one, dict) and after in one]
                texts = [(name, self._text(one, before), self._text(one, after)) for one in known]
        made = [
            {"path": _wire(one), "old": before, "new": after}
            for name, before, after in texts
            for one in inside([name], folder, root)
        ]
        return made if len(json.dumps(made)) <= MADE_LENGTH_MAX else []

    @staticmethod
    def _text(arguments: dict[str, Any], name: str) -> str:
        value = arguments.get(name)
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""

    def _bracket(self, root: str, *, is_strict: bool) -> dict[str, Any] | None:
        """Return the command and the paths of the bracket; None if the tool needs none."""
        if self.tool in self.adapter.shells:
            command = self._argument(self.adapter.shells[self.tool])
            inner = commands.patch_folder(command)
            if inner is None:
                is_harmless = not command.strip() or commands.only_reads(command)
                return None if is_harmless else {"command": _wire_text(command)}
            named, whole = commands.patched_paths(command)
            return self._edit(named, whole, os.path.join(self.folder, inner), root, is_strict=is_strict)
        place = self.adapter.edits.get(self.tool)
        if place is None:
            return None
        argument = self._argument(place.removeprefix(PATCH))
        if place.startswith(PATCH):
            named, whole = commands.patched_paths(argument)
        else:
            named = [argument] if argument else []
            whole = named if self.tool in self.adapter.whole else []
        return self._edit(named, whole, self.folder, root, is_strict=is_strict)

    def _edit(
        self, named: Sequence[str], whole: Sequence[str], folder: str, root: str, *, is_strict: bool
    ) -> dict[str, Any] | None:
        found = inside(named, folder, root)
        if not found:
            return None
        bracket = {"command": _wire_text(f"{self.tool} {' '.join(found)}"), "paths": [*map(_wire, found)]}
        overwritten = found if is_strict else inside(whole, folder, root)
        return {**bracket, "whole": [*map(_wire, overwritten)]} if overwritten else bracket

    def _read(self) -> list[str]:
        """Return the files that the tool or the command has shown whole."""
        if self.tool in self.adapter.shells:
            return commands.shown_files(self._argument(self.adapter.shells[self.tool]))
        path = self._argument(self.adapter.reads.get(self.tool, ""))
        return [path] if path else []

    def _argument(self, names: str) -> str:
        """Return the first text of these arguments; a list of words is joined, as a shell's command."""
        for name in names.split("|"):
            value = self.arguments.get(name)
            if isinstance(value, list):
                value = " ".join(map(str, value))
            if isinstance(value, str) and value:
                return value
        return ""

    def _first(self, places: Sequence[str]) -> Any:
        for place in places:
            value: Any = self.payload
            for name in place.split("."):
                if isinstance(value, list) and name.isdecimal():
                    value = value[int(name)] if int(name) < len(value) else None
                else:
                    value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                return value
        return None

    @staticmethod
    def _digest(*values: object) -> str:
        import hashlib

        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def inside(named: Sequence[str], folder: str, root: str) -> list[str]:
    """Return the paths relative to the root, links resolved; those outside of the workspace are left out.

    Of a link both count, because a tool may write its target or replace the link. A file of another workspace
    inside this one is left out.
    """
    found: dict[str, None] = {}
    for name in named:
        path = os.path.join(folder, name)
        if not _is_path(path):
            continue
        parent, last = os.path.split(path)
        for real in (os.path.join(os.path.realpath(parent), last), os.path.realpath(path)):
            relative = os.path.relpath(real, root)
            is_inside = relative != "." and relative.split("/", 1)[0] not in ("..", ".git")
            if is_inside and owner_of(real) in (root, None):
                found[relative] = None
    return list(found)


def _is_path(text: str) -> bool:
    """Whether a system call takes the text: it has no NUL, and no half of a surrogate pair."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _wire(path: str) -> object:
    """Return a path as the protocol has it: text, or the bytes that are none."""
    raw = os.fsencode(path)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(raw).decode()}


def _wire_text(text: str) -> str:
    return text[:COMMAND_LENGTH_MAX].encode("utf-8", "replace").decode()


def workspace_root(folder: str) -> str | None:
    """Return the workspace of EDITD_WORKSPACE or of the folder; None for one that editd refuses to own."""
    if named := os.environ.get("EDITD_WORKSPACE"):
        root = paths.workspace_root(named)
    else:
        here = os.path.realpath(folder)
        root = paths.serving_root(here) or here
    return None if paths.is_system_root(root) or paths.is_home(root) else root


def owner_of(path: str) -> str | None:
    """Return the workspace that serves a file; None if nothing does, or if editd refuses to own it.

    EDITD_WORKSPACE names the workspace of all files.
    """
    return _root_of(os.path.realpath(os.path.dirname(path)))


@lru_cache(1024)  # a patch names many files of few folders
def _root_of(folder: str) -> str | None:
    return None if paths.serving_root(folder) is None else workspace_root(folder)


def first_seconds(default: float = FIRST_SECONDS_MAX) -> float:
    """Return the limit of EDITD_HOOK_SECONDS for the first answer, otherwise the default."""
    try:
        return max(0.01, float(os.environ["EDITD_HOOK_SECONDS"]))
    except (KeyError, ValueError):
        return default


class DaemonLink:
    """A connection to the daemon of a workspace, by lines of JSON.

    It counts failures in a file beside the socket, so that a daemon that hangs costs little. A socket
    that does not exist or that no daemon serves is no failure: it costs nothing.

    It goes on at the reviewers' own socket if the daemon takes a request only there, and it is in reach.
    """

    def __init__(self, root: str, *, seconds: float = FIRST_SECONDS_MAX, is_test: bool = False) -> None:
        path = paths.socket_path(paths.workspace_id(root))
        self._failures = f"{path}.hook"
        self._first_seconds = ANSWER_SECONDS_MAX if is_test else first_seconds(seconds)
        if is_test:
            self._forget_failures()
        self._path = path
        self._number = 0
        self._pending = b""
        self._agent = ""
        if self._is_silent():
            raise ConnectionError("silent for a while, after several failures")
        try:
            self._stream = self._connected(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise
        except OSError:
            self._count_failure()
            raise

    def __enter__(self) -> DaemonLink:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()

    def introduce(self, agent: str) -> None:
        """Name the agent as the actor. Act in the session of the environment, if it has one."""
        self._agent = agent
        token, session = os.environ.get("EDITD_TOKEN"), os.environ.get("EDITD_SESSION")
        known = {"session": session, "token": token} if session and token else {}
        self.ask("hello", {"client": agent, **known})
        self._stream.settimeout(max(ANSWER_SECONDS_MAX, self._first_seconds))

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Return the result. Raises RefusedError for a refusal, OSError if no answer comes in time."""
        try:
            return self._answer(method, params)
        except RefusedError as refused:
            if not (refused.needs_review_socket and self._go_to_reviewers()):
                raise
        self.introduce(self._agent)
        return self._answer(method, params)

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        try:
            self._stream.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(self._line())
        except (OSError, ValueError):
            self._count_failure()
            raise
        self._forget_failures()
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["result"]

    def agent_process(self) -> dict[str, int]:
        """Return the agent's process as the `pid` of a request, or nothing if that is not known."""
        pid = self._agent_pid()
        return {} if pid is None else {"pid": pid}

    def _agent_pid(self) -> int | None:
        """Return the nearest ancestor that is no shell.

        None if the daemon has other numbers for processes, as from a container.
        """
        peer = int.from_bytes(_credentials(self._stream)[:4], sys.byteorder)
        try:
            if os.readlink("/proc/self/ns/pid") != os.readlink(f"/proc/{peer}/ns/pid"):
                return None
            pid = caller.parent_pid()
            while pid > 1:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    head, _, rest = os.fsdecode(file.read()).rpartition(") ")
                if head.partition(" (")[2] not in SHELLS:
                    return pid
                pid = int(rest.split()[1])
        except (OSError, ValueError):
            return None
        return None

    def _go_to_reviewers(self) -> bool:
        """Go on at the reviewers' own socket; return False if it is not there, as in a sandbox."""
        try:
            stream = self._connected(paths.review_socket_path(self._path))
        except OSError:
            return False
        self._stream.close()
        self._stream, self._pending = stream, b""
        return True

    def _connected(self, path: str) -> _socket.socket:
        stream = _socket.socket(fileno=caller.connect(path, self._first_seconds))
        stream.settimeout(self._first_seconds)
        uid = int.from_bytes(_credentials(stream)[4:8], sys.byteorder)
        if uid not in (0, os.geteuid()):
            raise ConnectionRefusedError("the listener belongs to another user")
        return stream

    def _line(self) -> bytes:
        while b"\n" not in self._pending:
            some = self._stream.recv(65536)
            if not some:
                raise ConnectionResetError("the daemon has closed the connection")
            self._pending += some
        line, _, self._pending = self._pending.partition(b"\n")
        return line

    def _is_silent(self) -> bool:
        try:
            state = os.lstat(self._failures)
        except OSError:
            return False
        return state.st_size >= FAILURES_MAX and abs(time.time() - state.st_mtime) < SILENT_SECONDS

    def _count_failure(self) -> None:
        """Append one byte for a failure."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self._failures, flags, 0o600)
        except OSError:
            return
        os.write(descriptor, b".")
        os.close(descriptor)

    def _forget_failures(self) -> None:
        try:
            os.unlink(self._failures)
        except OSError:
            return  # there was none


def _credentials(stream: _socket.socket) -> bytes:
    """Return the process, the user and the group of the listener, as the kernel has them."""
    return stream.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)


def self_test(folder: str) -> int:
    """Print whether the daemon of the folder's workspace answers the hook; return the exit code."""
    root = workspace_root(folder)
    try:
        if root is None:
            raise ConnectionError(f"editd does not own {folder}")
        with DaemonLink(root, is_test=True) as daemon:
            daemon.introduce("editd-hook")
    except (FileNotFoundError, ConnectionRefusedError):
        sys.stdout.write(f"no daemon runs for {root}\n")
        return 1
    except (OSError, RefusedError, ValueError) as error:
        sys.stdout.write(f"no answer for {root or folder}: {error}\n")
        return 1
    sys.stdout.write(f"the daemon of {root} answers\n")
    return 0


def _begin_session(root: str, event: Event) -> None:
    """Name the session and the process of the agent to the daemon of a git repository.

    If none answers, start one in the background, also for a repository inside that the outer one may ignore.
    """
    top = paths.top_level(os.path.realpath(event.folder)) or root
    if not os.path.lexists(os.path.join(root, paths.TOP_LEVEL)) and top == root:
        return  # a folder that happens to be the current one
    is_served = False
    try:
        with DaemonLink(root) as daemon:
            daemon.introduce(event.adapter.name)
            daemon.ask("seen", {"session": event.session, "files": [], **daemon.agent_process()})
            is_served = True
    except (FileNotFoundError, ConnectionRefusedError):
        is_served = False
    if is_served and (top == root or os.environ.get("EDITD_WORKSPACE")):
        return
    caller.start([sys.executable, "-P", "-m", "editd_client", "-C", top, "start"], os.environ)


def _write_log(path: str, line: str) -> None:
    try:
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(line)
    except OSError:
        return  # a log that cannot be written must not harm the agent


if __name__ == "__main__":
    main()
