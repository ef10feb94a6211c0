"""The exchange when something fails: the server, the network, git, or a step on this host."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.hosts import bare_repository, exchange, hosts, move_log, name_host, until
from support.log_checker import log_of
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES}
ABSENCE_EDITS = 5000  # of each host
GIT = shutil.which("git")


def use_git(place: Workplace, script: str) -> None:
    """Restart the daemon of a host with a `git` of the test's own, which runs the `real` one as it likes."""
    folder = place.folder / "bin"
    folder.mkdir(exist_ok=True)
    program = folder / "git"
    program.write_text(f"#!/bin/sh\nreal={GIT}\n{script}\n")
    program.chmod(0o755)
    place.variables["PATH"] = f"{folder}:/usr/bin:/bin"
    place.stop()


@pytest.mark.long
def test_a_push_whose_reply_is_lost_lands_once(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES, scheme="file://") as (places, clients, server):
        use_git(places[0], 'case "$*" in *" push "*) "$real" "$@"; exit 1;; *) exec "$real" "$@";; esac')
        with places[0].start() as client:
            made = client.apply([replace("a.txt", "line 5\n", "five\n")]).transaction
            assert made is not None
            exchange(client, clients[1])
            assert [entry.trailers.get("Origin") for entry in log_of(server)] == [None, made.id]


def test_a_server_that_hangs_delays_no_edit_no_question_and_no_stop(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES, scheme="file://") as (places, _, _):
        use_git(places[0], "exec sleep 600")
        with places[0].start() as client:
            begun = time.monotonic()
            for number in range(20):
                client.apply([write("a.txt", f"{number}\n")])
            assert time.monotonic() - begun < 10
            assert client.remote_status().tentative == 0, "the first round is not done"
            assert [line.seq for line in client.blame("a.txt").lines] == [
                client.log(limit=1).transactions[0].seq
            ]
            assert [file.path for file in client.diff("@0").files] == ["a.txt"]
            begun = time.monotonic()
        places[0].stop()
        assert time.monotonic() - begun < 20


def test_a_pause_is_answered_when_the_exchange_that_had_begun_is_over(tmp_path: Path) -> None:
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    push = f'touch {begun}; sleep 0.5; "$real" "$@"; touch {ended}; exit 0'
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        use_git(places[0], f'case "$*" in *" push "*) {push};; *) exec "$real" "$@";; esac')
        one.close()
        with places[0].start() as client:
            client.apply([replace("a.txt", "line 1\n", "1\n")])
            until(begun.exists, "nothing is pushed")
            assert client.remote_pause().state == "paused"
            assert ended.exists(), "the host still moves the log"


