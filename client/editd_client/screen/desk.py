"""The functions of the screen that a view may call, and the errors that it shows in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from editd.words import Face

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from typing import Any

    from editd_client.errors import EditdError, Unreachable
    from editd_client.prepared_call import PreparedCall
    from editd_client.review.actions import View
    from editd_client.screen.clock import ScreenClock
    from editd_client.screen.lines import Line

Result = TypeVar("Result")


class ReviewDesk(Protocol):
    """The screen as the views use it."""

    clock: ScreenClock
    root: str  # the folder of the workspace

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Asks for the PIN if the daemon needs it. Raises EditdError and Unreachable."""
        ...

    async def prompt(self, title: str, *, text: str = "", is_hidden: bool = False) -> str | None:
        """Ask for a line; None if the person leaves the question."""
        ...

    async def choose(self, title: str, lines: Sequence[Line], answers: Mapping[str, str]) -> str | None:
        """Show lines, and ask for one of the keys; None if the person leaves the question."""
        ...

    async def pick(self, title: str, lines: Sequence[Line], rows: frozenset[int]) -> frozenset[int] | None:
        """Show lines, and ask which of the `rows` to take; None if the person leaves the question."""
        ...

    async def outside(self, run: Callable[[], Result]) -> Result:
        """Call a function that has the terminal for itself."""
        ...

    def begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry out work beside the screen; its errors are shown."""
        ...

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Show a sentence in the header until the next key."""
        ...

    def redraw(self) -> None:
        """Draw the screen anew, soon."""
        ...

    def open_view(self, view: View) -> None:
        """Bring a view to the front."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the clipboard, if the terminal can."""
        ...


def in_words(error: EditdError | Unreachable) -> str:
    """Return an error as one sentence or two."""
    return error.text(Face.COMMAND_LINE)
