"""File systems that take two spellings for one name: a workspace there, and such a mount below the root."""

from __future__ import annotations

import contextlib
import os
import random
import unicodedata
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from editd.system.filesystem import open_folder
from editd.system.folded_names import folding_of
from editd.wire.messages import Delete, Move, Patch, Scope, Tool
from editd_client.errors import EditdError, Unreachable
from support import file_systems
from support.crash_checks import in_the_long_form, strays, transactions
from support.every_method import FOUND, METHODS
from support.outside import asked
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

IGNORES = {"exfat": "case", "apfs": "case and form", "form": "form", "casefold": "case and form"}
KINDS = pytest.mark.parametrize(
    "kind", ["exfat", "apfs", in_the_long_form("form"), in_the_long_form("casefold")]
)
SPELLINGS = 10
NAME = "Readme é"  # it has another spelling on each of them


def skip_where_missing(kind: str) -> None:
    if (reason := file_systems.missing(kind)) is not None:
        pytest.skip(reason)


def respelled(kind: str, text: str) -> str:
    """Return another spelling of a name that has a case and an accent."""
    text = text.swapcase() if "case" in IGNORES[kind] else text
    if kind == "casefold":
        text = f"{text[:2]}\u200b{text[2:]}"
    return unicodedata.normalize("NFD", text) if "form" in IGNORES[kind] else text


def refused(client: Client, name: str, *edits: object) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        client.apply(list(edits))  # type: ignore[arg-type]
    assert refusal.value.name == name, refusal.value
    return refusal.value


def names(place: Workplace) -> list[str]:
    return sorted(os.listdir(place.root))


def test_names_are_told_apart_on_the_file_system_of_the_tests(tmp_path: Path) -> None:
    with open_folder(str(tmp_path)) as folder:
        assert folding_of(folder) == ""
    assert os.listdir(tmp_path) == []


@pytest.fixture
def folded(place: Workplace, kind: str) -> Iterator[Workplace]:
    """A workspace on a file system of this kind."""
    skip_where_missing(kind)
    with file_systems.mounted_kind(kind, place.root, place.folder):
        yield place
        place.end()


@KINDS
def test_a_workspace_with_folded_names_has_one_history_for_each_file(folded: Workplace, kind: str) -> None:
    place, other = folded, respelled(kind, NAME)
    place.write({NAME: "one\n", f"Fé/{NAME}": "deep\n"})
    with place.start() as client:
        client.settle()
        assert any("two spellings" in sentence for sentence in client.status().weaker)
        # An edit, a read and a deletion by another spelling reach the file of the disk's.
        done = client.apply([replace(other, "one", "two")])
        assert [file.path for file in done.files] == [NAME]
        assert any("is named" in warning for file in done.files for warning in file.warnings)
        assert client.read(other).content == "two\n"
        client.apply([write(f"{respelled(kind, 'Fé')}/new", "new\n")])
        assert sorted(os.listdir(place.root / "Fé")) == sorted([NAME, "new"])
        client.apply([Delete(path=f"{respelled(kind, 'Fé')}/{other}")])
        client.undo(last=1)
        assert place.files() == {NAME: b"two\n", f"Fé/{NAME}": b"deep\n", "Fé/new": b"new\n"}
        # Two new names that are one file are refused.
        refused(client, "file_exists", write("Aé", "1\n"), write(respelled(kind, "Aé"), "2\n"))
        refused(client, "file_exists", write("Aé/x", "1\n"), write(f"{respelled(kind, 'Aé')}/y", "2\n"))
        # A move may change the spelling alone, and is undone and done again.
        done = client.apply([Move(path=other, to=other)])
        assert names(place) == sorted([other, "Fé"])
        client.undo(last=1)
        assert names(place) == sorted([NAME, "Fé"])
        client.redo()
        assert names(place) == sorted([other, "Fé"])
        assert client.read(NAME).content == "two\n"
        # So do a deletion with a new file, and git's patch of a rename.
        client.apply([Delete(path=other), write(NAME, "two\n")])
        assert names(place) == sorted([NAME, "Fé"])
        client.undo(last=1)
        patch = f"diff --git a/{{0}} b/{{1}}\nsimilarity index 100%\nrename from {other}\nrename to {NAME}\n"
        client.apply([Patch(patch=patch.format(other, NAME))])
        assert names(place) == sorted([NAME, "Fé"])
        client.undo(last=1)
        assert names(place) == sorted([other, "Fé"])
        # Another program changes the spelling: one transaction, and its undo brings the old one back.
        head = client.status().head
        (place.root / other).rename(place.root / NAME)
        client.settle()
        assert client.status().head == head + 1
        assert names(place) == sorted([NAME, "Fé"])
        client.undo(head + 1)
        assert names(place) == sorted([other, "Fé"])
        client.settle()
        assert client.check().problems == []
    place.kill()
    with place.start() as client:
        client.settle()
        assert place.files() == {other: b"two\n", f"Fé/{NAME}": b"deep\n", "Fé/new": b"new\n"}
        assert client.check().problems == []
    place.stop()
    assert strays(place.root) == []


