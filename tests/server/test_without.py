"""Systems that lack something of Linux: each missing feature is done without, and `status` says so (D35)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from editd.values.content import version_of
from editd_client.errors import Unreachable
from support import without
from support.crash_checks import check_short_life, strays, transactions, wait_until
from support.fork_server import run_forked
from support.seeds import seed
from support.workplace import replace, write

if TYPE_CHECKING:
    from support.workplace import Workplace

WEAKER = {  # words of the sentence in `weaker` by feature; the others are equally safe
    "exchange": "cannot exchange",
    "renameat2-flags": "cannot exchange",
    "renameat2": "cannot exchange",
    "renameat2-eperm": "cannot exchange",
    "leases": "has no leases",
    "proc": "/proc",
}
MISSING = {  # the name in `system.missing`
    "openat2": "openat2",
    "openat2-eperm": "openat2",
    "openat2-eacces": "openat2",
    "renameat2": "renameat2",
    "renameat2-eperm": "renameat2",
    "syncfs": "syncfs",
    "syncfs-eperm": "syncfs",
    "proc": "/proc",
}


def in_the_gate(cases: list[Any]) -> list[Any]:
    """Return the cases for `parametrize`. The gate has half of them, by the seed, and the long form all."""
    return [
        case
        if number % 2 == seed() % 2
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for number, case in enumerate(cases)
    ]


def editctl(place: Workplace, feature: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    launcher = without.launcher(feature)
    argv = ["-P", "-m", "editd_client", "-C", str(place.root), *words]
    if without.feature_of(launcher) is None:
        argv = [*launcher, sys.executable, *argv]
        return subprocess.run(argv, env=place.environment, capture_output=True, check=False, timeout=60)
    return run_forked(["--without", feature, *argv], environment=place.environment, folder=place.root)


def status(place: Workplace, feature: str) -> dict[str, Any]:
    done = editctl(place, feature, "status", "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("feature", in_the_gate([*without.FEATURES, "exchange,leases,inotify,pidfd,statx"]))
def test_a_missing_feature_is_done_without_and_status_says_so(place: Workplace, feature: str) -> None:
    if (reason := without.missing_for(feature)) is not None:
        pytest.skip(reason)
    place.launcher = without.launcher(feature)
    told: dict[str, Any] = {}
    check_short_life(place, lambda _: told.update(status(place, feature)))
    features = feature.split(",")
    for word in set(WEAKER.values()):
        is_due = word in [WEAKER.get(one) for one in features]
        assert (word in " ".join(told["weaker"])) == is_due, told["weaker"]
    assert {MISSING[one] for one in features if one in MISSING} <= set(told["system"]["missing"])
    done = editctl(place, feature, "stop")
    assert done.returncode == 0, done.stderr
    assert place.process is not None
    assert place.process.wait(30) == 0
    assert strays(place.root) == []


@pytest.mark.parametrize("feature", ["leases", "exchange,leases"])
def test_without_leases_settle_waits_for_the_second_look(place: Workplace, feature: str) -> None:
    if (reason := without.missing()) is not None:
        pytest.skip(reason)
    place.launcher = without.launcher(feature)
    place.write({"a": "one\n"})
    with place.start() as client:
        client.settle()
        client.apply([replace("a", "one", "two")])
        (kept,) = [path for path in (place.state / "replaced").iterdir() if path.stat().st_size]
        kept.write_text("theirs\n")  # by whoever was just opening it
        client.settle()
        theirs = version_of(b"theirs\n")
        assert theirs in [touched.version for tx in transactions(client) for touched in tx.files]
        assert client.read("a").content == "two\n"


@pytest.mark.parametrize(
    ("call", "when"), in_the_gate([("linkat", 1), ("renameat", 2), ("linkat", 2), ("renameat", 3)])
)
def test_a_kill_beside_the_second_name_of_what_is_replaced_loses_nothing(
    place: Workplace, call: str, when: int
) -> None:
    """Without exchange the file has two names for a moment; the first rename is that of the socket."""
    if (reason := without.missing() or (None if shutil.which("strace") else "no strace")) is not None:
        pytest.skip(reason)
    place.launcher = (
        "strace", "-f", "-o", str(place.folder / "trace"), "-e", f"trace={call}",
        "-e", f"inject={call}:signal=SIGKILL:when={when}", *without.launcher("exchange"),
    )  # fmt: skip
    place.write({"a": "one\n", "b": "one\n"})
    with place.start() as client:
        client.settle()
        with pytest.raises(Unreachable):
            client.apply([replace("a", "one", "two"), replace("b", "one", "two")])
    assert place.process is not None
    place.process.wait(30)
    assert "SIGKILL" in (place.folder / "trace").read_text()
    place.launcher = without.launcher("exchange")
    with place.start() as client:
        assert place.files() == {"a": b"two\n", "b": b"two\n"}
        client.apply([replace("a", "two", "three"), replace("b", "two", "three")])
        client.settle()
        assert [tx.kind for tx in transactions(client)] == ["edit", "edit"]
        assert client.check().problems == []
        assert strays(place.root) == []
        wait_until(lambda: not list((place.state / "replaced").iterdir()), "it is kept for ever")


def test_without_a_boot_id_every_start_recovers_as_after_a_power_cut(place: Workplace) -> None:
    """The id of a mount alone is used again after the next boot: what is torn must not be taken as whole."""
    if (reason := without.missing_for("proc")) is not None:
        pytest.skip(reason)
    place.launcher = without.launcher("proc")
    with place.start() as client:
        client.apply([write("a", "whole\n")])
        place.kill()
    (place.root / "a").write_bytes(b"\0" * 6)  # as a power cut leaves it
    with place.start() as client:
        assert client.read("a").content == "whole\n"
        assert "/proc" in " ".join(client.status().weaker)
