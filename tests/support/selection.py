"""The tests of what a change touches: `python -m tests`, within a minute.

A test touches a changed file if it imports it, or imports a module that does, and so on. Those that import it
most directly run first. A file that is no Python is touched by the tests that name it. A test with a daemon
touches nearly all of the code in this way, so there is a budget: `--seconds`. What it leaves out is counted.

    python -m tests                     the changes that are not committed; if there are none, the last commit
    python -m tests --since main        all changes since a branch left `main`
    python -m tests --list              the files of tests, nearest first, with their seconds
    python -m tests -- -x --pdb         the words after `--` are pytest's

The seconds of each file are those of its last run here. The exit status is pytest's.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

TOP = Path(__file__).resolve().parents[2]
SOURCES = {"daemon": TOP / "daemon", "client": TOP / "client"}  # packages by their own names
BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # of statements: no expression imports
SECONDS_FILE = TOP / ".pytest_cache/v/editd/seconds"  # written by `conftest`
GUESS_SECONDS = 2.0  # of a file of tests that never ran here
FORK_SERVER = "forked_process.py"  # it has imported the whole daemon: its tests are further away
FAR = 10  # hops


def changed_files(since: str | None) -> list[Path]:
    """Return the files that differ from a revision, new ones included."""
    base = "HEAD" if since is None else _git("merge-base", since, "HEAD").strip()
    names = [*_lines("diff", "--name-only", base), *_lines("ls-files", "--others", "--exclude-standard")]
    if not names and since is None:
        names = _lines("diff", "--name-only", "HEAD~1", "HEAD")
    return [TOP / name for name in names]


def nearest_tests(changed: Iterable[Path]) -> dict[Path, int]:
    """Return the files of tests that touch the changed files, with the imports in between, nearest first."""
    changed = list(changed)
    importers = _importers()
    hops = {path: 0 for path in changed if path.suffix == ".py"}
    for path in changed:
        hops |= dict.fromkeys(_twins(path), 0)
        if path.suffix != ".py" or not path.exists():
            hops |= {test: 1 for test in _naming(path) if test not in hops}
    pending = sorted(hops, key=lambda path: hops[path])
    while pending:
        path = pending.pop(0)
        for importer in importers[path]:
            far = hops[path] + (FAR if importer.name == FORK_SERVER else 1)
            if far < hops.get(importer, far + 1):
                hops[importer] = far
                pending.append(importer)
    tests = {path: hops[path] for path in hops if path.name.startswith("test_") and path.exists()}
    return dict(sorted(tests.items(), key=lambda item: (item[1], item[0])))


@cache
def _importers() -> dict[Path, set[Path]]:
    """Return the files that import each file. An import for types alone is none."""
    files = {path: _names_of(path) for path in _python_files()}
    by_name = {name: path for path, names in files.items() for name in names}
    importers: dict[Path, set[Path]] = defaultdict(set)
    for path in files:
        for name in imported_modules(ast.parse(path.read_bytes()).body):
            if (target := by_name.get(name)) is not None and target != path:
                importers[target].add(path)
    for path in files:  # what a `conftest` changes is seen by the tests of its folder
        if path.name == "conftest.py":
            importers[path] |= {other for other in files if path.parent in other.parents and other != path}
    return importers


def _python_files() -> Iterator[Path]:
    for folder in (*SOURCES.values(), TOP / "tests"):
        yield from (path for path in folder.rglob("*.py") if "node_modules" not in path.parts)


def _names_of(path: Path) -> list[str]:
    """Return the names by which a file can be imported."""
    for root in SOURCES.values():
        if root in path.parents:
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            return [name.removesuffix(".__init__")]
    return [path.stem, *(_module_below(root, path) for root in (TOP, TOP / "tests"))]


def _module_below(root: Path, path: Path) -> str:
    return ".".join(path.relative_to(root).with_suffix("").parts)


def imported_modules(statements: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the modules that statements import, wherever they do, and the names that may be modules."""
    for node in statements:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            for block in BLOCKS:
                yield from imported_modules(getattr(node, block, ()))


def _twins(path: Path) -> list[Path]:
    """Return the tests that bear the name of a source file."""
    return [] if path.suffix != ".py" else list((TOP / "tests").rglob(f"test_{path.stem}.py"))


def _naming(path: Path) -> list[Path]:
    """Return the tests whose text names a file, or the folder that it is in."""
    named = (
        {path.name} if path.parent == TOP else {path.name, f'"{path.parent.name}"', f"{path.parent.name}/"}
    )
    tests = (TOP / "tests").rglob("test_*.py")
    return [test for test in tests if any(name in test.read_text() for name in named)]


def within(seconds: float, tests: Iterable[Path], known: Mapping[str, float]) -> list[Path]:
    """Return the nearest tests that take so many seconds together, and the nearest in any case."""
    chosen: list[Path] = []
    for test in tests:
        takes = known.get(str(test.relative_to(TOP)), GUESS_SECONDS)
        if takes <= seconds or not chosen:
            seconds -= takes
            chosen.append(test)
    return chosen


def _known_seconds() -> dict[str, float]:
    try:
        return dict(json.loads(SECONDS_FILE.read_text()))
    except FileNotFoundError:
        return {}


def _git(*argv: str) -> str:
    return subprocess.run(["git", "-C", TOP, *argv], check=True, capture_output=True, text=True).stdout


def _lines(*argv: str) -> list[str]:
    return _git(*argv).splitlines()


def main() -> int:
    """Choose the tests, say which, and run them."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", metavar="REVISION", help="all changes since this left it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all tests (default: 60)")
    parser.add_argument("--processes", type=int, default=4, help="that run tests (default: 4)")
    parser.add_argument("--list", action="store_true", help="only list the files of tests")
    parser.add_argument("pytest", nargs="*", help="words for pytest, after --")
    options = parser.parse_args()
    changed = changed_files(options.since)
    known = _known_seconds()
    tests = nearest_tests(changed)
    if options.list:
        for test, hops in tests.items():
            name = str(test.relative_to(TOP))
            print(f"{known.get(name, GUESS_SECONDS):7.1f} s  {hops:2} imports  {name}")
        return 0
    chosen = within(options.seconds * options.processes / 2, tests, known)
    print(f"{len(changed)} changed files touch {len(tests)} files of tests; the nearest {len(chosen)} run.")
    if not chosen:
        return 0
    argv = [sys.executable, "-m", "pytest", "-n", str(options.processes), *map(str, chosen), *options.pytest]
    return subprocess.run(argv, cwd=TOP, check=False).returncode
