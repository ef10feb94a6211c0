"""Every key of the help, in each view at three sizes.

The short form has each view at one of the sizes, by the seed of the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from editd_client.screen.app import ReviewApp
from editd_client.screen.keys import keys_in
from support.reviewers import reviewer_of
from support.screens import SIZES, Seen, on_screen, propose
from support.seeds import seed
from support.workplace import Workplace, write

if TYPE_CHECKING:
    from editd_client.client import Client
    from editd_client.review.actions import View

FRONT: dict[View, str] = {"proposals": "1", "timeline": "2", "agents": "3"}
KEYS = {"1 2 3": ("1", "2", "3"), "esc": ("escape",)}
FIRST = {
    "k": "j",
    "g": "j",
    "[": "]",
    "{": "}",
    "K": "J",
    "escape": ("enter",),
    "ctrl+u": "jj",
}  # pressed before
NOTHING_HERE: dict[View, tuple[str, ...]] = {  # about a diff or a long list, which the agents do not have
    "agents": ("J", "w", "escape", "ctrl+d", "ctrl+u", "G", "g", "j", "k"),
}


@pytest.fixture
def busy(author: Client, place: Workplace) -> None:
    """Something for each key: long diffs, many proposals, a lease, an undo and a grant."""
    long = "".join(f"line {number} {'long ' * 40}\n" for number in range(60))
    author.lease_acquire(["leased/**"], 60)
    done = author.apply([write("undo", "1\n")]).transaction
    assert done is not None
    author.undo(done.seq)
    for text in ("", "a " * 100 + "\n", "b " * 100 + "\n"):
        whole = text + long.replace("7", text[:1] or "7")
        author.apply([write("src/f0.py", whole), write("src/f2.py", whole)], message="long")
    for number in range(12):
        propose(
            author, write("src/f0.py", long.replace("7", "x")), write("src/f2.py", long), message=f"{number}"
        )
    with reviewer_of(place) as reviewer:
        reviewer.review_allow(["docs/**"], 60)


@pytest.mark.parametrize("view", FRONT)
def test_every_key_of_the_help_has_an_effect_at_each_size(
    place: Workplace, busy: None, view: View, monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    """Each is pressed in the middle of its list, where it must change the screen or ask a question."""
    copied: list[str] = []
    monkeypatch.setattr(ReviewApp, "copy_to_clipboard", lambda _self, text: copied.append(text))
    monkeypatch.setenv("EDITOR", "true")
    sizes = SIZES if is_long else [SIZES[(seed() + list(FRONT).index(view)) % len(SIZES)]]

    async def steps(seen: Seen) -> None:
        for size in sizes:
            await seen.pilot.resize_terminal(*size)
            for key in [key for entry in keys_in(view) for key in KEYS.get(entry.key, (entry.key,))]:
                if key != "q" and key not in NOTHING_HERE.get(view, ()):
                    await press_in_the_middle(seen, view, key)
        await seen.press("q")
        await seen.until(lambda: seen.app._exit)

    on_screen(place, SIZES[0], steps)
    assert len(copied) == len(sizes) * (view == "timeline")


async def press_in_the_middle(seen: Seen, view: View, key: str) -> None:
    """Press a key where it has an effect, see that it has one, and leave what it opened."""
    other = "3" if view == "timeline" else "2"
    front = ["escape", "escape", FRONT[view] if key != FRONT[view] else other, "g"]
    first = "j" if view == "timeline" else ""  # the newest may be an outside change
    await seen.press(*front, *first, *FIRST.get(key, ()))
    await seen.idle()
    before = seen.picture
    await seen.press(key)
    print(f"{view} at {seen.app.size}: {key}")  # the last one is to blame
    await seen.until(lambda: seen.picture != before)
    if key == "y":
        await seen.until("on the clipboard")
    await seen.idle()
    while len(seen.app.screen_stack) > 1:
        await seen.press("escape")
        await seen.idle()
