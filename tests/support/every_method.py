"""Every method that takes a path, and every tool of every dialect, asked about one path.

`METHODS["read"](client, root, path)` asks, and returns the answer or raises EditdError. What is written is
`TEXT`; what is to be found is `FOUND`, which the file has to have in it.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from editd.wire.messages import (
    Chmod,
    Delete,
    EditText,
    Filter,
    Move,
    Patch,
    Position,
    Replace,
    Scope,
    SeenFile,
    Symlink,
    TextEdit,
    Tool,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.wire.messages import AnyEdit
    from editd_client.client import Client

FOUND, TEXT = "found", "written"
START = Position(line=0, character=0)


def _patch(head: str, body: str) -> Callable[[str, str], Patch]:
    return lambda _root, path: Patch(patch=head.replace("PATH", path) + body)


_CHANGED = f"@@ -1 +1 @@\n-{FOUND}\n+{TEXT}\n"


def _claude(command: str, **more: Any) -> Callable[[str, str], Tool]:
    def tool(_root: str, path: str) -> Tool:
        args = {"command": command, "path": path, **more}
        return Tool(dialect="claude", tool="str_replace_based_edit_tool", args=args)

    return tool


def _codex(body: str) -> Callable[[str, str], Tool]:
    def tool(_root: str, path: str) -> Tool:
        patch = f"*** Begin Patch\n{body.replace('PATH', path)}\n*** End Patch"
        return Tool(dialect="codex", tool="apply_patch", args={"input": patch})

    return tool


def _wcgw_write(percentage: int, text: str) -> Callable[[str, str], Tool]:
    def tool(root: str, path: str) -> Tool:
        args = {
            "file_path": f"{root}/{path}", "percentage_to_change": percentage,
            "text_or_search_replace_blocks": text, "thread_id": "t",
        }  # fmt: skip
        return Tool(dialect="wcgw", tool="FileWriteOrEdit", args=args)

    return tool


def _wcgw_read(root: str, path: str) -> Tool:
    args = {"file_paths": [f"{root}/{path}"], "thread_id": "t"}
    return Tool(dialect="wcgw", tool="ReadFiles", args=args)


def _gemini(old: str) -> Callable[[str, str], Tool]:
    def tool(root: str, path: str) -> Tool:
        args = {"file_path": f"{root}/{path}", "old_string": old, "new_string": TEXT}
        return Tool(dialect="gemini", tool="replace", args=args)

    return tool


def _roo(_root: str, path: str) -> Tool:
    return Tool(
        dialect="roo", tool="search_and_replace", args={"path": path, "search": FOUND, "replace": TEXT}
    )


def _serena(_root: str, path: str) -> Tool:
    args = {"relative_path": path, "needle": FOUND, "repl": TEXT, "mode": "literal"}
    return Tool(dialect="serena", tool="replace_content", args=args)


def _cline(old: str) -> Callable[[str, str], Tool]:
    def tool(_root: str, path: str) -> Tool:
        diff = f"------- SEARCH\n{old}=======\n{TEXT}\n+++++++ REPLACE"
        return Tool(dialect="cline", tool="replace_in_file", args={"path": path, "diff": diff})

    return tool


_SEARCH = f"<<<<<<< SEARCH\n{FOUND}\n=======\n{TEXT}\n>>>>>>> REPLACE"

EDITS: dict[str, Callable[[str, str], AnyEdit]] = {
    "write": lambda _, path: Write(path=path, content=TEXT, force=True),
    "write new": lambda _, path: Write(path=path, content=TEXT, base=None),
    "replace": lambda _, path: Replace(path=path, old=FOUND, new=TEXT),
    "text": lambda _, path: EditText(
        path=path, base=None, edits=[TextEdit(start=START, end=START, text=TEXT)]
    ),
    "delete": lambda _, path: Delete(path=path),
    "move from": lambda _, path: Move(path=path, to="moved", overwrite=True),
    "move to": lambda _, path: Move(path="plain", to=path),
    "move over": lambda _, path: Move(path="plain", to=path, overwrite=True),
    "chmod": lambda _, path: Chmod(path=path, executable=True),
    "symlink": lambda _, path: Symlink(path=path, target="plain"),
    "patch": _patch("--- a/PATH\n+++ b/PATH\n", _CHANGED),
    "patch new": _patch("--- /dev/null\n+++ b/PATH\n", f"@@ -0,0 +1 @@\n+{TEXT}\n"),
    "patch away": _patch("--- a/PATH\n+++ /dev/null\n", f"@@ -1 +0,0 @@\n-{FOUND}\n"),
    "patch from": _patch(
        "diff --git a/PATH b/moved\nsimilarity index 100%\nrename from PATH\nrename to moved\n", ""
    ),
    "patch to": _patch(
        "diff --git a/plain b/PATH\nsimilarity index 100%\nrename from plain\nrename to PATH\n", ""
    ),
    "patch mode": _patch("diff --git a/PATH b/PATH\nold mode 100644\nnew mode 100755\n", ""),
    "patch link": _patch(
        "diff --git a/PATH b/PATH\nnew file mode 120000\n--- /dev/null\n+++ b/PATH\n",
        "@@ -0,0 +1 @@\n+plain\n\\ No newline at end of file\n",
    ),
    "claude view": _claude("view"),
    "claude create": _claude("create", file_text=TEXT),
    "claude str_replace": _claude("str_replace", old_str=FOUND, new_str=TEXT),
    "claude insert": _claude("insert", insert_line=0, insert_text=TEXT),
    "claude undo_edit": _claude("undo_edit"),
    "codex update": _codex(f"*** Update File: PATH\n@@\n-{FOUND}\n+{TEXT}"),
    "codex add": _codex(f"*** Add File: PATH\n+{TEXT}"),
    "codex delete": _codex("*** Delete File: PATH"),
    "codex from": _codex(f"*** Update File: PATH\n*** Move to: moved\n@@\n-{FOUND}\n+{TEXT}"),
    "codex to": _codex(f"*** Update File: plain\n*** Move to: PATH\n@@\n-{FOUND}\n+{TEXT}"),
    "wcgw write": _wcgw_write(100, TEXT),
    "wcgw edit": _wcgw_write(10, _SEARCH),
    "wcgw read": _wcgw_read,
    "gemini edit": _gemini(FOUND),
    "gemini new": _gemini(""),
    "roo": _roo,
    "serena": _serena,
    "cline edit": _cline(f"{FOUND}\n"),
    "cline new": _cline(""),
}


def _applied(edit: Callable[[str, str], AnyEdit]) -> Callable[[Client, str, str], object]:
    return lambda client, root, path: client.apply([edit(root, path)], return_content=True, diff=True)


def _staged(client: Client, root: str, path: str) -> object:
    changeset = client.begin().changeset
    try:
        told = client.stage(changeset, [EDITS["write"](root, path)])
        return told, client.read(path, changeset=changeset), client.diff(changeset=changeset)
    finally:
        client.abort(changeset)


def _read_staged(client: Client, _root: str, path: str) -> object:
    changeset = client.begin().changeset
    try:
        return client.read(path, changeset=changeset)
    finally:
        client.abort(changeset)


def _held(client: Client, _root: str, path: str) -> object:
    version = client.document_hold(path, None, TEXT).version
    listed = client.document_list()
    client.document_release(path)
    return version, listed


def _leased(client: Client, _root: str, path: str) -> object:
    with _named(client) as session:
        lease = client.lease_acquire([path], 60, session=session).lease
        client.lease_release(lease, force=True)
        return lease


class _named:  # noqa: N801  # used as a function is
    """A session of its own, with a scope or without, as long as it is needed."""

    def __init__(self, client: Client, scope: Scope | None = None) -> None:
        self.client = client
        self.name = f"s-{secrets.token_hex(4)}"
        self.scope = scope

    def __enter__(self) -> str:
        self.client.session_open(self.name, scope=self.scope)
        return self.name

    def __exit__(self, *_: object) -> None:
        self.client.session_close(self.name, force=True)


def _scoped(client: Client, _root: str, path: str) -> object:
    scope = Scope(write=[path], read=[path])
    with _named(client, scope) as session:
        return client.read(path, session=session)


def rfc3339_now() -> str:
    return datetime.now(UTC).isoformat()


def _bracketed(client: Client, _root: str, path: str) -> object:
    return client.exec_end(client.exec_begin("it", paths=[path], whole=[path]).exec, 0, seen=True)


METHODS: dict[str, Callable[[Client, str, str], object]] = {
    "read": lambda client, _, path: client.read(path),
    "read at": lambda client, _, path: client.read(path, at=0),
    "read staged": _read_staged,
    "stat": lambda client, _, path: client.stat([path]),
    "stage": _staged,
    "log": lambda client, _, path: client.log(path=path),
    "diff": lambda client, _, path: client.diff(paths=[path]),
    "blame": lambda client, _, path: client.blame(path),
    "lease": _leased,
    "hold": _held,
    "exec": _bracketed,
    "claim": lambda client, _, path: client.claim([path], rfc3339_now(), "it", session="claimer"),
    "seen": lambda client, _, path: client.seen([SeenFile(path=path)]),
    "scope": _scoped,
    "restore": lambda client, _, path: client.restore(0, paths=[path], dry_run=True),
    "undo paths": lambda client, _, path: client.undo(1, paths=[path], dry_run=True),
    "undo hunks": lambda client, _, path: client.undo(1, hunks={path: [1]}, dry_run=True),
    "undo filter": lambda client, _, path: client.undo(filter=Filter(paths=[path]), dry_run=True),
    **{name: _applied(edit) for name, edit in EDITS.items()},
}
