"""The options that several verbs share."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from editd_client.author import login_name
from editd_client.cli.invocation import Invocation

if TYPE_CHECKING:
    from editd.wire.messages import OnStale, Tx

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Verb = Callable[..., Any]
RANGE = re.compile(r"(\w+)\.\.(\w+)")


@dataclass(frozen=True, slots=True)
class AuthorOptions:
    """The author and message of a transaction, and whether it is only a dry run."""

    named_actor: str | None
    message: str | None
    request_id: str | None
    dry_run: bool

    @property
    def actor(self) -> str | None:
        """The --actor option, or EDITD_ACTOR. None: the daemon uses the session's actor or the login name."""
        named = self.named_actor or os.environ.get("EDITD_ACTOR")
        return named or (None if os.environ.get("EDITD_TOKEN") else login_name())


def as_json(verb: Verb) -> Verb:
    """Add `--json`, whose value the invocation keeps."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_keep_json,
        help="Print the protocol's answer, or the error, as one JSON document.",
    )(verb)  # fmt: skip


def authored(verb: Verb) -> Verb:
    """Add `-m`, `--actor`, `--request-id`, `--dry-run` and `--json`; pass the verb `AuthorOptions`."""

    @as_json
    @click.option("-m", "--message", metavar="TEXT", help="Reason for the edit, kept in the history.")
    @click.option(
        "--actor", metavar="NAME", help="Author of the edit (default: $EDITD_ACTOR, then your login name)."
    )
    @click.option(
        "--request-id", metavar="KEY",
        help="Name of this request. A second one with it changes nothing and gets the first answer.",
    )  # fmt: skip
    @click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
    @functools.wraps(verb)
    def wrapped(
        *given: Any,
        message: str | None,
        actor: str | None,
        request_id: str | None,
        dry_run: bool,
        **more: Any,
    ) -> Any:
        authorship = AuthorOptions(actor, message, request_id, dry_run)
        return verb(*given, authorship=authorship, **more)

    return wrapped


def merging(verb: Verb) -> Verb:
    """Add `--merge`; pass the verb `on_stale`."""

    @click.option(
        "--merge", is_flag=True, help="Merge a stale edit with the current content, if there is no conflict."
    )
    @functools.wraps(verb)
    def wrapped(*given: Any, merge: bool, **more: Any) -> Any:
        on_stale: OnStale | None = "merge" if merge else None
        return verb(*given, on_stale=on_stale, **more)

    return wrapped


def based(verb: Verb) -> Verb:
    """Add `--base`; pass the verb a version, None for "no such file", or UNSET."""

    @click.option(
        "--base", metavar="VERSION",
        help="Version that the edit was made for, from `read --json`. `none` for a new file.",
    )  # fmt: skip
    @functools.wraps(verb)
    def wrapped(*given: Any, base: str | None, **more: Any) -> Any:
        from msgspec import UNSET

        return verb(*given, base=UNSET if base is None else None if base == "none" else base, **more)

    return wrapped


def forcing(verb: Verb) -> Verb:
    """Add `--force` to an undo or a redo."""
    return click.option(
        "--force", is_flag=True, help="Also undo lines that later transactions have changed."
    )(verb)


def fitting(verb: Verb) -> Verb:
    """Add `--force` and `--what-fits`; pass the verb `on_conflict`."""

    @forcing
    @click.option("--what-fits", is_flag=True, help="Undo only the parts that merge.")
    @functools.wraps(verb)
    def wrapped(*given: Any, force: bool, what_fits: bool, **more: Any) -> Any:
        if force and what_fits:
            raise click.UsageError("Use --force or --what-fits, not both.")
        return verb(*given, on_conflict="force" if force else "skip" if what_fits else "fail", **more)

    return wrapped


def range_named(text: str) -> tuple[Tx, Tx] | None:
    """Return the first and the last transaction of `24..25`, or None if the text is no such range."""
    ends = RANGE.fullmatch(text.strip())
    return None if ends is None else (transaction_named(ends[1]), transaction_named(ends[2]))


def transaction_named(text: str) -> Tx:
    """Return a seq for a short number, otherwise a commit id or its prefix."""
    return int(text) if text.isdecimal() and len(text) < 20 else text


def _keep_json(context: click.Context, option: click.Parameter, given: bool) -> None:
    invocation = context.find_object(Invocation)
    assert invocation is not None, "main gives every run its invocation"
    invocation.json = invocation.json or given
