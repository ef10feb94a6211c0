"""`editctl publish`: the work of sessions or of a range, as one commit in your git."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from editd_client.cli import output
from editd_client.cli.options import as_json, transaction_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import PublishedFile, PublishResult
    from editd_client.cli.invocation import Invocation

LETTERS = {"added": "A", "modified": "M", "deleted": "D"}


@click.command("publish")
@click.option("-m", "--message", metavar="TEXT", help="Message of the commit. A dry run needs none.")
@click.option(
    "--session",
    "sessions",
    metavar="NAME",
    multiple=True,
    help="A session whose work to publish (default: $EDITD_SESSION). Repeatable.",
)
@click.option("--from", "first", metavar="TX", help="First transaction of a range (default: the very first).")
@click.option("--to", "last", metavar="TX", help="Last transaction, included (default: the newest).")
@click.option("--branch", metavar="NAME", help="Branch, old or new (default: the checked-out branch).")
@click.option("--author", metavar="'NAME <MAIL>'", help="Author (default: you, from git's configuration).")
@click.option("--dry-run", is_flag=True, help="Show the commit's content without making it.")
@click.option("--stat", is_flag=True, help="Show the files with their lines added and removed.")
@as_json
@click.pass_obj
def publish_verb(invocation: Invocation, /, **given: Any) -> None:
    """Make one ordinary commit of the work of sessions or of a range.

    The commit holds only that work, merged onto the branch's tip. Other changes in the working tree
    stay as they are, and `git status` shows nothing else. A new branch begins at HEAD. Every other
    actor is named as a co-author. Work that the branch already has is not published twice.

    Stages nothing: the index must be clean, unless --branch names another branch. Runs no git hooks
    and signs nothing: `git commit --amend -S` does both.

    To take a publish back, use git: `git reset HEAD~`, or `git revert` if others have the commit.
    After that, the work can be published again.

    \b
    Examples:
      editctl publish --session fix-parser -m "Fix the parser"
      editctl publish --session fix-parser --session types --dry-run
      editctl publish --session fix-parser --branch agents/parser -m "Fix the parser"
      editctl publish --from 3 --to 17 -m "The work of today"
    """
    _publish(invocation, **given)


def _publish(
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
    if sessions and (first is not None or last is not None):
        raise click.UsageError("Use --session, or --from and --to, not both.")
    if not sessions and first is None and last is None and not os.environ.get("EDITD_SESSION"):
        raise click.UsageError("Name the work: --session NAME, or --from TX and --to TX.")
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
