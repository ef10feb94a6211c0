"""A repository to publish to, and what its own git says of it afterwards."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from editd_client.errors import EditdError
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from editd_client.client import Client

LINES = "".join(f"line {number}\n" for number in range(1, 21))


@contextlib.contextmanager
def repository(folder: Path) -> Iterator[Workplace]:
    """Make a repository with one commit on main, and a user that git knows."""
    with workplace(folder, {"a.txt": LINES, "b.txt": "b\n", "sub/c.txt": "c\n"}) as made:
        made.git("init", "-q", "-b", "main")
        made.git("config", "user.name", "Ann Example")
        made.git("config", "user.email", "ann@example.org")
        made.git("add", "-A")
        made.git("commit", "-q", "-m", "first")
        yield made


def refused(ask: Callable[..., object], *given: Any, **more: Any) -> EditdError:
    with pytest.raises(EditdError) as refusal:
        ask(*given, **more)
    return refusal.value


def edit(client: Client, session: str, *edits: Any, **more: Any) -> int:
    made = client.apply(edits, session=session, actor=more.pop("actor", session), **more).transaction
    assert made is not None
    return made.seq


def sound(place: Workplace) -> None:
    """git finds nothing wrong with its own repository."""
    said = place.git("fsck", "--full", "--strict")
    assert not [line for line in said.splitlines() if not line.startswith("dangling")], said


def shown(place: Workplace, what: str) -> str:
    return place.git("show", what)


def names(place: Workplace, commit: str) -> list[str]:
    return place.git("show", "--format=", "--name-status", "--no-renames", commit).splitlines()
