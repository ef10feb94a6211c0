"""A workspace with a story for pictures: two agents work, two proposals wait, and one hunk conflicts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.reviewers import set_pin
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

LOADER = """import time


def load(path):
    for attempt in range(3):
        try:
            return parse(open(path))
        except OSError:
            time.sleep(1)
    return None
"""
LOCK = "".join(f'    "package-{number}": "1.{number}.0",\n' for number in range(1, 13))


@contextmanager
def shop(folder: Path) -> Iterator[Workplace]:
    """Run a daemon on the workspace, the same each time."""
    files = {"src/loader.py": LOADER, "package-lock.json": LOCK, "src/cart.py": "class Basket:\n    pass\n"}
    with workplace(folder / "shop", files) as place:
        set_pin(place)
        with place.start() as ann, place.client() as codex:
            ann.settle()
            ann.hello("ann")
            codex.session_open("codex", actor="codex")
            with place.client() as claude:
                claude.session_open("claude-2", actor="claude")
                claude.lease_acquire(["src/**"], 3600)
                claude.apply([replace("src/cart.py", "Basket", "Cart")], message="Rename Basket to Cart")
                claude.apply(
                    [write("tests/test_cart.py", "from src.cart import Cart\n")], message="Test Cart"
                )
                codex.apply([replace("package-lock.json", "1.3.0", "1.3.1")], message="Bump package-3")
                _propose(claude, codex)
                ann.apply([replace("package-lock.json", "1.11.0", "1.11.5")], message="Bump package-11")
                undone = codex.apply([write("notes.txt", "remove me\n")], message="Notes").transaction
                assert undone is not None
                ann.undo(undone.seq)
                yield place
        place.stop()


def _propose(claude: Client, codex: Client) -> None:
    claude.apply(
        [
            replace("src/loader.py", "def load(path):\n    for attempt in range(3):",
                    "def load(path, retries=5):\n    for attempt in range(retries):"),
            replace("src/loader.py", "    return None", "    raise LoadError(path)"),
            write("src/errors.py", "class LoadError(Exception):\n    pass\n"),
        ],
        propose=True, message="Retry with backoff",
    )  # fmt: skip
    codex.apply(
        [replace("package-lock.json", "1.5.0", "1.5.1"), replace("package-lock.json", "1.11.0", "1.11.1")],
        propose=True, message="Bump two packages",
    )  # fmt: skip
