"""`editctl apply`: edits in the protocol's form."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from editd_client.cli.apply_report import report
from editd_client.cli.options import AuthorOptions, authored, merging

if TYPE_CHECKING:
    from editd.wire.messages import Apply, OnStale
    from editd_client.cli.invocation import Invocation


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@merging
@authored
@click.pass_obj
def verb(
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
