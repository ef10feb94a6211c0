"""Beginning, joining and leaving a log: through the real command."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.hosts import bare_repository, exchange, hosts, name_host
from support.workplace import workplace, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.workplace import Workplace


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Workplace, Workplace, str]]:
    """Two workspaces that have joined nothing yet, and a repository."""
    server = bare_repository(tmp_path / "server.git")
    with (
        workplace(tmp_path / "one", {"a.txt": "a\n", "src/b.txt": "b\n"}) as one,
        workplace(tmp_path / "other", {"a.txt": "other\n", "mine.txt": "mine\n"}) as other,
    ):
        for place, name in ((one, "one"), (other, "other")):
            name_host(place, name)
        yield one, other, str(server)
        for place in (one, other):
            place.editctl("stop")


def refused(request: Callable[[], object]) -> EditdError:
    with pytest.raises(EditdError) as caught:
        request()
    return caught.value


def test_init_asks_and_says_what_it_sends(both: tuple[Workplace, Workplace, str]) -> None:
    one, _, server = both
    asked = one.editctl("remote", "init", server)
    assert (asked.returncode, "--yes" in asked.stderr) == (1, True)
    done = one.editctl("remote", "init", "--yes", server)
    assert (done.returncode, "begins with 2 files of one" in done.stdout) == (0, True), done.stderr
    shown = one.editctl("remote", "status")
    assert shown.stdout.startswith(("state       current", "state       behind"))


def test_files_that_differ_are_listed_and_replaced_only_on_request(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    asked = other.editctl("remote", "join", server)
    assert asked.returncode == 1
    assert "a.txt" in asked.stderr
    assert "mine.txt" in asked.stderr
    assert other.files()["a.txt"] == b"other\n"
    assert other.editctl("remote", "join", "--take", "log", server).returncode == 0
    assert other.files() == one.files()
    assert other.editctl("restore", "0").returncode == 0
    assert other.files() == {"a.txt": b"other\n", "mine.txt": b"mine\n"}, "the history keeps them"


@pytest.mark.long
def test_files_that_differ_can_be_kept_and_are_an_edit_of_their_host(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    assert other.editctl("remote", "join", "--keep", "mine", server).returncode == 0
    for place in (other, one):
        assert place.editctl("remote", "now").returncode == 0
    expected = {"a.txt": b"other\n", "src/b.txt": b"b\n", "mine.txt": b"mine\n"}
    assert [place.files() for place in (one, other)] == [expected, expected]
    assert "Keep the files of this host" in one.editctl("log").stdout
    assert one.editctl("undo", "@1").returncode == 0
    assert one.files() == {"a.txt": b"a\n", "src/b.txt": b"b\n"}


@pytest.mark.long
def test_who_has_left_is_alone_again(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": "a\n"}) as (places, (one, other), server):
        assert other.remote_leave().state == "none"
        assert not (places[1].state / "remote").exists()
        assert refused(other.remote_leave).name == "invalid_params"
        one.apply([write("a.txt", "b\n")])
        exchange(one)
        assert places[1].files()["a.txt"] == b"a\n"
        assert other.remote_join(str(server), take="log").host == "host1-2", (
            "its first name is taken for good"
        )
        assert places[1].files()["a.txt"] == b"b\n"
        assert refused(lambda: one.remote_init(str(server))).name == "invalid_params"


def test_without_a_log_there_is_nothing_to_join(both: tuple[Workplace, Workplace, str]) -> None:
    one, _, server = both
    with one.start() as client:
        assert refused(lambda: client.remote_join(server)).name == "conflict"
        assert refused(lambda: client.remote_init("-x")).name == "invalid_params"
        assert refused(client.remote_now).name == "invalid_params"
        assert client.remote_status().state == "none"
        assert client.status().remote is None
    one.stop()


@pytest.mark.long
def test_hosts_of_the_same_name_get_names_of_their_own(tmp_path: Path) -> None:
    with (
        hosts(tmp_path, 1, {"a.txt": "a\n"}) as (_, (one,), server),
        workplace(tmp_path / "more") as more,
    ):
        name_host(more, "host0")
        with more.start() as client:
            assert client.remote_join(str(server)).host == "host0-2"
            client.apply([write("b.txt", "b\n")], actor="ann")
            exchange(one, client)
            (arrived,) = one.log(limit=1).transactions
            assert (arrived.host, arrived.actor) == ("host0-2", "ann")


def test_a_file_that_git_ignores_is_held_by_a_host_that_joins(tmp_path: Path) -> None:
    files = {"a.txt": "a\n", "build.log": "theirs\n", "other.log": "theirs\n"}
    with hosts(tmp_path, 2, files, join=False) as (places, (one, other), server):
        places[1].git("init", "-q")
        places[1].write({".git/info/exclude": "*.log\n", "build.log": "mine\n"})
        other.remote_join(str(server))
        one.apply([write("build.log", "theirs again\n"), write("c.txt", "c\n")])
        exchange(one, other)
        assert other.remote_status().held == ["build.log"]
        assert places[1].files() == {
            "a.txt": b"a\n", "build.log": b"mine\n", "c.txt": b"c\n", "other.log": b"theirs\n"
        }  # fmt: skip


def test_a_host_whose_name_the_server_refuses_keeps_its_files(both: tuple[Workplace, Workplace, str]) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    hook = Path(server) / "hooks/update"
    hook.write_text('#!/bin/sh\ncase "$1" in refs/editd/*) exit 1;; esac\n')
    hook.chmod(0o755)
    before = other.files()
    with other.start() as client:
        head = client.status().head
        for choice in ({"take": "log"}, {"keep": "mine"}):
            refusal = refused(functools.partial(client.remote_join, server, **choice))  # type: ignore[arg-type]
            assert "hook declined" in refusal.message
        assert (other.files(), client.status().head) == (before, head)
        assert client.remote_status().state == "none"
        hook.unlink()
        assert client.remote_join(server, take="log").host == "other"
        assert other.files() == one.files()


def test_a_host_that_cannot_take_the_files_gives_its_name_back(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    with other.start() as client:
        client.settle()
        away = other.root.rename(other.root.with_name("away"))
        assert refused(lambda: client.remote_join(server, take="log")).name == "io_error"
        away.rename(other.root)
        assert client.remote_status().state == "none"
        assert other.files() == {"a.txt": b"other\n", "mine.txt": b"mine\n"}
        assert client.remote_join(server, take="log").host == "other", "its name is free"


def reject(server: str, condition: str) -> Path:
    """Have the server refuse updates by a shell's test of `$1` (the ref) and `$3` (the new id)."""
    hook = Path(server) / "hooks/update"
    hook.write_text(f"#!/bin/sh\nif {condition}; then echo not now >&2; exit 1; fi\n")
    hook.chmod(0o755)
    return hook


