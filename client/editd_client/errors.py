"""Why a call gave no result: the daemon said no, or there was no daemon to say anything.

EditdError     a refusal: nothing has changed, `data` says more
Unreachable    no daemon answers and none could be started, or it went away before it answered
"""

from __future__ import annotations

from typing import Any


class EditdError(Exception):
    """A refusal: `code` and `name` are the protocol's, `message` says what to do about it."""

    def __init__(self, code: int, name: str, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message
        self.data: dict[str, Any] = data if data is not None else {}

    @property
    def hint(self) -> str:
        """The next step, where the refusal names one apart from its message."""
        hint = self.data.get("hint", "")
        return hint if isinstance(hint, str) else ""


class Unreachable(Exception):
    """Nobody answers. Where a request had gone out, it may or may not have been carried out."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def refusal(name: str, message: str, *, hint: str = "", data: dict[str, Any] | None = None) -> EditdError:
    """A refusal of the client's own, by a name of the protocol's, before anything is sent."""
    from editd.wire.messages import ERROR_CODES  # late: the messages are not needed for `--help`

    text = f"{message} {hint}".strip()
    return EditdError(ERROR_CODES[name], name, text, {**(data or {}), **({"hint": hint} if hint else {})})
