"""server.methods: a new configuration is taken while the daemon runs, and a wrong one is not."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from editd.engine.landing_kinds import FREE_MESSAGE_CHARACTERS
from editd.store.journal import SEGMENT_BYTES
from editd.wire import messages
from editd_client.errors import EditdError
from support import injection
from support.crash_checks import wait_until
from support.workplace import replace, write

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd_client.client import Client
    from support.workplace import Workplace


def configure(place: Workplace, text: str, *, here: bool = False) -> None:
    folder = place.folder / "config" / "editd"
    path = folder / "workspaces" / f"{place.id}.toml" if here else folder / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def refused(call: object) -> EditdError:
    with pytest.raises(EditdError) as caught:
        call()  # type: ignore[operator]
    return caught.value


def test_a_wrong_file_keeps_the_daemon_from_starting_and_who_started_it_is_told(place: Workplace) -> None:
    configure(place, "# mine\npublsh = 'rename'\n", here=True)
    done = place.editd("-C", str(place.root))
    assert done.returncode == 1
    assert (
        f"workspaces/{place.id}.toml:2: publsh: there is no such key. Did you mean `publish`?" in done.stderr
    )


def test_a_reload_is_taken_told_and_refused_where_it_is_wrong(place: Workplace) -> None:
    place.write({"a.txt": "one\n", "keys/x.pem": "secret\n"})
    with place.start() as client:
        client.apply([replace("keys/x.pem", "secret", "known")])

        configure(place, 'protect = ["**/*.pem", "vendor/**"]\nencoding = "latin-1"\n')
        result = client.config_reload()
        assert (result.applied, result.restart) == (["protect"], ["encoding"])
        assert client.status().config["restart"] == ["encoding"]

        # What is protected is so for every way of changing it, and nothing else is.
        for change in (
            lambda: client.apply([replace("keys/x.pem", "known", "other"), write("a.txt", "two\n")]),
            lambda: client.apply([write("keys/new.pem", "x")], dry_run=True),
            lambda: client.undo(1),
            lambda: client.restore(0, paths=["keys/x.pem"]),
        ):
            refusal = refused(change)
            assert refusal.name == "path_protected"
            assert refusal.data["protect"] == "**/*.pem"
        assert place.files() == {"a.txt": b"one\n", "keys/x.pem": b"known\n"}
        refusal = refused(lambda: client.apply([write("vendor", "a file instead of the folder")]))
        assert (refusal.name, refusal.data["protect"]) == ("path_protected", "vendor/**")
        place.write({"keys/x.pem": "from outside\n"})
        client.settle()
        assert client.log(limit=1).transactions[0].kind == "outside"

        # A wrong file changes nothing, and both who asked and `status` are told.
        configure(place, "protect = []\nprotec = 1\n")
        refusal = refused(client.config_reload)
        assert refusal.name == "invalid_params"
        assert refusal.data["problems"][0]["line"] == 2
        assert "config.toml:2: protec:" in client.status().config["problem"]
        assert refused(lambda: client.apply([write("keys/x.pem", "x")])).name == "path_protected"

        # By a signal, too; the workspace's own file goes over the user's.
        configure(place, 'protect = ["a.txt"]\n')
        configure(place, "protect = []\n", here=True)
        assert place.process is not None
        os.kill(place.process.pid, signal.SIGHUP)
        until = time.monotonic() + 20
        while client.status().config["problem"] is not None and time.monotonic() < until:
            time.sleep(0.02)
        client.apply([write("keys/x.pem", "again\n"), write("a.txt", "two\n")])


def test_a_quota_that_is_reached_refuses_edits_and_nothing_else(place: Workplace) -> None:
    place.write({"a.txt": "one\n"})
    configure(place, 'history.quota = "60kB"\n')
    with place.start() as client:
        while not client.status().history["is_full"]:
            client.apply([write("a.txt", os.urandom(4000).hex())])
        assert 5 < client.status().head < 40
        refusal = refused(lambda: client.apply([write("a.txt", "one more\n")]))
        assert (refusal.name, refusal.data["errno"]) == ("io_error", errno.EDQUOT)
        assert "editctl gc" in refusal.message
        kept = place.files()

        head = client.status().head
        assert refused(lambda: client.restore(1)).name == "io_error"
        assert place.files() == kept
        assert client.apply([write("a.txt", "x")], dry_run=True).files[0].change == "modified"
        assert client.undo().transaction is not None  # taking back is the way out
        long = "x" * (FREE_MESSAGE_CHARACTERS + 1)  # The attack: undo and redo in turn fill the disk.
        assert refused(lambda: client.redo(message=long)).name == "io_error"
        assert client.redo(message=long[1:]).transaction is not None
        assert client.undo().transaction is not None
        assert client.read("a.txt", at=1).content
        place.write({"a.txt": "from outside\n"})
        client.settle()
        assert client.log(limit=1).transactions[0].kind == "outside"
        assert client.status().head == head + 4

        configure(place, "history.keep.count = 2\nhistory.quota = 60000\n")
        client.config_reload()
        client.gc()
        assert not client.status().history["is_full"]
        client.apply([write("a.txt", "there is room again\n")])
        assert client.check().ok


def test_undo_and_redo_in_turn_leave_a_small_journal_beside_a_full_quota(place: Workplace) -> None:
    """The attack: undo goes on beyond the quota, and its journal kept 75 MB, also after a stop."""
    configure(place, 'history.quota = "1MiB"\n')
    place.segment_bytes = SEGMENT_BYTES
    most = 4 * SEGMENT_BYTES  # the one in use, the last one, and two free ones
    with place.start() as client:
        client.apply([write("a.txt", os.urandom(1_800_000).hex())])
        largest = 0
        for number in range(20):
            _ = client.undo() if number % 2 == 0 else client.redo()
            largest = max(largest, client.status().journal["bytes"])
        assert largest > most
        wait_until(lambda: client.status().journal["bytes"] <= most, "packed segments are removed")
    place.stop()
    assert sum(path.stat().st_size for path in (place.state / "journal").glob("*.*")) <= most


def test_the_quota_counts_the_index_and_the_marks_of_sessions(place: Workplace) -> None:
    """Four sessions with long paths took 167 MB on the disk beside a quota of 4 MiB."""
    configure(place, 'history.quota = "2MiB"\n')
    with place.start() as client:
        client.session_open("reader")
        folder = "/".join(["q" * 240] * 4)
        files = [messages.SeenFile(path=f"{folder}/{number}", version=None) for number in range(3_000)]
        before = client.status().history
        client.seen(files)
        wait_until(lambda: client.status().history["is_full"], "the quota is full")
        history = client.status().history
        assert history["marks"] > before["marks"] + 2_000_000
        with pytest.raises(EditdError, match=r"read marks [0-9]+, and `history.quota` is 2097152"):
            client.apply([write("a", "x")])
        client.session_close("reader")
        wait_until(lambda: not client.status().history["is_full"], "there is room again")
        client.apply([write("a", "x")])


def test_the_quota_counts_proposals_drafts_revisions_comments_and_unsaved_texts(place: Workplace) -> None:
    """The attack: one session fills the disk with what never takes effect."""
    place.write({"a.txt": "one\n"})
    quota = 600_000
    configure(place, f"history.quota = {quota}\n")

    def text() -> str:
        return os.urandom(20_000).hex()

    with place.start() as client, place.client() as other, place.client() as collector:
        client.session_open("agent")
        collector.session_open("collector", batch="draft")
        first = client.apply([write("p", text())], propose=True).proposal
        assert isinstance(first, messages.ProposedResult)
        number = first.proposal
        assert number is not None
        growing = (
            lambda: client.apply([write("q", text())], propose=True),
            lambda: collector.apply([write("d", text())]),
            lambda: client.apply([write("p", text())], proposal=number),
            lambda: client.proposal_comment(number, text()),
            lambda: client.document_hold(f"u{client.status().documents}", None, text()),
        )
        sizes = [0]
        for grow in growing:
            before = client.status().history
            grow()
            after = client.status().history
            sizes.append(after["proposals"] + after["unsaved"])
            assert sizes[-1] >= sizes[-2] + 40_000, (before, after)
        for grow in growing:
            while (error := outcome(grow)) is None:
                assert stored(client) < quota + 100_000
            assert (error.name, error.data["errno"]) == ("io_error", errno.EDQUOT)
        assert client.status().history["is_full"] or stored(client) > quota - 50_000
        assert client.apply([write("full", "x")], dry_run=True).files[0].change == "added"
        while (error := outcome(lambda: other.apply([write("e", text())]))) is None:
            continue
        assert error.name == "io_error"
        assert client.proposal_withdraw(number).proposal.state == "withdrawn", "a decision needs no room"


def stored(client: Client) -> int:
    history = client.status().history
    return int(history["bytes"] + history["proposals"] + history["unsaved"])


def outcome(call: Callable[[], object]) -> EditdError | None:
    try:
        call()
    except EditdError as error:
        return error
    return None


def test_relaxed_an_edit_is_answered_before_the_sync_which_follows(place: Workplace) -> None:
    if injection.missing() is not None:
        pytest.skip(f"system calls cannot be seen: {injection.missing()}")
    syncs: dict[str, int] = {}
    with place.start() as client:
        for durability in ("full", "relaxed"):
            configure(place, f'durability = "{durability}"\n')
            client.config_reload()
            assert ("relaxed" in " ".join(client.status().weaker)) == (durability == "relaxed")
            client.apply([write("a.txt", f"{durability} 0\n")])
            assert place.process is not None
            with injection.attached(place.process.pid, calls="fdatasync,pwritev2") as trace:
                for number in range(1, 9):
                    client.apply([write("a.txt", f"{durability} {number}\n")])
                syncs[durability] = len(re.findall(r"fdatasync\(|RWF_DSYNC", trace.output.read_text()))
        place.kill()  # what was answered is there all the same: only a power cut costs anything
    assert syncs["full"] >= 8
    assert syncs["relaxed"] == 0  # in the thread that answers
    with place.start() as client:
        assert client.status().head == 18
        assert client.read("a.txt").content == "relaxed 8\n"
        assert client.check().problems == []


@pytest.mark.parametrize(
    "text", ["serena.ignored_paths = " + "[" * 20_000, "history.quota = 1" + "0" * 399, "x = 1" + "0" * 5000]
)
def test_what_is_wrong_beyond_all_measure_is_wrong_like_anything_else(place: Workplace, text: str) -> None:
    with place.start() as client:
        configure(place, text)
        refusal = refused(client.config_reload)
        assert refusal.name == "invalid_params"
        assert "config.toml:1: " in refusal.message
        assert client.status().config["problem"]
    place.stop()
    done = place.editd("-C", str(place.root))
    assert done.returncode == 1
    assert "config.toml:1: " in done.stderr
    assert "Traceback" not in done.stderr
