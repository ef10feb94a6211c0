"""The questions of a conversation, and the protocol of the faces that ask them.

Q1  A question is built only if it is shown. An asker that has the answer from a form or an option never
    builds it, so that its preview costs no request.
Q2  Texts are as the daemon has them. The asker removes control characters, or escapes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from editd.wire.messages import BriefTransaction, LeaseEntry, PublishResult
    from editd_client.prepared_call import PreparedCall
    from editd_client.review.actions import ReversalPreview

Result = TypeVar("Result")
DIGITS_MAX = 15  # of a number in a field


class Answer(Struct, frozen=True):
    """One of the answers to a question: its name in a form, its key, and its words."""

    name: str
    key: str
    words: str


class Prompt(Struct, frozen=True, kw_only=True):
    """A line of text that an action needs, or several lines.

    An asker that asks one thing after another leaves out an optional one, whose text is then the default.
    """

    name: str
    words: str
    text: str = ""  # the default
    example: str = ""
    is_required: bool = False  # without it nothing is done
    is_optional: bool = False
    is_long: bool = False  # several lines
    length_max: int | None = None


class Question(Struct, frozen=True, kw_only=True):
    """A question before an action: its effect, and the answers."""

    title: str
    notes: tuple[str, ...] = ()
    warning: str = ""
    answers: tuple[Answer, ...] = ()
    prompts: tuple[Prompt, ...] = ()  # asked for before or after the answer, or in the same form
    about: Subject | None = None  # is shown below the notes


class HeldLeases(Struct, frozen=True):
    """The leases that are to end."""

    leases: tuple[LeaseEntry, ...]


class UnreviewedWork(Struct, frozen=True):
    """The transactions that are to be marked as reviewed."""

    transactions: tuple[BriefTransaction, ...]


class CommitPreview(Struct, frozen=True):
    """The commit that is to be made."""

    commit: PublishResult


if TYPE_CHECKING:
    Subject = HeldLeases | UnreviewedWork | CommitPreview | ReversalPreview


class Asker(Protocol):
    """One face of an action: its connection to the daemon, its questions and its sentences."""

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Raises EditdError and Unreachable."""
        ...

    async def choose(self, names: Collection[str], question: Callable[[], Awaitable[Question]]) -> str | None:
        """Return the name of an answer; None if the person leaves the question. Raises EditdError."""
        ...

    async def prompt(self, prompt: Prompt) -> str | None:
        """Return a text; None if the person leaves the question, or leaves a required text empty."""
        ...

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Report the outcome in a sentence."""
        ...


def number_in(text: str) -> int | None:
    """Return the number in a text, or None if it is empty. Raises EditdError (`invalid_params`)."""
    text = text.strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > DIGITS_MAX:
        raise refusal("invalid_params", f"{text!r} is not a number.")
    return int(text)


def quantity(number: int, singular: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"
