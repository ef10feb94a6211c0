"""The configuration and its hooks: `config` and `hooks`."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import tomllib
from typing import TYPE_CHECKING, Any

import click

from editd.config.load import (
    ConfigError,
    LoadedConfig,
    check_draft,
    check_text,
    config_path,
    keys,
    read_config,
    value_of,
    workspace_config_path,
)
from editd.config.reference import template, toml
from editd_client.cli import output
from editd_client.cli.options import as_json
from editd_client.errors import Unreachable, refusal

if TYPE_CHECKING:
    from editd.wire.messages import ConfigReloadResult
    from editd_client.cli.invocation import Invocation

HERE = click.option("--here", is_flag=True, help="The file of this workspace alone, which overrides yours.")
REFUSED = 1


@click.group("config", invoke_without_command=True)
@as_json
@click.pass_context
def config_verb(ctx: click.Context) -> int:
    """Show, check and change the configuration.

    Without a command, prints every key with its value and its origin. There are two optional files:
    yours, and one for this workspace alone that overrides it key by key. Both are outside the
    workspace, so an agent that edits the workspace cannot loosen them. docs/configuration.md has
    every key.

    \b
    Examples:
      editctl config
      editctl config init && editctl config edit
      editctl config set history.quota 10GiB
      editctl config check
    """
    if ctx.invoked_subcommand is not None:
        return 0
    invocation: Invocation = ctx.obj

    try:
        loaded = read_config(invocation.workspace.id)
    except ConfigError as wrong:
        return _refuse(invocation, wrong)
    rows = list(_rows(loaded))
    if invocation.say_json({"files": _files(invocation), "keys": rows}):
        return 0
    width = max(len(row["key"]) for row in rows)
    for row in rows:
        where = "default" if row["file"] is None else f"{_short(row['file'])}:{row['line']}"
        value = f"{row['key']:<{width}} = {row['text']}"
        output.echo(output.plain(f"{value:<60}") + output.paint(f"  # {output.plain(where)}", "cyan"))
    return 0


@config_verb.command("path")
@HERE
@as_json
@click.pass_obj
def print_path(invocation: Invocation, here: bool) -> None:
    """Print the file's path.

    Prints it even if the file does not exist.
    """
    path = _path(invocation, here=here)
    invocation.say({"path": path}, path)


@config_verb.command("check")
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False))
@as_json
@click.pass_obj
def check(invocation: Invocation, file: str | None) -> int:
    """Check both config files, or FILE.

    Prints every error with its line, and exits with 1 if there is one.

    \b
    Examples:
      editctl config check
      editctl config check new.toml && mv new.toml "$(editctl config path)"
    """

    try:
        if file is None:
            read_config(invocation.workspace.id)
        else:
            check_draft(read_text(file), file)
    except ConfigError as wrong:
        if not invocation.say_json({"ok": False, **wrong.data}):
            for problem in wrong.problems:
                output.print_error(output.plain(str(problem)))
        return REFUSED
    invocation.say({"ok": True, "problems": []}, "nothing is wrong")
    return 0


@config_verb.command("init")
@HERE
@click.option("--print", "is_printed", is_flag=True, help="Print the file without writing it.")
@as_json
@click.pass_obj
def init(invocation: Invocation, here: bool, is_printed: bool) -> None:
    """Write a config file with every key as a comment.

    Each comment has the key's default and its meaning.
    """

    if is_printed:
        with output.writing():
            sys.stdout.write(template())
        return
    path = _path(invocation, here=here)
    if os.path.lexists(path):
        raise refusal("file_exists", f"{path} exists already.", hint="`editctl config edit` opens it.")
    about = f"# For {invocation.workspace.root} alone.\n" if here else ""
    write_text(path, about + template())
    invocation.say({"path": path}, path)


@config_verb.command("set")
@HERE
@click.argument("key")
@click.argument("value")
@as_json
@click.pass_obj
def set_key(invocation: Invocation, here: bool, key: str, value: str) -> int:
    """Set KEY to VALUE.

    VALUE is written as in TOML, but a string needs no quotes. Keeps the rest of the file as it is,
    and refuses to write an invalid file. Reloads the configuration of a running daemon.

    \b
    Examples:
      editctl config set durability relaxed
      editctl config set history.keep '{ age = "90d", count = 10000 }'
      editctl config set --here protect '["migrations/**", "**/*.pem"]'
    """

    path = _path(invocation, here=here)
    try:
        changed = with_key(read_text(path), key, value, path)
        check_draft(changed, path, invocation.workspace.id)
    except ConfigError as wrong:
        return _refuse(invocation, wrong)
    write_text(path, changed)
    return _reload_if_running(invocation)


@config_verb.command("edit")
@HERE
@as_json
@click.pass_obj
def edit(invocation: Invocation, here: bool) -> int:
    """Edit the file in your editor, and check it.

    The editor is $VISUAL, then $EDITOR, then vi. A new file begins as `config init` writes it.
    Saves only a valid file, and reloads the configuration of a running daemon.
    """

    path = _path(invocation, here=here)
    text = read_text(path) or template()
    while True:
        text = _edit(text)
        try:
            check_draft(text, path, invocation.workspace.id)
        except ConfigError as wrong:
            code = _refuse(invocation, wrong)
            if sys.stdin.isatty() and click.confirm("Edit it again?", default=True, err=True):
                continue
            output.print_error("hint: nothing was changed.")
            return code
        break
    write_text(path, text)
    return _reload_if_running(invocation)


@config_verb.command("reload")
@as_json
@click.pass_obj
def reload(invocation: Invocation) -> None:
    """Reload the files in the running daemon.

    Prints the keys that change. If a file is wrong, the daemon keeps its configuration, and
    `editctl status` shows the error.
    """
    with invocation.client(start=False) as client:
        result = client.config_reload()
    if not invocation.say_json(result):
        _say_reloaded(result)


def _say_reloaded(result: ConfigReloadResult) -> None:
    for key in result.applied:
        output.echo(f"{key} is in force")
    for key in result.restart:
        output.echo(f"{key} waits for a restart: `editctl stop`, then `editctl start`")
    if not result.applied and not result.restart:
        output.echo("nothing has changed")


def _reload_if_running(invocation: Invocation) -> int:
    try:
        with invocation.client(start=False) as client:
            result = client.config_reload()
    except Unreachable:
        invocation.say_json({"applied": [], "restart": []})
        return 0
    if not invocation.say_json(result):
        _say_reloaded(result)
    return 0


def _edit(text: str) -> str:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="editctl-") as folder:
        name = os.path.join(folder, "config.toml")
        with open(name, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            status = subprocess.run([*shlex.split(editor), name], check=False).returncode
        except OSError as error:
            raise refusal("io_error", f"The editor cannot be started: {error}.", hint="Set EDITOR.") from None
        if status:
            raise refusal("rejected", f"The editor ended with status {status}; nothing was changed.")
        return read_text(name)


def _rows(loaded: LoadedConfig) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for key in keys():
        value, source = value_of(loaded.config, key.name), loaded.sources.get(key.name)
        rows.append(
            {
                "key": key.name,
                "value": value,
                "text": "(none)" if value is None else toml(value),
                "default": key.default,
                "file": None if source is None else source.file,
                "line": None if source is None else source.line(key.name),
                "restart": key.needs_restart,
            }
        )
    return rows


def _refuse(invocation: Invocation, wrong: ConfigError) -> int:
    text = "\n".join(map(str, wrong.problems))
    output.print_refusal(refusal("invalid_params", text, data=wrong.data), as_json=invocation.json)
    return REFUSED


def _path(invocation: Invocation, *, here: bool) -> str:
    return workspace_config_path(invocation.workspace.id) if here else config_path()


def _files(invocation: Invocation) -> list[dict[str, object]]:
    paths = (_path(invocation, here=False), _path(invocation, here=True))
    return [{"path": path, "exists": os.path.exists(path)} for path in paths]


def _short(path: str) -> str:
    home = os.path.expanduser("~")
    return "~" + path.removeprefix(home) if path.startswith(home + "/") else path


@click.group("hooks", invoke_without_command=True)
@as_json
@click.pass_context
def hooks_verb(context: click.Context) -> None:
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
    if invocation.say_json({"hooks": hooks}):
        return
    if not hooks:
        output.echo("there are no hooks; `editctl config edit` adds one, see `editctl hooks --help`")
    for hook in hooks:
        _say_hook(hook)


@hooks_verb.command("run")
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
        output.print_error(output.plain(f"warning: {warning}"))
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
                f"  last failure: {output.local_time(hook['failure']['time'])} {hook['failure']['message']}"
            )
        )


# ── Changes of a file ─────────────────────────────────────────────────────────────────────────


def read_text(path: str) -> str:
    """Return the file's text, empty for a missing file. Raises EditdError (`io_error`) on failure."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise refusal("io_error", f"{path} cannot be read: {error}.") from None


