"""The words of each face for the terms of an advice, and the sentence that they make.

A face is a place where a refusal is read: the socket, the command line, the tools of MCP, an editor, and the
page of `editctl web`. A sentence for one face has no word of another: no method of the protocol at the
shell, and no command of the shell in a tool's answer.

`OWN` has a face's own words for a term. The other terms follow the rule of their kind. The socket's sentence
is the `hint` of the protocol.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from editd.advice import KINDS, Advice, with_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from editd.advice import Term

NO_AUTHORS: Mapping[int, str] = {}


class Face(StrEnum):
    """A place where a refusal is read."""

    SOCKET = "socket"
    COMMAND_LINE = "command line"
    MCP = "mcp"
    EDITOR = "editor"
    NEOVIM = "neovim"
    PAGE = "page"


SHELLS = (Face.COMMAND_LINE, Face.EDITOR, Face.NEOVIM)  # whose reader has a shell


def sentence(advice: Advice, face: Face = Face.SOCKET) -> str:
    """Return an advice in the words of a face."""
    text = ""
    for part in advice.parts:
        words = part if isinstance(part, str) else words_of(part, face)
        is_first = not text or text.endswith(". ")
        text += f"T{words[1:]}" if is_first and words.startswith("the ") else words
    return text


def words_of(term: Term, face: Face) -> str:
    """Return a face's words for a term, with its lead and purpose. Empty if the face has no such thing."""
    if term.kind not in KINDS or (term.kind == "step" and (term.kind, term.method) not in OWN[Face.SOCKET]):
        return f"{term.lead}{term.words}{term.purpose}"  # a later daemon has sent it
    words = _own(term, face)
    if words is None:
        words = _by_rule(term, face)
    return f"{term.lead}{words}{term.purpose}" if words else ""


def in_the_way(blocking: Iterable[int], authors: Mapping[int, str] = NO_AUTHORS) -> str:
    """Return the transactions in the way of an undo or a proposal, with the known authors, for each face."""
    by = ", ".join(f"{seq} by {authors[seq]}" if seq in authors else str(seq) for seq in blocking)
    return f"in the way: {by}" if by else "in the way"


def on_the_wire(advice: Advice) -> list[str | dict[str, str]]:
    """Return the parts of an advice for the protocol, each term with the words of the socket."""
    parts = [part if isinstance(part, str) else with_words(part, _words_alone(part)) for part in advice.parts]
    plain = Advice(*parts).to_plain()
    return plain if isinstance(plain, list) else [plain]


def _words_alone(term: Term) -> str:
    return words_of(term, Face.SOCKET).removeprefix(term.lead).removesuffix(term.purpose)


def _own(term: Term, face: Face) -> str | None:
    """Return a face's own words for a term, None if it has none. The more exact entry of its table counts."""
    name = term.option if term.kind == "option" else term.method or term.argument
    table = OWN[face]
    for key in ((term.kind, f"{name} {term.argument}"), (term.kind, name)):
        if key in table:
            return table[key]
    return _own(term, _NEXT[face]) if face in _NEXT else None


def _by_rule(term: Term, face: Face) -> str:
    """Return the words for a term without an entry in the table of the face."""
    match term.kind:
        case "method":
            return _method(term, face)
        case "operation":
            return _operation(term.method, face)
        case "option":
            return _option(term, face)
        case "argument":
            return _argument(term.argument, face)
        case "command":
            return _command(term.argument, face, term.option)
    return OWN[Face.SOCKET]["step", term.method]


def _method(term: Term, face: Face) -> str:
    if face is Face.SOCKET:
        more = [f"tx {term.argument}"] * bool(term.argument) + [f"`{term.option}`"] * bool(term.option)
        return f"`{term.method}`" + (f" with {' and '.join(more)}" if more else "")
    verb = _VERBS.get(term.method, term.method.replace(".", " "))
    option = f" --{term.option}" if term.option else ""
    return _command(f"{verb} {term.argument}".rstrip() + option, face)


def _operation(name: str, face: Face) -> str:
    if face in SHELLS:
        return f"`editctl {_VERBS.get(name, name)}`"
    return f"op: {name}" if face is Face.MCP else f"`{name}`"


