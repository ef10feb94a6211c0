"""A form of the page as the asker of a conversation: its fields are the answers.

A question without an answer in the form ends the conversation, and becomes the page. The form of the question
repeats the fields, so the conversation begins anew with the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from editd_client.errors import refusal
from editd_client.web.form_fields import first, text_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from editd_client.aio import AsyncClient
    from editd_client.conversations.asker import Prompt, Question
    from editd_client.prepared_call import PreparedCall
    from editd_client.web.form_fields import Form

Result = TypeVar("Result")
ASKING = ("preview", "ask-")  # the beginnings of an action that shows its question


class Unanswered(Exception):
    """A question that the form does not answer."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.title)
        self.question = question


class FormAsker:
    """The asker of one form. `said` is the sentence about its outcome."""

    def __init__(self, form: Form, client: AsyncClient) -> None:
        self._form, self._client = form, client
        self.said, self.is_refused = "", False

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Raises EditdError and Unreachable."""
        return await self._client.ask(call)

    async def choose(self, names: Collection[str], question: Callable[[], Awaitable[Question]]) -> str | None:
        """Return the answer of the form. Raises Unanswered, and EditdError for another action."""
        verb = first(self._form, "do")
        if verb in names:
            return verb
        if not verb.startswith(ASKING):
            raise refusal("invalid_params", "The form names no action.")
        raise Unanswered(await question())

    async def prompt(self, prompt: Prompt) -> str | None:
        """Return the text of a field, and the default without the field."""
        if prompt.name not in self._form:
            return prompt.text
        if prompt.is_long:
            return text_of(self._form, prompt.name)
        return " ".join(self._form[prompt.name]).strip()

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Keep the sentence for the next page."""
        self.said, self.is_refused = text, is_error
