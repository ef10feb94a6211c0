"""`editctl hooks`: the formatters and checks of the configuration, and a dry run of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from editd_client.cli import output, stdio
from editd_client.cli.options import as_json
from editd_client.cli.time_arguments import local_time

if TYPE_CHECKING:
    from editd_client.cli.invocation import Invocation


@click.group(invoke_without_command=True)
@as_json
@click.pass_context
def verb(context: click.Context) -> None:
    """Show and try the hooks for edits.

    A hook is a command that formats or refuses an edit before it takes effect. Hooks are in your
    configuration, a table `[[hook]]` for each, and never in the workspace. Prints for each hook its
    number of runs and its last failure or refusal.

    \b
    Examples:
      editctl hooks
      editctl hooks run src/*.py          # print the changes without making them
      editctl hooks --json | jq '.hooks[] | select(.failure)'

    \b
    A formatter, in the file that `editctl config path` prints:
      [[hook]]
      name = "ruff"
      glob = ["**/*.py"]
      command = ["ruff", "format", "--stdin-filename", "{path}", "-"]
    """
    if context.invoked_subcommand is not None:
        return
    invocation: Invocation = context.obj
    with invocation.client() as client:
        hooks = client.status().hooks
    if invocation.json:
        output.echo(output.json_text({"hooks": hooks}))
        return
    if not hooks:
        output.echo("there are no hooks; `editctl config edit` adds one, see `editctl hooks --help`")
    for hook in hooks:
        _say_hook(hook)


@verb.command("run")
@click.argument("paths", nargs=-1, required=True)
@as_json
@click.pass_obj
def run(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Run the hooks on files, without changing them.

    Shows the changes. If a check refuses a file, prints its output and exits with 1.

    \b
    Examples:
      editctl hooks run src/main.py
      editctl hooks run $(git ls-files '*.py') --json | jq -r '.files[] | select(.formatted_by != []).path'
    """
    with invocation.client() as client:
        result = client.hooks_run([invocation.path(path) for path in paths])
    if invocation.say_json(result):
        return
    if not result.hooks:
        output.echo("no hook matches these files")
    for file in result.files if result.hooks else []:
        by = ", ".join(file["formatted_by"])
        output.echo(output.plain(f"{file['path']}: {f'{by} would change it' if by else 'stays as it is'}"))
    for warning in result.warnings:
        stdio.print_error(output.plain(f"warning: {warning}"))
    if result.diff:
        output.page(output.diff_lines(result.diff))


def _say_hook(hook: dict[str, Any]) -> None:
    about = output.plain(f"  {hook['kind']}  {', '.join(hook['glob'])}")
    output.echo(output.paint(hook["name"], "cyan") + about)
    output.echo(output.plain(f"  {' '.join(hook['command'])}"))
    runs = "once" if hook["runs"] == 1 else f"{hook['runs']} times"
    output.echo(f"  ran {runs}, {hook['seconds']:g} s at most, on_error = {hook['on_error']}")
    if hook["failure"] is not None:
        output.echo(
            output.plain(
                f"  last failure: {local_time(hook['failure']['time'])} {hook['failure']['message']}"
            )
        )
