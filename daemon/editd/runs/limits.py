"""The limits of hooks and checks, each with its reason. docs/architecture.md shows them.

A command of a person, such as a trial, has none of them: the person sees it, and ends it.
"""

from __future__ import annotations

from typing import NamedTuple


class CommandLimits(NamedTuple):
    """The limits of all commands of a kind, beside the `seconds` of each."""

    at_once: int  # worker processes; more wait in a queue
    kept_bytes: int  # of a stream of output that is no content
    nice: int


HOOKS = CommandLimits(at_once=4, kept_bytes=64 * 1024, nice=0)  # an edit waits for them
CHECKS = CommandLimits(
    at_once=2, kept_bytes=4 * 4_000, nice=5
)  # edits come first; UTF-8 takes 4 bytes at most
JOB_SECONDS = 600.0  # for all hooks of one edit together
FILES_AT_ONCE = 500  # in one command, because an argument list has a limit
PRINTED_BYTES_MAX = 64 * 1024 * 1024  # on one stream, unless a formatter's content is longer
WRITTEN_BYTES_MAX = 1024 * 1024 * 1024  # of one file
COPY_BYTES_MAX = 4 * 1024**3  # of a copy of the workspace
