"""The mutation run: make each mistake of `mutants.toml` in a copy, and see whether a test notices.

`python -m tests.mutants` runs all of them, `python -m tests.mutants C03 J05` only these. It prints one line
for each as it is done, then the score. Exit status 1: a mistake was not noticed, and has no reason why it
cannot be.

A mistake's own tests run up to the first failure. `--then tests/store tests/crash` adds further tests, for a
mistake that was made without a look at the tests. `--results FILE` keeps each verdict. After an interruption,
the same command skips the mistakes in that file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

TOP = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.toml")
SOURCES = (("daemon/editd", "*.py"), ("client/editd_client", "*.py"), ("client/editors/vscode/src", "*.ts"))
COPIED = ("daemon", "client", "tests", "docs", "systemd", "pyproject.toml", "README.md", "CHANGELOG.md")
TEST_SECONDS = 600  # for the tests of one mutant, by default; if they take longer, the mistake has hung them
FAILED, TIMED_OUT, ALL_SKIPPED = 1, -1, -2  # pytest's exit status where a test fails; ours otherwise


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake: `old` becomes `new` in the one file that contains it."""

    id: str
    promise: str  # of docs/promises.md or docs/commit.md, or the part of the product that it breaks
    mistake: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str | None = None  # why no test can notice it
    long: bool = False  # its tests are of the long form

    @property
    def pattern(self) -> re.Pattern[str]:
        """Match `old` at any indentation, each of its lines indented alike."""
        first, *others = self.old.split("\n")
        if not others:
            return re.compile(re.escape(first))
        below = "".join(f"\n(?P=indent){re.escape(line)}" if line else "\n" for line in others)
        return re.compile(rf"^(?P<indent>[ ]*){re.escape(first)}{below}", re.MULTILINE)

    def apply(self, text: str) -> str:
        """Return `text` with the mistake in it."""

        def mistaken(match: re.Match[str]) -> str:
            line = text[text.rfind("\n", 0, match.start()) + 1 :]
            indent = line[: len(line) - len(line.lstrip(" "))]
            made = self.new.replace("\n", f"\n{indent}")
            return indent + made if "indent" in match.groupdict() and made else made

        return self.pattern.sub(mistaken, text)


def load() -> list[Mutant]:
    """Return the list, in its order."""
    tables = tomllib.loads(LIST.read_text())["mutant"]
    return [Mutant(**{**table, "tests": tuple(table["tests"])}) for table in tables]


def sources(top: Path) -> dict[Path, str]:
    """Return the texts that mistakes are made in."""
    return {file: file.read_text() for folder, name in SOURCES for file in sorted((top / folder).rglob(name))}


def places(mutant: Mutant, texts: Mapping[Path, str]) -> list[Path]:
    """Return the file of each place that the mistake fits; there should be exactly one."""
    first = mutant.old.partition("\n")[0]
    near = [file for file, text in texts.items() if first in text]
    return [file for file in near for _ in mutant.pattern.finditer(texts[file])]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the tests made of a mutant."""

    mutant: Mutant
    file: str
    status: int
    seconds: float
    output: str

    @property
    def noticed_by(self) -> str:
        """The first test that failed, or that the tests did not end; empty if neither."""
        if self.status == TIMED_OUT:
            return f"no end after {self.seconds:.0f} s"
        by = re.search(r"^(?:FAILED|ERROR) (tests/\S+)", self.output, re.MULTILINE)
        return by[1] if by and self.status == FAILED else ""

    @property
    def is_noticed(self) -> bool:
        return bool(self.noticed_by)

    def __str__(self) -> str:
        verdict = "noticed" if self.is_noticed else "SURVIVED" if self.status == 0 else "DID NOT RUN"
        note = self.noticed_by or self.mutant.survives or ("" if self.status == 0 else self.output[-300:])
        return f"{self.mutant.id:5} {verdict:8} {self.seconds:5.1f} s  {self.mutant.mistake}  {note}"


def judge(mutant: Mutant, seconds: float = TEST_SECONDS) -> Verdict:
    """Make the mistake in a copy of the project, and run the tests that should notice for up to `seconds`."""
    with mistaken_copy(mutant) as (copy, file, environment):
        argv = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]  # its options have `-q`
        argv += [f"--basetemp={copy / 'tmp'}", *(["--long"] if mutant.long else []), *mutant.tests]
        began = time.monotonic()
        try:
            run = subprocess.run(
                argv, cwd=copy, env=environment, timeout=seconds,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
            )  # fmt: skip
            status, output = run.returncode, run.stdout
            if status == 0 and not re.search(r"^\d+ passed", output, re.MULTILINE):
                status = ALL_SKIPPED
        except subprocess.TimeoutExpired:
            status, output = TIMED_OUT, ""
        return Verdict(mutant, str(file.relative_to(copy)), status, time.monotonic() - began, output)


@contextlib.contextmanager
def mistaken_copy(mutant: Mutant) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """Yield a copy of the project with the mistake, the file with it, and the environment to run it in."""
    with _scratch_folder() as copy:
        for name in COPIED:
            source = TOP / name
            if source.is_dir():
                shutil.copytree(source, copy / name)  # with bytecode, which is valid for unchanged files
            else:
                shutil.copy(source, copy / name)
        (file,) = places(mutant, sources(copy))
        file.write_text(mutant.apply(file.read_text()))
        paths = os.pathsep.join([str(copy / "daemon"), str(copy / "client")])
        yield copy, file, {**os.environ, "PYTHONPATH": paths}


@contextlib.contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Make a folder, and remove it by rm(1): a mistake may leave folders too deep for `shutil.rmtree`."""
    folder = tempfile.mkdtemp(prefix="editd-mutant-")
    try:
        yield Path(folder)
    finally:
        subprocess.run(["rm", "-rf", folder], check=False)


