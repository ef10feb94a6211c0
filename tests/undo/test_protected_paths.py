"""A protection does not block its own repair: what a session did to a protected path is rolled back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.reviewers import configure
from support.workplace import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from editd_client.client import Client
    from support.workplace import Workplace

PATH = ".github/workflows/ci.yml"


@pytest.fixture
def client(place: Workplace) -> Iterator[Client]:
    configure(place, 'protect = [".github/**"]\n')
    place.write({PATH: "run: test\n", "a.txt": "a\n"})
    with place.start() as made:
        made.session_open("agent", actor="claude")
        yield made
    place.stop()


def change_by_a_command(place: Workplace, client: Client, text: str) -> None:
    begun = client.exec_begin("sed", session="agent")
    place.write({PATH: text})
    client.exec_end(begun.exec, 0)


def is_protected(request: Callable[[], object]) -> bool:
    with pytest.raises(EditdError) as refusal:
        request()
    return refusal.value.name == "path_protected"


def test_what_a_session_did_to_a_protected_path_is_rolled_back(place: Workplace, client: Client) -> None:
    change_by_a_command(place, client, "run: evil\n")
    assert client.rollback("agent", dry_run=True).files[0].path == PATH
    client.rollback("agent")
    assert place.files()[PATH] == b"run: test\n"


def test_one_transaction_of_a_session_is_taken_back_too(place: Workplace, client: Client) -> None:
    change_by_a_command(place, client, "run: evil\n")
    client.undo(client.log().transactions[0].seq)
    assert place.files()[PATH] == b"run: test\n"


def test_the_change_is_not_made_again_and_no_other_edit_is_let_through(
    place: Workplace, client: Client
) -> None:
    change_by_a_command(place, client, "run: evil\n")
    client.rollback("agent")
    made = client.log().transactions[0].seq
    assert is_protected(lambda: client.undo(made))
    assert is_protected(lambda: client.restore(made - 1))
    assert is_protected(lambda: client.apply([replace(PATH, "test", "evil")], session="agent"))
    place.write({PATH: "run: mine\n"})
    client.settle()
    assert is_protected(lambda: client.undo(client.log().transactions[0].seq))
    assert place.files()[PATH] == b"run: mine\n"


def test_no_redo_makes_the_change_again(place: Workplace, client: Client) -> None:
    change_by_a_command(place, client, "run: evil\n")
    client.undo(client.log().transactions[0].seq)
    with pytest.raises(EditdError) as refusal:
        client.redo()
    assert refusal.value.name == "path_protected"
    assert place.files()[PATH] == b"run: test\n"
