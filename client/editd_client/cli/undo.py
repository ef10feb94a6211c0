"""`editctl undo`: take back a transaction, a part of one, or all that match, by a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.hunk_choice import check_terminal, choose, hunks_named
from editd_client.cli.options import AuthorOptions, authored, fitting, range_named, transaction_named
from editd_client.cli.undo_report import report_undo, time_named
from editd_client.errors import EditdError, refusal

if TYPE_CHECKING:
    from editd.wire.messages import Filter, Kind, OnConflict, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

UNDOABLE: tuple[Kind, ...] = (
    "edit",
    "exec",
    "rollback",
    "restore",
)  # the kinds that an undo without TX takes back


@click.command()
@click.argument("transaction", required=False, metavar="[TX | A..B]")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of the newest edits to take back.",
)
@click.option(
    "--path", "paths", multiple=True, metavar="PATH",
    help="Only changes of this file or folder. Repeatable.",
)  # fmt: skip
@click.option(
    "--hunk", "hunks", multiple=True, metavar="PATH:K",
    help="Only hunk K of this file, numbered as in `show TX --hunks`. Repeatable.",
)  # fmt: skip
@click.option("-i", "--interactive", is_flag=True, help="Ask for each hunk, as `git add -p` does.")
@click.option("--all", "everything", is_flag=True, help="Every edit of the paths, not only the newest.")
@click.option(
    "--of", "--session", "sessions", multiple=True, metavar="SESSION",
    help="All edits of this session. Repeatable.",
)  # fmt: skip
@click.option(
    "--by", "actors", multiple=True, metavar="NAME",
    help="All edits of this actor, `outside` for other programs. Repeatable.",
)  # fmt: skip
@click.option(
    "--since", metavar="WHEN", help="All from a transaction or a time on, such as 2h or 2026-03-01."
)
@click.option("--until", metavar="WHEN", help="All up to a transaction or a time.")
@fitting
@authored
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    transaction: str | None,
    last: int | None,
    paths: tuple[str, ...],
    hunks: tuple[str, ...],
    interactive: bool,
    everything: bool,
    sessions: tuple[str, ...],
    actors: tuple[str, ...],
    since: str | None,
    until: str | None,
    on_conflict: OnConflict,
    authorship: AuthorOptions,
) -> int:
    """Take back the newest transaction, any other, or part of one.

    Without TX, takes back the newest edit that is not undone. TX can be any transaction, however
    old, and A..B are all from A to B, both included. --path alone selects the newest edit of that
    path, and with --all every edit of it. --of, --by, --since and --until, with or without --path,
    select all transactions that match, and take them back as one. --last N limits them to the
    newest.

    --hunk takes back some hunks of TX, and with --path also those files as a whole. -i asks for each
    hunk of TX, or of the newest edit: y and n answer, and ? lists the other keys.

    Keeps later changes of others in the same files, by a three-way merge. If that does not merge
    cleanly, changes nothing and names the blocking transactions. --dry-run shows them beforehand, and
    the transactions that depend on this one. An undo is a transaction itself: `editctl redo` takes it
    back.

    \b
    Examples:
      editctl undo
      editctl undo 12 --hunk src/app.py:2
      editctl undo --last 3 --dry-run
      editctl undo --by claude --since 2h --path src
    """
    between = None if transaction is None else range_named(transaction)
    if between is not None:
        if since is not None or until is not None:
            raise click.UsageError("Use A..B, or --since and --until, not both.")
        transaction = None
    is_one = transaction is not None
    if is_one and (last is not None or any((everything, sessions, actors, since, until))):
        raise click.UsageError("Use a transaction, or options that select several, not both.")
    if hunks and (interactive or not is_one):
        raise click.UsageError("--hunk needs one TX." if not interactive else "Use --hunk or -i, not both.")
    if interactive:
        if between is not None or last is not None or any((everything, sessions, actors, since, until)):
            raise click.UsageError("-i needs exactly one transaction.")
        if invocation.json:
            raise click.UsageError("Use -i or --json, not both.")
        check_terminal(transaction)
    if everything and last is not None:
        raise click.UsageError("Use --all or --last, not both.")
    chosen = None
    if not is_one and not interactive:
        begin, end = between or (since and time_named(since), until and time_named(until))
        names_only_paths = not any((sessions, actors, begin, end))
        if names_only_paths and not everything and last is None and paths:
            last = 1
        chosen = _filter(invocation, sessions, actors, (begin, end), paths, is_newest=last is not None)
        if everything and chosen is None:
            raise click.UsageError(
                "That selects everything. To put the workspace back as a whole, use `editctl restore`."
            )
    named = invocation.paths(paths) if transaction or interactive else None
    chosen_hunks = hunks_named(invocation, hunks) or None
    with invocation.client() as client:
        tx = None if transaction is None else transaction_named(transaction)
        if interactive:
            tx = _newest(invocation, client, named) if tx is None else tx
            client.undo(tx, paths=named, dry_run=True)  # raises a refusal before the first question
            choice = choose(client, tx, named)
            named, chosen_hunks = choice.paths or None, choice.hunks or None
            if named is None and chosen_hunks is None:
                output.echo("No hunk was chosen. Nothing was changed.")
                return 0
        result = client.undo(
            tx,
            paths=named,
            hunks=chosen_hunks,
            last=last,
            filter=chosen,
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            dry_run=authorship.dry_run,
            on_conflict=on_conflict,
        )
    return report_undo(invocation, result, dry_run=authorship.dry_run)


def _newest(invocation: Invocation, client: Client, paths: list[str] | None) -> Tx:
    """Return the transaction for an undo without TX: the newest with an effect."""
    found = client.log(path=paths, session=invocation.session, kind=UNDOABLE).transactions
    for made in found:
        if made.undone_by is None and _has_effect(client, made.seq, paths):
            return made.seq
    raise refusal("nothing_to_undo", "Nothing to undo.", hint="`log` shows the history.")


def _has_effect(client: Client, seq: int, paths: list[str] | None) -> bool:
    try:
        client.undo(seq, paths=paths, dry_run=True)
    except EditdError as error:
        if error.name == "nothing_to_undo":
            return False
        raise
    return True


def _filter(
    invocation: Invocation,
    sessions: tuple[str, ...],
    actors: tuple[str, ...],
    bounds: tuple[Tx | None, Tx | None],
    paths: tuple[str, ...],
    *,
    is_newest: bool,
) -> Filter | None:
    """Return the filter for the options, or None if they select nothing.

    With `is_newest`, leaves out changes of other programs, as an undo without TX does, unless --by
    selects them.
    """
    from editd.wire.messages import Filter

    named = invocation.paths(paths)
    if not any((sessions, actors, *(bound is not None for bound in bounds), named)):
        return None
    since, until = bounds
    return Filter(
        session=list(sessions) or None,
        actor=list(actors) or None,
        since=since,
        until=until,
        paths=named,
        kind=list(UNDOABLE) if is_newest and output.OUTSIDE not in actors else None,
    )
