"""The survey against real git: what is on disk is in the baseline, byte for byte; nobody is written to."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from editd.engine import scan_worker
from editd.engine.scan_worker import ScanWorker
from editd.store.transaction_record import parse
from editd.system.frames import pack_frame
from editd.values.excluded_paths import ExcludedPaths
from editd.workspace.scan import FILE_BYTES_MAX
from support.scan_process import Ground, everything_below

if TYPE_CHECKING:
    from pathlib import Path

MIXED: dict[str | bytes, bytes | str] = {
    "README": "hello\n",
    "empty": "",
    "src/main.c": b"int main;\r\n",
    "src/deep/er/a": b"\0binary\xff",
    "src-old/x": "sorts between src and src/",
    b"not utf-8 \xff": b"\xfe",
    "two\nlines": "a\n",
}
NO_ROOT_POWERS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
"""Even root may then not read what its permissions forbid; nobody else needs it."""


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def repository(ground: Ground) -> Ground:
    """A workspace with everything committed, the index well after the files."""
    ground.git("init", "-q")
    ground.write(MIXED)
    os.symlink("src/main.c", ground.root / "link")
    os.chmod(ground.root / "README", 0o755)
    ground.commit()
    return ground


def is_stored(ground: Ground, content: bytes) -> bool:
    """Is this blob in the store's own packs, and not only borrowed?"""
    oid = ground.git("hash-object", "--stdin", at=ground.folder, content=content)
    packs = sorted((ground.store / "objects/pack").glob("*.idx"))
    listed = "".join(ground.git_in_store("verify-pack", "-v", str(pack)) for pack in packs)
    return oid in listed


def test_without_git_everything_is_taken(ground: Ground) -> None:
    ground.write(MIXED)
    os.symlink("nowhere", ground.root / "dangling")
    os.symlink("src", ground.root / "to a folder")
    os.chmod(ground.root / "README", 0o700)
    told = ground.baseline()
    assert ground.recorded() == ground.on_disk()
    assert told["files"] == len(MIXED) + 2
    assert told["uncovered"] == []
    assert not told["budget_spent"]


def test_the_baseline_is_an_ordinary_commit_that_tells_of_itself(ground: Ground) -> None:
    ground.write(MIXED)
    ground.baseline()
    assert ground.git_in_store("fsck", "--full", "--strict") == ""
    message = ground.git_in_store("log", "--format=%B", "history")
    assert message.startswith("the workspace as first seen\n")
    written = parse(message)
    assert (written.seq, written.kind, written.authorship.actor) == (0, "baseline", "outside")
    assert written.time_us == 1_700_000_000_000_000
    assert ground.git_in_store("log", "--format=%an %aI %P", "history").startswith(
        "editd 2023-11-14T22:13:20"
    )


def test_an_empty_workspace_has_the_empty_tree(ground: Ground) -> None:
    told = ground.baseline()
    assert ground.recorded() == {}
    assert told["files"] == 0
    assert ground.git_in_store("fsck", "--full", "--strict") == ""


def test_head_is_the_daemons_to_move(ground: Ground) -> None:
    ground.survey({"do": "baseline", "time": 0, "exclude": [[], []]})
    assert not (ground.store / "refs/heads/history").exists()


def test_what_is_clean_in_git_is_borrowed_and_not_read(repository: Ground) -> None:
    told = repository.baseline()
    assert repository.recorded() == repository.on_disk()
    assert told["bytes"] == 0
    assert not is_stored(repository, b"hello\n")
    assert repository.git_in_store("cat-file", "blob", "history:README") == "hello"


def test_what_is_dirty_or_untracked_is_stored(repository: Ground) -> None:
    repository.write({"README": "HELLO\n", "new": "untracked\n"})
    repository.git("add", "src")
    repository.baseline()
    assert repository.recorded() == repository.on_disk()
    assert is_stored(repository, b"HELLO\n")
    assert is_stored(repository, b"untracked\n")
    assert not is_stored(repository, b"int main;\r\n")


def test_not_one_byte_or_time_of_the_users_git_changes(repository: Ground) -> None:
    repository.write({"README": "HELLO\n", "new": "untracked\n", ".gitignore": "ignored\n", "ignored": ""})
    before = everything_below(repository.root)
    repository.baseline()
    repository.scan()
    assert everything_below(repository.root) == before


