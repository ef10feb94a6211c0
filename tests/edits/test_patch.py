"""Tests of `edits.patch`."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.diff import unified_diff
from editd.edits.patch import apply_to, parse
from editd.edits.plan import plan
from editd.errors import MalformedEdit, NoMatch, PathOutside, PathProtected
from editd.values.content import EXECUTABLE, FILE, SYMLINK, FileState
from editd.values.path import WorkspacePath
from editd.wire.messages import Patch
from support.in_memory import InMemory, Told

if TYPE_CHECKING:
    from pathlib import Path

    from editd.edits.patch import FilePatch

HUNK = "@@ -1 +1 @@\n-a\n+b\n"


def only(patch: str) -> FilePatch:
    (file,) = parse(patch)
    return file


def check_names(patch: str, source: str | None, target: str | None) -> FilePatch:
    file = only(patch)
    assert (file.source and file.source.text, file.target and file.target.text) == (source, target)
    return file


def check_malformed(patch: str, line: int) -> str:
    with pytest.raises(MalformedEdit) as caught:
        parse(patch)
    assert caught.value.data["line"] == line
    return caught.value.text()


def test_prefixes_go_only_where_both_sides_have_them() -> None:
    check_names(f"--- a/x\n+++ b/x\n{HUNK}", "x", "x")
    check_names(f"--- x\n+++ x\n{HUNK}", "x", "x")
    check_names(f"--- a/x\n+++ a/x\n{HUNK}", "a/x", "a/x")
    check_names(f"diff --git a/x a/x\n--- a/x\n+++ a/x\n{HUNK}", "a/x", "a/x")
    check_names(f"diff --git i/x w/x\n--- i/x\n+++ w/x\n{HUNK}", "x", "x")
    check_names("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n", None, "x")
    check_names("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "x", None)
    check_names("--- /dev/null\n+++ x\n@@ -0,0 +1 @@\n+b\n", None, "x")


def test_times_after_a_tab_are_no_part_of_the_name() -> None:
    check_names(f"--- a/x y\t2024-01-01 10:00:00\n+++ b/x y\t2024-01-01\n{HUNK}", "x y", "x y")


def test_a_time_at_the_epoch_is_no_file() -> None:
    new = "--- x\t1970-01-01 01:00:00.000000000 +0100\n+++ x\t2024-01-01\n@@ -0,0 +1 @@\n+b\n"
    check_names(new, None, "x")


def test_of_two_names_the_plain_one_is_meant() -> None:
    check_names(f"--- x.c.orig\n+++ x.c\n{HUNK}", "x.c", "x.c")
    check_names(f"--- x.c\n+++ x.c.new\n{HUNK}", "x.c", "x.c")


def test_quoted_names_are_read_as_git_writes_them() -> None:
    old, new = (f'"{side}/t\\tb\\303\\251\\"\\377"' for side in "ab")
    name = 't\tbé"' + os.fsdecode(b"\xff")
    check_names(f"diff --git {old} {new}\n--- {old}\n+++ {new}\n{HUNK}", name, name)
    check_malformed(f'--- "a/\\q"\n+++ "b/\\q"\n{HUNK}', 1)


def test_names_that_leave_the_workspace_are_refused() -> None:
    for name, kind in (("../x", PathOutside), ("/etc/passwd", PathOutside), (".git/config", PathProtected)):
        with pytest.raises(kind):
            parse(f"--- {name}\n+++ {name}\n{HUNK}")


def test_gits_headers_say_modes_and_moves() -> None:
    assert check_names("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "x", "x").mode == EXECUTABLE
    assert (
        check_names("diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n", None, "x").mode
        == FILE
    )
    check_names("diff --git a/x y b/x y\ndeleted file mode 100644\n", "x y", None)
    check_names("diff --git a/x b/y z\nsimilarity index 100%\nrename from x\nrename to y z\n", "x", "y z")
    assert check_names("diff --git a/x b/y\ncopy from x\ncopy to y\n", "x", "y").is_copy
    link = check_names(
        "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+t\n", None, "l"
    )
    assert (link.mode, link.is_symlink) == (SYMLINK, True)
    assert only(f"diff --git a/l b/l\nindex 1234567..89abcde 120000\n--- a/l\n+++ b/l\n{HUNK}").is_symlink


def test_several_files_and_what_stands_between_them() -> None:
    patch = (
        "From 1234 Mon Sep 17\nSubject: [PATCH] a\n\n---\n x | 2 +-\n\n"
        f"diff --git a/x b/x\nindex 1..2 100644\n--- a/x\n+++ b/x\n{HUNK}-- \n2.39.5\n\n"
        f"Index: y\n=====\n--- y\n+++ y\n{HUNK}diff -u z z\n--- z\n+++ z\n{HUNK}"
    )
    assert [file.target and file.target.text for file in parse(patch)] == ["x", "y", "z"]


def test_a_patch_that_was_turned_into_crlf_is_turned_back() -> None:
    file = only(f"--- a/x\n+++ b/x\n{HUNK}".replace("\n", "\r\n"))
    assert apply_to(b"a\n", file).content == b"b\n"
    file = only("--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+b\n".replace("\n", "\r\n"))
    assert apply_to(b"", file).content == b"b\n"


def test_a_context_line_that_was_trimmed_empty_is_still_one() -> None:
    file = only("--- x\n+++ x\n@@ -1,3 +1,3 @@\n a\n\n-b\n+B")
    assert apply_to(b"a\n\nb\n", file).content == b"a\n\nB\n"


def test_what_looks_like_a_diff_and_is_none_is_refused_with_its_line() -> None:
    check_malformed("", 1)
    check_malformed("hello\n", 1)
    check_malformed("\n@@ -1 +1 @@\n-a\n+b\n", 2)
    check_malformed("--- x\n+++ x\n@@ ... @@\n-a\n+b\n", 3)
    check_malformed("--- x\n+++ x\n", 1)
    check_malformed("diff --git a/x b/x\n", 1)
    check_malformed("diff --git a/x b/y\n--- a/x\n+++ b/y\n" + HUNK, 1)
    for kind in ("cc", "combined"):
        assert "a combined diff of a merge" in check_malformed(
            f"diff --{kind} x\n@@@ -1,1 -1,1 +1,1 @@@\n", 1
        )
    check_malformed("diff --git a/x b/x\nnew file mode 160000\n", 1)
    check_malformed("diff --git a/x b/x\nindex 1234..5678\nBinary files a/x and b/x differ\n", 3)
    check_malformed("diff --git a/x b/y\nrename from x\n", 2)
    check_malformed(f"--- \udfff\n+++ x\n{HUNK}", 1)


def test_counts_that_do_not_fit_are_refused_at_the_line_where_it_shows() -> None:
    assert "more lines" in check_malformed("--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n+c\n", 6)
    assert "more lines" in check_malformed("--- x\n+++ x\n@@ -1,2 +1,2 @@\n-a\n+b\n", 5)
    assert "other lines" in check_malformed("--- x\n+++ x\n@@ -1 +1 @@\n-a\n-b\n+c\n", 5)
    check_malformed("--- x\n+++ x\n@@ -1,2 +1,2 @@\n-a\nb\n+c\n", 5)


def test_deleting_a_file_that_holds_more_is_refused() -> None:
    file = only("--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
    assert apply_to(b"a\n", file).content == b""
    with pytest.raises(NoMatch):
        apply_to(b"a\nb\n", file)


CONTENTS = st.lists(
    st.sampled_from([b"a\n", b"b\n", b"a\r\n", b"\n", b"\xff\n", b"-- x\n", b"++ y\n", b"\\ z\n"]),
    max_size=25,
)


@given(CONTENTS, CONTENTS, st.booleans(), st.booleans())
def test_a_diff_of_ours_makes_the_after_state(
    before: list[bytes], after: list[bytes], cut_before: bool, cut_after: bool
) -> None:
    old, new = (
        b"".join(lines).removesuffix(b"\n") if cut else b"".join(lines)
        for lines, cut in ((before, cut_before), (after, cut_after))
    )
    diff = unified_diff(WorkspacePath.parse("f"), FileState(old), FileState(new))
    content = old
    for file in parse(diff) if diff else ():
        content = apply_to(content, file).content
    assert content == new


PIECES = [
    "--- a/x\n", "+++ b/x\n", "@@ -1 +1 @@\n", "-a\n", "+b\n", " c\n", "\\ No\n", "\n", "\r\n", "x",
    "diff --git a/x b/x\n", "rename from x\n", "rename to y\n", "new file mode 100644\n",
    "GIT binary patch\n", "literal 3\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_every_text_is_read_or_refused(patch: str) -> None:
    with contextlib.suppress(MalformedEdit, PathOutside):
        assert parse(patch)


# ── What other programs write, read here and made by `edits.plan` ──────────────────────────────

ROUNDS = 4  # random trees a test
NAMES = ["a", "b c", "d/e", "d/f\tg", "h/é", os.fsdecode(b"h/\xff"), "i/j/k", 'l"m', 'n"\to']


def content(dice: random.Random) -> bytes:
    if dice.random() < 0.15:
        return b"\0" + dice.randbytes(300)
    lines = [b"%d\n" % dice.randrange(20) + b"\r" * dice.randrange(2) for _ in range(dice.randrange(30))]
    return b"".join(lines).removesuffix(dice.choice([b"", b"\n"]))


def tree(dice: random.Random) -> dict[str, FileState]:
    found = {}
    for name in dice.sample(NAMES, dice.randint(1, len(NAMES))):
        is_link = dice.random() < 0.1
        found[name] = (
            FileState(b"target", SYMLINK)
            if is_link
            else FileState(content(dice), dice.choice([FILE, EXECUTABLE]))
        )
    return found


def changed(dice: random.Random, before: dict[str, FileState]) -> dict[str, FileState]:
    """Another tree: files moved, copied, edited, gone and new."""
    after = dict(before)
    for name in NAMES:
        kind = dice.randrange(6)
        if kind == 0:
            after.pop(name, None)
        elif kind == 1:
            after[name] = FileState(content(dice), dice.choice([FILE, EXECUTABLE]))
        elif kind == 2 and before:
            after[name] = before[dice.choice(sorted(before))]
        elif kind == 3 and name in before and not before[name].is_symlink:
            lines = before[name].content.split(b"\n")
            lines[dice.randrange(len(lines))] = b"edited"
            after[name] = before[name].with_content(b"\n".join(lines))
    return after


def laid_out(folder: Path, files: dict[str, FileState]) -> None:
    folder.mkdir()
    for name, state in files.items():
        file = os.path.join(os.fsencode(folder), os.fsencode(name))
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if state.is_symlink:
            os.symlink(state.content, file)
            continue
        with open(file, "wb") as stream:
            stream.write(state.content)
        os.chmod(file, 0o755 if state.is_executable else 0o644)


def check_planned(before: dict[str, FileState], patch: bytes, after: dict[str, FileState]) -> None:
    """The patch makes `after` of `before`, and says that nothing else changes."""
    text = patch.decode("utf-8", "surrogateescape")
    result = plan([Patch(patch=text)], InMemory(before), Told()) if patch else None
    made = {change.path.text: change.after for change in result.changes} if result else {}
    names = {*before, *after}
    assert made == {name: after.get(name) for name in names if before.get(name) != after.get(name)}, text


OPTIONS = [
    [], ["-U0"], ["-U1"], ["--no-prefix"], ["-M"], ["-M", "-C", "--find-copies-harder"], ["-B", "-M1", "-C1"],
    ["--full-index", "-W"], ["-c", "core.quotePath=false"], ["-c", "diff.mnemonicPrefix=true"],
    ["-c", "diff.renames=false", "--patience"],
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_what_git_diffs_is_what_is_planned(tmp_path: Path, options: list[str]) -> None:
    settings = options[:2] if options[:1] == ["-c"] else []

    def git(*words: str) -> bytes:
        return subprocess.run(
            ["git", "-c", "core.autocrlf=false", *settings, *words], cwd=work, capture_output=True, check=True
        ).stdout

    dice = random.Random(6)
    for number in range(ROUNDS):
        before = tree(dice)
        after = changed(dice, before)
        ids = []
        for name, files in (("before", before), ("after", after)):
            work = tmp_path / f"{name}{number}"
            laid_out(work, files)
            git("init", "-q")
            git("add", "-A")
            ids.append(git("write-tree").decode().strip())
        objects = tmp_path / f"before{number}" / ".git" / "objects"
        (work / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        diff = git("diff", "--binary", *options[len(settings) :], *ids)
        if "-B" in options:
            # What stands at the target of a move is not said to go; git itself does not take all of these.
            work = tmp_path / f"before{number}"
            taken = subprocess.run(
                ["git", "apply", "--check"], cwd=work, input=diff, capture_output=True, check=False
            )
            if taken.returncode:
                continue
        check_planned(before, diff, after)


@pytest.mark.skipif(shutil.which("diff") is None, reason="diff(1) is not installed")
def test_what_diff_says_of_two_folders_is_what_is_planned(tmp_path: Path) -> None:
    dice = random.Random(6)
    for number in range(ROUNDS):
        before = {name: FileState(state.content.replace(b"\0", b"")) for name, state in tree(dice).items()}
        after = {
            name: FileState(state.content.replace(b"\0", b""))
            for name, state in changed(dice, before).items()
        }
        folder = tmp_path / str(number)
        folder.mkdir()
        laid_out(folder / "a", before)
        laid_out(folder / "b", after)
        diff = subprocess.run(
            ["diff", "-ruaN", "a", "b"], cwd=folder, capture_output=True, check=False
        ).stdout
        # diff has no word for an empty file that comes or goes.
        told = {name: state for name, state in after.items() if state.content or name in before}
        told |= {name: state for name, state in before.items() if name not in after and not state.content}
        check_planned(before, diff, told)
