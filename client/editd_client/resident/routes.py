"""The table of the calls that the helper may serve. A call without a row runs in a process of its own.

A row is for a verb that reads and answers, or makes one edit. Each other verb runs programs, serves for a
long time, or asks a person.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SWITCH = "EDITD_RESIDENT"  # `no`: every call runs in a process of its own
COMPLETE = "_EDITCTL_COMPLETE"  # set by a shell that asks for a completion
PLAIN, PAGED = "plain", "paged"  # a paged verb starts the pager on a terminal

ROUTES: Mapping[str, str] = {
    "blame": PAGED,
    "diff": PAGED,
    "log": PAGED,
    "read": PLAIN,
    "redo": PLAIN,
    "replace": PLAIN,
    "sessions": PAGED,
    "settle": PLAIN,
    "show": PAGED,
    "status": PLAIN,
    "undo": PLAIN,
    "write": PLAIN,
}
VALUED = ("-C", "--workspace", "--session")  # the options before the verb that take the next word
JOINED = ("-C", "--workspace=", "--session=")  # the same with their value
INTERACTIVE = ("-i", "--interactive")  # a person answers, so the time of the start does not count
NO_PAGER = ("", "cat")
UNLIKE_SHELL = ("LD_", "PYTHON", "GLIBC_", "MALLOC_")  # variables that change how Python itself starts


def reason_against(words: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return why a call of `editctl` runs in a process of its own; "" if the helper may serve it."""
    if against := reason_against_any(environment):
        return against
    if COMPLETE in environment:
        return "" if environment[COMPLETE].endswith("_complete") else "the script of a completion"
    verb = verb_of(words)
    route = ROUTES.get(verb)
    if route is None:
        return f"the verb {verb}" if verb else "no verb"
    if any(word in INTERACTIVE for word in words):
        return "a person is asked"
    if route == PAGED and os.isatty(1) and has_pager(environment):
        return "the pager"
    return ""


def reason_against_any(environment: Mapping[str, str]) -> str:
    """Return why no call with this environment and these descriptors goes to the helper."""
    if environment.get(SWITCH) == "no":
        return f"{SWITCH}=no"
    folders = environment.get("PYTHONPATH", "")
    if folders and not all(map(os.path.isabs, folders.split(os.pathsep))):
        return "a relative PYTHONPATH"
    for descriptor in (0, 1, 2):
        try:
            if os.isatty(descriptor) and os.tcgetpgrp(descriptor) != os.getpgrp():
                return "a background job"  # the terminal stops it when it reads, and the fork not
            os.fstat(descriptor)
        except OSError as error:
            if error.errno != ENOTTY:
                return "a closed descriptor"
    return ""


ENOTTY = 25  # a terminal that is not the one of this session has no background jobs here


def verb_of(words: Sequence[str]) -> str:
    """Return the verb of a command line; "" if an option before it is not plain."""
    rest = iter(words)
    for word in rest:
        if word in VALUED:
            next(rest, None)
        elif not word.startswith(JOINED) and word != "--nested":
            return "" if word.startswith("-") else word
    return ""


def has_pager(environment: Mapping[str, str]) -> bool:
    """Return whether the variables may name a pager, or leave it to the default."""
    return environment.get("EDITD_PAGER", environment.get("PAGER", "less")).strip() not in NO_PAGER


def interpreter_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change how Python starts, which a helper must share with its callers."""
    names = ("LANG", "LC_ALL", "LC_CTYPE")
    return {
        name: environment[name]
        for name in sorted(environment)
        if name in names or name.startswith(UNLIKE_SHELL)
    }
