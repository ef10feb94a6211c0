"""The errors that can be brought about in a moment, each for real: what docs/errors.md shows.

python tests/docs/refusals.py            # print the page as it is to be
python tests/docs/refusals.py --write    # and put it into docs/errors.md

What differs from run to run (ids, times, tokens, leases) stands as `…`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[:0] = [str(TOP / "tests"), str(TOP / "daemon"), str(TOP / "client")]

from support.workplace import workplace  # noqa: E402

if TYPE_CHECKING:
    from support.workplace import Workplace

PAGE = TOP / "docs" / "errors.md"
MARKS = re.compile(r"(<!-- example: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
SECONDS_MAX = 10
UNSTEADY = {"id", "time", "expires", "lease", "leases", "token"}
PASSING = re.compile(r"(?<=This version has ).+|(?<=until )\d[\d:.TZ-]+\d+Z")  # all methods; a time

APP = "retries = 3\ntimeout = 5\n"
APP_VERSION = "8b4d5f5f93c651353159ec6f9c728e397102ecbe"
CONFIGURATION = """[[hook]]
name = "no-fixme"
glob = ["**/*.py"]
command = ["sh", "-c", "! grep -n FIXME"]
kind = "check"
"""
Request = tuple[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error, and how to bring it about."""

    name: str
    refused: Request | str  # a request, or a line that is none
    before: tuple[Request, ...] = ()  # what the same connection says first
    others: tuple[Request, ...] = ()  # what another connection has said by then


def apply(*edits: dict[str, Any], **more: Any) -> Request:
    return "apply", {"edits": list(edits), **more}


def replace(old: str, new: str, path: str = "app.conf", **more: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "old": old, "new": new, **more}


def tool(dialect: str, name: str, **args: Any) -> Request:
    return apply({"op": "tool", "dialect": dialect, "tool": name, "args": args})


def write(path: str, content: str, **more: Any) -> dict[str, Any]:
    return {"op": "write", "path": path, "content": content, **more}


def lease(session: str, **more: Any) -> tuple[Request, ...]:
    return ("session.open", {"name": session}), ("lease.acquire", {"paths": ["docs"], "ttl": 60, **more})


REFUSALS = (
    Refusal(
        "parse_error",
        "status",
    ),
    Refusal(
        "invalid_request",
        '{"id": 1, "method": "status", "parameters": {}}',
    ),
    Refusal(
        "method_not_found",
        ("save", {}),
    ),
    Refusal(
        "invalid_params",
        apply({"op": "write", "path": "new.txt", "contents": "x"}),
    ),
    Refusal(
        "stale",
        apply(replace("retries = 9", "retries = 1", base=APP_VERSION)),
        others=(apply(replace("retries = 3", "retries = 9"), actor="bob", message="Try harder"),),
    ),
    Refusal(
        "conflict",
        ("undo", {"tx": 3}),
        others=(apply(replace("retries = 3", "retries = 9")), apply(replace("retries = 9", "retries = 1"))),
    ),
    Refusal(
        "no_match",
        apply(replace("retries = 4\ntimeout = 5", "retries = 9\ntimeout = 5")),
    ),
    Refusal(
        "ambiguous",
        apply(replace(" = ", ": ")),
    ),
    Refusal(
        "count_mismatch",
        apply(replace(" = ", ": ", count=5)),
    ),
    Refusal(
        "malformed_edit",
        apply({"op": "patch", "patch": "--- a/app.conf\n+++ b/app.conf\n@@ one @@\n-x\n+y\n"}),
    ),
    Refusal(
        "invalid_regex",
        tool("serena", "replace_content", relative_path="app.conf", needle="(3", repl="9", mode="regex"),
    ),
    Refusal(
        "timeout",
        ("lease.acquire", {"paths": ["docs/**"], "ttl": 60, "wait": 0.1}),
        before=(("session.open", {"name": "eve"}),),
        others=lease("bob"),
    ),
    Refusal(
        "path_outside",
        ("read", {"path": "../notes.txt"}),
    ),
    Refusal(
        "path_protected",
        apply(write(".git/hooks/post-commit", "curl …", base=None)),
    ),
    Refusal(
        "path_ignored",
        tool(
            "serena", "replace_content", relative_path="build/out.txt", needle="3", repl="9", mode="literal"
        ),
    ),
    Refusal("file_missing", ("read", {"path": "ap.conf"})),
    Refusal(
        "file_exists",
        apply(write("app.conf", "", base=None)),
    ),
    Refusal("not_a_file", ("read", {"path": "docs"})),
    Refusal(
        "not_text",
        apply(replace("PNG", "GIF", "logo.png")),
    ),
    Refusal(
        "too_large",
        ("read", {"path": "disk.img"}),
    ),
    Refusal(
        "base_required",
        apply(write("app.conf", "retries = 1\n")),
    ),
    Refusal(
        "leased",
        apply(write("docs/new.md", "New.\n", base=None)),
        others=lease("bob"),
    ),
    Refusal(
        "permission_denied",
        apply(write("docs/new.md", "New.\n", base=None)),
        before=(("session.open", {"name": "eve", "scope": {"write": ["src/**"]}}),),
    ),
    Refusal(
        "unknown_transaction",
        ("show", {"tx": 99}),
    ),
    Refusal(
        "unknown_session",
        ("hello", {"session": "bob", "token": "guessed"}),
        others=(("session.open", {"name": "bob"}),),
    ),
    Refusal(
        "unread",
        apply(replace("retries = 3", "retries = 9")),
        before=(("session.open", {"name": "eve", "unread": "reject"}),),
    ),
    Refusal(
        "rejected",
        apply(write("wait.py", "sleep(5)  # FIXME\n", base=None)),
    ),
    Refusal(
        "nothing_to_undo",
        ("redo", {}),
    ),
    Refusal(
        "overloaded",
        ("subscribe", {}),
        before=(("subscribe", {}),) * 32,
    ),
    Refusal(
        "no_change",
        tool("roo", "search_and_replace", path="app.conf", search="retries", replace="retries"),
    ),
    Refusal(
        "unsaved",
        apply(replace("retries = 3", "retries = 9")),
        others=(
            ("hello", {"client": "vscode"}),
            (
                "document.hold",
                {"path": "app.conf", "base": APP_VERSION, "content": "retries = 5\ntimeout = 5\n"},
            ),
        ),
    ),
)


