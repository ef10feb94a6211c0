"""What a file has beside its bytes, through everything that is done to it by the real daemon.

Mode bits, owner, ACL, extended attributes, capabilities, in a folder that gives new files a group and an ACL
of its own: as before after each verb, or said to be lost. Nothing is lost without a word.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Chmod, Delete, Move, Replace
from editd_client.errors import Unreachable
from support.outside import asked
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd.wire.messages import ApplyResult, UndoResult
    from editd_client.client import Client
    from support.workplace import Workplace

    Answer = ApplyResult | UndoResult

pytestmark = pytest.mark.disk  # reuses the numbers of files at once

IS_ROOT = os.geteuid() == 0
ACCESS, DEFAULT, CAPABILITY = "system.posix_acl_access", "system.posix_acl_default", "security.capability"
GROUP, NOBODY = 4321, 65534
NET_BIND = struct.pack(
    "<IIIII", 0x02000001, 1 << 10, 0, 0, 0
)  # cap_net_bind_service, as capabilities(7) has it


def acl(user: int, x: int = 0) -> bytes:
    """An ACL (acl(5)): rw- for the owner and for `user`, r-- for the group, nothing for others."""
    unnamed = 0xFFFFFFFF
    entries = [(1, 6, unnamed), (2, 6, user), (4, 4, unnamed), (0x10, 6, unnamed), (0x20, 0, unnamed)]
    packed = [struct.pack("<HHI", tag, bits | x, who) for tag, bits, who in entries]
    return struct.pack("<I", 2) + b"".join(packed)


@dataclass(frozen=True)
class Kind:
    """What a file is given."""

    mode: int = 0o644
    owner: tuple[int, int] | None = None
    attributes: dict[str, bytes] = field(default_factory=dict)

    def give(self, path: Path) -> None:
        if self.owner is not None:
            os.chown(path, *self.owner)
        path.chmod(self.mode)
        for name, value in self.attributes.items():
            os.setxattr(path, name, value)


KINDS: dict[str, Kind] = {f"{mode:04o}": Kind(mode) for mode in (
    0o600, 0o640, 0o644, 0o664, 0o666, 0o700, 0o711, 0o750, 0o755, 0o777, 0o1644, 0o2644, 0o2755, 0o4755,
    0o6755, 0o7777, *((0o200, 0o206, 0o300) if IS_ROOT else ()),
)} | {
    "attributes": Kind(attributes={"user.one": b"1", "user.two": b"\0\xff" * 100}),
    "acl": Kind(0o660, attributes={ACCESS: acl(NOBODY)}),
}  # fmt: skip
AS_ROOT = {
    "owner": Kind(owner=(1234, 5678)),
    "owner and setuid": Kind(0o4755, owner=(1234, 5678)),
    "capability": Kind(0o755, attributes={CAPABILITY: NET_BIND}),
    "trusted": Kind(attributes={"trusted.x": b"1"}),
    "all": Kind(
        0o2770,
        owner=(1234, 5678),
        attributes={"user.one": b"1", ACCESS: acl(1, x=1), CAPABILITY: NET_BIND, "trusted.x": b"1"},
    ),
}
if IS_ROOT:
    KINDS |= AS_ROOT


def facts(path: Path) -> Facts:
    found = path.lstat()
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, attributes


Facts = tuple[int, int, int, dict[str, bytes]]


def rewritten(found: Facts) -> Facts:
    """What a file has once its content is another one: nothing lets it run as its owner any more."""
    mode, uid, gid, attributes = found
    kept = {name: value for name, value in attributes.items() if name != CAPABILITY}
    return mode & ~0o6000, uid, gid, kept


def make(root: Path) -> dict[str, Facts]:
    """A file of each kind, in a folder that would give it another group and another ACL."""
    made: dict[str, tuple[int, int, int, dict[str, bytes]]] = {}
    folder = root / "d"
    folder.mkdir(exist_ok=True)
    for name, kind in KINDS.items():
        (folder / name).write_bytes(b"0\n")
        try:
            kind.give(folder / name)
        except OSError as error:
            if error.errno != errno.ENOTSUP:
                raise
            pytest.skip(f"{name} is not had on this file system")
        made[name] = facts(folder / name)
    if IS_ROOT:
        os.chown(folder, -1, GROUP)
        folder.chmod(0o2775)
    os.setxattr(folder, DEFAULT, acl(NOBODY, x=1))
    return made


def each(verb: Callable[[str], Answer]) -> Callable[[], list[Answer]]:
    return lambda: [verb(f"d/{name}") for name in KINDS]


def every_verb(client: Client) -> Iterator[tuple[str, Callable[[], list[Answer]], str]]:
    """What is done, in turn, and where the files are then."""
    yield "write", each(lambda path: client.apply([write(path, "1\n")], session="s")), "d"
    yield "undo", each(lambda path: client.undo(last=1)), "d"
    yield "redo", each(lambda _path: client.redo()), "d"
    yield "replace", each(lambda path: client.apply([Replace(path=path, old="1", new="2")], session="s")), "d"
    yield "rollback", lambda: [client.rollback("s")], "d"
    yield "restore", lambda: [client.restore(client.status().head - 1, paths=["d"])], "d"
    yield "move", each(lambda path: client.apply([Move(path=path, to=f"e/{path}")])), "e/d"
    yield "undo move", lambda: [client.undo(last=len(KINDS))], "d"
    moved = [Move(path=f"d/{name}", to=f"e/{name}") for name in KINDS]
    yield (
        "move with an edit",
        lambda: [client.apply([*moved, *(write(f"e/{name}", "3\n") for name in KINDS)])],
        "e",
    )
    yield "undo both", lambda: [client.undo()], "d"


@pytest.mark.needs("attributes")
def test_every_verb_keeps_what_a_file_has(place: Workplace) -> None:
    made = make(place.root)
    cells = 0
    with place.start() as client:
        client.settle()
        for name, verb, folder in every_verb(client):
            results = verb()
            for kind, result in zip(KINDS, results, strict=len(results) == len(KINDS)):
                is_told = name == "write" and rewritten(made[kind]) != made[kind]
                assert bool(result.warnings) is is_told, (name, kind, result.warnings)
            for kind, before in made.items():
                cells += 1
                assert facts(place.root / folder / kind) == rewritten(before), (name, kind)
    print(f"{cells} cells")


def test_x_is_changed_and_nothing_else_there_and_back(place: Workplace) -> None:
    made = make(place.root)
    with place.start() as client:
        client.settle()
        for kind, (mode, uid, gid, attributes) in made.items():
            if mode & 0o100 or ACCESS in attributes:  # `r` decides who gets x back: see the next test
                continue
            path = place.root / "d" / kind
            client.apply([Chmod(path=f"d/{kind}", executable=True)])
            assert facts(path) == (mode | (mode & 0o444) >> 2 | 0o100, uid, gid, attributes), kind
            client.undo()
            assert facts(path) == (mode, uid, gid, attributes), kind


@pytest.mark.needs("attributes")
def test_a_deleted_file_comes_back_with_its_mode_and_what_does_not_was_said(place: Workplace) -> None:
    made = make(place.root)
    with place.start() as client:
        client.settle()
        for kind, (mode, uid, gid, attributes) in made.items():
            path = place.root / "d" / kind
            told = client.apply([Delete(path=f"d/{kind}")]).warnings
            client.undo()
            back = facts(path)
            if not attributes:
                assert back[0] == mode & ~0o6000, kind
            lost = {name for name, value in attributes.items() if back[3].get(name) != value}
            lost |= {f"owner {uid}:{gid}"} if (uid, gid) != back[1:3] else set()
            lost |= {name for bit, name in ((0o4000, "setuid"), (0o2000, "setgid")) if mode & bit}
            for name in lost:
                assert any(name in warning for warning in told), (kind, name, told)
            if IS_ROOT and not lost and (uid, gid) == (0, GROUP):
                assert told == []


def test_a_moved_file_keeps_all_it_had_and_loses_its_privileges_with_its_content(place: Workplace) -> None:
    made = make(place.root)
    with place.start() as client:
        client.settle()
        client.apply([Move(path=f"d/{kind}", to=f"e/{kind}") for kind in KINDS])
        assert {kind: facts(place.root / "e" / kind) for kind in made} == made
        moves = [Move(path=f"e/{kind}", to=f"f/{kind}") for kind in KINDS]
        client.apply([*moves, *(write(f"f/{kind}", "1\n") for kind in KINDS)])
        after = {kind: rewritten(before) for kind, before in made.items()}
        assert {kind: facts(place.root / "f" / kind) for kind in made} == after


@pytest.mark.long
def test_what_a_kill_left_half_done_has_all_that_it_had(place: Workplace) -> None:
    """Killed right after the commit point, before the first file is in place."""
    made = make(place.root)
    place.start().close()
    place.stop()
    place.launcher = (sys.executable, str(Path(__file__).parent.parent / "support" / "dying_daemon.py"))
    with place.start() as client:
        asked(lambda: _apply_all(client))
    assert place.process is not None
    place.process.wait(30)
    assert {kind: facts(place.root / "d" / kind) for kind in made} == made
    assert {(place.root / "d" / kind).read_bytes() for kind in made} == {b"0\n"}
    place.launcher = ()
    with place.start() as client:
        after = {kind: rewritten(before) for kind, before in made.items()}
        assert {kind: facts(place.root / "d" / kind) for kind in made} == after
        assert {(place.root / "d" / kind).read_bytes() for kind in made} == {b"1\n"}
        assert client.check().problems == []


def _apply_all(client: Client) -> ApplyResult | None:
    try:
        return client.apply([write(f"d/{kind}", "1\n") for kind in KINDS])
    except Unreachable:
        return None
