"""publish after the user's git has rewritten the branch: the content decides, because trailers get lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.wire.messages import Move
from support.repositories import LINES, edit, names, refused, repository, shown, sound
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd.wire.messages import Write
    from editd_client.client import Client
    from support.workplace import Workplace


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


def bring_back(client: Client, *, revert: int | None = None) -> None:
    """Undo the transaction of a revert, by default the newest. Until then there is nothing to publish."""
    client.settle()
    assert refused(client.publish, "too early", session="bot").name == "no_change"
    client.undo(client.status().head if revert is None else revert)


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
        client.publish("one", session="bot", branch="work")
    assert shown(place, "work:a.txt") == LINES.replace("line 3\n", "bot 3\n")


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
        revert = client.status().head
        place.write({"a.txt": place.files()["a.txt"].decode().replace("line 20\n", "mine 20\n")})
        place.git("commit", "-q", "-a", "-m", "by hand, after the revert")
        bring_back(client, revert=revert)
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
        bring_back(client)
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
        (place.root / ".git/mine").write_text(LINES.replace("line 3\n", "mine 3\n"))
        blob = place.git("hash-object", "-w", ".git/mine").strip()
        place.git("update-index", "--cacheinfo", f"100644,{blob},a.txt")
        place.git("commit", "-q", "-m", "by hand, without the file")
        client.publish("two", session="bot")
        place.git("checkout", "-q", ".")
        place.git("revert", "--no-edit", "HEAD")
        bring_back(client)
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
        bring_back(client)
        client.publish("again", session="bot")
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")


def test_a_revert_is_not_taken_back_by_the_next_publish(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
        place.git("revert", "--no-edit", "HEAD")
        client.settle()
        refusal = refused(client.publish, "again", session="bot")
        assert refusal.name == "no_change"
        assert f"a later change took {first} out of a.txt" in refusal.message
        assert refusal.data["taken_out"] == [first]
        revert = client.status().head
        last = edit(client, "bot", write("new.txt", "new\n"))
        assert client.publish("two", session="bot").transactions == [last]
        check_published(place)
        assert shown(place, "HEAD:a.txt") == LINES
        client.undo(revert)
        assert client.publish("three", session="bot").transactions == [first]
    check_published(place)
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")


def test_a_revert_of_several_steps_on_the_same_lines_is_not_taken_back(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 2\n"))
        edit(client, "ann", replace("a.txt", "line 20\n", "ann 20\n"))
        client.publish("ann's", session="ann")
        client.read("a.txt", session="bot")
        edit(client, "bot", replace("a.txt", "bot 2\n", "bot 3\n"))
        client.publish("one", session="bot")
        last = edit(client, "bot", replace("a.txt", "line 10\n", "bot 10\n"))
        place.git("stash", "-q")
        place.git("revert", "--no-edit", "HEAD")
        place.git("stash", "pop", "-q")
        client.settle()
        assert client.publish("two", session="bot").transactions == [last]
    check_published(place)
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 20\n", "ann 20\n").replace(
        "line 10\n", "bot 10\n"
    )


@pytest.mark.parametrize("change", [write("new.txt", "new\n"), Move(path="b.txt", to="new.txt")])
def test_a_reverted_file_is_not_published_again(place: Workplace, change: Write | Move) -> None:
    with place.start() as client:
        edit(client, "bot", change)
        client.publish("one", session="bot")
        place.git("revert", "--no-edit", "HEAD")
        bring_back(client)
        client.publish("again", session="bot")
    assert shown(place, "HEAD:new.txt") == place.files()["new.txt"].decode()
    check_published(place)


def test_work_that_was_discarded_is_not_published(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        place.git("checkout", "-q", "--", "a.txt")
        bring_back(client)
        client.publish("one", session="bot")
    check_published(place)


def test_work_that_another_session_moved_or_changed_on_is_in_force(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", write("new.txt", "one\n"), replace("a.txt", "line 3\n", "bot 3\n"))
        edit(client, "ann", Move(path="new.txt", to="other.txt"), replace("a.txt", "bot 3\n", "ann 3\n"))
        client.publish("one", session="bot")
        assert names(place, "HEAD") == ["M\ta.txt", "A\tnew.txt"]
        client.publish("ann's", session="ann")
    check_published(place)


def test_a_range_is_published_as_it_was(place: Workplace) -> None:
    with place.start() as client:
        first = edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        place.git("checkout", "-q", "--", "a.txt")
        client.settle()
        client.publish("one", from_=first, to=first)
    assert shown(place, "HEAD:a.txt") == LINES.replace("line 3\n", "bot 3\n")


def test_a_revert_on_another_branch_is_not_taken_back(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot", branch="work")
        place.git("checkout", "-q", "--", ".")
        place.git("checkout", "-q", "work")
        place.git("revert", "--no-edit", "HEAD")
        place.git("checkout", "-q", "main")
        client.settle()
        assert refused(client.publish, "again", session="bot", branch="work").name == "no_change"
    assert shown(place, "work:a.txt") == LINES


def test_the_same_work_that_was_taken_out_twice_is_not_published_again(place: Workplace) -> None:
    with place.start() as client:
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        place.git("checkout", "-q", "--", "a.txt")
        client.settle()
        client.read("a.txt", session="bot")
        edit(client, "bot", replace("a.txt", "line 3\n", "bot 3\n"))
        client.publish("one", session="bot")
        place.git("revert", "--no-edit", "HEAD")
        client.settle()
        assert refused(client.publish, "again", session="bot").name == "no_change"
    check_published(place)
