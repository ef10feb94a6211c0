"""A prompt's bytes are in `turns.db` only, and after `forget` in no file, object, note or log."""

from __future__ import annotations

import subprocess
import zlib
from typing import TYPE_CHECKING

import pytest

from editd_client.errors import EditdError
from support.hosts import exchange, hosts
from support.repositories import repository
from support.workplace import files_below, write

if TYPE_CHECKING:
    from pathlib import Path

    from editd_client.client import Client
    from support.workplace import Workplace

NAME, CHILD = "codex-1", "codex-1-ab12"
PROMPT = "why the walrus sings at noon"
FORMS = [PROMPT.encode(form) for form in ("utf-8", "utf-16-le", "utf-16-be")]


def has_prompt(content: bytes) -> bool:
    return any(form in content for form in FORMS)


def with_prompt(folder: Path) -> set[str]:
    """Return the names of files that have the prompt, and of git's objects that have it."""
    found = {name for name, content in files_below(folder) if has_prompt(content)}
    for store in {path.parent for path in folder.rglob("HEAD") if (path.parent / "objects").is_dir()}:
        batch = ["git", "-C", str(store), "cat-file", "--batch", "--batch-all-objects"]
        done = subprocess.run(batch, stdout=subprocess.PIPE, check=True)
        if has_prompt(done.stdout):
            found.add(f"objects of {store}")
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            starts = [
                at for at in range(len(content) - 1) if content[at : at + 2] in (b"\x78\x01", b"\x78\x9c")
            ]
            if any(has_prompt(inflated(content[at:])) for at in starts[:50]):
                found.add(f"deflated in {path}")
    return found


def inflated(content: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(content, 1 << 20)
    except zlib.error:
        return b""


def work(client: Client) -> None:
    client.turn_begin("talk", session=NAME, prompt=PROMPT, model="m")
    client.turn_begin("talk", session=CHILD, prompt=f"{PROMPT}, says the child", parent=NAME)
    client.apply([write("a.txt", "by the agent\n", force=True)], session=NAME, message="Change a")
    client.apply([write("b.txt", "by the child\n", force=True)], session=CHILD)
    with pytest.raises(EditdError):
        client.turn_begin("c" * 2000, session=NAME, prompt=PROMPT)


def test_a_prompt_is_in_one_file_and_after_forget_in_none(tmp_path: Path) -> None:
    with repository(tmp_path) as place, place.start() as client:
        client.hello("codex")
        client.settle()
        work(client)
        client.publish("The work", session=[NAME, CHILD])
        client.gc()
        assert {name.partition("-wal")[0] for name in with_prompt(place.state)} == {"turns.db"}
        assert with_prompt(place.root) == set()
        assert client.forget(prompts=NAME, dry_run=True).prompts == 2
        assert client.forget(prompts=NAME).prompts == 2
        turns = client.turns(session=NAME).turns
        assert [(turn.prompt, turn.characters is not None) for turn in turns] == [(None, True)] * 2
        assert client.forget(prompts=NAME).prompts == 0
        assert with_prompt(tmp_path) == set()
        place.stop()
        assert with_prompt(tmp_path) == set()
        assert PROMPT not in place.log()


def test_forget_removes_a_set_aside_file_too_and_needs_a_known_session(place: Workplace) -> None:
    with place.start() as client:
        client.hello("codex")
        work(client)
    place.stop()
    file = place.state / "turns.db"
    content = bytearray(file.read_bytes())
    content[:16] = b"no database here"
    file.write_bytes(content)
    with place.start() as client:
        client.hello("codex")
        with pytest.raises(EditdError) as raised:
            client.forget(prompts=NAME)
        assert raised.value.name == "unknown_session"
        assert with_prompt(place.state), "the damaged file still has it"
        client.turn_begin("talk", session=NAME, prompt="another")
        client.forget(prompts=NAME)
        assert with_prompt(place.state) == set()
    place.stop()


def test_forget_of_a_text_removes_the_prompts_that_have_it(place: Workplace) -> None:
    with place.start() as client:
        client.hello("codex")
        client.turn_begin("talk", session=NAME, prompt=PROMPT)
        client.turn_begin("talk", session=NAME, prompt="another prompt")
        answer = client.forget(text="walrus sings")
        assert (answer.others, answer.remaining) == (1, [])
        assert [turn.prompt for turn in client.turns().turns] == ["another prompt", None]
        assert with_prompt(place.state) == set()
        with pytest.raises(EditdError) as raised:
            client.forget(prompts=NAME, text="walrus sings")
        assert raised.value.name == "invalid_params"
    place.stop()


def test_the_log_of_several_hosts_has_the_turn_and_never_the_prompt(tmp_path: Path) -> None:
    with hosts(tmp_path, 2) as (places, (one, other), _):
        work(one)
        exchange(one, other)
        landed = next(made for made in other.log(path="a.txt").transactions if made.session is not None)
        assert (landed.turn, landed.model) == (1, "m")
        assert other.turns().turns == []
        assert [client.check().problems for client in (one, other)] == [[], []]
        found = {name.rpartition("/")[2].partition("-wal")[0] for name in with_prompt(tmp_path)}
        assert found == {"turns.db"}
        assert with_prompt(places[1].folder) == set()
