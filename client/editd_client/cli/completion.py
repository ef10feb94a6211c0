"""`editctl completion`: the completion script for a shell."""

from __future__ import annotations

import click

from editd_client.cli import output

SHELLS = ["bash", "zsh", "fish"]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def verb(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    Completes verbs, options, paths, and values from the running daemon: transactions, sessions,
    leases, dialects and their tools. Never starts a daemon. docs/shell.md has a line to install it.

    \b
    Examples:
      editctl completion bash > ~/.local/share/bash-completion/completions/editctl
      editctl completion zsh > "${fpath[1]}/_editctl"
      editctl completion fish > ~/.config/fish/completions/editctl.fish
    """
    from click.shell_completion import get_completion_class

    from editd_client.cli import COMPLETE

    kind = get_completion_class(shell)
    assert kind is not None, "click knows every shell that SHELLS names"
    output.echo(kind(context.find_root().command, {}, "editctl", COMPLETE).source())
