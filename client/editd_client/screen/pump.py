"""The schedule of each view's fetches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from editd_client.review.actions import EVERYWHERE

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

    from editd_client.review.actions import View

FAILED_SECONDS = 2.0  # after a refused request of the screen's own
HIDDEN_SECONDS = 5.0  # for a view that is not shown: its count is
VISIBLE_SECONDS: Mapping[View, float] = {"proposals": 0.25, "timeline": 0.0, "agents": 1.0}


class Fetcher(Protocol):
    """A view as it is fetched."""

    @property
    def is_wanting(self) -> bool: ...

    def pump(self, *, is_visible: bool) -> None: ...


class FetchPump:
    """Lets each view fetch, not too often. `wake` is called with the seconds after which to call again.

    It is not called while nothing is missing, so that no timer runs then.
    """

    def __init__(self, views: Mapping[View, Fetcher], wake: Callable[[float], object]) -> None:
        self._views, self._wake = views, wake
        self._at: dict[View, float] = dict.fromkeys(EVERYWHERE, -1e9)  # monotonic
        self._failed_at = -1e9

    def note_failure(self) -> None:
        """Note that a request was refused: nothing is fetched for a while."""
        self._failed_at = time.monotonic()

    def hurry(self, view: View) -> None:
        """Let a view fetch at the next call."""
        self._at[view] = -1e9

    def pump(self, visible: Container[View]) -> None:
        """Let each view fetch what it misses, if it is time for that."""
        now = time.monotonic()
        if now < self._failed_at + FAILED_SECONDS:
            self._wake(self._failed_at + FAILED_SECONDS - now + 0.01)
            return
        for name, view in self._views.items():
            is_visible = name in visible
            due = self._at[name] + (VISIBLE_SECONDS[name] if is_visible else HIDDEN_SECONDS)
            if now >= due:
                self._at[name] = now
                view.pump(is_visible=is_visible)
            elif is_visible and view.is_wanting:
                self._wake(due - now + 0.01)
