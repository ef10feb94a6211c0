"""The verbs that edit files, and the report of an edit."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import IO, TYPE_CHECKING, Any

import click

from editd_client.cli import output
from editd_client.cli.options import AuthorOptions, as_json, authored, based, merging
from editd_client.errors import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msgspec import UnsetType

    from editd.wire.messages import AnyEdit, Apply, ApplyResult, DialectEntry, OnStale, ToolEntry
    from editd_client.cli.invocation import Invocation
    from editd_client.cli.options import AuthorOptions


@click.command("apply")
@click.argument("file", type=click.File("rb"), default="-")
@merging
@authored
@click.pass_obj
def apply_verb(
    invocation: Invocation, file: IO[bytes], authorship: AuthorOptions, on_stale: OnStale | None
) -> None:
    """Apply edits given as JSON, all of them or none.

    FILE (default: standard input, also `-`) is a list of edits, or one edit a line, or the parameters
    of the protocol's `apply`: a map with `edits`. Its paths are relative to the workspace's root.
    Options override the keys of the map.

    \b
    Examples:
      editctl apply edits.json -m "Rename the option"
      echo '[{"op": "replace", "path": "a.py", "old": "x = 1", "new": "x = 2"}]' | editctl apply
      jq -c '.edits[]' plan.json | editctl apply --dry-run
    """
    asked = _parse(file.read())
    with invocation.client() as client:
        result = client.apply(
            asked.edits,
            session=asked.session,
            actor=authorship.named_actor or asked.actor or authorship.actor,
            message=authorship.message or asked.message,
            request_id=authorship.request_id or asked.request_id,
            on_stale=on_stale or asked.on_stale,
            dry_run=authorship.dry_run or asked.dry_run,
            return_content=asked.return_content,
            diff=asked.diff or authorship.dry_run,
            propose=authorship.propose or asked.propose or None,
            proposal=asked.proposal or None,
            wait=authorship.wait or asked.wait or None,
        )
    report(invocation, result, dry_run=authorship.dry_run or asked.dry_run)


def _parse(document: bytes) -> Apply:
    """Return the request in the document. Raises a usage error for any other document."""
    from editd.wire.codec import decode_json, params_of, plain
    from editd.wire.errors import Malformed
    from editd.wire.messages import Apply

    try:
        asked = params_of("apply", plain(_as_params(document, decode_json), from_json=True))
    except Malformed as error:
        raise click.UsageError(error.error.message) from error
    assert isinstance(asked, Apply)
    return asked


def _as_params(document: bytes, decode: Any) -> dict[str, Any]:
    """Return a list, lines, one edit or a whole map as the parameters of `apply`."""
    from editd.wire.errors import Malformed

    try:
        value = decode(document)
    except Malformed:
        lines = [line for line in document.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        value = [decode(line) for line in lines]
    if isinstance(value, dict) and "op" not in value:
        return value
    return {"edits": value if isinstance(value, list) else [value]}


@click.command("replace")
@click.argument("path")
@click.argument("texts", nargs=-1, metavar="[OLD] [NEW]")
@click.option("--old-file", type=click.File("rb"), help="File with the text OLD; `-` is standard input.")
@click.option("--new-file", type=click.File("rb"), help="File with the text NEW; `-` is standard input.")
@click.option(
    "--count", type=click.IntRange(min=1), default=1, help="Exact number of occurrences of OLD (default: 1)."
)
@based
@merging
@authored
@click.pass_obj
def replace_verb(
    invocation: Invocation,
    *,
    path: str,
    texts: tuple[str, ...],
    old_file: IO[bytes] | None,
    new_file: IO[bytes] | None,
    count: int,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Replace exact text in a file.

    If the file has OLD more or less often than --count, nothing is changed, and the refusal names the
    places or the nearest text. Text from a file is used to its last byte, its final newline included.
    Put `--` before a text that begins with a dash.

    \b
    Examples:
      editctl replace src/app.py "timeout = 5" "timeout = 30" -m "Slow networks"
      editctl replace README.md colour color --count 3
      editctl replace src/app.py --old-file before.txt --new-file after.txt
      editctl replace notes.txt -- "- old item" "- new item"
    """
    from editd.wire.messages import Replace

    rest = list(texts)
    if len(rest) != (old_file is None) + (new_file is None):
        raise click.UsageError(
            "Give OLD and NEW once each: as an argument, or with --old-file or --new-file."
        )
    old = rest.pop(0) if old_file is None else _text(old_file)
    new = rest.pop(0) if new_file is None else _text(new_file)
    edit = Replace(path=invocation.path(path), old=old, new=new, count=count, base=base)
    apply_edits(invocation, [edit], authorship, on_stale)


