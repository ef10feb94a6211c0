"""Each action of the owner on the screen: on the ordinary and on the reviewers' socket, and with the PIN.

The short form has each action on one of the two sockets, by the seed of the commit, the long form on both.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from support.reviewers import PIN, announce_agent, configure, set_pin
from support.screens import Seen, on_screen, screen_of
from support.seeds import one_of
from support.supervisor import supervised
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.workplace import Workplace

OWN = '[review]\nsocket = "own"\n'
SOCKETS = {"ordinary socket": "", "reviewers' socket": OWN}  # and the configuration of the daemon for it
# The keys up to the question for the PIN, each with a text that comes after it, and the text at the end.
ACTIONS = {
    "undo": ([("2", "edit 2"), ("u", "Nothing is changed yet"), ("u", "")], "is made"),
    "rollback": ([("3", "lease leased/**"), ("R", "Roll back all"), ("u", "")], "is made"),
    "publish": ([("3", "edit 2"), ("m", "Message of the commit"), ("All\n", "make the commit"), ("m", "")],
                "Published as"),
    "pause": ([("3", "edit 2"), ("P", "Pause agent?"), ("r", "Reason"), ("later\n", "")], "is paused"),
    "leases": ([("3", "lease leased/**"), ("L", "End the leases"), ("L", "")], "have ended"),
    "close": ([("3", "edit 2"), ("K", "Close the session"), ("K", "")], "is closed"),
    "grant": ([("3", "edit 2"), ("A", "**"), ("\n", "For how long"), ("\n", "")], "Grant"),
    "approve": ([("1", "P1"), ("a", "")], "has landed as"),
    "reject": ([("1", "P1"), ("x", "Reject all"), ("no\n", "")], "is rejected"),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    """A workplace for each test: that of the other modules is kept for all their tests."""
    with workplace(tmp_path / "place") as made:
        yield made


@pytest.fixture
def served(
    place: Workplace, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workplace]:
    """The screen, which is this process, is an agent: all that only the owner may do needs the PIN."""
    configure(place, SOCKETS[request.param])
    set_pin(place)
    take_environment(place, monkeypatch)
    place.write({"a.txt": "old\n"})
    place.git("init", "-q", "-b", "main")
    place.git("config", "user.name", "Ann")
    place.git("config", "user.email", "ann@example.org")
    place.git("add", "-A")
    place.git("commit", "-q", "-m", "First")
    with place.start() as author:
        author.settle()
        author.session_open("agent", actor="claude")
        announce_agent(place)
        for number in (1, 2):
            author.apply([write(f"{number}.txt", "new\n")], message=f"edit {number}")
        author.apply([write("proposed.txt", "new\n")], propose=True)
        author.lease_acquire(["leased/**"], 600)
        yield place
    place.stop()


def take_environment(place: Workplace, patch: pytest.MonkeyPatch) -> None:
    """Give this process the environment of a shell of the workplace."""
    for name, value in place.environment.items():
        patch.setenv(name, value)
    for name in ("EDITD_SOCKET", "EDITD_SESSION", "NO_COLOR", "VISUAL"):
        patch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("action", "served"),
    [
        pytest.param(action, *one.values, marks=one.marks)
        for turn, action in enumerate(ACTIONS)
        for one in one_of(SOCKETS, turn)
    ],
    indirect=["served"],
)
def test_an_action_of_the_owner_asks_for_the_pin(served: Workplace, action: str) -> None:
    keys, end = ACTIONS[action]

    async def steps(seen: Seen) -> None:
        for text, shown in keys:
            await (seen.type(text.removesuffix("\n")) if text.endswith("\n") else seen.press(text))
            await seen.until(shown)
        await seen.until("needs your PIN")
        await seen.type(PIN)
        await seen.until(end)

    on_screen(served, (140, 40), steps)


def test_the_screen_finds_the_reviewers_socket_where_systemd_starts_the_daemon(
    place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(place, OWN)
    take_environment(place, monkeypatch)
    with supervised(place) as unit:
        unit.start()
        with place.client() as author:
            author.session_open("agent", actor="claude")
            author.apply([write("a.txt", "new\n")], message="edit 1")
        unit.hear("READY=1")
        unit.end()

        async def run() -> None:
            starting = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().add_reader(unit.listener, starting.set_result, None)
            task = asyncio.create_task(seen_undo())
            await starting
            asyncio.get_running_loop().remove_reader(unit.listener)
            unit.start()
            await task

        async def seen_undo() -> None:
            async with screen_of(place, (140, 40)) as seen:
                await seen.press("2")
                await seen.until("edit 1")
                await seen.press("u")
                await seen.until("Nothing is changed yet")
                await seen.press("u")
                await seen.until("is made")

        asyncio.run(run())
        assert "a.txt" not in place.files()
        unit.end()
