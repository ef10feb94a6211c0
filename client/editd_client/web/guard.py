"""The guard in front of every page: the address, the cookie, and the origin of a request.

`editctl web` prints an address with a token. The first request with it gets a cookie, and every later one
has the cookie in place of the token. A page of another site cannot read an answer, frame it, or send a form:
the cookie is `SameSite=Strict`, another `Host` is refused (a rebound name of DNS), and so is a change that
comes from another `Origin`.

A cookie belongs to a host, not to a port: another server at the same address would get it from the
browser. So the server has its own loopback address if the system has more than one.
"""

from __future__ import annotations

import hmac
import secrets
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from editd_client.web.markup import DOCTYPE, element, joined

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping

    Scope = MutableMapping[str, Any]
    Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
    App = Callable[[Scope, Callable[[], Awaitable[MutableMapping[str, Any]]], Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
    "trusted-types editd"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",  # with no-referrer a browser sends a form with `Origin: null`
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TOKEN_BYTES = 32
VISITORS_MAX = 100  # cookies of one server; the oldest goes
SAFE = ("GET", "HEAD")


class Guard:
    """The tokens and the visitors of one server, in front of its application."""

    def __init__(self, app: App, host: str) -> None:
        self._app = app
        self._host = host
        self.cookie_name = f"editd-{host.rpartition(':')[2]}"
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._once: set[str] = set()
        self._visitors: dict[str, None] = {}

    @property
    def token(self) -> str:
        """The token of this server."""
        return self._token

    def token_for_once(self) -> str:
        """Return a token for one visit, because that of `--open` is briefly in the arguments of a process."""
        token = secrets.token_urlsafe(TOKEN_BYTES)
        self._once.add(token)
        return token

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[MutableMapping[str, Any]]], send: Send
    ) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = _headers(scope)
        if headers.get("host") != self._host:
            await _answer(send, 421, "This server has another name.")
            return
        visitor = self._visitor(headers.get("cookie", ""))
        given = parse_qs(scope["query_string"].decode("latin-1")).get("t")
        if given and scope["method"] == "GET" and scope["path"] == "/":
            await self._enter(send, given[0], headers)
        elif visitor is None:
            is_elsewhere = headers.get("sec-fetch-site") == "cross-site"
            again = _own_link(scope["path"]) if is_elsewhere and scope["method"] == "GET" else None
            await _answer(send, 403, "Start with the address that `editctl web` prints.", again=again)
        elif scope["method"] not in SAFE and not self._is_own(headers):
            await _answer(send, 403, "This request comes from a page of another origin.")
        else:
            scope["state"] = {**scope.get("state", {}), "visitor": visitor}
            await self._app(scope, receive, send)

    async def _enter(self, send: Send, token: str, headers: Mapping[str, str]) -> None:
        """Turn a token into the cookie of a new visitor, and into an address without it."""
        if token in self._once:
            self._once.discard(token)
        elif not hmac.compare_digest(token.encode(), self._token.encode()):
            await _answer(send, 403, "This token is not valid. `editctl web` prints one at each start.")
            return
        visitor = secrets.token_urlsafe(TOKEN_BYTES)
        self._visitors[visitor] = None
        while len(self._visitors) > VISITORS_MAX:
            del self._visitors[next(iter(self._visitors))]
        cookie = f"{self.cookie_name}={visitor}; Path=/; HttpOnly; SameSite=Strict"
        if headers.get("sec-fetch-site") == "cross-site":
            # A browser would not send the cookie on a redirect of a link on another page.
            await _answer(send, 200, "editd", again="/", cookie=cookie)
        else:
            await _answer(send, 303, "", location="/", cookie=cookie)

    def _visitor(self, header: str) -> str | None:
        try:
            morsel = SimpleCookie(header).get(self.cookie_name)
        except CookieError:
            return None
        return morsel.value if morsel is not None and morsel.value in self._visitors else None

    def _is_own(self, headers: Mapping[str, str]) -> bool:
        is_own = headers.get("origin") == f"http://{self._host}"
        return is_own and headers.get("sec-fetch-site", "same-origin") == "same-origin"


def _own_link(path: str) -> str:
    """Return a link to a path of this server.

    A browser takes `//name`, and `/` with a backslash or a tab before `name`, for another host.
    """
    return "/" + quote(path.lstrip("/"))


def _headers(scope: Scope) -> dict[str, str]:
    """Return the headers; of one that is there twice, both values."""
    found: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        separator = "; " if key == "cookie" else ", "
        found[key] = f"{found[key]}{separator}{text}" if key in found else text
    return found


async def _answer(
    send: Send, status: int, said: str, *, again: str | None = None, location: str = "", cookie: str = ""
) -> None:
    """Answer with a sentence. With `again`, the page goes on to that path automatically, or by its link."""
    refresh = element("meta", http_equiv="refresh", content=f"0;url={again}") if cookie and again else None
    body = element(
        "html",
        element("head", element("meta", charset="utf-8"), refresh, element("title", "editd")),
        element("body", element("p", said), element("a", "Continue", href=again) if again else None),
        lang="en",
    )
    headers = {**HEADERS, "Content-Type": "text/html; charset=utf-8"}
    if location:
        headers["Location"] = location
    if cookie:
        headers["Set-Cookie"] = cookie
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": joined(DOCTYPE, body).encode()})
