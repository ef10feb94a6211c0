"""Options and arguments that several verbs have."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

import click

from editd_client.cli.invocation import Invocation
from editd_client.locate import login_name

if TYPE_CHECKING:
    from datetime import datetime

    from editd.wire.messages import OnStale, Tx


Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Verb = Callable[..., Any]
RANGE = re.compile(r"(\w+)\.\.(\w+)")


class AuthorParams(TypedDict):
    actor: str | None
    message: str | None
    request_id: str | None
    dry_run: bool
    propose: bool | None
    wait: float | None


@dataclass(frozen=True, slots=True)
class AuthorOptions:
    """The author and message of a transaction, and whether it is only a dry run."""

    named_actor: str | None
    message: str | None
    request_id: str | None
    dry_run: bool
    propose: bool | None = None
    wait: float | None = None

    @property
    def actor(self) -> str | None:
        """The --actor option, or EDITD_ACTOR. None: the daemon uses the session's actor or the login name."""
        named = self.named_actor or os.environ.get("EDITD_ACTOR")
        return named or (None if os.environ.get("EDITD_TOKEN") else login_name())

    @property
    def params(self) -> AuthorParams:
        """The parameters that each request of an edit or an undo has."""
        return {
            "actor": self.actor, "message": self.message, "request_id": self.request_id,
            "dry_run": self.dry_run, "propose": self.propose, "wait": self.wait,
        }  # fmt: skip


def as_json(verb: Verb) -> Verb:
    """Add `--json`, whose value the invocation keeps."""
    return click.option(
        "--json", is_flag=True, expose_value=False, callback=_keep_json,
        help="Print the protocol's answer, or the error, as one JSON document.",
    )(verb)  # fmt: skip


def authored(verb: Verb) -> Verb:
    """Add `-m`, `--actor`, `--request-id`, `--dry-run`, `--propose`, `--wait` and `--json`.

    The verb gets them as `AuthorOptions`.
    """

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
    @click.option("--propose", is_flag=True, help="Change nothing before a reviewer approves it.")
    @click.option(
        "--wait", type=click.FloatRange(0, 600), metavar="SECONDS",
        help="If it needs a reviewer, wait so long for the decision.",
    )  # fmt: skip
    @functools.wraps(verb)
    def wrapped(
        *args: Any,
        message: str | None,
        actor: str | None,
        request_id: str | None,
        dry_run: bool,
        propose: bool,
        wait: float | None,
        **more: Any,
    ) -> Any:
        authorship = AuthorOptions(actor, message, request_id, dry_run, propose or None, wait)
        return verb(*args, authorship=authorship, **more)

    return wrapped


def merging(verb: Verb) -> Verb:
    """Add `--merge`; pass the verb `on_stale`."""

    @click.option(
        "--merge", is_flag=True, help="Merge a stale edit with the current content, if there is no conflict."
    )
    @functools.wraps(verb)
    def wrapped(*args: Any, merge: bool, **more: Any) -> Any:
        on_stale: OnStale | None = "merge" if merge else None
        return verb(*args, on_stale=on_stale, **more)

    return wrapped


def based(verb: Verb) -> Verb:
    """Add `--base`; pass the verb a version, None for "no such file", or UNSET."""

    @click.option(
        "--base", metavar="VERSION",
        help="Version that the edit was made for, from `read --json`. `none` for a new file.",
    )  # fmt: skip
    @functools.wraps(verb)
    def wrapped(*args: Any, base: str | None, **more: Any) -> Any:
        from msgspec import UNSET

        return verb(*args, base=UNSET if base is None else None if base == "none" else base, **more)

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
    def wrapped(*args: Any, force: bool, what_fits: bool, **more: Any) -> Any:
        if force and what_fits:
            raise click.UsageError("Use --force or --what-fits, not both.")
        return verb(*args, on_conflict="force" if force else "skip" if what_fits else "fail", **more)

    return wrapped


def parse_range(text: str) -> tuple[Tx, Tx] | None:
    """Return the first and the last transaction of `24..25`, or None if the text is no such range."""
    ends = RANGE.fullmatch(text.strip())
    return None if ends is None else (parse_transaction(ends[1]), parse_transaction(ends[2]))


def parse_transaction(text: str) -> Tx:
    """Return a seq for a short number, otherwise a commit id or its prefix."""
    return int(text) if text.isdecimal() and len(text) < 20 else text


def _keep_json(context: click.Context, option: click.Parameter, is_json: bool) -> None:
    invocation = context.find_object(Invocation)
    assert invocation is not None, "main gives every run its invocation"
    invocation.json = invocation.json or is_json


_AGO = re.compile(
    r"(\d{1,6})\s*(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?|mo(?:nths?)?"
    r"|y(?:ears?)?)(?:\s+ago)?",
    re.IGNORECASE,
)
_DAY = re.compile(r"(today|yesterday|now)?\s*(?:at\s+)?(\d{1,2}:\d\d(?::\d\d)?)?", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ID = re.compile("[0-9a-f]{4,}")  # `100d` is the beginning of an id rather than a hundred days
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "mo": 2_592_000, "y": 31_536_000}


def parse_time(text: str) -> str:
    """Return the time as RFC 3339 in UTC. `2h` is two hours ago; a time without a zone is local.

    Raises click's BadParameter for anything else.
    """
    from datetime import UTC, datetime

    stripped = text.strip()
    try:
        time = _relative(stripped) or datetime.fromisoformat(stripped).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is not a time. Examples: 2h, yesterday, 2026-03-01, '2026-03-01 14:30'."
        ) from None
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond:06d}Z"


def is_time(text: str) -> bool:
    """Whether the text is a time rather than the number or id of a transaction."""
    stripped = text.strip()
    if _DATE.match(stripped) or (_AGO.fullmatch(stripped) and not _ID.fullmatch(stripped)):
        return True
    return bool(stripped and _DAY.fullmatch(stripped))


def _relative(text: str) -> datetime | None:
    """Return a time relative to now or to a day, or None for an absolute one."""
    from datetime import UTC, datetime, timedelta
    from datetime import time as Clock  # noqa: N812  # a time of day; `time` is a time of the protocol here

    now = datetime.now(UTC)
    if ago := _AGO.fullmatch(text):
        unit = ago[2].lower()
        return now - timedelta(seconds=int(ago[1]) * SECONDS["mo" if unit.startswith("mo") else unit[0]])
    day = _DAY.fullmatch(text)
    if not text or day is None:
        return None
    word = (day[1] or "today").lower()
    if word == "now":
        return now
    begin = datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    begin -= timedelta(days=word == "yesterday")
    if day[2]:
        clock = Clock.fromisoformat(day[2] if day[2][1] != ":" else f"0{day[2]}")
        begin = begin.replace(hour=clock.hour, minute=clock.minute, second=clock.second)
    return begin.astimezone(UTC)
