"""`editctl log`: the transactions, newest first."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from editd_client.cli import diffstat, output
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import age, local_time, parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd.wire.messages import Kind, LogResult, Transaction
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

LIMIT = 50
PAGE = 1000  # transactions in one request, while messages are searched
KINDS = ["baseline", "edit", "outside", "exec", "undo", "redo", "rollback", "restore"]
_COUNT = re.compile(r"-\d+")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


class LogCommand(click.Command):
    """A command that accepts `-5` for `-n 5`, as git does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        counted = [
            word
            for number, given in enumerate(args)
            for word in (["-n", given[1:]] if _COUNT.fullmatch(given) and number < end else [given])
        ]
        return super().parse_args(ctx, counted)


@click.command(cls=LogCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), help="Number of transactions, also as -5 (default: 50)."
)
@click.option("--oneline", is_flag=True, help="One line for each transaction.")
@click.option("-p", "--patch", is_flag=True, help="The diff of each transaction.")
@click.option("--stat", is_flag=True, help="The number of changed lines of each file.")
@click.option("--format", "template", metavar="TEXT", help="Template of a line, such as '{seq} {subject}'.")
@click.option(
    "--grep", "patterns", multiple=True, metavar="REGEX", help="Only with this message. Repeatable."
)
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS),
    help="Only this kind, `outside` for other programs. Repeatable.",
)  # fmt: skip
@click.option("--actor", "actors", multiple=True, metavar="NAME", help="Only by this actor. Repeatable.")
@click.option(
    "--of", "--session", "sessions", multiple=True, metavar="SESSION",
    help="Only of this session. Repeatable.",
)  # fmt: skip
@click.option("--before", type=int, metavar="SEQ", help="Only transactions before this one.")
@click.option("--after", type=int, metavar="SEQ", help="Only transactions after this one.")
@click.option("--since", metavar="TIME", help="Only transactions of that time or later.")
@click.option("--until", metavar="TIME", help="Only transactions up to that time.")
@as_json
@click.pass_obj
def verb(
    invocation: Invocation,
    *,
    paths: tuple[str, ...],
    limit: int | None,
    oneline: bool,
    patch: bool,
    stat: bool,
    template: str | None,
    patterns: tuple[str, ...],
    kinds: tuple[Kind, ...],
    actors: tuple[str, ...],
    sessions: tuple[str, ...],
    before: int | None,
    after: int | None,
    since: str | None,
    until: str | None,
) -> None:
    """List the transactions, newest first.

    With PATHs, lists only those that changed one of them.

    A TIME is a time ago (90s, 15m, "2 hours ago", 3d, 1w), a day (today, yesterday, "yesterday
    14:30"), or a date or time such as 2026-03-01 or "2026-03-01 14:30". It is in your own time zone
    unless it names one.

    The fields of --format are seq, id, short, kind, actor, session, time, date, age, subject,
    message, files, undoes and undone_by.

    Changes of other programs appear once the daemon has noticed them. To wait for them, use
    `editctl settle`.

    \b
    Examples:
      editctl log --oneline -10
      editctl log -p src/app.py
      editctl log --since yesterday --kind outside --kind exec --stat
      editctl log --grep 'time.?out' --format '{seq:>5} {actor} {subject}'
    """
    if template is not None:
        _check_template(template)
    asked = {
        "before": before,
        "after": after,
        "path": invocation.paths(paths),
        "session": sessions or None,
        "actor": actors or None,
        "kind": kinds or None,
        "since": None if since is None else parse_time(since),
        "until": None if until is None else parse_time(until),
    }
    with invocation.client() as client:
        result = _matching(client, asked, limit or LIMIT, patterns)
        if not result.transactions:
            for path in paths:
                invocation.check_known(client, path)
        if not invocation.say_json(result):
            output.page(_lines(client, result, oneline=oneline, patch=patch, stat=stat, template=template))
            if result.more and limit is None and template is None:
                output.echo(f"… more: --before {result.transactions[-1].seq}, or a larger --limit")


def _matching(client: Client, asked: dict[str, Any], limit: int, patterns: tuple[str, ...]) -> LogResult:
    """Return the newest transactions whose message matches one of the patterns."""
    from editd.wire.messages import LogResult

    if not patterns:
        return client.log(limit=limit, **asked)
    try:
        regexes = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise click.BadParameter(f"--grep: {error.pattern!r} is not a regular expression: {error}.") from None
    matches: list[Transaction] = []
    while True:
        part = client.log(limit=PAGE, **asked)
        for transaction in part.transactions:
            if any(regex.search(transaction.message) for regex in regexes):
                matches.append(transaction)
                if len(matches) > limit:
                    return LogResult(transactions=matches[:limit], more=True)
        if not part.more:
            return LogResult(transactions=matches, more=False)
        asked = {**asked, "before": part.transactions[-1].seq}


def _lines(
    client: Client, result: LogResult, *, oneline: bool, patch: bool, stat: bool, template: str | None
) -> Iterator[str]:
    short: Iterator[str] | None = None
    if template is not None:
        short = (_formatted(template, transaction) for transaction in result.transactions)
    elif oneline and sys.stdout.isatty():
        short = output.columns(result.transactions)
    elif oneline:
        short = map(output.one_line, result.transactions)
    for number, transaction in enumerate(result.transactions):
        if short is not None:
            yield next(short)
        else:
            yield from ([""] if number else [])
            yield from output.paragraph(transaction, files=not stat)
        if not (patch or stat):
            continue
        diff = client.show(transaction.seq).diff or ""
        if stat:
            yield from ([] if short is not None else [""])
            yield from diffstat.stat_lines(diff)
        if patch:
            yield from ([] if short is not None else [""])
            yield from output.diff_lines(diff)


def _check_template(template: str) -> None:
    """Raise a usage error for a template with an unknown field, before any request."""
    from editd.wire.messages import Transaction

    sample = Transaction(
        seq=0, id="", kind="edit", actor="", session=None, message="", time="2026-01-01T00:00:00Z",
        files=[], undoes=[], undone_by=None, request_id=None,
    )  # fmt: skip
    try:
        _formatted(template, sample)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        fields = ", ".join(_fields(sample))
        raise click.BadParameter(f"{template!r} is not a format. The fields are {fields}.") from None


def _formatted(template: str, transaction: Transaction) -> str:
    unescaped = re.sub(r"\\[nt\\]", lambda match: _ESCAPES[match[0]], template)
    return unescaped.format_map(_fields(transaction))


def _fields(transaction: Transaction) -> dict[str, str]:
    """Return the fields of `--format`, all as text, so that a width such as `{seq:>5}` always works."""
    return {
        "seq": str(transaction.seq),
        "id": transaction.id,
        "short": transaction.id[: output.ID_DIGITS],
        "kind": transaction.kind,
        "actor": output.plain(transaction.actor),
        "session": output.plain(transaction.session or ""),
        "time": transaction.time,
        "date": local_time(transaction.time),
        "age": age(transaction.time),
        "subject": output.plain(transaction.message.partition("\n")[0]),
        "message": output.plain(transaction.message, but="\n\t"),
        "files": " ".join(output.plain(file.path) for file in transaction.files),
        "undoes": " ".join(map(str, transaction.undoes)),
        "undone_by": "" if transaction.undone_by is None else str(transaction.undone_by),
    }
