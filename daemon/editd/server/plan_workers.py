"""The processes that do the work that a plan needs: hooks, regular expressions, and comparisons of texts.

Hooks run in a process for each trial, a few at once. Other clients are served meanwhile. `status` shows the
last failure of each hook.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import signal
import time
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.edits.comparison import decoded
from editd.engine.hooks import Hook, HookAnswers, HookJob, HookResult, requests_of
from editd.engine.regex_worker import (
    COMPARISON_BYTES_MAX,
    SECONDS,
    comparison_out_of_time,
    comparison_request,
    comparison_result,
    comparison_too_large,
    matches_of,
    out_of_time,
    request_of,
    too_large,
)
from editd.errors import InvalidRegex, Overloaded, Refused, ShuttingDown, Timeout
from editd.runs.hook_worker import TRIAL_SECONDS
from editd.runs.reach import FILES, NETWORK, PROCESSES, UNIX_SOCKETS
from editd.server.child_process import PYTHON, ChildProcess, IdleTimer
from editd.store.transaction_record import rfc3339
from editd.system.process_tree import KILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.edits.comparison import Comparison
    from editd.edits.search import Match, Search
    from editd.system.frames import Frame


log = logging.getLogger(__name__)


AT_ONCE_MAX = 4  # trials whose hooks run; more wait in a queue
HOOK_CLOSE_SECONDS = 2.0  # for a process that is no longer needed to end its own children
SPARE_SECONDS = 10.0  # beyond the hooks' own, for the other work of the process
PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ")  # of the daemon's environment, and LC_*


class HookRunner:
    """The runner of all hooks. `run` may be called any number of times at once, `close` once."""

    def __init__(self, state: str, root: str, bytes_max: int) -> None:
        """`state` is the workspace's state folder. Removes the leftovers of an earlier daemon there."""
        self._folder = os.path.join(state, "hooks")
        self._root = root
        self._bytes_max = bytes_max
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)
        self._running: set[ChildProcess] = set()
        self._closing = False
        self._runs: dict[str, int] = {}
        self._failures: dict[str, dict[str, str]] = {}
        self._unheld: dict[str, list[str]] = {}
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self, trial: HookJob) -> HookResult | Refused:
        """Run the hooks of a trial; return the formatted contents, or their refusal."""
        async with self._slots:
            if self._closing:
                return _shutting_down()
            try:
                return await self._run(trial)
            except (OSError, ValueError) as error:
                log.error("hooks cannot be run: %s", error)
                return Overloaded(f"The hooks cannot be run: {error}.", hint="Nothing was changed.")

    def status(self, hooks: Sequence[Hook]) -> list[dict[str, Any]]:
        """Describe each hook, with the number of its runs and its last failure."""
        return told(hooks, self._runs, self._failures)

    def weaker(self) -> list[str]:
        """Return a sentence for each hook whose last run was not confined as its keys say."""
        return [unheld_sentence(f"hook {name!r}", lost) for name, lost in self._unheld.items() if lost]

    async def close(self) -> None:
        """End the running processes, and the processes that they have started."""
        self._closing = True
        await asyncio.gather(*(child.close(HOOK_CLOSE_SECONDS) for child in list(self._running)))

    async def _run(self, trial: HookJob) -> HookResult | Refused:
        answers, seconds = HookAnswers(trial), _seconds(trial)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settle() -> None:
            if not ended.done():
                ended.set_result(None)

        def hear(frame: dict[str, Any]) -> None:
            answers.add_frame(frame)
            if answers.result is not None:
                settle()

        os.makedirs(self._folder, 0o700, exist_ok=True)
        scratch = os.path.join(self._folder, secrets.token_hex(8))
        child = _HookProcess([*PYTHON, "editd.runs.hook_worker"], hear, settle)
        await child.start()
        self._running.add(child)
        try:
            environment = tool_environment(self._root, scratch) | {"PYTHONSAFEPATH": "1"}
            for frame in requests_of(trial, scratch, environment, self._bytes_max):
                child.send(frame)
            async with asyncio.timeout(seconds):  # the process itself may be stopped
                await ended
        except TimeoutError:
            log.error("the process that runs the hooks is killed: it gave no answer in %g s", seconds)
            return _stuck(seconds)
        finally:
            self._running.discard(child)
            await child.close(HOOK_CLOSE_SECONDS)
            shutil.rmtree(scratch, ignore_errors=True)  # a killed process has left it
        self._note(trial, answers)
        if answers.result is None:
            return _shutting_down() if self._closing else _hooks_died()
        return answers.result

    def _note(self, trial: HookJob, answers: HookAnswers) -> None:
        for hook in trial.hooks:
            self._runs[hook.name] = self._runs.get(hook.name, 0) + 1
            self._unheld[hook.name] = answers.unheld.get(hook.name, [])
        for name, problem in answers.failures.items():
            log.warning("the hook %s: %s", name, problem)
            self._failures[name] = {"time": rfc3339(time.time_ns() // 1000), "message": problem}


def unheld_sentence(name: str, lost: Sequence[str]) -> str:
    """Return the sentence of `weaker` about a command that this system did not confine."""
    words = {
        FILES: "write to other paths than `writable`",
        NETWORK: "reach the network",
        UNIX_SOCKETS: "connect to Unix sockets",
        PROCESSES: "change the limits and priorities of other processes",
    }
    return f"The {name} could {' and '.join(words[one] for one in lost)}: this system cannot hold it."


def tool_environment(root: str, scratch: str) -> dict[str, str]:
    """Return the environment of a command; its PATH leaves out the folders of the workspace at `root`."""
    given = os.environ
    kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("LC_")}
    folders = given.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if _is_elsewhere(folder, root))
    return {**kept, "PATH": path, "TMPDIR": os.path.join(scratch, "tmp"), "NO_COLOR": "1"}