def test_edits_go_on_without_the_server_and_land_when_it_is_back(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        away = server.rename(server.with_name("away.git"))
        for number in range(1, 4):
            one.apply([replace("a.txt", f"line {number}\n", f"{number}\n")])
        until(lambda: one.remote_status().state == "offline", "it does not notice")
        status = one.remote_status()
        assert (status.tentative, "server.git" in str(status.error)) == (3, True)
        assert status.oldest is not None
        away.rename(server)
        exchange(one, other)
        assert places[1].files() == places[0].files()
        assert len(log_of(server)) == 4


@pytest.mark.long
def test_a_server_that_is_restored_to_an_older_head_is_put_forward(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (_, (one, other), server):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one, other)
        before, newest = (entry.commit for entry in log_of(server)[-2:])
        move_log(server, str(before.id))
        until(lambda: log_of(server)[-1].commit.id == newest.id, "nobody puts it forward")
        other.apply([replace("a.txt", "line 2\n", "2\n")])
        exchange(one, other)
        assert len(log_of(server)) == 3


def test_a_fork_of_the_log_stops_the_exchange_and_no_edit(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one)
        log = log_of(server)
        made = subprocess.run(
            ["git", "--git-dir", server, "-c", "user.name=x", "-c", "user.email=x@x", "commit-tree", "-m",
             "not one of ours", "-p", str(log[0].commit.id), str(log[0].commit.tree.id)],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip
        move_log(server, made)
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        one.apply([replace("a.txt", "line 2\n", "2\n")])
        assert b"2\n" in places[0].files()["a.txt"]


def test_a_fork_is_repaired_with_all_work_of_both_sides(tmp_path: Path) -> None:
    with hosts(tmp_path, 3, FILES) as (places, (one, other, third), server):
        third.remote_pause()
        made = [
            one.apply([replace("a.txt", f"line {number}\n", f"{number}\n")], message=str(number)).transaction
            for number in (1, 5)
        ]
        exchange(one, other)
        for client in (one, other):
            client.remote_pause()
        move_log(server, str(log_of(server)[1].commit.id))
        third.apply([replace("a.txt", "line 5\n", "FIVE\n")], message="on the old head")
        third.remote_resume()
        exchange(third)
        one.remote_resume()
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        mine = one.apply([replace("a.txt", "line 7\n", "7\n")], message="after the fork").transaction
        assert one.remote_repair().state == "current"
        other.remote_resume()
        other.remote_repair()
        exchange(one, other, third)
        expected = FILES["a.txt"].replace("line 1", "1").replace("line 5", "FIVE").replace("line 7", "7")
        assert {place.files()["a.txt"] for place in places} == {expected.encode()}
        log = log_of(server)
        assert [entry.number for entry in log] == list(range(5))
        outcomes = {entry.origin: entry.trailers["Outcome"] for entry in log[1:]}
        assert [outcomes[one.id] for one in (*made, mine) if one is not None] == [
            "applied",
            "aside",
            "applied",
        ]
        for client in (one, other, third):
            assert [found.message for found in client.proposal_list().proposals] == ["5"]
            assert client.check().problems == []


@pytest.mark.long
def test_a_log_that_is_gone_is_made_again_only_on_request(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one, other)
        shutil.rmtree(server)
        bare_repository(server)
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        one.apply([replace("a.txt", "line 2\n", "2\n")])
        assert one.remote_repair().tentative == 0
        exchange(one, other)
        assert places[0].files() == places[1].files()
        assert [entry.number for entry in log_of(server)] == [0, 1, 2]


@pytest.mark.long
def test_a_log_of_others_is_not_repaired(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES, join=False) as (places, (one, other), server):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one)
        elsewhere = bare_repository(tmp_path / "elsewhere.git")
        other.remote_init(str(elsewhere), ref=one.remote_status().ref)
        shutil.rmtree(server)
        elsewhere.rename(server)
        until(lambda: one.remote_status().state == "forked", "it does not notice")
        with pytest.raises(EditdError, match="no entry in common"):
            one.remote_repair()
        assert places[0].files()["a.txt"].startswith(b"1\n")


@pytest.mark.long
def test_a_server_that_takes_no_push_is_read_all_the_same(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        use_git(places[1], 'case "$*" in *" push "*) echo "no, $0" >&2; exit 1;; *) exec "$real" "$@";; esac')
        other.close()
        with places[1].start() as reader:
            reader.apply([replace("a.txt", "line 9\n", "9\n")])
            until(lambda: reader.remote_status().state == "refused", "it does not notice")
            one.apply([replace("a.txt", "line 1\n", "1\n")])
            until(lambda: places[1].files()["a.txt"].startswith(b"1\n"), "it takes nothing in")
            status = reader.remote_status()
            assert (status.state, status.tentative, "no, " in str(status.error)) == ("refused", 1, True)
        assert len(log_of(server)) == 2


def test_what_the_server_refuses_is_kept_back_and_the_rest_goes_on(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        hook = server / "hooks" / "pre-receive"
        hook.write_text(
            '#!/bin/sh\nread old new ref\ngit log -p $old..$new | grep -q "a password" || exit 0\n'
            "echo no passwords here >&2; exit 1\n"
        )
        hook.chmod(0o755)
        one.remote_pause()
        edits = (("b.txt", "b\n"), ("c.txt", "a password\n"), ("d.txt", "d\n"), ("c.txt", "c\n"))
        made = [one.apply([write(path, content)]).transaction for path, content in edits]
        one.remote_resume()
        until(lambda: "d.txt" in places[1].files(), "the rest does not go on")
        until(lambda: one.remote_status().tentative == 2, "it does not learn that they landed")
        until(lambda: one.remote_status().kept_back != [], "nothing is kept back")
        status = one.remote_status()
        assert made[1] is not None
        assert (status.state, status.kept_back) == ("refused", [made[1].seq])
        assert "no passwords here" in str(status.error)
        assert sorted(places[1].files()) == ["a.txt", "b.txt", "d.txt"]
        one.apply([write("e.txt", "e\n")])
        other.apply([write("f.txt", "f\n")])
        until(lambda: "e.txt" in places[1].files() and "f.txt" in places[0].files(), "it stops there")


def test_later_work_on_the_files_of_what_is_kept_back_waits_behind_it(tmp_path: Path) -> None:
    """L5. The server would take the later transaction alone."""
    with hosts(tmp_path, 2, FILES) as (places, (one, _), server):
        hook = server / "hooks" / "pre-receive"
        hook.write_text(
            "#!/bin/sh\nread old new ref\n"
            'git log --format=%B $old..$new | grep -q "a password" && exit 1\nexit 0\n'
        )
        hook.chmod(0o755)
        first = one.apply([write("c.txt", "1\n")], message="a password").transaction
        assert first is not None
        until(lambda: one.remote_status().kept_back == [first.seq], "it is not kept back")
        later = one.apply([write("c.txt", "2\n")], message="later").transaction
        one.apply([write("e.txt", "e\n")], message="of another file")
        until(lambda: "e.txt" in places[1].files(), "the rest does not go on")
        assert later is not None
        assert later.id not in [entry.trailers.get("Origin") for entry in log_of(server)]
        assert "c.txt" not in places[1].files()
        hook.unlink()
        until(lambda: one.remote_now(timeout=10).tentative == 0, "it is not sent again")
        until(lambda: places[1].files().get("c.txt") == b"2\n", "it does not arrive")
        origins = [entry.trailers.get("Origin") for entry in log_of(server)]
        assert origins[-2:] == [first.id, later.id]


def test_a_push_that_fails_once_keeps_nothing_back(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), server):
        failed = tmp_path / "failed"
        fails_once = f"[ -e {failed} ] || {{ touch {failed}; exit 1; }}"
        use_git(places[0], f'case "$*" in *" push "*) {fails_once};; esac; exec "$real" "$@"')
        one.close()
        with places[0].start() as client:
            client.apply([write("b.txt", "b\n")])
            until(failed.exists, "nothing is pushed")
            client.apply([write("c.txt", "c\n")])
            until(lambda: len(log_of(server)) == 3, "it is not pushed again")
            assert log_of(server)[1].commit.tree["b.txt"].name == "b.txt", "the later one came first"


@pytest.mark.long
def test_both_copies_of_a_host_go_on_and_land_their_common_work_once(tmp_path: Path) -> None:
    with (
        hosts(tmp_path, 2, FILES) as (places, (one, other), server),
        workplace(tmp_path / "twin") as twin,
    ):
        other.remote_pause()
        common = [
            other.apply([replace("a.txt", f"line {number}\n", f"{number}\n")]).transaction
            for number in (1, 3, 5)
        ]
        places[1].stop()
        shutil.rmtree(twin.root)
        shutil.copytree(places[1].root, twin.root)
        shutil.copytree(places[1].state, twin.state)
        name_host(twin, "host1")
        with places[1].start() as first, twin.start() as second:
            alone = [
                client.apply([replace("a.txt", f"line {number}\n", f"{number}\n")]).transaction
                for client, number in ((first, 7), (second, 9))
            ]
            for client in (first, second):
                client.remote_resume()
            exchange(one, first, second)
            files = [place.files() for place in (*places, twin)]
            assert files == [files[0]] * 3
            assert files[0]["a.txt"] == b"1\nline 2\n3\nline 4\n5\nline 6\n7\nline 8\n9\n"
            origins = [entry.origin for entry in log_of(server)[1:]]
            assert sorted(origins) == sorted(made.id for made in (*common, *alone) if made is not None)


@pytest.mark.long
def test_a_full_disk_costs_nothing_but_time(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        full = tmp_path / "full"
        use_git(
            places[1],
            f'[ ! -e {full} ] || case "$*" in *fetch*) echo "fatal: No space left on device" >&2; exit 1;; '
            'esac; exec "$real" "$@"',
        )
        other.close()
        with places[1].start() as client:
            full.touch()
            one.apply([replace("a.txt", "line 1\n", "1\n")])
            until(lambda: "No space left" in str(client.remote_status().error), "it does not notice")
            client.apply([replace("a.txt", "line 9\n", "9\n")])
            full.unlink()
            exchange(client, one)
            assert places[0].files() == places[1].files()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_much_work_of_two_hosts_is_put_together_after_a_long_absence(tmp_path: Path) -> None:
    files = {f"d{one % 20}/f{one}.txt": LINES for one in range(200)}
    with hosts(tmp_path, 2, files) as (places, clients, server):
        for client in clients:
            client.remote_pause()
        for client, line in zip(clients, ("line 2", "line 8"), strict=True):
            for edit in range(ABSENCE_EDITS):
                path = f"d{edit % 20}/f{edit % 200}.txt"
                was = line if edit < 200 else f"{line} {edit - 200}"
                client.apply([replace(path, f"{was}\n", f"{line} {edit}\n")])
        begun = time.monotonic()
        for client in clients:
            client.remote_resume()
        until(lambda: all(client.remote_now(timeout=60).tentative == 0 for client in clients), "it ends", 400)
        exchange(*clients)
        print(f"{ABSENCE_EDITS} on {ABSENCE_EDITS}: {time.monotonic() - begun:.1f} s")
        assert places[0].files() == places[1].files()
        log = log_of(server)
        assert len(log) == 2 * ABSENCE_EDITS + 1
        assert all(entry.is_applied for entry in log[1:])


@pytest.mark.long
def test_a_host_that_never_wins_is_helped_by_the_next_winner(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES, scheme="file://") as (places, (_, other), server):
        # The first host's pushes to the log fail, and another host seems to be faster each time.
        script = (
            'case "$*" in *" push "*refs/heads/*) exit 1;;\n'
            '*ls-remote*refs/heads/*queues*) exec "$real" "$@";;\n'
            '*ls-remote*refs/heads/*) "$real" "$@" | sed "s/^......../00000000/";;\n'
            '*) exec "$real" "$@";; esac'
        )
        use_git(places[0], script)
        with places[0].start() as one:
            made = one.apply([replace("a.txt", "line 1\n", "1\n")]).transaction
            assert made is not None
            until(lambda: b"1\n" in places[1].files()["a.txt"][:2], "nobody helps")
            (_, entry) = log_of(server)
            assert (entry.origin, entry.trailers["Host"]) == (made.id, "host0")
            until(lambda: one.remote_status().tentative == 0, "it does not learn that it landed")
            assert other.log(limit=1).transactions[0].host == "host0"


def test_a_path_at_which_git_ignores_a_file_is_held(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        places[1].git("init", "-q")
        places[1].write({".git/info/exclude": "build.log\n", "build.log": "mine alone\n"})
        one.apply([write("build.log", "theirs\n"), write("c.txt", "c\n")])
        until(lambda: other.remote_status().held == ["build.log"], "it is not held")
        exchange(one, other)
        assert places[1].files()["build.log"] == b"mine alone\n"
        assert places[1].files()["c.txt"] == b"c\n"
        blob = subprocess.run(
            ["git", "hash-object", "--stdin"],
            input="mine alone\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        known = subprocess.run(["git", "--git-dir", server, "cat-file", "-e", blob], check=False)
        assert known.returncode != 0, "the server has it"


@pytest.mark.long
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restart_goes_on_where_it_ended(tmp_path: Path, is_killed: bool) -> None:
    with hosts(tmp_path, 2, FILES) as (places, clients, server):
        clients[0].remote_pause()
        clients[0].apply([replace("a.txt", "line 1\n", "1\n")])
        clients[1].apply([replace("a.txt", "line 9\n", "9\n")])
        exchange(clients[1])
        if is_killed:
            places[0].kill()
        else:
            places[0].stop()
        with places[0].start() as client:
            assert client.remote_status().state == "paused"
            client.remote_resume()
            exchange(client, clients[1])
            assert places[0].files() == places[1].files()
            assert len(log_of(server)) == 3


def test_a_history_that_is_deleted_under_a_daemon_is_one_sentence(tmp_path: Path) -> None:
    with hosts(tmp_path, 1, FILES) as (places, (one,), _):
        exchange(one)
        shutil.rmtree(places[0].state)
        broken = "Nothing is exchanged while the workspace is broken."
        until(lambda: one.remote_status().error == broken, "it is not noticed")
        for words in (("status",), ("remote", "status")):
            shown = places[0].editctl(*words).stdout
            assert "Error" not in shown, shown
