"""Files that git's own checks refuse, such as a `.gitmodules`: they are plain files here, on all hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from editd.wire.messages import Delete, Symlink
from hostile_log import HostileLog
from support.hosts import exchange, hosts, name_host, until
from support.log_checker import log_of
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = {"a.txt": "a\n"}
MODULE = '[submodule "{name}"]\n\tpath = sub\n\turl = {url}\n'
REFUSED_BY_GIT: Mapping[str, str] = {  # git looks for these names in all folders
    ".gitattributes": f"*.txt {'x' * 3000}\n",
    ".gitmodules": MODULE.format(name="m", url="./m") + "\tupdate = !touch /nowhere/x\n",
    "sub/.gitmodules": MODULE.format(name="../../m", url="./m"),
    "option/.gitmodules": MODULE.format(name="m", url="-u./m"),
    "path/.gitmodules": MODULE.format(name="m", url="./m").replace("= sub", "= -sub"),
    "folder/.gitmodules/x": "x\n",
    "sub/.gitattributes/x": "x\n",
    ".GitModules": MODULE.format(name="../m", url="./m"),
}
LINKS = (".gitmodules", "sub/.gitmodules", "sub/.gitattributes", ".gitignore", ".mailmap")
ODD_NAMES = (b"c/d", b"b.txt b.txt", b"z.txt c.txt", b".. .git .", b"a.txt=tree a.txt")


def check_objects(server: Path) -> None:
    """Have the server check what is pushed to it, as forges do."""
    subprocess.run(["git", "--git-dir", server, "config", "receive.fsckObjects", "true"], check=True)


def test_files_that_git_would_refuse_are_exchanged_as_any_others(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        for place in places:  # a user's own choice concerns the user's own repositories
            (place.folder / "home/.gitconfig").write_text("[fetch]\nfsckObjects = true\n")
        made = [one.apply([write(path, content)]).transaction for path, content in REFUSED_BY_GIT.items()]
        other.apply([write("b.txt", "b\n")])
        exchange(one, other)
        left = {"a.txt": b"a\n", "b.txt": b"b\n"}
        expected = left | {path: content.encode() for path, content in REFUSED_BY_GIT.items()}
        assert [place.files() for place in places] == [expected, expected]
        with workplace(tmp_path / "third") as third:
            name_host(third, "third")
            with third.start() as client:
                client.remote_join(str(server))
                assert third.files() == expected
                for transaction in made:
                    assert transaction is not None
                    one.undo(transaction.seq)
                exchange(client, one, other)
                assert places[0].files() == third.files() == places[1].files() == left


def test_symlinks_that_git_would_refuse_are_exchanged_as_any_others(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        for path in LINKS:
            one.apply([Symlink(path=path, target="a.txt")])
        other.apply([write("b.txt", "b\n")])
        exchange(one, other)
        assert [os.readlink(places[1].root / path) for path in LINKS] == ["a.txt"] * len(LINKS)
        assert places[0].files().keys() == places[1].files().keys()


def test_an_odd_name_in_the_log_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        log = HostileLog(server)
        (usual,) = log.names().values()
        tree = bytes.fromhex(log.git("rev-parse", f"{log.head}^{{tree}}"))
        for number, names in enumerate(ODD_NAMES):
            raw = b"100644 a.txt\0" + bytes.fromhex(usual[1])
            for name, _, kind in (word.partition(b"=") for word in names.split()):
                mode, odd = (b"40000", tree) if kind else (b"100644", bytes.fromhex(usual[1]))
                raw += b"%b %b\0%b" % (mode, name, odd)
            log.add_tree(log.object("tree", raw))
            exchange(one, other)
            one.read("a.txt")
            one.apply([replace("a.txt", "a\n", "A\n")])
            other.apply([write("e.txt", "e\n")])
            exchange(one, other)
            files = places[0].files()
            assert files == places[1].files(), names
            assert (files["a.txt"], files["e.txt"]) == (b"A\n", b"e\n"), names
            assert set(files) - {"a.txt", "e.txt"} <= {"b.txt", "c.txt", "z.txt"}, names
            assert len(log_of(server)) == 4 + 3 * number, names


def test_what_a_server_checks_and_refuses_is_kept_back_alone_with_its_reason(
    tmp_path: Path, is_long: bool
) -> None:
    number_made, refused = (20, (3, 11, 12)) if is_long else (8, (2, 5, 6))
    first, *later = refused
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        check_objects(server)
        one.remote_pause()
        made = []
        for number in range(number_made):
            path, content = f"{number}.txt", f"{number}\n"
            if number in refused:
                path, content = f"{number}/.gitmodules", MODULE.format(name=f"../{number}", url="./m")
            applied = one.apply([write(path, content)], actor="ann", session="work").transaction
            assert applied is not None
            made.append(applied.seq)
        one.remote_resume()
        bad = [made[number] for number in refused]
        until(lambda: one.remote_status().kept_back == bad, "it does not keep these back")
        until(lambda: one.remote_status().tentative == 3, "the rest does not go on")
        exchange(other)
        arrived = {f"{number}.txt" for number in range(number_made) if number not in refused}
        assert set(places[1].files()) == {"a.txt", *arrived}
        status = one.remote_status()
        assert status.state == "refused"
        assert status.reasons.keys() == set(map(str, bad))
        assert all("gitmodulesName" in reason for reason in status.reasons.values()), status.reasons
        assert one.status().remote["kept_back"] == bad  # type: ignore[index]
        assert [made.seq for made in reversed(one.log(limit=50).transactions) if made.kept_back] == bad
        shown = places[0].editctl("remote", "status").stdout
        assert f"kept back   {bad[0]}: git push failed" in shown
        assert f"kept back   {bad[0]}: git push failed" in places[0].editctl("status").stdout
        assert "not sent to other hosts: git push failed" in places[0].editctl("log").stdout
        warned = one.apply([write("20.txt", "20\n")], actor="ann", session="work").warnings
        assert [text.partition(":")[0] for text in warned] == [
            f"Transaction {seq} does not reach other hosts" for seq in bad
        ]
        assert one.apply([write("21.txt", "21\n")], actor="ann", session="work").warnings == []
        (waits,) = one.apply([write(f"{first}/.gitmodules", "\n")], actor="bob").warnings
        assert waits.startswith(f"Waits behind transaction {bad[0]}, which does not reach other hosts: ")
        until(lambda: "21.txt" in places[1].files(), "the rest does not go on")
        for number in later:
            one.undo(made[number])
        subprocess.run(["git", "--git-dir", server, "config", "receive.fsckObjects", "false"], check=True)
        exchange(one, other)
        assert places[0].files() == places[1].files()
        assert one.remote_status().reasons == {}


def test_a_file_in_the_log_that_a_server_refuses_later_is_named_with_the_way_out(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        one.apply([write(".gitattributes", "a " + "x" * 3000 + "\n")])
        exchange(one, other)
        check_objects(server)
        kept = one.apply([write("b.txt", "b\n")]).transaction
        assert kept is not None
        until(lambda: one.remote_status().kept_back == [kept.seq], "it is not kept back")
        assert "Delete or shorten the file" in one.remote_status().reasons[str(kept.seq)]
        assert one.apply([Delete(path=".gitattributes")]).transaction is not None
        until(lambda: one.remote_status().tentative == 1, "the deletion does not go on")
        exchange(one, other)
        assert places[1].files() == {"a.txt": b"a\n", "b.txt": b"b\n"}


def test_an_entry_that_no_host_could_read_is_kept_back_by_its_author(tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    launcher = Path(__file__).resolve().parent.parent / "support" / "wrong_clock_daemon.py"
    clock.write_text("0")
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        one.close()
        places[0].stop()
        places[0].launcher, places[0].is_forked = (sys.executable, str(launcher), str(clock)), False
        with places[0].start() as client:
            client.apply([write("b.txt", "b\n")])
            exchange(client)
            clock.write_text(str(-80 * 366 * 86400))
            early = client.apply([write("c.txt", "c\n")]).transaction
            assert early is not None
            clock.write_text("0")
            client.apply([write("d.txt", "d\n")])
            until(lambda: client.remote_status().kept_back == [early.seq], "it is not kept back")
            assert (
                "No host could use its entry: it has a time before 1970"
                in client.remote_status().reasons[str(early.seq)]
            )
            until(lambda: client.remote_status().tentative == 1, "the rest does not go on")
            exchange(other)
            assert sorted(places[1].files()) == ["a.txt", "b.txt", "d.txt"]
            assert [entry.number for entry in log_of(server)] == [0, 1, 2]