@pytest.mark.parametrize(
    "attributes", ["", "* text=auto\n", "*.c text eol=crlf\n", "*.c ident\n", "* -text\n"]
)
@pytest.mark.parametrize("autocrlf", ["true", "input", "false"])
def test_no_conversion_of_line_ends_changes_what_is_recorded(
    ground: Ground, autocrlf: str, attributes: str
) -> None:
    ground.git("init", "-q")
    ground.git("config", "core.autocrlf", autocrlf)
    ground.write(
        {".gitattributes": attributes, "lf.c": b"$Id: 1$\na\n", "crlf.c": b"a\r\n", "mixed.c": b"\r\n\n"}
    )
    ground.commit()
    ground.baseline()
    assert ground.recorded() == ground.on_disk()


@pytest.mark.parametrize("attribute", ["filter=turned", "working-tree-encoding=UTF-16LE", "filter=lfs"])
def test_what_a_filter_stands_before_is_recorded_as_it_is_on_disk(ground: Ground, attribute: str) -> None:
    ground.git("init", "-q")
    ground.git("config", "filter.turned.clean", "tr a-z b-za")
    ground.git("config", "filter.lfs.clean", "head -c 5")
    ground.write({"sub/.gitattributes": f"*.txt {attribute}\n", "sub/a.txt": "abcde".encode("utf-16-le")})
    ground.commit()
    ground.baseline()
    assert ground.recorded() == ground.on_disk()


def test_the_users_hooks_and_filters_are_never_run(repository: Ground) -> None:
    ran = repository.folder / "ran"
    repository.git("config", "filter.spy.clean", f"touch {ran}; cat")
    repository.git("config", "filter.spy.process", f"touch {ran}")
    repository.git("config", "core.fsmonitor", f"touch {ran}")
    for hook in ("post-index-change", "reference-transaction", "pre-commit"):
        script = repository.root / ".git/hooks" / hook
        script.write_text(f"#!/bin/sh\ntouch {ran}\n")
        script.chmod(0o755)
    repository.write({".gitattributes": "* filter=spy\n"})
    repository.baseline()
    repository.scan()
    assert not ran.exists()


