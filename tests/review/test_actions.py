"""The keys of the screens, and the preview of an undo and the like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from editd_client.review import actions
from support.workplace import replace, write

if TYPE_CHECKING:
    from editd.wire.messages import ApplyResult
    from editd_client.client import Client
    from editd_client.prepared_call import PreparedCall
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))


def test_no_key_has_two_actions_in_a_view() -> None:
    for view in actions.EVERYWHERE:
        keys = [one.key for one in actions.keys_of(view)]
        assert len(keys) == len(set(keys))
    assert "approve" in [one.name for one in actions.keys_of("proposals")]


def test_an_undo_is_shown_before_it_is_made(place: Workplace) -> None:
    place.write({"a": LINES, "b": LINES})
    with place.start() as client:
        client.settle()
        first = client.apply([replace("a", "#5\n", "#V\n"), write("new", "x\n")]).transaction
        later = client.apply([replace("a", "#V\n", "#five\n")]).transaction
        assert first is not None
        assert later is not None
        preview = client.undo(first.seq, dry_run=True)
        assert [(one.path, one.is_clean, one.text) for one in actions.effects(preview)] == [
            ("new", True, "goes"),
            ("a", False, f"in the way: {later.seq}, line 5"),
        ]
        shown = shown_preview(preview, client, first.seq)
        assert shown.needed == (later.seq,)
        way = f"in the way: {later.seq} by {later.actor}, line 5"
        assert [one.text for one in shown.effects] == ["goes", way]
        assert shown.context == ""
        client.undo(first.seq, on_conflict="skip")
        assert "new" not in place.files()
        assert b"#five" in place.files()["a"]


def test_an_undo_says_how_much_later_work_it_keeps(place: Workplace) -> None:
    place.write({"a": LINES, "b": LINES})
    with place.start() as client:
        client.settle()
        made = client.apply([replace("a", "#5\n", "#V\n")]).transaction
        assert made is not None
        for number in ("20", "25"):
            client.apply([replace("a", f"#{number}\n", "#\n"), replace("b", f"#{number}\n", "#\n")])
        client.apply([replace("b", "#5\n", "#V\n")])
        shown = shown_preview(client.undo(made.seq, dry_run=True), client, made.seq)
        assert shown.context == "It keeps what 2 later transactions did to these files."


def shown_preview(preview: ApplyResult, client: Client, seq: int | None = None) -> actions.ReversalPreview:
    async def ask(call: PreparedCall[Any]) -> Any:
        return client.ask(call)

    return asyncio.run(actions.preview_of(preview, ask, seq))


def test_the_effect_of_a_rollback_and_of_a_restore_is_shown(place: Workplace) -> None:
    place.write({"a": LINES})
    with place.start() as client:
        client.settle()
        client.session_open("agent", actor="claude")
        client.apply([replace("a", "#5\n", "#V\n")])
        preview = client.rollback("agent", dry_run=True)
        assert [(one.path, one.text) for one in actions.effects(preview)] == [("a", "merges")]
        restored = client.restore(0, dry_run=True)
        assert [(one.path, one.text) for one in actions.effects(restored)] == [("a", "becomes as it was")]
        assert shown_preview(restored, client).needed == ()
