"""The verbs that take back and publish: `undo`, `redo`, `rollback`, `restore` and `publish`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from editd.advice import Advice, method_term
from editd.words import in_the_way
from editd_client.cli import output
from editd_client.cli.asker import OptionAsker, converse
from editd_client.cli.contents import HunkSelection, check_terminal, choose, parse_hunks
from editd_client.cli.edits import report
from editd_client.cli.options import (
    AuthorOptions,
    as_json,
    authored,
    fitting,
    forcing,
    is_time,
    parse_range,
    parse_time,
    parse_transaction,
)
from editd_client.errors import EditdError, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from editd.wire.messages import (
        Filter,
        InTheWay,
        Kind,
        OnConflict,
        PublishedFile,
        PublishResult,
        Tx,
        UndoResult,
    )
    from editd_client.cli.invocation import Invocation
    from editd_client.cli.options import AuthorOptions
    from editd_client.client import Client
    from editd_client.prepared_call import PreparedCall

UNDOABLE: tuple[Kind, ...] = (
    "edit",
    "exec",
    "rollback",
    "restore",
)  # the kinds that an undo without TX takes back


@click.command("undo")
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
def undo_verb(
    invocation: Invocation, /, *, on_conflict: OnConflict, authorship: AuthorOptions, **values: Any
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
    options = UndoOptions(**values)
    options.check(invocation)
    return _undo(invocation, options, on_conflict, authorship)


def _undo(
    invocation: Invocation, options: UndoOptions, on_conflict: OnConflict, authorship: AuthorOptions
) -> int:
    from editd_client import requests

    transaction = None if options.one is None else parse_transaction(options.one)
    filter_, parts = options.filter(invocation), options.parts(invocation)
    with invocation.client() as client:
        if options.interactive:
            named = parts.paths or None
            transaction = transaction or _newest(invocation, client, named)
            client.undo(transaction, paths=named, dry_run=True)  # raises a refusal before the first question
            parts = choose(client, transaction, named)
            if not (parts.paths or parts.hunks):
                output.echo("No hunk was chosen. Nothing was changed.")
                return 0
        call = partial(
            requests.undo,
            transaction,
            paths=parts.paths or None,
            hunks=parts.hunks or None,
            last=options.newest,
            filter=filter_,
        )
        result = _reverse(client, call, authorship, on_conflict)
    return report_undo(invocation, result, dry_run=authorship.dry_run)


def _reverse(
    client: Client,
    call: Callable[..., PreparedCall[Any]],
    authorship: AuthorOptions,
    on_conflict: OnConflict = "fail",
) -> Any:
    """Take something back as the options of the verb say, and return the result of the request."""
    from editd_client.conversations.reversal import FITTING, FORCE, MAKE, Reversal, reverse

    answer = {"fail": MAKE, "skip": FITTING, "force": FORCE}[on_conflict]
    reversal = Reversal(call=partial(call, **authorship.params))
    return converse(reverse(OptionAsker(client, answer), reversal, request_id=authorship.request_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoOptions:
    """The options of `undo` that select transactions, or parts of one."""

    transaction: str | None  # one, or A..B
    last: int | None
    paths: tuple[str, ...]
    hunks: tuple[str, ...]
    interactive: bool
    everything: bool
    sessions: tuple[str, ...]
    actors: tuple[str, ...]
    since: str | None
    until: str | None

    @property
    def between(self) -> tuple[Tx, Tx] | None:
        return None if self.transaction is None else parse_range(self.transaction)

    @property
    def one(self) -> str | None:
        return None if self.between is not None else self.transaction

    @property
    def newest(self) -> int | None:
        """The number of the newest edits to take back: one if only paths are given."""
        names_only_paths = not any((self.sessions, self.actors, self.since, self.until, self.between))
        is_one = self.one is not None or self.interactive or self.everything
        return 1 if self.last is None and self.paths and names_only_paths and not is_one else self.last

    def check(self, invocation: Invocation) -> None:
        """Raise a usage error for options that do not go together."""
        selects_several = any((self.everything, self.sessions, self.actors, self.since, self.until))
        selects_several = selects_several or self.last is not None
        if self.between is not None and (self.since is not None or self.until is not None):
            raise click.UsageError("Use A..B, or --since and --until, not both.")
        if self.one is not None and selects_several:
            raise click.UsageError("Use a transaction, or options that select several, not both.")
        if self.hunks and self.interactive:
            raise click.UsageError("Use --hunk or -i, not both.")
        if self.hunks and self.one is None:
            raise click.UsageError("--hunk needs one TX.")
        if self.interactive:
            if self.between is not None or selects_several:
                raise click.UsageError("-i needs exactly one transaction.")
            if invocation.json:
                raise click.UsageError("Use -i or --json, not both.")
            check_terminal(self.one)
        if self.everything and self.last is not None:
            raise click.UsageError("Use --all or --last, not both.")

    def filter(self, invocation: Invocation) -> Filter | None:
        """Return the filter, or None if the options select nothing. Raises a usage error for a bare --all.

        Of the newest, it leaves out changes of other programs, as an undo without TX does, unless --by
        selects them.
        """
        from editd.wire.messages import Filter

        if self.one is not None or self.interactive:
            return None
        since, until = self.between or (
            None if self.since is None else parse_moment(self.since),
            None if self.until is None else parse_moment(self.until),
        )
        paths = invocation.paths(self.paths)
        if not any((self.sessions, self.actors, since is not None, until is not None, paths)):
            if self.everything:
                raise click.UsageError(
                    "That selects everything. To put the workspace back as a whole, use `editctl restore`."
                )
            return None
        return Filter(
            session=list(self.sessions) or None,
            actor=list(self.actors) or None,
            since=since,
            until=until,
            paths=paths,
            kind=list(UNDOABLE) if self.newest is not None and output.OUTSIDE not in self.actors else None,
        )

    def parts(self, invocation: Invocation) -> HunkSelection:
        """Return the parts of the one transaction: all of it if there are none."""
        is_one = self.one is not None or self.interactive
        paths = invocation.paths(self.paths) if is_one else None
        return HunkSelection(paths or [], parse_hunks(invocation, self.hunks))


def _newest(invocation: Invocation, client: Client, paths: list[str] | None) -> Tx:
    """Return the transaction for an undo without TX: the newest with an effect."""
    transactions = client.log(path=paths, session=invocation.session, kind=UNDOABLE).transactions
    for made in transactions:
        if made.undone_by is None and _has_effect(client, made.seq, paths):
            return made.seq
    raise refusal(
        "nothing_to_undo", "Nothing to undo.", hint=Advice("Use ", method_term("log"), " to see the history.")
    )


def _has_effect(client: Client, seq: int, paths: list[str] | None) -> bool:
    try:
        client.undo(seq, paths=paths, dry_run=True)
    except EditdError as error:
        if error.name == "nothing_to_undo":
            return False
        raise
    return True


@click.command("redo")
@forcing
@authored
@click.pass_obj
def redo_verb(invocation: Invocation, force: bool, authorship: AuthorOptions) -> int:
    """Take back the newest undo.

    Call it again for the undo before that one, as in an editor. Like an undo, it keeps later
    changes by others, and is a separate transaction.

    \b
    Examples:
      editctl redo
      editctl redo --dry-run
    """
    from editd_client import requests

    with invocation.client() as client:
        result = _reverse(client, requests.redo, authorship, "force" if force else "fail")
    return report_undo(invocation, result, dry_run=authorship.dry_run)


@click.command("rollback")
@click.argument("session")
@click.option(
    "--since", metavar="WHEN", help="Only work since a transaction or a time, such as 2h or 2026-03-01."
)
@click.option("--include-published", is_flag=True, help="Also take back published work. The commit stays.")
@click.option(
    "--include-by-time",
    "--all",
    is_flag=True,
    help="Also take back what another program may have written.",
)
@fitting
@authored
@click.pass_obj
def rollback_verb(
    invocation: Invocation,
    session: str,
    since: str | None,
    include_published: bool,
    include_by_time: bool,
    on_conflict: OnConflict,
    authorship: AuthorOptions,
) -> int:
    """Take back all the work of a session.

    Takes back its edits and commands in force, as one transaction. Keeps the changes of others,
    also in the same files. If later changes of others do not merge, changes nothing and names the
    blocking transactions. --dry-run shows them beforehand, and --what-fits takes back the rest.
    `editctl undo` takes back a rollback. Published work stays in the files unless
    --include-published is given. A change that was found while a command of the session ran stays
    if another program had just written the same file, unless --include-by-time is given.

    \b
    Examples:
      editctl rollback fix-login --dry-run
      editctl rollback fix-login --since 30m
      editctl rollback fix-login --what-fits
      editctl rollback 'codex-12345678*'
    """
    from editd_client import requests

    with invocation.client() as client:
        call = partial(
            requests.rollback,
            session,
            since=None if since is None else parse_moment(since),
            include_published=include_published,
            include_by_time=include_by_time,
        )
        result = _reverse(client, call, authorship, on_conflict)
    return report_undo(invocation, result, dry_run=authorship.dry_run)


BEFORE_NEWEST = "before_newest"  # in place of WHEN, as the protocol names it


class RestoreCommand(click.Command):
    """A command whose WHEN may be left out before `--`, as with `git restore`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            _, words, _ = self.make_parser(ctx).parse_args(list(args[:at]))
            if not words:
                args = [*args[:at], BEFORE_NEWEST, *args[at:]]
        return super().parse_args(ctx, args)


