"""Flipped bits in the database of proposals: each is found or harmless, and costs one proposal at most."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from editd.store.proposal_seals import PROPOSALS_FILE, Flaw, flaws_in, flaws_of
from editd.store.proposals import ProposalStore
from editd.values.glob import Glob
from editd.values.grant import Grant
from editd.values.proposal import Comment, Decision, ProposalNumber, Reviewer, TrialResult
from support.proposals import ids, proposal_of, split

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ANN = Reviewer("ann", "ann-1", "review socket")
PROPOSALS = 12
FLIPS = 60
PAGE = 4096


def fill(folder: Path) -> None:
    """Make a database with proposals, decisions, comments and grants, as a stopped daemon leaves it."""
    folder.mkdir()
    with closing(ProposalStore(str(folder), 1)) as store:
        for number in range(PROPOSALS):
            lines = [f"line {line} of {number}\n".encode() for line in range(400)]
            file = split(b"".join(lines), b"".join([*lines[:9], b"new\n", *lines[9:]]))
            added = store.add(proposal_of("them", f"claude-{number}"), [file])
            store.comment(added, Comment(1, ANN, 1, "please look"))
            if number % 3 == 0:
                decided = replace(added, state="rejected", changed_us=number)
                store.decide(decided, Decision(2, ANN, "reject", comment="no"), {ids(file)[0]: "rejected"})
        store.add_grant(Grant(0, "claude", (Glob.parse("src/**"),), 9, 3, None, "ann", None))


def contents_of(store: ProposalStore) -> dict[str, object]:
    """Return all that the store says, by proposal and grant."""
    facts: dict[str, object] = {f"grant {number}": grant for number, grant in store.grants.items()}
    for one in store.find(limit=1000)[0]:
        number = one.number
        facts[f"proposal {number}"] = (
            one, store.files(number, 1), store.decisions(number), store.comments(number),
            number in store.open,
        )  # fmt: skip
    return facts


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proposals") / "filled"
    fill(folder)
    return folder


def flipped(filled: Path, folder: Path, bit: int) -> Path:
    shutil.copytree(filled, folder)
    path = folder / PROPOSALS_FILE
    raw = bytearray(path.read_bytes())
    raw[bit // 8] ^= 1 << bit % 8
    path.write_bytes(raw)
    return path


def bits(filled: Path) -> Iterator[int]:
    size = 8 * (filled / PROPOSALS_FILE).stat().st_size
    drawn = random.Random(8)
    yield from (drawn.randrange(size) for _ in range(FLIPS))
    yield from (drawn.randrange(8 * PAGE) for _ in range(FLIPS // 4))  # of the header and the tables' names


def test_each_flipped_bit_is_found_or_harmless_and_never_wrong_in_silence(
    filled: Path, tmp_path: Path
) -> None:
    with closing(ProposalStore(str(shutil.copytree(filled, tmp_path / "whole")), 2)) as whole:
        assert whole.is_whole
        expected = contents_of(whole)
    assert len(expected) == PROPOSALS + 1
    harmful = 0
    for bit in bits(filled):
        path = flipped(filled, tmp_path / str(bit), bit)
        flaws = flaws_in(str(path))
        with closing(ProposalStore(str(path.parent), 2)) as store:
            facts = contents_of(store)
            changed = {name for name, fact in facts.items() if fact != expected.get(name)}
            assert not changed, f"bit {bit}: {changed} is wrong in silence"
            assert store.is_whole == (not flaws), f"bit {bit}: a start and a check judge differently"
            gone = expected.keys() - facts.keys()
            named = {flaw.name for flaw in store.lost}
            assert gone <= named or "a part" in named, f"bit {bit}: {gone} is gone in silence"
            harmful += bool(flaws)
        with closing(ProposalStore(str(path.parent), 3)) as again:
            assert again.is_whole, f"bit {bit}: a loop of repairs"
            assert contents_of(again) == facts
    assert harmful > FLIPS // 2


def test_a_damaged_text_costs_its_proposal_and_no_other(filled: Path, tmp_path: Path) -> None:
    raw = (filled / PROPOSALS_FILE).read_bytes()
    path = flipped(filled, tmp_path / "one", 8 * raw.index(b"line 5 of 7\n"))
    assert [flaw.key for flaw in flaws_in(str(path))] == [("proposal", 8)]
    with closing(ProposalStore(str(path.parent), 2)) as store:
        assert [flaw.key for flaw in store.lost] == [("proposal", 8)]
        assert len(contents_of(store)) == PROPOSALS
        assert store.add(proposal_of(), [split(b"a\n", b"b\n")]).number > PROPOSALS
        assert list((tmp_path / "one" / "damaged").rglob(PROPOSALS_FILE)), "the damaged file is kept"


@pytest.mark.parametrize(
    "change",
    [
        "update proposal set state = 'open' where number = 1",
        "update hunk set verdict = 'approved' where proposal = 2",
        "delete from decision where proposal = 1",
        "update comment set written = replace(written, 'please', 'do not') where proposal = 1",
        "delete from proposal where number = 2",
        'update "grant" set written = replace(written, "src/", "**/")',
        "update file set base_version = proposed_version where proposal = 2",
        "delete from seal where number = 1",
    ],
)
def test_a_row_that_changed_without_its_seal_is_found(filled: Path, tmp_path: Path, change: str) -> None:
    path = shutil.copytree(filled, tmp_path / "changed") / PROPOSALS_FILE
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(change).rowcount > 0
        database.commit()
        assert len(flaws_of(database)) == (2 if "seal" in change else 1)


def test_a_database_without_seals_of_an_earlier_version_is_sealed(filled: Path, tmp_path: Path) -> None:
    path = shutil.copytree(filled, tmp_path / "earlier") / PROPOSALS_FILE
    with closing(sqlite3.connect(path)) as database:
        database.execute("drop table seal")
        database.execute("pragma user_version = 0")
        database.commit()
    assert [flaw.key for flaw in flaws_in(str(path))] == [None]
    with closing(ProposalStore(str(path.parent), 2)) as store:
        assert store.is_whole
        assert len(contents_of(store)) == PROPOSALS + 1
        assert flaws_in(str(path)) == []


def test_a_check_reads_beside_a_daemon_that_writes(tmp_path: Path) -> None:
    fill(tmp_path / "open")
    path = tmp_path / "open" / PROPOSALS_FILE
    with closing(ProposalStore(str(path.parent), 2)) as store:
        added = store.add(proposal_of(), [split(b"a\n", b"b\n")])
        store.check(added, TrialResult(1, ANN, "tests", "view", 0, 0.5, "fine"))
        assert flaws_in(str(path)) == []
        store.decide(replace(added, state="rejected"), Decision(2, ANN, "reject", comment="no"))
        store.delete([ProposalNumber(1), added.number])
        store.put_grants((), [1])
        assert flaws_in(str(path)) == []
        with closing(sqlite3.connect(path)) as other:
            other.execute("update content set bytes = 'x' where rowid = (select min(rowid) from content)")
            other.commit()
        assert len(flaws_in(str(path))) == 1


def test_a_sentence_names_what_is_damaged() -> None:
    assert Flaw(("proposal", 7), "it is missing").sentence == (
        "Proposal 7 of proposals.db is damaged: it is missing."
    )
    assert Flaw(None, "a content that no proposal has").name == "a part"
