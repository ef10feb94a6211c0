"""Standard input, output and error of `editctl`: closed descriptors, a full disk, a reader that left."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutputError(Exception):
    """The answer could not be written, although the request was carried out."""


def open_closed_descriptors() -> None:
    """Open /dev/null on each closed descriptor of 0, 1 and 2, so that no other file gets its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Convert an error of writing standard output during the block to an OutputError."""
    try:
        yield
    except OSError as error:
        # A reader that stops early is no failure. An error with a file name comes from another file.
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise
        raise OutputError(error.strerror) from error


def flush() -> None:
    """Flush standard output. Raises OutputError if it cannot be written."""
    with writing():
        sys.stdout.flush()


def print_error(line: str) -> None:
    """Print a line on standard error, and ignore failure: the request was carried out anyway."""
    with contextlib.suppress(OSError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def abandon() -> None:
    """Keep Python from flushing unwritable output once more at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