@click.command("restore", cls=RestoreCommand)
@click.argument("when", metavar="[WHEN]")
@click.argument("paths", nargs=-1, metavar="[PATH]…")
@authored
@click.pass_obj
def restore_verb(
    invocation: Invocation, when: str, paths: tuple[str, ...], authorship: AuthorOptions
) -> None:
    """Put the workspace, or some paths, back to an earlier state.

    The state is that right after WHEN: a transaction, or a time such as 2h (ago) or
    2026-03-01T14:30. 0 is the baseline. Unlike an undo, removes all later changes of these paths,
    by any author. The history keeps them, and `editctl undo` brings them back. A file that
    editd never saw stays, and an unchanged file is not touched. With PATHs after `--` and no WHEN, each
    path gets the version before its newest change, all of them in one transaction.

    \b
    Examples:
      editctl restore -- src/app.py
      editctl restore 40 --dry-run
      editctl restore 40 src/app.py tests
      editctl restore 10m
    """
    from editd_client import requests

    with invocation.client() as client:
        named = invocation.paths(paths)
        if when == BEFORE_NEWEST and not named:
            raise click.UsageError("Name a path after `--`, or a state.")
        state = when if when == BEFORE_NEWEST else parse_moment(when)
        result = _reverse(client, partial(requests.restore, state, paths=named), authorship)
        report(invocation, result, dry_run=authorship.dry_run)


