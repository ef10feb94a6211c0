"""The place of the helper: a socket in the user's runtime folder, named after all that its callers share.

Another version, interpreter, sandbox or environment of Python gives another name, and so another helper.
"""

from __future__ import annotations

import _blake2
import marshal
import os
import stat
import sys

from editd import __version__
from editd.config.runtime_folder import socket_folder
from editd_client.resident.routes import interpreter_variables
from editd_client.resident.state import State, state_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFIX = "resident-"
DIGEST_BYTES = 10
FORMAT = 1  # of the messages

FLAGS = (("isolated", "-I"), ("ignore_environment", "-E"), ("no_user_site", "-s"))


class HelperKey:
    """The state and the interpreter of this process, which a helper must share."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.variables = interpreter_variables(os.environ)
        binary = os.stat(sys.executable)
        shared: tuple[Any, ...] = (
            FORMAT, __version__, os.path.dirname(__file__), sys.executable, binary.st_ino, binary.st_mtime_ns,
            self.flags, list(self.variables.items()), state,
        )  # fmt: skip
        self._digest = _blake2.blake2b(marshal.dumps(shared, 2), digest_size=DIGEST_BYTES).hexdigest()

    @property
    def flags(self) -> list[str]:
        """The options of the interpreter that choose its modules."""
        return [option for name, option in FLAGS if getattr(sys.flags, name)]

    @property
    def path(self) -> str:
        """The path of the socket."""
        return os.path.join(socket_folder(), f"{PREFIX}{self._digest}")


def key() -> HelperKey:
    """Return the key of this process. Raises Unknown."""
    return HelperKey(state_of(os.getpid()))


def check(path: str) -> None:
    """Raise OSError unless the folder and the socket are this user's alone."""
    check_folder(os.path.dirname(path))
    status = os.lstat(path)
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(1, "it is no socket of this user")


def check_folder(folder: str) -> None:
    """Raise OSError unless the folder is this user's alone, and no link."""
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(1, "its folder is open to others")


def start_helper(key: HelperKey) -> None:
    """Start a helper in the background, for later calls, with nothing of this process but its state."""
    argv = [sys.executable, "-P", *key.flags, "-m", "editd_client.resident.helper", key.path]
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        os.posix_spawn(sys.executable, argv, key.variables, file_actions=null, setsid=True)
    except (OSError, NotImplementedError):
        return  # each call runs in a process of its own, as this one does
