"""The gates between a plan and its transaction, in their order, and the gates of each kind of change.

A kind passes every gate unless its row in `GAPS` has a reason. A kind without a row cannot land.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

Gate = Literal[
    "permit",  # protected, hidden and excluded paths; a session's scope, pause, leases and reads
    "hooks",  # the programs of the configuration that format a file, or refuse it
    "review",  # the rules that land changes, make them wait for a reviewer, or refuse them
    "owner",  # who may take back the work of others
    "unsaved",  # the trial of the changes on texts that editors hold unsaved; a dry run ends behind it
    "conflicts",  # later work in the way
    "adopt",  # changes of other programs become transactions first
    "outdated",  # the answer names files that the reader did not know as they are
    "quota",  # room for more history
    "propose",  # a proposal instead of a transaction, if the review asks for one
    "stage",  # the transaction, in the batch
]
LandingKind = Literal["edit", "collected edit", "undo", "restore", "approval", "arrival", "outside change"]

GATES: tuple[Gate, ...] = get_args(Gate)

_IN_PLACE = "The files have it already."
_EXACT = "It brings back exact bytes."
_BY_OTHERS = "The rules of the host that has landed it decided, and all hosts must agree."
_FITS = "What does not fit is refused by the plan."
_ONE_ANSWER = "Its plan is made from the files as they are, and its answer has all changes."

GAPS: Mapping[LandingKind, Mapping[Gate, str]] = MappingProxyType(
    {
        "edit": {
            "owner": "An edit of a file is no undo of the work of others.",
            "conflicts": _FITS,
        },
        "collected edit": {
            "owner": "An edit of a file is no undo of the work of others.",
            "unsaved": "No file changes yet: the approval passes this gate.",
            "conflicts": _FITS,
            "outdated": "It is planned on the files of the proposal.",
            "stage": "It becomes a part of the session's proposal.",
        },
        "undo": {
            "hooks": _EXACT,
            "outdated": _ONE_ANSWER,
        },
        "restore": {
            "hooks": _EXACT,
            "conflicts": "It replaces later work, as asked.",
            "outdated": _ONE_ANSWER,
        },
        "approval": {
            "review": "It is the review.",
            "owner": "The proposal has the author's right, and the reviewer's.",
            "conflicts": "A hunk that does not fit is left out of the view, or the approval is refused.",
            "outdated": "The reviewer has decided on this view.",
            "propose": "It was one.",
        },
        "arrival": {
            "permit": f"{_BY_OTHERS} Only a hidden folder refuses it.",
            "hooks": _BY_OTHERS,
            "review": _BY_OTHERS,
            "owner": _BY_OTHERS,
            "unsaved": f"{_BY_OTHERS} An editor sees a change of its file.",
            "conflicts": "Its plan is refused if a file has changed, and made again by the exchange.",
            "outdated": "Nobody here has asked for it.",
            "quota": _BY_OTHERS,
            "propose": _BY_OTHERS,
        },
        "outside change": {
            "permit": _IN_PLACE,
            "hooks": _IN_PLACE,
            "review": _IN_PLACE,
            "owner": _IN_PLACE,
            "unsaved": _IN_PLACE,
            "conflicts": _IN_PLACE,
            "outdated": _IN_PLACE,
            "quota": "A full quota must not hide a change that has happened.",
            "propose": _IN_PLACE,
            "stage": "It is adopted.",
        },
    }
)


def gates_of(kind: LandingKind) -> frozenset[Gate]:
    """Return the gates that changes of this kind pass."""
    return frozenset(GATES) - GAPS[kind].keys()
