"""The wrong tries of the PIN in the last hour, in one file for all daemons of the user.

A try counts as wrong before it is compared, and a right one is taken back. So tries that run at once, and a
restart, do not go beyond the limit. The tries of one tree of processes count together: an agent that has
used up its own does not lock out a person elsewhere. `tree_of` names the tree.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from editd.errors import IoError, Overloaded
from editd.review.lineage import common_process
from editd.system.files import replace_file
from editd.system.flock import take
from editd.system.proc import boot_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.system.process import Process

TREE_TRIES_MAX = 5  # wrong PINs of one tree of processes, within TRIES_SECONDS
ALL_TRIES_MAX = 50  # of all trees, because an agent may propose from many trees
TRIES_SECONDS = 3600.0
ELSEWHERE = "elsewhere"  # the tree of the processes that are no author's kin
FILE = "pin-tries"


class PinTry(Struct, frozen=True, array_like=True):
    """A wrong try: its time in microseconds since 1970, and its tree."""

    at_us: int
    tree: str


def tree_of(authors: Iterable[Sequence[Process]], caller: Sequence[Process]) -> str:
    """Return the name of the tree that a caller belongs to: that below its nearest process of an author's.

    The shell of an agent is below the agent. A terminal in the editor that has started the agent is below
    the editor only.
    """
    above = caller[1:]  # not the process itself, or each process of an agent would have its own tries
    nearest = len(above)
    for author in authors:
        shared = common_process(author, above)
        if shared is not None:
            nearest = min(nearest, above.index(shared))
    return ELSEWHERE if nearest == len(above) else tree_below(above[nearest])


def tree_below(process: Process) -> str:
    """Return the name of the tree of processes below one."""
    return f"{boot_name()}:{process.pid}:{process.start}"


class PinTries:
    """The tries in the file of a folder that exists."""

    def __init__(self, folder: str, now_us: Callable[[], int]) -> None:
        self._path = os.path.join(folder, FILE)
        self._now_us = now_us

    def begin(self, tree: str) -> None:
        """Count a try as wrong before it is compared. Raises Overloaded beyond a limit, and IoError."""
        self._change(lambda tries: self._with_another(tries, tree))

    def take_back(self, tree: str) -> None:
        """Forget the newest try of a tree, because its PIN was right. Raises IoError."""
        self._change(lambda tries: _without_newest(tries, tree))

    def _with_another(self, tries: list[PinTry], tree: str) -> list[PinTry]:
        own = [one for one in tries if one.tree == tree]
        if len(own) >= TREE_TRIES_MAX:
            raise self._refusal(own[-TREE_TRIES_MAX], TREE_TRIES_MAX)
        if len(tries) >= ALL_TRIES_MAX:
            raise self._refusal(tries[-ALL_TRIES_MAX], ALL_TRIES_MAX)
        return [*tries, PinTry(self._now_us(), tree)]

    def _refusal(self, first: PinTry, limit: int) -> Overloaded:
        wait = first.at_us / 1e6 + TRIES_SECONDS - self._now_us() / 1e6
        return Overloaded(
            f"The PIN was wrong {limit} times within an hour.",
            hint=f"Wait {max(wait / 60, 1):.0f} minutes, "
            "or decide from a program that the author did not start.",
        )

    def _change(self, change: Callable[[list[PinTry]], list[PinTry]]) -> None:
        """Replace the tries of the last hour. Another daemon waits meanwhile."""
        try:
            lock = take(f"{self._path}.lock", wait=True)
            try:
                replace_file(self._path, msgspec.json.encode(change(self._latest())))
            finally:
                if lock is not None:
                    lock.release()
        except OSError as error:
            raise IoError(error, f"The tries of the PIN cannot be kept in {self._path}") from error

    def _latest(self) -> list[PinTry]:
        """Return the tries of the last hour, the oldest first. A clock that was set back forgets none."""
        now = self._now_us()
        try:
            with open(self._path, "rb") as file:
                tries = msgspec.json.decode(file.read(), type=list[PinTry])
        except FileNotFoundError:
            return []
        except (msgspec.DecodeError, ValueError) as error:
            raise IoError(
                OSError(str(error)), f"The tries of the PIN are damaged. Delete {self._path}"
            ) from error
        return [one for one in tries if abs(now - one.at_us) < TRIES_SECONDS * 1e6]


def _without_newest(tries: list[PinTry], tree: str) -> list[PinTry]:
    newest = max((at for at, one in enumerate(tries) if one.tree == tree), default=len(tries))
    return tries[:newest] + tries[newest + 1 :]
