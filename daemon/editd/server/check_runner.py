"""The runs of `[[review.check]]`: each on each open proposal, two at a time, in separate processes.

A change of a proposal, of a file that it changes, or of the configuration calls `look_at`. A look finds the
checks that have no result on the present view, and ends the runs on an earlier one. If all checks that a
proposal waits for have passed, the rules are asked again, and it lands.

A daemon that ends, ends the runs (`runs.check_worker`). The next one finds that their results are missing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from functools import partial
from typing import TYPE_CHECKING

from editd.errors import Conflict, Decided, PermissionDenied, Refused
from editd.review.checks import passed
from editd.runs.check_worker import requests_of
from editd.runs.command import NOT_RUN
from editd.runs.environment import tool_environment
from editd.runs.limits import CHECKS
from editd.server.check_runs import BegunCheck, CheckJob
from editd.server.child_process import PYTHON
from editd.server.command_workers import CommandWorkers
from editd.system.process_tree import KILL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.review.checks import ReviewCheck
    from editd.server.check_runs import CheckRuns, Key
    from editd.server.engine_queue import EngineQueue
    from editd.server.methods.proposals import ProposalMethods
    from editd.system.frames import Frame

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0  # after a landing that was refused for a time
LOOK_SECONDS = 0.25  # changes within this time are looked at together
COPY_SECONDS = 120.0  # beyond the check's own time, to copy a workspace where no overlay is possible


class CheckRunner:
    """All runs of a workspace's checks. Used by the loop's thread."""

    def __init__(
        self, state: str, root: str, queue: EngineQueue, proposals: ProposalMethods, runs: CheckRuns
    ) -> None:
        """`state` is the workspace's state folder. Removes the leftovers of an earlier daemon there."""
        self._workers = CommandWorkers(
            [*PYTHON, "editd.runs.check_worker"], os.path.join(state, "checks"), nice=CHECKS.nice
        )
        self._root = root
        self._queue = queue
        self._proposals = proposals
        self._checks: tuple[ReviewCheck, ...] = ()
        self._unseen: set[int] = set()  # proposals to look at
        self._looks: asyncio.Task[None] | None = None
        self._pending, self._runs = runs.pending, runs.begun
        self._is_closing = False
        proposals.on_moved.append(self.look_at)

    def weaker(self) -> list[str]:
        """Return a sentence for each check whose last run was not confined as its keys say."""
        return self._workers.weaker("check")

    def configure(self, checks: Sequence[ReviewCheck]) -> None:
        """Use these checks from now on."""
        if not self._checks and not checks:
            return
        self._checks = tuple(checks)
        for number in self._proposals.open_numbers():
            self.look_at(number)

    def look_at(self, number: int) -> None:
        """See soon which checks a proposal needs now. Costs nothing without a configured check."""
        if self._is_closing or not (self._checks or self._runs):
            return
        self._unseen.add(number)
        if self._looks is None:
            self._looks = asyncio.get_running_loop().create_task(self._look_until_done())

    async def close(self) -> None:
        """End all runs, with all processes that they have started."""
        self._is_closing = True
        self._pending.clear()
        tasks = [run.task for run in self._runs.values()]
        if self._looks is not None:
            tasks.append(self._looks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ── looking ──

    async def _look_until_done(self) -> None:
        try:
            while self._unseen and not self._is_closing:
                await asyncio.sleep(LOOK_SECONDS)
                numbers, self._unseen = sorted(self._unseen), set()
                for number in numbers:
                    await self._look(number)
        finally:
            self._looks = None

    async def _look(self, number: int) -> None:
        try:
            names = await self._queue.run(partial(self._find_work, number))
            self._begin_runs()
            if names:
                await self._proposals.land_by_rule(number, names)
        except (PermissionDenied, Decided, Conflict) as refusal:
            log.info("proposal %s waits for a reviewer: %s", number, refusal.text())
        except Refused as refusal:  # such as a lease, a full disk, or a view that has moved
            log.info("proposal %s does not land yet: %s", number, refusal.text())
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self.look_at, number)
        except Exception:  # our bug: the other proposals are still looked at
            log.exception("the checks of proposal %s failed", number)

    def _find_work(self, number: int) -> frozenset[str]:
        """Note the checks that a proposal needs, and end the other runs. Return the passed checks.

        Returns no checks if none lands the proposal, or if it has to wait for other checks.
        """
        known = self._proposals.for_checks(number)
        wanted: dict[str, ReviewCheck] = {}
        names = frozenset[str]()
        if known is not None:
            proposal, shown, results = known
            done, names = passed(self._checks, results, shown.token)
            wanted = {
                check.name: check
                for check in self._checks
                if check.name not in done and check.is_for(proposal, shown.paths)
            }
            if not proposal.lands_after or not names.issuperset(proposal.lands_after):
                names = frozenset()
        for key in [key for key in (*self._pending, *self._runs) if key[0] == number]:
            check = wanted.get(key[1])
            if check is None:
                self._pending.pop(key, None)
            run = self._runs.get(key)
            if run is None or run.job is None:  # it has yet to take the view
                continue
            if known is not None and check == run.job.check and run.job.view == known[1].token:
                wanted.pop(key[1], None)
            else:
                run.task.get_loop().call_soon_threadsafe(run.task.cancel)  # this may be the engine's thread
        self._pending |= dict.fromkeys((number, name) for name in wanted)
        return names

    # ── running ──

    def _begin_runs(self) -> None:
        for key in list(self._pending):
            if self._is_closing or len(self._runs) >= CHECKS.at_once:
                return
            if key not in self._runs:  # otherwise the run on the earlier view has yet to end
                del self._pending[key]
                self._runs[key] = BegunCheck(asyncio.get_running_loop().create_task(self._run(key)))

    async def _run(self, key: Key) -> None:
        try:
            job = await self._queue.run(partial(self._job_of, key))
            if job is None:
                return
            run = self._runs[key]
            run.job, run.began = job, time.monotonic()
            answer = await self._answer(job)
            await self._queue.run(partial(self._note, job, answer))
        except Refused as refusal:
            log.info("the check %s on proposal %s: %s", key[1], key[0], refusal.text())
        except Exception:  # our bug, or no room for the scratch folder
            log.exception("the check %s on proposal %s failed", key[1], key[0])
        finally:
            del self._runs[key]
            self._begin_runs()

    def _job_of(self, key: Key) -> CheckJob | None:
        """Return the check with the files of the present view; None if it is no longer wanted."""
        known = self._proposals.for_checks(key[0])
        check = next((one for one in self._checks if one.name == key[1]), None)
        if known is None or check is None:
            return None
        _, shown, results = known
        if check.name in passed([check], results, shown.token)[0]:
            return None
        changes = self._proposals.pending(key[0]).changes
        return CheckJob(key[0], check, shown.token, changes) if changes else None

    def _note(self, job: CheckJob, answer: Frame) -> None:
        check = job.check
        self._workers.note_unheld(check.name, answer.get("unheld", []))
        self._proposals.note_check(
            job.number, job.view, check.name, answer["exit"], answer["seconds"], answer["output"],
            check.command,
        )  # fmt: skip

    async def _answer(self, job: CheckJob) -> Frame:
        """Run the command in a process. Return its answer, or one that says why there is none."""
        check = job.check
        answers: list[Frame] = []

        def request(scratch: str) -> list[Frame]:
            os.makedirs(os.path.join(scratch, "tmp"), 0o700)
            environment = tool_environment(self._root, scratch) | {"EDITD_CHECK": check.name}
            return requests_of(
                self._root, scratch, check.command, check.seconds, environment, job.changes, check.reach
            )

        def take(frame: Frame) -> bool:
            answers.append(frame)
            return True

        try:
            await self._workers.run(request, take, check.seconds + KILL_SECONDS + COPY_SECONDS)
        except TimeoutError:
            return _failed("The process of the check gave no answer.")
        return answers[0] if answers else _failed("The process of the check died.")


def _failed(reason: str) -> Frame:
    return {"exit": NOT_RUN, "seconds": 0.0, "output": f"{reason}\n"}
