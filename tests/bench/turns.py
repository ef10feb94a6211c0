"""The CPU time of `why` and `turns` in a long history: 1,000,000 transactions with 50,000 turns.

    python tests/bench/turns.py                       # the whole size, some minutes
    python tests/bench/turns.py --transactions 100000

The index and the file of the turns are filled without a daemon, because a million edits through a socket take
long. Then the daemon's own functions answer on them. The time is that of their process, from the handler's
call to its result: the socket and the codec are left out, and do not grow with the history.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from editd.engine.turns import KeptPrompt, NewTurn, SessionTurns
from editd.server.methods import turn_list, why
from editd.store.index import Index
from editd.store.line_blame import LineBlame
from editd.store.session_store import SessionStore
from editd.store.turn_store import TurnStore
from editd.values.content import FILE, Change, Entry, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Authorship, CommitId, Seq, Transaction, TurnMark
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.server.connection import ClientState
    from editd.server.methods import Services

FILES, LINES = 100, 400
IN_A_TURN = 20  # transactions
SESSIONS = 500
ASKED, ASKED_EDITS = WorkspacePath("asked.txt"), 40
ROUNDS = 50


class LongHistory:
    """The parts of a history that the methods ask, with synthetic transactions."""

    def __init__(self, folder: str, transactions: int) -> None:
        self.index = Index(os.path.join(folder, "index.db"))
        self.floor = SimpleNamespace(seq=0)
        self.head = transactions
        self.contents: dict[str, bytes] = {}
        self.every = transactions // ASKED_EDITS
        self._entries: list[Entry] = []
        lines = [f"line {number}\n" for number in range(LINES)]
        for number in range(ASKED_EDITS + 1):
            lines[number * (LINES // ASKED_EDITS) % LINES] = f"edit {number}\n"
            content = "".join(lines).encode()
            self._entries.append(Entry(FILE, version_of(content)))
            self.contents[self._entries[-1].version] = content

    def entry_at(self, _path: WorkspacePath, seq: int) -> Entry:
        return self._entries[min(seq // self.every, ASKED_EDITS)]

    def content(self, version: str) -> bytes | None:
        return self.contents.get(version)

    def is_dropped(self, version: str) -> bool:
        return version not in self.contents

    def made(self, seq: int) -> Transaction:
        """Return a transaction: one of the asked file in each `every`, otherwise one of another file."""
        touch = Change(WorkspacePath(f"f{seq % FILES}.txt"), None, Entry(FILE, version_of(b"%d" % seq)))
        if seq % self.every == 0:
            touch = Change(ASKED, self.entry_at(ASKED, seq - 1), self.entry_at(ASKED, seq))
        session, number = turn_of(seq)
        author = Authorship("codex", session, f"Change {touch.path}", turn=TurnMark(number, "gpt-5.5"))
        return Transaction(Seq(seq), CommitId(f"{seq:040x}"), "edit", author, seq * 1_000_000, (touch,))


def turn_of(seq: int) -> tuple[str, int]:
    """Return the session and the turn of a transaction: the sessions work one turn each, in circles."""
    turn = (seq - 1) // IN_A_TURN
    return f"codex-{turn % SESSIONS}", turn // SESSIONS + 1


class Ticks:
    """A clock that goes on by a second with each question."""

    def __init__(self) -> None:
        self.seconds = 0

    def now_us(self) -> int:
        self.seconds += 1
        return self.seconds * 1_000_000


def filled(folder: str, transactions: int) -> tuple[LongHistory, SessionTurns]:
    history = LongHistory(folder, transactions)
    baseline = Authorship("outside", None, "the workspace as first seen")
    touch = Change(ASKED, None, history.entry_at(ASKED, 0))
    history.index.add(Transaction(Seq(0), CommitId("0" * 40), "baseline", baseline, 0, (touch,)))
    for seq in range(1, transactions + 1):
        history.index.add(history.made(seq))
        history.index.flush_if_full()
    history.index.flush()
    store = TurnStore(folder)
    turns = SessionTurns(store, cast("Any", history), cast("Any", Ticks()))
    text = "Please make the numbers of the table right. " * 10
    for number in range(transactions // IN_A_TURN):
        session = f"codex-{number % SESSIONS}"
        kept = KeptPrompt(f"{number} {text}", "0" * 64, len(text), 0)
        turns.begin(NewTurn(session, "codex", session, model="gpt-5.5", prompt=kept))
    return history, turns


def milliseconds(ask: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        ask()
        times.append((time.process_time() - began) * 1000)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=1_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="editd-turns-") as folder:
        history, turns = filled(folder, given.transactions)
        services = cast("Services", SimpleNamespace(
            turns=turns,
            gate=SimpleNamespace(sees_prompts=lambda *_: True),
            guard=SimpleNamespace(registry=SessionStore(folder, 0)),
            engine=SimpleNamespace(history=history, landing=SimpleNamespace(proposals=None)),
        ))  # fmt: skip
        caller = cast("ClientState", None)

        def why_line() -> object:
            lines = LineBlame(
                cast("Any", history), ASKED, history.entry_at(ASKED, history.head).version, range(9, 10)
            )
            assert lines.run_for(60)
            return why.answer_of(services, "", ASKED, {10: lines.seqs[9]}, caller)

        def turns_of(session: str | None) -> Callable[[], object]:
            return lambda: turn_list.turns(services, messages.Turns(session=session), caller)

        print(f"{given.transactions:,} transactions, {given.transactions // IN_A_TURN:,} turns")
        print(f"  why of a line of a file with {ASKED_EDITS} edits: {milliseconds(why_line):.2f} ms")
        print(f"  turns, the newest 50 of all: {milliseconds(turns_of(None)):.2f} ms")
        print(f"  turns, the newest 50 of a session: {milliseconds(turns_of('codex-7')):.2f} ms")
        bytes_of_turn = os.path.getsize(os.path.join(folder, "turns.db")) * IN_A_TURN / given.transactions
        print(f"  turns.db: {bytes_of_turn:.0f} bytes a turn")
        history.index.close()
        turns.store.close()


if __name__ == "__main__":
    main()
