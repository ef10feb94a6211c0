"""The server of `editctl web`: routes, answers, and the stream of changes. The only module with Starlette.

A form's answer is a whole page, or for the script a document with the parts of that page. The stream of an
address sends each part that has changed since it was sent last, at most ten times a second. The daemon's
events only wake it: the page is made anew from what the daemon says now, so nothing that was missed is
missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import click
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from editd.words import Face
from editd_client.aio import AsyncClient
from editd_client.announcement import announced
from editd_client.connect import Endpoint
from editd_client.errors import EditdError, Unreachable
from editd_client.web import action_forms, proposal_forms
from editd_client.web.form_fields import status_of
from editd_client.web.guard import HEADERS, VISITORS_MAX, Guard
from editd_client.web.layout import version, whole
from editd_client.web.markup import DOCTYPE, Html, element, joined
from editd_client.web.peer import Address, has_left, may_enter, owner_of
from editd_client.web.site import NoSuchPage, page_at
from editd_client.web.trials import Trials
from editd_client.web.visitor import Visitor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request

    from editd_client.locate import Workspace
    from editd_client.session_state import Happening
    from editd_client.web.form_fields import FormAnswer
    from editd_client.web.layout import Page

PART = "application/vnd.editd.parts+json"  # what the script accepts
FORM_BYTES_MAX = 4 * 1024 * 1024  # reviewer's own texts, percent-encoded
FORM_FIELDS_MAX = 20_000  # a proposal has that many hunks at most
STREAM_SECONDS_MIN = 0.1  # between two looks at the daemon
STREAM_SECONDS_MAX = 15.0  # between two signs of life
RETRY_SECONDS = 1.0  # before another try to reach the daemon
STATIC = {"review.css": "text/css", "review.js": "text/javascript", "icon.svg": "image/svg+xml"}
FORMS: dict[str, Callable[..., Any]] = {
    "/proposals/{number:int}/decide": proposal_forms.decide,
    "/proposals/{number:int}/comment": proposal_forms.comment,
    "/proposals/{number:int}/try": proposal_forms.attempt,
    "/undo": action_forms.undo,
    "/redo": action_forms.redo,
    "/rollback": action_forms.rollback,
    "/restore": action_forms.restore,
    "/publish": action_forms.publish_work,
    "/session": action_forms.session,
    "/review": action_forms.review,
    "/allow": action_forms.allow,
}
LOOPBACK_TRIES = 5


class ReviewServer:
    """The page of one workspace, on its own loopback address."""

    def __init__(self, workspace: Workspace, port: int = 0) -> None:
        self._workspace = workspace
        self._name = os.path.basename(workspace.root) or workspace.root
        self._socket = loopback(port)
        address, port = self._socket.getsockname()
        self.host = f"{address}:{port}"
        self._visitors: dict[str, Visitor] = {}
        self._changes = Changes(self._take)
        self._trials = Trials(workspace.root, self._trial_changed)
        routes = [
            Route("/static/{name}", self._static),
            Route("/events", self._events),
            *(Route(path, self._form(handle), methods=["POST"]) for path, handle in FORMS.items()),
            Route("/{path:path}", self._page),
        ]
        self.guard = Guard(Starlette(routes=routes, lifespan=self._lifespan), self.host)

    @property
    def address(self) -> str:
        return f"http://{self.host}"

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until Ctrl-C. `on_ready` is called, in a thread, once Ctrl-C ends the server cleanly."""
        config = uvicorn.Config(
            self.guard, log_level="error", access_log=False, server_header=False, proxy_headers=False,
            http=_OwnUserProtocol, ws="none", timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._socket.listen()
        with announced(self._workspace.state_folder, self.address), contextlib.suppress(KeyboardInterrupt):
            _Server(config, self._changes, on_ready).run(sockets=[self._socket])

    @contextlib.asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        following = asyncio.create_task(self._changes.follow(self._workspace))
        try:
            yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            await asyncio.gather(self._trials.close(), *(one.close() for one in self._visitors.values()))

    async def _visitor(self, request: Request) -> Visitor:
        """Return the visitor whose cookie the guard has found; the oldest goes if there are too many.

        Raises Unreachable.
        """
        secret = request.state.visitor
        if secret not in self._visitors:
            self._visitors[secret] = Visitor(
                self._workspace, secret, self._trials, lambda: self._changes.are_told
            )
            while len(self._visitors) > VISITORS_MAX:
                await self._visitors.pop(next(iter(self._visitors))).close()
        visitor = self._visitors[secret]
        await visitor.introduce()
        return visitor

    def _take(self, happening: Happening | None) -> None:
        """Take an event of the daemon; None: events may be missing."""
        for visitor in self._visitors.values():
            if happening is None:
                visitor.cache.lose()
            else:
                visitor.cache.take(happening)

    def _trial_changed(self) -> None:
        """Show the beginning or the end of a trial, whose result the daemon has."""
        for visitor in self._visitors.values():
            visitor.cache.outdate()
        self._changes.tell()

    # ── Pages ─────────────────────────────────────────────────────────────────────────────────

    async def _page(self, request: Request) -> Response:
        query = dict(request.query_params)
        try:
            visitor = await self._visitor(request)
            visitor.cache.outdate()
            page = await page_at(request.url.path, query, visitor, self._name)
        except NoSuchPage:
            return _message(404, "There is no such page.")
        except EditdError as error:
            return _message(status_of(error), error.text(Face.PAGE))
        except Unreachable as error:
            return _message(503, error.text(Face.PAGE))
        return _parts(page) if _is_script(request) else HTMLResponse(whole(page), headers=dict(HEADERS))

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return _message(404, "There is no such file.")
        content = resources.files("editd_client.web").joinpath("static", name).read_bytes()
        return Response(content, media_type=STATIC[name], headers=dict(HEADERS))

    # ── Forms ─────────────────────────────────────────────────────────────────────────────────

    def _form(self, handle: Callable[..., Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            about = request.path_params.values()  # the proposal, if the address names one
            return await self._answered(
                request, lambda form, visitor: handle(*about, form, visitor, self._name)
            )

        return answer

    async def _answered(self, request: Request, handle: Callable[..., Any]) -> Response:
        """Carry out a form, and answer with its page: whole, or for the script in parts."""
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > FORM_BYTES_MAX:
                return _message(413, "The form is too long.")
        try:
            form = parse_qs(
                body.decode("ascii"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX, errors="strict"
            )
        except ValueError:
            return _message(400, "This is no form.")
        try:
            visitor = await self._visitor(request)
            outcome: FormAnswer = await handle(form, visitor)
        except EditdError as error:
            return _message(status_of(error), error.text(Face.PAGE))
        except Unreachable as error:
            return _message(503, error.text(Face.PAGE))
        if _is_script(request):
            return _parts(outcome.page, outcome.said, outcome.status)
        if outcome.is_elsewhere:
            return RedirectResponse(outcome.page.path, 303, headers=dict(HEADERS))
        is_refusal = outcome.status != 200
        return HTMLResponse(
            whole(outcome.page, outcome.said, is_refusal=is_refusal), outcome.status, headers=dict(HEADERS)
        )

    # ── Events ────────────────────────────────────────────────────────────────────────────────

    async def _events(self, request: Request) -> Response:
        try:
            visitor = await self._visitor(request)
        except Unreachable as error:
            return _message(503, error.text(Face.PAGE))  # the browser comes again
        asked = request.query_params.get("page", "/")
        shown = request.headers.get("last-event-id") or request.query_params.get("version", "")

        async def stream() -> AsyncIterator[bytes]:
            sent: dict[str, Html] = {}
            last, seen, address = shown, -1, asked
            while not self._changes.are_over:
                before, seen = seen, await self._changes.after(seen, STREAM_SECONDS_MAX)
                if seen == before:
                    visitor.cache.outdate()  # some changes have no event
                try:
                    page = await page_at(*_parsed(address), visitor, self._name)
                except (EditdError, NoSuchPage, Unreachable):
                    yield b"event: gone\ndata: {}\n\n"
                    sent, last = {}, ""  # every part again, so that the page sees that it is back
                    await self._changes.rest(RETRY_SECONDS)
                    continue
                address = page.path  # the selection stays, also if it was made by this page
                now = version(page)
                if now == last:
                    yield b": alive\n\n"
                for name, part in page.parts.items() if now != last else ():
                    if sent.get(name) != part:
                        data = msgspec.json.encode({"id": name, "html": str(part)})
                        yield b"event: part\nid: %b\ndata: %b\n\n" % (now.encode(), data)
                sent, last = page.parts, now
                await self._changes.rest(STREAM_SECONDS_MIN)

        return StreamingResponse(stream(), media_type="text/event-stream", headers=dict(HEADERS))


class Changes:
    """The daemon's events and the ends of trials, counted. A stream waits for the next one."""

    def __init__(self, take: Callable[[Happening | None], None]) -> None:
        self.are_told = False  # the events come
        self._take = take
        self._count = 0
        self._news = asyncio.Event()
        self._end = asyncio.Event()

    async def follow(self, workspace: Workspace) -> None:
        """Count the events of the daemon for ever; while there is none, try again each second."""
        while True:
            client = AsyncClient(Endpoint.of(workspace))
            try:
                events = await client.subscribe(brief=True)
                self._begin()
                generation = client.generation
                async for happening in events:
                    if client.generation != generation:
                        generation = client.generation
                        self._begin()
                    self._take(happening)
                    self.tell()
            except (EditdError, Unreachable, OSError):
                pass  # It is tried again below.
            finally:
                self.are_told = False
                self._take(None)
                self.tell()
                await client.close()
            await asyncio.sleep(RETRY_SECONDS)

    def _begin(self) -> None:
        """Note that from now on each event comes."""
        self._take(None)
        self.are_told = True

    async def after(self, seen: int, seconds: float) -> int:
        """Return the count once it differs from `seen`, or after so many seconds."""
        if self._count == seen:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._news.wait()
        return self._count

    @property
    def are_over(self) -> bool:
        """Whether the server ends."""
        return self._end.is_set()

    async def rest(self, seconds: float) -> None:
        """Wait for so many seconds, or until the server ends."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._end.wait()

    def end(self) -> None:
        """Let each stream end, since the server does."""
        self._end.set()
        self.tell()

    def tell(self) -> None:
        """Wake each stream."""
        self._count += 1
        self._news.set()
        self._news = asyncio.Event()


class _OwnUserProtocol(H11Protocol):
    """The protocol of a connection, which ends at once if another user made the connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the connection. The transport reads its first byte after this call."""
        super().connection_made(transport)
        stream, local, remote = map(transport.get_extra_info, ("socket", "sockname", "peername"))
        owner = None if remote is None else owner_of(Address(*local), Address(*remote))
        if not may_enter(owner):
            if owner is not None or not has_left(stream):
                _report_refusal(owner)
            transport.abort()


class _Server(uvicorn.Server):
    """A server whose streams end with it: otherwise it would wait for them, and print their cancellation."""

    def __init__(self, config: uvicorn.Config, changes: Changes, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._changes = changes
        self._on_ready = on_ready
        self._telling: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._telling = asyncio.create_task(asyncio.to_thread(self._on_ready))  # it may open a browser

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._changes.end()
        await super().shutdown(sockets)


def loopback(port: int) -> socket.socket:
    """Return a bound socket, on a loopback address that no other server is likely to have.

    Where the system has only 127.0.0.1, on that.
    """
    for _ in range(LOOPBACK_TRIES):
        a, b, c = os.urandom(3)
        stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            stream.bind((f"127.{a}.{b}.{max(1, min(c, 254))}", port))
        except OSError:
            stream.close()
        else:
            return stream
    stream = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    stream.bind(("127.0.0.1", port))
    return stream


@cache
def _report_refusal(owner: int | None) -> None:
    """Print that a connection was refused, once for each owner."""
    user = "an unknown user" if owner is None else f"user {owner}"
    click.echo(f"Refused a connection of {user}: the page serves only your own programs.", err=True)


def _parsed(address: str) -> tuple[str, dict[str, str]]:
    """Return the path and the query of an address."""
    target = urlsplit(address)
    return target.path, {name: values[-1] for name, values in parse_qs(target.query).items()}


def _is_script(request: Request) -> bool:
    return request.headers.get("accept") == PART


def _parts(page: Page, said: str = "", status: int = 200) -> Response:
    document = {
        "page": page.path if page.is_live else None, "path": page.path, "title": f"{page.title} · editd",
        "said": said, "version": version(page),
        "parts": {name: str(part) for name, part in page.parts.items()},
    }  # fmt: skip
    return Response(msgspec.json.encode(document), status, headers=dict(HEADERS), media_type=PART)


def _message(status: int, said: str) -> Response:
    body = element(
        "html",
        element("head", element("title", "editd")),
        element("body", element("p", said), element("p", element("a", "Back", href="/"))),
        lang="en",
    )
    return HTMLResponse(joined(DOCTYPE, body), status, headers=dict(HEADERS))
