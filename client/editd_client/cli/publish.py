"""`editctl publish`: what a session or a range did, as one commit in your git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.command()
@click.option("-m", "--message", required=True, metavar="TEXT", help="The commit's message.")
@click.option("--session", metavar="NAME", help="What this session did and is in force; else EDITD_SESSION.")
@click.option("--from", "first", metavar="TX", help="The first transaction of a range; else the very first.")
@click.option("--to", "last", metavar="TX", help="The last one, included; else the newest.")
@click.option("--branch", metavar="NAME", help="The branch, old or new; else the one that is checked out.")
@click.option("--author", metavar="'NAME <MAIL>'", help="The author; else you, as git's configuration says.")
@as_json
@click.pass_obj
def verb(
    invocation: Invocation,
    message: str,
    session: str | None,
    first: str | None,
    last: str | None,
    branch: str | None,
    author: str | None,
) -> None:
    """Make one ordinary commit of what a session or a range did.

    Only that work is in the commit, merged onto the branch's tip: what else is in the working tree
    stays there as it is, and `git status` shows nothing else. A new branch begins at HEAD. Every
    other actor is named as a co-author. What the branch has already is not published twice.

    Nothing is staged for it: the index must be clean, unless --branch names another branch. Hooks
    are not run, and nothing is signed; `git commit --amend -S` does both.

    \b
    Examples:
      editctl publish --session fix-parser -m "Fix the parser"
      editctl publish --session fix-parser --branch agents/parser -m "Fix the parser"
      editctl publish --from 3 --to 17 -m "What was done today"
    """
    if session is not None and (first is not None or last is not None):
        raise click.UsageError("Give --session, or --from and --to.")
    if session is None and first is None and last is None and not os.environ.get("EDITD_SESSION"):
        raise click.UsageError("Say what: --session NAME, or --from TX and --to TX.")
    with invocation.client() as client:
        result = client.publish(
            message,
            session=session,
            from_=None if first is None else transaction_named(first),
            to=None if last is None else transaction_named(last),
            branch=branch,
            author=author,
        )
    if not invocation.say_json(result):
        output.say(f"{result.commit[:7]} on {result.branch}: {message.strip().splitlines()[0]}")
        for path in result.left_out:
            output.say(f"left out, as git would: {path}")
