"""The stream of changes, and the life of the server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from editd_client.errors import EditdError
from support.reviewers import reviewer_of
from support.web_page import PART, web_page
from support.workplace import TOP, replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from editd_client.client import Client
    from support.web_page import WebPage
    from support.workplace import Workplace

LINES = "".join(f"#{n}\n" for n in range(1, 31))
FILES = {"a": LINES}


@pytest.fixture
def executed(place: Workplace, author: Client) -> Iterator[WebPage]:
    """A page whose server is not forked, for the tests of its end and of a daemon that comes back."""
    assert author.status().state == "ready"
    with web_page(place, is_forked=False) as made:
        yield made.enter()


def next_event(stream: HTTPResponse) -> tuple[str, dict[str, Any], str]:
    """Return the next event of a stream: its name, its data and its id. Skips signs of life."""
    name = ident = ""
    while True:
        line = stream.readline().decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("id: "):
            ident = line.removeprefix("id: ")
        elif line.startswith("data: "):
            return name, json.loads(line.removeprefix("data: ")), ident


def events_at(page: WebPage, path: str, version: str | None = None) -> str:
    shown = page.get(path, Accept=PART).parts["version"] if version is None else version
    return f"/events?{urlencode({'page': path, 'version': shown})}"


def test_a_change_comes_as_the_parts_that_differ(page: WebPage, author: Client) -> None:
    with page.opened("GET", events_at(page, "/")) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        author.apply([replace("a", "#5\n", "#five\n")], propose=True, message="Words")
        found: dict[str, str] = {}
        while "P1 Words" not in found.get("list", "") or "#five" not in found.get("detail", ""):
            name, data, _ = next_event(stream)
            assert name == "part"
            found[data["id"]] = data["html"]
    assert "#five" not in found["list"]


def test_a_refusal_and_a_mark_are_seen_at_once(page: WebPage, author: Client, place: Workplace) -> None:
    made = author.apply([replace("a", "#5\n", "#five\n")]).transaction
    assert made is not None
    with page.opened("GET", events_at(page, "/timeline")) as stream:
        with pytest.raises(EditdError):
            author.apply([replace("a", "nowhere", "x")])
        while "was refused" not in (html := next_event(stream)[1]["html"]):
            continue
        assert "unreviewed" in html
        with reviewer_of(place) as reviewer:
            reviewer.review_mark([made.seq])
        while "unreviewed</span>" in next_event(stream)[1]["html"]:
            continue


def test_another_reviewer_sees_a_decision(page: WebPage, author: Client, place: Workplace) -> None:
    author.apply([replace("a", "#5\n", "#five\n")], propose=True)
    with reviewer_of(place) as reviewer, page.opened("GET", events_at(page, "/proposals/1")) as stream:
        reviewer.proposal_reject(1, comment="no")
        while True:
            _, data, _ = next_event(stream)
            if data["id"] == "detail":
                break
    assert "rejected" in data["html"]


def test_a_stream_that_begins_again_misses_nothing(page: WebPage, author: Client) -> None:
    path = events_at(page, "/")
    author.apply([replace("a", "#5\n", "#five\n")], propose=True)
    with page.opened("GET", path) as stream:
        newest = next_event(stream)[2]
    author.apply([replace("a", "#9\n", "#nine\n")], propose=True)
    with page.opened("GET", path, headers={"Last-Event-ID": newest}) as stream:
        assert next_event(stream)[0] == "part"


def test_a_stream_goes_on_with_the_next_daemon(executed: WebPage, author: Client, place: Workplace) -> None:
    """The page itself may start it, so the test does not."""
    with executed.opened("GET", events_at(executed, "/", "")) as stream:
        assert next_event(stream)[0] == "part"
        place.stop()
        assert place.editctl("replace", "a", "#5", "#five", "--propose", "-m", "Again").returncode == 0
        while "Again" not in next_event(stream)[1].get("html", ""):
            continue
    place.editctl("stop")


def test_a_daemon_that_is_back_sends_the_page_again_although_nothing_has_changed(
    executed: WebPage, author: Client, place: Workplace
) -> None:
    with executed.opened("GET", events_at(executed, "/", "")) as stream:
        names = [next_event(stream)[0] for _ in range(4)]
        assert names == ["part"] * 4
        place.stop()
        place.root.rename(place.folder / "elsewhere")
        assert next_event(stream)[0] == "gone"
        (place.folder / "elsewhere").rename(place.root)
        while next_event(stream)[0] != "part":
            continue
    place.editctl("stop")


def test_a_server_ends_while_a_stream_is_open(executed: WebPage) -> None:
    """The fixture interrupts it, and waits for its exit status."""
    with executed.opened("GET", events_at(executed, "/", "")) as stream:
        assert next_event(stream)[0] == "part"


def test_without_the_extra_the_verb_says_what_to_install(place: Workplace) -> None:
    place.write({"a": "x\n"})
    missing = place.folder / "missing"
    missing.mkdir()
    (missing / "uvicorn.py").write_text("raise ModuleNotFoundError(name='uvicorn')\n")
    paths = [str(missing), str(TOP / "daemon"), str(TOP / "client")]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "editd_client", "web"],
        cwd=place.root, capture_output=True, text=True, check=False,
        env={**place.environment, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 3
    assert "needs the extra `web`" in done.stderr
    assert "pipx install --force '.[web]'" in done.stderr


def test_a_port_that_is_taken_is_named(place: Workplace) -> None:
    place.write({"a": "x\n"})
    with place.start(), socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        done = place.editctl("web", "--port", str(taken.getsockname()[1]))
    place.stop()
    assert done.returncode == 1
    assert "is not free" in done.stderr
