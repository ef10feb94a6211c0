"""A file or a symlink where a folder was, and a folder where a file was: nobody said so, and it is found out.

In git's trees a name is one thing. What the history had where there is no room for it now is recorded as
gone before, or with, what has come: else the history could not be packed.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Move, Symlink
from editd_client.errors import EditdError
from support.crash_checks import fsck, in_the_long_form, transactions
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from editd.wire.messages import AnyEdit
    from editd_client.client import Client
    from support.workplace import Workplace

GONE = {"sub/f", "sub/deep/g"}


def to_symlink(root: Path) -> None:
    shutil.rmtree(root / "sub")
    (root / "sub").symlink_to("x")


def to_file(root: Path) -> None:
    shutil.rmtree(root / "sub")
    (root / "sub").write_text("a file\n")


def to_nothing(root: Path) -> None:
    shutil.rmtree(root / "sub")


def to_folder(root: Path) -> None:
    (root / "x").unlink()
    (root / "x").mkdir()
    (root / "x/y").write_text("below\n")


def no_more(root: Path) -> None:
    (root / "x").unlink()


MEETINGS: dict[str, tuple[Callable[[Path], None], Callable[[Client], object], set[str]]] = {
    "a symlink is read": (to_symlink, lambda client: client.read("sub"), GONE),
    "a file is read": (to_file, lambda client: client.read("sub"), GONE),
    "a file is written": (to_file, lambda client: client.apply([write("sub", "new\n")]), GONE),
    "a symlink is made": (to_nothing, lambda client: apply(client, Symlink(path="sub", target="x")), GONE),
    "a file is made": (to_nothing, lambda client: apply(client, write("sub", "new\n")), GONE),
    "a file is moved there": (to_nothing, lambda client: apply(client, Move(path="z", to="sub")), GONE),
    "a symlink is moved away": (to_symlink, lambda client: apply(client, Move(path="sub", to="l")), GONE),
    "a file below is read": (to_folder, lambda client: client.read("x/y"), {"x"}),
    "a file below is made": (to_folder, lambda client: apply(client, write("x/new/z", "")), {"x"}),
    "a folder is made by a file": (no_more, lambda client: apply(client, write("x/new/z", "")), {"x"}),
    "a file below is asked for": (to_symlink, lambda client: client.stat(["sub/f"]), GONE),
    "nobody asks": (to_symlink, lambda client: client.settle(), GONE),
}  # fmt: skip


def apply(client: Client, *edits: AnyEdit) -> None:
    client.apply(edits)


@pytest.mark.parametrize("meeting", [*list(MEETINGS)[:3], *map(in_the_long_form, list(MEETINGS)[3:])])
def test_what_there_is_no_room_for_is_recorded_as_gone(place: Workplace, meeting: str) -> None:
    change, meet, gone = MEETINGS[meeting]
    place.write({"sub/f": "1\n", "sub/deep/g": "2\n", "x": "x\n", "z": "z\n"})
    before = place.files()
    with place.start() as client:
        client.settle()
        change(place.root)
        meet(client)
        client.settle()
        deleted = {c.path for tx in transactions(client) for c in tx.files if c.change == "deleted"}
        assert gone <= deleted
        client.restore(0)
        assert place.files() == before
    place.stop()
    fsck(place)
    with place.start() as client:
        assert client.check().problems == []


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_file_is_not_put_below_a_file_that_somebody_has_just_written(
    place: Workplace, is_seen: bool
) -> None:
    place.write({"x": "x\n"})
    with place.start() as client:
        client.settle()
        for path in ("x", "new"):
            (place.root / path).write_text("theirs\n")
            if is_seen:
                client.settle()
            with pytest.raises(EditdError) as caught:
                client.apply([write(f"{path}/y", "ours\n")])
            assert caught.value.name == "not_a_file"
            assert (place.root / path).read_text() == "theirs\n"
