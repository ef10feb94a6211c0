"""The options that verbs share, each said once."""

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
    """Who a transaction is by and why, and whether it is to be made at all."""

    named_actor: str | None
    message: str | None
    request_id: str | None
    dry_run: bool

    @property
    def actor(self) -> str | None:
        """As the command line says, else EDITD_ACTOR, else None for the session's, else the login name."""
        named = self.named_actor or os.environ.get("EDITD_ACTOR")
        return named or (None if os.environ.get("EDITD_TOKEN") else login_name())


def as_json(verb: Verb) -> Verb:
    """Adds `--json`, which the invocation keeps."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_keep_json,
        help="Print the protocol's answer as one JSON document; errors too.",
    )(verb)  # fmt: skip


def authored(verb: Verb) -> Verb:
    """Adds `-m`, `--actor`, `--request-id`, `--dry-run` and `--json`; the verb gets an `Authorship`."""

    @as_json
    @click.option("-m", "--message", metavar="TEXT", help="Why; the history keeps it.")
    @click.option("--actor", metavar="NAME", help="Who it is by; else EDITD_ACTOR, else your login name.")
    @click.option(
        "--request-id", metavar="KEY",
        help="A name for this request: the same one again changes nothing and gives the first answer.",
    )  # fmt: skip
    @click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
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
    """Adds `--merge`; the verb gets `on_stale`."""

    @click.option(
        "--merge", is_flag=True, help="Merge a stale edit with what is there now, where that is clean."
    )
    @functools.wraps(verb)
    def wrapped(*given: Any, merge: bool, **more: Any) -> Any:
        on_stale: OnStale | None = "merge" if merge else None
        return verb(*given, on_stale=on_stale, **more)

    return wrapped


def based(verb: Verb) -> Verb:
    """Adds `--base`; the verb gets it as the message has it: a version, null for "no such file", or unset."""

    @click.option(
        "--base", metavar="VERSION",
        help="The version that the edit is made for, as `read --json` tells it; `none`: no such file.",
    )  # fmt: skip
    @functools.wraps(verb)
    def wrapped(*given: Any, base: str | None, **more: Any) -> Any:
        from msgspec import UNSET

        return verb(*given, base=UNSET if base is None else None if base == "none" else base, **more)

    return wrapped


def forcing(verb: Verb) -> Verb:
    """Adds `--force` to an undo or a redo."""
    return click.option(
        "--force", is_flag=True, help="Put back the lines that later changes are in the way of, too."
    )(verb)


def fitting(verb: Verb) -> Verb:
    """Adds `--force` and `--what-fits`; the verb gets `on_conflict`."""

    @forcing
    @click.option("--what-fits", is_flag=True, help="Undo what merges, and leave the rest.")
    @functools.wraps(verb)
    def wrapped(*given: Any, force: bool, what_fits: bool, **more: Any) -> Any:
        if force and what_fits:
            raise click.UsageError("Give --force or --what-fits.")
        return verb(*given, on_conflict="force" if force else "skip" if what_fits else "fail", **more)

    return wrapped


def range_named(text: str) -> tuple[Tx, Tx] | None:
    """Return the first and the last transaction of `24..25`, or None if the text is no such range."""
    ends = RANGE.fullmatch(text.strip())
    return None if ends is None else (transaction_named(ends[1]), transaction_named(ends[2]))


def transaction_named(text: str) -> Tx:
    """A seq where the text is a short number, else a commit id or its prefix."""
    return int(text) if text.isdecimal() and len(text) < 20 else text


def _keep_json(context: click.Context, option: click.Parameter, given: bool) -> None:
    invocation = context.find_object(Invocation)
    assert invocation is not None, "main gives every run its invocation"
    invocation.json = invocation.json or given
