"""The guard of the page, attacked over real HTTP: names, cookies, origins, tokens, and the policy."""

from __future__ import annotations

import http.client
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from editd_client.web.guard import POLICY
from support.reviewers import author_of, set_pin
from support.web_page import WebPage, web_page
from support.workplace import replace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.workplace import Workplace

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workplace, WebPage]]:
    """A page with a proposal whose every text is an attack."""
    with workplace(tmp_path_factory.mktemp("guard") / "place") as place:
        set_pin(place)
        with author_of(place, {"a.py": f"one\n{EVIL}\n", f"{EVIL.replace('/', '-')}.py": "x\n"}) as author:
            name = f"{EVIL.replace('/', '-')}.py"
            author.apply(
                [replace("a.py", "one\n", f"{EVIL}two\n"), replace(name, "x", EVIL)],
                propose=True,
                message=EVIL,
            )
            author.proposal_comment(1, EVIL)
            author.apply([replace("a.py", "one\n", "three\n")], message=EVIL)
            with web_page(place) as page:
                yield place, page


@pytest.fixture
def page(served: tuple[Workplace, WebPage]) -> WebPage:
    return served[1].another()


PATHS = (
    "/", "/proposals/1", "/timeline", "/transactions/1", "/agents", "/blame?path=a.py", "/events",
    "/static/review.js", "/static/review.css", "/nothing",
)  # fmt: skip
FORMS = (
    "/proposals/1/decide", "/proposals/1/comment", "/proposals/1/try", "/undo", "/redo", "/rollback",
    "/restore", "/publish", "/session", "/review", "/allow",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_without_the_cookie_nothing_is_answered(page: WebPage, path: str) -> None:
    answer = page.get(path)
    assert answer.status == 403
    assert "editctl web" in answer.text
    assert "one" not in answer.text


@pytest.mark.parametrize("path", FORMS)
def test_without_the_cookie_nothing_is_carried_out(page: WebPage, path: str) -> None:
    assert page.post(path, {"do": "approve"}).status == 403


def test_a_token_becomes_a_cookie_and_a_clean_address(page: WebPage) -> None:
    answer = page.get(f"/?t={page.token}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert page.token not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    page.cookie = cookie.partition(";")[0]
    assert page.get("/").status == 200


@pytest.mark.parametrize("token", ["", "x", "%ff%fe", "%00", "a" * 5000])
def test_a_wrong_token_gets_no_cookie(page: WebPage, token: str) -> None:
    answer = page.get(f"/?t={token}")
    assert answer.status == 403
    assert "set-cookie" not in answer.headers


def test_a_cookie_that_the_server_did_not_make_is_no_cookie(page: WebPage) -> None:
    """Session fixation: a value that somebody else has chosen stays worthless, also after a visit."""
    page.cookie = f"editd-{page.host.partition(':')[2]}=chosen"
    assert page.get("/").status == 403
    fixed = page.cookie
    page.enter()
    assert page.cookie != fixed
    page.cookie = fixed
    assert page.get("/").status == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost", "127.0.0.1", "{host}.evil.example", "evil.example:{port}", ""]
)
def test_another_name_is_refused_also_with_the_cookie(page: WebPage, host: str) -> None:
    page.enter()
    name = host.format(host=page.host, port=page.host.partition(":")[2])
    answer = page.get("/", Host=name)
    assert answer.status == 421
    assert page.get(f"/?t={page.token}", Host=name).status == 421


def test_two_names_in_a_request_are_refused(page: WebPage) -> None:
    page.enter()
    name, _, port = page.host.partition(":")
    with socket.create_connection((name, int(port)), 10) as stream:
        names = f"Host: {page.host}\r\nHost: evil.example"
        stream.sendall(f"GET / HTTP/1.1\r\n{names}\r\nCookie: {page.cookie}\r\n\r\n".encode())
        assert stream.recv(65536).split()[1] in (b"400", b"421")


@pytest.mark.parametrize("path", FORMS)
@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://{host}", "http://127.0.0.1:1", None]
)
def test_another_origin_changes_nothing(page: WebPage, path: str, origin: str | None) -> None:
    page.enter()
    headers = {} if origin is None else {"Origin": origin.format(host=page.host)}
    body = "do=approve&comment=x&seq=1&session=agent&paths=**&ttl=1h"
    answer = page.request("POST", path, body, headers)
    assert answer.status == 403
    assert "another origin" in answer.text


