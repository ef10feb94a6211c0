"""The free memory of this process."""

from __future__ import annotations

import ctypes


def release_free_memory() -> None:
    """Return the allocator's free memory to the system. In any thread, because it takes some time."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only; other libcs do this by themselves
    if trim is not None:
        trim(0)
