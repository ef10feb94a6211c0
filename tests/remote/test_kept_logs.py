"""Logs that were made by earlier versions of editd, and are kept: this version joins them and goes on."""

from __future__ import annotations

import json
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.hosts import exchange, hosts, until
from support.log_checker import check_chain, log_of
from support.workplace import replace

if TYPE_CHECKING:
    from editd_client.client import Client
    from support.log_checker import Entry

KEPT = Path(__file__).parent / "kept_logs"
NAMES = [
    "08c1ca6",
    "version1",
]  # the second one names the version of its entries


def restored(folder: Path, name: str) -> Path:
    """Return a server with a kept log."""
    server = folder / "kept.git"
    subprocess.run(["git", "clone", "-q", "--mirror", KEPT / f"{name}.bundle", server], check=True)
    return server


def changed(entry: Entry) -> list[str]:
    """Return the paths that an entry changes, with both names of a move."""
    assert entry.before is not None
    deltas = entry.before.diff_to_tree(entry.tree).deltas
    return sorted({path for delta in deltas for path in (delta.old_file.path, delta.new_file.path)})


def shown(change: Any) -> set[str]:
    """Return the paths of a change of a file, with the old one of a move."""
    source = change.from_ if isinstance(change.from_, str) else None
    return {change.path} if source is None else {change.path, source}


def has_proposals(client: Client) -> bool:
    return client.proposal_list().proposals != []


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_log_is_joined_and_shown_and_goes_on(tmp_path: Path, name: str) -> None:
    kept, server = json.loads((KEPT / f"{name}.json").read_text()), restored(tmp_path, name)
    entries = log_of(server)
    assert [[one.number, one.trailers] for one in entries] == kept["entries"]
    with hosts(tmp_path, 2, join=False) as (places, (one, other), _):
        one.remote_leave()  # its own log
        for place, client in zip(places, (one, other), strict=True):
            client.remote_join(str(server))
            assert {path: text.decode() for path, text in place.files().items()} == kept["files"]
            for entry in entries[1:]:
                files = client.diff(f"@{entry.number - 1}", f"@{entry.number}").files
                assert sorted(set().union(*map(shown, files))) == changed(entry)
            state = client.remote_now(timeout=10)
            assert (state.state, state.number, state.version) == ("current", len(entries) - 1, 1)
            assert (state.unusable, state.newer) == ([], [])
            assert {line.number for line in client.blame("a.txt").lines} == {0, 1, 6, 9}
            until(partial(has_proposals, client), "it has no proposal")
            assert [one.message for one in client.proposal_list().proposals] == kept["proposals"]
        one.apply([replace("b.txt", "line 1\n", "1\n")])
        exchange(one, other)
        other.apply([replace("b.txt", "line 9\n", "9\n")])
        one.proposal_reject(one.proposal_list().proposals[0].proposal, comment="no")
        exchange(one, other)
        until(lambda: other.proposal_list().proposals == [], "it is not decided")
        other.undo(f"@{len(entries)}")
        exchange(one, other)
        assert places[0].files() == places[1].files()
        assert [client.check().problems for client in (one, other)] == [[], []]
        assert len(check_chain(server, [])) == len(entries) + 4
