"""The reach of a command: the paths that it may write to, and the sockets that it may make.

`confine` of `system.confinement` and a network without neighbours hold it. A system may lack a part of
that: `unheld` names the loss, which `status` shows in `weaker`.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from editd.system.confinement import confine, has_filter, landlock_version
from editd.system.namespaces import can_leave_network, leave_network

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from editd.system.frames import Frame

FILES, NETWORK, UNIX_SOCKETS, PROCESSES = (
    "files",
    "network",
    "unix_sockets",
    "processes",
)  # the names of what a system cannot keep from a command


class CommandReach(Struct, frozen=True):
    """The paths that a command may write to beside its scratch folder, and the sockets that it may make."""

    writable: tuple[str, ...] = ()
    network: bool = False
    unix_sockets: bool = False

    @classmethod
    def of(
        cls, writable: Sequence[str] | None, network: bool | None, unix_sockets: bool | None
    ) -> CommandReach | None:
        """Return the reach of an entry with these keys; None for an old entry, which has none of them."""
        if writable is None and network is None and unix_sockets is None:
            return None
        return cls(tuple(writable or ()), bool(network), bool(unix_sockets))

    def unheld(self) -> list[str]:
        """Return the names of what this system cannot keep from the command. Call it with one thread."""
        lost = [] if landlock_version() else [FILES]
        if not self.network and not can_leave_network() and _has_internet():
            lost.append(NETWORK)
        if not has_filter():
            lost += [PROCESSES] if self.unix_sockets else [UNIX_SOCKETS, PROCESSES]
        return lost

    def enter(self, own: Iterable[str], unheld: Collection[str], *, has_left: bool = False) -> None:
        """Confine this process, which is about to become the command, to `own` paths and its reach.

        It has left the network already if `has_left`. Raises OSError.
        """
        if not self.network and NETWORK not in unheld and not has_left and _has_internet():
            leave_network()
        writable = [*own, *map(os.path.expanduser, self.writable)]
        confine(writable, network=True, unix_sockets=self.unix_sockets)


def reach_of_frame(frame: Mapping[str, Any] | None) -> CommandReach | None:
    """Return the reach that a request names."""
    return (
        None
        if frame is None
        else CommandReach(tuple(frame["writable"]), frame["network"], frame["unix_sockets"])
    )


def reach_frame(reach: CommandReach | None) -> Frame | None:
    """Return a reach as a request names it."""
    return None if reach is None else asdict(reach)


def unheld_sentence(name: str, lost: Sequence[str]) -> str:
    """Return the sentence of `weaker` about a command that this system did not confine."""
    words = {
        FILES: "write to other paths than `writable`",
        NETWORK: "reach the network",
        UNIX_SOCKETS: "connect to Unix sockets",
        PROCESSES: "change the limits and priorities of other processes",
    }
    return f"The {name} could {' and '.join(words[one] for one in lost)}: this system cannot hold it."


def _has_internet() -> bool:
    """Return whether this process can make a socket of the internet; systemd may forbid that."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True
