"""The resources and the prompts: what a person picks in the client, where tools are for the model.

    editd://log              the newest transactions
    editd://log/SESSION      the newest transactions of a session
    editd://tx/NUMBER        one transaction with its changes

A prompt begins with such texts, so that the model has the facts before its first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from editd_client.errors import refusal
from editd_client.mcp import conversion

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from editd.wire.messages import Kind, Transaction
    from editd_client.client import Client

LOG, TRANSACTION = "editd://log", "editd://tx/"
LOG_LENGTH = 50  # transactions
CHANGES_MAX = 20  # transactions whose changes a prompt shows
TEXT = "text/plain"
IN_FORCE: tuple[Kind, ...] = ("edit", "exec")  # the kinds that a rollback takes back

RESOURCES: list[dict[str, Any]] = [
    {
        "uri": LOG,
        "name": "log",
        "title": "The history",
        "description": f"The newest {LOG_LENGTH} transactions with their authors, newest first.",
        "mimeType": TEXT,
    }
]
TEMPLATES: list[dict[str, Any]] = [
    {
        "uriTemplate": f"{TRANSACTION}{{number}}",
        "name": "transaction",
        "title": "A transaction",
        "description": "One transaction: its author, its message and its changes as a diff.",
        "mimeType": TEXT,
    },
    {
        "uriTemplate": f"{LOG}/{{session}}",
        "name": "session",
        "title": "The history of a session",
        "description": f"The newest {LOG_LENGTH} transactions of one session.",
        "mimeType": TEXT,
    },
]
_SESSION = {"name": "session", "description": "Name of the session (default: this one)", "required": False}
PROMPTS: list[dict[str, Any]] = [
    {
        "name": "review_session",
        "title": "Review the work of a session",
        "description": "Review what an agent did in its session: its changes, with the reason of each.",
        "arguments": [_SESSION],
    },
    {
        "name": "roll_back_session",
        "title": "Roll back a session",
        "description": "Take back all work of a session, after a look at what that would change.",
        "arguments": [_SESSION],
    },
    {
        "name": "explain_file",
        "title": "Explain the state of a file",
        "description": "Find out who changed each part of a file, when and why.",
        "arguments": [{"name": "path", "description": "The file", "required": True}],
    },
]


def read(client: Client, uri: str) -> str:
    """Return the text of a resource. Raises EditdError, `file_missing` for an unknown one."""
    if uri == LOG:
        return conversion.log(client.log(limit=LOG_LENGTH)).texts[0]
    if uri.startswith(f"{LOG}/"):
        session = unquote(uri.removeprefix(f"{LOG}/"))
        return conversion.log(client.log(limit=LOG_LENGTH, session=session)).texts[0]
    number = uri.removeprefix(TRANSACTION)
    if uri.startswith(TRANSACTION) and number.isdecimal():
        result = client.show(int(number), decoded=True)
        return conversion.transaction(result.transaction, result.diff or "")
    raise refusal(
        "file_missing",
        f"There is no resource {uri}.",
        hint=f"There are {LOG}, {LOG}/SESSION and {TRANSACTION}NUMBER.",
        data={"uri": uri},
    )


def prompt(client: Client, name: str, arguments: Mapping[str, str], own: str) -> str:
    """Return the text of a prompt; `own` is the session of this connection.

    Raises EditdError (`invalid_params`) for an unknown prompt or argument, or a missing one.
    """
    known = {one["name"]: one for one in PROMPTS}
    if name not in known:
        raise conversion.unknown_name("prompt", name, list(known))
    properties = {one["name"]: {"type": "string"} for one in known[name]["arguments"]}
    required = [one["name"] for one in known[name]["arguments"] if one["required"]]
    fields = conversion.check_arguments(name, {"properties": properties, "required": required}, arguments)
    return _TEXTS[name](client, fields, own)


def _review(client: Client, fields: Mapping[str, str], own: str) -> str:
    session = fields.get("session", own)
    work = _work(client, session)
    shown = [read(client, f"{TRANSACTION}{made.seq}") for made in work[-CHANGES_MAX:]]
    left_out = f"The newest {CHANGES_MAX} of {len(work)} transactions follow.\n\n" * (len(work) > CHANGES_MAX)
    return (
        f"Review the work of session {session} in this workspace. For each change below say what it does, "
        "whether it is right, and whether it belongs to the task. Name what to take back by the number of "
        "its transaction. Change nothing before I agree.\n\n"
        + (left_out + "\n\n".join(shown) if work else f"Session {session} has no change in force.")
    )


def _roll_back(client: Client, fields: Mapping[str, str], own: str) -> str:
    session = fields.get("session", own)
    work = _work(client, session)
    other = "" if session == own else f', "session": "{session}"'
    return (
        f"Take back the work of session {session} in this workspace. First call "
        f'rollback_session {{"dry_run": true{other}}} and tell me which files it would change. '
        "Then ask me, and roll back only if I agree. If the tool refuses the work of others, tell me to run "
        f"`editctl rollback {session}`.\n\n"
        f"Its transactions in force ({LOG}/{quote(session)}):\n"
        + ("\n".join(conversion.line(made) for made in work) or "none")
    )


def _explain(client: Client, fields: Mapping[str, str], own: str) -> str:
    del own
    path = fields["path"]
    blamed = conversion.blame(path, client.blame(path), None, None).texts[0]
    history = conversion.log(client.log(limit=LOG_LENGTH, path=path)).texts[0]
    return (
        f"Explain how {path} came to its present state: who changed which part, when and why. Read the file "
        f"with read_file, and a transaction as {TRANSACTION}NUMBER or with diff.\n\n"
        f"Author of each range of lines:\n{blamed}\n\nTransactions, newest first:\n{history}"
    )


def _work(client: Client, session: str) -> list[Transaction]:
    """Return the edits and commands of a session that are not undone, the oldest first."""
    made = client.log(limit=LOG_LENGTH, session=session, kind=IN_FORCE).transactions
    return [one for one in reversed(made) if one.undone_by is None]


_TEXTS: Mapping[str, Callable[[Client, Mapping[str, str], str], str]] = {
    "review_session": _review,
    "roll_back_session": _roll_back,
    "explain_file": _explain,
}
