"""The options of a verb as the asker of a conversation.

The client of the command line blocks, so a conversation waits for no other task, and needs no event loop.
An import of asyncio would be a fifth of a short run, and its loop would keep Ctrl-C from a blocking call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine

    from editd_client.client import Client
    from editd_client.conversations.asker import Prompt, Question
    from editd_client.prepared_call import PreparedCall

Result = TypeVar("Result")


class OptionAsker:
    """The asker of one verb. Without an answer it keeps the question, for a verb that only shows it."""

    def __init__(self, client: Client, answer: str | None = None, **texts: str | None) -> None:
        self._client, self._answer, self._texts = client, answer, texts
        self.question: Question | None = None
        self.said = ""

    async def ask(self, call: PreparedCall[Result]) -> Result:
        """Send a request. Raises EditdError and Unreachable."""
        return self._client.ask(call)

    async def choose(self, names: Collection[str], question: Callable[[], Awaitable[Question]]) -> str | None:
        """Return the answer of the options."""
        if self._answer is None:
            self.question = await question()
        else:
            assert self._answer in names, self._answer
        return self._answer

    async def prompt(self, prompt: Prompt) -> str | None:
        """Return the text of an option, otherwise the default."""
        text = self._texts.get(prompt.name)
        return prompt.text if text is None else text

    def say(self, text: str, *, is_error: bool = False) -> None:
        """Keep the sentence: a verb prints the result as lines or as JSON."""
        del is_error
        self.said = text


def converse(conversation: Coroutine[Any, Any, Result]) -> Result:
    """Carry out the conversation of an `OptionAsker`, and return its result."""
    try:
        conversation.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    raise AssertionError("the asker of the command line never waits")
