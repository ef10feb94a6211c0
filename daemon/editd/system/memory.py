"""The free memory of this process."""

from __future__ import annotations

import ctypes

_ARENAS_MAX = -8  # malloc.h: M_ARENA_MAX


def use_one_heap() -> None:
    """Let all threads allocate from one heap, so that memory which one thread frees serves the others.

    Python's lock lets one thread allocate at a time, so that heaps of their own only fragment the memory.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc only
    if tune is not None:
        tune(_ARENAS_MAX, 1)


def release_free_memory() -> None:
    """Return the allocator's free memory to the system. In any thread, because it takes some time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; other libcs do this anyway
    if trim is not None:
        trim(0)
