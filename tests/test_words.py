"""The words of each face: no sentence for one face has a word of another."""

from __future__ import annotations

import ast
import re

import click
import pytest

from editd.advice import (
    Advice,
    Term,
    argument_term,
    command_term,
    method_term,
    operation_term,
    option_term,
    step_term,
)
from editd.wire.messages import ANSWERS
from editd.words import OWN, SHELLS, Face, in_the_way, on_the_wire, sentence
from editd_client.cli import editctl
from editd_client.mcp.conversion import EDITS
from support.advice_source import TOP, Written, written, written_in

METHODS = {kind.method for kind in ANSWERS}
DOTTED = "|".join(re.escape(name) for name in sorted(METHODS) if "." in name)
PLAIN = "|".join(sorted(name for name in METHODS if "." not in name))
COMMAND = r"(?<!editd's command )"  # a verb of `editctl` has the name of its method

PROTOCOL = re.compile(
    rf"{COMMAND}`({DOTTED}|{PLAIN}|{'|'.join(EDITS)})`|\b({DOTTED})\b|\bon_(stale|conflict)\b|\bown_only\b"
)
NO_TOOL = re.compile(
    rf"{COMMAND}`(hello|read|stat|show|restore|write|delete)`|\b({DOTTED})\b|\b(on_conflict|own_only)\b"
)
SHELL = re.compile(r"\beditctl\b")
FOREIGN: dict[Face, tuple[re.Pattern[str], ...]] = {
    Face.SOCKET: (),
    Face.COMMAND_LINE: (PROTOCOL,),
    Face.MCP: (SHELL, NO_TOOL),
    Face.EDITOR: (PROTOCOL,),
    Face.NEOVIM: (PROTOCOL,),
    Face.PAGE: (SHELL, PROTOCOL),
}
FACES_OF = {  # of a refusal that one face alone shows, by the folder of its module
    "client/editd_client/web/command.py": {Face.COMMAND_LINE},
    "client/editd_client/cli/": {Face.COMMAND_LINE},
    "client/editd_client/screen/": {Face.COMMAND_LINE},
    "client/editd_client/agents/": {Face.COMMAND_LINE},
    "client/editd_client/mcp/": {Face.MCP},
    "client/editd_client/web/": {Face.PAGE},
    "daemon/editd/tools/": {Face.SOCKET, Face.MCP},
}
WRITTEN = list(written())


def faces_of(place: str) -> set[Face]:
    """Return the faces that show the refusals of a module."""
    return next((faces for folder, faces in FACES_OF.items() if place.startswith(folder)), set(Face))


def foreign(one: Written) -> list[str]:
    """Return the sentences of an advice that have a word of another face."""
    told = {face: sentence(one.advice, face) for face in sorted(faces_of(one.place))}
    return [
        f"{one.place} ({face}): {text}"
        for face, text in told.items()
        if any(pattern.search(text) for pattern in FOREIGN[face])
    ]


def test_no_face_shows_a_word_of_another_face() -> None:
    assert len(WRITTEN) > 450, "it reads the hints of the source"
    found = [text for one in WRITTEN for text in foreign(one)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "hint",
    ["Run `editctl check`.", "`session.list` lists them.", "Use on_conflict: force.", "Use `log` to see it."],
)
def test_a_plain_hint_with_a_word_of_one_face_is_found(hint: str) -> None:
    assert foreign(*written_in("daemon/editd/engine/engine.py", f"Refused('No.', hint={hint!r})"))


def test_each_command_of_an_advice_exists() -> None:
    texts = [sentence(one.advice, face) for one in WRITTEN for face in SHELLS]
    texts += [words for face in SHELLS for words in OWN[face].values()]
    commands = {found for text in texts for found in re.findall(r"`editctl ([^`]+)`", text)}
    assert len(commands) > 20
    assert [text for text in sorted(commands) if not exists(text)] == []


def exists(text: str) -> bool:
    """Return whether `editctl` has the verbs and options of a command."""
    verb: click.Command = editctl
    context = click.Context(verb)
    words = text.partition(" | ")[0].split()
    while words and isinstance(verb, click.Group) and not words[0].startswith("-"):
        known = verb.get_command(context, words.pop(0))
        if known is None:
            return False
        verb = known
    options = {name for one in verb.params for name in (*one.opts, *one.secondary_opts)}
    return {word for word in words if word.startswith("-")} <= options | {"--json", "--"}


