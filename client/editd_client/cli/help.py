"""The verbs `help` and `version`: the options `--help` and `--version` as words."""

from __future__ import annotations

import click

from editd import __version__
from editd_client.cli import output


@click.command("help")
@click.argument("words", nargs=-1, metavar="[VERB]...")
@click.pass_context
def help_verb(context: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of editctl, or of a verb.

    \b
    Examples:
      editctl help
      editctl help undo
      editctl help session open
    """
    shown = context.parent
    assert shown is not None, "the verb is below `editctl`"
    for word in words:
        group = shown.command
        command = group.get_command(shown, word) if isinstance(group, click.Group) else None
        if command is None:
            raise click.UsageError(f"{word!r} is no verb of {shown.command_path!r}.", shown)
        shown = click.Context(command, parent=shown, info_name=word)
    output.echo(shown.get_help())


@click.command("version")
def version_verb() -> None:
    """Print the version.

    \b
    Examples:
      editctl version
      editctl version | cut -d' ' -f3
    """
    output.echo(f"editctl, version {__version__}")