REFUSED_EXIT_CODE = 1


def parse_moment(text: str) -> Tx:
    """Return a transaction, or a time as RFC 3339: `2h` is two hours ago, without a zone it is local."""
    return parse_time(text) if is_time(text) else parse_transaction(text.strip())


def report_undo(invocation: Invocation, result: UndoResult, *, dry_run: bool) -> int:
    """Print the result. Return the exit code, REFUSED for a dry run with conflicts."""
    conflicts = result.conflicts if isinstance(result.conflicts, list) else []
    if not invocation.say_json(result):
        lines = output.applied(result, dry_run=dry_run)
        if conflicts:
            output.echo(next(lines))
            for line in _in_the_way(conflicts, is_left=result.transaction is not None):
                output.echo(line)
        for line in lines:
            output.echo(line)
        if isinstance(result.by_time, list):
            output.echo("found while a command ran, so they may hold what others saved meanwhile:")
            for part in result.by_time:
                output.echo(f" {output.plain(part.path)} ({part.seq})")
    return REFUSED_EXIT_CODE if conflicts else 0


def _in_the_way(conflicts: list[InTheWay], *, is_left: bool) -> Iterator[str]:
    for one in conflicts:
        later = f", {in_the_way(one.blocking)}" if one.blocking else ""
        effect = "keeps the parts that do not merge" if is_left else "does not merge"
        yield f" {output.paint('!', 'red')} {output.plain(one.path)} {effect}{later}"
        for hunk in one.hunks if isinstance(one.hunks, list) else ():
            yield from output.diff_lines(hunk)
    needs = sorted({seq for one in conflicts for seq in one.needs}, reverse=True)
    order = ", in this order" if len(needs) > 1 else ""
    if is_left and needs:
        yield output.paint(f"to take back the rest: undo {_list(needs)} first{order}", "red")
    elif not is_left:
        first = f"undo {_list(needs)} first{order}, or " if needs else ""
        yield output.paint(f"it would be refused: {first}use --force", "red")


