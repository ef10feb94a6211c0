"""server.regex_pool: regular expressions in a process that can be stopped."""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from editd.edits import diff
from editd.edits.comparison import Comparison
from editd.edits.search import Match, Search
from editd.engine.regex_worker import COMPARISON_BYTES_MAX
from editd.errors import InvalidRegex, Refused, ShuttingDown, Timeout, TooLarge
from editd.server import child_process
from editd.server.regex_pool import RegexPool
from support.crash_checks import in_company, own_time

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.usefixtures("forked_workers")
LIMIT = 0.3  # s
STARTS_MAX = 5
SLACK = in_company(0.1)  # s; what a call may take beyond its limit

CATASTROPHE = "a" * 60 + "!"


@asynccontextmanager
async def searching(seconds: float = LIMIT) -> AsyncIterator[RegexPool]:
    """A searcher whose process is warm."""
    searcher = RegexPool(seconds)
    assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)
    try:
        yield searcher
    finally:
        await searcher.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(limited())


async def timed(searcher: RegexPool, search: Search) -> tuple[tuple[Match, ...] | Refused, float]:
    start = time.monotonic()
    return await searcher.find(search), time.monotonic() - start


async def pid_of(searcher: RegexPool) -> int:
    process = await searcher._warm()
    assert process is not None
    return process._child.pid


def test_a_search_for_lines_is_stopped_as_well() -> None:
    async def test() -> None:
        async with searching() as searcher:
            text = "a\n" * 2_000_000 + "b\n"
            found = await searcher.find(Search("lines", "  b\n  b", text))
            assert isinstance(found, Timeout)
            assert found.message.startswith(f"The search for the lines was stopped after {LIMIT} s.")
            assert await searcher.find(Search("lines", " b\n a ", "a\n  b\na")) == (Match(2, 7),)

    run(test)


def test_both_languages_find_with_groups_and_expansions_in_characters_of_the_text() -> None:
    async def test() -> None:
        async with searching() as searcher:
            python = Search("python", "(x)|(?P<name>y)$", "\U0001f642x\ny\nz")
            assert await searcher.find(python) == (Match(1, 2, ("x", None)), Match(3, 4, (None, "y")))
            script = Search("ecmascript", "(x)|(?<name>y)", "\U0001f642x\nY", True, "[$<name>$1$$]")
            found = await searcher.find(script)
            assert found == (Match(1, 2, (), "[x$]"), Match(3, 4, (), "[Y$]"))

    run(test)


def test_an_answer_of_many_matches_arrives_whole() -> None:
    async def test() -> None:
        async with searching(10) as searcher:
            found = await searcher.find(Search("python", "a", "ab" * 12_345))
            assert found == tuple(Match(place, place + 1) for place in range(0, 24_690, 2))

    run(test)


@pytest.mark.parametrize(
    "search",
    [
        Search("python", "(a+)+$", CATASTROPHE),
        Search("ecmascript", "(a+)+$", CATASTROPHE, template=""),
        Search("ecmascript", "(?:a?){40}a{40}$", CATASTROPHE, template=""),
        Search("python", "a|" * 400_000 + "(b+)+$", "b" * 60 + "!"),
        Search("python", "(?:a{0,60}){0,60}" * 2000 + "c", "a" * 5000),
        Search("ecmascript", "|".join(map(str, range(100_000))), "a" * 3000, template=""),
        Search("ecmascript", "[^\\u0000-\\uffff]" * 100_000, "a", True, ""),
    ],
    ids=[
        "python", "ecmascript", "ecmascript-counted", "python-compile", "python-repeats",
        "ecmascript-compile", "ecmascript-classes",
    ],
)  # fmt: skip
def test_a_search_ends_within_a_tenth_of_a_second_of_its_limit_and_the_next_one_works(
    search: Search,
) -> None:
    async def test() -> None:
        async with searching() as searcher:
            found, seconds = await timed(searcher, search)
            assert isinstance(found, Timeout)
            assert found.data["seconds"] == LIMIT
            assert "(a+)+" in found.hint
            assert LIMIT - 0.01 <= seconds <= LIMIT + SLACK
            assert await searcher.find(Search("ecmascript", "b", "abc", template="")) == (Match(1, 2),)

    run(test)


def test_the_process_survives_what_it_can_stop_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editd.server.regex_pool.GRACE_SECONDS", 10.0)  # on a busy machine it says so late

    async def test() -> None:
        async with searching() as searcher:
            pid = await pid_of(searcher)
            for language in ("python", "ecmascript"):
                search = Search(language, "(a+)+$", CATASTROPHE, template="")
                assert isinstance(await searcher.find(search), Timeout)
                assert await pid_of(searcher) == pid

    run(test)


def test_the_daemon_serves_others_while_a_search_runs_into_its_limit() -> None:
    async def test() -> None:
        async with searching() as searcher:
            search = asyncio.create_task(searcher.find(Search("python", "(a+)+$", CATASTROPHE)))
            longest = 0.0
            while not search.done():
                start = own_time()
                await asyncio.sleep(0)
                longest = max(longest, own_time() - start)
            assert isinstance(search.result(), Timeout)
            assert longest < 0.05

    run(test)


def test_who_waits_in_line_has_the_whole_limit() -> None:
    async def test() -> None:
        async with searching() as searcher:
            slow = Search("python", "(a+)+$", CATASTROPHE)
            start = time.monotonic()
            first, second, third = await asyncio.gather(
                searcher.find(slow), searcher.find(slow), searcher.find(Search("python", "b", "abc"))
            )
            assert isinstance(first, Timeout)
            assert isinstance(second, Timeout)
            assert third == (Match(1, 2),)
            assert 2 * LIMIT - 0.01 <= time.monotonic() - start <= 2 * (LIMIT + SLACK) + SLACK

    run(test)


