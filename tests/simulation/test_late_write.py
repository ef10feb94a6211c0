"""Another program writes late into a file that an edit has replaced, while the disk fails."""

from __future__ import annotations

import errno

import pytest

from editd.errors import IoError
from editd.values.content import version_of
from simulation.calls import Killed
from simulation.rules import is_temporary
from simulation.world import FAULT, World, worlds
from support.harness import apply, done, write

LATE = "written.txt"


def killed_behind_a_late_write(here: World) -> bytes:
    """Kill the daemon after an edit was answered, and before it has looked at the replaced file again."""
    here.start()
    assert here.engine is not None
    done(here.engine, apply(write(LATE, "old\n")))
    node = here.outsider.node(LATE)
    assert node is not None
    done(here.engine, apply(write(LATE, "new\n")))
    here.outsider.write_to(node, LATE)
    with pytest.raises(Killed):
        here.die()
    here.bury()
    return bytes(node.content)


def test_it_is_kept_if_neither_the_file_nor_the_journal_can_take_it() -> None:
    with worlds() as made, made.world(1) as here:
        content = killed_behind_a_late_write(here)
        here.later_at("exchange", 2, FAULT, lambda: here.fail(errno.EIO))  # the first one tries the disk
        here.later_at("fsync", 2, FAULT, lambda: here.fail(errno.EIO))  # of the journal
        here.start()
        assert here.faults > 0
        assert here.engine is not None
        version = version_of(content)
        is_recorded = here.engine.history.content(version) is not None
        assert is_recorded or (here.folder / "state" / "strays" / version).read_bytes() == content


def test_a_start_that_can_keep_it_nowhere_is_refused_and_the_next_one_has_it() -> None:
    with worlds() as made, made.world(1) as here:
        content = killed_behind_a_late_write(here)
        here.later_at("exchange", 2, FAULT, lambda: here.fail(errno.EIO))
        here.later_at("fsync", 1, FAULT, lambda: here.fail(errno.ENOSPC))
        with pytest.raises(IoError, match=rf"{LATE} could not be kept"):
            here.start()
        here.bury()
        here.start()
        assert here.engine is not None
        assert here.engine.history.content(version_of(content)) == content


def test_a_replaced_file_that_cannot_be_moved_stays_for_the_program_that_writes_to_it() -> None:
    """The program has the file open before the edit is answered, and writes after it."""
    with worlds() as made, made.world(1) as here:
        here.start()
        assert here.engine is not None
        done(here.engine, apply(write(LATE, "old\n")))
        node = here.outsider.node(LATE)
        assert node is not None
        for _ in range(2):  # it is tried again at once
            here.later_at("move", 1, FAULT, lambda: here.fail(errno.EIO))
        done(here.engine, apply(write(LATE, "new\n")))
        here.engine.recorder.clean_up()
        assert here.faults == 2
        here.outsider.write_to(node, LATE)
        with pytest.raises(Killed):
            here.die()
        here.bury()
        here.start()
        assert here.engine.history.content(version_of(bytes(node.content))) == bytes(node.content)


def test_a_replaced_file_is_moved_by_the_next_edit_if_the_disk_works_again() -> None:
    with worlds() as made, made.world(1) as here:
        here.start()
        assert here.engine is not None
        done(here.engine, apply(write(LATE, "old\n")))
        for _ in range(2):  # it is tried again at once
            here.later_at("move", 1, FAULT, lambda: here.fail(errno.EIO))
        done(here.engine, apply(write(LATE, "new\n")))
        here.engine.recorder.clean_up()
        assert here.faults == 2
        left = [path for path in here.paths() if is_temporary(path)]
        assert len(left) == 1
        done(here.engine, apply(write("other.txt", "text\n")))
        here.engine.recorder.clean_up()
        assert [path for path in here.paths() if is_temporary(path)] == []
