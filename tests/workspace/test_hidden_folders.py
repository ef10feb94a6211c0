"""A mount that comes over a folder: what it hides is not deleted."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support import machine
from support.crash_checks import transactions
from support.workplace import replace, write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace


def mount(stack: ExitStack, where: Path) -> None:
    try:
        stack.enter_context(machine.mounted("none", where, options="size=1m", kind="tmpfs"))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nothing can be mounted here: {error.stderr!r}")


@pytest.mark.needs("/proc")
def test_what_a_mount_hides_is_not_recorded_as_deleted_and_status_names_it(place: Workplace) -> None:
    place.write({"data/a": "a\n", "data/deep/b": "b\n", "empty/.keep": ""})
    (place.root / "empty" / ".keep").unlink()
    with place.start() as client:
        client.settle()
        assert client.status().uncovered == []
        with ExitStack() as stack:
            mount(stack, place.root / "data")
            place.write({"data/other": "on the mount\n", "data/a": "on the mount, too\n"})
            client.settle()
            assert client.check().problems == []
            assert transactions(client) == []
            (told,) = (sentence for sentence in client.status().uncovered if "hidden" in sentence)
            assert told.startswith("data is hidden")
            with pytest.raises(EditdError, match="data/new is hidden") as refused:
                client.apply([write("data/new", "text\n")])
            assert refused.value.name == "permission_denied"
            assert "Unmount data" in str(refused.value.hint)
            with pytest.raises(EditdError, match="data/deep/b is hidden"):
                client.read("data/deep/b")
            with pytest.raises(EditdError, match="data/deep/b is hidden"):
                client.apply([replace("data/deep/b", "b", "c")])
            client.apply([write("beside", "text\n"), write("database", "text\n")])
        client.settle()
        assert client.check().problems == []
        assert not any("hidden" in sentence for sentence in client.status().uncovered)
        assert [tx.kind for tx in transactions(client)] == ["edit"]
        client.apply([write("data/a", "changed\n")])
        assert client.read("data/deep/b").content == "b\n"
        with ExitStack() as stack:
            mount(stack, place.root / "empty")  # which hides nothing
            client.apply([write("empty/new", "text\n")])
            assert not any("hidden" in sentence for sentence in client.status().uncovered)
    place.stop()


@pytest.mark.needs("/proc")
def test_a_mount_that_came_while_no_daemon_ran_hides_what_the_history_knows(place: Workplace) -> None:
    place.write({"data/a": "a\n", "data/deep/b": "b\n"})
    with place.start() as client:
        client.settle()
    place.kill()
    with ExitStack() as stack:
        mount(stack, place.root / "data")
        place.write({"data/other": "on the mount\n"})
        for _ in range(2):  # of which the second start knows that it was hidden
            with place.start() as client:
                client.settle()
                assert transactions(client) == []
                assert client.check().problems == []
                (told,) = (sentence for sentence in client.status().uncovered if "hidden" in sentence)
                assert told.startswith("data is hidden")
            place.stop()
    with place.start() as client:
        client.settle()
        assert client.status().uncovered == []
        assert transactions(client) == []
        assert client.read("data/deep/b").content == "b\n"
    place.stop()


def test_a_mount_whose_files_the_history_knows_hides_nothing_after_a_restart(place: Workplace) -> None:
    with ExitStack() as stack:
        for name in ("before", "later"):
            (place.root / name).mkdir()
        mount(stack, place.root / "before")
        place.write({"before/a": "a\n"})
        with place.start() as client:
            client.settle()
            mount(stack, place.root / "later")
            place.write({"later/b": "b\n"})
            client.settle()
        place.kill()
        place.write({"before/a": "changed\n", "later/b": "changed\n"})
        with place.start() as client:
            client.settle()
            assert not any("hidden" in sentence for sentence in client.status().uncovered)
            assert client.read("before/a", at=client.status().head).content == "changed\n"
            assert client.read("later/b", at=client.status().head).content == "changed\n"
        place.stop()