def test_memory_has_an_end() -> None:
    async def test() -> None:
        async with searching(20) as searcher:
            text = "ab" * 8_000_000
            for search in (
                Search("python", "(?:(a)|(b)|(c))*?c", text),
                Search("ecmascript", "(?:(a)|b)*?c", text, template=""),
                Search("python", "(?=([\\s\\S]*))", "a" * 30_000),
                Search("ecmascript", "a", "a" * 30_000, template="$'"),
                Search("python", "", "a" * 200_000),
                Search("ecmascript", "", "a" * 200_000, template=""),
            ):
                found = await searcher.find(search)
                assert isinstance(found, TooLarge), (search.pattern, found)
                assert found.hint
            assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)

    run(test)


def test_a_pattern_that_is_none_is_refused_with_the_place() -> None:
    async def test() -> None:
        async with searching() as searcher:
            found = await searcher.find(Search("python", "ab(c", ""))
            assert isinstance(found, InvalidRegex)
            assert found.data == {"position": 2, "pattern": "ab(c"}
            assert "position 2" in found.message
            for pattern in ("(" * 5000 + ")" * 5000, "a{99999999999}", "(?<=a+)b", "(?a)(?L)", "*"):
                assert isinstance(await searcher.find(Search("python", pattern, "a")), InvalidRegex)
            found = await searcher.find(Search("ecmascript", "a++", "", ignore_case=True))
            assert isinstance(found, InvalidRegex)
            assert found.message.startswith("Invalid regular expression: /a++/gi: ")
            for half in (Search("python", "\ud83d", ""), Search("ecmascript", "\udc80", "")):
                assert isinstance(await searcher.find(half), tuple | InvalidRegex | TooLarge)

    run(test)


def test_a_search_whose_process_is_killed_is_made_once_more_and_costs_no_other() -> None:
    async def test() -> None:
        async with searching(10) as searcher:
            search = asyncio.create_task(searcher.find(Search("python", "(a+)+$", CATASTROPHE)))
            for _ in range(2):
                await asyncio.sleep(0.2)
                os.kill(await pid_of(searcher), signal.SIGKILL)
            found = await search
            assert isinstance(found, InvalidRegex)
            assert "died" in found.message
            assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)

            os.kill(await pid_of(searcher), signal.SIGKILL)  # while nobody searches
            await asyncio.sleep(0.1)
            assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)

    run(test)


def test_nobody_gets_the_answer_to_a_search_that_was_given_up() -> None:
    async def test() -> None:
        async with searching(1) as searcher:
            search = asyncio.create_task(searcher.find(Search("python", "(a+)+$", CATASTROPHE)))
            await asyncio.sleep(0.05)
            search.cancel()
            assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)

    run(test)


def test_closing_ends_a_search_and_the_process() -> None:
    async def test() -> None:
        async with searching(20) as searcher:
            pid = await pid_of(searcher)
            search = asyncio.create_task(searcher.find(Search("python", "(a+)+$", CATASTROPHE)))
            await asyncio.sleep(0.05)
            start = time.monotonic()
            await searcher.close()
            assert isinstance(await search, Refused)
            assert time.monotonic() - start < 1
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
            assert isinstance(await searcher.find(Search("python", "b", "abc")), ShuttingDown)

    run(test)


def test_a_process_that_does_not_start_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("editd.server.regex_pool.PYTHON", ("/nowhere/python",))
        searcher = RegexPool(LIMIT)
        found = await searcher.find(Search("python", "b", "abc"))
        assert isinstance(found, Refused)
        assert found.code == "overloaded"
        monkeypatch.undo()
        assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)
        await searcher.close()

    run(test)


def test_the_process_ends_without_a_search_and_the_next_search_starts_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_process, "IDLE_SECONDS", 0.2)

    async def test() -> None:
        async with searching() as searcher:
            ended = os.pidfd_open(await pid_of(searcher))
            await asyncio.to_thread(select.select, [ended], [], [], 20)
            os.close(ended)
            assert await searcher.find(Search("python", "b", "abc")) == (Match(1, 2),)

    run(test)


def test_a_comparison_is_stopped_at_the_time_limit_and_the_next_one_is_done() -> None:
    """libgit2 does not stop by itself, so the process is killed, and another one goes on."""

    async def check() -> None:
        rows = [b"%d,ok\n" % number for number in range(8)]
        texts = tuple(b"".join(random.Random(seed).choices(rows, k=1_000_000)) for seed in range(2))
        async with searching() as pool:
            refusal = await pool.compare(Comparison("hunks_between", texts))
            assert isinstance(refusal, Timeout)
            assert "Nothing was changed." in refusal.hint
            small = Comparison(diff._count_lines.__name__, (b"a\n", b"b\nc\n"))
            for _ in range(STARTS_MAX):  # on a busy machine, a new process starts later than the limit
                if await pool.compare(small) == (2, 1):
                    break
            else:
                pytest.fail("no process goes on")

    run(check)


def test_a_comparison_of_too_much_text_is_refused_unsent() -> None:
    async def check() -> None:
        pool = RegexPool()
        half = bytes(COMPARISON_BYTES_MAX // 2 + 1)
        assert isinstance(await pool.compare(Comparison("hunks_between", (half, half))), TooLarge)
        assert pool._launch is None

    run(check)
