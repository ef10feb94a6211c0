"""The lineage of a process, and its kin: the programs that the same program has started.

Two processes are kin if one program started both of them, unless it is common ground. Common ground are the
programs that people start others from: init, sshd, a terminal, a multiplexer, or a shell that leads its
terminal session. So an agent cannot approve from its own shell. In an editor the agent, the terminal and the
extension all descend from the editor, so kin are not refused outright: they need the PIN.

This is a guard rail, as sessions are. A process of the same user can leave its line of processes.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from editd.config.program_names import LAUNCHERS, SHELLS

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from editd.system.process import Process, ProcessKey

# The kernel cuts a program's name to 15 bytes.
GROUND = frozenset(
    (
        "tmux: server", "screen", "zellij", "sshd", "sshd-session", "login", "systemd", "init", "kitty",
        "alacritty", "wezterm-gui", "foot", "gnome-terminal-", "konsole", "xterm", "su", "sudo", "runuser",
    )
)  # fmt: skip


def common_program(proposer: Sequence[Process], reviewer: Sequence[Process]) -> str | None:
    """Return the program that started both, if it makes them kin; None if they are no kin.

    Each line begins with the process itself, as `system.process.line_above` gives it. An empty line, of a
    process in another process namespace, has no kin.
    """
    shared = common_process(proposer, reviewer)
    return None if shared is None else shared.program


def common_process(proposer: Sequence[Process], reviewer: Sequence[Process]) -> Process | None:
    """Return the nearest process above both, as the reviewer's line has it; None if they are no kin."""
    starts = {(process.pid, process.start) for process in proposer}
    for process in reviewer:
        if (process.pid, process.start) in starts:
            return None if is_common_ground(process) else process
    return None


def launcher_of(line: Sequence[Process]) -> Process | None:
    """Return the program that has started a server for itself: the first above it that is no launcher."""
    return next((process for process in line[1:] if not _is_launcher(process)), None)


def author_program(line: Sequence[Process], agents: Container[ProcessKey]) -> ProcessKey | None:
    """Return the program whose proposals share one limit, over all its sessions and processes.

    This is the nearest agent, otherwise the highest program that people start directly.
    """
    own = list(takewhile(lambda process: not is_common_ground(process), line))
    agent = next((process for process in line if process.key in agents), own[-1] if own else None)
    return None if agent is None else agent.key


def _is_launcher(process: Process) -> bool:
    is_leader = process.pid == process.session
    return process.program in LAUNCHERS or (process.program in SHELLS and not is_leader)


def is_common_ground(process: Process) -> bool:
    """Return whether people start programs of every kind from this one."""
    is_leader = process.program in SHELLS and process.pid == process.session
    return process.pid == 1 or is_leader or process.program in GROUND
