"""Tests of `server.methods.file_views`: one view of the files, for all changes that wait."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from editd.wire import messages
from editd_client.errors import EditdError, FileMissing
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

    Options = dict[str, object]
    Form = Callable[..., AbstractContextManager[Options]]

FILES = {
    "changed": "1\n2\n3\n",
    "moved": "m\n",
    "gone": "g\n",
    "script": "s\n",
    "kept": "k\n",
    "d/below": "b\n",
}
PATHS = [*FILES, "new", "arrived", "d/new", "nowhere"]
LINKED = ["link", "folder/new", "folder/b"]
EDITS: list[messages.AnyEdit] = [
    replace("changed", "2\n", "two\n"),
    write("new", "n\n"),
    write("d/new", "dn\n"),
    messages.Move(path="moved", to="arrived"),
    messages.Delete(path="gone"),
    messages.Chmod(path="script", executable=True),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with workplace(tmp_path / "place", FILES) as place:
        (place.root / "link").symlink_to("changed")
        (place.root / "folder").symlink_to("d")
        place.start().close()
        yield place


@contextmanager
def staged(_place: Workplace, client: Client, edits: list[messages.AnyEdit] = EDITS) -> Iterator[Options]:
    name = client.begin().changeset
    client.stage(name, edits)
    yield {"changeset": name}
    client.abort(name)


@contextmanager
def proposed(_place: Workplace, client: Client, edits: list[messages.AnyEdit] = EDITS) -> Iterator[Options]:
    made = client.apply(edits, propose=True)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.proposal is not None
    yield {"proposal": made.proposal.proposal}
    client.proposal_withdraw(made.proposal.proposal)


@contextmanager
def drafted(_place: Workplace, client: Client, edits: list[messages.AnyEdit] = EDITS) -> Iterator[Options]:
    client.session_open("drafts", batch="draft")
    made = client.apply(edits)
    assert isinstance(made.proposal, messages.ProposedResult)
    assert (made.proposal.state, made.proposal.proposal is None) == ("draft", False)
    yield {"proposal": made.proposal.proposal}
    client.session_close("drafts", withdraw=True)


@contextmanager
def collected(_place: Workplace, client: Client, edits: list[messages.AnyEdit] = EDITS) -> Iterator[Options]:
    client.session_open("collects", batch="session")
    for edit in edits:
        client.apply([edit])
    yield {}
    client.session_close("collects", withdraw=True)


FORMS: dict[str, Form] = {
    "changeset": staged,
    "proposal": proposed,
    "draft": drafted,
    "collecting session": collected,
}


def text_of(client: Client, path: str, options: Options) -> str | None:
    """Return the text of a file, None for a missing one."""
    try:
        read = client.read(path, **options)  # type: ignore[arg-type]
    except FileMissing:
        return None
    assert isinstance(read.content, str)
    return read.content


def states_of(client: Client, options: Options) -> list[messages.StatEntry]:
    return client.stat(PATHS, **options).files  # type: ignore[arg-type]


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_sees_what_would_land(place: Workplace, form: str) -> None:
    with place.client() as client, place.client() as other:
        before = {path: text_of(other, path, {}) for path in PATHS}
        with FORMS[form](place, client) as options:
            seen = {path: text_of(client, path, options) for path in PATHS}
            through_links = [text_of(client, path, options) for path in ("link", "folder/new", "folder/b")]
            stats = None if "changeset" in options else states_of(client, options)
            diff = client.diff(**options).diff if options else None  # type: ignore[arg-type]
            assert {path: text_of(other, path, {}) for path in PATHS} == before, "nothing has landed"
        landed = other.apply(EDITS, diff=True)
        assert seen == {path: text_of(other, path, {}) for path in PATHS}
        assert through_links == [text_of(other, path, {}) for path in LINKED]
        assert stats is None or stats == states_of(other, {})
        assert landed.transaction is not None
        assert diff is None or diff == other.show(landed.transaction.seq).diff


@pytest.mark.parametrize("form", FORMS)
def test_a_file_in_place_of_a_link_is_read_itself(place: Workplace, form: str) -> None:
    edits = [messages.Delete(path="link"), write("link", "no link\n")]
    with place.client() as client, FORMS[form](place, client, edits) as options:
        assert text_of(client, "link", options) == "no link\n"


@pytest.mark.parametrize(("form", "work"), [
    ("changeset", "this changeset"), ("proposal", "this proposal"), ("draft", "this proposal"),
    ("collecting session", "the session's proposal"),
])  # fmt: skip
def test_a_missing_file_is_refused_with_the_work_that_lacks_it(
    place: Workplace, form: str, work: str
) -> None:
    with place.client() as client, FORMS[form](place, client) as options:
        for path in ("gone", "moved"):
            with pytest.raises(EditdError, match=f"{path} does not exist in {work}"):
                client.read(path, **options)  # type: ignore[arg-type]


def test_a_transaction_has_its_files(place: Workplace) -> None:
    with place.client() as client:
        first = client.apply(EDITS).transaction
        assert first is not None
        client.apply([write("new", "later\n"), messages.Delete(path="changed")])
        assert text_of(client, "new", {"at": first.seq}) == "n\n"
        assert text_of(client, "changed", {"at": first.seq}) == "1\ntwo\n3\n"
        assert text_of(client, "gone", {"at": 0}) == "g\n"
        with pytest.raises(EditdError, match=f"gone was not there after transaction {first.seq}"):
            client.read("gone", at=first.seq)


@pytest.mark.parametrize(("method", "options", "hint"), [
    ("read", {"proposal": 1, "at": 0}, "Leave out `at` and `changeset`."),
    ("read", {"proposal": 1, "changeset": "c"}, "Leave out `at` and `changeset`."),
    ("diff", {"proposal": 1, "from_": 0}, "Leave out `from`, `to` and `changeset`."),
    ("diff", {"proposal": 1, "changeset": "c"}, "Leave out `from`, `to` and `changeset`."),
    ("diff", {"changeset": "c", "to": 0}, "Leave out `from` and `to`."),
])  # fmt: skip
def test_a_request_names_one_kind_of_files(
    place: Workplace, method: str, options: Options, hint: str
) -> None:
    with place.client() as client, pytest.raises(EditdError) as refusal:
        getattr(client, method)(*(["new"] if method == "read" else []), **options)
    assert (refusal.value.name, refusal.value.hint) == ("invalid_params", hint)
