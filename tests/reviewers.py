"""Reviewers for tests. They are kin to the authors, whose process is the same, and so they need the PIN."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from editd.config.pin import hash_pin

if TYPE_CHECKING:
    from editd_client.client import Client
    from workplace import Workplace

PIN = "1234"


def config_folder(place: Workplace) -> Path:
    folder = Path(place.environment["XDG_CONFIG_HOME"]) / "editd"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def set_pin(place: Workplace) -> None:
    (config_folder(place) / "review.pin").write_bytes(msgspec.json.encode(hash_pin(PIN)))


def reviewer_of(place: Workplace, name: str = "ann") -> Client:
    """Return the connection of a reviewer who has given the PIN."""
    client = place.client()
    client.hello(name)
    client.review_unlock(PIN)
    return client