def test_what_is_kept_is_sent_first_and_a_refused_join_has_changed_nothing(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    # Neither an entry nor the end of a name is taken, so that each try leaves its name behind.
    hook = reject(
        server, 'case "$1$3" in refs/heads/*|*00000000000000000000000000000000) true;; *) false;; esac'
    )
    before = other.files()
    with other.start() as client:
        client.settle()
        head = client.status().head
        for _ in range(2):
            assert "not now" in refused(lambda: client.remote_join(server, keep="mine")).message
            assert (other.files(), client.status().head) == (before, head)
            assert client.remote_status().state == "none"
        hook.unlink()
        assert client.remote_join(server, keep="mine").host == "other", "its own name, taken by the first try"
        made = client.log(limit=9).transactions
        assert [(one.kind, [file.path for file in one.files]) for one in made if one.kind != "baseline"] == [
            ("restore", ["src/b.txt"])
        ], "one transaction, of the files that the log alone had"
        with one.client() as first:
            exchange(first, client)
            expected = {"a.txt": b"other\n", "src/b.txt": b"b\n", "mine.txt": b"mine\n"}
            assert [place.files() for place in (one, other)] == [expected, expected]
            (arrived,) = [made for made in first.log(limit=9).transactions if made.number == 1]
            assert (arrived.host, arrived.message) == ("other", "Keep the files of this host")


def test_a_file_in_the_place_of_a_folder_is_listed_before_anything_changes(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    one.write({"tool": "tool\n"})
    other.write({"src": "a file\n", "tool/x": "x\n"})
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    before = other.files()
    with other.start() as client:
        client.settle()
        message = refused(lambda: client.remote_join(server, keep="mine")).message
        assert "src is a file here and a folder in the log" in message
        assert "tool is a folder here and a file in the log" in message
        assert other.files() == before
        client.remote_join(server, take="log")
        assert other.files() == one.files()


def test_a_join_whose_place_cannot_be_written_returns_the_files(
    both: tuple[Workplace, Workplace, str],
) -> None:
    one, other, server = both
    assert one.editctl("remote", "init", "--yes", server).returncode == 0
    before = other.files()
    with other.start() as client:
        client.settle()
        in_the_way = other.state / "remote.json"
        in_the_way.mkdir()
        (in_the_way / "x").touch()
        for choice in ("log", "log"):
            assert refused(lambda: client.remote_join(server, take="log")).name == "io_error", choice
            assert other.files() == before
            assert client.remote_status().state == "none"
        (in_the_way / "x").unlink()
        in_the_way.rmdir()
        assert client.remote_join(server, take="log").host == "other"
        assert other.files() == one.files()
