"""Delta debugging: the fewest items of a list with which something still fails (Zeller's ddmin)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")


def shrunk(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A part of `items`, in their order, that fails and of which no single item can be left out."""
    left, parts = list(items), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        for start in range(len(left) - size, -size, -size):  # from the end, where the failure is near
            without = left[: max(start, 0)] + left[max(start, 0) + min(size, start + size) :]
            if len(without) < len(left) and fails(without):
                left, parts = without, max(parts - 1, 2)
                break
        else:
            if parts >= len(left):
                break
            parts = min(2 * parts, len(left))
    return left
