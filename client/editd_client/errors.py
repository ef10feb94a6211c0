"""The two failures of a call: a refusal by the daemon, or no daemon.

EditdError     a refusal: nothing has changed, `data` has details
    Stale, NoMatch, …    one class for each name of the protocol: `except Stale` catches `stale`
Unreachable    no daemon answers and none could be started, or it went away before it answered
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Self

from editd.advice import Advice
from editd.words import Face, on_the_wire, sentence

if TYPE_CHECKING:
    from collections.abc import Collection


class EditdError(Exception):
    """A refusal: `code` and `name` are the protocol's, `message` includes the next step."""

    _classes: ClassVar[dict[str, type[EditdError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        EditdError._classes[re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()] = cls

    @classmethod
    def of(cls, code: int, name: str, message: str, data: dict[str, Any] | None = None) -> EditdError:
        """Return an error of the class for `name`; a name of a later daemon makes a plain EditdError."""
        return cls._classes.get(name, EditdError)(code, name, message, data)

    def __init__(self, code: int, name: str, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message
        self.data: dict[str, Any] = data if data is not None else {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, message={self.message!r})"

    def __reduce__(self) -> tuple[type[Self], tuple[int, str, str, dict[str, Any]]]:
        return type(self), (self.code, self.name, self.message, self.data)

    @property
    def hint(self) -> str:
        """The next step, if the refusal has one apart from its message."""
        hint = self.data.get("hint", "")
        return hint if isinstance(hint, str) else ""

    @property
    def fact(self) -> str:
        """The message without the next step."""
        return self.message.removesuffix(self.hint).rstrip()

    @property
    def advice(self) -> Advice:
        """The next step as data, which `editd.words` puts into the words of a face."""
        return Advice.parse(self.data.get("advice") or self.hint)

    def text(self, face: Face) -> str:
        """Return the fact and the next step in the words of a face."""
        return f"{self.fact} {sentence(self.advice, face)}".strip()


class Unreachable(Exception):
    """No daemon answers. A request that was sent may or may not have been carried out."""

    def __init__(self, message: str, *, hint: str | Advice = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = Advice.parse(hint)

    @property
    def hint(self) -> str:
        """The next step, in the words of the protocol."""
        return sentence(self.advice)

    def text(self, face: Face) -> str:
        """Return the message and the next step in the words of a face."""
        return f"{self.message} {sentence(self.advice, face)}".strip()


def refusal(
    name: str, message: str, *, hint: str | Advice = "", data: dict[str, Any] | None = None
) -> EditdError:
    """Return a refusal by the client itself, with a name of the protocol, before anything is sent."""
    from editd.wire.messages import ERROR_CODES  # late: `--help` does not need the messages

    advice = Advice.parse(hint)
    step: dict[str, Any] = {"hint": sentence(advice)} if advice else {}
    if advice.has_terms:
        step["advice"] = on_the_wire(advice)
    text = f"{message} {sentence(advice)}".strip()
    return EditdError.of(ERROR_CODES[name], name, text, {**(data or {}), **step})


NAMES_MAX = 10


def shorten(names: Collection[str], names_max: int = NAMES_MAX) -> str:
    """Return names for a sentence: at most `names_max` of them, and the number of the others."""
    more = f" and {len(names) - names_max} more" if len(names) > names_max else ""
    return ", ".join(islice(names, names_max)) + more


# ── One class for each name of the protocol, made by tests/generated ───────────────────────


class ParseError(EditdError):
    """The refusal `parse_error`."""


class InvalidRequest(EditdError):
    """The refusal `invalid_request`."""


class MethodNotFound(EditdError):
    """The refusal `method_not_found`."""


class InvalidParams(EditdError):
    """The refusal `invalid_params`."""


class InternalError(EditdError):
    """The refusal `internal_error`."""


class Stale(EditdError):
    """The refusal `stale`."""


class Conflict(EditdError):
    """The refusal `conflict`."""


class NoMatch(EditdError):
    """The refusal `no_match`."""


class Ambiguous(EditdError):
    """The refusal `ambiguous`."""


class CountMismatch(EditdError):
    """The refusal `count_mismatch`."""


class MalformedEdit(EditdError):
    """The refusal `malformed_edit`."""


class InvalidRegex(EditdError):
    """The refusal `invalid_regex`."""


class Timeout(EditdError):
    """The refusal `timeout`."""


class PathOutside(EditdError):
    """The refusal `path_outside`."""


class PathProtected(EditdError):
    """The refusal `path_protected`."""


class PathIgnored(EditdError):
    """The refusal `path_ignored`."""


class FileMissing(EditdError):
    """The refusal `file_missing`."""


class FileExists(EditdError):
    """The refusal `file_exists`."""


class NotAFile(EditdError):
    """The refusal `not_a_file`."""


class NotText(EditdError):
    """The refusal `not_text`."""


class TooLarge(EditdError):
    """The refusal `too_large`."""


class BaseRequired(EditdError):
    """The refusal `base_required`."""


class Leased(EditdError):
    """The refusal `leased`."""


class PermissionDenied(EditdError):
    """The refusal `permission_denied`."""


class UnknownTransaction(EditdError):
    """The refusal `unknown_transaction`."""


class UnknownSession(EditdError):
    """The refusal `unknown_session`."""


class Unread(EditdError):
    """The refusal `unread`."""


class Rejected(EditdError):
    """The refusal `rejected`."""


class NothingToUndo(EditdError):
    """The refusal `nothing_to_undo`."""


class IoError(EditdError):
    """The refusal `io_error`."""


class ShuttingDown(EditdError):
    """The refusal `shutting_down`."""


class Overloaded(EditdError):
    """The refusal `overloaded`."""


class HistoryDamaged(EditdError):
    """The refusal `history_damaged`."""


class NoChange(EditdError):
    """The refusal `no_change`."""


class UnknownProposal(EditdError):
    """The refusal `unknown_proposal`."""


class Decided(EditdError):
    """The refusal `decided`."""


class Unsaved(EditdError):
    """The refusal `unsaved`."""


class ContentForgotten(EditdError):
    """The refusal `content_forgotten`."""


class ContentExcluded(EditdError):
    """The refusal `content_excluded`."""


class NotInstalled(EditdError):
    """The refusal `not_installed`."""
