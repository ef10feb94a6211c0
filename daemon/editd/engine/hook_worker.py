"""The process that runs the hooks of one trial, in a scratch folder of its own, and then ends.

`python -m editd.engine.hook_worker`, framed messages on stdin and stdout (`system.frames`): a frame with the
hooks, one for each file (`engine.hooks.requests_of`), and back what came of it (`engine.hooks.Answers`).

H1  A command never has a file of the workspace: its folder is the scratch folder, its standard input the
    planned content or nothing, and of the daemon's descriptors it has none.
H2  When a command has ended, or its time has, all that it has started ends too, whatever session it is in.
H3  When stdin closes, be it by the daemon's death, all of that ends at once, and the folder is removed.
H4  What it prints is kept up to a limit, and read no further than another.
"""

from __future__ import annotations

import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.system.frames import read_frame, write_frame
from editd.system.process_tree import die_with_parent, kill_descendants, set_subreaper

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.system.frames import Frame

LOOK_SECONDS = 0.01  # until a command is looked at again that says nothing
PRINTED_BYTES_MAX = 64 * 1024 * 1024  # on one stream, beside a formatter's content; then it is killed
TRIAL_SECONDS = 600.0  # for all of it
KEPT_BYTES = 64 * 1024  # of what is not content
SHOWN_CHARACTERS = 8000  # of it in a refusal
TOLD_CHARACTERS = 600  # of it in the refusal's message
WRITTEN_BYTES_MAX = 1024 * 1024 * 1024  # to one file in the scratch folder
FILES_AT_ONCE = 500  # for `{files}`: an argument list has a limit
PARENT = 0  # stdin, where the daemon would close or die


class _Abandoned(Exception):
    """Nobody waits for the answer any more."""


class _Refusal(Exception):
    """The edit is refused; `answer` says why."""

    def __init__(self, answer: Frame) -> None:
        super().__init__(answer["message"])
        self.answer = answer


class HookFile(Struct):
    path: str
    content: bytes
    is_executable: bool
    by: list[str] = field(default_factory=list)  # the hooks that have changed it


class HookRun(Struct, frozen=True):
    """How a command ended: its exit status where it came to one, else what went wrong."""

    status: int | None
    output: bytes = b""
    errors: bytes = b""
    problem: str = ""
    is_late: bool = False


