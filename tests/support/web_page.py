"""The page of `editctl web` for tests: the real command, and a client of HTTP with a browser's cookie."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from support.workplace import Workplace

PART = "application/vnd.editd.parts+json"
SECONDS_MAX = 30


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def parts(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.body)
        return document

    @property
    def text(self) -> str:
        """The text of the page without its tags."""
        return html.unescape(re.sub(r"<[^>]+>", "", self.body))


@dataclass
class WebPage:
    """A running `editctl web`, and one browser without a script."""

    address: str
    token: str
    pid: int
    cookie: str = ""
    fields: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> str:
        return self.address.removeprefix("http://")

    def another(self) -> WebPage:
        """Return another browser at the same server."""
        return WebPage(self.address, self.token, self.pid)

    def enter(self) -> WebPage:
        """Turn the token into a cookie."""
        answer = self.get(f"/?t={self.token}")
        assert answer.status == 303, answer
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        return self

    def request(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        with self.opened(method, path, body, headers) as response:
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read().decode())

    @contextmanager
    def opened(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[HTTPResponse]:
        """Send a request, and yield the answer, whose body is still to be read."""
        name, _, port = self.host.partition(":")
        connection = HTTPConnection(name, int(port), timeout=SECONDS_MAX)
        own = {"Cookie": self.cookie} if self.cookie else {}
        try:
            connection.request(method, path, body, {**own, **(headers or {})})
            yield connection.getresponse()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, given: Mapping[str, str] | Sequence[tuple[str, str]], **headers: str) -> Answer:
        """Send a form as the page's own would be sent."""
        own = {"Origin": self.address, "Content-Type": "application/x-www-form-urlencoded"}
        return self.request("POST", path, urlencode(given), {**own, **headers})

    def form(self, path: str) -> dict[str, str]:
        """Return the fields of the form on a page as a browser would send them, its buttons left out."""
        page = self.get(path).body
        found: dict[str, str] = {}
        for tag in re.findall(r"<input [^>]*>", page):
            given = {name: html.unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', tag)}
            kind = given.get("type", "text")
            if kind == "hidden" or (kind == "radio" and re.search(r"\bchecked\b", tag)):
                found[given["name"]] = given.get("value", "")
        return found


@contextmanager
def web_page(
    place: Workplace, *options: str, is_forked: bool = True, errors_expected: str = ""
) -> Iterator[WebPage]:
    """Run `editctl web` on a workplace whose daemon runs; the browser has not entered yet.

    For a test of its start, its end or a daemon that comes back, it is not forked but exec'ed.
    """
    editctl = [str(place.provide_editctl() / "editctl")]
    if not is_forked:
        editctl = [sys.executable, "-P", "-m", "editd_client"]
    argv = [*editctl, "-C", str(place.root), "web", *options]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            argv, env=place.environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address, _, token = process.stdout.readline().strip().partition("/?t=")
            assert token, "it printed no address"
            yield WebPage(address, token, process.pid)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGINT)
            assert process.wait(SECONDS_MAX) == 0
            errors.seek(0)
            printed = errors.read()
            assert printed == errors_expected  # also if a stream is open at its end
