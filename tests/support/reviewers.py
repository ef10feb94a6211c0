"""Authors and reviewers for tests. One process is both, so they are kin, and the reviewer needs the PIN."""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from editd.config.paths import review_socket_path
from editd.config.pin import PinHash, hash_pin
from editd.wire import messages
from editd_client.client import Client
from editd_client.errors import EditdError
from support.forked_process import PIN_SALT, quick_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from editd.wire.messages import ApplyResult
    from support.workplace import Workplace

PIN = "1234"
LINES = "".join(f"{number}\n" for number in range(1, 31))
FILES = {"a.txt": LINES, "b.txt": LINES}


def config_folder(place: Workplace) -> Path:
    folder = Path(place.environment["XDG_CONFIG_HOME"]) / "editd"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def configure(place: Workplace, text: str) -> None:
    """Write the user's configuration, for the next start of the daemon."""
    (config_folder(place) / "config.toml").write_text(text)


def reconfigure(place: Workplace, client: Client, text: str) -> None:
    """Write the user's configuration, and have the running daemon read it."""
    configure(place, text)
    client.config_reload()


def set_pin(place: Workplace) -> None:
    """Write the file of the PIN; a forked daemon compares it at once, any other by scrypt."""
    is_quick = place.is_forked and not place.launcher
    made = PinHash(PIN_SALT.hex(), quick_hash(PIN).hex()) if is_quick else slow_pin()
    (config_folder(place) / "review.pin").write_bytes(msgspec.json.encode(made))


@functools.cache
def slow_pin() -> PinHash:
    """Return the hash by scrypt. It takes 50 ms, so each process of tests makes it once."""
    return hash_pin(PIN)


@contextmanager
def author_of(place: Workplace, files: Mapping[str, str]) -> Iterator[Client]:
    """Run a daemon on these files; the connection has opened the session `agent`, whose actor is claude."""
    place.write(dict(files))
    with place.start() as made:
        made.settle()
        made.session_open("agent", actor="claude")
        yield made
    place.stop()


@contextmanager
def next_author_of(place: Workplace, files: Mapping[str, str]) -> Iterator[Client]:
    """Open the session `agent` at a running daemon, on these files alone; its proposals end with it."""
    for path in place.files().keys() - files.keys():
        (place.root / path).unlink()
    place.write(dict(files))
    with place.client() as made:
        made.settle()
        made.session_open("agent", actor="claude")
        yield made
        for one in made.proposal_list().proposals:
            if one.session == "agent":
                made.proposal_withdraw(one.proposal)
        made.session_close()


def number_of(made: ApplyResult) -> int:
    """Return the number of the proposal that was made."""
    number: int | None = getattr(made.proposal, "proposal", None)
    assert number is not None
    return number


def announce_agent(place: Workplace) -> None:
    """Make this process an agent, as a hook of it does: at the reviewers' socket, if there is one."""
    own = review_socket_path(place.socket)
    with Client(own if os.path.lexists(own) else place.socket, reconnect=False) as hook:
        hook.seen([], session="hook", pid=os.getpid())


def reviewer_of(place: Workplace, name: str = "ann") -> Client:
    """Return the connection of a reviewer who has given the PIN."""
    client = place.client()
    client.hello(name)
    client.review_unlock(PIN)
    return client


def propose(client: Client, *edits: messages.AnyEdit, **more: Any) -> int:
    """Propose edits, and return the number of the proposal."""
    made = client.apply(list(edits), propose=True, **more)
    assert made.transaction is None
    return proposal_of(made)


def proposal_of(made: messages.ApplyResult | messages.UndoResult) -> int:
    """Return the number of the proposal that an answer names."""
    assert isinstance(made.proposal, messages.ProposedResult)
    assert made.proposal.proposal is not None
    return made.proposal.proposal


def refused(name: str) -> Any:
    """Expect a refusal with this name."""
    return pytest.raises(EditdError, check=lambda error: error.name == name)