def test_a_cross_site_request_with_a_forged_origin_is_refused(page: WebPage) -> None:
    page.enter()
    assert page.post("/allow", {"do": "allow"}, **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert page.post("/allow", {"do": "allow"}, **{"Sec-Fetch-Site": "same-site"}).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(page: WebPage, method: str) -> None:
    page.enter()
    assert page.request(method, "/proposals/1/decide").status in (403, 405)
    assert page.request(method, "/proposals/1/decide", headers={"Origin": page.address}).status == 405


def test_a_form_cannot_be_sent_with_get(page: WebPage) -> None:
    page.enter()
    assert page.get("/proposals/1/decide?do=approve").status == 404
    assert "P1" in page.get("/").text


@pytest.mark.parametrize("path", PATHS[:6])
def test_every_page_has_the_policy_and_nothing_inline(page: WebPage, path: str) -> None:
    page.enter()
    answer = page.get(path)
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert re.findall(r"<script[^>]*>", answer.body) == ['<script type="module" src="/static/review.js">']
    assert "<style" not in answer.body
    for tag in re.findall(r"<[a-z][^<>]*>", answer.body):
        assert not re.search(r'\s(?:on\w+|style)="', tag), tag
        assert not re.search(r'\s(?:src|href|action|formaction)="(?!/(?!/)|#)', tag), tag


def test_the_policy_is_that_of_the_design() -> None:
    assert POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types editd"
    )


@pytest.mark.parametrize("path", [*PATHS, "/proposals/1/decide"])
def test_refusals_have_the_policy_too(page: WebPage, path: str) -> None:
    for answer in (page.get(path), page.get(path, Host="evil.example"), page.enter().get("/nothing")):
        assert answer.headers["content-security-policy"] == POLICY


def test_texts_of_agents_are_text(page: WebPage) -> None:
    page.enter()
    for path in ("/proposals/1", "/transactions/1", "/timeline", "/agents"):
        body = page.get(path).body
        assert "<img" not in body
        assert "alert(2)</script>" not in body
    assert EVIL in page.get("/proposals/1").text


def test_no_other_file_is_served(page: WebPage) -> None:
    page.enter()
    for path in ("/static/../server.py", "/static/%2e%2e/server.py", "/static/server.py", "/static/"):
        assert page.get(path).status == 404
    assert page.get("/static/review.js").headers["content-type"].startswith("text/javascript")


def test_a_link_on_another_page_enters_by_a_step_of_its_own(page: WebPage) -> None:
    """A browser sends no strict cookie with it, nor on its redirect: a page of the server goes on."""
    answer = page.get(f"/?t={page.token}", **{"Sec-Fetch-Site": "cross-site"})
    assert answer.status == 200
    assert 'content="0;url=/"' in answer.body
    assert page.token not in answer.body
    refused = page.get("/proposals/1", **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status == 403
    assert 'href="/proposals/1"' in refused.body


@pytest.mark.parametrize(
    "path", ["//other.host/x", "///other.host", "/%2F/other.host", "/%5Cother.host", "/%09/other.host"]
)
def test_a_link_of_a_refusal_stays_on_this_server(page: WebPage, path: str) -> None:
    refused = page.get(path, **{"Sec-Fetch-Site": "cross-site"})
    assert refused.status == 403
    (link,) = re.findall(r'href="([^"]*)"', refused.body)
    assert urlsplit(link).netloc == ""
    assert re.match(r"/[^/\\\s]", link), link


def test_a_long_form_is_refused(page: WebPage) -> None:
    page.enter()
    answer = page.post("/proposals/1/comment", {"comment": "x" * 5_000_000})
    assert answer.status == 413


def test_a_form_that_is_none_is_refused(page: WebPage) -> None:
    page.enter()
    for body in ("\xff", "&".join(f"a{n}=1" for n in range(20_001))):
        assert page.request("POST", "/proposals/1/decide", body, {"Origin": page.address}).status == 400


def test_each_server_has_an_address_of_its_own(served: tuple[Workplace, WebPage]) -> None:
    """A browser sends cookies to each port of a host, so another server at this host would get them."""
    with web_page(served[0]) as other:
        assert other.host.partition(":")[0] != served[1].host.partition(":")[0]
        other.enter()
        stolen = WebPage(served[1].address, served[1].token, 0, other.cookie)
        assert stolen.get("/").status == 403


def test_the_port_is_not_served_at_other_addresses(page: WebPage) -> None:
    _, _, port = page.host.partition(":")
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    with pytest.raises(OSError, match="refused"):
        connection.request("GET", "/")
