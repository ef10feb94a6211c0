"""The commands that pages show: docs/cli.md has every verb, and no page one that is not there."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import click
import pytest

from editd_client.cli import VERBS, editctl
from support.workplace import TOP
from test_pages import PAGES, named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"(?:^|[|;&(] *|\$ )editctl +([^|;&)\n]+)", re.MULTILINE)


def test_the_page_of_the_command_line_has_every_verb() -> None:
    rows = re.findall(r"^\| (`[a-z](?:[^|\\]|\\.)*) \|", (TOP / "docs/cli.md").read_text(), re.MULTILINE)
    told = {code.split()[0] for row in rows for code in re.findall(r"`([^`]+)`", row)}
    assert {verb for section in VERBS.values() for verb in section} <= told


@pytest.mark.parametrize("page", named(PAGES))
def test_every_command_that_a_page_shows_is_one_that_editctl_takes(page: Path) -> None:
    wrong = [f"{call}: {problem}" for call in calls(page) if (problem := problem_of(call)) is not None]
    assert not wrong


def test_an_option_that_is_not_there_would_be_found() -> None:
    assert problem_of("undo 2 --dry-run") is None
    assert problem_of("session open ann --write 'a/**'") is None
    assert problem_of("undo 2 --dryrun") is not None
    assert problem_of("unde 2") is not None


def calls(page: Path) -> Iterator[str]:
    """What stands behind each `editctl` of the page's shell blocks, comments left out."""
    for block in _SHELL.findall(page.read_text()):
        for call in _CALL.findall(block):
            yield re.sub(r"(^|\s)(#|\d?[<>]).*", "", call).strip()


def problem_of(call: str) -> str | None:
    """Why `editctl` would not take these words, by its verbs and options alone."""
    try:
        words = shlex.split(call)
    except ValueError:  # the end of a quotation stands on another line, or behind a pipe
        return None
    command: click.Command = editctl
    context = click.Context(command, info_name="editctl")
    try:
        while isinstance(command, click.Group):
            _, words, _ = command.make_parser(context).parse_args(words)
            if not words:
                return None
            found = command.get_command(context, words[0])
            if found is None:
                return f"there is no {words[0]}"
            command, words = found, words[1:]
            context = click.Context(
                command, parent=context, info_name=command.name, **command.context_settings
            )
        command.make_parser(context).parse_args(words)
    except click.UsageError as error:
        return error.format_message()
    return None
