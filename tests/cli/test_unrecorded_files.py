"""`editctl exec` says of a file that was never recorded that no undo brings it back, before and after."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.workspace.scan import FILE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

BEFORE = "editctl: never recorded, so no undo brings it back: "
AFTER = "editctl: deleted or changed, and never recorded, so no undo brings it back: "
EDITS_MAX = 64 << 20  # `file_bytes_max`


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    """Of a workspace with files too large for the scan, one of which is too large for edits, too."""
    place.write({"data/big.bin": "", "huge.bin": "", "small": "1\n"})
    os.truncate(place.root / "data/big.bin", FILE_BYTES_MAX + 1)
    os.truncate(place.root / "huge.bin", EDITS_MAX + 1)
    place.git("init", "-q")
    with place.start() as made:
        made.settle()
        yield made


def test_a_removed_file_is_named_before_and_after(place: Workplace, client: Client) -> None:
    done = place.editctl("exec", "--", "rm", "-f", "data/big.bin", "small")
    lines = done.stderr.splitlines()
    assert lines[0] == f"{BEFORE}data/big.bin"
    assert lines[-1] == f"{AFTER}data/big.bin"
    assert [file.path for file in client.log().transactions[0].files] == ["small"]


def test_a_file_that_no_word_names_is_named_after_its_loss(place: Workplace, client: Client) -> None:
    done = place.editctl("exec", "--", "sh", "-c", "rm *.bin; for f in data/*; do echo x >>$f; done")
    assert done.stderr.splitlines() == [f"{AFTER}huge.bin, data/big.bin"]


def test_a_file_whose_folder_became_a_link_out_of_the_workspace_is_lost(
    place: Workplace, client: Client
) -> None:
    outside = place.folder / "outside"
    done = place.editctl("exec", "--", "sh", "-c", f"mv data {outside}; ln -s {outside} data")
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == f"{AFTER}data/big.bin"
    recorded = client.log().transactions[0]
    assert (recorded.kind, [file.path for file in recorded.files]) == ("exec", ["data"])


def test_a_folder_names_what_is_in_it_and_a_kept_file_is_not_lost(place: Workplace, client: Client) -> None:
    done = place.editctl("exec", "--", "ls", "data")
    assert done.stderr.splitlines() == [f"{BEFORE}data/big.bin"]
    assert place.editctl("exec", "--", "cat", "small").stderr == ""


def test_status_names_the_files_that_no_edit_may_touch_apart(client: Client) -> None:
    assert client.status().uncovered == [
        "1 file is over 16 MiB and is captured when an edit touches it: data/big.bin",
        "1 file is over 64 MiB (`file_bytes_max`) and is never recorded, read or edited: huge.bin",
    ]
