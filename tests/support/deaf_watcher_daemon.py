"""A daemon whose watcher can be killed: SIGUSR1 makes it deaf without a word, SIGUSR2 ends its thread.

`python deaf_watcher_daemon.py PYTHON -m editd ARGUMENT...`, as a launcher.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

from editd.cli import main
from editd.system.fs_watch import FolderEmitter


def emitter() -> FolderEmitter:
    return next(one for one in threading.enumerate() if isinstance(one, FolderEmitter))


def deafen(*_: object) -> None:
    """Put a pipe in which nothing ever comes in the place of the kernel's queue."""
    reading, _writing = os.pipe()
    os.dup2(reading, emitter()._queue)


def end(*_: object) -> None:
    ident = emitter().ident
    assert ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(SystemExit))
    emitter()._wake()


signal.signal(signal.SIGUSR1, deafen)
signal.signal(signal.SIGUSR2, end)
sys.argv[1:] = sys.argv[4:]
main()
