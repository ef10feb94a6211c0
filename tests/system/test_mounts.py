from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from editd.system.mounts import mount_at, mount_of, mounts, mounts_below
from support import machine

if TYPE_CHECKING:
    from pathlib import Path

TABLE = rb"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard
40 27 0:40 / /work/a\040b/vendor rw,nosuid - nfs4 server:/export rw,vers=4.2
41 27 0:41 / /work/a\040b/vendor/cache rw - overlay overlay rw,lowerdir=/l,volatile
42 27 0:42 / /work/a\040b/vendor rw - fuse.sshfs host: rw,user_id=0
43 27 0:43 / /work/a\040bc rw - tmpfs tmpfs rw
44 27 7:0 / /work/stick rw - fuseblk /dev/loop0 rw
"""


def test_the_table_of_the_kernel_is_parsed(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_bytes(TABLE)
    known = mounts(str(table))
    assert known is not None
    root = known[1]
    assert (root.number, root.path, root.kind) == (27, b"/", "ext4")
    assert {b"relatime", b"discard"} <= root.options
    below = mounts_below(b"/work/a b", known)
    assert {path: mount.kind for path, mount in below.items()} == {
        b"vendor": "fuse.sshfs",  # over the other one
        b"vendor/cache": "overlay",
    }
    places = (
        b"/",
        b"/work/a b",
        b"/work/a b/vendor",
        b"/work/a b/vendor/f",
        b"/work/a bc/d/e",
        b"/work/stick2",
    )
    assert [mount.number for path in places if (mount := mount_at(path, known))] == [27, 27, 42, 42, 43, 27]
    assert {mount.number for mount in known if mount.is_two_sided} == {40, 42}
    assert {mount.number for mount in known if mount.is_volatile} == {41, 43}
    assert set(mounts_below(b"/", known)) >= {b"proc", b"work/stick"}


def test_without_a_table_nothing_is_known(tmp_path: Path) -> None:
    assert mounts(str(tmp_path / "none")) is None
    assert mounts_below(b"/", None) == {}
    assert mount_at(b"/", None) is None


@pytest.mark.needs("/proc")
def test_an_open_file_tells_which_mount_it_is_on(tmp_path: Path) -> None:
    if (reason := machine.missing()) is not None:
        pytest.skip(reason)
    with machine.mounted("none", tmp_path / "memory", options="size=1m", kind="tmpfs"):
        descriptor = os.open(tmp_path / "memory", os.O_PATH)
        found = mount_of(descriptor, mounts())
        os.close(descriptor)
    assert found is not None
    assert (found.path, found.kind) == (os.fsencode(tmp_path / "memory"), "tmpfs")
