"""Git's index: what it says is clean holds what its blob holds, and at any doubt it says nothing."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from editd.values.content import EXECUTABLE, FILE, SYMLINK, Version, version_of
from editd.workspace.git_worktree import GitIndex

SWAP_CASE = "tr a-zA-Z A-Za-z"
"""A filter that leaves the size as it was."""


class Repository:
    """A user's repository, driven by real git with no configuration but its own."""

    def __init__(self, top: Path, *options: str) -> None:
        self.top = top
        top.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", *options)

    def git(self, *argv: str, given: bytes = b"", may_fail: bool = False) -> bytes:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ALLOW_PROTOCOL": "file",
        }
        identity = ("-c", "user.name=u", "-c", "user.email=u@localhost")
        done = subprocess.run(
            ["git", *identity, *argv],
            cwd=self.top, env=environment, input=given, check=not may_fail, capture_output=True,
        )  # fmt: skip
        return done.stdout

    def put(self, path: str | bytes, content: bytes) -> None:
        place = Path(os.fsdecode(os.path.join(os.fsencode(self.top), os.fsencode(path))))
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)

    def add(self, **files: bytes) -> None:
        for name, content in files.items():
            self.put(name, content)
        self.git("add", "-A")

    @property
    def index(self) -> Path:
        return self.top / os.fsdecode(self.git("rev-parse", "--git-path", "index").strip())

    def age(self) -> None:
        """Make it so that the index was written long after the files."""
        later = time.time_ns() + 60_000_000_000
        os.utime(self.index, ns=(later, later))

    def aged(self) -> GitIndex:
        self.age()
        return self.opened()

    def opened(self) -> GitIndex:
        opened = GitIndex.of(str(self.top))
        assert opened is not None
        return opened

    def clean(self, opened: GitIndex | None = None) -> set[bytes]:
        """The tracked files that are taken from the index; each must be what is on disk."""
        opened = opened or self.aged()
        found: set[bytes] = set()
        for path in self.git("ls-files", "-z").split(b"\0"):
            place = os.path.join(os.fsencode(self.top), path)
            if not path or not os.path.lexists(place) or os.path.isdir(place):
                continue
            known = opened.clean(path, os.lstat(place))
            if known is not None:
                assert known[1] == on_disk(place)
                found.add(path)
        return found


def on_disk(place: bytes) -> Version:
    if os.path.islink(place):
        return version_of(os.readlink(place))
    return version_of(Path(os.fsdecode(place)).read_bytes())


@pytest.fixture
def ours(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "ours")


# ── what is taken ──


def test_clean_files_and_links_are_taken_with_their_modes(ours: Repository) -> None:
    ours.put("deep/in/file", b"text\n")
    ours.put("script", b"#!/bin/sh\n")
    ours.put("empty", b"")
    (ours.top / "script").chmod(0o755)
    (ours.top / "link").symlink_to("deep/in/file")
    ours.git("add", "-A")
    opened = ours.aged()
    taken = {name: opened.clean(name.encode(), os.lstat(ours.top / name)) for name in ("script", "link")}
    assert taken == {
        "script": (EXECUTABLE, version_of(b"#!/bin/sh\n")),
        "link": (SYMLINK, version_of(b"deep/in/file")),
    }
    assert ours.clean(opened) == {b"deep/in/file", b"script", b"empty", b"link"}


def test_names_that_are_not_utf8_are_taken(ours: Repository) -> None:
    ours.put(b"d\xff/\xe9", b"x")
    ours.add()
    assert ours.clean() == {b"d\xff/\xe9"}


def test_files_are_taken_from_packs_and_after_a_commit(ours: Repository) -> None:
    ours.add(a=b"a\n", b=b"b\n")
    ours.git("commit", "-qm", "both")
    ours.git("repack", "-adq")
    assert ours.clean() == {b"a", b"b"}