def _option(term: Term, face: Face) -> str:
    if face in SHELLS:
        return f"{_flag(term.option)} {term.argument}".rstrip()
    if face is Face.PAGE:
        return f"{term.option.replace('_', ' ')} {term.argument}".rstrip()
    return f"{term.option}: {term.argument}" if term.argument else term.option


def _argument(name: str, face: Face) -> str:
    if face in SHELLS:
        return _flag(name)
    return name.replace("_", " ") if face is Face.PAGE else f"`{name}`"


def _command(text: str, face: Face, setting: str = "") -> str:
    """Return a command, after the setting of a variable of the environment if it needs one."""
    if face in (Face.MCP, Face.PAGE):
        return f"editd's command `{text}`" if text else f"`{setting}`"
    return f"`{f'{setting} editctl {text}'.strip()}`"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# ── The words of each face ─────────────────────────────────────────────────────────────────────

_VERBS = {  # verbs of `editctl` that have another name than the method or the operation
    "delete": "rm",
    "move": "mv",
    "document.list": "status",
    "proposal.get": "proposal show",
    "review.unlock": "review",
    "stat": "read --json",
    "subscribe": "watch",
}

_SOCKET = {
    ("step", "read_first"): "Read it and give its version as base",
    ("step", "give_base"): "Give its version as base",
    ("step", "overwrite"): "or use overwrite",
    ("step", "undo_others"): "Leave own_only out to undo the work of others, too",
    ("step", "give_token"): "Give the token that `session.open` returned: `hello {session, token}`",
    ("step", "attach"): "Attach it with the token that `session.open` returned: `hello {session, token}`",
    ("step", "attach_with_token"): "Attach to it with `hello` and its token",
    ("step", "open_session"): "Open it with `session.open`. `session.list` lists the open sessions.",
    ("step", "open_a_session"): "`session.open` opens one.",
    ("step", "open_and_attach"): "`session.open` opens one and attaches this connection to it.",
    ("step", "open_changeset"): ("Open one with `begin`. It ends with `commit`, `abort` or the connection."),
    ("step", "open_span"): "Open one with `exec.begin`. It ends with `exec.end` or the connection.",
    ("step", "edit_the_unsaved"): (
        "Ask the user to save, edit other lines, or read it with `unsaved: true` and edit that"
    ),
    ("step", "versions"): "as `read` and `stat` give it",
    ("step", "name_session"): "Name yours with `hello`.",
    ("step", "unlock"): "the PIN (`review.unlock`)",
    ("step", "give_pin"): "Give the PIN with `review.unlock`",
    ("step", "other_filters"): (
        "`unsubscribe`, or leave out the filters: one subscription may get all events."
    ),
    ("step", "subscription"): "`subscribe` returns its number, which is good for the same connection.",
    ("step", "take_in"): "`remote now` takes in new entries.",
    ("step", "set_aside"): "`proposal list` has what was set aside.",
    ("step", "session_or_range"): "Name a `session`, or give `from` and `to`, both included.",
    ("step", "targets"): "Give `tx`, or `filter`, or `session`. `last` goes with the latter two or alone.",
    ("step", "reviewers_socket"): ("Use the reviewers' socket, as `editctl` does in a terminal of your own."),
    ("step", "start_again"): "Connect again: editctl starts it anew.",
    ("step", "short_prefix"): (
        "It goes out with every event: give a short name in `prefix`, and keep the rest yourself."
    ),
    ("step", "install_part"): (
        "Install or repair it, and start the daemon again: `parts` of `status` lists the installed parts."
    ),
}

