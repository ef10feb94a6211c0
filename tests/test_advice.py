"""An advice as data: its parts, and its form in a message."""

from __future__ import annotations

import ast
import re

import pytest

from editd.advice import Advice, Term, command_term, leave_out, method_term, option_term
from editd.errors import NoMatch, Refused, Stale
from editd.words import Face, sentence
from editd_client.errors import EditdError, Unreachable, refusal
from support.advice_source import TOP

ADVICE = Advice("Run ", method_term("log"), ", or use ", option_term("on_stale", "merge"), ".")


def test_an_advice_is_the_same_after_a_message() -> None:
    assert Advice.parse(ADVICE.to_plain()) == ADVICE
    assert Advice.parse(Advice("Wait.").to_plain()) == Advice("Wait.")
    assert Advice("Wait.").to_plain() == "Wait."
    assert not Advice.parse("")


@pytest.mark.parametrize("value", [None, 7, {}, [7, None, {"method": "log"}, {"kind": 7}]])
def test_a_value_of_another_form_is_no_advice(value: object) -> None:
    assert Advice.parse(value) == Advice()


def test_a_term_of_a_message_may_have_more_members() -> None:
    plain = [{"kind": "method", "method": "log", "colour": "red", "words": 7}]
    assert Advice.parse(plain) == Advice(Term("method", method="log", words="7"))


def test_the_hint_of_a_refusal_is_its_advice_in_the_words_of_the_socket() -> None:
    made = Refused("No.", hint=ADVICE)
    assert made.hint == "Run `log`, or use on_stale: merge."
    assert made.text() == f"No. {made.hint}"
    assert (
        Refused("No.", hint=ADVICE.to_plain() if isinstance(ADVICE.to_plain(), list) else "").advice == ADVICE
    )


def test_arguments_to_leave_out_are_listed() -> None:
    assert sentence(leave_out("from", "to")) == "Leave out `from` and `to`."
    assert sentence(leave_out("at", "from", "to"), Face.COMMAND_LINE) == "Leave out --at, --from and --to."


def test_a_refusal_is_not_edited_but_made_anew() -> None:
    first = NoMatch("No.", hint="Wait.", data={"path": "a"})
    second = first.revise(message="Never.", hint=ADVICE, data={"line": 1}, applied=(1, ("a",)))
    assert (first.message, first.hint, first.data, first.applied) == ("No.", "Wait.", {"path": "a"}, None)
    assert (type(second), second.message, second.advice) == (NoMatch, "Never.", ADVICE)
    assert (second.data, second.applied) == ({"path": "a", "line": 1}, (1, ("a",)))
    with pytest.raises(AttributeError):
        first.hint = "Run."  # type: ignore[misc]


def test_a_refusal_that_is_replaced_keeps_no_frames_alive() -> None:
    try:
        raise NoMatch("No.")
    except NoMatch as raised:
        first = raised
    second = first.revise(hint="Wait.")
    assert (first.__traceback__, second.__traceback__ is None) == (None, False)


def test_a_refusal_with_a_constructor_can_be_revised() -> None:
    again = Stale("a", None, None).revise(hint="Wait.")
    assert (again.code, again.data["path"], again.hint) == ("stale", "a", "Wait.")


def test_the_client_has_the_fact_and_the_advice_of_a_refusal() -> None:
    error = refusal("conflict", "No.", hint=ADVICE)
    assert (error.fact, error.advice.to_plain()) == ("No.", error.data["advice"])
    assert error.message == "No. Run `log`, or use on_stale: merge."
    assert error.text(Face.COMMAND_LINE) == "No. Run `editctl log`, or use --merge."
    assert "advice" not in refusal("conflict", "No.", hint="Wait.").data


def test_a_daemon_of_an_earlier_version_sends_a_hint_alone() -> None:
    error = EditdError(2, "conflict", "No. Wait.", {"hint": "Wait."})
    assert (error.fact, error.text(Face.MCP)) == ("No.", "No. Wait.")


def test_a_client_without_a_daemon_has_an_advice_too() -> None:
    error = Unreachable("No daemon answers.", hint=Advice("Start one with ", command_term("start"), "."))
    assert error.hint == "Start one with `editctl start`."
    assert error.text(Face.PAGE) == "No daemon answers. Start one with editd's command `start`."


def test_no_refusal_is_edited_after_it_was_raised() -> None:
    found = [
        f"{file.relative_to(TOP)}:{node.lineno}"
        for folder in ("daemon", "client")
        for file in sorted((TOP / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Assign | ast.AugAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if is_edit(ast.unparse(target))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code", ["refusal.hint", "stale.data['diff']", "missing.message", "refusal.sights", "error.data"]
)
def test_an_edit_of_a_refusal_is_found(code: str) -> None:
    assert is_edit(code)


def is_edit(target: str) -> bool:
    """Return whether the target of an assignment is a member of a refusal that somebody else made."""
    names = "refusal|refused|error|stale|missing|conflict|unread|damage|failure|problem"
    members = "hint|message|advice|code|data|applied|path|sights"
    return re.match(rf"({names})\.({members})\b", target) is not None