def _text(file: IO[bytes]) -> str:
    return file.read().decode("utf-8", "surrogateescape")


@click.command("write")
@click.argument("path")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--force", is_flag=True, help="Overwrite the current content. The history keeps it.")
@click.option("--executable/--not-executable", default=None, help="Mode of the file (default: unchanged).")
@based
@merging
@authored
@click.pass_obj
def write_verb(
    invocation: Invocation,
    *,
    path: str,
    file: IO[bytes],
    force: bool,
    executable: bool | None,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Write a whole file.

    The content comes from FILE or standard input. To overwrite a file, give the version that you
    have seen (--base), or --force. So no change is overwritten unseen.

    \b
    Examples:
      editctl write src/new.py draft.py -m "A first draft"
      date | editctl write stamp.txt --force
      editctl write notes.txt new.txt --base "$(git hash-object notes.txt)"
      editctl write bin/run run.sh --executable --base none
    """
    from msgspec import UNSET

    from editd.wire.messages import Write

    edit = Write(
        path=invocation.path(path, for_new=True),
        content=file.read().decode("utf-8", "surrogateescape"),
        base=base,
        mode=UNSET if executable is None else "100755" if executable else "100644",
        force=force,
    )
    apply_edits(invocation, [edit], authorship, on_stale)


@click.command("patch")
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--fuzz",
    type=click.IntRange(min=0),
    default=0,
    help="Number of context lines that may differ (default: 0).",
)
@merging
@authored
@click.pass_obj
def patch_verb(
    invocation: Invocation, file: IO[bytes], fuzz: int, authorship: AuthorOptions, on_stale: OnStale | None
) -> None:
    """Apply a patch to any number of files.

    Applies all of it or none. FILE (default: standard input) is a unified diff or the output of
    `git diff`. Its paths are relative to the workspace's root.

    \b
    Examples:
      editctl patch fix.diff -m "The fix from the mailing list"
      git diff HEAD~1 | editctl patch --dry-run
      editctl diff 12..15 | editctl -C ../other patch --fuzz 1
    """
    from editd.wire.messages import Patch

    edit = Patch(patch=file.read().decode("utf-8", "surrogateescape"), fuzz=fuzz)
    apply_edits(invocation, [edit], authorship, on_stale)


@click.command("rm")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@based
@merging
@authored
@click.pass_obj
def rm_verb(
    invocation: Invocation,
    *,
    paths: tuple[str, ...],
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Delete files.

    Deletes all of them or none. Deletes a symbolic link itself, not its target. The history keeps
    the deleted content, and `editctl undo` brings it back.

    \b
    Examples:
      editctl rm old.py
      editctl rm src/a.py src/b.py -m "Both moved to the library"
    """
    from editd.wire.messages import Delete

    if len(paths) > 1 and isinstance(base, str | None):
        raise click.UsageError("--base needs exactly one path.")
    edits = [Delete(path=invocation.path(path), base=base) for path in paths]
    apply_edits(invocation, edits, authorship, on_stale)


@click.command("mv")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--overwrite", is_flag=True, help="Replace TO if it exists. The history keeps its content.")
@based
@merging
@authored
@click.pass_obj
def mv_verb(
    invocation: Invocation,
    *,
    source: str,
    target: str,
    overwrite: bool,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Move or rename a file.

    If TO is a folder, the file goes into it under its own name. Creates missing folders.

    \b
    Examples:
      editctl mv draft.md docs/guide.md
      editctl mv util.py src/ -m "Into the package"
    """
    from editd.wire.messages import Move

    moved = invocation.path(source)
    to = target
    if target.endswith("/") or os.path.isdir(invocation.absolute(target)):
        to = os.path.join(target, os.path.basename(moved))
    edit = Move(path=moved, to=invocation.path(to), base=base, overwrite=overwrite)
    apply_edits(invocation, [edit], authorship, on_stale)


@click.command("tool")
@click.argument("dialect")
@click.argument("tool")
@click.option(
    "--args", "text", metavar="JSON", help="Arguments of the tool, one JSON object. `-` is standard input."
)
@click.option("--args-file", "file", type=click.File("rb"), help="File with the arguments.")
@based
@merging
@authored
@click.pass_obj
def tool_verb(
    invocation: Invocation,
    *,
    dialect: str,
    tool: str,
    text: str | None,
    file: IO[bytes] | None,
    base: str | UnsetType | None,
    authorship: AuthorOptions,
    on_stale: OnStale | None,
) -> None:
    """Call an edit tool of another system, such as Cline's.

    `editctl dialects` lists the tools, and `editctl dialects DIALECT` their arguments. Prints the
    tool's own answer, then the changes. Paths in the arguments are relative to the workspace's
    root, or absolute if the tool wants that.

    \b
    Examples:
      editctl tool gemini replace --args '{"file_path": "/w/a.py", "old_string": "a", "new_string": "b"}'
      editctl tool roo search_and_replace --args '{"path": "a.js", "search": "var", "replace": "let"}'
      editctl tool codex apply_patch --args-file call.json --dry-run
    """
    from editd.wire.messages import Tool

    edit = Tool(dialect=dialect, tool=tool, args=_arguments(text, file), base=base)
    apply_edits(invocation, [edit], authorship, on_stale)


def _arguments(text: str | None, file: IO[bytes] | None) -> dict[str, Any]:
    """Return the JSON object from the command line. Raises a usage error for anything else."""
    from editd.wire.codec import decode_json, plain
    from editd.wire.errors import Malformed

    if (text is None) == (file is None):
        raise click.UsageError("Give the tool's arguments once, with --args or --args-file.")
    if file is not None:
        document = file.read()
    else:
        assert text is not None
        document = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
    try:
        value = plain(decode_json(document), from_json=True)
    except Malformed as error:
        raise click.UsageError(error.error.message) from error
    if not isinstance(value, dict):
        raise click.UsageError("The tool's arguments must be one JSON object.")
    return value


WIDTH = 96  # characters, of a description


@click.command("dialects")
@click.argument("dialect", required=False)
@as_json
@click.pass_obj
def dialects_verb(invocation: Invocation, dialect: str | None) -> None:
    """List the tools of `editctl tool` and their arguments.

    With DIALECT, prints the description and the arguments of each of its tools. With --json, prints
    their JSON schemas.

    \b
    Examples:
      editctl dialects
      editctl dialects cline
      editctl dialects --json | jq '.dialects[] | select(.name == "wcgw") | .tools[].schema'
    """
    with invocation.client() as client:
        result = client.dialects()
    if dialect is not None and dialect not in (names := [entry.name for entry in result.dialects]):
        raise refusal(
            "invalid_params", f"There is no dialect {dialect!r}.", hint=f"There are {', '.join(names)}."
        )
    if invocation.say_json(result):
        return
    for entry in result.dialects:
        if dialect is None:
            output.echo(f"{output.paint(f'{entry.name:<8}', 'cyan')} {_names(entry)}")
        elif entry.name == dialect:
            for line in _describe(entry):
                output.echo(line)


def _names(entry: DialectEntry) -> str:
    return ", ".join(tool.name for tool in entry.tools)


def _describe(entry: DialectEntry) -> Iterator[str]:
    yield entry.description
    for tool in entry.tools:
        yield ""
        yield output.paint(f"{entry.name} {tool.name}", None, bold=True)
        yield from textwrap.wrap(tool.description, WIDTH)
        for name, about in _arguments_of(tool):
            yield f"  {output.paint(name, 'cyan')}"
            yield from textwrap.wrap(about, WIDTH, initial_indent="      ", subsequent_indent="      ")


def _arguments_of(tool: ToolEntry) -> Iterator[tuple[str, str]]:
    """Yield each argument with its type, and its description."""
    properties: dict[str, dict[str, Any]] = tool.schema.get("properties", {})
    required = tool.schema.get("required", [])
    for name, spec in properties.items():
        kind = spec.get("type", "")
        kinds = " or ".join(kind) if isinstance(kind, list) else str(kind)
        choices = ", ".join(map(str, spec.get("enum", ())))
        yield (
            f"{name}: {kinds}{'' if name in required else ', optional'}",
            " ".join(filter(None, [spec.get("description", ""), choices and f"One of {choices}."])),
        )


def apply_edits(
    invocation: Invocation, edits: Sequence[AnyEdit], authorship: AuthorOptions, on_stale: OnStale | None
) -> None:
    """Apply the edits as one transaction and print the result. Raises EditdError for a refusal."""
    with invocation.client() as client:
        result = client.apply(
            edits,
            on_stale=on_stale,
            **authorship.params,
            diff=authorship.dry_run,
        )
    report(invocation, result, dry_run=authorship.dry_run)


def report(invocation: Invocation, result: ApplyResult, *, dry_run: bool) -> None:
    """Print the result of an edit: as JSON, or the transaction and one line a file.

    Answers of tools come first, and without the report if nothing has changed, but with its warnings.
    """
    if invocation.say_json(result):
        return
    answers = result.answers if isinstance(result.answers, list) else []
    for answer in filter(None, answers):
        output.echo(output.plain(answer, but="\n\t") if sys.stdout.isatty() else answer)
    is_report = result.transaction is not None or dry_run or not answers
    for line in output.applied(result, dry_run=dry_run) if is_report else output.warning_lines(result):
        output.echo(line)
