"""Attacks with texts that take long to compare: `status` of another client is answered meanwhile.

The texts have many lines and few distinct ones, or one line alone. A canary in another process asks for the
status every 5 ms. `edits.comparison` limits the work by a count, which `tests/edits/test_comparison.py` tests
without a clock. Here a clock shows that no place was forgotten.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Tool
from editd_client import errors
from support.seeds import share
from support.status_canary import QUIET, check_answered
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

ROWS = [b"%d,ok,0\n" % number for number in range(8)]
WIDE_ROWS = [b"%d,%s\n" % (number, b"x" * 97) for number in range(8)]


def few_distinct(lines: int, seed: int, rows: list[bytes] = ROWS) -> str:
    return b"".join(random.Random(seed).choices(rows, k=lines)).decode()


def minified(seed: int) -> str:
    dice = random.Random(seed)
    return "".join(f"var a{dice.randrange(99)}=f({dice.randrange(9)});" for _ in range(3_000))[: 32 * 1024]


def equal_lines(seed: int, part: int) -> str:
    return (
        "a\n" * (400_000 // part + seed * 50_000 // part)
        + "b\n"
        + "a\n" * ((600_000 - seed * 50_000) // part)
    )


PART = 5  # the share of the equal lines and of the rows for `blame` in the short form
TOOL_PART = 3  # the same of the texts of tool calls, whose work grows with their length
FEW_DISTINCT, FEW_DISTINCT_LONG = 10_000, 17_000  # 136 KiB took 37 s, and 80 KiB a third of that
TEXTS: dict[str, Callable[[int, int], str]] = {
    "few distinct lines": lambda seed, part: few_distinct(
        FEW_DISTINCT_LONG if part == 1 else FEW_DISTINCT, seed
    ),
    "minified": lambda seed, _part: minified(seed),
    "equal lines": equal_lines,
}


@pytest.fixture
def place(tmp_path: Path, is_long: bool) -> Iterator[Workplace]:
    with workplace(tmp_path) as place:
        if is_long:
            place.variables[QUIET] = "1"
        yield place


def ask(client: Client, method: str, **params: Any) -> None:
    """Send a request that may be refused: merging such texts may be a conflict, or take too long."""
    try:
        getattr(client, method)(**params)
    except errors.EditdError as refusal:
        if refusal.name in ("internal_error", "refused"):  # a fault of the daemon
            raise


@pytest.mark.parametrize("name", TEXTS)
def test_no_request_on_such_a_text_holds_the_status_of_others_up(
    place: Workplace, name: str, is_long: bool
) -> None:
    turn = list(TEXTS).index(name)

    def text(seed: int) -> str:
        return TEXTS[name](seed, 1 if is_long else PART)

    with place.start() as client, place.client() as other:
        client.apply([write("a", text(0), force=True)])
        base = client.read("a").version
        made = client.apply([write("a", text(1), base=base)]).transaction
        assert made is not None
        stale = [write("a", text(2), base=base)]
        requests: dict[str, Callable[[], None]] = {
            "a refusal as stale": lambda: ask(client, "apply", edits=stale),
            "a merge": lambda: ask(client, "apply", edits=stale, on_stale="merge", dry_run=True),
            "show with diff": lambda: ask(client, "show", tx=made.seq, diff=True),
            "show with hunks": lambda: ask(client, "show", tx=made.seq, hunks=True),
            "diff": lambda: ask(client, "diff", from_=made.seq - 1),
            "log with lines": lambda: ask(client, "log", limit=5, stat=True),
            "blame": lambda: ask(client, "blame", path="a"),
        }
        check_some(place, requests, is_long, turn)
        client.apply([write("a", text(2), force=True)])
        later: dict[str, Callable[[], None]] = {
            "undo": lambda: ask(client, "undo", tx=made.seq, dry_run=True),
            "a forced undo": lambda: ask(client, "undo", tx=made.seq, on_conflict="force", dry_run=True),
            "restore": lambda: ask(client, "restore", to=made.seq, paths=["a"], dry_run=True),
        }
        check_some(place, later, is_long, turn)
        now = client.read("a").version
        number = proposed(client, text(1))
        reviews: dict[str, Callable[[], None]] = {
            "a proposal": lambda: ask(client, "proposal_get", proposal=number),
            "proposals": lambda: ask(client, "proposal_list"),
            "an approval": lambda: approve(other, number),
        }
        check_some(place, reviews, is_long, turn)
        other.document_hold("a", base=now, content=text(1))
        edits = [write("a", text(0), base=now)]
        held: dict[str, Callable[[], None]] = {
            "a read of a held file": lambda: ask(client, "read", path="a"),
            "an edit of a held file": lambda: ask(client, "apply", edits=edits, dry_run=True),
        }
        check_some(place, held, is_long, turn)


def test_no_tool_call_with_a_large_text_holds_the_status_of_others_up(
    place: Workplace, is_long: bool
) -> None:
    part = 1 if is_long else TOOL_PART
    lines = [f"line {number} has some text\n" for number in range(150_000 // part)]
    hunk = "".join(f"-{line}" for line in lines) + "+x\n"
    head = "*** Begin Patch\n*** Update File: "
    ten = "@@\n" + " a\n" * 10 + "+x\n"
    many = "@@\n" + " a\n" * 20_000 + "+x\n"
    calls = {
        "a Gemini CLI text of millions of tokens": Tool(
            dialect="gemini",
            tool="replace",
            args={
                "file_path": "a",
                "instruction": "x",
                "old_string": "a(b)" * (1_500_000 // part),
                "new_string": "x",
            },
        ),
        "a Gemini CLI text of spaces": Tool(
            dialect="gemini",
            tool="replace",
            args={
                "file_path": "a",
                "instruction": "x",
                "old_string": " " * (6_000_000 // part),
                "new_string": "x",
            },
        ),
        "a Codex patch of a whole file": codex(f"{head}a\n@@\n{hunk}*** End Patch\n"),
        "a Codex patch of equal lines": codex(f"{head}b\n{many}*** End Patch\n"),
        "a Codex patch of ten equal lines": codex(f"{head}b\n{ten * (3_000 // part)}*** End Patch\n"),
    }
    with place.start() as client:
        client.apply([write("a", "".join(lines), force=True), write("b", equal_lines(0, part), force=True)])
        works = {
            name: partial(ask, client, "apply", edits=[call], dry_run=True) for name, call in calls.items()
        }
        check_some(place, works, is_long)


def check_some(
    place: Workplace, works: Mapping[str, Callable[[], None]], is_long: bool, turn: int = 0
) -> None:
    """Check that the status is answered in time beside each work; the short form has a third of them."""
    for name in works if is_long else share(works, 3, turn):
        check_answered(place, name, works[name])


def codex(patch: str) -> Tool:
    return Tool(dialect="codex", tool="apply_patch", args={"input": patch})


def proposed(client: Client, text: str) -> int:
    """Propose a text for the file, and return the number of the proposal."""
    client.apply([write("a", text, force=True)], propose=True)
    return client.proposal_list().proposals[0].proposal


def approve(reviewer: Client, number: int) -> None:
    view = reviewer.proposal_get(number, paths=["none"]).view
    ask(reviewer, "proposal_approve", proposal=number, view=view, dry_run=True)


def test_blame_of_a_large_file_of_few_distinct_lines_holds_nobody_up(place: Workplace, is_long: bool) -> None:
    """10 MB: others waited 82 s for the engine, and so for each of their own requests."""
    lines = few_distinct(100_000 if is_long else 100_000 // PART, 1, WIDE_ROWS).splitlines(keepends=True)
    with place.start() as client:
        client.apply([write("a", "".join(lines), force=True)])
        first = client.log(limit=1).transactions[0].seq
        lines[::50] = [WIDE_ROWS[0].decode()] * len(lines[::50])
        client.apply([write("a", "".join(lines), force=True)])
        seqs = {line.seq for line in client.blame("a").lines}
        assert seqs == {first, first + 1}
        check_answered(place, "blame", lambda: client.blame("a"))


def test_blame_of_more_lines_than_an_answer_may_have_is_refused(place: Workplace) -> None:
    with place.start() as client:
        client.apply([write("a", "a\n" * 200_001)])
        with pytest.raises(errors.TooLarge, match="200001 lines") as refused:
            client.blame("a")
        assert "Run `log`" in refused.value.hint


def test_a_stale_edit_of_such_a_text_is_merged_as_before(place: Workplace) -> None:
    """Each merge waits for the process of comparisons, and nobody for the merge."""
    lines = few_distinct(17_000, 0).splitlines(keepends=True)
    with place.start() as client:
        client.apply([write("a", "".join(lines))])
        base = client.read("a").version
        ours = [*lines[:50], "mine\n", *lines[50:]]
        theirs = [*lines[:-50], "yours\n", *lines[-50:]]
        client.apply([write("a", "".join(ours), base=base)])
        client.apply([write("a", "".join(theirs), base=base)], on_stale="merge")
        merged = client.read("a").content
    assert merged == "".join([*lines[:50], "mine\n", *lines[50:-50], "yours\n", *lines[-50:]])
