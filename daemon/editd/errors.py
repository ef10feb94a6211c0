"""The tree of errors, by who must act.

    Refused                      the sender: nothing has changed, and the hint has the next step
    ├── Stale, ViewChanged         read again, or ask for a merge
    ├── Conflict                   a person or an agent must decide between two texts
    ├── NoMatch, Ambiguous,
    │   CountMismatch              the search text does not name one place
    ├── MalformedEdit,
    │   InvalidRegex               the edit itself cannot be read
    ├── NoChange                   the edit would change nothing
    ├── Unread                     read the file first
    ├── PathOutside, PathProtected, PathIgnored,
    │   FileMissing, FileExists,
    │   NotAFile, NotText,
    │   TooLarge, BaseRequired     the edit and the file do not fit
    ├── Rejected                   a hook of the configuration refuses the edit, and names the reason
    ├── Timeout                    a regular expression, a hook or a wait ran past its limit
    ├── ShuttingDown, Overloaded   retry later
    ├── PermissionDenied           the session's scope or the file system forbids it
    ├── Unsaved                    an editor holds other text for the same lines
    ├── Leased                     wait until another session's lease has ended
    ├── UnknownSession             open the session, or give its token
    ├── UnknownTransaction,
    │   NothingToUndo              the history has no such transaction
    ├── ContentForgotten           the content was removed from the history on request
    ├── ContentExcluded            the configuration keeps the content out of the history
    ├── UnknownProposal, Decided   no such proposal waits for a decision
    ├── NotInstalled               an optional part of editd is missing, or cannot be loaded
    ├── InvalidParams              an argument that makes no sense
    ├── InUse                      wait until the other program has finished writing
    └── IoError                    the operator: the disk failed; nothing was changed
    Broken                       the operator: files or journal are in doubt, the engine takes no writes
    HistoryDamaged               the operator: the history fails verification

Any other exception is our bug. The names on the wire are the `code` of each
class; their numbers are the wire's (`wire.messages.ERROR_CODES`).
"""

from __future__ import annotations

import errno
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, Self

from editd.advice import Advice, option_term, step_term
from editd.words import sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


LISTED_MAX = 10


def join_names(names: Collection[str], separator: str = ", ") -> str:
    """Return names for a sentence: at most ten of them, and the number of the others."""
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return separator.join(islice(names, LISTED_MAX)) + more


