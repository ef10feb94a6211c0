"""Make a log with an editd of any version, to be kept.

    python tests/remote/kept_logs/make.py CHECKOUT NAME

`NAME.bundle` has the repository of the log.
`NAME.json` has its entries, the files of a host and its proposals. Three hosts write the log.

`CHECKOUT` is a folder with a whole checkout of that version (`git worktree add /tmp/old 08c1ca6`).
It runs with the Python of this command, which has no other editd installed.
`08c1ca6` was made so on 2026-11-27, and `version1` by the commit that has this file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LINES = "".join(f"line {number}\n" for number in range(1, 10))
FILES = {"a.txt": LINES, "b.txt": LINES, "sub/é c.txt": "c\n", "old.txt": "it moves\n", "gone.txt": "x\n"}


def main(checkout: str, name: str) -> None:
    tests = Path(checkout).resolve() / "tests"
    sys.path[:0] = [str(tests), str(tests.parent / "daemon"), str(tests.parent / "client")]
    with tempfile.TemporaryDirectory() as folder:
        content = make(Path(folder), FOLDER / f"{name}.bundle")
    (FOLDER / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def make(folder: Path, bundle: Path) -> dict[str, object]:
    """Have three hosts write a log, store its repository in `bundle`, and return its content."""
    from editd.wire.messages import Chmod, Delete, Move, Replace, Symlink, Write  # of the checkout
    from support.hosts import exchange, hosts, until
    from support.log_checker import log_of
    from support.workplace import replace, write

    with hosts(folder, 3, FILES) as (places, clients, server):
        one, other, third = clients
        edits: list[Write | Replace] = [replace("a.txt", "line 1\n", "1\n"), write("new.txt", "new\n")]
        made = one.apply(edits, message="Two\n\nlines")
        exchange(*clients)
        assert made.transaction is not None
        undo = other.undo(made.transaction.id, paths=["a.txt"]).transaction
        exchange(*clients)
        assert undo is not None
        third.undo(undo.id)
        exchange(*clients)
        other.apply([Move(path="old.txt", to="sub/moved.txt")])
        exchange(*clients)
        link = Symlink(path="link", target="a.txt")
        third.apply([Delete(path="gone.txt"), Chmod(path="b.txt", executable=True), link])
        exchange(*clients)
        for number in (1, 2):
            other.remote_pause()
            one.read("a.txt")
            one.apply([replace("a.txt", f"line {4 * number}\n", f"one {number}\n")])
            exchange(one, third)
            other.read("a.txt")
            edit = replace("a.txt", f"line {4 * number}\n", f"other {number}\n")
            other.apply([edit], message=f"aside {number}")
            other.remote_resume()
            exchange(*clients)
            until(lambda: len(one.proposal_list().proposals) == 1, "it is not set aside")
            if number == 1:
                one.proposal_reject(one.proposal_list().proposals[0].proposal, comment="not this one")
                until(lambda: other.proposal_list().proposals == [], "it is not decided")
                exchange(*clients)
        third.remote_leave()
        exchange(one, other)
        git = ["git", "--git-dir", str(server)]
        subprocess.run([*git, "gc", "-q"], check=True)
        subprocess.run([*git, "bundle", "create", "-q", str(bundle), "--all"], check=True)
        return {
            "entries": [[one.number, one.trailers] for one in log_of(server)],
            "files": {path: content.decode() for path, content in places[0].files().items()},
            "proposals": [one.message for one in one.proposal_list().proposals],
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