class HookProcess:
    """Where the hooks of one trial run, one after the other."""

    def __init__(self, request: Frame, files: Sequence[Frame]) -> None:
        self._hooks: list[dict[str, Any]] = request["hooks"]
        self._environment: dict[str, str] = request["environment"]
        self._bytes_max: int = request["bytes_max"]
        self._folder: str = request["folder"]
        self._tree = os.path.join(self._folder, "tree")
        self._until = time.monotonic() + TRIAL_SECONDS
        given = [HookFile(frame["path"], frame["content"], frame["executable"]) for frame in files]
        self._files, self._beside = given[: request["files"]], given[request["files"] :]

    def answers(self) -> Iterator[Frame]:
        """Run them; yield the frames of the answer."""
        try:
            for hook in self._hooks:
                yield from self._run(hook)
        except _Refusal as refusal:
            yield refusal.answer
            return
        for number, file in enumerate(self._files):
            if file.by:
                yield {"file": number, "content": file.content, "by": file.by}
        yield {"done": True}

    def _run(self, hook: dict[str, Any]) -> Iterator[Frame]:
        """One hook, on all of its files."""
        files = [self._files[number] for number in hook["files"]]
        command: list[str] = hook["command"]
        is_on_files = "{files}" in command or any("{file}" in part for part in command)
        size = FILES_AT_ONCE if "{files}" in command else 1
        for start in range(0, len(files), size):
            some = files[start : start + size]
            before = [file.content for file in some]
            try:
                os.makedirs(os.path.join(self._folder, "tmp"), 0o700, exist_ok=True)
                ran = self._on_files(hook, some) if is_on_files else self._on_input(hook, some[0])
            except OSError as error:  # a path too long for it, or a disk that is full
                ran = HookRun(None, problem=f"its scratch folder cannot be used: {error.strerror}")
            problem = self._problem(hook, ran, some, before)
            if problem:
                for file, content in zip(some, before, strict=True):
                    file.content = content  # what a formatter has half done is not taken
                yield self._failed(hook, ran, some, problem)
                continue
            for file, content in zip(some, before, strict=True):
                if file.content != content:
                    file.by.append(hook["name"])

    def _on_input(self, hook: dict[str, Any], file: HookFile) -> HookRun:
        """The content on standard input; a formatter's output is the new one."""
        name = os.path.join(self._folder, "input")
        with open(name, "wb") as target:
            target.write(file.content)
        argv = [part.replace("{path}", _argument(file.path)) for part in hook["command"]]
        is_format = hook["kind"] == "format"
        self._lay_out(self._beside)
        os.makedirs(os.path.dirname(os.path.join(self._tree, file.path)), 0o700, exist_ok=True)
        with open(name, "rb") as source:
            ran = self._command(hook, argv, source, self._bytes_max if is_format else None)
        if is_format and ran.status == 0:
            file.content = ran.output
        return ran

    def _on_files(self, hook: dict[str, Any], files: list[HookFile]) -> HookRun:
        """The files in the scratch folder; a formatter changes them there."""
        self._lay_out([*self._beside, *files])
        names = [_argument(file.path) for file in files]
        argv: list[str] = []
        for part in hook["command"]:
            argv += names if part == "{files}" else [part.replace("{file}", names[0])]
        ran = self._command(hook, argv, None, None)
        if hook["kind"] == "format" and ran.status == 0:
            for file in files:
                content = self._read(file)
                if content is None:
                    problem = f"it has left {file.path} no plain file of at most {self._bytes_max} bytes"
                    return HookRun(None, ran.output, ran.errors, problem)
                file.content = content
        return ran

    def _problem(
        self, hook: dict[str, Any], ran: HookRun, files: Sequence[HookFile], before: Sequence[bytes]
    ) -> str:
        """What is wrong with how it went; raises _Refusal where a check says no."""
        if ran.status is None:
            return ran.problem
        if ran.status < 0:
            return f"it was killed by {_signal_name(-ran.status)}"
        if ran.status and hook["kind"] == "check":
            said = self._said(ran)
            raise _Refusal(
                {
                    "refused": "rejected",
                    "message": f"{hook['name']} refused {_names(files)} (exit status {ran.status}): "
                    f"{_short(said)}",
                    "hint": "Nothing was changed. Put right what it complains of, and send the edit again.",
                    "data": _data(hook, ran, files, said),
                    "hook": hook["name"],
                    "problem": f"refused {_names(files)}",
                }
            )
        if ran.status:
            return f"it ended with exit status {ran.status}"
        emptied = [file for file, content in zip(files, before, strict=True) if content and not file.content]
        return f"it made nothing of {emptied[0].path}, which is not empty" if emptied else ""

    def _failed(self, hook: dict[str, Any], ran: HookRun, files: Sequence[HookFile], problem: str) -> Frame:
        """The warning, where the edit goes on without this hook; else raises _Refusal."""
        said = self._said(ran)
        told = f"{hook['name']} failed on {_names(files)}: {problem}." + (f" {_short(said)}" if said else "")
        known = {"hook": hook["name"], "problem": told}
        if hook["on_error"] == "skip":
            return {**known, "warning": f"{told} It was left out."}
        raise _Refusal(
            {
                **known,
                "refused": "timeout" if ran.is_late else "rejected",
                "message": told,
                "hint": "Nothing was changed. In the configuration, the hook's `on_error` and `seconds` say "
                "what becomes of an edit then; `editctl hooks` shows it.",
                "data": _data(hook, ran, files, said),
            }
        )

    def _said(self, ran: HookRun) -> str:
        """What it printed, errors first, with the paths as the workspace has them."""
        text = b"\n".join(part.strip() for part in (ran.errors[:KEPT_BYTES], ran.output[:KEPT_BYTES]) if part)
        shown = text.decode("utf-8", "replace").replace(self._tree + "/", "").replace(self._tree, ".")
        return shown.strip()[:SHOWN_CHARACTERS]

    def _lay_out(self, files: Sequence[HookFile]) -> None:
        """Make the folder that a command runs in anew, with these files; of one path the last counts."""
        if os.path.lexists(self._tree):
            shutil.rmtree(self._tree)
        os.mkdir(self._tree, 0o700)
        for file in {file.path: file for file in files}.values():
            name = os.path.join(self._tree, file.path)
            os.makedirs(os.path.dirname(name), 0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(name, flags, 0o700 if file.is_executable else 0o600), "wb") as target:
                target.write(file.content)

    def _read(self, file: HookFile) -> bytes | None:
        """What a command has made of a file; None where it is no plain file in its place, or too large."""
        name = os.path.join(self._tree, file.path)
        if os.path.realpath(name) != os.path.join(os.path.realpath(self._tree), file.path):
            return None
        if not os.path.isfile(name) or os.path.getsize(name) > self._bytes_max:
            return None
        with open(name, "rb") as source:
            return source.read()

    # ── one command ──

    def _command(
        self, hook: dict[str, Any], argv: list[str], source: IO[bytes] | None, content_max: int | None
    ) -> HookRun:
        """Run it to its end; `content_max` where its output is content, which is to be had whole."""
        argv[0] = os.path.expanduser(argv[0])
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL if source is None else source,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self._tree,
                env={**self._environment, "EDITD_HOOK": hook["name"]}, start_new_session=True,
                preexec_fn=die_with_parent,  # there is but one thread
            )  # fmt: skip
        except OSError as error:
            return HookRun(None, problem=f"{argv[0]} cannot be run: {error.strerror}")
        assert process.stdout is not None
        assert process.stderr is not None
        output = _Stream(process.stdout, KEPT_BYTES if content_max is None else content_max)
        errors = _Stream(process.stderr, KEPT_BYTES)
        late = False
        try:
            late = _attend(process, (output, errors), min(time.monotonic() + hook["seconds"], self._until))
        finally:
            _end(process)  # H2
            output.finish()
            errors.finish()
        problem = ""
        if late:
            problem = f"it had not ended after {hook['seconds']:g} s"
        elif output.is_flood or errors.is_flood:
            problem = f"it printed more than {PRINTED_BYTES_MAX >> 20} MiB"
        elif content_max is not None and output.count > content_max:
            problem = f"it printed more than {content_max} bytes"
        status = None if problem else process.returncode
        return HookRun(status, bytes(output.kept), bytes(errors.kept), problem, late)


