"""The main job on real input: the history of a real project, through the socket and back out by undo.

Each step from one release of click to the next is one transaction. The oracle for what merges and what
does not is `git merge-file` and the rules for what is there or not, written down here once more.
"""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd.values.content import version_of
from editd.wire.messages import AnyEdit, Chmod, Delete, Patch, Write
from editd_client.errors import EditdError
from support.crash_checks import fsck, in_the_long_form, strays
from support.releases import CLICK, Held, Release, releases
from support.workspace_model import No, merge_contents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from editd_client.client import Client
    from support.workplace import Workplace

LAST = len(CLICK) - 1  # transactions, and the seq of the last of them
READ_EVERY = 5  # releases: the short form reads the files of one of them from the history


@pytest.fixture(scope="module")
def click(request: pytest.FixtureRequest) -> list[Release]:
    return releases(request.config.rootpath / ".pytest_cache" / "click")


def lay_out(root: Path, release: Release) -> None:
    for path, held in release.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(held.content)
        target.chmod(0o755 if held.is_executable else 0o644)


def held_by(place: Workplace) -> Release:
    """What the workspace holds: nothing of the daemon's own."""
    found: Release = {}
    for folder, _, names in os.walk(place.root):
        for name in names:
            path = Path(folder, name)
            found[str(path.relative_to(place.root))] = Held(
                path.read_bytes(), bool(path.stat().st_mode & 0o100)
            )
    return found


def step(before: Release, after: Release) -> list[AnyEdit]:
    """The difference between two releases as edits, each with its base."""
    edits: list[AnyEdit] = []
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        base = None if old is None else version_of(old.content)
        if new is None:
            edits.append(Delete(path=path, base=base))
            continue
        if old is None or old.content != new.content:
            edits.append(Write(path=path, content=new.content.decode("utf-8", "surrogateescape"), base=base))
        if new.is_executable != (old is not None and old.is_executable):
            edits.append(Chmod(path=path, executable=new.is_executable))
    return edits


def replay(client: Client, place: Workplace, click: list[Release]) -> None:
    for number in range(1, len(click)):
        made = client.apply(step(click[number - 1], click[number]), message=CLICK[number]).transaction
        assert made is not None
        assert made.seq == number
        assert held_by(place) == click[number], CLICK[number]


def undo_all(client: Client, place: Workplace, click: list[Release]) -> None:
    for number in range(LAST, 0, -1):
        undone = client.undo().transaction
        assert undone is not None
        assert undone.undoes == [number]
        assert held_by(place) == click[number - 1], f"{CLICK[number]} undone"


def all_is_well(client: Client, place: Workplace, transactions: int) -> None:
    """The history has these transactions and nothing of anybody else's, and every check says so."""
    assert client.check().problems == []
    assert [made.seq for made in client.log(limit=10_000).transactions] == list(range(transactions, -1, -1))
    assert not client.log(kind="outside").transactions
    client.shutdown()
    client.close()
    assert place.process is not None
    assert place.process.wait(30) == 0
    fsck(place)
    assert strays(place.root) == []
    assert int(place.git("rev-list", "--count", "history", store=True)) == transactions + 1


def test_the_releases_have_all_kinds_of_change(click: list[Release]) -> None:
    edits = [edit for number in range(1, len(click)) for edit in step(click[number - 1], click[number])]
    created = [edit for edit in edits if isinstance(edit, Write) and edit.base is None]
    assert len(click) > 15
    assert len(created) > 10
    assert sum(isinstance(edit, Write) for edit in edits) - len(created) > 100
    assert sum(isinstance(edit, Delete) for edit in edits) > 10
    assert sum(isinstance(edit, Chmod) for edit in edits) == LAST
    assert any(b"\0" in held.content for held in click[0].values()), "binary files, too"


def test_every_release_is_reached_undone_and_redone_byte_for_byte(
    place: Workplace, click: list[Release], is_long: bool
) -> None:
    lay_out(place.root, click[0])
    client = place.start()
    replay(client, place, click)
    undo_all(client, place, click)
    for number in range(1, len(click)):
        client.redo()
        assert held_by(place) == click[number], f"{CLICK[number]} redone"
    for number in range(0, len(click), 1 if is_long else READ_EVERY):
        release = click[number]
        read = {path: client.read(path, at=number).content for path in release}
        assert {path: text.encode("utf-8", "surrogateescape") for path, text in read.items()} == {
            path: held.content for path, held in release.items()
        }
    all_is_well(client, place, 3 * LAST)


