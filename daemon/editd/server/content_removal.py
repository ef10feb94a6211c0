"""The removal of contents from the history and from everything beside it: `forget`.

find       the contents and their places; a refusal changes nothing
beside     settled proposals, refusals, prompts, lost and found, and the daemon's log lose them
recorded   `store.forgotten` names them, durably: from here on they are gone for every reader
removed    the packs are rewritten, and the journal, databases and replaced files cleared (`server.remains`)
proved     a search of the whole state folder finds what is left (`store.content_search`)

A daemon that is killed after `recorded` goes on with `removed` at its next start. The chain of transactions
stays as it is: the commits and trees still name the versions.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from editd.advice import Advice, command_term, method_term
from editd.engine.removal import Places, Removal, came_back, known_paths, places_of, selected_versions
from editd.errors import Broken, Conflict, FileMissing, IoError, Refused, ShuttingDown, join_names
from editd.server.child_process import PYTHON, RequestProcess
from editd.server.log_lines import drop_lines
from editd.store import compaction, first_scan
from editd.store.content_search import REMOTE, Sought
from editd.store.forgotten import ForgottenContent
from editd.store.git_objects import oid_of
from editd.store.lost_found import drop_lost_contents
from editd.values.content import Version
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from editd.engine.engine import Engine
    from editd.engine.removal import Selection
    from editd.server.engine_queue import EngineQueue
    from editd.server.refusals import Refusals
    from editd.server.retention import Retention
    from editd.store.git_objects import Oid
    from editd.store.turn_store import TurnStore
    from editd.system.frames import Frame
    from editd.values.proposal import ProposalNumber

log = logging.getLogger(__name__)

RETRY_SECONDS = 60.0  # after the rest of a removal has failed at a start
SEARCH_NICE = 15


class ContentRemoval:
    """All removals of one workspace, one at a time, and never beside a compaction."""

    def __init__(
        self,
        engine: Engine,
        queue: EngineQueue,
        retention: Retention,
        refusals: Refusals,
        unlanded: Callable[[], int | None],
        turns: TurnStore,
        folder: str,
    ) -> None:
        """`folder` is the state folder. `unlanded` returns the oldest transaction that the log lacks."""
        self._turns = turns
        self._engine = engine
        self._queue = queue
        self._retention = retention
        self._refusals = refusals
        self._unlanded = unlanded
        self._folder = folder
        self._searcher = RequestProcess([*PYTHON, "editd.store.content_search", folder], nice=SEARCH_NICE)
        self._rest: asyncio.Task[None] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Finish a removal that was cut off."""
        if self._engine.recorder.broken is None and self._remaining():
            self._rest = asyncio.create_task(self._finish_rest())

    async def close(self) -> None:
        """End a removal under way: the next start finishes it."""
        self._is_closing = True
        if self._rest is not None:
            self._rest.cancel()
            await asyncio.gather(self._rest, return_exceptions=True)
        await self._searcher.close(0.1)

    async def run(self, selection: Selection, text: str | None, actor: str, *, is_dry: bool) -> Removal:
        """Remove the contents that are selected, or that have the text. Raises Refused."""
        async with self._retention.alone:
            try:
                self._step("looking for the contents")
                await self._retention.pack()
                plan = await self._plan(selection, text)
                if is_dry:
                    return plan
                self._step("proposals, refusals and logs")
                others = await self._remove_beside(plan)
                await self._queue.run(partial(self._record, plan, actor))
                await self._remove()
                others += await self._queue.run(partial(self._drop_excluded, plan))
                self._step("proving that nothing is left")
                remaining, searched = await self._proof(plan)
                log.info("%d contents are forgotten, at the request of %s", len(plan.sizes), actor)
                return replace(plan, others=others, remaining=tuple(remaining), searched=searched)
            except OSError as error:
                raise IoError(error, "The contents could not be forgotten") from error
            finally:
                self._step(None)
                await self._searcher.close()

    def _step(self, step: str | None) -> None:
        self._retention.step_of_removal = step

    # ── finding ──

    async def _plan(self, selection: Selection, text: str | None) -> Removal:
        """Return the contents to remove. Raises FileMissing, Conflict, with nothing changed."""
        history = self._engine.history
        head = await self._queue.run(lambda: int(history.head))
        chosen = await self._queue.run_in_thread(partial(self._choose, selection))
        answer = await self._ask("find", Sought.of(chosen, text))
        sizes = {Version(version): size for version, size in answer["sizes"].items()}
        places = await self._queue.run_in_thread(partial(places_of, history, chosen | sizes.keys()))
        kept = frozenset(places.present)
        if kept and not selection.is_by_path:
            raise _present(places)
        gone = {version: size for version, size in sizes.items() if version not in kept}
        self._check_exchange(places, gone)
        sought = Sought.of((chosen | gone.keys()) - kept, text)
        proposals = await self._queue.run_in_thread(partial(self._proposals_with, selection, sought, kept))
        return Removal(
            selection, sought, head, gone, places, kept, answer["borrowed"], answer["shared"], proposals
        )

    def _choose(self, selection: Selection) -> set[Version]:
        history = self._engine.history
        if selection.is_by_path and not known_paths(history, selection.covers):
            named = [path.text for path in selection.paths] + [glob.text for glob in selection.globs]
            raise FileMissing(
                f"The history has no file {named[0]}.",
                hint=Advice("Run ", method_term("log"), " to see its files."),
                data={"path": named[0]},
            )
        return selected_versions(history, selection)

    def _check_exchange(self, places: Places, versions: Collection[Version]) -> None:
        """Refuse contents of transactions that the log of all hosts does not have yet."""
        needed = self._unlanded()
        seqs = {seq for version in versions for seq in places.transactions.get(version, ())}
        late = sorted(seq for seq in seqs if needed is not None and seq >= needed)
        if late:
            raise Conflict(
                f"The log of all hosts does not have transaction {late[0]} yet, and needs its content.",
                hint=Advice(
                    "Run ", command_term("remote now"), " first, or ", command_term("remote leave"), "."
                ),
                data={"transactions": late},
            )

    def _proposals_with(
        self, selection: Selection, sought: Sought, kept: Collection[Version]
    ) -> list[ProposalNumber]:
        """Return the settled proposals with such content. Raises Conflict if an open one has it."""
        if self._engine.landing.proposals is None:
            return []
        store = self._engine.landing.proposals.store

        def is_wanted(path: WorkspacePath, version: Version) -> bool:
            return version in sought.versions or (version not in kept and selection.covers(path))

        numbers = store.holders(is_wanted, sought.is_in)
        undecided = [number for number in numbers if number in store.open]
        if undecided:
            raise Conflict(
                f"Proposal {undecided[0]} is open, and has such content.",
                hint="Decide on it or withdraw it first.",
                data={"proposals": undecided},
            )
        return numbers

    # ── removing ──

    async def _remove_beside(self, plan: Removal) -> int:
        """Remove the contents from what no transaction needs; return the number of removed things."""
        await self._queue.run(partial(self._delete_proposals, plan))
        paths = {path.text for paths in plan.places.paths.values() for path in paths}
        covers = plan.selection.covers

        def is_about(message: str, named: Sequence[str]) -> bool:
            has_text = plan.sought.is_in(message.encode("utf-8", "surrogateescape"))
            return has_text or not paths.isdisjoint(named) or any(map(covers, _parse(named)))

        dropped = self._refusals.drop(is_about)
        dropped += await self._queue.run_in_thread(partial(self._turns.forget_with, plan.sought.is_in))
        loop = asyncio.get_running_loop()
        dropped += await loop.run_in_executor(None, drop_lost_contents, self._folder, plan.sought.is_content)
        return dropped + await loop.run_in_executor(None, drop_lines, self._folder, plan.sought.is_in)

    def _delete_proposals(self, plan: Removal) -> None:
        if self._engine.landing.proposals is not None and plan.proposals:
            self._engine.landing.proposals.store.delete(plan.proposals)

    def _drop_excluded(self, plan: Removal) -> int:
        """Delete such contents of excluded files. By now, no recovery needs them."""
        through = self._retention.durable_through()
        return self._engine.history.excluded.drop_matching(plan.sought.is_content, through)

    def _record(self, plan: Removal, actor: str) -> None:
        """Record the contents as forgotten: the point of no return. Raises Refused, OSError."""
        if self._engine.recorder.broken is not None:
            raise self._engine.recorder.broken
        if back := came_back(self._engine.history, plan.sizes.keys(), plan.head):
            raise Conflict(
                f"Transaction {min(back.values())} has just written such a content.",
                hint="Change or delete its file first.",
            )
        now_us = self._engine.clock.now_us()
        head = int(self._engine.history.head)
        contents = [ForgottenContent(one, size, head, now_us, actor) for one, size in plan.sizes.items()]
        if contents:
            self._engine.history.begin_forgetting(contents)

    def _remaining(self) -> list[Version]:
        """Return the forgotten contents that may still be somewhere."""
        return [one.version for one in self._engine.history.forgotten.values() if not one.is_gone]

    async def _remove(self) -> None:
        """Remove the recorded contents. Raises Refused, OSError; a second call does the rest."""
        history = self._engine.history
        self._step("packs")
        if left := self._remaining():
            await self._retention.drop(self._to_drop)
        self._step("journal and databases")
        await self._retention.remains.clear(pages=True)
        await asyncio.get_running_loop().run_in_executor(None, first_scan.remove_leftovers, self._folder)
        if left:
            await self._queue.run(history.end_forgetting)
        compaction.end(self._folder)

    def _to_drop(self) -> list[Oid]:
        """Return the recorded contents; contents that a later transaction has written again are kept."""
        history = self._engine.history
        left = self._remaining()
        back = came_back(history, left, min(history.forgotten[version].seq for version in left))
        if back:
            log.warning("%d contents that were to be forgotten were written again, and stay", len(back))
            history.stop_forgetting(back)
        return [oid_of(version) for version in left if version not in back]

    async def _finish_rest(self) -> None:
        while self._remaining():
            try:
                async with self._retention.alone:
                    await self._remove()
                log.info("the removal of contents that was cut off is finished")
            except (Refused, OSError) as error:
                log.error("contents that were to be forgotten are not all removed: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                self._step(None)

    # ── proving ──

    async def _proof(self, plan: Removal) -> tuple[list[str], int]:
        """Search everything; return a sentence for each file that still holds a content, and the count."""
        answer = await self._ask("prove", plan.sought)
        holders = [pair for pair in answer["holders"] if not pair[0].startswith(f"{REMOTE}/")]
        return [f"{file} still has {part}." for file, part in holders], answer["looked_at"]

    async def _ask(self, request_kind: str, sought: Sought) -> Frame:
        """Send a request to the searching process. Raises Refused if it fails."""
        request = {"do": request_kind, "versions": sorted(sought.versions), "needles": list(sought.needles)}
        answer = await self._searcher.ask(request)
        if answer is None:
            if self._is_closing:
                raise ShuttingDown("The daemon is ending.", hint="Run it again: the rest is removed then.")
            raise Broken("The process that searches the state folder died.", hint="Run it again.")
        if "failed" in answer:
            raise Broken(
                f"The state folder could not be searched: {answer['failed']}.",
                hint=Advice("Run ", command_term("check"), "."),
            )
        return answer


def _parse(named: Iterable[str]) -> Iterator[WorkspacePath]:
    for text in named:
        with contextlib.suppress(Refused):  # as a client has written it
            yield WorkspacePath.parse(text)


def _present(places: Places) -> Conflict:
    files = sorted({path.text for paths in places.present.values() for path in paths})
    return Conflict(
        f"The content is in the workspace now, in {join_names(files)}.",
        hint="Change or delete the file first.",
        data={"files": [{"path": file} for file in files]},
    )
