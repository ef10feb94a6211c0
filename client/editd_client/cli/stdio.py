"""Standard input, output and error of `editctl`, wherever they lead: to a full disk, to nobody, nowhere."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutputError(Exception):
    """The answer could not be written, and what it tells of has been done."""


def open_closed_descriptors() -> None:
    """Put /dev/null on each of descriptors 0, 1 and 2 that is closed, so that no other file gets it."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """While this lasts, standard output is written to. Raises Unwritten where it cannot be."""
    try:
        yield
    except OSError as error:
        # Whoever reads has enough, which is no failure; or it is a file's, which has a name.
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise
        raise OutputError(error.strerror) from error


def flush() -> None:
    """Write out what has been said. Raises Unwritten where that cannot be written."""
    with writing():
        sys.stdout.flush()


def print_error(line: str) -> None:
    """A line on standard error, which is nothing to fail of: what it goes with is done all the same."""
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def abandon() -> None:
    """Have Python, at its end, not try once more to write what could not be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