def write_text(path: str, text: str) -> None:
    """Replace the file, or what it links to, in one step. Raises EditdError (`io_error`)."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, delete=False) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(file.name, target)
    except OSError as error:
        raise refusal("io_error", f"{path} cannot be written: {error}.") from None


def with_key(text: str, key: str, value: str, name: str) -> str:
    """Return the file's text with a key set; everything else, comments included, stays as it is.

    `value` is TOML, or a string without its quotes. Raises ConfigError if the file is wrong, or would be.
    Raises EditdError (`conflict`) if the key does not fit between the lines around it.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    check_text(text, name)
    *tables, own = key.split(".")
    parsed = _parse(value)
    try:
        document = tomlkit.parse(text)
        table: Any = document
        for above in tables:
            if not isinstance(table.get(above), dict):
                table[above] = tomlkit.table()
            table = table[above]
        table[own] = parsed
        changed = tomlkit.dumps(document)
        is_alone = tomllib.loads(changed) == _set(tomllib.loads(text), [*tables, own], parsed)
    except (TOMLKitError, ValueError):
        changed, is_alone = text, False
    if not is_alone:
        raise refusal(
            "conflict", f"{key} cannot be set in {name} without changing its surroundings.",
            hint="Edit the file with `editctl config edit`.",
        )  # fmt: skip
    check_text(changed, name)
    return changed


def _parse(value: str) -> Any:
    """Return the value of the TOML text, otherwise the text as a string."""
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def _set(tree: dict[str, Any], names: list[str], value: object) -> dict[str, Any]:
    """Return the tree with the value under these names."""
    first, *others = names
    inner = tree.get(first)
    own = _set(inner if isinstance(inner, dict) else {}, others, value) if others else value
    return tree | {first: own}