_COMMAND_LINE = {
    ("method", "unsubscribe"): "End another `editctl watch`",
    ("option", "on_conflict force"): "--force",
    ("option", "on_conflict skip"): "--what-fits",
    ("option", "on_stale merge"): "--merge",
    ("argument", "paths"): "--path",
    ("argument", "hunks"): "--hunk",
    ("argument", "session"): "--session NAME (or EDITD_SESSION)",
    ("argument", "tx"): "TX",
    ("step", "read_first"): "Read it and give its version as --base",
    ("step", "give_base"): "Give its version as --base",
    ("step", "overwrite"): "or use --overwrite",
    ("step", "undo_others"): "Ask the author of that change",
    ("step", "give_token"): "Set EDITD_TOKEN to the token that `editctl session open` printed",
    ("step", "attach"): "Set EDITD_TOKEN to the token that `editctl session open` printed",
    ("step", "attach_with_token"): "Set EDITD_SESSION and EDITD_TOKEN to use it",
    ("step", "open_session"): (
        '`eval "$(editctl session open NAME)"` opens it for this shell. `editctl session list` lists the '
        "open sessions."
    ),
    ("step", "open_a_session"): '`eval "$(editctl session open NAME)"` opens one for this shell.',
    ("step", "open_and_attach"): '`eval "$(editctl session open NAME)"` opens one for this shell.',
    ("step", "open_changeset"): "Make all changes with one command.",
    ("step", "open_span"): "Run the command with `editctl exec`.",
    ("step", "edit_the_unsaved"): "Ask the user to save, or edit other lines",
    ("step", "versions"): "as `editctl read --json` gives it",
    ("step", "name_session"): "Name yours with --session NAME.",
    ("step", "unlock"): "the PIN (which `editctl` asks for)",
    ("step", "give_pin"): "Give the PIN on a terminal",
    ("step", "other_filters"): "End another `editctl watch`, or leave out its filters.",
    ("step", "subscription"): "Start `editctl watch` again.",
    ("step", "take_in"): "`editctl remote now` takes in new entries.",
    ("step", "set_aside"): "`editctl proposal list` has what was set aside.",
    ("step", "session_or_range"): "Name a session, or give --from and --to, both included.",
    ("step", "targets"): "Give a TX, a session or another filter. --last goes with the latter two or alone.",
    ("step", "reviewers_socket"): "Run it in a terminal of your own.",
    ("step", "short_prefix"): "It goes out with every event: give a short name, and keep the rest yourself.",
    ("step", "install_part"): (
        "Install or repair it, and run `editctl stop`: `editctl status -v` lists the installed parts."
    ),
}

_MCP = {
    ("method", "apply"): "`apply_edits`",
    ("method", "blame"): "`blame`",
    ("method", "diff"): "`diff`",
    ("method", "lease.acquire"): "`lease` with action: acquire",
    ("method", "lease.list"): "`lease` with action: list",
    ("method", "lease.release"): "`lease` with action: release",
    ("method", "lease.renew"): "`lease` with action: renew",
    ("method", "log"): "`log`",
    ("method", "proposal.get"): "`proposal_status`",
    ("method", "proposal.wait"): "`proposal_status`",
    ("method", "proposal.withdraw"): "`withdraw_proposal`",
    ("method", "read"): "`read_file`",
    ("method", "redo"): "`redo`",
    ("method", "rollback"): "`rollback_session`",
    ("method", "show"): "`log`",
    ("method", "stat"): "`read_file`",
    ("method", "undo"): "`undo`",
    ("option", "on_conflict force"): "force: true",
    ("option", "on_conflict skip"): "",
    ("option", "on_stale merge"): 'on_stale: "merge"',
    ("option", "force"): "",
    ("argument", "propose"): "",
    ("step", "read_first"): "Read it with read_file first",
    ("step", "give_base"): "Delete it in the same call",
    ("step", "overwrite"): "or delete that file in the same call",
    ("step", "undo_others"): (
        "Ask the user to undo it, or to start this server with the option --may-undo-others"
    ),
    ("step", "give_token"): (
        "Give the token of the session: EDITD_SESSION and EDITD_TOKEN in the server's environment"
    ),
    ("step", "attach"): (
        "Give the token of the session: EDITD_SESSION and EDITD_TOKEN in the server's environment"
    ),
    ("step", "attach_with_token"): "Set EDITD_SESSION and EDITD_TOKEN in the server's environment to use it",
    ("step", "open_session"): "Start the server again.",
    ("step", "open_a_session"): "Start the server again.",
    ("step", "open_and_attach"): "Start the server again.",
    ("step", "open_changeset"): "Send all edits in one call of `apply_edits`.",
    ("step", "open_span"): "Make the changes with `apply_edits`.",
    ("step", "edit_the_unsaved"): "Ask the user to save, or edit other lines",
    ("step", "versions"): "as read_file gives it",
    ("step", "name_session"): "Set EDITD_SESSION in the server's environment.",
    ("step", "unlock"): "the PIN",
    ("step", "give_pin"): "Ask the user to decide",
    ("step", "other_filters"): "Leave out the filters: one subscription may get all events.",
    ("step", "subscription"): "Start the server again.",
    ("step", "take_in"): "Ask the user to take in new entries.",
    ("step", "set_aside"): "Ask the user for the proposals that were set aside.",
    ("step", "session_or_range"): "Name a session, or the first and the last transaction.",
    ("step", "targets"): "Give `tx` or `last`.",
    ("step", "reviewers_socket"): "Ask the user to do it in a terminal.",
    ("step", "start_again"): "Start the server again.",
    ("step", "short_prefix"): "It goes out with every event: give a short name, and keep the rest yourself.",
    ("step", "install_part"): "Ask the user to install or repair it, and to stop the daemon.",
}