def _is_elsewhere(folder: str, root: str) -> bool:
    real = os.path.realpath(folder)
    return os.path.isabs(folder) and real != root and not real.startswith(root + "/")


class _HookProcess(ChildProcess):
    """The process that runs one trial. `settle` is also called when it is closed or dies."""

    def __init__(
        self, argv: Sequence[str], hear: Callable[[dict[str, Any]], None], settle: Callable[[], None]
    ) -> None:
        super().__init__(argv, on_frame=hear, on_death=lambda _status: settle())
        self._settle = settle

    async def close(self, seconds: float = HOOK_CLOSE_SECONDS) -> None:
        self._settle()
        if self._transport is not None:
            with suppress(ProcessLookupError):  # a stopped process cannot end its children
                self._transport.send_signal(signal.SIGCONT)
        await super().close(seconds)


def told(
    hooks: Sequence[Hook],
    runs: Mapping[str, int] = MappingProxyType({}),
    failures: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Describe the hooks as `status` shows them."""
    return [
        {
            "name": hook.name,
            "kind": hook.kind,
            "glob": [glob.text for glob in hook.globs],
            "command": list(hook.command),
            "seconds": hook.seconds,
            "on_error": hook.on_error,
            "runs": runs.get(hook.name, 0),
            "failure": failures.get(hook.name),
        }
        for hook in hooks
    ]


def _seconds(trial: HookJob) -> float:
    """Return the time limit of the process for a trial: each hook runs at most once for each file."""
    wanted = sum(hook.seconds + KILL_SECONDS for hook in trial.hooks) * len(trial.files)
    return min(wanted, TRIAL_SECONDS) + SPARE_SECONDS


def _stuck(seconds: float) -> Refused:
    return Timeout(
        f"The process that runs the hooks had not answered after {seconds:g} s.",
        hint="A hook may have stopped it. Nothing was changed; retry the edit.",
    )


def _shutting_down() -> Refused:
    return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")


def _hooks_died() -> Refused:
    return Refused("The process that runs the hooks died.", hint="Nothing was changed. See the daemon's log.")


# The warm process that runs regular expressions or comparisons, one at a time, each within its time limit.
#
# Jobs wait in a queue, and the limit runs from when a job is sent. As a rule the process stops a job by
# itself (`engine.regex_worker`). If it does not, as in libgit2, it is killed, the caller is answered at once,
# and another is started meanwhile. None of this holds up the event loop.

GRACE_SECONDS = 0.05  # for the process to report that it has stopped
START_SECONDS = 30.0  # it takes a tenth of a second, but many on a machine that is out of memory
REGEX_CLOSE_SECONDS = 1.0


class _SearchJob(Struct):
    """A search, and the matches so far."""

    search: Search
    seconds: float
    matches: list[Match] = field(default_factory=list)

    def request(self) -> Frame:
        self.matches = []  # of a process that has died
        return request_of(self.search, self.seconds)

    def take(self, answer: Frame) -> None:
        """Take one frame of the answer. Raises the process's refusal."""
        self.matches += matches_of(answer)

    @property
    def result(self) -> tuple[Match, ...]:
        return tuple(self.matches)

    def late(self) -> Refused:
        return out_of_time(self.search, self.seconds)

    def unsendable(self, error: ValueError) -> Refused:
        return too_large(f"a message that cannot be sent: {error}")

    def died(self) -> Refused:
        return InvalidRegex(
            "The process for regular expressions died on this one.",
            hint="Nothing was changed. Make the expression simpler, or replace plain text.",
            data={"position": None, "pattern": self.search.pattern[:500]},
        )


class _ComparisonJob(Struct):
    """A comparison, and its result."""

    comparison: Comparison
    seconds: float
    result: Any = None

    def request(self) -> Frame:
        return comparison_request(self.comparison, self.seconds)

    def take(self, answer: Frame) -> None:
        """Take one frame of the answer. Raises the process's refusal."""
        if "done" not in answer:
            self.result = decoded(self.comparison, comparison_result(answer))

    def late(self) -> Refused:
        return comparison_out_of_time(self.seconds)

    def unsendable(self, error: ValueError) -> Refused:
        return comparison_too_large(f"a message that cannot be sent: {error}")

    def died(self) -> Refused:
        return comparison_too_large("more memory than its process may have")


_Job = _SearchJob | _ComparisonJob


class RegexPool:
    """The jobs of any number of callers, in a process that the first of them starts."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._line = asyncio.Lock()  # it is fair: first come, first served
        self._launch: asyncio.Task[_RegexProcess | None] | None = None
        self._closing = False
        self._idle = IdleTimer(self._end_idle)

    async def find(self, search: Search) -> tuple[Match, ...] | Refused:
        """Return the matches, or a refusal: InvalidRegex, Timeout, TooLarge, Overloaded …"""
        job = _SearchJob(search, self.seconds)
        return await self._in_line(job) or job.result

    async def compare(self, comparison: Comparison) -> Any:
        """Return the result of a comparison, or a refusal: Timeout, TooLarge, Overloaded …"""
        if comparison.bytes > COMPARISON_BYTES_MAX:
            return comparison_too_large(f"more than {COMPARISON_BYTES_MAX >> 20} MiB of text")
        job = _ComparisonJob(comparison, self.seconds)
        refusal = await self._in_line(job)
        return job.result if refusal is None else refusal

    async def _in_line(self, job: _Job) -> Refused | None:
        """Carry out a job in its turn. Return its refusal, or None if it has a result."""
        async with self._line:
            self._idle.stop()
            try:
                return await self._done(job)
            finally:
                if not self._closing:
                    self._idle.restart()

    async def _done(self, job: _Job) -> Refused | None:
        if self._closing:
            return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")
        try:
            return await self._answered(job)
        except _Died:
            if self._closing:
                return job.died()
            log.warning("retrying a job: the process may have been dead before it")
        try:
            return await self._answered(job)
        except _Died:
            return job.died()

    async def _answered(self, job: _Job) -> Refused | None:
        """Run the job in a warm process; raises _Died."""
        process = await self._warm()
        if process is None:
            return Overloaded(
                "The process for regular expressions and comparisons does not start.",
                hint="Retry. See the daemon's log for the reason.",
            )
        try:
            return await self._answer(process, job)
        finally:
            if (process.is_busy or process.is_dead) and not self._closing:
                process.kill()  # Its late answer would be taken for another job's.
                self._launch = asyncio.create_task(_launched())

    async def close(self) -> None:
        """End the process, with any job in it."""
        self._closing = True
        self._idle.stop()
        await self._end_process()

    async def _end_idle(self) -> None:
        async with self._line:  # no job is under way
            await self._end_process()

    async def _end_process(self) -> None:
        if self._launch is not None:
            launch, self._launch = self._launch, None
            process = await launch
            if process is not None:
                await process.close()

    async def _warm(self) -> _RegexProcess | None:
        """Return the process, started again if it is dead; None if it does not start."""
        return await asyncio.shield(self._start())

    def _start(self) -> asyncio.Task[_RegexProcess | None]:
        known = self._launch.result() if self._launch is not None and self._launch.done() else None
        if self._launch is None or (self._launch.done() and (known is None or known.is_dead)):
            self._launch = asyncio.create_task(_launched())
        return self._launch

    async def _answer(self, process: _RegexProcess, job: _Job) -> Refused | None:
        try:
            async with asyncio.timeout(job.seconds + GRACE_SECONDS):
                await process.run(job)
        except TimeoutError:
            return job.late()
        except Refused as refusal:
            return refusal
        return None


class _Died(Exception):
    """The process ended in the middle of a job, or before it was warm."""


async def _launched() -> _RegexProcess | None:
    process = _RegexProcess()
    try:
        async with asyncio.timeout(START_SECONDS):
            await process.start()
    except (OSError, _Died) as error:  # TimeoutError is an OSError
        log.error("the process for regular expressions does not start: %r", error)
        process.kill()
        return None
    return process


class _RegexProcess:
    """One process, from its start to its death."""

    def __init__(self) -> None:
        self._child = ChildProcess(
            [*PYTHON, "editd.engine.regex_worker"], on_frame=self._heard, on_death=self._died
        )  # fmt: skip
        self._warm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer: asyncio.Future[None] | None = None
        self._job: _Job | None = None
        self.is_busy = False  # a job was sent, and has no final answer yet
        self.is_dead = False

    async def start(self) -> None:
        """Return when it is warm. Raises OSError, or _Died if it dies before."""
        await self._child.start()
        await self._warm

    async def run(self, job: _Job) -> None:
        """Have a job done, which gets the result. Raises the process's refusal, or _Died."""
        self.is_busy = True
        self._job = job
        self._answer = asyncio.get_running_loop().create_future()
        try:
            await self._child.send_in_parts(job.request())
        except ValueError as error:  # UnicodeEncodeError is one
            self.is_busy = False
            raise job.unsendable(error) from None
        except asyncio.CancelledError:
            self._answer.cancel()
            raise
        if self.is_dead:
            self._fail()
        await self._answer

    def kill(self) -> None:
        self._child.kill()

    async def close(self) -> None:
        """End it, at once if it is in a job."""
        self.is_dead = True
        if self.is_busy:
            self._fail()
            self.kill()
        await self._child.close(REGEX_CLOSE_SECONDS)

    def _heard(self, frame: Frame) -> None:
        if "ready" in frame:
            if not self._warm.done():
                self._warm.set_result(None)
            return
        if self._job is None:
            return
        try:
            self._job.take(frame)
        except Refused as refusal:
            self._settle(refusal)
        else:
            if "done" in frame:
                self._settle(None)

    def _settle(self, failure: Exception | None) -> None:
        self.is_busy = False
        if self._answer is None or self._answer.done():
            return
        if failure is None:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(failure)

    def _died(self, status: int) -> None:
        self.is_dead = True
        if self.is_busy:
            log.error("the process for regular expressions ended with status %s", status)
        self._fail()

    def _fail(self) -> None:
        if not self._warm.done():
            self._warm.set_exception(_Died())
        self._settle(_Died())
