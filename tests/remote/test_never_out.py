"""The files that never leave their host: their bytes are in no object of the server (L9)."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from editd.wire.messages import Delete
from support.hosts import bare_repository, exchange, hosts, name_host, until
from support.log_checker import objects_of
from support.state_search import holders
from support.workplace import replace, workplace, write

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace

SECRET = "do not send this"
LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, ".env": f"{SECRET}: from the beginning\n", "keys/id_rsa": f"{SECRET}: a key\n"}


def test_no_object_of_the_server_has_a_byte_that_stays_on_its_host(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), server):
        # Beside a file that is sent, as the only file, moved from and to such a path, and taken back.
        one.apply([write(".env", f"{SECRET}: edited\n"), write("b.txt", "sent\n")])
        made = one.apply([write("sub/.env.local", f"{SECRET}: new\n")]).transaction
        assert made is not None
        one.undo(made.seq)
        places[0].write({"keys/server.pem": f"{SECRET}: by another program\n"})
        one.settle()
        # In a transaction that is set aside, which the log has whole.
        other.remote_pause()
        one.apply([replace("a.txt", "line 5\n", "five\n")])
        exchange(one)
        other.apply([replace("a.txt", "line 5\n", "FIVE\n"), write(".env", f"{SECRET}: of another host\n")])
        other.remote_resume()
        exchange(one, other)
        # At a path that git ignores there, and not here.
        places[1].git("init", "-q")
        places[1].write({".git/info/exclude": "build.log\n", "build.log": f"{SECRET}: ignored\n"})
        one.apply([write("build.log", "theirs\n")])
        until(lambda: other.remote_status().held == ["build.log"], "it is not held")
        other.apply([write("build.log", f"{SECRET}: of a held path\n"), write("c.txt", "c\n")])
        exchange(one, other)

        known = objects_of(server)
        assert b"FIVE" in known, "the test looks at the wrong objects"
        assert SECRET.encode() not in known
        assert places[0].files()[".env"] == f"{SECRET}: edited\n".encode()
        assert places[1].files()[".env"] == f"{SECRET}: of another host\n".encode()
        assert places[1].files()["build.log"] == f"{SECRET}: of a held path\n".encode()
        assert places[0].files()["build.log"] == b"theirs\n"
        for client in (one, other):
            (proposal,) = client.proposal_list().proposals
            assert client.proposal_get(proposal.proposal).paths == ["a.txt"]
            assert "**/.env" in client.remote_status().exclude
        for secret in (
            "from the beginning",
            "a key",
            "edited",
            "new",
            "by another program",
            "of another host",
        ):
            for place in places:  # each file of it: packs, journal, the copy of the log, proposals
                until(partial(is_only_kept, place, f"{SECRET}: {secret}"), f"{secret} is in {place.state}")


def is_only_kept(place: Workplace, secret: str) -> bool:
    """Return whether no file but the kept contents of excluded files has the text."""
    return all(name.startswith("excluded/") for name in holders(place.state, secret.encode()))


def test_init_goes_on_if_the_rule_is_removed_before_and_the_contents_stay_out(tmp_path: Path) -> None:
    server = bare_repository(tmp_path / "server.git")
    with workplace(tmp_path / "host", {".env": f"{SECRET}: first\n", "a.txt": LINES}) as place:
        name_host(place, "host0")
        with place.start() as client:
            client.apply([write("x[1].pem", f"{SECRET}: a key\n"), write("b.txt", "b\n")])
        place.stop()
        name_host(place, "host0", "[history]\nexclude = []\n")
        with place.start() as client:
            assert client.remote_init(str(server), dry_run=True).files == 2
            client.remote_init(str(server))
            assert client.remote_status().exclude == [".env", "x\\[1].pem"]
            made = client.apply([write(".env", f"{SECRET}: later\n", force=True), write("c.txt", "c\n")])
            assert ".env" in made.warnings[0]
            client.remote_now()
        known = objects_of(server)
        assert SECRET.encode() not in known
        assert LINES.encode() in known
        assert b"c.txt" in known


def test_a_host_that_joined_before_the_rule_sends_nothing_of_it_from_then_on(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, {"a.txt": LINES}) as (places, (one, other), server):
        one.close()
        places[0].stop()
        configured = places[0].folder / "config/editd/config.toml"
        name_host(places[0], "host0", "[history]\nexclude = []\n")
        joined = places[0].state / "remote.json"
        as_before = json.loads(joined.read_text()) | {"exclude": ["local/"]}
        del as_before["excluded"]  # as an earlier editd wrote it
        joined.write_text(json.dumps(as_before))
        with places[0].start() as client:
            client.apply([write(".npmrc", "token = old\n")])
            assert client.apply([write("local/b.txt", f"{SECRET}: local\n")]).warnings == [
                "Stays on this host, because `remote.exclude` names it: local/b.txt."
            ]
            assert client.show(client.status().head or 0).transaction.stays == ["local/b.txt"]
            exchange(client)
            name_host(places[0], "host0")
            client.config_reload()
            client.apply([write(".npmrc", f"{SECRET}: token\n"), write("a.txt", "sent\n")])
            exchange(client, other)
            assert places[1].files()["a.txt"] == b"sent\n"
            assert SECRET.encode() not in objects_of(server)
            configured.write_text(configured.read_text() + "[history]\nexclude = []\n")
            client.config_reload()
            again = client.apply([write(".npmrc", f"{SECRET}: still\n"), write("a.txt", "again\n")])
            assert again.warnings == [
                "Stays on this host, because `history.exclude` named it since this host joined: .npmrc."
            ]
            exchange(client, other)
            assert places[1].files()["a.txt"] == b"again\n"
            assert SECRET.encode() not in objects_of(server), "a removed rule holds until the host leaves"
            assert client.remote_status().exclude[0] == "local/"
            assert client.check().problems == []


def test_files_that_stay_are_named_once_to_their_author_and_in_the_status(tmp_path: Path) -> None:
    with (
        hosts(tmp_path, 1, {"a.txt": LINES}) as (_, (first,), server),
        workplace(tmp_path / "more") as place,
    ):
        name_host(place, "more", 'exclude = ["local/*.Txt"]\n')
        with place.start() as client:
            client.remote_join(str(server))
            warned = client.apply([write("LOCAL/Mine.TXT", f"{SECRET}: x\n"), write("local/a.md", "sent\n")])
            assert warned.warnings == [
                "Stays on this host, because `remote.exclude` names it: LOCAL/Mine.TXT."
            ]
            assert client.apply([write("LOCAL/Mine.TXT", f"{SECRET}: y\n")]).warnings == []
            place.write({"local/outside.txt": f"{SECRET}: by another program\n", ".ENV": f"{SECRET}\n"})
            client.settle()
            exchange(first, client)
            assert client.remote_status().stays == [".ENV", "LOCAL/Mine.TXT", "local/outside.txt"]
            assert "of these    .ENV, LOCAL/Mine.TXT" in place.editctl("remote", "status").stdout
            assert first.read("local/a.md").content == "sent\n"
            assert SECRET.encode() not in objects_of(server)
            client.apply([Delete(path="LOCAL/Mine.TXT")])
            place.kill()
        with place.start() as again:
            exchange(first, again)
            assert again.remote_status().stays == [".ENV", "local/outside.txt"]
