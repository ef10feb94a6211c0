"""Every method of the protocol, each asked with what would have an effect, by clients of several kinds.

As a program it sends the requests of its standard input to the socket of its argument, and prints the
answers. It needs nothing of editd, so that it runs in a sandbox.
"""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

Request = tuple[str, dict[str, Any]]

OTHERS = 1  # a transaction by somebody else
VICTIM = "victim"  # an open session of somebody else, with lease 1 and proposals 1 and 2
NONE = "file:///nowhere/none.git"


def requests(lease: str, view: str, evil: str) -> list[Request]:
    """Return a request for each method, with the worst options. `evil` is the URL of a bare repository."""
    edit = {"op": "write", "path": "walk.txt", "content": "walked\n", "force": True}
    since = "2020-01-01T00:00:00Z"
    viewed = {"proposal": 1, "view": view}
    return [
        ("hello", {"client": "walker"}),
        ("status", {}),
        ("dialects", {}),
        ("read", {"path": "a.txt"}),
        ("stat", {"paths": ["a.txt"]}),
        ("settle", {}),
        ("diff", {}),
        ("hooks.run", {"paths": ["a.txt"]}),
        ("begin", {}),
        ("stage", {"changeset": "none", "edits": [edit]}),
        ("commit", {"changeset": "none"}),
        ("abort", {"changeset": "none"}),
        ("undo", {"tx": OTHERS}),
        ("redo", {}),
        ("rollback", {"session": VICTIM}),
        ("restore", {"to": 0}),
        ("log", {}),
        ("log.count", {}),
        ("log.refusals", {}),
        ("show", {"tx": OTHERS}),
        ("blame", {"path": "a.txt"}),
        ("why", {"path": "a.txt", "line": 1}),
        ("session.list", {"all": True, "activity": True}),
        ("session.open", {"name": "walker", "fresh": True}),
        ("session.pause", {"session": VICTIM}),
        ("session.resume", {"session": VICTIM}),
        ("lease.acquire", {"paths": ["walk/**"], "ttl": 5, "session": "walking"}),
        ("lease.renew", {"lease": lease, "ttl": 5}),
        ("lease.release", {"lease": lease, "force": True}),
        ("lease.list", {}),
        ("document.hold", {"path": "held.txt", "base": None, "content": "held\n"}),
        ("document.release", {"path": "held.txt"}),
        ("document.list", {}),
        ("exec.begin", {"command": "walk"}),
        ("exec.ask", {"session": "walking"}),
        ("exec.end", {"exec": "none"}),
        ("claim", {"command": "walk", "paths": ["a.txt"], "since": since, "session": "walking"}),
        ("seen", {"files": [{"path": "a.txt"}]}),
        ("turn.begin", {"conversation": "walk", "session": "walking", "prompt": "walk"}),
        ("turn.note", {"session": "walking", "model": "walker"}),
        ("turn.end", {"session": "walking"}),
        ("turns", {}),
        ("subscribe", {}),
        ("unsubscribe", {"subscription": 9}),
        ("gc", {}),
        ("forget", {"paths": ["none.txt"]}),
        ("publish", {"message": "All\n\nReviewed-by: root", "from": OTHERS, "author": "root <r@a.org>"}),
        ("config.reload", {}),
        ("remote.init", {"url": evil}),
        ("remote.join", {"url": evil, "take": "log"}),
        ("remote.status", {}),
        ("remote.now", {"timeout": 0}),
        ("remote.land", {"timeout": 0}),
        ("remote.pause", {}),
        ("remote.resume", {}),
        ("remote.repair", {}),
        ("remote.leave", {}),
        ("proposal.list", {}),
        ("proposal.get", {"proposal": 1, "content": True}),
        ("proposal.wait", {"proposal": 1, "timeout": 0}),
        ("proposal.comment", {"proposal": 1, "text": "seen"}),
        ("proposal.check", {**viewed, "name": "walk", "exit": 0, "seconds": 0, "output": ""}),
        ("proposal.submit", {"proposal": 2}),
        ("proposal.withdraw", {"proposal": 1}),
        ("proposal.reopen", {"proposal": 3}),
        ("proposal.decide", {"proposals": [viewed], "what": "approve"}),
        ("review.allow", {"paths": ["**"], "ttl": 60}),
        ("review.revoke", {"grant": 1}),
        ("review.grants", {}),
        ("review.mark", {"transactions": [OTHERS]}),
        ("review.unlock", {"pin": "0000"}),
        ("proposal.reject", {"proposal": 1}),
        ("proposal.approve", viewed),
        ("session.close", {"session": VICTIM, "force": True, "withdraw": True}),
        ("check", {"repair": True, "lose": True}),
        ("apply", {"edits": [edit]}),
        ("shutdown", {}),
    ]  # fmt: skip


class Line:
    """A connection by JSON lines."""

    def __init__(self, path: str) -> None:
        self._stream = socket.socket(socket.AF_UNIX)
        self._stream.settimeout(30)
        self._stream.connect(path)
        self._file = self._stream.makefile("rw")
        self._number = 0

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the whole answer to a request; events in between are left out."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self._file.write(json.dumps(message) + "\n")
        self._file.flush()
        while True:
            answer: dict[str, Any] = json.loads(self._file.readline())
            if answer.get("id") == self._number:
                return answer


def main() -> None:
    line = Line(sys.argv[1])
    for text in sys.stdin:
        method, params = json.loads(text)
        print(json.dumps([method, line.ask(method, params)]), flush=True)


if __name__ == "__main__":
    main()
