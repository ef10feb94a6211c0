"""A log to which somebody pushes entries by hand, and entries that no host can use."""

from __future__ import annotations

import secrets
import subprocess
from typing import TYPE_CHECKING

from support.log_checker import log_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.log_checker import Entry

# Trailers of an entry, with the reason why no host can use it; without one its file is taken.
TRAILERS = [
    ("Kind: Banana", "its Kind has another form"), ("Kind: banana", None),
    ("Actor: \"\\ud800\"", "a surrogate"), ("Number: 777777", "its number is 777777"),
    ("Made: 0001-01-01T00:00:00+23:59", "its Made has another form"),
    ("Permissions: 77777777777777777777777 new", "its Permissions has another form"),
]  # fmt: skip
MORE_TRAILERS = [
    ("Kind: baseline", "its kind is baseline"),
    ("Actor: ", "form"),
    ('Session: "a\\nb"', None),
    ("Made: 9999-12-31T23:59:59-23:59", "form"),
    ("Made: 0999-01-01T00:00:00.000000Z", "a time before 1970"),
    ("Made: 9999-12-31T23:59:59.999999Z", None),
    ("Made: 1960-01-01T00:00:00.000000Z", "a time before 1970"),
    ("Time: 0001-01-01T00:00:00+23:59", "form"),
    ('Host: "\\ud800"', "form"),
    ("Host: ", "form"),
    ("Permissions: -7 new", "form"),
    ('Moved: ["../../x", "new"]', "impossible path"),
    ("Moved: [1, 2]", "cannot be read"),
    ("Undoes: 99999999999999999999", "form"),
    ("Undoes: 1 ../x", "path"),
    ("Hunks: 1 -5 new", "form"),
    ("Undone: banana", "form"),
    ("Proposal: 1 1 1", None),
    ('Approved-By: "\\ud800"', "a surrogate"),
    ("By: path", None),
    ('Message: "\\ud800"', "a surrogate"),
    ('Request: "\\u0000"', "a NUL"),
    ("Origin: banana", "form"),
    ("Origin: ", "form"),
    ("Claims: 1", None),
    ("Seq: 99999999999999999999", "form"),
    ("Number: 99999999999999999999", "form"),
    ("Outcome: baseline", "no Origin"),
    ("Outcome: aside", "1 parents instead of 2"),
    ("Outcome: odd", "outcome"),
]


class HostileLog:
    """A repository with a log, to which somebody pushes crafted entries."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.unusable: set[str] = set()  # commits whose files do not count for the next entries

    def git(self, *words: str, stdin: bytes = b"") -> str:
        done = subprocess.run(
            ["git", "--git-dir", self._server, *words], input=stdin, capture_output=True, check=True
        )
        return done.stdout.decode().strip()

    def object(self, kind: str, content: bytes) -> str:
        return self.git("hash-object", "-t", kind, "--literally", "-w", "--stdin", stdin=content)

    @property
    def head(self) -> str:
        return str(log_of(self._server)[-1].commit.id)

    def names(self) -> dict[bytes, tuple[bytes, str]]:
        """Return the top folder of the newest entry: mode and object by name."""
        lines = self.git("ls-tree", str(log_of(self._server, self.unusable)[-1].tree.id)).split("\n")
        return {
            line.split("\t")[1].encode(): (line.split()[0].lstrip("0").encode(), line.split()[2])
            for line in lines
        }

    def add(self, changes: Mapping[bytes, tuple[bytes, str] | None], trailers: str = "") -> str:
        """Add an entry that changes names of the top folder, with its modes and objects as they are given.

        Return its commit. Raises CalledProcessError if a host was faster.
        """
        parent = log_of(self._server)[-1]
        names = {name: entry for name, entry in (self.names() | dict(changes)).items() if entry is not None}
        ordered = sorted(names, key=lambda name: name + b"/" * (names[name][0].lstrip(b"0") == b"40000"))
        raw = b"".join(
            b"%b %b\0%b" % (names[name][0], name, bytes.fromhex(names[name][1])) for name in ordered
        )
        return self.add_tree(self.object("tree", raw), trailers, parent)

    def add_tree(self, tree: str, trailers: str = "", parent: Entry | None = None) -> str:
        """Add an entry with this tree behind `parent` (default: the newest entry)."""
        parent = parent or log_of(self._server)[-1]
        number, time = parent.number + 1, "2026-01-02T03:04:05.000006Z"
        usual = {
            "Seq": number, "Kind": "edit", "Actor": "mallory", "Time": time, "Number": number, "Host": "evil",
            "Made": time, "Origin": secrets.token_hex(20), "Outcome": "applied",
        }  # fmt: skip
        kept = "".join(f"{key}: {value}\n" for key, value in usual.items() if f"{key}: " not in trailers)
        message = f"hostile\n\n{kept}{trailers}"
        who = "x <x@x> 0 +0000"
        content = f"tree {tree}\nparent {parent.commit.id}\nauthor {who}\ncommitter {who}\n\n{message}"
        commit = self.object("commit", content.encode())
        branch = self.git("for-each-ref", "--format=%(refname)", "refs/heads/editd/")
        self.git("update-ref", branch, commit, str(parent.commit.id))
        return commit
