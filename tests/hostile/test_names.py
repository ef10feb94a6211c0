"""Names as they can be: what git refuses is refused, and anything else goes there and back."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING

import pytest

from editd.errors import Refused
from editd.values.path import WorkspacePath
from editd.wire.messages import Delete, Move, Symlink
from support.crash_checks import transactions
from support.workplace import workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

# What is put before, into and behind `.git` and `git~1`, in either case.
AFTER = (
    *("", " ", ".", ". .", ":", "::$INDEX_ALLOCATION", ":x", "\\", "\\x", " \\x", "\t"),
    *(";", "x", "~1"),
    *("\u200d", "\ufeff", "\u200dx", "\u0301", "\udcff", "\udcffx", "\udcc3("),
)
BEFORE = ("", " ", ".", "\u200c", "\udcff", "a\\", "a:", "..\\", "a\\.\\")
INTO = ("", "\u200c", "\u206f", "\ufeff", "\u00ad", "\u2060", "\udcff")
ODD = (
    "new\nline", "tab\t", "\x1b[31mred\x1b[0m", "\r", "bell\x07", "-rf", "--help", " ", "  x  ", "trailing.",
    "a:b", "a\\b", "\\", "'", '"', '"quoted"', "$(id)", "`id`", "*", "?[a-z]", "{a,b}", "#", "~", "%s",
    "@{u}", "caf\udce9", "\udcff\udcfe", "é", "e\u0301", "\u202egpj.exe", "\U0001f600", ".gitmodules",
    "git~2",
    "..git", "...", ".ｇｉｔ", "CON", "nul.txt", "x" * 255, "é" * 127, "a -> b", "=>", "\x7f", "\x85",
)  # fmt: skip


def disguises() -> list[str]:
    """Names that look like git's folder to some file system or other."""
    stems = [".git", ".GIT", ".Git", "git~1", "GIT~1", "git~2"]
    made = [before + stem + after for stem, before, after in product(stems, BEFORE, AFTER)]
    return sorted({*made, *(f".g{into}it{after}" for into, after in product(INTO, AFTER))})


def test_what_git_refuses_as_its_own_folder_is_refused(tmp_path: Path) -> None:
    names = disguises()
    refused = refused_by_git(tmp_path, names)
    print(f"{len(names)} names, git refuses {len(refused)}")
    assert len(refused) > len(names) / 10
    assert [name for name in refused if not is_refused(name)] == []
    assert [name for name in refused if not is_refused(f"a/{name}/b")] == []


def refused_by_git(folder: Path, names: list[str]) -> list[str]:
    """Return the names that are not in an index after git was given all of them for it."""
    git = ["git", "-C", str(folder), "-c", "core.protectHFS=true", "-c", "core.protectNTFS=true"]
    subprocess.run([*git, "init", "-q"], check=True)
    blob = subprocess.run([*git, "hash-object", "-w", "--stdin"], input=b"", capture_output=True, check=True)
    entries = "".join(f"100644 {blob.stdout.decode().strip()}\t{name}\0" for name in names)
    add = [*git, "update-index", "-z", "--index-info"]
    subprocess.run(add, input=os.fsencode(entries), capture_output=True, check=True)
    listed = subprocess.run([*git, "ls-files", "-z"], capture_output=True, check=True).stdout
    taken = set(os.fsdecode(listed).split("\0"))
    return [name for name in names if name not in taken]


def is_refused(name: str) -> bool:
    try:
        WorkspacePath.parse(name)
    except Refused:
        return True
    return False


def test_any_other_name_goes_there_and_back(place: Workplace) -> None:
    place.write({"plain": "plain\n"})
    with place.start() as client:
        client.settle()
        before = names_in(place.root)
        for name in ODD:
            if "\\" in name:  # refused for a new file: see tests/server/test_new_names.py
                continue
            made = client.apply([write(name, "1\n"), write(f"d{name}"[:40] + f"/{name}", "2\n")])
            assert made.transaction is not None
            assert (place.root / name).read_bytes() == b"1\n"
            assert client.read(name).path == name
            assert client.stat([name]).files[0].size == 2
            assert {file.path for file in client.log(path=name).transactions[0].files} >= {name}
            assert client.diff(paths=[name]).files[0].path == name
            assert client.blame(name).lines[0].seq == made.transaction.seq
            client.apply([Move(path=name, to="moved"), Symlink(path=name, target="plain")])
            client.apply([Delete(path=name)])
            client.undo(last=3)
            assert names_in(place.root) == before, ascii(name)
        head = client.status().head
        for name in ODD:
            (place.root / name).write_bytes(b"outside\n")
        client.settle()
        found = transactions(client, after=head)  # of a machine that pauses more than one
        assert {file.path for one in found for file in one.files} == set(ODD)
        for one in found:
            client.undo(one.seq)
        assert names_in(place.root) == before
    place.stop()
    with place.start() as client:
        assert client.check().problems == []


def names_in(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def test_editctl_lets_no_name_do_anything_to_a_terminal(place: Workplace) -> None:
    with place.start() as client:
        for name in ODD:
            (place.root / name).write_bytes(b"outside\n")
        client.settle()
        client.apply([write(name, "1\n") for name in ODD], message="\x1b]0;title\x07")
        for argv in (["log"], ["log", "--oneline"], ["show", "1"], ["diff", "0"], ["undo", "--dry-run"]):
            shown = subprocess.run(
                ["script", "-qec", f"{sys.executable} -m editd_client -C . {' '.join(argv)}", "/dev/null"],
                cwd=place.root, env={**place.environment, "EDITD_PAGER": "cat", "NO_COLOR": "1"},
                capture_output=True, check=False,
            ).stdout.replace(b"\r\n", b"\n")  # fmt: skip
            assert shown, argv
            assert not {byte for byte in shown if byte < 0x20 or byte == 0x7F} - {0x0A, 0x09}, (argv, shown)
            assert "\x85".encode() not in shown


@pytest.mark.parametrize("where", ["long", "odd"])
def test_a_workspace_may_lie_anywhere(tmp_path: Path, where: str) -> None:
    name = "n" * 200 + "/" + "m" * 200 if where == "long" else "new\nline \udcff\x1b[31m"
    with workplace(tmp_path / name, {"d/a": "0\n"}) as place:
        place.variables["XDG_STATE_HOME"] = str(tmp_path / "state")  # SQLite opens no path beyond 512 bytes
        client = place.start()
        client.apply([write("d/a", "1\n"), write("é/b", "1\n")])
        client.settle()
        client.undo()
        assert place.files() == {"d/a": b"0\n"}
        assert client.check().problems == []
        client.close()


def test_a_workspace_that_is_replaced_is_not_taken_for_the_one_it_was(place: Workplace) -> None:
    place.write({"a": "0\n"})
    with place.start() as client:
        client.apply([write("a", "1\n")])
        place.root.rename(place.folder / "away")
        place.root.mkdir()
        (place.root / "a").write_text("another's\n")
        with pytest.raises(Exception, match="moved or removed"):
            client.apply([write("a", "2\n")])
        with pytest.raises(Exception, match="moved or removed"):
            client.undo()
        assert (place.root / "a").read_text() == "another's\n"
        assert (place.folder / "away/a").read_text() == "1\n"
        (place.root / "a").unlink()
        place.root.rmdir()
        (place.folder / "away").rename(place.root)
        client.undo()
        assert (place.root / "a").read_text() == "0\n"
