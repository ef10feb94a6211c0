"""Files that are not UTF-8: everything that a model or a person reads of them is the text that they edit.

One daemon and one model serve the tests with the key `encoding`. Each begins with the same files.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import ProposalGetResult, ProposedResult, Replace, Write
from editd_client.file_text import UNKNOWN
from support.agent import Agent, agent
from support.pseudo_terminal import PseudoTerminal
from support.reviewers import configure
from support.web_page import web_page
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.client import Client

TEXT = "café\nzwölf\nend\n"
SINGLE, WIDE, BINARY = "cp1252.txt", "utf16.txt", "binary.bin"
ENCODINGS = {SINGLE: "cp1252", WIDE: "utf-16-le"}
each_file = pytest.mark.parametrize("path", ENCODINGS)


def raw(path: str, text: str) -> bytes:
    return (b"\xff\xfe" if path == WIDE else b"") + text.encode(ENCODINGS[path])


PERSON = {"EDITD_SESSION": "", "EDITD_ACTOR": "ann"}  # not the model: the fork server has started both
FILES = {path: raw(path, TEXT) for path in ENCODINGS} | {BINARY: b"\x00\x81\x8d" * 9}


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    with workplace(tmp_path_factory.mktemp("encodings") / "place", FILES) as made:
        configure(made, 'encoding = "cp1252"\n')
        made.start().close()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def model(shared_place: Workplace) -> Iterator[Agent]:
    with agent(shared_place, "--workspace", str(shared_place.root)) as made:
        yield made


@pytest.fixture
def place(shared_place: Workplace) -> Workplace:
    """The shared workspace, with no files but those of the beginning."""
    for path in shared_place.files().keys() - FILES.keys():
        (shared_place.root / path).unlink()
    shared_place.write(FILES)
    with shared_place.client() as client:
        client.settle()
    return shared_place


@each_file
def test_a_model_reads_the_text_that_it_edits(place: Workplace, model: Agent, path: str) -> None:
    read = model.does("read_file", path=path)
    assert (read["content"], read["encoding"]) == (TEXT, ENCODINGS[path])
    part = model.does("read_file", path=path, start_line=2, end_line=2)
    assert (part["content"], part["lines"]) == ("zwölf\n", 3)
    edit = {"op": "replace", "path": path, "old": part["content"], "new": "zwölf é\n"}
    model.does("apply_edits", edits=[edit])
    assert place.files()[path] == raw(path, TEXT.replace("zwölf", "zwölf é"))


def test_a_model_that_follows_the_hint_replaces_a_damaged_file(place: Workplace, model: Agent) -> None:
    place.write({"damaged.txt": b"\xff\xfea\0b"})
    write = {"op": "write", "path": "damaged.txt", "content": "new\n"}
    text, _ = model.is_refused("read_file", path="damaged.txt")
    assert "byte-order mark of utf-16-le" in text
    assert "separate request" not in text  # a reader is not told to delete it
    for edit in (
        write,
        write | {"force": True},
        {"op": "replace", "path": "damaged.txt", "old": "a", "new": "b"},
    ):
        text, refusal = model.is_refused("apply_edits", edits=[edit])
        if refusal["error"] == "not_text":
            assert "delete it in a separate request, and write it anew" in text
            assert "byte-order mark of utf-16-le" in text
        else:
            assert refusal["error"] == "base_required"
    model.does("apply_edits", edits=[{"op": "delete", "path": "damaged.txt"}])
    model.does("apply_edits", edits=[write])
    assert place.files()["damaged.txt"] == b"new\n"


@each_file
def test_every_diff_for_a_model_is_text(place: Workplace, model: Agent, path: str) -> None:
    assert place.files()[path] == raw(path, TEXT)
    edit = {"op": "replace", "path": path, "old": "zwölf", "new": "zwölf é"}
    dry = model.does("apply_edits", edits=[edit], dry_run=True)["diff"]
    made = model.does("apply_edits", edits=[edit])["transaction"]
    shown = model.does("diff", **{"from": made - 1})["diff"]
    for diff in (dry, shown):
        assert "-zwölf\n+zwölf é\n" in diff
        assert f"encoding {ENCODINGS[path]}\n" in diff


def test_a_file_that_no_encoding_fits_is_refused_for_models(place: Workplace, model: Agent) -> None:
    text, refusal = model.is_refused("read_file", path=BINARY)
    assert refusal["error"] == "not_text"
    assert "`encoding`" in text + refusal["data"]["hint"]
    assert place.files()[BINARY] == b"\x00\x81\x8d" * 9


@each_file
def test_a_diff_to_read_is_a_patch_for_the_same_file(place: Workplace, path: str) -> None:
    with place.client() as client:
        dry = client.apply([Replace(path=path, old="zwölf", new="élan")], dry_run=True).files[0].diff
        assert isinstance(dry, str)
        assert place.editctl("patch", "-", stdin=dry, **PERSON).returncode == 0
        assert place.files()[path] == raw(path, TEXT.replace("zwölf", "élan"))
        patched = client.diff(0, paths=[path]).diff
        assert ("GIT binary patch" in patched) == (path == WIDE), "bytes, for `git apply`"
        made = client.log(limit=1).transactions[0].seq
        assert client.show(made, decoded=True).diff == client.diff(0, paths=[path], decoded=True).diff


def test_a_patch_in_utf8_never_puts_its_bytes_into_a_file_of_another_encoding(place: Workplace) -> None:
    patch = f"--- a/{SINGLE}\n+++ b/{SINGLE}\n@@ -3 +3 @@\n-end\n+fin é\n"
    assert place.editctl("patch", "-", stdin=patch, **PERSON).returncode == 0
    assert place.files()[SINGLE] == raw(SINGLE, TEXT.replace("end", "fin é"))


def proposed_for(client: Client, path: str) -> ProposalGetResult:
    """Propose another word for one in the file."""
    edit = Replace(path=path, old="zwölf", new="élan")
    proposed = client.apply([edit], propose=True, session="author").proposal
    assert isinstance(proposed, ProposedResult)
    assert proposed.proposal is not None
    return client.proposal_get(proposed.proposal)


@each_file
def test_hunks_and_proposals_are_text(place: Workplace, path: str) -> None:
    with place.client() as client:
        (file,) = proposed_for(client, path).files
        assert "-zwölf\n+élan\n" in file.hunks[0].text
        made = client.apply([Replace(path=SINGLE, old="end", new="é")]).transaction
        assert made is not None
        hunks = client.show(made.seq, hunks=True, decoded=True).hunks
        assert isinstance(hunks, list)
        assert "+é\n" in hunks[0].diff


@each_file
def test_blame_prints_text(place: Workplace, path: str) -> None:
    printed = place.editctl("blame", path).stdout
    assert "zwölf" in printed
    assert len(printed.splitlines()) == 3


@each_file
def test_a_model_that_writes_a_whole_file_keeps_its_encoding(
    place: Workplace, model: Agent, path: str
) -> None:
    model.does("read_file", path=path)
    model.does("apply_edits", edits=[{"op": "write", "path": path, "content": TEXT + "ñ\n"}])
    assert place.files()[path] == raw(path, TEXT + "ñ\n")


# ── Without the key `encoding` ──


BYTES = {"cp1252": TEXT.encode("cp1252"), "shift_jis": "設定\nzwo\nend\n".encode("shift_jis")}
each_unknown = pytest.mark.parametrize("before", BYTES.values(), ids=BYTES)


@pytest.fixture
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workplace]:
    """A daemon without a configured encoding."""
    with workplace(tmp_path_factory.mktemp("unknown") / "place") as made:
        yield made
        made.stop()


def changed(place: Workplace, before: bytes) -> Client:
    """Write a file of an unknown encoding, and change its last line."""
    place.write({"a.txt": before, "b.txt": "é\n"})
    client = place.start()
    client.settle()
    place.write({"a.txt": before.replace(b"end", b"fin")})
    client.settle()
    return client


def shown_bytes(before: bytes) -> str:
    return before.split(b"\n")[0].decode("utf-8", "backslashreplace")


@each_unknown
def test_a_diff_for_a_model_says_that_no_encoding_fits(unknown: Workplace, before: bytes) -> None:
    edit = {"op": "delete", "path": "a.txt"}
    with changed(unknown, before), agent(unknown, "--workspace", str(unknown.root)) as model:
        shown = model.does("diff", **{"from": 0})["diff"]
        dry = model.does("apply_edits", edits=[edit], dry_run=True)["diff"]
    for diff in (shown, dry):
        assert "\nencoding unknown\n" in diff
        assert shown_bytes(before) in diff
        assert "\ufffd" not in diff


@each_unknown
def test_the_page_says_that_no_encoding_fits_a_text(unknown: Workplace, before: bytes) -> None:
    with changed(unknown, before) as client, web_page(unknown) as page:
        edit = Write(path="a.txt", content=before.decode("utf-8", "surrogateescape") + "new\n", force=True)
        proposed = client.apply([edit], propose=True, session="author").proposal
        assert isinstance(proposed, ProposedResult)
        page.enter()
        for path in ("/transactions/1", f"/proposals/{proposed.proposal}"):
            shown = html.unescape(page.get(path).text)
            assert UNKNOWN in shown
            assert shown_bytes(before) in shown
            assert "\ufffd" not in shown


@each_unknown
def test_a_terminal_says_that_no_encoding_fits_a_text(unknown: Workplace, before: bytes) -> None:
    folder, environment = str(unknown.root), {**unknown.environment, "EDITD_PAGER": "cat"}
    with changed(unknown, before) as client:
        edit = Write(path="a.txt", content=before.decode("utf-8", "surrogateescape") + "new\n", force=True)
        client.apply([edit], propose=True, session="author")
        for words in ("diff 0", "show 1", "show 1 --hunks", "log -p", "proposal show 1"):
            argv = [str(unknown.provide_editctl() / "editctl"), *words.split()]
            with PseudoTerminal(argv, (200, 60), folder=folder, environment=environment) as terminal:
                terminal.until(r"\+(fin|.*new)")
                shown = terminal.text().decode()
            assert UNKNOWN in shown, words
            assert shown_bytes(before) in shown, words


@each_unknown
def test_a_dry_run_of_an_unknown_encoding_keeps_its_bytes_as_a_patch(
    unknown: Workplace, before: bytes
) -> None:
    with changed(unknown, before) as client:
        edit = Write(path="a.txt", content=before.decode("utf-8", "surrogateescape"), force=True)
        dry = client.apply([edit], dry_run=True).files[0].diff
        assert isinstance(dry, str)
        unknown.editctl("patch", "-", stdin=dry)
    assert unknown.files()["a.txt"] == before


@each_file
def test_the_diff_of_a_proposal_is_text(place: Workplace, path: str) -> None:
    """A person reads it in the question that an agent's client asks."""
    with place.client() as client:
        assert "-zwölf\n+élan\n" in proposed_for(client, path).diff