def test_what_git_ignores_is_out_unless_it_is_tracked(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write({".gitignore": "*.log\nbuild/\n", "kept.log": "", "build/kept": "", "src/a": ""})
    ground.git("add", "-f", ".")
    ground.commit()
    ground.write(
        {"out.log": "", "build/out": "", "src/out.log": "", ".git/info/exclude": "private\n", "private": ""}
    )
    ground.baseline()
    recorded = set(ground.recorded())
    assert recorded == {b".gitignore", b"kept.log", b"build/kept", b"src/a"}
    assert set(ground.scan()[0]) == recorded


def test_the_users_global_excludes_are_git_s_word_too(repository: Ground) -> None:
    (repository.home / ".config/git").mkdir(parents=True)
    (repository.home / ".config/git/ignore").write_text("*.swp\n")
    repository.write({"a.swp": "", "b": ""})
    repository.baseline()
    assert repository.recorded() == repository.on_disk("a.swp")


def test_a_repository_without_commits(ground: Ground) -> None:
    ground.git("init", "-q")
    ground.write(MIXED | {".gitignore": "out\n", "out": ""})
    ground.baseline()
    assert ground.recorded() == ground.on_disk("out")


def test_a_linked_worktree(ground: Ground, tmp_path: Path) -> None:
    main = Ground(tmp_path / "main")
    main.git("init", "-q")
    main.write(MIXED)
    main.commit()
    main.git("worktree", "add", "-q", str(ground.root))
    ground.age_index()
    before = everything_below(main.root)
    told = ground.baseline()
    assert ground.recorded() == ground.on_disk()
    assert told["bytes"] == 0
    assert everything_below(main.root) == before


def test_nested_repositories_speak_for_their_own_files(repository: Ground) -> None:
    repository.write(
        {"in/.gitignore": "*.tmp\n", "in/a.tmp": "", "in/b": "inner\n", "c.tmp": "", ".gitignore": "*.log"}
    )
    repository.git("init", "-q", at="in")
    repository.commit(at="in")
    repository.write({"in/x.log": "the outer one's rule\n"})
    repository.baseline()
    assert repository.recorded() == repository.on_disk("in/a.tmp")
    assert not is_stored(repository, b"inner\n")
    assert is_stored(repository, b"the outer one's rule\n")


def test_submodules_are_taken_file_by_file(ground: Ground, tmp_path: Path) -> None:
    library = Ground(tmp_path / "library")
    library.git("init", "-q")
    library.write({"code.c": "library\n", ".gitignore": "*.o\n"})
    library.commit()
    ground.git("init", "-q")
    ground.git("submodule", "--quiet", "add", str(library.root), "lib/a")
    ground.write({"lib/a/x.o": "", "y.o": ""})
    ground.commit()
    ground.age_index("lib/a")
    ground.baseline()
    assert ground.recorded() == ground.on_disk("lib/a/x.o")
    assert not is_stored(ground, b"library\n")


def test_objects_that_the_repository_itself_borrows_are_found(ground: Ground, tmp_path: Path) -> None:
    lender = Ground(tmp_path / "lender")
    lender.git("init", "-q")
    lender.write(MIXED)
    lender.commit()
    ground.root.rmdir()
    ground.git("clone", "-q", "--shared", str(lender.root), str(ground.root), at=ground.folder)
    ground.age_index()
    assert ground.baseline()["bytes"] == 0
    assert ground.recorded() == ground.on_disk()
    assert ground.git_in_store("fsck", "--full", "--no-dangling") == ""


def test_a_sha256_repository_is_read_whole_by_its_own_rules(ground: Ground) -> None:
    ground.git("init", "-q", "--object-format=sha256")
    ground.write(MIXED | {".gitignore": "*.log\n", "a.log": ""})
    ground.commit()
    ground.baseline()
    assert set(ground.recorded()) == {*map(os.fsencode, MIXED), b".gitignore"}


@pytest.mark.parametrize("git", ["a file", "gitdir: /nowhere", "folder", "bare"])
def test_a_broken_or_a_bare_repository_is_none(ground: Ground, git: str) -> None:
    ground.write({"a": "", "node_modules/b": "", ".gitignore": "a\n"})
    if git == "bare":
        ground.git("init", "-q", "--bare", ".git")
    elif git == "folder":
        (ground.root / ".git").mkdir()
    else:
        (ground.root / ".git").write_text(git)
    ground.baseline()
    assert set(ground.recorded()) == {b"a", b".gitignore"}


def test_a_workspace_may_be_a_folder_in_a_repository(ground: Ground) -> None:
    top = ground.folder
    ground.git("init", "-q", at=top)
    (top / ".gitignore").write_text("/state\n/home\n*.log\n")
    ground.write({"a": "clean\n", "kept.log": "", "b.log": "", "sub/c.log": ""})
    ground.git("add", "-f", "workspace/a", "workspace/kept.log", at=top)
    ground.commit(at=top)
    ground.baseline()
    assert set(ground.recorded()) == {b"a", b"kept.log"}
    assert not is_stored(ground, b"clean\n")


def test_a_repository_above_that_ignores_the_workspace_is_not_asked(ground: Ground) -> None:
    ground.git("init", "-q", at=ground.folder)
    (ground.folder / ".gitignore").write_text("*\n")
    ground.write({"a": "", "__pycache__/b": ""})
    ground.baseline()
    assert set(ground.recorded()) == {b"a"}


def test_a_blob_that_the_repository_has_lost_is_read_from_the_file(repository: Ground) -> None:
    oid = repository.git("rev-parse", ":README")
    (repository.root / ".git/objects" / oid[:2] / oid[2:]).unlink()
    repository.baseline()
    assert repository.recorded() == repository.on_disk()
    assert is_stored(repository, b"hello\n")


def test_special_files_are_nobodys(ground: Ground) -> None:
    os.mkfifo(ground.root / "fifo")
    ground.write({"a": ""})
    ground.baseline()
    assert set(ground.recorded()) == {b"a"}


def test_what_cannot_be_read_is_told(ground: Ground) -> None:
    ground.write({"a": "", "secret": "x", "closed/b": "x"})
    os.chmod(ground.root / "secret", 0)
    os.chmod(ground.root / "closed", 0)
    told = ground.baseline(under=NO_ROOT_POWERS if os.geteuid() == 0 else ())
    assert set(ground.recorded()) == {b"a"}
    (sentence,) = told["uncovered"]
    assert sentence.startswith("2 ")
    assert "secret" in sentence
    assert "closed" in sentence
    os.chmod(ground.root / "closed", 0o700)


def test_a_file_over_the_limit_is_told_and_left_out(ground: Ground) -> None:
    with open(ground.root / "large", "wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    ground.write({"a": ""})
    told = ground.baseline()
    assert set(ground.recorded()) == {b"a"}
    assert told["too_large"] == ["large"]
    sentence = "1 file is over 16 MiB and is captured when an edit touches it: large"
    assert scan_worker.too_large({b"large": 17 << 20}, 64 << 20) == [sentence]
    found, done = ground.scan()
    assert set(found) == {b"a"}
    assert done["too_large"] == ["large"]


def test_files_that_no_edit_may_touch_are_named_apart() -> None:
    sizes = {b"a": 17 << 20, b"b": 65 << 20, b"c": 66 << 20}
    assert scan_worker.too_large(sizes, 64 << 20) == [
        "1 file is over 16 MiB and is captured when an edit touches it: a",
        "2 files are over 64 MiB (`file_bytes_max`) and are never recorded, read or edited: b, c",
    ]


def test_a_sentence_about_one_file_has_its_verb_in_the_singular() -> None:
    assert scan_worker.count_sentence(1, "have a path of more than 4095 bytes") == (
        "1 file has a path of more than 4095 bytes"
    )
    assert scan_worker.count_sentence(2, "have a path of more than 4095 bytes") == (
        "2 files have a path of more than 4095 bytes"
    )


def test_what_is_over_the_budget_stays_out_until_it_is_edited(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.write({f"f{number}": str(number) for number in range(10)})
    monkeypatch.setattr(scan_worker, "FILES_MAX", 4)
    told = ScanWorker(str(ground.root), str(ground.state)).baseline(0, ExcludedPaths())
    assert told["budget_spent"]
    assert "6 files were too many" in told["uncovered"][0]
    ground.git_in_store("update-ref", "refs/heads/history", told["baseline"])
    assert len(ground.recorded()) == 4
    found, done = ground.scan()  # a daemon of another day
    assert set(found) == set(ground.recorded())
    assert "6 files were too many" in done["uncovered"][0]


def test_after_the_baseline_a_scan_finds_the_same(repository: Ground) -> None:
    repository.write({"new": ""})
    repository.baseline()
    found, done = repository.scan()
    assert found == repository.recorded()
    assert done["files"] == len(found)
    assert done["strays"] == []


def test_a_scan_sees_what_has_changed_since(ground: Ground) -> None:
    ground.write(MIXED)
    ground.baseline()
    ground.write({"README": "HELLO\n", "new/folder/a": ""})
    (ground.root / "empty").unlink()
    os.chmod(ground.root / "src/main.c", 0o755)
    (ground.root / "two\nlines").unlink()
    os.symlink("README", ground.root / "two\nlines")
    assert ground.scan()[0] == ground.on_disk()


def test_a_change_that_keeps_size_and_mtime_is_seen(ground: Ground) -> None:
    ground.write({"a": "one"})
    ground.baseline()
    before = (ground.root / "a").stat()
    ground.write({"a": "two"})
    os.utime(ground.root / "a", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert ground.scan()[0] == ground.on_disk()


def test_temporaries_are_strays_and_never_files(ground: Ground) -> None:
    ground.write({"a": "", ".editd-x-1": "left over", "sub/.editd-y": "", "node_modules/.editd-z": ""})
    ground.baseline()
    found, done = ground.scan()
    assert set(found) == {b"a"}
    assert sorted(done["strays"]) == [".editd-x-1", "sub/.editd-y"]


@pytest.mark.parametrize(
    "garbage", [b"", b"\x81", b"not msgpack at all", b"\x82\xa7version\x02\xa5files\x81\xc4\x01a\xc4\x01b"]
)
def test_a_garbled_cache_costs_time_and_nothing_else(ground: Ground, garbage: bytes) -> None:
    ground.write(MIXED)
    ground.baseline()
    (ground.state / "scan.cache").write_bytes(garbage)
    assert ground.scan()[0] == ground.on_disk()


def test_a_baseline_that_was_cut_off_is_taken_again(ground: Ground) -> None:
    ground.write(MIXED)
    unfinished = ground.state / "first-scan"
    unfinished.mkdir()
    (unfinished / "tmp_pack_1_2").write_bytes(b"half of it")
    ground.baseline()
    ground.baseline()
    assert ground.recorded() == ground.on_disk()
    assert not unfinished.exists()
    assert not list((ground.store / "objects/pack").glob("tmp_*"))


def test_progress_is_told_on_the_way(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    ground.write({f"d{number}/f": str(number) for number in range(5)})
    monkeypatch.setattr(scan_worker, "PROGRESS_SECONDS", 0.0)
    ScanWorker(str(ground.root), str(ground.state)).baseline(0, ExcludedPaths())
    assert b"progress" in capfdbinary.readouterr().out


def test_a_workspace_that_is_gone_is_told(ground: Ground) -> None:
    ground.baseline()
    ground.root.rmdir()
    found, done = ground.scan()
    assert found == {}
    assert done["uncovered"]


def test_it_ends_quietly_with_its_daemon(ground: Ground) -> None:
    ground.write({f"d{number}/f": "" for number in range(2000)})
    ground.baseline()
    child = [sys.executable, "-m", "editd.engine.scan_worker", str(ground.root), str(ground.state)]
    argv = ["sh", "-c", '"$@" | head -c 5', "sh", *child]
    request = pack_frame({"do": "scan", "id": 1})
    done = subprocess.run(argv, env=ground.environment, input=request, capture_output=True, check=True)
    assert done.stderr == b""
