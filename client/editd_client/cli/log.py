"""The verbs that list transactions: `log`, `show` and `watch`."""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from editd.words import Face
from editd_client.cli import output
from editd_client.cli.contents import hunk_lines, stat_lines
from editd_client.cli.options import as_json, parse_range, parse_time, parse_transaction
from editd_client.errors import EditdError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import Kind, LogResult, ShowResult, Transaction, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client
    from editd_client.session_state import Happening


LIMIT = 50
PAGE = 1000  # transactions in one request, while messages are searched
KINDS = ["baseline", "edit", "outside", "exec", "undo", "redo", "rollback", "restore", "claim"]
_COUNT = re.compile(r"-\d+")
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


class LogCommand(click.Command):
    """A command that accepts `-5` for `-n 5`, as git does."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        counted = [
            word
            for number, argument in enumerate(args)
            for word in (["-n", argument[1:]] if _COUNT.fullmatch(argument) and number < end else [argument])
        ]
        return super().parse_args(ctx, counted)


@click.command("log", cls=LogCommand)
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
@click.option("-S", "text", metavar="TEXT", help="Only if a file then has this text more or less often.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(KINDS),
    help="Only this kind, `outside` for other programs. Repeatable.",
)  # fmt: skip
@click.option("--actor", "actors", multiple=True, metavar="NAME", help="Only by this actor. Repeatable.")
@click.option(
    "--of", "--session", "sessions", multiple=True, metavar="SESSION",
    help="Only of this session. Repeatable.",
)  # fmt: skip
@click.option(
    "--turn", "turns", multiple=True, type=click.IntRange(min=1), metavar="N",
    help="Only of this turn of the --of session. Repeatable.",
)  # fmt: skip
@click.option("--prompt", metavar="TEXT", help="Only of turns with this text in the prompt.")
@click.option("--before", type=int, metavar="SEQ", help="Only transactions before this one.")
@click.option("--after", type=int, metavar="SEQ", help="Only transactions after this one.")
@click.option("--since", metavar="TIME", help="Only transactions of that time or later.")
@click.option("--until", metavar="TIME", help="Only transactions up to that time.")
@click.option("--unreviewed", is_flag=True, help="Only work of sessions that no person has reviewed.")
@click.option("--refused", is_flag=True, help="The latest refusals of edits, in place of transactions.")
@as_json
@click.pass_obj
def log_verb(invocation: Invocation, /, **options: Any) -> None:
    """List the transactions, newest first.

    With PATHs, lists only transactions that changed a PATH. With --refused, lists the refused edits since
    the daemon began, 500 at most.

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
      editctl log --since yesterday --kind outside --kind exec --stat
      editctl log -S 'timeout = 5' --oneline
      editctl log --grep 'time.?out' --format '{seq:>5} {actor} {subject}'
    """
    _log(invocation, LogOptions(**options))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """The options of `log`: the transactions that it lists, and the form of the list."""

    paths: tuple[str, ...]
    limit: int | None
    patterns: tuple[str, ...]
    text: str | None
    kinds: tuple[Kind, ...]
    actors: tuple[str, ...]
    sessions: tuple[str, ...]
    turns: tuple[int, ...]
    prompt: str | None
    before: int | None
    after: int | None
    since: str | None
    until: str | None
    oneline: bool
    patch: bool
    stat: bool
    template: str | None
    unreviewed: bool
    refused: bool


def _log(invocation: Invocation, options: LogOptions) -> None:
    if options.template is not None:
        _check_template(options.template)
    if options.turns and not options.sessions:
        raise click.UsageError("--turn goes with --of SESSION.")
    if options.refused:
        _list_refusals(invocation, options)
        return
    asked = {
        "before": options.before,
        "after": options.after,
        "path": invocation.paths(options.paths),
        "session": options.sessions or None,
        "turn": options.turns or None,
        "prompt": options.prompt,
        "actor": options.actors or None,
        "kind": options.kinds or None,
        "since": None if options.since is None else parse_time(options.since),
        "until": None if options.until is None else parse_time(options.until),
        "unreviewed": options.unreviewed,
    }
    with invocation.client() as client:
        result = _matching(client, asked, options.limit or LIMIT, options)
        if not result.transactions:
            for path in options.paths:
                invocation.check_known(client, path)
        if not invocation.say_json(result):
            output.page(_lines(client, result, options))
            for warning in result.warnings if isinstance(result.warnings, list) else ():
                output.print_error(output.paint(f"warning: {output.plain(warning)}", "magenta"))
            if result.more and options.limit is None and options.template is None:
                output.echo(f"… more: --before {result.transactions[-1].seq}, or a larger --limit")


def _list_refusals(invocation: Invocation, options: LogOptions) -> None:
    if len(options.sessions) > 1:
        raise click.UsageError("--refused goes with one --of at most.")
    with invocation.client() as client:
        result = client.log_refusals(
            session=options.sessions[0] if options.sessions else None, limit=options.limit or LIMIT
        )
    if invocation.say_json(result):
        return
    for entry in result.refusals:
        output.echo(f"{output.local_time(entry.time)[-8:]}  {output.refused(entry)}")


def _matching(client: Client, asked: dict[str, Any], limit: int, options: LogOptions) -> LogResult:
    """Return the newest transactions whose message matches a pattern, and whose changes have the text."""
    from editd.wire.messages import LogResult

    patterns, text = options.patterns, options.text
    if text == "":
        raise click.BadParameter("-S: the text is empty.")
    if not patterns and text is None:
        return client.log(limit=limit, **asked)
    try:
        regexes = [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise click.BadParameter(f"--grep: {error.pattern!r} is not a regular expression: {error}.") from None
    matches: list[Transaction] = []
    while True:
        part = client.log(limit=PAGE, **asked)
        for transaction in part.transactions:
            is_named = not regexes or any(regex.search(transaction.message) for regex in regexes)
            if is_named and (text is None or _changes(client, transaction, text)):
                matches.append(transaction)
                if len(matches) > limit:
                    return LogResult(transactions=matches[:limit], more=True, warnings=part.warnings)
        if not part.more:
            return LogResult(transactions=matches, more=False, warnings=part.warnings)
        asked = {**asked, "before": part.transactions[-1].seq}


def _changes(client: Client, transaction: Transaction, text: str) -> bool:
    """Return whether a transaction changes how often a text is in its files."""
    if transaction.kind in ("baseline", "claim"):
        return False
    try:
        diff = client.show(transaction.seq, decoded=True).diff or ""
    except EditdError as error:
        output.print_error(f"{transaction.seq} was not searched: {error.text(Face.COMMAND_LINE)}")
        return False
    counts = {"-": 0, "+": 0}
    for hunk in re.split(r"(?m)^@@ .*\n", diff)[1:]:
        body = hunk.partition("\ndiff --git ")[0].split("\n")
        for sign in counts:
            side = "\n".join(line[1:] for line in body if line[:1] in (" ", sign))
            counts[sign] += side.count(text)
    return counts["-"] != counts["+"]


def _lines(client: Client, result: LogResult, options: LogOptions) -> Iterator[str]:
    short: Iterator[str] | None = None
    if (template := options.template) is not None:
        short = (_format(template, transaction) for transaction in result.transactions)
    elif options.oneline and sys.stdout.isatty():
        short = output.columns(result.transactions)
    elif options.oneline:
        short = map(output.one_line, result.transactions)
    for number, transaction in enumerate(result.transactions):
        if short is not None:
            yield next(short)
        else:
            yield from ([""] if number else [])
            yield from output.paragraph(transaction, files=not options.stat)
        if not (options.patch or options.stat):
            continue
        diff = client.show(transaction.seq, decoded=sys.stdout.isatty()).diff or ""
        if options.stat:
            yield from ([] if short is not None else [""])
            yield from stat_lines(diff)
        if options.patch:
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
        _format(template, sample)
    except (KeyError, ValueError, IndexError, AttributeError, TypeError):
        fields = ", ".join(_fields(sample))
        raise click.BadParameter(f"{template!r} is not a format. The fields are {fields}.") from None


def _format(template: str, transaction: Transaction) -> str:
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
        "date": output.local_time(transaction.time),
        "age": output.age(transaction.time),
        "subject": output.plain(transaction.message.partition("\n")[0]),
        "message": output.plain(transaction.message, but="\n\t"),
        "files": " ".join(output.plain(file.path) for file in transaction.files),
        "undoes": " ".join(map(str, transaction.undoes)),
        "undone_by": "" if transaction.undone_by is None else str(transaction.undone_by),
    }


@click.command("show")
@click.argument("transactions", nargs=-1, metavar="[TX | A..B]...")
@click.option("--stat", is_flag=True, help="The number of changed lines of each file, in place of the diff.")
@click.option("--hunks", is_flag=True, help="Each hunk under its name PATH:K, for `undo --hunk`.")
@as_json
@click.pass_obj
def show_verb(invocation: Invocation, transactions: tuple[str, ...], stat: bool, hunks: bool) -> None:
    """Show transactions and their changes.

    Without TX, shows the newest. TX is a number from `log`, or the beginning of an id. A..B are all
    transactions from A to B, both included, in order. With --json, each transaction is a document
    on its own line.

    \b
    Examples:
      editctl show 12
      editctl show 24..27 --stat
      editctl show 12 --hunks
      editctl show 3f2a9c1
    """
    if stat and hunks:
        raise click.UsageError("Use --stat or --hunks, not both.")
    with invocation.client() as client:
        decoded = not invocation.json and sys.stdout.isatty()
        results = _results(client, transactions, hunks=hunks, decoded=decoded)
        if invocation.json:
            for result in results:
                invocation.say_json(result)
        else:
            output.page(_result_lines(invocation, results, stat=stat))


def _results(
    client: Client, transactions: tuple[str, ...], *, hunks: bool, decoded: bool
) -> Iterator[ShowResult]:
    """Request each transaction that the arguments name, the first one at once."""
    named: Sequence[Tx] = [tx for name in transactions for tx in _resolve(client, name)]
    named = named or [client.status().head]
    show = functools.partial(client.show, hunks=hunks, diff=not hunks, decoded=decoded)
    return itertools.chain([show(named[0])], map(show, named[1:]))


def named_transactions(client: Client, transactions: Sequence[str]) -> Iterator[int]:
    """Yield the numbers of the transactions that the arguments name."""
    for name in transactions:
        for tx in _resolve(client, name):
            yield tx if isinstance(tx, int) else client.show(tx, diff=False).transaction.seq


def _resolve(client: Client, name: str) -> Sequence[Tx]:
    ends = parse_range(name)
    if ends is None:
        return [parse_transaction(name)]
    first, last = (client.show(end, diff=False).transaction.seq for end in ends)
    if first > last:
        raise click.BadParameter(f"{name} is empty: the first one is newer than the last.")
    return range(first, last + 1)


def _result_lines(invocation: Invocation, results: Iterator[ShowResult], *, stat: bool) -> Iterator[str]:
    for number, result in enumerate(results):
        yield from [""] if number else []
        yield from output.paragraph(result.transaction, files=not stat)
        if result.diff:
            yield ""
            yield from stat_lines(result.diff) if stat else output.diff_lines(result.diff)
        if isinstance(result.hunks, list):
            yield from hunk_lines(invocation, result)


WILDCARD = re.compile(r"[*?\[]")


@click.command("watch")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="Transaction to begin after (default: the newest).",
)
@click.option(
    "--of", "--session", "sessions", multiple=True, metavar="SESSION",
    help="Only transactions of this session. Repeatable.",
)  # fmt: skip
@click.option("-p", "--patch", is_flag=True, help="The diff of each transaction.")
@click.option("--stat", is_flag=True, help="The number of changed lines of each file.")
@click.option("--exec", "command", metavar="COMMAND", help="Shell command to run on each transaction.")
@as_json
@click.pass_obj
def watch_verb(
    invocation: Invocation, *, paths: tuple[str, ...], since: int | None, sessions: tuple[str, ...],
    patch: bool, stat: bool, command: str | None,
) -> None:  # fmt: skip
    """Print each transaction as it happens, and each refused edit.

    Prints one a line, until Ctrl-C, on a terminal with its time, its files and the number of its lines.
    With PATHs, only transactions that touch a PATH or a path below it. A PATH with * or ? or [ is a
    glob, such as 'src/**/*.py'. With --json, each line is an event as the daemon sends it.

    COMMAND runs in the current folder, with the number of the transaction in EDITD_SEQ and the event
    as JSON on standard input. The commands run one after the other, and no transaction is left out.
    If a command fails, `watch` prints its exit status and goes on. If COMMAND edits files of the
    workspace, it runs again for its own edits: choose others by PATH or --of.

    \b
    Examples:
      editctl watch src --of refactoring
      editctl watch -p '*.py'
      editctl watch src --exec 'make test'
      editctl watch --since 0 --json | jq -r .transaction.message
    """
    if invocation.json and (patch or stat):
        raise click.UsageError("--json prints events: use it without --patch and --stat.")
    with invocation.client() as client:
        globs = [_glob(invocation, path) for path in paths]
        is_sized = sys.stdout.isatty() and not (invocation.json or patch or stat)
        for happening in _events(client, globs, since, is_gapless=command is not None):
            transaction = happening.transaction
            if sessions and _session_of(happening) not in (None, *sessions):
                continue
            line = _json(happening) if invocation.json else _line(happening)
            if line is not None and transaction is not None and is_sized:
                line += _size(client, transaction)
            if line is not None:
                output.echo(line)
            if transaction is not None and (patch or stat):
                diff = client.show(transaction.seq, decoded=sys.stdout.isatty()).diff or ""
                _print_diff(diff, patch=patch, stat=stat)
            output.flush()
            if transaction is not None and command is not None:
                _run(command, transaction.seq, _json(happening))
    output.print_error("editctl: the daemon has ended")


def _session_of(happening: Happening) -> str | None:
    """Return the session that an event of a transaction or a refusal is about; None for any other."""
    if happening.transaction is not None:
        return happening.transaction.session or ""
    return happening.data["refusal"]["session"] or "" if happening.event == "refusal" else None


def _events(
    client: Client, globs: Sequence[str], since: int | None, *, is_gapless: bool
) -> Iterator[Happening]:
    """Yield the events; if `is_gapless`, subscribe again from where the daemon left some out."""
    while True:
        for happening in client.subscribe(paths=globs or None, since=since):
            if is_gapless and happening.event == "resync" and happening.data.get("reason") == "behind":
                since = happening.data["from"]
                break
            yield happening
        else:
            return


def _print_diff(diff: str, *, patch: bool, stat: bool) -> None:
    for line in stat_lines(diff) if stat else ():
        output.echo(line)
    for line in output.diff_lines(diff) if patch else ():
        output.echo(line)


def _run(command: str, seq: int, event: str) -> None:
    """Run a shell command on a transaction, and print its exit status if it fails."""
    import subprocess

    status = subprocess.run(
        ["sh", "-c", command], input=event.encode() + b"\n", check=False,
        env={**os.environ, "EDITD_SEQ": str(seq)},
    ).returncode  # fmt: skip
    if status:
        output.print_error(f"editctl: the command for transaction {seq} failed (exit status {status})")


def _glob(invocation: Invocation, argument: str) -> str:
    """Return the glob for an argument: an existing path, or a glob relative to the current folder."""
    if WILDCARD.search(argument) and not os.path.lexists(invocation.absolute(argument)):
        return invocation.path(argument)
    if invocation.absolute(argument) == invocation.workspace.root:
        return "**"
    return re.sub(r"^!|[*?\[\]\\]", r"\\\g<0>", invocation.path(argument))


def _json(happening: Happening) -> str:
    from editd.wire.codec import encode_json

    about = {} if happening.transaction is None else {"transaction": happening.transaction}
    return encode_json({"event": happening.event, **about, **happening.data}).decode()


def _line(happening: Happening) -> str | None:
    """Return the line for a person, or None for an event that is only for programs."""
    if (transaction := happening.transaction) is not None:
        line = output.one_line(transaction)
        return f"{output.local_time(transaction.time)[-8:]}  {line}" if sys.stdout.isatty() else line
    if happening.event == "refusal":
        return _refusal_line(happening)
    if happening.event == "resync":
        start, head = happening.data.get("from"), happening.data.get("head")
        if happening.data.get("reason") != "behind" or start == head:
            return None
        return output.paint(f"… {start} to {head} went by too fast: editctl log --after {start}", "magenta")
    return None


def _size(client: Client, made: Transaction) -> str:
    """Return the files of a transaction if its line does not have them, and its added and deleted lines."""
    from editd_client.review.timeline import TimelineRow

    rows = client.log(before=made.seq + 1, limit=1, brief=True, stat=True).transactions
    if not rows or rows[0].seq != made.seq:  # compacted meanwhile
        return ""
    row = TimelineRow.of(rows[0])
    files = f"  {output.plain(row.files)}" if made.message or made.undoes else ""
    return files if row.added is None else f"{files}  +{row.added} -{row.deleted}"


def _refusal_line(happening: Happening) -> str:
    from editd.wire.codec import convert
    from editd.wire.messages import RefusalEntry

    entry = convert(happening.data["refusal"], RefusalEntry)
    line = output.refused(entry)
    return f"{output.local_time(entry.time)[-8:]}  {line}" if sys.stdout.isatty() else line