class _Stream:
    """What a command prints on one of its streams."""

    def __init__(self, pipe: IO[bytes], kept_max: int) -> None:
        self.pipe = pipe
        self.kept = bytearray()
        self.count = 0
        self._kept_max = kept_max
        os.set_blocking(pipe.fileno(), False)

    @property
    def is_flood(self) -> bool:
        return self.count > max(PRINTED_BYTES_MAX, self._kept_max)

    def take(self) -> bool:
        """Take what is there; False at the end."""
        try:
            said = os.read(self.pipe.fileno(), 1024 * 1024)
        except BlockingIOError:
            return True
        self.count += len(said)
        self.kept += said[: max(0, self._kept_max - len(self.kept))]
        return bool(said)

    def finish(self) -> None:
        """Take what was printed before the end; whoever has the other end is dead by now."""
        until = time.monotonic() + 1.0
        while not self.pipe.closed and not self.is_flood and time.monotonic() < until:
            before = self.count
            if not self.take() or self.count == before:
                break
        self.pipe.close()


def _attend(process: subprocess.Popen[bytes], streams: Sequence[_Stream], until: float) -> bool:
    """Read until it has ended or prints too much; True where it is late. Raises _Abandoned."""
    with selectors.DefaultSelector() as selector:
        selector.register(PARENT, selectors.EVENT_READ)
        for one in streams:
            selector.register(one.pipe, selectors.EVENT_READ, one)
        while process.poll() is None:
            if time.monotonic() >= until:
                return True
            for key, _ in selector.select(LOOK_SECONDS):
                if key.fd == PARENT:
                    raise _Abandoned
                stream: _Stream = key.data
                if stream.is_flood:
                    return False
                if not stream.take():
                    selector.unregister(stream.pipe)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.poll()  # the group is empty: all have ended, or have left it
    process.wait()
    kill_descendants()


def _argument(path: str) -> str:
    """A path as an argument that is no option, whatever a file is called."""
    return f"./{path}" if path.startswith("-") else path


def _names(files: Sequence[HookFile]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return files[0].path + more


def _short(said: str) -> str:
    return said if len(said) <= TOLD_CHARACTERS else said[: TOLD_CHARACTERS - 1] + "…"


def _data(hook: Mapping[str, Any], ran: HookRun, files: Sequence[HookFile], said: str) -> dict[str, Any]:
    return {
        "hook": hook["name"],
        "kind": hook["kind"],
        "exit": ran.status,
        "output": said,
        "files": [file.path for file in files],
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> None:
    """Serve one request; end at once where stdin closes."""
    set_subreaper()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # where one is killed, that is no accident
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    written = WRITTEN_BYTES_MAX if most == resource.RLIM_INFINITY else min(most, WRITTEN_BYTES_MAX)
    resource.setrlimit(resource.RLIMIT_FSIZE, (written, most))
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    files: list[Frame] = []
    for _ in range(request["files"] + request["beside"]):
        frame = read_frame(sys.stdin.buffer)
        if frame is None:
            return
        files.append(frame)
    try:
        for answer in HookProcess(request, files).answers():
            write_frame(sys.stdout.buffer, answer)
    except (BrokenPipeError, _Abandoned):  # H3
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    finally:
        kill_descendants()
        shutil.rmtree(request["folder"], ignore_errors=True)


if __name__ == "__main__":
    main()
