"""The answers of other systems' tools to an edit that a reviewer has decided about.

Each is in the words of the original, as it answers when its own user approves, changes or denies an edit.
What an original leaves to its host is in editd's words.
"""

from __future__ import annotations

import json
import re

from editd.edits.diff import quote

OF_ONE_FILE = frozenset({"gemini", "roo", "cline"})  # whose answers tell of the one file of the call
TEXT_CHARACTERS_MAX = 4_000  # of a new text that is repeated; a longer one is told by its diff

_FILES = re.compile(r"^(?=diff --git )", re.MULTILINE)  # no line of a hunk begins so
_ROO_NOTICE = (
    "You do not need to re-read the file, as you have seen all changes Proceed with the task using these "
    "changes as the new baseline. If the user's edits have addressed part of the task or changed the "
    "requirements, adjust your approach accordingly."
)


def changed(dialect: str, answer: str, path: str, text: str, diff: str) -> str:
    """Return the answer to an edit that landed with the reviewer's changes.

    `answer` is the tool's own, to what it proposed. `text` is the file's new text, and `diff` leads from
    what was proposed to what landed.
    """
    match dialect:
        case "gemini":
            said = text if len(text) <= TEXT_CHARACTERS_MAX else diff
            return f"{answer} User modified the `new_string` content to be: {said}."
        case "roo":
            return json.dumps(
                {"path": path, "operation": "modified", "user_edits": diff, "notice": _ROO_NOTICE},
                ensure_ascii=False,
            )
        case "cline":
            return (
                f"The user made the following updates to your content:\n\n{diff}\n\n"
                "The updated content, which includes both your original modifications and the user's edits, "
                f"has been successfully saved to {path}. Here is the full, updated content of the file:\n\n"
                f'<final_file_content path="{path}">\n{text}\n</final_file_content>'
            )
        case _:
            return f"{answer}\n\nChanged by the reviewer:\n{diff}"


def part_of(diff: str, path: str) -> str:
    """Return the part of a diff that is about this file; "" if there is none."""
    head = f"diff --git {quote(f'a/{path}')} "
    return "".join(part for part in _FILES.split(diff) if part.startswith(head))


def rejected(dialect: str, comment: str) -> str:
    """Return the answer to an edit that the reviewer rejected, with the reviewer's comment, or ""."""
    match dialect:
        case "gemini":
            said = "[Operation Cancelled] Reason: User denied execution."
            return f"{said} {comment}" if comment else said
        case "roo":
            told = {"feedback": comment} if comment else {"message": "The user denied this operation."}
            return json.dumps({"status": "denied", **told}, ensure_ascii=False)
        case "cline":
            said = "The user denied this operation."
            feedback = "The user provided the following feedback:"
            return f"{said}\n{feedback}\n<feedback>\n{comment}\n</feedback>" if comment else said
        case _:
            return f"Rejected by the reviewer: {comment}" if comment else "Rejected by the reviewer."


def waiting(number: int, rule: str) -> str:
    """Return the answer to an undecided edit."""
    return f"Proposal {number} waits for review (rule: {rule}). Nothing is written. Go on with other work."
