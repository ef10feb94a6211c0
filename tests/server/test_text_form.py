"""A whole write keeps the form of the file that it replaces, or a warning says what it changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from editd.edits.text_form import form_changes
from editd.values.content import EXECUTABLE, Change, FileState, is_plain_as_before
from editd.values.path import WorkspacePath
from editd.wire.messages import Delete, Move, Tool, Write
from editd_client.errors import NotText
from support.reviewers import configure
from support.shared_daemon import renewed
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

FORMS = {
    "crlf.txt": "old\r\né\r\n".encode(),
    "mark.txt": b"\xef\xbb\xbf" + "old\né\n".encode(),
    "wide.txt": b"\xff\xfe" + "old\r\né\r\n".encode("utf-16-le"),
    "single.txt": "old\né\n".encode("cp1252"),
}
NEW = "new\né\nend\n"
PLAIN = st.lists(st.sampled_from([b"a\n", b"", b"\r\n", b"\0", b"\xef\xbb\xbf", b"\xe9"])).map(b"".join)
KEPT = {
    "crlf.txt": NEW.replace("\n", "\r\n").encode(),
    "mark.txt": b"\xef\xbb\xbf" + NEW.encode(),
    "wide.txt": b"\xff\xfe" + NEW.replace("\n", "\r\n").encode("utf-16-le"),
    "single.txt": NEW.encode("cp1252"),
}
each_form = pytest.mark.parametrize("path", FORMS)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("forms") / "place") as made:
        configure(made, 'encoding = "cp1252"\n')
        made.start().close()
        yield made
        made.stop()


@pytest.fixture
def place(shared: Workplace) -> Workplace:
    return renewed(shared, FORMS | {"run.sh": "#!/bin/sh\n"})


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    (place.root / "run.sh").chmod(0o755)
    with place.client() as made:
        made.settle()
        yield made


def warnings(answer: Any) -> list[str]:
    return [warning for file in answer.files for warning in file.warnings]


def codex(*sections: str) -> Tool:
    patch = "\n".join(("*** Begin Patch", *sections, "*** End Patch"))
    return Tool(dialect="codex", tool="apply_patch", args={"input": patch})


def added(path: str, text: str) -> str:
    return f"*** Add File: {path}\n" + "".join(f"+{line}\n" for line in text.splitlines()).rstrip("\n")


@each_form
def test_text_that_is_to_keep_the_form_does(place: Workplace, client: Client, path: str) -> None:
    answer = client.apply([Write(path=path, content=NEW, force=True, keep_form=True)])
    assert place.files()[path] == KEPT[path]
    assert warnings(answer) == []


@each_form
def test_bytes_are_taken_as_they_are_and_a_warning_names_the_change(
    place: Workplace, client: Client, path: str
) -> None:
    answer = client.apply([Write(path=path, content=NEW, force=True)])
    assert place.files()[path] == NEW.encode()
    (warning,) = warnings(answer)
    named = {"crlf.txt": "CR LF", "mark.txt": "mark", "wide.txt": "utf-16-le", "single.txt": "cp1252"}
    assert warning.startswith(f"form: {path} was written whole")
    assert named[path] in warning


WIDE = "its encoding was utf-16-le and is utf-8; its byte-order mark is gone"


@pytest.mark.parametrize("new", ["plain\n", "ñ\n"])
@pytest.mark.parametrize("way", ["write", "delete", "move", "command"])
def test_the_warning_names_a_change_of_encoding_whatever_the_way_and_the_text(
    place: Workplace, client: Client, way: str, new: str
) -> None:
    first: dict[str, list[Delete | Move]] = {
        "delete": [Delete(path="wide.txt")],
        "move": [Move(path="wide.txt", to="moved.txt")],
    }
    if way == "command":
        shown = place.editctl("write", "wide.txt", "--force", stdin=new)
        assert WIDE in shown.stdout + shown.stderr
    else:
        answer = client.apply([*first.get(way, []), Write(path="wide.txt", content=new, force=True)])
        (warning,) = warnings(answer)
        assert WIDE in warning


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (b"\xef\xbb\xbf", b"a\n", ["its byte-order mark is gone"]),
        (b"\xff\xfe", b"a\n", ["its encoding was utf-16-le and is utf-8", "its byte-order mark is gone"]),
        (b"\xef\xbb\xbfa\n", b"", ["its byte-order mark is gone"]),
        (b"a\n", b"\xff\xfea\0", ["its encoding was utf-8 and is utf-16-le", "it has a byte-order mark now"]),
        (b"\xff\xfea\0", b"\xfe\xff\0a", ["its encoding was utf-16-le and is utf-16-be"]),
        (b"\xe9\n", b"e\n", []),
        (b"e\n", b"\xe9\n", []),
        (b"\xe9\n", "é\n".encode(), ["its encoding was cp1252 and is utf-8"]),
        (b"", b"\xff\xfea\0", []),
    ],
)
def test_each_part_of_the_form_that_changes_is_named(before: bytes, after: bytes, named: list[str]) -> None:
    """ASCII alone is of many encodings, and an empty file has no form. A mark alone is a form."""
    assert list(form_changes(FileState(before), FileState(after), "cp1252")) == named


@given(PLAIN, PLAIN)
def test_a_plain_text_that_stays_plain_keeps_its_form(before: bytes, after: bytes) -> None:
    change = Change(WorkspacePath("a"), FileState(before), FileState(after))
    if is_plain_as_before(change):
        assert list(form_changes(change.before, change.after, "cp1252")) == []


def test_plain_is_ascii_with_lf_alone_and_the_mode_of_before() -> None:
    plain = FileState(b"a\n")
    for other in (b"a\r\n", b"a\rb", "é".encode(), b"\0", b"\xef\xbb\xbfa"):
        assert not is_plain_as_before(Change(WorkspacePath("a"), plain, FileState(other)))
        assert not is_plain_as_before(Change(WorkspacePath("a"), FileState(other), plain))
    assert not is_plain_as_before(Change(WorkspacePath("a"), plain, FileState(b"a\n", EXECUTABLE)))
    assert not is_plain_as_before(Change(WorkspacePath("a"), None, plain))
    assert is_plain_as_before(Change(WorkspacePath("a"), plain, FileState(b"")))


@each_form
def test_a_file_that_codex_deletes_and_adds_keeps_its_form(
    place: Workplace, client: Client, path: str
) -> None:
    answer = client.apply([codex(f"*** Delete File: {path}", added(path, NEW))])
    assert place.files()[path] == KEPT[path]
    assert warnings(answer) == []


def test_a_deleted_file_that_is_written_again_stays_executable(place: Workplace, client: Client) -> None:
    client.apply([codex("*** Delete File: run.sh", added("run.sh", "#!/bin/sh\ntrue\n"))])
    assert (place.root / "run.sh").stat().st_mode & 0o111
    client.apply([Delete(path="run.sh"), Write(path="run.sh", content="#!/bin/sh\nfalse\n", base=None)])
    assert (place.root / "run.sh").stat().st_mode & 0o111
    answer = client.apply([Write(path="run.sh", content="#!/bin/sh\n", mode="100644", force=True)])
    assert "no longer executable" in warnings(answer)[0]


def test_wcgw_writes_a_whole_file_in_its_form(place: Workplace, client: Client) -> None:
    for path, kept in KEPT.items():
        client.read(path, session="t1")
        args = {
            "file_path": f"{place.root}/{path}", "percentage_to_change": 100,
            "text_or_search_replace_blocks": NEW, "thread_id": "t1",
        }  # fmt: skip
        client.apply([Tool(dialect="wcgw", tool="FileWriteOrEdit", args=args)], session="t1")
        assert place.files()[path] == kept, path


def test_bytes_that_are_no_text_are_never_converted(place: Workplace, client: Client) -> None:
    content = "\udcff\udcfe\x00new"
    client.apply([Write(path="wide.txt", content=content, force=True, keep_form=True)])
    assert place.files()["wide.txt"] == b"\xff\xfe\x00new"


def test_a_form_that_no_known_encoding_fits_cannot_be_kept(tmp_path: Path) -> None:
    files = {"strange.txt": b"caf\xe9\n", "wider.txt": "\ufeffwide\n".encode("utf-32-le")}
    with workplace(tmp_path / "place", files) as place, place.start() as client:
        for path, before in files.items():
            assert client.read(path).encoding is None
            with pytest.raises(NotText) as refusal:
                client.apply([Write(path=path, content=NEW, force=True, keep_form=True)])
            assert "`encoding`" in str(refusal.value)
            assert place.files()[path] == before
            (warning,) = warnings(client.apply([Write(path=path, content=NEW, force=True)]))
            assert "no known encoding fitted it before, and it is utf-8 now" in warning
            (warning,) = warnings(client.apply([Write(path=path, content="\udce9", force=True)]))
            assert "its encoding was utf-8, and no known encoding fits it now" in warning
        place.stop()


def test_a_file_that_is_deleted_and_added_as_it_was_says_that_nothing_changed(
    place: Workplace, client: Client
) -> None:
    args = {"input": "\n".join(
        ("*** Begin Patch", "*** Delete File: run.sh", added("run.sh", "#!/bin/sh\n"), "*** End Patch")
    )}  # fmt: skip
    answer = client.apply([Tool(dialect="codex", tool="apply_patch", args=args)])
    assert answer.transaction is None
    assert warnings(answer) == ["no_change: nothing in run.sh changed: the new text is the old one."]
    done = place.editctl("tool", "codex", "apply_patch", "--args", json.dumps(args))
    assert done.returncode == 0
    assert "warning: no_change: nothing in run.sh changed" in done.stdout