_EDITOR = {
    ("option", "force"): "",
    ("option", "on_conflict force"): "`editctl undo --force`",
    ("option", "on_conflict skip"): "`editctl undo --what-fits`",
    ("option", "on_stale merge"): "",
    ("option", "include_by_time"): "`editctl rollback --include-by-time`",
    ("option", "include_published"): "`editctl rollback --include-published`",
    ("step", "edit_the_unsaved"): "Save it there first",
}

_NEOVIM = {
    ("option", "on_conflict force"): ":Editd! with the same command",
    ("option", "on_stale merge"): ":Editd merge",
}

_PAGE = {
    ("method", "lease.list"): "the list of agents",
    ("method", "log"): "the timeline",
    ("method", "proposal.get"): "the page of the proposal",
    ("method", "proposal.list"): "the list of proposals",
    ("method", "session.list"): "the list of agents",
    ("method", "show"): "the page of the transaction",
    ("option", "force"): "",
    ("option", "on_conflict force"): '"Force it over the later changes"',
    ("option", "on_conflict skip"): '"Do only what is clean"',
    ("option", "on_stale merge"): "",
    ("operation", "write"): "an edit",
    ("operation", "delete"): "a deletion",
    ("argument", "propose"): '"Propose it"',
    ("step", "read_first"): "Look at it again",
    ("step", "give_base"): "Look at it again",
    ("step", "overwrite"): "or remove that file",
    ("step", "undo_others"): "Ask the author of that change",
    ("step", "give_token"): "Use a terminal that has the session's token",
    ("step", "attach"): "Use a terminal that has the session's token",
    ("step", "attach_with_token"): "Use a terminal that has its token",
    ("step", "open_session"): "The list of agents has the open sessions.",
    ("step", "open_a_session"): "The list of agents has the open sessions.",
    ("step", "open_and_attach"): "The list of agents has the open sessions.",
    ("step", "open_changeset"): "Load the page again.",
    ("step", "open_span"): "Load the page again.",
    ("step", "edit_the_unsaved"): "Save it there first",
    ("step", "versions"): "as the page of the transaction shows it",
    ("step", "name_session"): "Choose a session.",
    ("step", "unlock"): "the PIN",
    ("step", "give_pin"): "Give the PIN on this page",
    ("step", "other_filters"): "Close another page.",
    ("step", "subscription"): "Load the page again.",
    ("step", "take_in"): "The next exchange takes in new entries.",
    ("step", "set_aside"): "The list of proposals has what was set aside.",
    ("step", "session_or_range"): "Choose a session, or the first and the last transaction.",
    ("step", "targets"): "Choose a transaction or a session.",
    ("step", "reviewers_socket"): "Use a terminal of your own.",
    ("step", "start_again"): "Load the page again.",
    ("step", "short_prefix"): "It goes out with every event: give a short name, and keep the rest yourself.",
    ("step", "install_part"): "Install or repair it, and stop the daemon.",
}

OWN: Mapping[Face, Mapping[tuple[str, str], str]] = {
    Face.SOCKET: _SOCKET,
    Face.COMMAND_LINE: _COMMAND_LINE,
    Face.MCP: _MCP,
    Face.EDITOR: _EDITOR,
    Face.NEOVIM: _NEOVIM,
    Face.PAGE: _PAGE,
}
"""The words of a face for a term, by its kind and its name, or its name and its value.

An empty text leaves the term out, with its lead and its purpose.
"""

_NEXT = {Face.NEOVIM: Face.EDITOR, Face.EDITOR: Face.COMMAND_LINE}  # whose words a face has beside its own