@pytest.mark.long
def test_the_same_as_git_patches_gives_the_same_bytes(
    place: Workplace, click: list[Release], tmp_path: Path
) -> None:
    lay_out(place.root, click[0])
    client = place.start()
    for number, patch in enumerate(patches(tmp_path / "scratch", click, place.environment), 1):
        client.apply([Patch(patch=patch)], message=CLICK[number])
        assert held_by(place) == click[number], CLICK[number]
    undo_all(client, place, click)
    all_is_well(client, place, 2 * LAST)


def patches(scratch: Path, click: list[Release], environment: dict[str, str]) -> Iterable[str]:
    """Each step as git writes it, with renames and binary files, from a repository of its own."""
    scratch.mkdir()

    def git(*argv: str) -> bytes:
        given = ["git", "-C", str(scratch), "-c", "user.name=A", "-c", "user.email=a@example.org", *argv]
        return subprocess.run(given, env=environment, capture_output=True, check=True).stdout

    git("init")
    for number, release in enumerate(click):
        if number:
            git("rm", "-r", "--quiet", ".")
        lay_out(scratch, release)
        git("add", "--all", "--force", ".")
        git("commit", "--message", CLICK[number])
        if number:
            yield git("diff", "--binary", "--find-renames", "HEAD~", "HEAD").decode(
                "utf-8", "surrogateescape"
            )


@pytest.mark.parametrize("is_split", [False, in_the_long_form(True)], ids=["a-release-each", "a-file-each"])
def test_undone_oldest_first_each_merges_or_conflicts_and_changes_nothing(
    place: Workplace, click: list[Release], is_split: bool, is_long: bool
) -> None:
    """Every release changes its number and the change log, so most steps overlap; fewer files do."""
    if not is_long:
        click = click[::3]
    lay_out(place.root, click[0])
    client = place.start()
    steps = [pair for pair in pairwise(click) for pair in (split(*pair) if is_split else [pair])]
    for before, after in steps:
        client.apply(step(before, after))
    now, last, undone = click[-1], len(steps), list[int]()
    assert held_by(place) == now
    for number, (before, after) in enumerate(steps, 1):
        expected, colliding = without(now, after, before)
        refusal, answer = None, None
        try:
            answer = client.undo(number).transaction
        except EditdError as error:
            refusal = error
        if refusal is not None:
            assert refusal.name == "conflict"
            named = {file["path"]: file["blocking"] for file in refusal.data["files"]}
            assert named
            assert named.keys() <= colliding, "git's merge is clean there"
            # An undo of an older one is in the way, too.
            later = set(range(number + 1, last + len(undone) + 1))
            assert all(blocking and later.issuperset(blocking) for blocking in named.values()), named
        else:
            assert answer is not None
            assert answer.undoes == [number]
            undone.append(number)
            assert answer.seq == last + len(undone)
            neighbours = {path: held for path, held in held_by(place).items() if path in colliding}
            now = {path: held for path, held in expected.items() if path not in colliding} | neighbours
        assert held_by(place) == now, f"{number}: {'undone' if number in undone else 'refused'}"
    assert 0 < len(undone) < last, "both must be seen"
    all_is_well(client, place, last + len(undone))


def split(before: Release, after: Release) -> Iterable[tuple[Release, Release]]:
    """One step as many, of one path each: what that held, and what it holds then."""
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            yield ({} if old is None else {path: old}), ({} if new is None else {path: new})


def without(now: Release, made: Release, before: Release) -> tuple[Release, set[str]]:
    """Return `now` without the step from `before` to `made`, and the paths at which git's merge collides.

    At such a path undo may still find that only neighbours were changed (tests/edits/test_line_changes.py).
    """
    result, colliding = dict(now), set[str]()
    for path in made.keys() | before.keys():
        try:
            merged = merge(made.get(path), now.get(path), before.get(path))
        except No:
            colliding.add(path)
            continue
        result.pop(path, None)
        if merged is not None:
            result[path] = merged
    return result, colliding


def merge(base: Held | None, ours: Held | None, theirs: Held | None) -> Held | None:
    if theirs in (base, ours):
        return ours
    if base == ours:
        return theirs
    if base is None or ours is None or theirs is None:
        raise No("conflict")
    is_executable = ours.is_executable if theirs.is_executable == base.is_executable else theirs.is_executable
    if theirs.content in (base.content, ours.content):
        return Held(ours.content, is_executable)
    if base.content == ours.content:
        return Held(theirs.content, is_executable)
    content = merge_contents(base.content, ours.content, theirs.content, is_undo=False)
    return Held(content, is_executable)
