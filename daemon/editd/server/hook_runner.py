"""The hook runner: a process for each trial, a few at once.

Other clients are served meanwhile. `status` shows the last failure of each hook.
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

from editd.engine.hook_worker import TRIAL_SECONDS
from editd.engine.hooks import Hook, HookAnswers, HookJob, HookResult, requests_of
from editd.errors import Overloaded, Refused, ShuttingDown, Timeout
from editd.server.child_process import PYTHON, ChildProcess
from editd.store.commit_message import rfc3339
from editd.system.process import KILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


log = logging.getLogger(__name__)

AT_ONCE_MAX = 4  # trials whose hooks run; more wait in a queue
CLOSE_SECONDS = 2.0  # for a process that is no longer needed to end its own children
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
        shutil.rmtree(self._folder, ignore_errors=True)

    async def run(self, trial: HookJob) -> HookResult | Refused:
        """Run the hooks of a trial; return the formatted contents, or their refusal."""
        async with self._slots:
            if self._closing:
                return _closing()
            try:
                return await self._run(trial)
            except (OSError, ValueError) as error:
                log.error("hooks cannot be run: %s", error)
                return Overloaded(f"The hooks cannot be run: {error}.", hint="Nothing was changed.")

    def status(self, hooks: Sequence[Hook]) -> list[dict[str, Any]]:
        """Describe each hook, with the number of its runs and its last failure."""
        return told(hooks, self._runs, self._failures)

    async def close(self) -> None:
        """End the running processes, and the processes that they have started."""
        self._closing = True
        await asyncio.gather(*(child.close(CLOSE_SECONDS) for child in list(self._running)))

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
        child = _Process([*PYTHON, "editd.engine.hook_worker"], hear, settle)
        await child.start()
        self._running.add(child)
        try:
            for frame in requests_of(trial, scratch, self._environment(scratch), self._bytes_max):
                child.send(frame)
            async with asyncio.timeout(seconds):  # the process itself may be stopped
                await ended
        except TimeoutError:
            log.error("the process that runs the hooks is killed: it gave no answer in %g s", seconds)
            return _stuck(seconds)
        finally:
            self._running.discard(child)
            await child.close(CLOSE_SECONDS)
            shutil.rmtree(scratch, ignore_errors=True)  # a killed process has left it
        self._note(trial, answers)
        if answers.result is None:
            return _closing() if self._closing else _died()
        return answers.result

    def _note(self, trial: HookJob, answers: HookAnswers) -> None:
        for hook in trial.hooks:
            self._runs[hook.name] = self._runs.get(hook.name, 0) + 1
        for name, problem in answers.failures.items():
            log.warning("the hook %s: %s", name, problem)
            self._failures[name] = {"time": rfc3339(time.time_ns() // 1000), "message": problem}

    def _environment(self, scratch: str) -> dict[str, str]:
        """Return a hook's environment; its PATH leaves out the workspace's folders."""
        given = os.environ
        kept = {name: value for name, value in given.items() if name in PASSED_ON or name.startswith("LC_")}
        folders = given.get("PATH", os.defpath).split(os.pathsep)
        path = os.pathsep.join(folder for folder in folders if self._is_elsewhere(folder))
        return {
            **kept, "PATH": path, "TMPDIR": os.path.join(scratch, "tmp"), "NO_COLOR": "1",
            "PYTHONSAFEPATH": "1",  # Python tools import nothing from the scratch folder
        }  # fmt: skip

    def _is_elsewhere(self, folder: str) -> bool:
        real = os.path.realpath(folder)
        return os.path.isabs(folder) and real != self._root and not real.startswith(self._root + "/")


class _Process(ChildProcess):
    """The process that runs one trial. `settle` is also called when it is closed or dies."""

    def __init__(
        self, argv: Sequence[str], hear: Callable[[dict[str, Any]], None], settle: Callable[[], None]
    ) -> None:
        super().__init__(argv, on_frame=hear, on_death=lambda _status: settle())
        self._settle = settle

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
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


def _closing() -> Refused:
    return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")


def _died() -> Refused:
    return Refused("The process that runs the hooks died.", hint="Nothing was changed. See the daemon's log.")
