"""The answers of a dialect's tools to an edit that waits for a review, or that a reviewer has decided about.

A dialect may have its own, in the words of the original, as it answers when its own user approves, changes
or denies an edit. What an original leaves to its host is in editd's words, which are here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.edits.diff import quote

if TYPE_CHECKING:
    from collections.abc import Callable

_FILES = re.compile(r"^(?=diff --git )", re.MULTILINE)  # no line of a hunk begins so


class ChangedEdit(Struct, frozen=True):
    """An edit that landed with the reviewer's changes."""

    answer: str
    """The tool's own answer, to its proposed edit."""
    diff: str
    """The difference between the proposed and the landed edit."""
    path: str = ""
    text: str = ""
    """The path and the new text of the call's one file, for `ReviewAnswers.is_of_one_file`."""


def answer_to_changes(edit: ChangedEdit) -> str:
    """Return the answer to an edit that landed with the reviewer's changes."""
    return f"{edit.answer}\n\nChanged by the reviewer:\n{edit.diff}"


def answer_to_rejection(comment: str) -> str:
    """Return the answer to an edit that the reviewer rejected, with the reviewer's comment, or ""."""
    return f"Rejected by the reviewer: {comment}" if comment else "Rejected by the reviewer."


class ReviewAnswers(Struct, frozen=True):
    """The answers of one dialect."""

    to_changes: Callable[[ChangedEdit], str] = answer_to_changes
    to_rejection: Callable[[str], str] = answer_to_rejection
    is_of_one_file: bool = False
    """Whether the answer to changes names the one file of the call."""


def answer_while_open(number: int, rule: str) -> str:
    """Return the answer to an edit that waits for its decision, of all dialects."""
    return f"Proposal {number} waits for review (rule: {rule}). Nothing is written. Go on with other work."


def part_of(diff: str, path: str) -> str:
    """Return the part of a diff that is about this file; "" if there is none."""
    head = f"diff --git {quote(f'a/{path}')} "
    return "".join(part for part in _FILES.split(diff) if part.startswith(head))
