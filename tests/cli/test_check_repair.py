"""`editctl check --repair`, as a person or a script runs it."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from support.workplace import write

if TYPE_CHECKING:
    from support.workplace import Workplace


def editctl(place: Workplace, *words: str) -> subprocess.CompletedProcess[str]:
    return place.editctl("-C", str(place.root), *words)


def test_a_damaged_head_is_told_and_mended_and_the_daemon_goes_on(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
    place.stop()
    head = place.store / "refs/heads/history"
    head.write_text("nonsense")
    try:
        found = editctl(place, "check")
        assert found.returncode == 4
        assert str(head) in found.stdout
        mended = editctl(place, "check", "--repair")
        assert mended.returncode == 0, mended.stderr
        assert f"repaired: {head} is rebuilt" in mended.stdout
        assert mended.stdout.endswith("history, journal and files agree\n")
        nothing = editctl(place, "check", "--repair")
        assert (nothing.returncode, nothing.stdout) == (
            0,
            "nothing was repaired\nhistory, journal and files agree\n",
        )
        again = editctl(place, "check", "--repair", "--json")
        assert json.loads(again.stdout) == {
            "ok": True, "problems": [], "repaired": [], "lost": [], "aside": None,
            "known": None, "known_time": None,
        }  # fmt: skip
        assert json.loads(editctl(place, "status", "--json").stdout)["state"] == "ready"
        kept = list((place.state / "damaged").rglob("history"))
        assert [path.read_text() for path in kept] == ["nonsense"]
    finally:
        editctl(place, "stop")


def test_a_second_check_says_what_it_takes_from_the_first_one(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
        assert editctl(place, "check").stdout == "history, journal and files agree\n"
        client.apply([write("a", "two\n")])
        first, last = editctl(place, "check").stdout.splitlines()
        assert first.startswith("up to transaction 1 verified by the check of ")
        assert last == "history, journal and files agree"
        assert json.loads(editctl(place, "check", "--json").stdout)["known"] == 2
        assert editctl(place, "check", "--full").stdout == "history, journal and files agree\n"


@pytest.mark.long
def test_what_would_be_lost_is_named_and_lost_only_where_that_is_said(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
        client.apply([write("a", "two\n")])
    place.stop()
    for path in place.state.glob("store.git/objects/pack/pack-*.pack"):
        path.unlink()
    for path in place.state.glob("journal/*.segment"):
        path.unlink()
    try:
        refused = editctl(place, "check", "--repair")
        assert refused.returncode == 1
        assert "would lose" in refused.stderr
        assert "--yes" in refused.stderr
        assert not (place.state / "damaged").exists()
        mended = editctl(place, "check", "--repair", "--yes")
        assert mended.returncode == 0, mended.stderr
        assert "lost: " in mended.stdout
        assert (place.root / "a").read_text() == "two\n"
    finally:
        editctl(place, "stop")


@pytest.mark.parametrize(("answer", "status"), [("n", 1), ("y", 0)])
def test_on_a_terminal_the_person_is_asked_before_anything_is_lost(
    place: Workplace, answer: str, status: int
) -> None:
    with place.start() as client:
        client.apply([write("a", "one\n")])
    place.stop()
    for path in place.state.glob("store.git/objects/pack/pack-*.pack"):
        path.unlink()
    argv = [str(place.provide_editctl() / "editctl"), "-C", str(place.root), "check", "--repair"]
    try:
        ours, theirs = os.openpty()
        with subprocess.Popen(
            argv,
            env=place.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            os.write(ours, answer.encode() + b"\n")
            said, asked = process.communicate(timeout=60)
        os.close(theirs)
        os.close(ours)
        assert "These cannot be recovered:" in asked
        assert "Repair anyway? [y/N]" in asked
        assert process.returncode == status, asked
        assert ("lost: " in said) == (answer == "y")
        assert (place.state / "damaged").exists() == (answer == "y")
    finally:
        editctl(place, "stop")


def test_a_damaged_proposal_is_named_and_costs_no_other_one(place: Workplace) -> None:
    with place.start() as client:
        for name in ("a", "b", "c"):
            client.apply([write(name, f"{name}\n")], propose=True)
        database = place.state / "proposals.db"
        with closing(sqlite3.connect(database)) as other:
            other.execute(
                "update content set bytes = 'x' where version in "
                "(select proposed_version from file where proposal = 2)"
            )
            other.commit()
        try:
            checked = editctl(place, "check")
            assert checked.returncode == 4
            assert "Proposal 2 of proposals.db is damaged: the content" in checked.stdout
            refused = editctl(place, "check", "--repair")
            assert (refused.returncode, "would lose" in refused.stderr) == (1, True)
            repaired = editctl(place, "check", "--repair", "--yes")
            assert repaired.returncode == 0, repaired.stderr
            assert "lost: Proposal 2 of proposals.db is damaged" in repaired.stdout
            assert editctl(place, "check").returncode == 0
            listed = json.loads(editctl(place, "proposal", "list", "--json").stdout)["proposals"]
            assert sorted(one["proposal"] for one in listed) == [1, 3]
            assert json.loads(editctl(place, "check", "--repair", "--json").stdout)["repaired"] == []
        finally:
            editctl(place, "stop")


def test_a_start_keeps_the_whole_proposals_of_a_damaged_database(place: Workplace) -> None:
    with place.start() as client:
        for name in ("a", "b", "c"):
            client.apply([write(name, f"{name} of a proposal\n")], propose=True)
    place.stop()
    database = place.state / "proposals.db"
    database.write_bytes(database.read_bytes().replace(b"b of a proposal", b"B of a proposal"))
    with place.start() as client:
        assert sorted(one.proposal for one in client.proposal_list().proposals) == [1, 3]
        (weaker,) = [text for text in client.status().weaker if "proposals.db" in text]
        assert "proposal 2 is lost, no other one" in weaker
    place.stop()
    try:
        checked = editctl(place, "check")
        (aside,) = (place.state / "damaged").iterdir()
        assert checked.returncode == 4
        assert f"A damaged proposals.db has cost proposal 2. To confirm, delete {aside}." in checked.stdout
        assert editctl(place, "check", "--repair", "--yes").returncode == 4
        assert aside.exists()
        shutil.rmtree(aside)
        assert editctl(place, "check").returncode == 0
    finally:
        editctl(place, "stop")


def test_a_damaged_proposal_that_is_made_again_by_its_request_is_not_lost(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "a of a proposal\n")], propose=True, request_id="again")
    place.stop()
    database = place.state / "proposals.db"
    database.write_bytes(database.read_bytes().replace(b"a of a proposal", b"A of a proposal"))
    with place.start() as client:
        assert any("proposal 1 is lost" in text for text in client.status().weaker)
        assert len(client.check().problems) == 1
        client.apply([write("a", "a of a proposal\n")], propose=True, request_id="again")
        assert any("no proposal is lost" in text for text in client.status().weaker)
        assert client.check().problems == []
