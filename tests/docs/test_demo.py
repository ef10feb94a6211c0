"""The recorded demo: all parts of its story, in a form that a player reads."""

from __future__ import annotations

import json

from demo import CAST, COMMENT, SIZE
from support.pseudo_terminal import without_controls

STORY = ("editctl review", "Retry with backoff", COMMENT, "has landed as", "Roll back all the work of codex",
         "is made")  # fmt: skip


def test_the_recording_has_each_part_of_the_story_in_its_order() -> None:
    header, *events = map(json.loads, CAST.read_text().splitlines())
    assert (header["version"], header["width"], header["height"]) == (2, *SIZE)
    times = [seconds for seconds, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    text = without_controls("".join(text for _, _, text in events).encode()).decode()
    at = [text.find(part) for part in STORY]
    assert -1 not in at
    assert at == sorted(at)
