"""This host as a member of a log: the server, its name in the log, and the files that it keeps back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.excluded_paths import ExcludedPaths, staying_paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.values.path import WorkspacePath


class Member(Struct, frozen=True):
    """This host as a member of a log: the log on a server, and the name of the host in it."""

    url: str
    ref: str
    host: str
    exclude: tuple[str, ...]
    excluded: tuple[ExcludedPaths, ...]  # the rules of the history since this host has joined
    sockets: str  # a folder for the connection that ssh keeps
    held: tuple[tuple[str, int], ...] = ()  # paths that cannot be written here, since when
    released: tuple[tuple[str, int, int], ...] = ()  # paths that were held, since when and until when
    earlier: int | None = None  # the oldest transaction of this host that the log had when the host joined

    @property
    def queues(self) -> str:
        """The folder of refs that has the hosts' queues."""
        return f"refs/editd/{self.ref.removeprefix('refs/').removeprefix('heads/editd/')}/queues/"

    def chooser(self) -> Callable[[WorkspacePath], bool]:
        """Return a predicate: whether a path may leave this host (L9)."""
        stays = staying_paths(self.exclude, self.excluded)
        return lambda path: not stays(path)

    def sender(self) -> Callable[[WorkspacePath], bool]:
        """Return a predicate: whether this host would send a path now."""
        may_leave, held = self.chooser(), {path for path, _ in self.held}
        return lambda path: path.text not in held and may_leave(path)
