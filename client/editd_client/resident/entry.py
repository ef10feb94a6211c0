"""The console scripts `editctl` and `editd-hook`: the helper serves the call, or this process runs it."""

from __future__ import annotations

import os
import sys

from editd_client import caller
from editd_client.resident.routes import reason_against, reason_against_any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

EDITCTL, HOOK = "editctl", "editd-hook"
# For the answer of the helper. On a busy machine it takes longer than usual, and the other way takes seconds.
ANSWER_SECONDS_MAX = 1.0
HOOK_ANSWER_SECONDS_MAX = 0.2  # an agent waits


def editctl() -> NoReturn:
    """Run the command `editctl`."""
    words = sys.argv[1:]
    reason = reason_against(words, os.environ)
    if not reason:
        from editd_client.resident.call import hand_over

        reason = hand_over(EDITCTL, words, seconds=ANSWER_SECONDS_MAX)
    caller.note_reason(reason)

    from editd_client.cli import main

    main()


def hook() -> None:
    """Run the command `editd-hook`."""
    if not reason_against_any(os.environ):
        from editd_client.resident.call import hand_over

        hand_over(HOOK, sys.argv[1:], seconds=HOOK_ANSWER_SECONDS_MAX, lost=0)

    from editd_client.agents.hook import main

    main()
