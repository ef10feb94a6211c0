"""Other ways to keep each state of a workspace, measured beside editd on the same files.

A commit after each edit, a commit to a shadow repository as agents make one, and a checkout of each of the
commits of a real history.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, Literal

import pygit2

from bench.figures import Figure, Row, times_of
from bench.saves import Samples, editing
from editd.wire.messages import Chmod, Delete, Symlink, Write
from support.workplace import files_below

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.figures import Times
    from bench.sites import Bench, Site
    from editd.wire.messages import AnyEdit

EDITS = 15  # before each commit
REST_SECONDS = 0.5
COMMITS = 1_000
MODES: dict[int, Literal["100644", "100755"]] = {0o100644: "100644", 0o100755: "100755"}
BLOCK_COMMITS = 50  # replayed in a row, then checked out in a row


def git(bench: Bench) -> Row:
    """`git add -A && git commit` after edits, over an edit. git syncs nothing."""
    figures, rows = [], []
    for files in bench.sizes(10_000, 100_000):
        site = bench.site(files)
        directory = str(site.root / ".git")

        def commit(site: Site = site, directory: str = directory) -> Callable[[], object]:
            return lambda: run(site, directory, ["add", "-A"], ["commit", "-qm", "one"])

        label = f"git add -A, git commit at {files:,} files"
        ratio, row = beside_edits(bench, site, {label: commit})
        name = f"git-{files if bench.is_full else 10_000}"
        figures.append(Figure(name, ratio[label], f"{files:,} files", bench.is_full))
        rows.append(row)
    return Row(figures, [times for row in rows for times in row])


def shadow(bench: Bench) -> Row:
    """A commit to a shadow repository, a git folder beside the workspace: as Cline and Gemini CLI do."""
    (files,) = bench.sizes(100_000)
    site = bench.site(files)
    directory = str(site.place.folder / "shadow")
    run(site, directory, ["init", "-q"], ["config", "gc.auto", "0"])
    with open(f"{directory}/info/exclude", "a") as file:
        file.write("*.raw*\n")
    run(site, directory, ["add", "."], ["commit", "-qm", "all"])

    def like_cline() -> Callable[[], object]:
        return lambda: run(
            site, directory, ["add", ".", "--ignore-errors"], ["commit", "-q", "--allow-empty", "-m", "one"]
        )

    def like_gemini() -> Callable[[], object]:
        return lambda: run(site, directory, ["add", "."], ["status"], ["commit", "-qm", "one"])

    ratio, times = beside_edits(bench, site, {"as Cline": like_cline, "as Gemini CLI": like_gemini})
    return Row([Figure("shadow-100000", ratio["as Cline"], f"{files:,} files", bench.is_full)], times)


def beside_edits(
    bench: Bench, site: Site, commits: dict[str, Callable[[], Callable[[], object]]]
) -> tuple[dict[str, float], list[Times]]:
    connection, samples = site.connection(), Samples()
    edits = editing(connection, site.paths)
    for _ in range(bench.pick(3, 9)):
        for label, commit in commits.items():
            samples.take(f"edit before {label}", edits, EDITS)
            time.sleep(REST_SECONDS)
            samples.take(label, commit, 1)
    connection.close()
    return {label: samples.ratio(label, f"edit before {label}") for label in commits}, samples.times()


def run(site: Site, directory: str, *commands: list[str]) -> None:
    """Run git commands on the workspace with this git folder."""
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for arguments in commands:
        git = ["git", f"--git-dir={directory}", f"--work-tree={site.root}", *identity, *arguments]
        subprocess.run(git, cwd=site.root, env=site.place.environment, stdout=subprocess.DEVNULL, check=True)


def replay(bench: Bench) -> Row:
    """The commits of a repository as one transaction each, over `git checkout` of each."""
    site = bench.empty("replay")
    clone = site.place.folder / "clone"
    subprocess.run(["git", "clone", "-q", "--no-checkout", bench.repository, clone], check=True)
    listed = checkout(site, clone, ["rev-list", "--first-parent", "--reverse", "HEAD"]).split()
    commits = listed[-bench.pick(60, COMMITS) - 1 :]
    checkout(site, clone, ["checkout", "-q", commits[0]])
    repository = pygit2.Repository(str(clone))
    site.client.apply(difference(repository, None, commits[0]))
    editd, checkouts = [], []
    for block in range(1, len(commits), BLOCK_COMMITS):
        changes = [
            (commits[number], difference(repository, commits[number - 1], commits[number]))
            for number in range(block, min(block + BLOCK_COMMITS, len(commits)))
        ]
        for commit, edits in changes:
            if edits:
                start = time.perf_counter()
                site.client.apply(edits, message=commit)
                editd.append((time.perf_counter() - start) * 1e6)
        for commit, edits in changes:
            if edits:
                start = time.perf_counter()
                checkout(site, clone, ["checkout", "-q", commit])
                checkouts.append((time.perf_counter() - start) * 1e6)
    assert site.place.files() == dict(files_below(clone))
    bench.drop("replay")
    times = [times_of("replay of a commit", editd), times_of("git checkout of it", checkouts)]
    text = f"{len(editd)} commits"
    return Row([Figure("replay", sum(checkouts) / sum(editd), text, bench.is_full)], times)


def checkout(site: Site, clone: Path, arguments: list[str]) -> str:
    git = ["git", "-C", str(clone), "-c", "advice.detachedHead=false", *arguments]
    return subprocess.run(git, env=site.place.environment, capture_output=True, text=True, check=True).stdout


def difference(repository: pygit2.Repository, before: str | None, after: str) -> list[AnyEdit]:
    """Return the edits that lead from one commit to another, deletions first."""
    tree = repository[after].peel(pygit2.Tree)
    if before is None:
        changes = tree.diff_to_tree(swap=True)
    else:
        changes = repository[before].peel(pygit2.Tree).diff_to_tree(tree)
    deletions: list[AnyEdit] = []
    others: list[AnyEdit] = []
    for delta in changes.deltas:
        old, new = delta.old_file, delta.new_file
        is_typechange = bool(old.mode) and bool(new.mode) and old.mode >> 12 != new.mode >> 12
        if not new.mode or is_typechange:
            deletions.append(Delete(path=old.path))
        if not new.mode:
            continue
        content = repository[new.id].peel(pygit2.Blob).data.decode("utf-8", "surrogateescape")
        if new.mode == pygit2.GIT_FILEMODE_LINK:
            others.append(Symlink(path=new.path, target=content))
        elif old.id == new.id and not is_typechange:
            others.append(Chmod(path=new.path, executable=new.mode == pygit2.GIT_FILEMODE_BLOB_EXECUTABLE))
        else:
            others.append(Write(path=new.path, content=content, mode=MODES[new.mode], force=True))
    return deletions + others


MEASUREMENTS: Sequence[Callable[[Bench], Row]] = (git, shadow, replay)