def _list(seqs: list[int]) -> str:
    return ", ".join(map(str, seqs))


LETTERS = {"added": "A", "modified": "M", "deleted": "D"}


@click.command("publish")
@click.argument("names", nargs=-1, metavar="[SESSION]…")
@click.option("-m", "--message", metavar="TEXT", help="Message of the commit. A dry run needs none.")
@click.option(
    "--session",
    "sessions",
    metavar="NAME",
    multiple=True,
    help="A session whose work to publish, as SESSION (default: $EDITD_SESSION). Repeatable.",
)
@click.option("--from", "first", metavar="TX", help="First transaction of a range (default: the very first).")
@click.option("--to", "last", metavar="TX", help="Last transaction, included (default: the newest).")
@click.option("--branch", metavar="NAME", help="Branch, old or new (default: the checked-out branch).")
@click.option("--author", metavar="'NAME <MAIL>'", help="Author (default: you, from git's configuration).")
@click.option("--dry-run", is_flag=True, help="Show the commit's content without making it.")
@click.option("--stat", is_flag=True, help="Show the files with their lines added and removed.")
@as_json
@click.pass_obj
def publish_verb(invocation: Invocation, /, **options: Any) -> None:
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
      editctl publish fix-parser -m "Fix the parser"
      editctl publish --session fix-parser --session types --dry-run
      editctl publish --session fix-parser --branch agents/parser -m "Fix the parser"
      editctl publish --from 3 --to 17 -m "The work of today"
    """
    names = options.pop("names")
    _publish(invocation, **{**options, "sessions": (*names, *options["sessions"])})


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
    from editd_client.conversations.asker import CommitPreview
    from editd_client.conversations.publication import MAKE, publish

    if sessions and (first is not None or last is not None):
        raise click.UsageError("Use --session, or --from and --to, not both.")
    if not sessions and first is None and last is None and not os.environ.get("EDITD_SESSION"):
        raise click.UsageError("Name the work: --session NAME, or --from TX and --to TX.")
    if message is None and not dry_run:
        raise click.UsageError("Missing option '-m' / '--message'.")
    with invocation.client() as client:
        asker = OptionAsker(client, None if dry_run else MAKE, message=message)
        made = converse(
            publish(
                asker,
                " ".join(sessions),
                session=sessions or None,
                from_=None if first is None else parse_transaction(first),
                to=None if last is None else parse_transaction(last),
                branch=branch,
                author=author,
            )
        )
    about = None if asker.question is None else asker.question.about
    result = about.commit if isinstance(about, CommitPreview) else made
    assert result is not None, "the options have the answer"
    if not invocation.say_json(result):
        for line in _commit_lines(result, is_long=stat or dry_run):
            output.echo(line)


def _commit_lines(result: PublishResult, *, is_long: bool) -> Iterator[str]:
    subject = output.plain(result.message.partition("\n")[0])
    branch = output.plain(result.branch)
    if not result.commit:
        yield f"dry run: on {branch}: {subject}"
    else:
        yield f"{result.commit[:7]} on {branch}: {subject}"
    if is_long:
        yield from _commit_stat(result.files)
    for path in result.left_out:
        yield f"left out, as git would: {output.plain(path)}"


def _commit_stat(files: Sequence[PublishedFile]) -> Iterator[str]:
    for file in files:
        lines = "binary" if file.added is None else f"+{file.added} -{file.removed}"
        yield f" {LETTERS[file.change]} {output.plain(file.path)} | {lines}"
    added, removed = sum(file.added or 0 for file in files), sum(file.removed or 0 for file in files)
    yield f" {len(files)} file{'s' * (len(files) != 1)} changed, +{added} -{removed}"
