"""Advice: the next step after a refusal, as data that each face puts into its own words.

    Advice("Run ", method_term("log"), " to see its deletion.")

An advice is a sentence in parts: plain words, which are the same in every face, and terms. A term is a name
that differs from face to face: a method of the protocol is a command at the shell, and a tool of MCP.
`words.sentence` makes the sentence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["method", "operation", "option", "argument", "command", "step"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Term:
    """A name in an advice that differs from face to face.

    A face without such a thing leaves out the term, with `lead` before and `purpose` after it. `words` are
    the words of the protocol, for a client that does not know the term.
    """

    kind: str
    method: str = ""
    option: str = ""
    argument: str = ""
    lead: str = ""
    purpose: str = ""
    words: str = ""


Part = str | Term


class Advice:
    """A sentence in parts, or several sentences. An advice of one plain text is the same in every face."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Part) -> None:
        joined: list[Part] = []
        for part in parts:
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            elif part != "":
                joined.append(part)
        self.parts = tuple(joined)

    @classmethod
    def parse(cls, value: object) -> Advice:
        """Return the advice of a text, of an advice, or of `to_plain`. A part of another form is left out."""
        if isinstance(value, Advice):
            return value
        if isinstance(value, list | tuple):
            return cls(*_parts(value))
        return cls(value if isinstance(value, str) else "")

    def to_plain(self) -> str | list[str | dict[str, str]]:
        """Return the advice for a message: a text, or a list of texts and terms."""
        if not self.has_terms:
            return "".join(map(str, self.parts))
        return [part if isinstance(part, str) else _plain_term(part) for part in self.parts]

    @property
    def has_terms(self) -> bool:
        """Whether the words differ from face to face."""
        return any(isinstance(part, Term) for part in self.parts)

    def with_parts(self, *parts: Part) -> Advice:
        """Return the advice with more parts at its end."""
        return Advice(*self.parts, *parts)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Advice) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        return f"Advice{self.parts!r}"


def method_term(name: str, *, argument: str = "", option: str = "") -> Term:
    """Return a method of the protocol. `argument` is its main parameter, and `option` another one."""
    return Term("method", method=name, argument=argument, option=option)


def operation_term(name: str) -> Term:
    """Return an operation of an edit, such as `write`."""
    return Term("operation", method=name)


def option_term(name: str, value: str = "", *, lead: str = "", purpose: str = "") -> Term:
    """Return an option of the refused request. An option without a value is a flag."""
    return Term("option", option=name, argument=value, lead=lead, purpose=purpose)


def argument_term(name: str, *, lead: str = "", purpose: str = "") -> Term:
    """Return a parameter of the refused request, for the caller to give or to leave out."""
    return Term("argument", argument=name, lead=lead, purpose=purpose)


def command_term(text: str = "", *, setting: str = "") -> Term:
    """Return a command of `editctl` with its arguments, or `editctl` with a variable of the environment."""
    return Term("command", argument=text, option=setting)


def step_term(name: str) -> Term:
    """Return a whole clause of `words`, because the faces take this step in different ways."""
    return Term("step", method=name)


def leave_out(*names: str) -> Advice:
    """Return the advice to send the request without these arguments."""
    *others, last = map(argument_term, names)
    parts: list[Part] = ["Leave out "]
    for number, name in enumerate(others):
        parts += [", ", name] if number else [name]
    return Advice(*parts, " and ", last, ".")


GIVE_SESSION = Advice("Give ", argument_term("session"), " as well.")


def _parts(values: list[Any] | tuple[Any, ...]) -> Iterator[Part]:
    names = Term.__dataclass_fields__
    for value in values:
        if isinstance(value, str | Term):
            yield value
        elif isinstance(value, dict) and isinstance(value.get("kind"), str):
            yield Term(**{name: str(text) for name, text in value.items() if name in names})


def _plain_term(term: Term) -> dict[str, str]:
    return {name: text for name, text in asdict(term).items() if text}


def with_words(term: Term, words: str) -> Term:
    """Return the term with the words of the protocol beside it."""
    return replace(term, words=words)
