"""The verb `review`: the PIN of reviewers, and the grants."""

from __future__ import annotations

import contextlib
import os
import shlex
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.asker import OptionAsker, converse
from editd_client.cli.options import as_json
from editd_client.errors import refusal
from editd_client.optional_part import load_part

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.group("review", invoke_without_command=True)
@click.pass_context
def review_verb(context: click.Context) -> None:
    """Open the reviewers' screen; set a PIN, make grants, mark work.

    Without a command, opens a screen with the proposals, the timeline and the agents of the workspace.
    The key ? lists its keys, and q ends it. The screen needs the extra `review`: in a checkout,
    `pipx install '.[review]'`.

    \b
    Examples:
      editctl review
      editctl review pin
      editctl review allow 'tests/**' --for 1h --of claude --lines 200
      editctl review mark 24..27
    """
    if context.invoked_subcommand is None:
        load_part("screen", "editctl review")(context.obj)


@review_verb.command("pin")
@click.option("--remove", is_flag=True, help="Remove the PIN.")
@click.pass_obj
def pin(invocation: Invocation, *, remove: bool) -> None:
    """Set, change or remove the PIN.

    A program that the proposing program started may decide about the edit only with the PIN.
    So an agent cannot approve its own work from its shell, and you can in the terminal of the same
    editor. The PIN is asked for on the terminal. It is never an argument or an environment variable.
    """
    import getpass

    import msgspec

    from editd.config.pin import PIN_CHARACTERS_MIN, hash_pin, pin_path, read_pin
    from editd_client.cli.config import write_text

    del invocation
    output.check_terminal("The PIN")
    known = read_pin(pin_path())
    if known is not None and not known.matches(getpass.getpass("Present PIN: ")):
        raise refusal(
            "permission_denied", "That is not the PIN.", hint="Remove its file to start anew: " + pin_path()
        )
    if remove:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(pin_path())
        output.echo("The PIN is removed.")
        return
    new = getpass.getpass("New PIN: ")
    if len(new) < PIN_CHARACTERS_MIN:
        raise refusal("invalid_params", f"A PIN has at least {PIN_CHARACTERS_MIN} characters.")
    if getpass.getpass("New PIN, once more: ") != new:
        raise refusal("invalid_params", "The two are not the same.")
    write_text(pin_path(), msgspec.json.encode(hash_pin(new)).decode())
    output.echo("The PIN is set.")


@review_verb.command("allow")
@click.argument("paths", nargs=-1, required=True, metavar="GLOB...")
@click.option(
    "--for", "ttl", default="1h", metavar="TIME", help="How long, such as 30m; a day at most (default: 1h)."
)
@click.option("--of", "session", metavar="SESSION", help="Only edits of this session.")
@click.option("--uses", type=click.IntRange(min=1), metavar="N", help="Only so many edits.")
@click.option(
    "--lines", type=click.IntRange(min=1), metavar="N", help="Only so many lines, added and deleted."
)
@as_json
@click.pass_obj
def allow(
    invocation: Invocation,
    paths: tuple[str, ...],
    ttl: str,
    session: str | None,
    uses: int | None,
    lines: int | None,
) -> None:
    """Let edits of these paths land without a decision, for a time."""
    from editd.config.value_parsers import duration
    from editd_client.conversations import grant

    try:
        duration(ttl)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="'--for'") from None
    limits = {name: str(value) for name, value in (("uses", uses), ("lines", lines)) if value is not None}
    with invocation.reviewer() as client:
        asker = OptionAsker(client, paths=shlex.join(paths), ttl=ttl, **limits)
        made = converse(grant.allow(asker, session))
    assert made is not None, "the options have the answers"
    if not invocation.say_json(made):
        output.echo(f"grant {made.grant}, until {output.local_time(made.expires)}")
        if made.matching:
            waiting = ", ".join(f"P{one}" for one in made.matching)
            output.echo(f"These wait, and would land now: {waiting}")


@review_verb.command("grants")
@as_json
@click.pass_obj
def grants(invocation: Invocation) -> None:
    """List what may land without a decision."""
    with invocation.client(attach=False) as client:
        result = client.review_grants()
    if invocation.say_json(result):
        return
    for one in result.grants:
        left = [
            f"{count} {what} left"
            for count, what in ((one.uses, "edits"), (one.lines, "lines"))
            if count is not None
        ]
        whose = f" of {output.plain(one.session)}" if one.session is not None else ""
        said = ", ".join(
            [f"until {output.local_time(one.expires)}", *left, f"by {output.plain(one.by.actor)}"]
        )
        output.echo(f"{one.grant} {' '.join(map(output.plain, one.paths))}{whose}, {said}")


@review_verb.command("revoke")
@click.argument("grant", type=click.IntRange(min=1))
@as_json
@click.pass_obj
def revoke(invocation: Invocation, grant: int) -> None:
    """End a grant."""
    from editd_client.conversations import grant as conversation

    with invocation.reviewer() as client:
        converse(conversation.revoke(OptionAsker(client), [grant]))
    if not invocation.say_json({}):
        output.echo(f"grant {grant} has ended")


@review_verb.command("mark")
@click.argument("transactions", nargs=-1, metavar="[TX | A..B]...")
@click.option("--of", "sessions", multiple=True, metavar="SESSION", help="All of this session. Repeatable.")
@click.option("--unmark", is_flag=True, help="Take the marks back.")
@as_json
@click.pass_obj
def mark(
    invocation: Invocation, transactions: tuple[str, ...], sessions: tuple[str, ...], unmark: bool
) -> None:
    """Mark transactions as reviewed. `editctl log --unreviewed` lists the others.

    That leaves the work of sessions that is in force. A transaction that a person has approved needs no
    mark. A session may not mark its own work.

    \b
    Examples:
      editctl review mark 12
      editctl review mark 24..27 31
      editctl review mark --of claude
    """
    from editd_client.cli.log import named_transactions
    from editd_client.conversations import review_mark

    if not transactions and not sessions:
        raise click.UsageError("Name the transactions, or a session with --of.")
    with invocation.reviewer(attach=True) as client:
        seqs = list(named_transactions(client, transactions))
        asker = OptionAsker(client, review_mark.MARK)
        marked = converse(review_mark.mark(asker, seqs, sessions=sessions, is_new=not unmark))
    if not invocation.say_json({"marked": marked}):
        output.echo(f"{marked} {'unmarked' if unmark else 'marked as reviewed'}")
