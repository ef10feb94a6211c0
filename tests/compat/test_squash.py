"""publish after the user's git has rewritten the branch: the content decides, because trailers get lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from repositories import LINES, edit, names, refused, repository, shown, sound
from workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from workplace import Workplace


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    with repository(tmp_path / "place") as made:
        yield made


def built_on(client: Client) -> None:
    """Publish a session's line, and then another session's change of it."""
    edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
    client.publish("one", session="bot")
    edit(client, "ann", replace("a.txt", "bot 3\n", "ann 3\n"))
    client.publish("ann's", session="ann")


def squash(place: Workplace) -> None:
    place.git("reset", "-q", "--soft", "HEAD~2")
    place.git("commit", "-q", "-m", "squashed")


def last_edit(client: Client) -> int:
    client.read("a.txt", session="bot")
    return edit(client, "bot", replace("a.txt", "line 15\n", "bot 15\n"))


def check_published(place: Workplace) -> None:
    assert shown(place, "HEAD:a.txt") == place.files()["a.txt"].decode()
    assert place.git("status", "--porcelain") == ""
    sound(place)


def test_a_session_is_published_again_after_a_squash(place: Workplace) -> None:
    with place.start() as client:
        built_on(client)
        squash(place)
        client.settle()
        last = last_edit(client)
        assert client.publish("two", session="bot", dry_run=True).transactions == [last]
        assert client.publish("two", session="bot").transactions == [last]
    check_published(place)


def test_a_session_is_published_again_after_an_autosquash(place: Workplace) -> None:
    with place.start() as client:
        built_on(client)
        place.git("commit", "-q", "--amend", "-m", "fixup! one")
        place.git("-c", "sequence.editor=:", "rebase", "-q", "-i", "--autosquash", "HEAD~2")
        client.settle()
        assert place.git("log", "--format=%s") == "one\nfirst\n"
        last = last_edit(client)
        assert client.publish("two", session="bot").transactions == [last]
    check_published(place)


def test_a_commit_by_hand_publishes_what_it_has(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        place.git("commit", "-q", "-a", "-m", "by hand")
        edit(client, "ann", replace("a.txt", "bot 3\n", "ann 3\n"))
        place.git("commit", "-q", "-a", "-m", "by hand, again")
        client.settle()
        assert refused(client.publish, "three", session="bot").name == "no_change"
        last = last_edit(client)
        assert client.publish("two", session="bot").transactions == [last]
    check_published(place)


def test_what_was_taken_out_before_a_squash_is_not_published_again(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "line 3\nadded\n"))
        client.publish("one", session="bot")
        edit(client, "ann", replace("a.txt", "added\n", ""), replace("a.txt", "line 9\n", "ann 9\n"))
        client.publish("ann's", session="ann")
        squash(place)
        edit(client, "bot", write("new.txt", "new\n"))
        client.publish("two", session="bot")
    assert names(place, "HEAD") == ["A\tnew.txt"]
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 9\n", "ann 9\n")


def test_a_new_file_of_a_squashed_session_is_published_no_second_time(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "one\n"))
        client.publish("one", session="bot")
        edit(client, "ann", replace("new.txt", "one\n", "two\n"))
        client.publish("ann's", session="ann")
        squash(place)
        client.read("new.txt", session="bot")
        last = edit(client, "bot", replace("new.txt", "two\n", "two\nthree\n"))
        assert client.publish("two", session="bot").transactions == [last]
    assert shown(place, "HEAD:new.txt") == "two\nthree\n"


def test_a_squash_that_was_reverted_can_be_published_again(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot", branch="work")
        place.git("stash", "-q")
        place.git("checkout", "-q", "work")
        place.git("commit", "-q", "--amend", "-m", "without trailers")
        place.git("commit", "-q", "--allow-empty", "-m", "another")
        place.git("revert", "--no-edit", "HEAD~")
        place.git("checkout", "-q", "main")
        place.git("stash", "pop", "-q")
        client.settle()
        client.publish("again", session="bot", branch="work")
    assert shown(place, "work:a.txt") == LINES.replace("line 3\n", "bot 3\n")


def test_a_content_that_lacked_an_undone_change_proves_nothing_about_it(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        edit(client, "ann", replace("a.txt", "line 15\n", "ann 15\n"))
        undone = client.undo(first).transaction
        assert undone is not None
        place.git("commit", "-q", "-a", "-m", "by hand")
        client.settle()
        client.undo(undone.seq)
        client.publish("two", session="bot")
    check_published(place)


def test_a_content_that_the_file_also_had_before_proves_nothing(place: Workplace) -> None:
    """Another session has put the old line back in the tree, and the branch has always had it."""
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        edit(client, "ann", replace("a.txt", "bot 3\n", "line 3\n"))
        client.publish("one", session="bot")
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")


@pytest.mark.parametrize("has_trailers", [True, False])
def test_reverted_work_is_published_again_after_later_work_in_the_file(
    place: Workplace, *, has_trailers: bool
) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
        if not has_trailers:
            place.git("commit", "-q", "--amend", "-m", "without trailers")
        edit(client, "bot", replace("a.txt", "line 15\n", "bot 15\n"))
        client.publish("two", session="bot")
        place.git("revert", "--no-edit", "HEAD~")
        client.settle()
        place.write({"a.txt": place.files()["a.txt"].decode().replace("line 20\n", "mine 20\n")})
        place.git("commit", "-q", "-a", "-m", "by hand, after the revert")
        client.settle()
        client.publish("again", session="bot")
        assert refused(client.publish, "three", session="bot").name == "no_change"
    expected = LINES.replace("line 3\n", "bot 3\n").replace("line 15\n", "bot 15\n")
    assert shown(place, "HEAD:a.txt") == expected.replace("line 20\n", "mine 20\n")
    sound(place)


@pytest.mark.parametrize("form", ["--edit", "--reference"])
def test_a_reverted_squash_below_a_commit_by_hand_can_be_published_again(place: Workplace, form: str) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 2\n"))
        client.publish("one", session="bot")
        edit(client, "bot", replace("a.txt", "bot 2\n", "bot 3\n"))
        client.publish("two", session="bot")
        squash(place)
        place.write({"a.txt": LINES.replace("line 3\n", "bot 3\n").replace("line 15\n", "mine 15\n")})
        place.git("commit", "-q", "-a", "-m", "by hand")
        place.git("-c", "core.editor=true", "revert", form, "HEAD~")
        client.settle()
        client.publish("again", session="bot")
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n").replace(
        "line 15\n", "mine 15\n"
    )


def test_a_revert_of_other_work_in_the_file_takes_nothing_back(place: Workplace) -> None:
    with place.start() as client:
        built_on(client)
        place.write({"a.txt": LINES.replace("line 3\n", "ann 3\n").replace("line 15\n", "mine 15\n")})
        place.git("commit", "-q", "-a", "-m", "by hand")
        place.git("revert", "--no-edit", "HEAD")
        client.settle()
        assert refused(client.publish, "three", session="bot").name == "no_change"
    check_published(place)


def test_only_the_reverted_step_is_published_again_if_an_earlier_one_was_overwritten(
    place: Workplace,
) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
        second = edit(client, "bot", replace("a.txt", "line 15\n", "bot 15\n"))
        place.git("stash", "-q")
        place.write({"a.txt": LINES.replace("line 3\n", "mine 3\n")})
        place.git("commit", "-q", "-a", "-m", "by hand")
        place.write({"a.txt": LINES.replace("line 3\n", "bot 3\n").replace("line 15\n", "bot 15\n")})
        client.settle()
        client.publish("two", session="bot")
        place.git("checkout", "-q", ".")
        place.git("revert", "--no-edit", "HEAD")
        client.settle()
        assert client.publish("again", session="bot").transactions == [second]
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "mine 3\n").replace(
        "line 15\n", "bot 15\n"
    )


def test_the_order_of_commits_comes_from_their_parents_and_not_from_their_times(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
        place.git("revert", "--no-edit", "HEAD")
        place.git("commit", "-q", "--amend", "--no-edit", "--date", "2 hours ago")
        place.git("rebase", "-q", "--force", "--committer-date-is-author-date", "HEAD~")
        assert int(place.git("log", "-1", "--format=%ct")) < int(
            place.git("log", "-1", "--format=%ct", "HEAD~")
        )
        client.settle()
        client.publish("again", session="bot")
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")
