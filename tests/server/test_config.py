"""server.methods: a new configuration is taken while the daemon runs, and a wrong one is not."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import injection
from editd_client.errors import EditdError
from workplace import replace, write

if TYPE_CHECKING:
    from workplace import Workplace


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
    argv = [sys.executable, "-P", "-m", "editd", "-C", str(place.root)]
    done = subprocess.run(argv, env=place.environment, capture_output=True, text=True, check=False)
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
        assert client.read("a.txt", at=1).content
        place.write({"a.txt": "from outside\n"})
        client.settle()
        assert client.log(limit=1).transactions[0].kind == "outside"
        assert client.status().head == head + 2

        configure(place, "history.keep.count = 2\nhistory.quota = 60000\n")
        client.config_reload()
        client.gc()
        assert not client.status().history["is_full"]
        client.apply([write("a.txt", "there is room again\n")])
        assert client.check().ok


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
    argv = [sys.executable, "-P", "-m", "editd", "-C", str(place.root)]
    done = subprocess.run(argv, env=place.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "config.toml:1: " in done.stderr
    assert "Traceback" not in done.stderr
