"""A disk that dies under a running daemon: whatever is asked of it says so, and what was answered is there
once the disk is back.

ext4 is shut down as it is by a device that fails for good (EXT4_IOC_SHUTDOWN): from then on every call that
needs the disk is EIO, and what is in the page cache can still be read.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd.system.filesystem import Disk
from support import machine as machines
from support.crash_checks import fsck, strays
from support.every_method import FOUND, METHODS
from support.machine import mounted, new_image
from support.outside import asked
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN of linux/fs/ext4/ext4.h, _IOR('X', 125, __u32)
NO_FLUSH = 2  # what is in memory only is lost, as by a device that is gone
OTHERS: dict[str, Callable[[Client], object]] = {
    "hello": lambda client: client.hello(),
    "check": lambda client: client.check(),
    "check, and mend": lambda client: client.check(repair=True),
    "log": lambda client: client.log(),
    "log of a session": lambda client: client.log(session="s"),
    "show": lambda client: client.show(2),
    "show head": lambda client: client.show(3, diff=False),
    "diff": lambda client: client.diff(),
    "undo": lambda client: client.undo(),
    "redo": lambda client: client.redo(),
    "rollback": lambda client: client.rollback("s"),
    "restore": lambda client: client.restore(1),
    "gc": lambda client: client.gc(),
    "sessions": lambda client: client.session_list(),
    "leases": lambda client: client.lease_list(),
    "a session": lambda client: client.session_open("another", actor="agent"),
    "settle": lambda client: client.settle(),
}


def die(where: Path) -> None:
    """The disk is gone. Skips where this kernel cannot shut a file system down."""
    descriptor = os.open(where, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_FLUSH))
    except OSError as error:
        pytest.skip(f"ext4 cannot be shut down here: {error}")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("dead", ["state", "workspace"])
def test_every_method_says_that_the_disk_is_dead_and_what_was_answered_is_there_when_it_is_back(
    tmp_path: Path, dead: str
) -> None:
    if (reason := machines.missing()) is not None:
        pytest.skip(reason)
    image = new_image(tmp_path)
    with workplace(tmp_path / "place") as place:
        with mounted(image, place.folder / dead):
            head = dying(place, place.folder / dead)
            place.kill()
        with mounted(image, place.folder / dead):
            with place.start() as client:
                assert client.status().head >= head
                assert client.read("another").content == "one\n"
                assert client.read("file").content == f"{FOUND}, again"
                client.apply([write("another", "two\n")])
                assert client.check().problems == []
                assert strays(place.root) == []
            place.stop()
            fsck(place)


def test_a_daemon_that_is_killed_with_its_disk_redoes_what_the_page_cache_has_lost(tmp_path: Path) -> None:
    """The machine goes on, so the boot is the same; that it is another mount tells."""
    if (reason := machines.missing()) is not None:
        pytest.skip(reason)
    image = new_image(tmp_path)
    with workplace(tmp_path / "place") as place:
        with mounted(image, place.root):
            with contextlib.closing(Disk(str(place.root))) as disk:
                if not disk.mount:
                    pytest.skip("this kernel does not tell one mount from another")
            with place.start() as client:
                client.apply([write("file", FOUND)])
                client.settle()
                os.sync()
                client.apply([write("file", "one\n"), write("another", "two\n")])
                client.apply([write("third", "three\n")])
            die(place.root)
            place.kill()
        with mounted(image, place.root):
            assert place.files() == {"file": FOUND.encode()}
            with place.start() as client:
                assert place.files() == {"file": b"one\n", "another": b"two\n", "third": b"three\n"}
                assert client.check().problems == []
            place.stop()


def dying(place: Workplace, where: Path) -> int:
    """The newest transaction that was answered before the disk died; the daemon still runs."""
    place.write({"plain": FOUND})
    with place.start() as client:
        client.apply([write("file", FOUND)])
        client.apply([write("file", f"{FOUND}, again")], session="s")
        client.settle()
        client.apply([write("another", "one\n")])
        head = client.status().head
        die(where)
        refusal, said = asked(partial(client.apply, [write("file", "lost", force=True)]))
        assert refusal == "io_error", said
        asking = {name: partial(method, client, str(place.root), "file") for name, method in METHODS.items()}
        asking |= {name: partial(ask, client) for name, ask in OTHERS.items()}
        answers = {name: asked(ask) for name, ask in asking.items()}
        faults = {name: said for name, (refusal, said) in answers.items() if refusal == "internal_error"}
        assert not faults
        assert not client.check().ok
    return head
