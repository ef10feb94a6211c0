"""`editctl publish`: what sessions or a range did, as one commit in your git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import PublishedFile, PublishResult
    from editd_client.cli.invocation import Invocation

LETTERS = {"added": "A", "modified": "M", "deleted": "D"}


@click.command()
@click.option("-m", "--message", metavar="TEXT", help="The commit's message. A dry run needs none.")
@click.option(
    "--session",
    "sessions",
    metavar="NAME",
    multiple=True,
    help="A session whose work to publish (default: $EDITD_SESSION). Repeatable.",
)
@click.option("--from", "first", metavar="TX", help="The first transaction of a range; else the very first.")
@click.option("--to", "last", metavar="TX", help="The last one, included; else the newest.")
@click.option("--branch", metavar="NAME", help="The branch, old or new; else the one that is checked out.")
@click.option("--author", metavar="'NAME <MAIL>'", help="The author; else you, as git's configuration says.")
@click.option("--dry-run", is_flag=True, help="Show what the commit would hold, and change nothing.")
@click.option("--stat", is_flag=True, help="Show the files with their lines added and removed.")
@as_json
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    message: str | None,
    sessions: tuple[str, ...],
    first: str | None,
    last: str | None,
    branch: str | None,
    author: str | None,
    dry_run: bool,
    stat: bool,
) -> None:
    """Make one ordinary commit of what sessions or a range did.

    Only that work is in the commit, merged onto the branch's tip: what else is in the working tree
    stays there as it is, and `git status` shows nothing else. A new branch begins at HEAD. Every
    other actor is named as a co-author. What the branch has already is not published twice.

    Nothing is staged for it: the index must be clean, unless --branch names another branch. Hooks
    are not run, and nothing is signed; `git commit --amend -S` does both.

    To take a publish back, use git: `git reset HEAD~`, or `git revert` if others have the commit.
    The work can be published again after that.

    \b
    Examples:
      editctl publish --session fix-parser -m "Fix the parser"
      editctl publish --session fix-parser --session types --dry-run
      editctl publish --session fix-parser --branch agents/parser -m "Fix the parser"
      editctl publish --from 3 --to 17 -m "What was done today"
    """
    if sessions and (first is not None or last is not None):
        raise click.UsageError("Give --session, or --from and --to.")
    if not sessions and first is None and last is None and not os.environ.get("EDITD_SESSION"):
        raise click.UsageError("Say what: --session NAME, or --from TX and --to TX.")
    if message is None and not dry_run:
        raise click.UsageError("Missing option '-m' / '--message'.")
    with invocation.client() as client:
        result = client.publish(
            message or "(no message yet)",
            session=sessions or None,
            from_=None if first is None else transaction_named(first),
            to=None if last is None else transaction_named(last),
            branch=branch,
            author=author,
            dry_run=dry_run,
        )
    if not invocation.say_json(result):
        for line in _lines(result, is_long=stat or dry_run):
            output.echo(line)


def _lines(result: PublishResult, *, is_long: bool) -> Iterator[str]:
    subject = result.message.splitlines()[0]
    if not result.commit:
        yield f"dry run: on {result.branch}: {subject}"
    else:
        yield f"{result.commit[:7]} on {result.branch}: {subject}"
    if is_long:
        yield from _stat(result.files)
    for path in result.left_out:
        yield f"left out, as git would: {path}"


def _stat(files: Sequence[PublishedFile]) -> Iterator[str]:
    for file in files:
        lines = "binary" if file.added is None else f"+{file.added} -{file.removed}"
        yield f" {LETTERS[file.change]} {output.plain(file.path)} | {lines}"
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    yield f" {len(files)} file{'s' * (len(files) != 1)} changed, +{added} -{removed}"