@dataclass
class Connection:
    """A raw one, that speaks JSON by line."""

    stream: socket.socket
    lines: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stream.settimeout(SECONDS_MAX)
        self.lines = self.stream.makefile("rb")

    def ask(self, request: Request | str) -> dict[str, Any]:
        """Send it, and return its answer as it came."""
        self.stream.sendall(spelled(request).encode() + b"\n")
        while "method" in (message := json.loads(self.lines.readline())):
            continue
        answer: dict[str, Any] = message
        return answer


def spelled(request: Request | str) -> str:
    """The request as it travels, with the id 1."""
    if isinstance(request, str):
        return request
    method, params = request
    return json.dumps({"id": 1, "method": method, "params": params}, ensure_ascii=False)


def answers(place: Workplace) -> dict[str, tuple[str, dict[str, Any]]]:
    """Of each error that can be shown: the request, and what the daemon of the workspace answers."""
    place.git("init", "-q")
    place.write({".gitignore": "build/\n", "logo.png": b"\x89PNG\r\n\x1a\n\0\0\0\xff", "docs/a.md": "A.\n"})
    place.write({"build/out.txt": "3\n", "disk.img": ""})
    os.truncate(place.root / "disk.img", 1 << 30)  # of no bytes on the disk
    configuration = place.folder / "config" / "editd" / "config.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(CONFIGURATION)
    given = {}
    place.start().close()
    for refusal in REFUSALS:
        given[refusal.name] = brought_about(place, refusal)
    place.stop()
    return given


def brought_about(place: Workplace, refusal: Refusal) -> tuple[str, dict[str, Any]]:
    """The request as it is sent, and the answer to it; afterwards all is as before."""
    place.write({"app.conf": APP})
    with ExitStack() as opened:
        connections = []
        for _ in range(3):
            stream = opened.enter_context(socket.socket(socket.AF_UNIX))
            stream.connect(place.socket)
            connections.append(Connection(stream))
        asking, other, tidying = connections
        tidying.ask(("settle", {}))
        for connection, requests in ((other, refusal.others), (asking, refusal.before)):
            for request in requests:
                answer = connection.ask(request)
                assert "result" in answer, answer
        answer = asking.ask(refusal.refused)
        for session in tidying.ask(("session.list", {}))["result"]["sessions"]:
            tidying.ask(("session.close", {"session": session["session"], "force": True}))
    return spelled(refusal.refused), answer


def steady(value: Any, key: str = "") -> Any:
    """The value without what differs from run to run."""
    if isinstance(value, dict):
        return {name: steady(member, name) for name, member in value.items()}
    if key in UNSTEADY and value is not None:
        return "…"
    if isinstance(value, list):
        return [steady(member) for member in value]
    return PASSING.sub("…", value) if isinstance(value, str) else value


def rendered(page: str, given: dict[str, tuple[str, dict[str, Any]]]) -> str:
    """The page with what stands between its marks made anew."""
    return MARKS.sub(lambda found: found[1] + _example(*given[found[2]]) + found[3], page)


def _example(request: str, answer: dict[str, Any]) -> str:
    """What is asked and what comes back, as two blocks."""
    shown = json.dumps(steady(answer["error"]), ensure_ascii=False, indent=2)
    shown = re.sub(r"\[\n +([^\[\]{}]*?)\n +\]", lambda found: f"[{' '.join(found[1].split())}]", shown)
    return f"```json\n{request}\n```\n\n```json\n{shown}\n```\n"


def made_page() -> str:
    """The whole page, from a daemon of its own."""
    with tempfile.TemporaryDirectory() as folder, workplace(Path(folder) / "place") as place:
        return rendered(PAGE.read_text(), answers(place))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="put it into docs/errors.md")
    is_written = parser.parse_args().write
    page = made_page()
    if is_written:
        PAGE.write_text(page)
    else:
        sys.stdout.write(page)


if __name__ == "__main__":
    main()
