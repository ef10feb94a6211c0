"""The memory of this process, as against what it uses of it."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Give the memory that the allocator keeps free back to the system. In any thread: it takes some time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it; others give back by themselves
    if trim is not None:
        trim(0)
