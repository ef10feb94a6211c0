"""Tests of `edits.preconditions`; what comes of it in a changeset is tested with `edits.plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd.edits.overlay import Overlay
from editd.edits.preconditions import BaseChecker
from editd.errors import Conflict, FileMissing, Stale
from editd.values.content import FileState, version_of
from support.in_memory import InMemory, Told, base_of, path_of

if TYPE_CHECKING:
    from editd.wire.messages import OnStale

A = path_of("a")
OLD, NOW = b"a\nb\nc\n", b"A\nb\nc\n"


def bases(told: Told, on_stale: OnStale = "merge") -> tuple[BaseChecker, Overlay]:
    overlay = Overlay(InMemory({"a": FileState(NOW)}))
    return BaseChecker(overlay, told, on_stale), overlay


def test_a_path_is_judged_when_it_is_first_named() -> None:
    strict, _ = bases(Told(), "reject")
    with pytest.raises(Stale):
        strict.look(A, base_of(OLD))
    strict, overlay = bases(Told(), "reject")
    strict.look(A, base_of(NOW))
    overlay.put(A, FileState(b"edited"))
    assert strict.look(A, base_of(NOW)) == FileState(b"edited")


def test_a_stale_path_starts_from_its_base_and_is_merged_once() -> None:
    merging, overlay = bases(Told(contents=[OLD]))
    assert merging.existing(A, base_of(OLD)) == FileState(OLD)
    overlay.put(A, FileState(b"a\nb\nC\n"))
    merging.merge_all()
    merging.merge_all()
    assert overlay.at(A) == FileState(b"A\nb\nC\n")
    assert merging.merged == {A}


def test_a_base_that_is_forgotten_is_not_merged() -> None:
    merging, overlay = bases(Told(contents=[OLD]))
    merging.look(A, base_of(OLD))
    overlay.put(A, FileState(b"X\n"))
    merging.forget_base(A)
    merging.merge_all()
    assert overlay.at(A) == FileState(b"X\n")


def test_a_conflict_says_which_versions_collided() -> None:
    merging, overlay = bases(Told(contents=[OLD]))
    merging.look(A, base_of(OLD))
    overlay.put(A, FileState(b"X\nb\nc\n"))
    with pytest.raises(Conflict) as caught:
        merging.merge_all()
    (file,) = caught.value.data["files"]
    assert (file["base"], file["current"]) == (version_of(OLD), version_of(NOW))


def test_a_path_is_known_by_a_base_by_what_was_seen_and_by_what_was_written() -> None:
    blind, _ = bases(Told())
    blind.look(A, None)
    assert not blind.is_known(A)
    blind.note(A, version_of(b"written"))
    assert blind.is_known(A)
    assert bases(Told(read={"a": NOW}))[0].is_known(A)


def test_a_file_that_is_not_there_is_missing() -> None:
    with pytest.raises(FileMissing):
        bases(Told())[0].existing(path_of("b"), None)
