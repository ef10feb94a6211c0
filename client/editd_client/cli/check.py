"""`editctl check`: the proof that history, head, journal and files agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation

PROBLEMS_EXIT_CODE = 4


@click.command()
@as_json
@click.pass_obj
def verb(invocation: Invocation) -> int:
    """Prove that history, journal and files agree.

    Changes nothing. Where something does not agree, every problem is a line on standard output and
    the exit code is 4.

    \b
    Examples:
      editctl check
      editctl check --json | jq -r '.problems[]'
    """
    with invocation.client() as client:
        result = client.check()
    if not invocation.say_json(result):
        for problem in result.problems:
            output.say(output.plain(problem))
        if result.ok:
            output.say("history, journal and files agree")
    return 0 if result.ok else PROBLEMS_EXIT_CODE