def score(verdicts: Sequence[Verdict]) -> list[str]:
    """Return the lines of the score, by package; mutants that nothing can notice are not counted."""
    counted = [one for one in verdicts if one.mutant.survives is None and one.status != ALL_SKIPPED]
    packages: dict[str, list[Verdict]] = {}
    for verdict in counted:
        packages.setdefault(verdict.file.split("/")[2], []).append(verdict)
    lines = []
    for package, group in [*sorted(packages.items()), ("all", counted)]:
        noticed = sum(verdict.is_noticed for verdict in group)
        lines.append(f"{package:10} {noticed} of {len(group)}  {noticed / max(1, len(group)):.0%}")
    return lines


class Results:
    """The verdicts of a run, and a file that keeps them, with one JSON document in a line."""

    def __init__(self, path: Path | None, mutants: Sequence[Mutant]) -> None:
        """Read the verdicts on `mutants` that `path` has from an interrupted run."""
        self._path = path
        by_id = {mutant.id: mutant for mutant in mutants}
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        kept = [json.loads(line) for line in lines]
        self.verdicts = [Verdict(by_id[id_], *values) for id_, *values in kept if id_ in by_id]

    def add(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        if self._path is not None:
            kept = [verdict.mutant.id, verdict.file, verdict.status, verdict.seconds, verdict.output]
            with self._path.open("a") as file:
                file.write(json.dumps(kept) + "\n")


def main() -> int:
    """Run the mutants that the command line names, and print the score."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="mutants to try (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="copies that run side by side (default: 2)")
    parser.add_argument(
        "--then", nargs="+", default=[], metavar="TESTS", help="tests to run after the mutant's own"
    )
    parser.add_argument(
        "--seconds", type=float, default=TEST_SECONDS,
        help="time limit for the tests of one mutant (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="keep verdicts here, and skip those there"
    )
    parser.add_argument("--verbose", action="store_true", help="print the tests' output for survivors")
    options = parser.parse_args()
    chosen = [mutant for mutant in load() if not options.ids or mutant.id in options.ids]
    if missing := set(options.ids) - {mutant.id for mutant in chosen}:
        parser.error(f"no such mutant: {', '.join(sorted(missing))}")
    chosen = [
        replace(mutant, tests=tuple(dict.fromkeys([*mutant.tests, *options.then]))) for mutant in chosen
    ]
    results = Results(options.results, chosen)
    done = {verdict.mutant.id for verdict in results.verdicts}
    began = time.monotonic()
    pool = ThreadPoolExecutor(options.jobs)
    try:
        left = [mutant for mutant in chosen if mutant.id not in done]
        for running in as_completed([pool.submit(judge, mutant, options.seconds) for mutant in left]):
            verdict = running.result()
            results.add(verdict)
            minutes = (time.monotonic() - began) / 60
            print(f"{len(results.verdicts):3}/{len(chosen)} {minutes:5.1f} min  {verdict}", flush=True)
            if options.verbose and not verdict.is_noticed:
                print(verdict.output)
    finally:
        pool.shutdown(cancel_futures=True)
    print(*score(results.verdicts), sep="\n")
    survivors = [
        one
        for one in results.verdicts
        if not one.is_noticed and one.mutant.survives is None and one.status != ALL_SKIPPED
    ]
    print("survived:", *sorted(verdict.mutant.id for verdict in survivors))
    return bool(survivors)


if __name__ == "__main__":
    raise SystemExit(main())
