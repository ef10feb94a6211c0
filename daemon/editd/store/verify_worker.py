"""The process of a `check` that verifies the whole history, while packing goes on.

`python -m editd.store.verify_worker STATE_FOLDER`, framed messages on stdin and stdout (`system.frames`).
Each check starts one. A child of it verifies the objects, beside the transactions. They write nothing but the
mark of the verification (`store.verified`), and end with the daemon, however long they would have taken.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import TYPE_CHECKING, BinaryIO

from editd.store.git_repository import shared_lock
from editd.store.verified import read_verified, write_verified
from editd.store.verify_history import damaged_objects, verify_since
from editd.system.confinement import confine
from editd.system.fast_exit import exit_fast
from editd.system.frames import read_frame, write_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator


def main() -> None:
    """Serve one request: `{through, full}` → `{problems, damaged, known, known_us}`.

    `known` is the transaction up to which an earlier verification counts, at the time `known_us`.
    """
    request = read_frame(sys.stdin.buffer)
    if request is None:
        return
    folder = sys.argv[1]
    store = os.path.join(folder, "store.git")
    confine([folder])
    with _beside(lambda packs: damaged_objects(store, packs)) as begin, shared_lock(store):
        known = None if request["full"] else read_verified(folder)
        done = verify_since(folder, request["through"], known, begin)
        with contextlib.suppress(OSError):  # as on a full disk: the next check verifies more
            write_verified(folder, done.mark)
    answer = {"problems": done.problems, "damaged": done.is_damaged, "known": None, "known_us": None}
    if done.known is not None:
        answer |= {"known": done.known.seq, "known_us": done.known.time_us}
    write_frame(sys.stdout.buffer, answer)


@contextlib.contextmanager
def _beside(
    damaged: Callable[[Collection[str]], list[str]],
) -> Iterator[Callable[[Collection[str]], Callable[[], list[str]]]]:
    """Make a child process that verifies objects; yield a function that sends it the names of packs."""
    (asked, asking), (answers, answering) = os.pipe(), os.pipe()
    pid = os.fork()  # before there is a thread
    if pid == 0:
        os.close(asking)
        os.close(answers)
        _end_with_the_daemon()
        with open(asked, "rb") as requests, open(answering, "wb") as replies:
            while (request := read_frame(requests)) is not None:
                write_frame(replies, {"problems": damaged(request["packs"])})
        os._exit(0)
    os.close(asked)
    os.close(answering)
    _end_with_the_daemon()
    with open(asking, "wb") as to_child, open(answers, "rb") as from_child:

        def begin(packs: Collection[str]) -> Callable[[], list[str]]:
            write_frame(to_child, {"packs": list(packs)})
            return lambda: _problems_in(from_child)

        yield begin
    os.waitpid(pid, 0)


def _problems_in(replies: BinaryIO) -> list[str]:
    answer = read_frame(replies)
    if answer is None:
        raise ChildProcessError("the process that verifies the objects ended before it was done")
    problems: list[str] = answer["problems"]
    return problems


def _end_with_the_daemon() -> None:
    """End this process once the daemon has closed its end of stdin."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    main()
    exit_fast()
