"""The walk: what it finds, what it believes of its last time, and that nobody leads it out of the root."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from editd.values.content import EXECUTABLE, FILE, SYMLINK, GitMode, Version, version_of
from editd.workspace import scan
from editd.workspace.scan import Known, Walk, load_known, save_known
from editd.workspace.scope import WorkspaceScope

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def walk(root: Path, known: Known | None = None) -> Walk:
    return Walk(str(root), WorkspaceScope(str(root)), {} if known is None else known)


def found(walk: Walk) -> dict[bytes, tuple[GitMode, Version]]:
    return {
        os.path.join(folder.path, name): state
        for folder in walk.folders()
        for name, state in folder.files.items()
    }


def wait_until_not_racy() -> None:
    """Let the kernel's clock go on, so that what was written is old."""
    time.sleep(scan.RACY_NS / 1e9)


def test_files_links_and_modes_are_told_as_git_would(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"a")
    (tmp_path / "tool").write_bytes(b"b")
    (tmp_path / "tool").chmod(0o755)
    os.symlink(b"\xff/nowhere", tmp_path / "link")
    assert found(walk(tmp_path)) == {
        b"plain": (FILE, version_of(b"a")),
        b"tool": (EXECUTABLE, version_of(b"b")),
        b"link": (SYMLINK, version_of(b"\xff/nowhere")),
    }


def test_each_folder_comes_before_those_in_it(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/d").mkdir()
    paths = [folder.path for folder in walk(tmp_path).folders()]
    assert sorted(paths) == [b"", b"a", b"a/b", b"a/b/c", b"a/d"]
    assert all(os.path.dirname(path) in paths[:place] for place, path in enumerate(paths) if path)


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    wait_until_not_racy()
    first = walk(tmp_path)
    states = found(first)
    second = walk(tmp_path, first.known)
    assert found(second) == states
    assert (first.content_bytes, first.news) == (1, 1)
    assert (second.content_bytes, second.news) == (0, 0)


def test_a_file_as_young_as_a_tick_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "RACY_NS", 60_000_000_000)
    (tmp_path / "a").write_bytes(b"a")
    first = walk(tmp_path)
    found(first)
    assert first.known == {}


def test_what_is_gone_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    wait_until_not_racy()
    first = walk(tmp_path)
    found(first)
    (tmp_path / "a").unlink()
    second = walk(tmp_path, first.known)
    assert found(second) == {}
    assert second.known == {}
    assert second.unreadable == []


def test_a_folder_that_becomes_a_link_during_the_walk_leads_nowhere(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    walking = walk(root)
    folders = walking.folders()
    assert next(folders).path == b""
    (root / "sub").rmdir()
    (root / "sub").symlink_to(outside)
    assert list(folders) == []
    assert walking.unreadable == []


def test_a_folder_that_goes_during_the_walk_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    walking = walk(tmp_path)
    folders = walking.folders()
    next(folders)
    (tmp_path / "sub").rmdir()
    assert list(folders) == []
    assert walking.unreadable == []


def test_a_folder_that_cannot_be_listed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_bytes(b"a")
    walking = walk(tmp_path)
    folders = walking.folders()
    next(folders)

    def fail(_folder: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("editd.workspace.scan.os.scandir", fail)
    assert [folder.files for folder in folders] == [{}]
    assert walking.unreadable == [b"sub"]


def test_a_walk_that_is_left_closes_its_folders(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    folders = walk(tmp_path).folders()
    for _ in range(3):
        next(folders)
    assert len(os.listdir("/proc/self/fd")) > before
    folders.close()  # type: ignore[attr-defined]  # a generator
    assert len(os.listdir("/proc/self/fd")) == before


def test_folders_may_be_deeper_than_python_recurses(tmp_path: Path) -> None:
    depth = 600
    deepest = tmp_path.joinpath(*["d"] * depth)
    deepest.mkdir(parents=True)
    (deepest / "a").write_bytes(b"a")
    assert list(found(walk(tmp_path))) == [b"d/" * depth + b"a"]


def test_a_large_file_is_followed_only_once_it_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"small")
    wait_until_not_racy()
    first = walk(tmp_path)
    found(first)
    monkeypatch.setattr(scan, "FILE_BYTES_MAX", 10)
    for name in ("a", "new"):
        (tmp_path / name).write_bytes(b"larger than ten")
    second = walk(tmp_path, first.known)
    assert found(second) == {b"a": (FILE, version_of(b"larger than ten"))}
    assert second.too_large == [b"new"]


def test_the_cache_is_kept_from_one_process_to_the_next(tmp_path: Path) -> None:
    known = {b"a\xff": bytes(64), b"b": bytes(range(64))}
    place = str(tmp_path / "cache")
    save_known(place, known)
    assert load_known(place) == known
    assert os.stat(place).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["cache"]


def test_a_missing_or_a_newer_cache_is_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(tmp_path / "cache")
    assert load_known(place) == {}
    monkeypatch.setattr(scan, "CACHE_VERSION", scan.CACHE_VERSION + 1)
    save_known(place, {b"a": bytes(64)})
    monkeypatch.undo()
    assert load_known(place) == {}