def test_nothing_in_the_repository_is_written(ours: Repository) -> None:
    ours.add(a=b"a")
    (ours.top / "a").write_bytes(b"b")
    before = {path: (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in ours.top.rglob("*")}
    ours.opened().clean(b"a", os.lstat(ours.top / "a"))
    assert {path: (path.lstat().st_mtime_ns, path.lstat().st_ino) for path in ours.top.rglob("*")} == before


# ── what is tracked ──


def test_tracked_are_the_files_in_the_index_and_the_folders_above_them(ours: Repository) -> None:
    ours.put(".gitignore", b"d/\n")
    ours.put("d/e/f", b"")
    ours.put("d/g", b"")
    ours.git("add", "-f", ".gitignore", "d/e/f")
    opened = ours.opened()
    assert opened.is_tracked(b"d/e/f", is_folder=False)
    assert opened.is_tracked(b"d/e", is_folder=True)
    assert opened.is_tracked(b"d", is_folder=True)
    assert not opened.is_tracked(b"d/g", is_folder=False)
    assert not opened.is_tracked(b"d", is_folder=False)
    assert not opened.is_tracked(b"d/e/f", is_folder=True)


def test_in_a_new_repository_nothing_is_tracked(ours: Repository) -> None:
    (ours.top / "a").write_bytes(b"a")
    opened = ours.opened()
    assert not opened.is_tracked(b"a", is_folder=False)
    assert opened.clean(b"a", os.lstat(ours.top / "a")) is None


# ── what is changed, or may be ──


def test_a_changed_file_is_not_clean(ours: Repository) -> None:
    ours.add(longer=b"a", same_size=b"a", same_times=b"a", replaced=b"a", gone=b"a", chmod=b"a", kept=b"a")
    (ours.top / "longer").write_bytes(b"ab")
    (ours.top / "same_size").write_bytes(b"b")
    before = os.lstat(ours.top / "same_times")
    (ours.top / "same_times").write_bytes(b"b")
    os.utime(ours.top / "same_times", ns=(before.st_atime_ns, before.st_mtime_ns))
    (ours.top / "replaced").unlink()
    (ours.top / "replaced").symlink_to("b")
    (ours.top / "gone").unlink()
    (ours.top / "chmod").chmod(0o755)
    assert ours.clean() == {b"kept"}


def test_a_file_as_young_as_the_index_is_not_taken(ours: Repository) -> None:
    ours.add(a=b"a")
    young = os.lstat(ours.top / "a").st_ctime_ns
    os.utime(ours.index, ns=(young, young))
    assert ours.clean(ours.opened()) == set()


def test_a_time_that_was_set_back_does_not_make_a_file_old(ours: Repository) -> None:
    ours.put("a", b"a")
    os.utime(ours.top / "a", ns=(1_700_000_000_000_000_001, 1_700_000_000_000_000_001))
    ours.git("add", "-A")
    young = os.lstat(ours.top / "a").st_ctime_ns
    os.utime(ours.index, ns=(young, young))
    assert ours.clean(ours.opened()) == set()


def test_without_the_change_time_any_other_difference_tells(ours: Repository) -> None:
    ours.git("config", "core.trustctime", "false")
    ours.add(same=b"a", longer=b"a", newer=b"a", replaced=b"a")
    for name, content in (("same", b"a"), ("longer", b"ab"), ("newer", b"b"), ("replaced", b"b")):
        place = ours.top / name
        before = os.lstat(place)
        if name == "replaced":
            place.rename(ours.top / "kept, so that its inode is")
        place.write_bytes(content)
        mtime = before.st_mtime_ns + (name == "newer")
        os.utime(place, ns=(mtime, mtime))
    assert ours.clean() == {b"same"}


def test_an_entry_that_git_itself_has_put_in_doubt_is_not_taken(ours: Repository) -> None:
    ours.git("config", "core.trustctime", "false")
    ours.add(a=b"a")
    before = os.lstat(ours.top / "a")
    (ours.top / "a").write_bytes(b"b")
    os.utime(ours.top / "a", ns=(before.st_mtime_ns, before.st_mtime_ns))
    os.utime(ours.index, ns=(before.st_mtime_ns, before.st_mtime_ns))  # Too young for git to be sure,
    ours.put("other", b"")
    ours.git("add", "other")  # which it says by a size of zero when it writes the index again.
    assert ours.clean() == {b"other"}


def test_where_times_are_whole_seconds_the_doubt_is_longer(ours: Repository) -> None:
    ours.git("config", "core.trustctime", "false")
    ours.put("coarse", b"a")
    ours.put("fine", b"a")
    second = 1_700_000_000_000_000_000
    os.utime(ours.top / "coarse", ns=(second, second))
    os.utime(ours.top / "fine", ns=(second + 1, second + 1))
    ours.git("add", "-A")
    os.utime(ours.index, ns=(second + 1_000_000_000, second + 1_000_000_000))
    assert ours.clean(ours.opened()) == {b"fine"}


def test_flags_that_tell_git_not_to_look_are_not_believed(ours: Repository) -> None:
    ours.add(assumed=b"a", skipped=b"a", plain=b"a")
    ours.git("update-index", "--assume-unchanged", "assumed")
    ours.git("update-index", "--skip-worktree", "skipped")
    ours.put("intended", b"a")
    ours.git("add", "-N", "intended")
    opened = ours.aged()
    assert ours.clean(opened) == {b"plain"}
    assert all(opened.is_tracked(name, is_folder=False) for name in (b"assumed", b"skipped", b"intended"))


def test_a_file_in_conflict_is_tracked_and_not_clean(ours: Repository) -> None:
    ours.add(a=b"a")
    oid = version_of(b"a")
    stages = "".join(f"100644 {oid} {stage}\ta\n" for stage in (1, 2, 3))
    ours.git("update-index", "--index-info", given=f"0 {'0' * 40}\ta\n{stages}".encode())
    opened = ours.aged()
    assert ours.clean(opened) == set()
    assert opened.is_tracked(b"a", is_folder=False)


def test_a_blob_that_the_repository_has_not_got_is_not_taken(ours: Repository) -> None:
    ours.add(lost=b"lost", kept=b"kept")
    oid = version_of(b"lost")
    (ours.top / ".git/objects" / oid[:2] / oid[2:]).unlink()
    assert ours.clean() == {b"kept"}


def test_the_executable_bit_must_be_the_one_that_git_has(ours: Repository) -> None:
    ours.add(a=b"a")
    ours.git("update-index", "--chmod=+x", "a")
    assert ours.clean() == set()


def test_where_git_passes_over_the_executable_bit_the_files_own_is_told(ours: Repository) -> None:
    ours.git("config", "core.filemode", "false")
    ours.add(a=b"a")
    ours.git("update-index", "--chmod=+x", "a")
    found = os.lstat(ours.top / "a")
    assert ours.aged().clean(b"a", found) == (FILE, version_of(b"a"))


@pytest.mark.parametrize(("setting", "taken"), [("true", set[bytes]()), ("false", {b"a"})])
def test_the_change_time_counts_unless_git_was_told_not_to_trust_it(
    ours: Repository, setting: str, taken: set[bytes]
) -> None:
    ours.git("config", "core.trustctime", setting)
    ours.add(a=b"a")
    (ours.top / "a").chmod(0o600)
    assert ours.clean() == taken


# ── what git converts ──


@pytest.mark.parametrize(
    ("settings", "attributes"),
    [
        ({"core.autocrlf": "true"}, ""),
        ({"core.autocrlf": "input"}, ""),
        ({"core.eol": "crlf"}, "* text=auto\n"),
        ({}, "* text=auto\n"),
        ({}, "* eol=crlf\n"),
        ({}, "* crlf\n"),  # what `text` was once called
    ],
)
def test_where_line_ends_are_converted_only_what_has_none_to_convert_is_taken(
    ours: Repository, settings: dict[str, str], attributes: str
) -> None:
    for name, value in settings.items():
        ours.git("config", name, value)
    ours.put(".git/info/attributes", attributes.encode())
    ours.add(dos=b"a\r\nb\r\n", unix=b"a\nb\n", none=b"a")
    assert ours.clean() == {b"unix", b"none"}
    ours.git("commit", "-qm", "all")
    for name in ("dos", "unix", "none"):
        (ours.top / name).unlink()
    ours.git("checkout", "-q", ".")
    assert ours.clean() >= {b"none"}


def test_line_ends_that_were_converted_under_older_rules_are_told_too(ours: Repository) -> None:
    ours.put(".gitattributes", b"* text eol=crlf\n")
    ours.add(a=b"a\r\n")
    ours.put(".gitattributes", b"")
    assert ours.clean() == set()


@pytest.mark.parametrize(
    ("attribute", "content"),
    [
        ("filter=swap", b"abc"),
        ("ident", b"$Id$\n"),
        ("working-tree-encoding=UTF-16LE", "éé".encode("utf-16-le")),
    ],
)
def test_what_an_attribute_converts_is_not_taken_and_the_rest_is(
    ours: Repository, attribute: str, content: bytes
) -> None:
    ours.git("config", "filter.swap.clean", SWAP_CASE)
    ours.put("d/.gitattributes", f"*.bin {attribute}\n*.txt -{attribute.partition('=')[0]}\n".encode())
    ours.put("d/e/a.bin", content)
    ours.put("d/a.txt", content)
    ours.put("a.bin", content)
    ours.add()
    assert ours.clean() == {b"d/.gitattributes", b"d/a.txt", b"a.bin"}


def test_large_files_that_lie_elsewhere_are_not_taken(ours: Repository) -> None:
    pointer = "oid sha256:0 size 9"
    ours.git("config", "filter.lfs.clean", f"cat >/dev/null; printf '{pointer}'")
    ours.put(".gitattributes", b"*.bin filter=lfs diff=lfs merge=lfs -text\n")
    ours.put("as_long.bin", b"x" * len(pointer))
    ours.put("longer.bin", b"x" * 1000)
    ours.add(text=b"text\n")
    assert ours.clean() == {b".gitattributes", b"text"}


def test_attributes_are_found_wherever_git_finds_them(ours: Repository, tmp_path: Path) -> None:
    ours.git("config", "filter.swap.clean", SWAP_CASE)
    ours.put(".git/info/attributes", b"[attr]odd filter=swap\n*.info odd\n")
    (tmp_path / "attributes").write_bytes(b"*.user filter=swap\n")
    ours.git("config", "core.attributesFile", str(tmp_path / "attributes"))
    for path in ("a.info", "deep/b.info", "a.user", "macro/a", "macro/b"):
        ours.put(path, b"abc")
    ours.put("macro/.gitattributes", b"a odd\n")
    ours.add()
    assert ours.clean() == {b"macro/.gitattributes", b"macro/b"}


def test_an_attribute_file_that_is_in_the_index_only_counts_as_it_does_for_git(ours: Repository) -> None:
    ours.git("config", "filter.swap.clean", SWAP_CASE)
    ours.put(".gitattributes", b"*.bin filter=swap\n")
    ours.put("a.bin", b"abc")
    ours.put("a.txt", b"abc")
    ours.add()
    (ours.top / ".gitattributes").unlink()
    assert ours.clean() == {b"a.txt"}


def test_an_attribute_file_that_cannot_be_read_is_not_passed_over(ours: Repository) -> None:
    ours.put("d/.gitattributes/in a folder", b"")
    ours.put("d/a", b"abc")
    ours.add()
    assert b"d/a" in ours.clean()  # libgit2 has been asked, and has found nothing


# ── other shapes of repositories ──


def test_a_linked_worktree_speaks_for_itself(ours: Repository, tmp_path: Path) -> None:
    ours.add(a=b"a")
    ours.git("commit", "-qm", "a")
    ours.git("worktree", "add", "-q", str(tmp_path / "linked"))
    linked = Repository.__new__(Repository)
    linked.top = tmp_path / "linked"
    assert (linked.top / ".git").is_file()
    assert linked.clean() == {b"a"}
    assert linked.opened().objects == ours.opened().objects == [str(ours.top / ".git/objects")]


def test_a_submodule_is_tracked_and_speaks_for_itself(ours: Repository, tmp_path: Path) -> None:
    other = Repository(tmp_path / "other")
    other.add(a=b"a")
    other.git("commit", "-qm", "a")
    ours.git("submodule", "--quiet", "add", str(other.top), "sub")
    opened = ours.aged()
    assert opened.is_tracked(b"sub", is_folder=True)
    assert opened.clean(b"sub", os.lstat(ours.top / "sub")) is None
    sub = Repository.__new__(Repository)
    sub.top = ours.top / "sub"
    assert sub.clean() == {b"a"}
    assert sub.opened().objects == [str(ours.top / ".git/modules/sub/objects")]


def test_borrowed_objects_are_taken_and_their_folders_named(ours: Repository, tmp_path: Path) -> None:
    ours.add(a=b"a")
    ours.git("commit", "-qm", "a")
    ours.git("clone", "-q", "--shared", ".", str(tmp_path / "second"))
    second = Repository.__new__(Repository)
    second.top = tmp_path / "second"
    second.git("clone", "-q", "--shared", ".", str(tmp_path / "third"))
    third = Repository.__new__(Repository)
    third.top = tmp_path / "third"
    (third.top / ".git/objects/info/alternates").write_text("# a comment\n../../../second/.git/objects\n")
    assert third.clean() == {b"a"}
    assert third.opened().objects == [
        str(tmp_path / name / ".git/objects") for name in ("third", "second", "ours")
    ]


def test_object_folders_that_borrow_from_each_other_are_named_once(ours: Repository) -> None:
    objects = ours.top / ".git/objects"
    (objects / "info/alternates").write_text(f"{objects}\n{objects}\n")
    assert ours.opened().objects == [str(objects)]


def test_a_repository_apart_from_its_files_works(tmp_path: Path) -> None:
    ours = Repository(tmp_path / "files", "--separate-git-dir", str(tmp_path / "apart"))
    ours.add(a=b"a")
    assert ours.clean() == {b"a"}


def test_a_partial_clone_is_read(ours: Repository) -> None:
    ours.add(a=b"a")
    ours.git("config", "core.repositoryformatversion", "1")
    ours.git("config", "extensions.partialClone", "origin")
    assert ours.clean() == {b"a"}


def test_a_repository_of_somebody_else_is_read(ours: Repository) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    ours.add(a=b"a")
    os.chown(ours.top / ".git", 12345, 12345)
    assert ours.opened().is_tracked(b"a", is_folder=False)


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_the_index_is_read(ours: Repository, version: str) -> None:
    ours.add(**{f"name_{number}" + "x" * number: b"%d" % number for number in range(200)})
    ours.put("zz/skipped", b"")
    ours.add()
    if version == "3":
        ours.git("update-index", "--skip-worktree", "zz/skipped")  # which only version 3 can say
    else:
        ours.git("update-index", "--index-version", version)
    assert ours.index.read_bytes()[4:8] == bytes([0, 0, 0, int(version)])
    assert len(ours.clean()) == 200 + (version != "3")


def test_in_a_split_index_nothing_is_clean_and_everything_tracked(ours: Repository) -> None:
    ours.git("config", "splitIndex.maxPercentChange", "100")
    names = [f"name{number}" for number in range(5)]
    ours.add(**dict.fromkeys(names, b"a"))
    ours.git("update-index", "--split-index")
    ours.add(own=b"own")
    opened = ours.aged()
    assert b"own" in ours.index.read_bytes()
    assert b"name0" not in ours.index.read_bytes()
    assert ours.clean(opened) == set()
    assert all(opened.is_tracked(name.encode(), is_folder=False) for name in [*names, "own"])


def test_of_a_sparse_index_what_is_there_is_taken(ours: Repository) -> None:
    for path in ("top", "in/a", "out/b", "out/deep/c"):
        ours.put(path, path.encode())
    ours.add()
    ours.git("commit", "-qm", "all")
    ours.git("sparse-checkout", "set", "--cone", "--sparse-index", "in")
    assert b"sdir" in ours.index.read_bytes()
    assert ours.clean() == {b"top", b"in/a"}


def test_a_repository_that_no_alternates_file_can_name_lends_nothing(tmp_path: Path) -> None:
    ours = Repository(tmp_path / "line\nfeed")
    ours.add(a=b"a")
    opened = ours.aged()
    assert ours.clean(opened) == set()
    assert opened.is_tracked(b"a", is_folder=False)


def test_where_no_git_can_be_asked_there_is_no_index(tmp_path: Path) -> None:
    Repository(tmp_path / "longer ids", "--object-format=sha256").add(a=b"a")
    Repository(tmp_path / "bare", "--bare")
    ours = Repository(tmp_path / "ours")
    ours.put("inside/a", b"a")
    damaged = Repository(tmp_path / "damaged")
    damaged.add(a=b"a")
    raw = bytearray(damaged.index.read_bytes())
    raw[20] ^= 1
    damaged.index.write_bytes(raw)
    elsewhere = Repository(tmp_path / "elsewhere")
    elsewhere.git("config", "core.worktree", str(tmp_path / "ours"))
    (tmp_path / "broken/.git").mkdir(parents=True)
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling/.git").write_text("gitdir: /nowhere\n")
    (tmp_path / "plain").mkdir()
    names = (
        "longer ids", "bare", "bare/.git", "ours/inside", "ours/.git", "damaged", "elsewhere", "broken",
        "dangling", "plain", "missing",
    )  # fmt: skip
    assert {name: GitIndex.of(str(tmp_path / name)) for name in names} == dict.fromkeys(names)
