"""The hook worker: a process that runs the hooks of one job in its own scratch folder, and then ends.

`python -m editd.runs.hook_worker`, framed messages on stdin and stdout (`system.frames`). The request is
a frame with the hooks and a frame for each file (`engine.hook_frames`). The answer is read by
`engine.hook_frames.HookAnswers`.

H1  A command gets no file of the workspace. Its folder is the scratch folder, its standard input is the
    planned content or empty, and it inherits no descriptor of the daemon.
H2  When a command ends or times out, all processes that it started are killed, even in another session.
H3  When stdin closes, because the daemon died or gave up, all of them are killed and the folder is removed.
H4  A command with a reach writes to the scratch folder and its `writable` paths only, and without `network`
    it has its own loopback. The answer names what this system cannot hold.
H5  The output of a command is kept up to a limit. Above a second limit, the command is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.config import placeholders
from editd.runs.command import (
    ERRORS,
    FLOOD,
    LATE,
    OUTPUT,
    Ended,
    KeptOutput,
    Printed,
    events,
    start,
)
from editd.runs.limits import FILES_AT_ONCE, HOOKS, JOB_SECONDS, PRINTED_BYTES_MAX
from editd.runs.reach import reach_of_frame
from editd.runs.scratch import remove_tree
from editd.runs.worker import serve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd.runs.reach import CommandReach
    from editd.system.frames import Frame

SHOWN_CHARACTERS = 8000  # of the output, in a refusal's data
MESSAGE_CHARACTERS = 600  # of the output, in a refusal's message


class _Refusal(Exception):
    """The edit is refused. `answer` has the reason."""

    def __init__(self, answer: Frame) -> None:
        super().__init__(answer["message"])
        self.answer = answer


class HookFile(Struct):
    """A file of the job, with its content so far."""

    path: str
    content: bytes
    is_executable: bool
    by: list[str] = field(default_factory=list)  # the hooks that changed it


class HookRun(Struct, frozen=True):
    """The result of a command: its exit status, or the problem if it has none."""

    status: int | None
    output: bytes = b""
    errors: bytes = b""
    problem: str = ""
    is_late: bool = False


class HookProcess:
    """The hooks of one job, run one after another."""

    def __init__(self, request: Frame, files: Sequence[Frame]) -> None:
        self._hooks: list[dict[str, Any]] = request["hooks"]
        self._environment: dict[str, str] = request["environment"]
        self._bytes_max: int = request["bytes_max"]
        self._folder: str = request["folder"]
        self._tree = os.path.join(self._folder, "tree")
        self._until = time.monotonic() + JOB_SECONDS
        all_files = [HookFile(frame["path"], frame["content"], frame["executable"]) for frame in files]
        self._reach: CommandReach | None = None  # of the hook that runs
        self._unheld: list[str] = []
        self._files, self._beside = all_files[: request["files"]], all_files[request["files"] :]

    def answers(self) -> Iterator[Frame]:
        """Run the hooks. Yield the frames of the answer."""
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
        """Run one hook on all of its files. Yield warnings."""
        self._reach = reach_of_frame(hook["reach"])
        self._unheld = [] if self._reach is None else self._reach.unheld()
        if self._unheld:
            yield {"of": hook["name"], "unheld": self._unheld}
        files = [self._files[number] for number in hook["files"]]
        command: list[str] = hook["command"]
        has_files = placeholders.is_on_files(command)
        size = FILES_AT_ONCE if "{files}" in command else 1
        for first in range(0, len(files), size):
            some = files[first : first + size]
            before = [file.content for file in some]
            if problem := _problem_of_names(command, some):
                yield self._handle_failure(hook, HookRun(None), some, problem)
                continue
            try:
                os.makedirs(os.path.join(self._folder, "tmp"), 0o700, exist_ok=True)
                ran = self._on_files(hook, some) if has_files else self._on_input(hook, some[0])
            except OSError as error:  # such as a path that is too long, or a full disk
                ran = HookRun(None, problem=f"its scratch folder cannot be used: {error.strerror}")
            problem = self._problem(hook, ran, some, before)
            if problem:
                for file, content in zip(some, before, strict=True):
                    file.content = content  # discard partial changes of the formatter
                yield self._handle_failure(hook, ran, some, problem)
                continue
            for file, content in zip(some, before, strict=True):
                if file.content != content:
                    file.by.append(hook["name"])

    def _on_input(self, hook: dict[str, Any], file: HookFile) -> HookRun:
        """Run a command with the content as standard input. A formatter's output becomes the content."""
        name = os.path.join(self._folder, "input")
        with open(name, "wb") as target:
            target.write(file.content)
        argv = placeholders.fill(hook["command"], {"{path}": [_argument(file.path)]})
        is_format = hook["kind"] == "format"
        self._lay_out(self._beside)
        os.makedirs(os.path.dirname(os.path.join(self._tree, file.path)), 0o700, exist_ok=True)
        with open(name, "rb") as source:
            ran = self._command(hook, argv, source, self._bytes_max if is_format else None)
        if is_format and ran.status == 0:
            file.content = ran.output
        return ran

    def _on_files(self, hook: dict[str, Any], files: list[HookFile]) -> HookRun:
        """Run a command on files in the scratch folder, where a formatter changes them."""
        self._lay_out([*self._beside, *files])
        names = [_argument(file.path) for file in files]
        argv = placeholders.fill(hook["command"], {"{file}": names[:1], "{files}": names})
        ran = self._command(hook, argv, None, None)
        if hook["kind"] == "format" and ran.status == 0:
            for file in files:
                content = self._read(file)
                if content is None:
                    problem = f"afterwards, {file.path} is no regular file of at most {self._bytes_max} bytes"
                    return HookRun(None, ran.output, ran.errors, problem)
                file.content = content
        return ran

    def _problem(
        self, hook: dict[str, Any], ran: HookRun, files: Sequence[HookFile], before: Sequence[bytes]
    ) -> str:
        """Return the problem with a run, or an empty text. Raises _Refusal if a check fails."""
        if ran.status is None:
            return ran.problem
        if ran.status < 0:
            return f"it was killed by {_signal_name(-ran.status)}"
        if ran.status and hook["kind"] == "check":
            output = self._shown_output(ran)
            raise _Refusal(
                {
                    "refused": "rejected",
                    "message": f"{hook['name']} refused {_names(files)} (exit status {ran.status}): "
                    f"{_short(output)}",
                    "hint": "Nothing was changed. Fix the reported problems, and send the edit again.",
                    "data": _data(hook, ran, files, output),
                    "hook": hook["name"],
                    "problem": f"refused {_names(files)}",
                }
            )
        if ran.status:
            return f"it ended with exit status {ran.status}"
        emptied = [file for file, content in zip(files, before, strict=True) if content and not file.content]
        return f"it made {emptied[0].path} empty" if emptied else ""

    def _handle_failure(
        self, hook: dict[str, Any], ran: HookRun, files: Sequence[HookFile], problem: str
    ) -> Frame:
        """Return the warning if the edit continues without this hook. Raises _Refusal otherwise."""
        output = self._shown_output(ran)
        message = f"{hook['name']} failed on {_names(files)}: {problem}."
        # Only the sender gets the output: it may have the files' contents, which no log or status is to have.
        failure = {"hook": hook["name"], "problem": message}
        message += f" {_short(output)}" if output else ""
        if hook["on_error"] == "skip":
            return {**failure, "warning": f"{message} It was left out."}
        raise _Refusal(
            {
                **failure,
                "refused": "timeout" if ran.is_late else "rejected",
                "message": message,
                "hint": "Nothing was changed. Fix the hook, or change its `on_error` or `seconds` in the "
                "configuration. `editctl hooks` shows it.",
                "data": _data(hook, ran, files, output),
            }
        )

    def _shown_output(self, ran: HookRun) -> str:
        """Return the output of a command, errors first, with paths relative to the workspace."""
        kept = (part[: HOOKS.kept_bytes] for part in (ran.errors, ran.output))
        text = b"\n".join(part.strip() for part in kept if part)
        shown = text.decode("utf-8", "replace").replace(self._tree + "/", "").replace(self._tree, ".")
        return shown.strip()[:SHOWN_CHARACTERS]

    def _lay_out(self, files: Sequence[HookFile]) -> None:
        """Create an empty folder for a command and write the files into it. The last one of a path counts."""
        if os.path.lexists(self._tree):
            remove_tree(self._tree)
        os.mkdir(self._tree, 0o700)
        for file in {file.path: file for file in files}.values():
            name = os.path.join(self._tree, file.path)
            os.makedirs(os.path.dirname(name), 0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(name, flags, 0o700 if file.is_executable else 0o600), "wb") as target:
                target.write(file.content)

    def _read(self, file: HookFile) -> bytes | None:
        """Read a file after a command. Return None if it is too large or not a regular file."""
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
        """Run a command to its end. `content_max` is set if its output is content, which must be complete."""
        argv[0] = os.path.expanduser(argv[0])
        environment = {**self._environment, "EDITD_HOOK": hook["name"]}
        try:
            process = start(
                argv, self._tree, environment, self._confine,
                source=subprocess.DEVNULL if source is None else source,
            )  # fmt: skip
        except OSError as error:
            return HookRun(None, problem=f"{argv[0]} cannot be run: {error.strerror}")
        except subprocess.SubprocessError:
            return HookRun(None, problem=f"{argv[0]} cannot be confined to `writable` and `network`")
        kept_max = HOOKS.kept_bytes if content_max is None else content_max
        kept = {OUTPUT: KeptOutput(kept_max), ERRORS: KeptOutput(HOOKS.kept_bytes)}
        until = min(time.monotonic() + hook["seconds"], self._until)
        limit, status = "", 0
        for event in events(process, until, output_bytes_max=max(PRINTED_BYTES_MAX, kept_max)):
            match event:
                case Printed(stream, text):
                    kept[stream].add(text)
                case Ended(status, limit):
                    pass
        problem = ""
        if limit == LATE:
            problem = f"it was still running after {hook['seconds']:g} s"
        elif limit == FLOOD:
            problem = f"it printed more than {PRINTED_BYTES_MAX >> 20} MiB"
        elif content_max is not None and kept[OUTPUT].count > content_max:
            problem = f"it printed more than {content_max} bytes"
        output, errors = (bytes(kept[stream].kept) for stream in (OUTPUT, ERRORS))
        return HookRun(None if problem else status, output, errors, problem, limit == LATE)

    def _confine(self) -> None:
        """Confine the process that becomes a command."""
        if self._reach is not None:
            self._reach.enter([self._folder], self._unheld)


def _problem_of_names(command: Sequence[str], files: Sequence[HookFile]) -> str:
    """Return the problem with a name that the command would get, or an empty text."""
    if not any(name in argument for argument in command for name in placeholders.PLACEHOLDERS):
        return ""
    return next((problem for file in files if (problem := placeholders.problem_of_name(file.path))), "")


def _argument(path: str) -> str:
    """Return a path as an argument that no program takes for an option."""
    return f"./{path}" if path.startswith("-") else path


def _names(files: Sequence[HookFile]) -> str:
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return files[0].path + more


def _short(output: str) -> str:
    return output if len(output) <= MESSAGE_CHARACTERS else output[: MESSAGE_CHARACTERS - 1] + "…"


def _data(hook: Mapping[str, Any], ran: HookRun, files: Sequence[HookFile], output: str) -> dict[str, Any]:
    return {
        "hook": hook["name"],
        "kind": hook["kind"],
        "exit": ran.status,
        "output": output,
        "files": [file.path for file in files],
    }


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def main() -> None:
    """Serve one request. End at once if stdin closes (H3)."""
    serve(
        lambda request: request["files"] + request["beside"],
        lambda request, files: HookProcess(request, files).answers(),
        remove_tree,
    )


if __name__ == "__main__":
    main()