@KINDS
def test_protect_leases_and_scopes_hold_for_every_spelling(folded: Workplace, kind: str) -> None:
    place, other = folded, respelled(kind, "Secreté")
    config = place.folder / "config/editd/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('protect = ["Secreté/**", "*.keyé"]\n[serena]\nignored_paths = ["Madeé"]\n')
    place.write({"Fé": "one\n", "Madeé/x": "one\n", ".gitignore": "/Ké\n", "Ké": "one\n"})
    with place.start() as client:
        client.settle()
        refused(client, "path_protected", write(f"{other}/x", "mine\n"))
        refused(client, "path_protected", write(respelled(kind, "a.keyé"), "mine\n"))
        refused(client, "path_protected", Move(path="Fé", to=f"{other}/x"))
        for path in (f"{respelled(kind, 'Madeé')}/x", respelled(kind, "Ké")):
            args = {"relative_path": path, "needle": "one", "repl": "two", "mode": "literal"}
            refused(client, "path_ignored", Tool(dialect="serena", tool="replace_content", args=args))
        client.session_open("owner")
        client.session_open("author")
        client.session_open("bound", scope=Scope(write=["Fé"]))
        lease = client.lease_acquire(["Leasé*"], 60, session="owner")
        with pytest.raises(EditdError, match="leased by"):
            client.apply([write(respelled(kind, "Leaséd"), "mine\n")], session="author")
        with pytest.raises(EditdError, match="leased"):
            client.lease_acquire([respelled(kind, "Leaséd")], 60, session="author")
        client.lease_release(lease.lease, force=True)
        client.apply([write(respelled(kind, "Fé"), "two\n")], session="bound")
        assert (place.root / "Fé").read_bytes() == b"two\n"


def spelled_at_random(kind: str, text: str, chance: random.Random) -> str:
    """Return one of the spellings that the file system takes for this path."""
    if "form" in IGNORES[kind]:
        text = unicodedata.normalize(chance.choice(["NFC", "NFD"]), text)
    if "case" in IGNORES[kind]:
        text = "".join(chance.choice([one, one.swapcase()]) for one in text)
    if kind == "casefold" and chance.random() < 0.5:
        at = chance.randrange(1, len(text))
        text = f"{text[:at]}\u200b{text[at:]}"
    return text


@pytest.mark.long
@pytest.mark.timeout(3600)
@KINDS
def test_no_method_evades_protect_or_a_lease_by_a_spelling(folded: Workplace, kind: str) -> None:
    place, chance = folded, random.Random(kind)
    config = place.folder / "config/editd/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('protect = ["Secreté/**"]\n')
    place.write({"Secreté/Fé": f"{FOUND}\n", "Leaséd/Fé": f"{FOUND}\n", "plain": f"{FOUND}\nplain\n"})
    codes: Counter[str | None] = Counter()
    with place.start() as client:
        client.settle()
        client.session_open("owner")
        client.lease_acquire(["Leaséd/**"], 3600, session="owner")
        before = place.files()
        for path in [f"{folder}/{name}" for folder in ("Secreté", "Leaséd") for name in ("Fé", "newé")]:
            for _ in range(SPELLINGS):
                spelling = spelled_at_random(kind, path, chance)
                for name, method in METHODS.items():
                    code, told = asked(partial(method, client, str(place.root), spelling))
                    codes[code] += 1
                    assert place.files() == before, (name, spelling, told)
        assert client.check().problems == []
    print(f"{kind}: {sum(codes.values())} calls, {dict(codes)}")
    assert min(codes["path_protected"], codes["leased"]) > SPELLINGS * len(METHODS) // 2


@KINDS
def test_an_undo_never_deletes_the_file_of_another_spelling(folded: Workplace, kind: str) -> None:
    """The history has both spellings, one after the other; the disk has room for one of them."""
    place, other = folded, respelled(kind, NAME)
    with place.start() as client:
        client.settle()
        client.apply([write(NAME, "one\n")])
        deletion = client.apply([Delete(path=NAME)]).transaction
        creation = client.apply([write(other, "the only copy\n")]).transaction
        assert deletion is not None
        assert creation is not None
        with pytest.raises(EditdError, match="the same name as") as refusal:
            client.undo(deletion.seq)
        assert refusal.value.name == "file_exists"
        assert place.files() == {other: b"the only copy\n"}
        client.undo(creation.seq)
        client.undo(deletion.seq)
        assert place.files() == {NAME: b"one\n"}
        assert client.check().problems == []


@KINDS
def test_such_a_mount_below_the_root_is_out_of_scope_and_status_names_it(place: Workplace, kind: str) -> None:
    skip_where_missing(kind)
    place.write({"a": "a\n"})
    with file_systems.mounted_kind(kind, place.root / "stick", place.folder):
        (place.root / "stick/README.md").write_text("the only copy\n")
        with place.start() as client:
            client.settle()
            (sentence,) = [text for text in client.status().uncovered if "stick" in text]
            assert "README.md and readme.md" in sentence
            (place.root / "stick/README.md").rename(place.root / "stick/readme.md")
            (place.root / "stick/new").mkdir()
            (place.root / "stick/new/f").write_text("f\n")
            client.settle()
            assert [touched.path for tx in transactions(client) for touched in tx.files] == []
            for path in ("stick/ReadMe.md", "stick/other", "stick/none/yet"):
                with pytest.raises(EditdError, match="file system that ignores") as refusal:
                    client.apply([write(path, "mine\n")])
                assert refusal.value.name == "permission_denied"
            client.apply([write("a", "b\n")])
        place.stop()
        assert (place.root / "stick/readme.md").read_text() == "the only copy\n"


def test_a_mount_that_folds_names_and_comes_later_is_out_of_scope_too(place: Workplace) -> None:
    skip_where_missing("exfat")
    (place.root / "stick").mkdir()
    with place.start() as client:
        client.settle()
        with file_systems.mounted_kind("exfat", place.root / "stick", place.folder):
            (place.root / "stick/f").write_text("f\n")
            client.settle()
            assert "stick" in " ".join(client.status().uncovered)
            with pytest.raises(EditdError, match="file system that ignores"):
                client.apply([write("stick/f", "mine\n")])
        assert [touched.path for tx in transactions(client) for touched in tx.files] == []
        place.stop()


def test_a_history_with_two_spellings_of_one_name_keeps_both(place: Workplace) -> None:
    """It was made where the two are two files. The disk has one of them now."""
    skip_where_missing("apfs")
    place.write({"README": "one\n", "readme": "two\n"})
    with place.start() as client:
        client.settle()
    place.stop()
    with file_systems.mounted_kind("apfs", place.root, place.folder):
        place.write({"README": "one\n"})
        with place.start() as client:
            client.settle()
            (deletion,) = transactions(client)
            assert [(touched.path, touched.change) for touched in deletion.files] == [("readme", "deleted")]
            with pytest.raises(EditdError, match="the same name as README"):
                client.undo(deletion.seq)
            assert place.files() == {"README": b"one\n"}
            assert client.check().problems == []
        place.stop()


@pytest.mark.long
@pytest.mark.parametrize("when", range(1, 6))
@pytest.mark.parametrize("call", ["renameat2", "renameat,rename", "pwrite64,pwritev2"])
def test_a_kill_in_a_change_of_spelling_leaves_one_file(place: Workplace, call: str, when: int) -> None:
    skip_where_missing("apfs")
    with file_systems.mounted_kind("apfs", place.root, place.folder):
        place.write({"README": "one\n"})
        with place.start() as client:
            client.settle()
        place.stop()
        place.launcher = (
            "strace", "-f", "-o", str(place.folder / "trace"), "-e", f"trace={call}",
            "-e", f"inject={call}:signal=SIGKILL:when={when}",
        )  # fmt: skip
        with contextlib.suppress(AssertionError, EditdError, Unreachable), place.start() as client:
            client.apply([Move(path="README", to="readme")])
        place.editctl("stop")  # if the call was never made
        assert place.process is not None
        place.process.wait(30)
        place.launcher = ()
        with place.start() as client:
            client.settle()
            assert names(place) == (["readme"] if transactions(client) else ["README"])
            assert (place.root / "readme").read_text() == "one\n"
            assert client.check().problems == []
        place.stop()
