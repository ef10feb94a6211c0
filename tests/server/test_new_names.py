"""Names of another world are refused for new files, and a name is found in its other Unicode form."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Delete, Move, Patch, Replace, Symlink, Tool, Write
from editd_client.errors import EditdError
from support.agent import agent
from support.shared_daemon import renewed, shared_workplace
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "café.txt") for form in ("NFC", "NFD"))


FILES = {"src/x.py": "x\n", DECOMPOSED: "old\n"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with shared_workplace(tmp_path_factory.mktemp("names")) as made:
        yield made


@pytest.fixture
def place(shared: Workplace) -> Workplace:
    return renewed(shared, FILES)


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    with place.client() as made:
        yield made


def refused(client: Client, *edits: object, **more: str) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        client.apply(edits, **more)  # type: ignore[arg-type]
    return refusal.value


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("~/notes.txt", "{HOME}/notes.txt"),
        ("$HOME/notes.txt", "{HOME}/notes.txt"),
        ("${HOME}/notes.txt", "{HOME}/notes.txt"),
        ("C:\\Users\\ann\\app\\src\\new.py", "src/new.py"),
        ("C:/Users/ann/app/src/new.py", "src/new.py"),
        ("src\\new.py", "src/new.py"),
        ("file:{ROOT}/src/new.py", "src/new.py"),
        ("~ann/src/new.py", "src/new.py"),
        ("$env:HOME/notes.txt", "{HOME}/notes.txt"),
        ("$env:APPDATA/src/new.py", "src/new.py"),
        ("c:src/new.py", "src/new.py"),
        ("untitled:new.py", "mean new.py?"),
        ("file:new.py", "mean new.py?"),
    ],
)
def test_a_name_of_another_world_makes_no_file(
    place: Workplace, client: Client, path: str, meant: str
) -> None:
    before = place.files()
    path, meant = path.replace("{ROOT}", str(place.root)), meant.replace("{HOME}", place.environment["HOME"])
    refusal = refused(client, Write(path=path, content="x\n", base=None))
    assert refusal.name == "invalid_params", refusal.message
    assert meant in refusal.hint
    for edit in (
        Move(path="src/x.py", to=path),
        Patch(patch=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"),
        Tool(
            dialect="claude", tool="str_replace_based_edit_tool",
            args={"command": "create", "path": path, "file_text": "x"},
        ),
    ):  # fmt: skip
        assert refused(client, edit).name == "invalid_params", edit
    assert place.files() == before


URLS = [
    ("file://{ROOT}/src/new%20one.py", "src/new one.py"),
    ("file:///tmp/elsewhere/src/new.py", "src/new.py"),
    ("vscode://file{ROOT}/src/new.py", "src/new.py"),
    ("http://localhost/new.py", "new.py"),
]


@pytest.mark.parametrize(("path", "meant"), URLS)
def test_a_url_is_refused_with_the_path_that_was_probably_meant(
    place: Workplace, client: Client, path: str, meant: str
) -> None:
    before = place.files()
    path = path.replace("{ROOT}", str(place.root))
    for edit in (
        Write(path=path, content="x\n", base=None),
        Replace(path=path, old="x", new="y"),
        Delete(path=path),
        Move(path="src/x.py", to=path),
        Symlink(path=path, target="x"),
        Patch(patch=f"--- /dev/null\n+++ b/{path.replace(' ', '')}\n@@ -0,0 +1 @@\n+x\n"),
    ):
        refusal = refused(client, edit)
        assert refusal.name == "invalid_params", edit
        assert f"{path} is a URL." in refusal.message, edit
        assert f"Did you mean {meant}?" in refusal.hint, edit
        assert refusal.data["similar"] == [meant]
    with pytest.raises(EditdError, match="is a URL") as unread:
        client.read(path)
    assert "relative to the workspace's root" in unread.value.hint
    assert place.files() == before


@pytest.mark.parametrize("path", ["file:///", "http://"])
def test_a_url_without_a_path_means_no_file(client: Client, path: str) -> None:
    refusal = refused(client, Write(path=path, content="x", base=None))
    assert refusal.name == "invalid_params"
    assert "Did you mean" not in refusal.hint
    assert "similar" not in refusal.data


def test_apply_edits_of_mcp_names_the_path_that_a_url_means(place: Workplace, client: Client) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    edit = {"op": "write", "path": f"file://{place.root}/src/new.py", "content": "x"}
    with agent(place, "--workspace", str(place.root)) as model:
        text, refusal = model.is_refused("apply_edits", edits=[edit])
    assert "Did you mean src/new.py?" in text
    assert refusal["data"]["similar"] == ["src/new.py"]


def test_a_name_whose_first_part_exists_is_meant_as_it_is(place: Workplace, client: Client) -> None:
    place.write({"~/kept": "x", "a\\b/c": "x"})
    client.settle()
    client.apply([Write(path="~/new", content="x", base=None), Write(path="a\\b/new", content="", base=None)])
    for path in (
        "~backup",
        "price$",
        "$HOME",
        "a:",
        "a:b",
        "Re: mail",
        "Foo::Bar.3pm",
        "50%",
        "nested/~/x",
        "draft~",
    ):
        client.apply([Write(path=path, content="x", base=None)])
    client.apply([Write(path="a\\b/c", content="y", force=True)])
    assert {"~/new", "a\\b/new", "~backup", "nested/~/x"} <= place.files().keys()


def test_a_file_is_found_by_its_name_in_another_unicode_form(place: Workplace, client: Client) -> None:
    read = client.read(COMPOSED)
    assert (read.path, read.content) == (DECOMPOSED, "old\n")
    answer = client.apply([Write(path=COMPOSED, content="new\n", base=read.version)])
    assert [file.path for file in answer.files] == [DECOMPOSED]
    assert "is named" in answer.files[0].warnings[0]
    assert place.files()[DECOMPOSED] == b"new\n"
    client.apply([Delete(path=COMPOSED)])
    assert DECOMPOSED not in place.files()


def test_no_twin_is_made_in_another_unicode_form(place: Workplace, client: Client) -> None:
    before = place.files()
    assert refused(client, Write(path=COMPOSED, content="x", base=None)).name == "file_exists"
    assert refused(client, Move(path="src/x.py", to=COMPOSED)).name == "file_exists"
    link = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    twins = [Write(path=f"new/{name}", content="x", base=None) for name in link]
    client.apply(twins[:1])
    assert refused(client, twins[1]).name == "file_exists"
    assert place.files().keys() - before.keys() == {f"new/{link[0]}"}


def test_a_file_may_be_renamed_into_its_other_form(place: Workplace, client: Client) -> None:
    client.apply([Move(path=DECOMPOSED, to=COMPOSED)])
    assert place.files()[COMPOSED] == b"old\n"
    assert DECOMPOSED not in place.files()


def test_a_new_file_in_a_folder_of_another_form_goes_into_that_folder(
    place: Workplace, client: Client
) -> None:
    folders = [unicodedata.normalize(form, "données") for form in ("NFC", "NFD")]
    place.write({f"{folders[1]}/a": "x"})
    client.settle()
    client.apply([Write(path=f"{folders[0]}/b", content="y", base=None)])
    assert place.files()[f"{folders[1]}/b"] == b"y"


def test_the_history_of_a_deleted_file_is_found_by_its_name_in_another_unicode_form(
    tmp_path: Path,
) -> None:
    with workplace(tmp_path / "place", FILES) as place, place.start() as client:
        client.apply([Delete(path=DECOMPOSED)])
        assert [one.kind for one in client.log(path=COMPOSED).transactions] == ["edit"]
        assert client.log_count(path=COMPOSED).count == 1
        done = place.editctl("restore", "--", COMPOSED)
        assert done.returncode == 0, done.stderr
        assert place.files()[DECOMPOSED] == b"old\n"
        assert COMPOSED not in place.files()
        place.stop()