class Refused(Exception):
    """A refusal: nothing has changed. `message` states the fact, `advice` the next step.

    `hint` is the advice, or its text if it has no terms. To add to a refusal, make another one: `revise`.
    """

    code = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | list[Any] | Advice = "",
        data: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.advice = Advice.parse(hint)
        self.data: dict[str, Any] = data if data is not None else {}

    @property
    def hint(self) -> str:
        """The next step in the words of the socket."""
        return sentence(self.advice)

    def revise(
        self,
        *,
        message: str | None = None,
        hint: str | Advice | None = None,
        data: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Self:
        """Return a copy with another message or hint, with more data, or with other attributes.

        The copy takes the traceback over, so that this refusal, which it replaces, keeps no frames alive.
        """
        other = type(self).__new__(type(self), *self.args)
        other.__dict__.update(self.__dict__, data={**self.data, **(data or {})}, **more)
        if message is not None:
            other.message = message
        if hint is not None:
            other.advice = Advice.parse(hint)
        other.__traceback__ = self.__traceback__
        self.forget_stack()
        return other

    def text(self) -> str:
        """Return the message and the hint as one text."""
        return f"{self.message} {self.hint}".strip()

    def forget_stack(self) -> None:
        """Drop the traceback and exception chain, so that a stored refusal keeps no stack frames alive."""
        self.__traceback__ = self.__cause__ = self.__context__ = None


class InvalidParams(Refused):
    code = "invalid_params"


class Stale(Refused):
    """The file is not at the version that the edit was made for.

    `data` holds path, base and current; the engine adds the diff since then and its author.
    """

    code = "stale"

    def __init__(self, path: str, base: str | None, current: str | None) -> None:
        was = "missing" if base is None else base[:12]
        now = "missing" if current is None else current[:12]
        super().__init__(
            f"{path} was {was} when this edit was made and is {now} now.",
            hint=Advice(
                "Read the file again and make the edit for its new content",
                option_term("on_stale", "merge", lead=", or use "),
                ".",
            ),
            data={"path": path, "base": base, "current": current},
        )


class Conflict(Refused):
    code = "conflict"


class NoMatch(Refused):
    """The text to be replaced is not in the file.

    `applied` is the passage that already holds the new text, if there is one: the number of its first
    line, and its lines. `path` is the file's. The engine adds the transaction that it came with.
    """

    code = "no_match"
    applied: tuple[int, tuple[str, ...]] | None = None
    path: Any = None


class Ambiguous(Refused):
    code = "ambiguous"


class CountMismatch(Refused):
    code = "count_mismatch"


class MalformedEdit(Refused):
    code = "malformed_edit"


class PathOutside(Refused):
    code = "path_outside"


class PathProtected(Refused):
    code = "path_protected"


class FileMissing(Refused):
    code = "file_missing"


class FileExists(Refused):
    code = "file_exists"


class NotAFile(Refused):
    code = "not_a_file"


class NotText(Refused):
    code = "not_text"


class TooLarge(Refused):
    code = "too_large"


class BaseRequired(Refused):
    code = "base_required"


class PathIgnored(Refused):
    code = "path_ignored"


class InvalidRegex(Refused):
    code = "invalid_regex"


class NoChange(Refused):
    """The edit would change nothing, and its tool treats that as an error."""

    code = "no_change"


class Unread(Refused):
    """The session must read the file first.

    `sights` are the reads that this very refusal counts as (`values.transaction.Outcome.sights`).
    """

    code = "unread"
    sights: tuple[Any, ...] = ()


class Rejected(Refused):
    """A hook refuses the edit before it takes effect. `data` names the hook and the reason."""

    code = "rejected"


class PermissionDenied(Refused):
    code = "permission_denied"


class Unsaved(Refused):
    """An editor holds the file unsaved, and the edit does not merge with that.

    `data` has path, held_by and the lines of the held text; `files` has these of each file if they are
    several.
    """

    code = "unsaved"


class Leased(Refused):
    """Another session has leased the paths. `data` has the holder, the end and the paths."""

    code = "leased"


class UnknownSession(Refused):
    """No session of that name is open, or the token is another's."""

    code = "unknown_session"


class Timeout(Refused):
    code = "timeout"


class ShuttingDown(Refused):
    code = "shutting_down"


class Overloaded(Refused):
    code = "overloaded"


class UnknownTransaction(Refused):
    code = "unknown_transaction"


class NothingToUndo(Refused):
    code = "nothing_to_undo"


class ContentForgotten(Refused):
    """A person had this content removed from the history. `data` holds version, size, time and actor."""

    code = "content_forgotten"


class ContentExcluded(Refused):
    """The configuration excludes the file, so its content is not in the history. `data` holds the path."""

    code = "content_excluded"


class ViewChanged(Refused):
    """A proposal is not what the reviewer was shown. `data` holds `proposal`, `view` and `changed`."""

    code = "stale"


class UnknownProposal(Refused):
    """No proposal has this number. `data` holds `proposal`."""

    code = "unknown_proposal"


class Decided(Refused):
    """The proposal is settled. `data` holds `proposal`, `state`, and `by` and `seq` of the last decision."""

    code = "decided"


class NotInstalled(Refused):
    """An optional part of editd is missing or cannot be loaded. `data` holds its group and name, if known."""

    code = "not_installed"

    def __init__(self, message: str, *, data: dict[str, Any]) -> None:
        super().__init__(message, hint=Advice(step_term("install_part")), data=data)


class IoError(Refused):
    """The operating system reported an error. `data` has the errno and its name; nothing was changed."""

    code = "io_error"

    def __init__(
        self,
        cause: OSError,
        failure: str,
        *,
        hint: str | Advice = "",
        data: Mapping[str, Any] | None = None,
    ) -> None:
        number = cause.errno or 0
        super().__init__(
            f"{failure}: {os.strerror(number) if number else cause}.",
            hint=hint or _HINTS.get(number, "Nothing was changed."),
            data={"errno": number, "errno_name": errno.errorcode.get(number, ""), **(data or {})},
        )


_HINTS = {
    errno.ENOSPC: "The disk is full, and nothing was changed. Make room and retry.",
    errno.EDQUOT: "The disk quota is reached, and nothing was changed. Make room and retry.",
    errno.EROFS: "The file system is read-only, and nothing was changed.",
    errno.EMFILE: "The daemon has no file descriptors left, and nothing was changed. Retry.",
}


class InUse(Refused):
    """Another program has the file open for writing, so its content is not settled yet."""

    code = "io_error"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is open for writing in another program.",
            hint="Retry when that program has closed it.",
            data={"path": path, "errno": errno.EBUSY, "errno_name": "EBUSY"},
        )


class Broken(Refused):
    """Files or journal are in doubt after an I/O error: reads only, until a restart recovers."""

    code = "io_error"


class HistoryDamaged(Refused):
    """The history fails verification. `data` has the problem, and the file that the daemon will not touch."""

    code = "history_damaged"
