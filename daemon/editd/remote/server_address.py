"""The address of the repository on a server, and the reasons to refuse one.

Git takes more than servers for a URL: programs (`ext::`), descriptors (`fd::`), options, and files. A folder
that clients can write to is no server, because git runs the hooks in it. So the address is parsed here, and
git gets only the kinds that `_SCHEMES` names, or the real path of a folder.

Needs neither git nor libgit2: the daemon asks before it starts anything.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

from editd.errors import InvalidParams
from editd.system.git_command import without_credentials
from editd.system.git_paths import git_folder
from editd.system.real_paths import ThroughProcess, is_within, real_path
from editd.system.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator

_SSH = ("ssh", "git+ssh", "ssh+git")
_SCHEMES = frozenset({*_SSH, "git", "http", "https", "file"})
_HELPER = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]*)::")
_SCHEME = re.compile(r"([A-Za-z0-9][A-Za-z0-9+.-]*)://")
ROOT = "root"  # the file of a state folder that has the path of the workspace
_SHORT = re.compile(r"((?:[^/:@]+@)?\[[^]/]+\]|[^/:]+):(.*)")  # `me@server:path`, as scp takes it
_SUFFIXES = ("/.git", "", ".git/.git", ".git")  # that git tries in this order: enter_repo in its path.c
_PATH_HINT = "Name a repository on a server, or the whole path of one in a folder outside of all workspaces."


class ServerRepository(NamedTuple):
    """A repository in a folder of this machine: git's own folder in it, without symlinks."""

    folder: str
    is_own: bool
    """Whether its folder belongs to the user."""


class ServerAddress(Struct, frozen=True):
    """The URL of a repository, of a kind that editd hands to git. Created only by `parse`."""

    url: str
    path: str | None
    """The absolute path, if the server is a folder of this machine."""
    ssh_host: str | None
    """The host, with its user, if git reaches it by ssh."""

    @classmethod
    def parse(cls, url: str) -> ServerAddress:
        """Parse a URL as git does. Raises InvalidParams if it names no server."""
        if not url or url.startswith("-") or not url.isprintable():
            raise _refusal(url, "is not the URL of a repository")
        if helper := _HELPER.match(url):
            raise _refusal(url, f"asks git to run the program `git-remote-{helper[1]}`")
        if scheme := _SCHEME.match(url):
            return cls._of_scheme(url, scheme[1], url[scheme.end() :])
        if short := _SHORT.match(url):
            return cls(url, None, _without_port(_checked_host(url, short[1], short[2])))
        return cls(url, _absolute(url, url), None)

    @classmethod
    def _of_scheme(cls, url: str, scheme: str, rest: str) -> ServerAddress:
        if scheme not in _SCHEMES:
            raise _refusal(url, f"has the unknown scheme {scheme!r}")
        if scheme == "file":
            return cls(url, _absolute(url, os.fsdecode(unquote_to_bytes(os.fsencode(rest)))), None)
        host = _checked_host(url, rest.partition("/")[0], rest)
        return cls(url, None, _without_port(host) if scheme in _SSH else None)

    @property
    def is_by_git(self) -> bool:
        """Whether git reads the refs of a folder, and not libgit2: its URL begins with `file://`."""
        return "://" in self.url

    def repository(self, histories: str) -> ServerRepository | None:
        """Return the repository of a server that is a folder; None if there is none, or for another server.

        `histories` has the state folders of all workspaces. Raises InvalidParams for a folder that is no
        server: see `_check_folder`.
        """
        if self.path is None:
            return None
        try:
            return self._repository(self.path, histories)
        except ThroughProcess:
            raise _refusal(self.url, "leads through /proc, into another process") from None
        except OSError as error:
            raise _refusal(self.url, f"cannot be resolved: {error.strerror}") from error

    def target(self, repository: ServerRepository | None) -> str:
        """Return the URL for git: the resolved folder's, if the server is a folder."""
        if repository is None:
            return self.url
        return f"file://{quote(os.fsencode(repository.folder))}" if self.is_by_git else repository.folder

    def _repository(self, path: str, histories: str) -> ServerRepository | None:
        self._check_folder(real_path(path), histories)
        for suffix in _SUFFIXES:
            candidate = real_path(path + suffix)
            kind = _kind(candidate)
            if kind == stat.S_IFREG and not suffix.endswith("/.git"):
                raise _refusal(self.url, "is a file, such as a bundle, and not a repository")
            own = git_folder(os.fsencode(candidate)) if kind is not None else None
            if own is None or not os.path.lexists(os.path.join(own, b"HEAD")):
                continue
            folder = real_path(os.fsdecode(own))
            for one in (folder, *_common_folder(folder)):
                self._check_folder(one, histories)
            return ServerRepository(folder, os.stat(folder).st_uid == os.geteuid())
        return None

    def _check_folder(self, folder: str, histories: str) -> None:
        """Refuse a folder in a workspace, or with a workspace in it: clients can write to its hooks."""
        if is_within(folder, histories):
            raise _refusal(self.url, "is in the folder of editd's own histories")
        for root in workspaces_in(histories):
            if is_within(folder, root):
                raise _refusal(self.url, f"is inside the workspace {root}, and clients can edit its hooks")
            if is_within(root, folder):
                raise _refusal(self.url, f"has the workspace {root} in it, and clients can edit that")


def workspaces_in(histories: str) -> list[str]:
    """Return the top folder of each workspace that has a state folder in `histories`."""
    roots: list[str] = []
    for name in sorted(os.listdir(histories)):
        try:
            with open_regular(os.path.join(histories, name, ROOT)) as file:
                roots.append(os.fsdecode(file.read().removesuffix(b"\n")))
        except (FileNotFoundError, NotADirectoryError):
            continue  # a state folder that is being made, or another file
    return roots


def _refusal(url: str, reason: str) -> InvalidParams:
    return InvalidParams(f"{without_credentials(url)!r} {reason}.", hint=_PATH_HINT)


def _checked_host(url: str, host: str, path: str) -> str:
    """Return the host of a URL. A host or a path like an option is refused, as git does too."""
    name = host.rpartition("@")[2]
    if not name or name.startswith("-") or host.startswith("-") or path.startswith("-"):
        raise _refusal(url, "names no host")
    return host


def _without_port(host: str) -> str:
    """Return a host with its user, as ssh takes it: an address of IPv6 without its brackets."""
    user, at, name = host.rpartition("@")
    address = re.match(r"\[([^]]+)\]", name)
    return user + at + (address[1] if address else name.partition(":")[0])


def _absolute(url: str, path: str) -> str:
    if not path.startswith("/"):
        raise _refusal(url, "has no absolute path")
    if "\0" in path or not path.isprintable():
        raise _refusal(url, "is not the URL of a repository")
    return path


def _kind(path: str) -> int | None:
    """Return the kind of a file, symlinks followed; None if there is none."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _common_folder(folder: str) -> Iterator[str]:
    """Yield the folder with the hooks and the refs of a linked work tree (gitrepository-layout(5))."""
    try:
        with open_regular(os.path.join(folder, "commondir")) as file:
            common = os.fsdecode(file.read(4096).rstrip(b"\r\n"))
    except FileNotFoundError:
        return
    yield real_path(os.path.join(folder, common))
