"""The end of each verb that changes files: send the edits, then print the result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from editd_client.cli import output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.wire.messages import AnyEdit, ApplyResult, OnStale
    from editd_client.cli.invocation import Invocation
    from editd_client.cli.options import AuthorOptions


def apply_edits(
    invocation: Invocation, edits: Sequence[AnyEdit], authorship: AuthorOptions, on_stale: OnStale | None
) -> None:
    """Apply the edits as one transaction and print the result. Raises EditdError for a refusal."""
    with invocation.client() as client:
        result = client.apply(
            edits,
            actor=authorship.actor,
            message=authorship.message,
            request_id=authorship.request_id,
            on_stale=on_stale,
            dry_run=authorship.dry_run,
            diff=authorship.dry_run,
        )
    report(invocation, result, dry_run=authorship.dry_run)


def report(invocation: Invocation, result: ApplyResult, *, dry_run: bool) -> None:
    """Print the result of an edit: as JSON, or the transaction and one line a file.

    Answers of tools come first, and alone if the tools have only read.
    """
    if invocation.say_json(result):
        return
    answers = result.answers if isinstance(result.answers, list) else []
    for answer in filter(None, answers):
        output.echo(output.plain(answer, but="\n\t") if sys.stdout.isatty() else answer)
    if result.transaction is not None or dry_run or not answers:
        for line in output.applied(result, dry_run=dry_run):
            output.echo(line)
