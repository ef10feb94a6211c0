"""Measures calls of `editctl` and `editd-hook`, through the resident command process and without it.

    python tests/bench/command_start.py [RUNS] [FILES]

Prints wall time and CPU time of all processes a call: the command, the resident process and its forks, and
the daemon. The ways take turns, and each row has the ratio to `git log -n 5` in the same repository.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

BIN = Path(sys.executable).parent
TICK = os.sysconf("SC_CLK_TCK")
EDIT = {
    "hook_event_name": "PreToolUse", "session_id": "bench-session", "tool_name": "Edit",
    "tool_input": {"file_path": "0/0.txt", "old_string": "a", "new_string": "b"}, "tool_use_id": "call",
}  # fmt: skip
CALLS = {
    "status": ("editctl", "status"),
    "log -n 5": ("editctl", "log", "-n", "5"),
    "read": ("editctl", "read", "0/0.txt"),
    "undo": ("editctl", "undo"),
    "editd-hook": ("timeout", "60", str(BIN / "editd-hook"), "claude"),  # `timeout` is the agent
}


class Site:
    """A repository of some files with its daemon, in folders that go with it."""

    def __init__(self, folder: Path, files: int) -> None:
        self.root = folder / "workspace"
        self.environment = {
            **os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "XDG_STATE_HOME": str(folder),
        }  # fmt: skip
        for at in range(files):
            path = self.root / str(at // 100) / f"{at % 100}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{at}\n")
        for words in ("init -q", "add ."):
            self.run("git", *words.split())
        for _ in range(11):
            self.run("git", "-c", "user.name=b", "-c", "user.email=b@example.invalid", "commit", "-q",
                     "--allow-empty", "-m", "bench")  # fmt: skip
        self.run(str(BIN / "editctl"), "start")
        self.number = 0

    def run(self, *argv: str, stdin: str = "", **variables: str) -> None:
        subprocess.run(
            argv, cwd=self.root, env={**self.environment, **variables}, input=stdin.encode(),
            stdout=subprocess.PIPE, check=True,
        )  # fmt: skip

    def edit(self) -> None:
        """Make an edit for an undo to take back."""
        self.number += 1
        path = f"0/{self.number % 100}.txt"
        self.run(str(BIN / "editctl"), "write", path, "--force", stdin=f"edit {self.number}\n")

    def others_cpu(self) -> float:
        """Return the CPU seconds so far of all processes that serve these folders."""
        total = 0
        for process in Path("/proc").iterdir():
            try:
                line = (process / "cmdline").read_bytes()
                if process.name.isdecimal() and os.fsencode(self.root.parent) in line:
                    fields = (process / "stat").read_text().rpartition(") ")[2].split()
                    total += sum(map(int, fields[11:15]))  # with the children that have been waited for
            except OSError:
                continue
        return total / TICK

    def calls(self, argv: tuple[str, ...], count: int, way: str) -> tuple[list[float], float]:
        """Return the seconds of each call, and the CPU seconds of all processes for one."""
        program = str(BIN / argv[0]) if argv[0] == "editctl" else argv[0]
        stdin = json.dumps({**EDIT, "cwd": str(self.root)}) if argv[0] == "timeout" else ""
        walls, cpu = [], 0.0
        for _ in range(count):
            if "undo" in argv:
                self.edit()
            before = own_cpu() + self.others_cpu()
            began = time.perf_counter()
            self.run(program, *argv[1:], stdin=stdin, EDITD_RESIDENT=way)
            walls.append(time.perf_counter() - began)
            cpu += own_cpu() + self.others_cpu() - before
        return walls, cpu / count


def own_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    files = int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    print(f"load {os.getloadavg()[0]:.1f}, {runs} calls of each, {files} files")
    with tempfile.TemporaryDirectory(prefix="editd-bench-") as folder:
        site = Site(Path(folder), files)
        site.edit()
        site.run(str(BIN / "editctl"), "status", EDITD_RESIDENT="yes")  # starts the resident process
        time.sleep(1)
        try:
            compare(site, runs)
        finally:
            site.run(str(BIN / "editctl"), "stop")


def compare(site: Site, runs: int) -> None:
    """Print each call by both ways, in turn by groups of five."""
    walls: dict[tuple[str, str], list[float]] = {}
    cpus: dict[tuple[str, str], list[float]] = {}
    ways = {**CALLS, "git log": ("git", "log", "-n", "5")}
    for _ in range(max(1, runs // 5)):
        for name, argv in ways.items():
            for way in ("yes", "no"):
                times, cpu = site.calls(argv, 5, way)
                walls.setdefault((name, way), []).extend(times)
                cpus.setdefault((name, way), []).append(cpu)
    git = median(walls["git log", "yes"])
    print(f"{'call':12} {'way':9} {'wall ms':>8} {'x git':>6} {'CPU ms':>7}")
    for (name, way), times in walls.items():
        label = "resident" if way == "yes" else "own"
        cpu = sum(cpus[name, way]) / len(cpus[name, way])
        print(f"{name:12} {label:9} {median(times) * 1000:8.1f} {median(times) / git:6.1f} {cpu * 1000:7.1f}")


if __name__ == "__main__":
    main()
