"""The exchange with other hosts, driven by the daemon: rounds of a child process, and their steps.

Nothing of it is on the way of an edit, and none of its failures reaches one. A round packs the history, asks
the child, and submits each step as a request. A step that is not planned on the present files is refused as
stale, and the next round plans it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import socket
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from editd.advice import Advice, command_term
from editd.engine.arrivals import arrival_of, change_of, log_author, returned, unwritable
from editd.engine.commands import ArrivalChain
from editd.engine.unshared import KeptBack, UndoneInPart, Unshared
from editd.errors import (
    Conflict,
    InvalidParams,
    IoError,
    Refused,
    Stale,
    Timeout,
    UnknownTransaction,
    join_names,
)
from editd.review.set_aside import SetAside
from editd.server.engine_queue import Alarm, first_of, wait_event
from editd.server.exchange_process import ExchangeProcess, LogCopyLost, ProcessEnded, check_server
from editd.system.files import replace_file_durably
from editd.system.git_command import without_credentials
from editd.values.excluded_paths import ExcludedPaths, staying_paths
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from editd.config.schema import RemoteKeys
    from editd.engine.arrivals import LogAuthor
    from editd.engine.engine import Engine
    from editd.server.engine_queue import EngineQueue
    from editd.server.maintenance import Maintenance
    from editd.values.content import Change, FileState, Version
    from editd.values.transaction import Transaction

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.05  # after an edit, so that a burst of them lands together
BUSY_SECONDS = 60.0  # after an edit or an arrival, when the server is asked often
POLL_SECONDS_MAX = 20.0  # less than the time until an idle child ends
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.5, 60.0  # after a failure
REST_SECONDS_MAX = 2.0  # of a host in use, which rests twice as long as a round took, for a busy server
LANDING_WAIT_SECONDS = 0.15  # at most, before a host that was overtaken tries again
HOST_BYTES_MAX = 100  # of the name of a host, which is a part of a ref
LEFT_MAX = 100  # transactions that a refusal to leave names
UNSEEN_MAX = 1000  # transactions since the last round, whose times are kept
REPAIR_SECONDS = 30.0  # of exchange after a repair, before its answer
PAUSE_SECONDS = 5.0  # at most, for the end of the exchange that has begun, before a pause is answered
ARRIVALS_MAX = 16  # that share a turn of the engine: edits of clients wait for its end
HOLD_AFTER = 4  # refusals of the same paths while nothing is recorded
HELD_LOOK_SECONDS, HELD_LOOK_SECONDS_MAX = 5.0, 600.0  # after a look at the paths that are held
INTERNAL = (
    "again",
    "push",
    "pushes",
    "waiting",
    "needed",
    "asides",
    "settled",
    "listed",
    "held_since",
    "held_alone",
)  # in the answer of a round, not in `status`
NOT_JOINED = {"state": "none", "error": None}


class SharedLog:
    """The place of this host in the log of all, and the work for it."""

    def __init__(
        self,
        engine: Engine,
        queue: EngineQueue,
        background: Maintenance,
        folder: str,
        tell: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """`folder` is the state folder, and `tell` sends an event."""
        self._engine = engine
        self._queue = queue
        self._background = background
        self._folder = folder
        self._path = os.path.join(folder, "remote.json")
        self._exchange = ExchangeProcess(folder)
        self._reader = ExchangeProcess(folder)  # for questions, which need no server
        self._reading = asyncio.Lock()  # one question at a time
        self._member: dict[str, Any] | None = None
        self.is_joined = False
        self._keys: RemoteKeys | None = None
        self._excluded = ExcludedPaths()
        self._answer: Mapping[str, Any] = {"state": "behind", "error": None}
        self._wake = Alarm()
        self._end = Alarm()
        self._news: asyncio.Event | None = None
        self._changing = asyncio.Lock()  # one change of the place at a time
        self._asking = asyncio.Lock()  # one round at a time
        self._task: asyncio.Task[None] | None = None
        self._active_until = 0.0
        self._may_push_at = 0.0  # after a push that the server refused
        self._limited_until = 0.0  # by `pushes_per_minute`
        self._unseen: deque[tuple[int, int]] = deque()  # edits since the last round: numbers and times
        self._push_retry = RETRY_SECONDS  # after a push that the server refused
        self._is_retry = False  # the next push is to send again what the server has refused
        self._in_the_way: tuple[list[str], int, int] = [], 0, 0  # paths of a refused arrival, head, how often
        self._held_look_at, self._held_pause = 0.0, HELD_LOOK_SECONDS
        self._held: frozenset[str] = frozenset()  # paths that are kept out of the exchange
        self._is_reached = False  # the last round has read the server
        self._rounds = 0
        self._round_over = Alarm()  # a new one for each round
        self._set_aside: SetAside | None = None
        self._undone_in_part: UndoneInPart | None = None
        self._in_part: list[int] = []  # at the last round
        self._tell: Callable[[str, dict[str, Any]], None] = tell

    def configure(self, keys: RemoteKeys, excluded: ExcludedPaths) -> None:
        """Use these keys, and send no file from now on that `excluded` covers."""
        self._keys, self._excluded = keys, excluded
        self._add_rule()

    def _add_rule(self) -> None:
        """Add the history's rule to the rules of this host's place in the log.

        An earlier rule stays in force until the host leaves: the log lacks what it has left out.
        """
        if self._member is None:
            return
        rules = self._member.get("excluded", [])
        if self._excluded.texts not in rules:
            self._set_member(self._member | {"excluded": [*rules, self._excluded.texts]})
            try:
                self._save(self._member)
            except IoError as refusal:  # the rule is in force, and the next start adds it again
                log.error("%s", refusal.text())

    def start(self) -> None:
        """Go on where the last daemon ended, if this host has joined a log."""
        with contextlib.suppress(FileNotFoundError), open(self._path, encoding="utf-8") as file:
            self._set_member(json.load(file))
        self._add_rule()
        self._begin()

    async def close(self) -> None:
        await self._stop()

    def has_entry(self, reference: int | str | None) -> bool:
        """Return whether a reference is to an entry of the log that this host has joined: `@17`."""
        return self._member is not None and isinstance(reference, str) and reference.startswith("@")

    def needed(self) -> int | None:
        """Return the oldest transaction that the exchange needs, which is not to be compacted."""
        if self._member is None:
            return None
        return int(self._answer.get("needed", self._member["through"]))

    def unlanded(self) -> int | None:
        """Return the oldest transaction that the log may lack, and needs; None without a log."""
        needed = self.needed()
        if needed is None:
            return None
        return needed + 1 if self._answer.get("tentative") == 0 else needed

    def status(self) -> dict[str, Any]:
        """Return the state of the exchange, as `remote.status` has it."""
        if self._member is None:
            return dict(NOT_JOINED)
        member, answer = self._member, dict(self._answer)
        seen = answer.pop("seen", None)
        if seen is not None:
            is_behind = member["paused"] or not self._is_reached
            later = max(0, int(self._engine.history.head) - seen) if is_behind else len(self._unseen)
            answer["tentative"] += later  # edits since the last round
        for internal in INTERNAL:
            answer.pop(internal, None)
        kept_back = answer.pop("kept_back", ())
        answer["kept_back"] = [seq for seq, *_ in kept_back]
        answer["reasons"] = {str(seq): reason for seq, reason, *_ in kept_back}
        if member["paused"]:
            answer["state"] = "paused"
        times = [answer.pop("oldest_us", None), self._unseen[0][1] if self._unseen else None]
        oldest = min((time_us for time_us in times if time_us is not None), default=None)
        age = None if oldest is None else max(0.0, (self._engine.clock.now_us() - oldest) / 1_000_000)
        answer["in_part"] = self._in_part
        return answer | {
            "url": without_credentials(member["url"]), "ref": member["ref"], "host": member["host"],
            "oldest": age, "exclude": self._stay_here(member),
        }  # fmt: skip

    def _stay_here(self, member: Mapping[str, Any]) -> list[str]:
        """Return the globs of files that never leave this host; the history's rule has exceptions."""
        texts = [*member["exclude"], *(text for globs, _ in member["excluded"] for text in globs)]
        return list(dict.fromkeys(texts))

    # ── joining and leaving ──

    async def init(
        self, url: str, ref: str | None, host: str | None, *, is_dry: bool = False
    ) -> dict[str, Any]:
        """Make the log on the server, with this host's files as its beginning. Raises Refused.

        A dry run only counts the files.
        """
        async with self._changing:
            self._check_free()
            await check_server(url, self._folder)
            ref = ref or f"refs/heads/editd/{os.urandom(4).hex()}"
            head, seq = await self._packed()
            asked = await self._asked(url, ref, host, head, seq)
            asked |= {"do": "init", "time_us": self._engine.clock.now_us()}
            if is_dry:
                return self.status() | await self._exchange.ask(asked | {"do": "count"})
            answer = await self._exchange.ask(asked)
            await self._settle(asked, answer, seq)
            return self.status()

    async def join(
        self, url: str, ref: str | None, host: str | None, take: str | None, keep: str | None
    ) -> dict[str, Any]:
        """Take the files of the log, and exchange from then on.

        Raises Conflict if files of this host differ, unless `take` is `log` or `keep` is `mine`.
        """
        if take is not None and keep is not None:
            raise InvalidParams("`take` and `keep` exclude each other.")
        async with self._changing:
            self._check_free()
            await check_server(url, self._folder)
            head, seq = await self._packed()
            asked = await self._asked(url, ref or "", host, head, seq) | {"do": "join"}
            answer = await self._exchange.ask(asked)
            differing = answer["differs"]
            if differing and take is None and keep is None:
                raise Conflict(
                    f"{len(differing)} files of this workspace are not as in the log: "
                    f"{join_names(differing)}.",
                    hint=(
                        "Join with `--take log` to replace or delete them; the history keeps them. "
                        "With `--keep mine` they become an edit of this host."
                    ),
                    data={"files": [{"path": path, "reason": "remote"} for path in differing]},
                )
            if keep is not None and answer["clashes"]:
                raise Conflict(
                    f"Both cannot be kept: {join_names(answer['clashes'])}.",
                    hint="Rename it here, and join again.",
                )
            asked |= {"ref": answer["ref"]}
            asked |= await self._exchange.ask(asked | {"do": "claim"})  # first: the server may refuse it
            try:
                if differing and keep is not None:
                    sent = asked | {"do": "send", "time_us": self._engine.clock.now_us()}
                    answer = await self._exchange.ask(sent)
                await self._join_with_files(asked, answer, seq)
            except Refused:
                await self._release_name(asked)
                raise
            return self.status()

    async def _join_with_files(self, asked: Mapping[str, Any], answer: Mapping[str, Any], seq: int) -> None:
        """Replace the files with the log's, in one transaction, and write down the place.

        If the place cannot be written, the files are as before. Raises Refused.
        """
        held, through = await self._take_files(answer, seq), int(self._engine.history.head)
        try:
            await self._settle(asked, {**answer, "host": asked["host"]}, seq, held)
        except Refused:
            changes = [change for change in answer["changes"] if change[0] not in held]
            if changes:
                await self._queue.result_of(returned(changes, through, self._engine.history))
            raise

    async def _release_name(self, asked: Mapping[str, Any]) -> None:
        """Give back the name of a host that could not join. A server may keep it."""
        try:
            await self._exchange.ask({**asked, "do": "release"})
        except Refused as refusal:
            log.warning("the name %s stays taken in the log: %s", asked["host"], refusal.message)

    async def _take_files(self, answer: Mapping[str, Any], seq: int) -> list[str]:
        """Replace the files with the log's, except files that this host cannot have; return these.

        Raises Refused.
        """
        step, held = _joining(answer), list[str]()
        while step["changes"]:
            try:
                await self._queue.result_of(arrival_of(step, seq))
                break
            except Refused as refusal:
                refused = unwritable(refusal, step)
                if isinstance(refusal, Stale):
                    refused = await self._queue.run(partial(self._found_first, refusal, seq))
                if not refused:
                    raise
                held += refused
                step["changes"] = [change for change in step["changes"] if change[0] not in refused]
        return held

    def _found_first(self, refusal: Stale, seq: int) -> list[str]:
        """Return the path of a refusal if git ignores the file there: it was recorded only now, as found."""
        index, path = self._engine.history.index, str(refusal.data["path"])
        touch = index.touch_after(WorkspacePath.parse(path), seq)
        is_found = touch is not None and index.kind_of(touch[0]) == "baseline"
        return [path] if is_found and not self._engine.recorder.is_first_scan else []

    async def leave(self, *, may_lose: bool) -> dict[str, Any]:
        """End the exchange. The files and the history stay.

        Raises InvalidParams, and Conflict if transactions are not in the log yet, unless they may be lost.
        """
        async with self._changing:
            self._check_joined()
            if not may_lose and (left := await self._queue.run(self._left_behind)):
                raise _would_leave_behind(left)
            await self._stop()
            self._set_member(None)
            self._held = frozenset()
            self._unseen.clear()
            self._undone_in_part, self._in_part = None, []
            self._answer = {"state": "behind", "error": None}
            os.unlink(self._path)
            shutil.rmtree(os.path.join(self._folder, "remote"), ignore_errors=True)
            await self._queue.run(self._engine.history.index.forget_landed)
            return self.status()

    def _left_behind(self) -> list[Transaction]:
        """Return the first transactions of this host that no other one has, as far as known."""
        history, member = self._engine.history, self._member_now()
        known = self._answer.get("waiting")
        after = int(self._answer["seen"] if known is not None else member["through"])
        later = range(max(after, history.floor.seq) + 1, int(history.head) + 1)
        named = islice(
            (*(known or ()), *(seq for seq in later if history.index.log_entry_of(seq) is None)), LEFT_MAX
        )
        transactions = map(history.find, named)
        return [one for one in transactions if one.authorship.arrival is None and one.kind != "baseline"]

    async def repair(self) -> dict[str, Any]:
        """Follow the log on the server although it does not continue the known one, and land what it lacks.

        Raises InvalidParams, Conflict.
        """
        async with self._changing:
            self._check_joined()
            async with self._asking:
                head, _ = await self._packed()
                await self._exchange.ask({**self._member_now(), "do": "repair", "head": head})
                await self._queue.run(self._engine.history.index.forget_landed)
                self._set_aside = None  # the log may lack decisions that it had
                await self._reader.close()
            self._wake.set()
        return await self.now(REPAIR_SECONDS)

    async def landed(self, reference: int | str | None, seconds: float) -> dict[str, Any]:
        """Wait until a transaction is in the log; return its entry. None is the newest one of this host.

        Raises InvalidParams, UnknownTransaction, Timeout.
        """
        self._check_joined()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        seq = await self._queue.run(partial(self._newest_or, reference))
        while (entry := await self._queue.run(partial(self._engine.history.index.log_entry_of, seq))) is None:
            if loop.time() >= until or self._member is None:
                raise Timeout(
                    f"Transaction {seq} is not in the log yet.",
                    hint=Advice(command_term("remote status"), " shows the state of the exchange."),
                    data={"tx": seq},
                )
            self._wake.set()
            await wait_event(self._round_over, max(0.0, until - loop.time()))
        return {"seq": seq, "number": entry[0], "outcome": entry[1]}

    def _newest_or(self, reference: int | str | None) -> int:
        """Return a transaction, or the newest one that lands. Raises UnknownTransaction, InvalidParams."""
        history = self._engine.history
        if reference is not None:
            return int(history.find(reference).seq)
        for seq in range(int(history.head), max(history.floor.seq, int(self._member_now()["through"])), -1):
            arrival = history.find(seq).authorship.arrival
            if arrival is None or arrival.origin is not None:  # otherwise it is a step of the exchange itself
                return seq
        raise InvalidParams("No transaction has been made since this host joined the log.")

    def recorded(self, transaction: Transaction) -> None:
        """Note an edit of this host, which no round has followed yet. For any thread."""
        is_own = self._member is not None and transaction.authorship.arrival is None
        if is_own and transaction.kind != "baseline" and len(self._unseen) < UNSEEN_MAX:
            self._unseen.append((int(transaction.seq), transaction.time_us))

    async def pause(self, *, is_paused: bool) -> dict[str, Any]:
        """Stop the exchange, or go on with it; a restart changes nothing. Raises InvalidParams.

        A pause waits for the end of the round that has begun, because that one may still move the log.
        """
        async with self._changing:
            self._check_joined()
            self._save(self._member | {"paused": is_paused} if self._member is not None else {})
            self._wake.set()
        if is_paused:
            await wait_event(self._round_over, PAUSE_SECONDS)
        return self.status()

    async def now(self, seconds: float) -> dict[str, Any]:
        """Exchange until nothing waits, or for `seconds`; return the status. Raises InvalidParams."""
        self._check_joined()
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        head = self._engine.history.head
        self._held_look_at, self._held_pause = 0.0, HELD_LOOK_SECONDS
        if self._answer["state"] == "refused":
            self._may_push_at, self._is_retry = 0.0, True
        while loop.time() < until and self._member is not None and not self._member["paused"]:
            begun = self._rounds
            while self._rounds < begun + 2 and loop.time() < until:  # one round began now
                self._wake.set()
                await wait_event(self._round_over, until - loop.time())
            is_done = self._answer["state"] == "current" and not self._answer.get("again")
            if is_done and not self._answer.get("tentative") and self._engine.history.head >= head:
                break
            if self._answer["state"] in ("forked", "refused"):
                break
        return self.status()

    async def _settle(
        self, asked: Mapping[str, Any], answer: Mapping[str, Any], seq: int, held: Sequence[str] = ()
    ) -> None:
        """Write down the place of this host in the log, and begin to exchange."""
        self._save(
            {
                "url": asked["url"], "ref": answer["ref"], "host": answer["host"], "paused": False,
                "exclude": asked["exclude"], "excluded": answer["excluded"], "taken": answer["taken"],
                "through": seq, "earlier": answer.get("earlier"),
                "held": [*asked["held"], *([path, seq] for path in held)],
            }
        )  # fmt: skip
        log.info("this host is %s in the log %s of %s", answer["host"], answer["ref"],
                 without_credentials(asked["url"]))  # fmt: skip
        number = answer["number"]
        self._answer = {"state": "behind", "error": None, "number": number, "head": number}
        self._begin()

    def _save(self, member: dict[str, Any]) -> None:
        try:
            replace_file_durably(self._path, json.dumps(member).encode())
        except OSError as error:
            raise IoError(error, "The place in the log cannot be written") from error
        self._set_member(member)

    def _set_member(self, member: dict[str, Any] | None) -> None:
        """Use this membership from now on, also for the warnings of edits."""
        self._member, self.is_joined = member, member is not None
        if member is None:
            self._engine.unshared = None
            return
        if self._engine.unshared is None:
            self._engine.unshared = Unshared()
        rules = [ExcludedPaths.of(texts) for texts in member.get("excluded", ())]
        self._engine.unshared.rules = {
            "`remote.exclude` names it": staying_paths(member["exclude"], ()),
            "`history.exclude` names it": self._is_excluded,
            "`history.exclude` named it since this host joined": staying_paths((), rules),
            "it is held": lambda path: path.text in self._held,
        }

    def _is_excluded(self, path: WorkspacePath) -> bool:
        return self._excluded.covers(path)

    async def _asked(self, url: str, ref: str, host: str | None, head: str, seq: int) -> dict[str, Any]:
        """Return the frame of a request to the child, for a host that has not joined.

        It holds the files that git ignores here: an earlier exchange may have recorded them as found.
        """
        assert self._keys is not None, "not configured"
        ignored = await self._queue.run(self._engine.ignored_files)
        host = host or self._keys.host or socket.gethostname().partition(".")[0] or "host"
        return {
            "url": url,
            "ref": ref,
            "host": _as_name(host),
            "exclude": list(self._keys.exclude),
            "excluded": [self._excluded.texts],
            "head": head,
            "held": [[path, seq] for path in ignored],
        }

    def _member_now(self) -> dict[str, Any]:
        assert self._member is not None, "no log is joined"
        return self._member

    def _check_free(self) -> None:
        if self._member is not None:
            raise InvalidParams(
                f"This workspace has joined {without_credentials(self._member['url'])} already.",
                hint=Advice(command_term("remote leave"), " ends that."),
            )

    def _check_joined(self) -> None:
        if self._member is None:
            raise InvalidParams(
                "This workspace is on this host alone.",
                hint=Advice(command_term("remote join URL"), " joins a log."),
            )

    # ── questions about the log ──

    async def changes_between(
        self, start: int | str | None, end: int | str | None
    ) -> tuple[tuple[Change[FileState], ...], int]:
        """Return the changes between two states of the shared files, and the newest packed transaction.

        `@17` is the state of an entry, the same on all hosts. Another reference is one of this host's
        transactions, and None is the newest packed one. Raises UnknownTransaction.
        """
        head, seq = await self._packed()
        first, last = [await self._queue.run(partial(self._state_named, one, head)) for one in (start, end)]
        answer = await self._question({"do": "changes", "head": head, "start": first, "end": last})
        return tuple(map(change_of, answer["changes"])), seq

    def _state_named(self, reference: int | str | None, head: str) -> str:
        """Return the name of a state for the reader of the log. Raises UnknownTransaction."""
        if self.has_entry(reference):
            return str(reference)
        return head if reference is None else self._engine.history.find(reference).id

    async def blame(self, path: WorkspacePath, version: Version) -> list[LogAuthor] | None:
        """Return the origin of each line of a file by the order of the log.

        None if this host does not share the file, or if that has another version now. Raises Refused.
        """
        head, _ = await self._packed()
        answer = await self._question({"do": "blame", "head": head, "path": path.text})
        if answer["version"] != version:
            return None
        host = self._member_now()["host"]
        authors = await self._queue.run(
            lambda: [log_author(one, host, self._engine.history) for one in answer["authors"]]
        )
        return [authors[index] for index in answer["lines"]]

    async def _question(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Ask the reader of the log; once more if it has read another state or ended. Raises Refused."""
        async with self._reading:
            try:
                answer = await self._reader.ask({**self._member_now(), **asked})
            except (Conflict, ProcessEnded) as refusal:
                log.info("the log is read anew: %s", refusal.message)
                answer = await self._reader.ask({**self._member_now(), **asked})
        if "unknown" in answer:
            raise UnknownTransaction(answer["unknown"], hint=answer["hint"], data={"tx": answer["tx"]})
        return answer

    # ── the rounds ──

    def _begin(self) -> None:
        if self._member is not None and self._task is None:
            self._end.clear()
            self._task = asyncio.create_task(self._run())

    async def _stop(self) -> None:
        self._end.set()
        self._wake.set()
        self._exchange.kill()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._exchange.close()
        await self._reader.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        retry, poll = RETRY_SECONDS, 0.0
        while not self._end.is_set():
            head = self._engine.history.head
            is_paused = self._member is not None and self._member["paused"]
            self._wake.clear()
            began = loop.time()
            if not is_paused:
                await self._round_guarded()
            took = loop.time() - began
            self._rounds += 1
            self._round_over.set()
            self._round_over = Alarm()
            if self._answer.get("again") and not is_paused:
                if self._answer["push"] == "refused":  # because another host was faster
                    await wait_event(self._end, _jitter(0, LANDING_WAIT_SECONDS))
                retry = RETRY_SECONDS
                continue
            least = 0.25 if self._keys is None else self._keys.poll
            if not self._is_reached:
                poll, retry = _jitter(retry / 2, retry), min(2 * retry, RETRY_SECONDS_MAX)
            elif loop.time() < self._active_until:
                poll, retry = max(_jitter(least / 2, least), min(2 * took, REST_SECONDS_MAX)), RETRY_SECONDS
            else:
                poll, retry = min(max(2 * poll, least), max(least, POLL_SECONDS_MAX)), RETRY_SECONDS
            await self._rest(head, poll)

    async def _rest(self, head: int, seconds: float) -> None:
        """Wait for an edit, for `now`, or for the time of the next look at the server."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._wake.is_set():
            if self._engine.history.head != head and self._is_reached:
                self._active_until = loop.time() + BUSY_SECONDS
                await wait_event(self._end, GATHER_SECONDS)
                return
            if self._news is None or self._news.is_set():
                self._news = self._queue.activity.next()
            if self._engine.history.head == head:
                await first_of((self._wake, self._news), until - loop.time())
            else:
                await wait_event(self._wake, until - loop.time())

    async def _round_guarded(self) -> None:
        try:
            async with self._asking:
                await self._round()
        except Refused as refusal:
            self._fail("forked" if isinstance(refusal, LogCopyLost) else "refused", refusal.text())
        except Exception as error:  # our bug; without this task nothing would be exchanged
            log.exception("the exchange failed, and is retried")
            self._fail("refused", str(error))

    def _fail(self, state: str, words: str) -> None:
        self._is_reached = False
        if not self._end.is_set():
            if self._answer["state"] != state:
                self._say_state(state, words)
            self._answer = {**self._answer, "state": state, "error": words, "again": False}

    def _say_state(self, state: str, error: str | None) -> None:
        log.info("exchange: %s%s", state, f": {error}" if error else "")
        self._tell("remote", {"state": state, "error": error})

    async def _round(self) -> None:
        """Follow the history, take in new entries, or land waiting transactions. Raises Refused."""
        if self._member is None:
            return
        if self._engine.recorder.broken is not None:
            raise Refused("Nothing is exchanged while the workspace is broken.")
        loop = asyncio.get_running_loop()
        await self._release(loop.time())
        head, seq = await self._packed()
        before = self._answer.get("number")
        may_land = loop.time() >= max(self._may_push_at, self._limited_until)
        known = await self._queue.run(self._known)
        is_retry, self._is_retry = self._is_retry, False
        asked = {"do": "round", "head": head, "may_land": may_land, "retry": is_retry}
        answer = await self._exchange.ask({**self._member, **asked, **known})
        self._is_reached = answer["state"] in ("current", "refused")
        while self._unseen and self._unseen[0][0] <= answer["seen"]:
            self._unseen.popleft()
        self._plan_push(answer)
        if answer["number"] != before or answer["steps"]:
            self._active_until = loop.time() + BUSY_SECONDS
        steps = answer.pop("steps")
        if answer["state"] != self._answer["state"]:
            self._say_state(answer["state"], answer["error"])
        self._answer, self._held = answer, frozenset(answer["held"])
        self._note_kept_back(answer["kept_back"])
        await self._queue.run(partial(self._note, answer))
        await self._arrive(steps, seq)

    def _note_kept_back(self, kept_back: Sequence[Sequence[Any]]) -> None:
        """Have the authors of transactions that are kept back get a warning."""
        if self._engine.unshared is None:
            return
        self._engine.unshared.kept_back = {
            seq: KeptBack(reason, actor, session, frozenset(map(WorkspacePath.parse, paths)))
            for seq, reason, actor, session, paths in kept_back
        }

    async def _arrive(self, steps: Sequence[Mapping[str, Any]], seq: int) -> None:
        """Record the steps of a round, up to one whose files have changed: that is planned again.

        Raises Refused.
        """
        chain = ArrivalChain()
        for first in range(0, len(steps), ARRIVALS_MAX):
            group = steps[first : first + ARRIVALS_MAX]
            made = [self._queue.result_of(arrival_of(step, seq, chain)) for step in group]
            for step, outcome in zip(group, await asyncio.gather(*made, return_exceptions=True), strict=True):
                if isinstance(outcome, Refused) and self._hold(outcome, step):
                    return
                if isinstance(outcome, Stale):
                    return
                if isinstance(outcome, BaseException):
                    raise outcome
                if step["origin"] is not None and step["parts"]:
                    await self._queue.run(partial(self._partly().note, [part[0] for part in step["parts"]]))
                if step["origin"] is None and outcome.transaction is not None:
                    await self._queue.run(partial(self._aside().propose_own, step["undoes"]))

    def _hold(self, refusal: Refused, step: Mapping[str, Any]) -> bool:
        """Keep the paths out of the exchange that this host cannot have; return whether there are any.

        A refusal shows that when it comes again although nothing was recorded meanwhile. So does an arrival
        that stays stale: on a disk that folds names, another file is found at its path.
        """
        head = int(self._engine.history.head)
        paths = [str(refusal.data["path"])] if isinstance(refusal, Stale) else unwritable(refusal, step)
        self._in_the_way = (
            paths,
            head,
            self._in_the_way[2] + 1 if self._in_the_way[:2] == (paths, head) else 1,
        )
        if not paths or self._in_the_way[2] < HOLD_AFTER:
            return False
        log.warning("%s is not exchanged: %s", join_names(paths), refusal.message)
        member = self._member_now()
        self._save(member | {"held": [*member.get("held", ()), *([path, head] for path in paths)]})
        return True

    async def _release(self, now: float) -> None:
        """Take the paths into the exchange again that nothing here holds any more."""
        since = dict(self._answer.get("held_since", ()))
        if not since or now < self._held_look_at:
            return
        self._held_look_at = now + self._held_pause
        alone = frozenset(self._answer.get("held_alone", ()))
        free = set(await self._queue.run(partial(self._engine.free_for_arrivals, since, alone)))
        if not free:
            return
        log.info("exchanged again: %s", join_names(sorted(free)))
        self._held_pause = min(2 * self._held_pause, HELD_LOOK_SECONDS_MAX)  # if they have to be held again
        member, head = self._member_now(), int(self._engine.history.head)
        self._answer = {**self._answer, "held_since": {}}
        self._save(
            member
            | {
                "held": [one for one in member.get("held", ()) if one[0] not in free],
                "released": [*member.get("released", ()), *([path, since[path], head] for path in free)],
            }
        )

    def _plan_push(self, answer: dict[str, Any]) -> None:
        """Set the time of the next push. Until then, a refusal of the last one stays the state."""
        now = asyncio.get_running_loop().time()
        if answer["pushes"] and self._keys is not None and self._keys.pushes_per_minute:
            rest = 60 / self._keys.pushes_per_minute * answer["pushes"]
            self._limited_until = max(now, self._limited_until) + rest
        if answer["push"] is None:
            if answer["state"] == "current" and answer["tentative"] and self._answer["state"] == "refused":
                answer |= {"state": "refused", "error": self._answer["error"]}
            return
        if answer["push"] == "refused" and not answer["again"]:
            self._may_push_at = now + _jitter(self._push_retry / 2, self._push_retry)
            self._push_retry = min(2 * self._push_retry, RETRY_SECONDS_MAX)
            return
        self._push_retry = RETRY_SECONDS

    def _known(self) -> dict[str, Any]:
        """Return what the child has to know of this host's proposals and numbers."""
        return {**self._aside().known(), "listed": self._engine.history.index.last_log_number}

    def _note(self, answer: Mapping[str, Any]) -> None:
        """Store and announce what the child has read in the log."""
        index, host = self._engine.history.index, self._member_now()["host"]
        if answer["listed"]:
            index.list_landed(answer["listed"])
            for number, seq, _, outcome in answer["listed"]:
                if seq is not None:
                    self._tell("landed", {"seq": seq, "number": number, "outcome": outcome})
        if answer["asides"] or answer["settled"]:
            self._aside().take(answer, host)
        if self._engine.unshared is not None:
            self._in_part = self._partly().now(self._engine.unshared.stays)

    def _aside(self) -> SetAside:
        if self._set_aside is None:
            assert self._engine.landing.proposals is not None, "the daemon opens them before"
            self._set_aside = SetAside(self._engine.landing.proposals, self._engine.history)
        return self._set_aside

    def _partly(self) -> UndoneInPart:
        if self._undone_in_part is None:
            self._undone_in_part = UndoneInPart(self._engine.history.index)
        return self._undone_in_part

    async def _packed(self) -> tuple[str, int]:
        """Pack the history; return the id and the number of the newest packed transaction."""
        await self._background.pack()
        history = self._engine.history
        seq = int(history.packed)
        commit = await self._queue.run(partial(history.index.id_of, seq))
        if commit is None:
            raise Refused(f"Transaction {seq} is not in the index.")
        return commit, seq


def _joining(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the step that gives a host the files of the log."""
    return {
        "number": answer["number"], "host": answer["host"], "time_us": 0, "origin": None, "kind": "restore",
        "actor": "editd", "session": None, "message": f"Join the log at entry {answer['number']}",
        "attribution": None, "undoes": [], "parts": [], "changes": answer["changes"],
    }  # fmt: skip


def _would_leave_behind(left: Sequence[Transaction]) -> Conflict:
    one = left[0]
    message = one.authorship.message.partition("\n")[0]
    first = f"{one.seq} by {one.authorship.actor}" + (f" ({message})" if message else "")
    more = "" if len(left) == 1 else f" and {len(left) - 1} more" + " or more" * (len(left) == LEFT_MAX)
    return Conflict(
        f"The log lacks transaction {first}{more}, and no other host gets them.",
        hint=Advice(
            "Run ", command_term("remote now"), " first. To leave anyway, run ",
            command_term("remote leave --yes"), ".",
        ),
        data={
            "transactions": [
                {"seq": int(one.seq), "actor": one.authorship.actor, "message": one.authorship.message,
                 "files": [touch.path.text for touch in one.touches[:LEFT_MAX]]}
                for one in left
            ]
        },
    )  # fmt: skip


def _jitter(least: float, most: float) -> float:
    """Return a time between the two, so that hosts do not ask all at once."""
    return least + (most - least) * secrets.randbelow(1000) / 1000


def _as_name(host: str) -> str:
    """Return a name that can be a part of a ref. Raises InvalidParams for one that is too long."""
    if (size := len(os.fsencode(host))) > HOST_BYTES_MAX:
        raise InvalidParams(
            f"The name of this host has {size} bytes; {HOST_BYTES_MAX} are the most.",
            hint="Choose a shorter one with `--host`, or with `host` in `[remote]`.",
        )
    return (
        "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in host).strip("-")
        or "host"
    )
