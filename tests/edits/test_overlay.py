"""Tests of `edits.overlay`."""

from __future__ import annotations

import pytest

from editd.edits.overlay import Overlay
from editd.errors import PathOutside, PathProtected
from editd.values.content import FileState
from support.in_memory import InMemory, link_to, path_of


def overlay(**files: FileState) -> Overlay:
    return Overlay(InMemory({name.replace("__", "/"): state for name, state in files.items()}))


def test_what_was_put_stands_on_top_of_the_snapshot() -> None:
    over = overlay(a=FileState(b"1"))
    over.put(path_of("a"), FileState(b"2"))
    over.put(path_of("b"), None)
    assert over.at(path_of("a")) == FileState(b"2")
    assert over.before(path_of("a")) == FileState(b"1")
    assert over.at(path_of("b")) is None
    assert list(over.after) == [path_of("a"), path_of("b")]


def test_nothing_lies_below_what_was_no_folder() -> None:
    over = overlay(a=FileState(b"1"))
    over.put(path_of("a"), None)
    assert over.at(path_of("a/b")) is None


def test_without_links_of_its_own_the_snapshots_word_is_taken() -> None:
    over = overlay(link=link_to("real"), real__x=FileState(b""))
    assert over.resolve(path_of("link/x")) == path_of("real/x")
    assert over.resolve_folder(path_of("link")) == path_of("link")


def test_links_that_were_put_are_followed() -> None:
    over = overlay(old=link_to("real"), real__x=FileState(b""))
    over.put(path_of("dir/new"), link_to("../old"))
    assert over.resolve(path_of("dir/new/x")) == path_of("real/x")
    assert over.resolve_folder(path_of("dir/new")) == path_of("dir/new")
    assert over.resolve(path_of("dir/new")) == path_of("real")


def test_a_link_that_was_removed_is_not_followed() -> None:
    over = overlay(p=link_to("real"), real__l=link_to("../other"))
    over.put(path_of("real/l"), None)
    assert over.resolve(path_of("p/l/x")) == path_of("real/l/x")


def test_a_link_of_the_snapshot_is_followed_to_one_that_was_removed_or_changed() -> None:
    over = overlay(first=link_to("second"), second=link_to("real"))
    over.put(path_of("second"), None)
    assert over.resolve(path_of("first")) == path_of("second")
    over.put(path_of("second"), link_to("other"))
    assert over.resolve(path_of("first")) == path_of("other")


def test_a_link_that_leads_to_a_circle_that_was_removed_leads_there() -> None:
    over = overlay(first=link_to("circle"), circle=link_to("circle"))
    over.put(path_of("circle"), None)
    assert over.resolve(path_of("first/x")) == path_of("circle/x")


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "self", "."])
def test_links_that_lead_out_or_in_a_circle_are_refused(target: str) -> None:
    over = overlay()
    over.put(path_of("self"), link_to(target))
    with pytest.raises(PathOutside):
        over.resolve(path_of("self"))


def test_git_behind_a_link_is_protected() -> None:
    over = overlay()
    over.put(path_of("l"), link_to(".git"))
    with pytest.raises(PathProtected):
        over.resolve(path_of("l/config"))
