"""The process of the exchange: `python -m editd.remote.exchange_worker STATE_FOLDER SOCKET_FOLDER`.

Framed messages on stdin and stdout (`system.frames`). The daemon asks for one round at a time, and carries
out the steps of the answer. Another process of this kind answers questions about the log (`log_reader`), so
that none of them waits for a server, unless this host's copy of the log was deleted.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pygit2

from editd.errors import Refused, UnknownTransaction
from editd.remote.entries import SettledAside
from editd.remote.entry_decoder import as_text
from editd.remote.exchange import CopyLost, Exchange, Known, shared_of
from editd.remote.log_reader import LogReader
from editd.remote.member import Member
from editd.remote.membership import (
    begin_log,
    claim_name,
    count_files,
    join_log,
    release_name,
    return_to_log,
    send_mine,
)
from editd.store.git_objects import oid_of
from editd.store.git_repository import is_store
from editd.store.history import store_of
from editd.system.fast_exit import exit_fast
from editd.system.frames import Frame, read_frame, write_frame
from editd.values.excluded_paths import ExcludedPaths
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId

if TYPE_CHECKING:
    from collections.abc import Sequence


class Worker:
    """The process of one daemon. The exchange is opened by its first round."""

    def __init__(self, folder: str, sockets: str) -> None:
        self._folder = folder
        self._sockets = sockets
        self._exchange: Exchange | None = None
        self._member: Member | None = None  # of the open exchange
        self._reader: LogReader | None = None

    def answer(self, asked: Frame) -> Frame:
        """Answer one request. A failure is `{failed, hint}`, and leaves nothing open."""
        held = tuple((path, seq) for path, seq in asked.get("held", ()))
        released = tuple(map(tuple, asked.get("released", ())))
        excluded = tuple(map(ExcludedPaths.of, asked["excluded"]))
        member = Member(
            asked["url"], asked["ref"], asked["host"], tuple(asked["exclude"]), excluded, self._sockets,
            held, released, asked.get("earlier"),
        )  # fmt: skip
        if not os.path.isdir(store_of(self._folder)):
            return self._gone()
        try:
            return self._do(asked, member)
        except UnknownTransaction as refusal:
            return {"unknown": refusal.message, "hint": refusal.advice.to_plain(), "tx": refusal.data["tx"]}
        except Refused as refusal:
            self._forget()
            is_forked = isinstance(refusal, CopyLost)
            return {"failed": refusal.message, "hint": refusal.advice.to_plain(), "forked": is_forked}
        except (OSError, KeyError, ValueError, pygit2.GitError) as error:
            if not os.path.isdir(store_of(self._folder)):
                return self._gone()
            self._forget()
            if not is_store(shared_of(self._folder)):
                return {"failed": "This host's copy of the log was deleted. It is fetched again.", "hint": ""}
            return {"failed": f"The exchange failed: {type(error).__name__}: {error}.", "hint": ""}

    def _gone(self) -> Frame:
        self._forget()
        return {"failed": f"Nothing is exchanged, because the history in {self._folder} is gone.", "hint": ""}

    def _do(self, asked: Frame, member: Member) -> Frame:
        head, answer = oid_of(asked["head"]), Frame()
        match asked["do"]:
            case "init":
                answer = begin_log(self._folder, member, head, asked["time_us"])
            case "count":
                answer = count_files(self._folder, member, head)
            case "join":
                answer = join_log(self._folder, member, head)
            case "claim":
                answer = claim_name(self._folder, member)
            case "send":
                answer = send_mine(self._folder, member, head, asked["time_us"])
            case "release":
                release_name(self._folder, member)
            case "repair":
                self._repair(member, asked)
            case "blame":
                answer = self._read(member, asked).blame(WorkspacePath.parse(asked["path"]))
            case "changes":
                answer = self._read(member, asked).changes_between(asked["start"], asked["end"])
            case _:
                known = _known(asked, member.host)
                is_retry, may_land = asked.get("retry", False), asked["may_land"]
                answer = self._opened(member, asked).round(head, known, may_land=may_land, is_retry=is_retry)
        return answer

    def _opened(self, member: Member, asked: Frame) -> Exchange:
        if member != self._member:
            self._forget()
            self._member = member
        if self._exchange is None:
            self._exchange = Exchange(self._folder, member, asked["taken"], asked["through"], asked["head"])
        return self._exchange

    def _repair(self, member: Member, asked: Frame) -> None:
        """Prepare to follow the log on the server. The exchange is opened anew afterwards."""
        head = oid_of(asked["head"])
        try:
            self._opened(member, asked).repair(head)
        except CopyLost:
            return_to_log(self._folder, member, asked["taken"], asked["through"], head)
        self._forget()

    def _read(self, member: Member, asked: Frame) -> LogReader:
        """Return the reader of the log, with this host's history up to `head`."""
        exchange = self._opened(member, asked)
        exchange.catch_up(oid_of(asked["head"]))
        if self._reader is None:
            self._reader = LogReader(self._folder, exchange)
        return self._reader

    def _forget(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


def _known(asked: Frame, host: str) -> Known:
    settled = [
        SettledAside(CommitId(about), state, host, as_text(Authorship(actor, session, message)), time_us)
        for about, state, actor, session, message, time_us in asked["settled"]
    ]
    return Known(frozenset(map(CommitId, asked["proposed"])), tuple(settled), asked["listed"])


def main(arguments: Sequence[str]) -> None:
    worker = Worker(*arguments)
    while (asked := read_frame(sys.stdin.buffer)) is not None:
        try:
            write_frame(sys.stdout.buffer, worker.answer(asked))
        except BrokenPipeError:
            break
    exit_fast()


if __name__ == "__main__":
    main(sys.argv[1:])
