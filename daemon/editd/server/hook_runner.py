"""The runs of hooks: each job in a separate process, a few at once.

Other clients are served meanwhile. `status` shows the last failure of each hook.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from editd.engine.hook_frames import HookAnswers, requests_of
from editd.errors import Overloaded, Refused, ShuttingDown, Timeout
from editd.runs.environment import tool_environment
from editd.runs.limits import HOOKS, JOB_SECONDS
from editd.server.child_process import PYTHON
from editd.server.command_workers import CommandWorkers
from editd.store.transaction_record import rfc3339
from editd.system.process_tree import KILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editd.engine.hooks import Hook, HookJob, HookResult
    from editd.system.frames import Frame

log = logging.getLogger(__name__)

SPARE_SECONDS = 10.0  # beyond the hooks' own, for the other work of the process


class HookRunner:
    """The runner of all hooks. `run` may be called any number of times at once, `close` once."""

    def __init__(self, state: str, root: str, bytes_max: int) -> None:
        """`state` is the workspace's state folder. Removes the leftovers of an earlier daemon there."""
        self._workers = CommandWorkers(
            [*PYTHON, "editd.runs.hook_worker"], os.path.join(state, "hooks"), nice=HOOKS.nice
        )
        self._root = root
        self._bytes_max = bytes_max
        self._slots = asyncio.Semaphore(HOOKS.at_once)
        self._closing = False
        self._runs: dict[str, int] = {}
        self._failures: dict[str, dict[str, str]] = {}

    async def run(self, job: HookJob) -> HookResult | Refused:
        """Run the hooks of a job; return the formatted contents, or their refusal."""
        async with self._slots:
            if self._closing:
                return _shutting_down()
            try:
                return await self._run(job)
            except (OSError, ValueError) as error:
                log.error("hooks cannot be run: %s", error)
                return Overloaded(f"The hooks cannot be run: {error}.", hint="Nothing was changed.")

    def status(self, hooks: Sequence[Hook]) -> list[dict[str, Any]]:
        """Describe each hook, with the number of its runs and its last failure."""
        return describe(hooks, self._runs, self._failures)

    def weaker(self) -> list[str]:
        """Return a sentence for each hook whose last run was not confined as its keys say."""
        return self._workers.weaker("hook")

    async def close(self) -> None:
        """End the running processes, and the processes that they have started."""
        self._closing = True
        await self._workers.close()

    async def _run(self, job: HookJob) -> HookResult | Refused:
        answers, seconds = HookAnswers(job), _seconds(job)

        def request(scratch: str) -> list[Frame]:
            environment = tool_environment(self._root, scratch) | {"PYTHONSAFEPATH": "1"}
            return requests_of(job, scratch, environment, self._bytes_max)

        def take(frame: Frame) -> bool:
            answers.add_frame(frame)
            return answers.result is not None

        try:
            await self._workers.run(request, take, seconds)
        except TimeoutError:
            log.error("the process that runs the hooks is killed: it gave no answer in %g s", seconds)
            return _stuck(seconds)
        self._note(job, answers)
        if answers.result is None:
            return _shutting_down() if self._closing else _hooks_died()
        return answers.result

    def _note(self, job: HookJob, answers: HookAnswers) -> None:
        for hook in job.hooks:
            self._runs[hook.name] = self._runs.get(hook.name, 0) + 1
            self._workers.note_unheld(hook.name, answers.unheld.get(hook.name, []))
        for name, problem in answers.failures.items():
            log.warning("the hook %s: %s", name, problem)
            self._failures[name] = {"time": rfc3339(time.time_ns() // 1000), "message": problem}


def describe(
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


def _seconds(job: HookJob) -> float:
    """Return the time limit of the process for a job: each hook runs at most once for each file."""
    wanted = sum(hook.seconds + KILL_SECONDS for hook in job.hooks) * len(job.files)
    return min(wanted, JOB_SECONDS) + SPARE_SECONDS


def _stuck(seconds: float) -> Refused:
    return Timeout(
        f"The process that runs the hooks had not answered after {seconds:g} s.",
        hint="A hook may have stopped it. Nothing was changed; retry the edit.",
    )


def _shutting_down() -> Refused:
    return ShuttingDown("The daemon is shutting down.", hint="Nothing was changed.")


def _hooks_died() -> Refused:
    return Refused("The process that runs the hooks died.", hint="Nothing was changed. See the daemon's log.")