def test_each_word_of_a_table_is_for_a_term_that_exists() -> None:
    made = [part for one in WRITTEN for part in one.advice.parts if isinstance(part, Term)]
    steps = {term.method for term in made if term.kind == "step"}
    assert steps == {name for kind, name in OWN[Face.SOCKET] if kind == "step"}
    for face, table in OWN.items():
        for kind, name in table:
            known = {"method": METHODS, "operation": set(EDITS), "step": steps}.get(kind)
            assert known is None or name in known, f"{face}: {kind} {name}"


def check(advice: Advice, told: dict[Face, str]) -> None:
    assert {face: sentence(advice, face) for face in told} == told


def test_a_method_is_a_command_a_tool_or_a_place_on_the_page() -> None:
    check(
        Advice(method_term("lease.list"), " lists them."),
        {
            Face.SOCKET: "`lease.list` lists them.",
            Face.COMMAND_LINE: "`editctl lease list` lists them.",
            Face.MCP: "`lease` with action: list lists them.",
            Face.EDITOR: "`editctl lease list` lists them.",
            Face.PAGE: "The list of agents lists them.",
        },
    )
    check(
        Advice("Use ", method_term("show", argument="7", option="hunks"), " to list them."),
        {
            Face.SOCKET: "Use `show` with tx 7 and `hunks` to list them.",
            Face.COMMAND_LINE: "Use `editctl show 7 --hunks` to list them.",
            Face.MCP: "Use `log` to list them.",
        },
    )


def test_an_operation_an_argument_and_a_command_have_the_words_of_the_face() -> None:
    check(
        Advice("Use ", operation_term("delete"), ", give ", argument_term("paths"), " or run ",
               command_term("check --repair"), "."),
        {
            Face.SOCKET: "Use `delete`, give `paths` or run `editctl check --repair`.",
            Face.COMMAND_LINE: "Use `editctl rm`, give --path or run `editctl check --repair`.",
            Face.MCP: "Use op: delete, give `paths` or run editd's command `check --repair`.",
            Face.PAGE: "Use a deletion, give paths or run editd's command `check --repair`.",
        },
    )  # fmt: skip
    check(
        Advice(command_term(setting="EDITD_SOCKET=s"), " reaches it."),
        {Face.EDITOR: "`EDITD_SOCKET=s editctl` reaches it.", Face.MCP: "`EDITD_SOCKET=s` reaches it."},
    )


def test_a_face_without_an_option_leaves_it_out_with_its_purpose() -> None:
    skip = option_term("on_conflict", "skip", lead=", or use ", purpose=" to undo only what fits")
    check(
        Advice("Use ", option_term("on_conflict", "force"), skip, "."),
        {
            Face.SOCKET: "Use on_conflict: force, or use on_conflict: skip to undo only what fits.",
            Face.COMMAND_LINE: "Use --force, or use --what-fits to undo only what fits.",
            Face.MCP: "Use force: true.",
            Face.EDITOR: (
                "Use `editctl undo --force`, or use `editctl undo --what-fits` to undo only what fits."
            ),
            Face.NEOVIM: (
                "Use :Editd! with the same command, or use `editctl undo --what-fits` to undo only what fits."
            ),
        },
    )


def test_a_step_is_another_clause_in_each_face() -> None:
    check(
        Advice(step_term("read_first"), ", or edit it."),
        {
            Face.SOCKET: "Read it and give its version as base, or edit it.",
            Face.COMMAND_LINE: "Read it and give its version as --base, or edit it.",
            Face.MCP: "Read it with read_file first, or edit it.",
        },
    )


@pytest.mark.parametrize(
    "term", [Term("gesture", words="a nod"), Term("step", method="later", words="a nod")]
)
def test_a_term_of_a_later_daemon_has_the_words_of_the_protocol(term: Term) -> None:
    check(Advice("Use ", term, "."), dict.fromkeys(Face, "Use a nod."))


def test_on_the_wire_a_term_has_the_words_of_the_socket_beside_it() -> None:
    advice = Advice("Read it", option_term("on_stale", "merge", lead=", or use "), ".")
    assert on_the_wire(advice) == [
        "Read it",
        {
            "kind": "option", "option": "on_stale", "argument": "merge", "lead": ", or use ",
            "words": "on_stale: merge",
        },
        ".",
    ]  # fmt: skip


def test_the_transactions_in_the_way_have_one_wording() -> None:
    assert in_the_way([7, 9]) == "in the way: 7, 9"
    assert in_the_way([7, 9], {7: "alice"}) == "in the way: 7 by alice, 9"
    assert in_the_way([]) == "in the way"


def test_no_client_words_the_transactions_in_the_way_by_itself() -> None:
    found = [
        f"{file.name}:{node.lineno}"
        for file in sorted((TOP / "client").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.JoinedStr)
        and re.search("[Ii]n the way: |changed since by", ast.unparse(node))
    ]
    assert found == []
