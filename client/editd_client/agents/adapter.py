"""An agent's dialect of hooks as a table: its events and tools, the places of values, and its refusal.

Imports nothing: a dataclass or `typing` would cost the hook as much as the rest of its start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = dict[str, "object"]
    Deny = Callable[[str, str], Json]

START, BEFORE, AFTER, FAILED, TURN_END = "start", "before", "after", "failed", "turn end"
ASKED, DENIED = "asked", "denied"  # the agent asks its user about a tool, and the answer is no
PATCH = "*"  # after an argument's name: it holds a patch in Codex's format, which names the paths


class Adapter:
    """One agent. A place is a dotted path into the payload; the first of several that is there counts.

    `edits`, `shells` and `reads` map a tool to its argument with the path (or `PATCH`), the command or
    the path. `whole` are the tools that write a file whole: they would overwrite a change unseen.
    """

    def __init__(
        self,
        name: str,
        title: str,
        *,
        events: Mapping[str, str],
        edits: Mapping[str, str],
        shells: Mapping[str, str],
        deny: Deny,
        settings: Settings,
        reads: Mapping[str, str] | None = None,
        whole: tuple[str, ...] = (),
        event: str = "hook_event_name",
        session: tuple[str, ...] = ("session_id",),
        agent: tuple[str, ...] = (),
        call: tuple[str, ...] = (),
        folder: tuple[str, ...] = ("cwd",),
        tool: tuple[str, ...] = ("tool_name",),
        arguments: tuple[str, ...] = ("tool_input",),
        status: tuple[str, ...] = (),
        success: tuple[str, ...] = (),
        output: tuple[str, ...] = (),
        background: tuple[str, ...] = (),
        foreign: tuple[str, ...] = (),
        replaced: Mapping[str, tuple[str, str]] | None = None,
        written: Mapping[str, str] | None = None,
        question: tuple[str, str] | None = None,
    ) -> None:
        self.name = name
        self.title = title
        self.events = events
        self.edits = edits
        self.shells = shells
        self.reads = reads or {}
        self.whole = whole
        self.deny = deny
        self.settings = settings
        self.event = event
        self.session = session
        self.agent = agent
        self.call = call
        self.folder = folder
        self.tool = tool
        self.arguments = arguments
        self.status = status  # a number
        self.success = success  # a flag
        self.output = output  # a text that may end with `Exit Code: 3`
        self.background = background  # a flag: the command goes on after the "after"
        self.replaced = replaced or {}  # of an edit tool: its arguments with the old and the new text
        self.written = written or {}  # of a tool in `whole`: its argument with the text of the file
        self.question = question  # the place of the kind of a notification, and the kind that asks
        self.foreign = foreign  # of another agent that runs these hooks as well as its own


class Settings:
    """The files of an agent that `editctl integrate` changes. A path is relative to the home folder.

    `form` is the shape of a hook: `groups` (a matcher with a list of hooks), `flat` (one object a hook),
    `files` (an executable for each event), or `plugin` (a file of ours that the agent loads).
    `matched` are the moments that take a matcher. `mcp_key` leads to the servers, in a file of JSON.
    """

    def __init__(
        self,
        *,
        program: str,
        folder: str,
        form: str,
        user: str,
        project: str,
        variable: tuple[str, str] | None = None,
        moves: str = "",
        mcp: tuple[str, str] | None = None,
        mcp_key: tuple[str, ...] = ("mcpServers",),
        mcp_entry: Json | None = None,
        seconds: int = 10,
        head: Json | None = None,
        plugin: str = "",
        extra: Mapping[str, str] | None = None,
        hint: str = "",
    ) -> None:
        self.program = program
        self.folder = folder  # that the agent makes: it shows that the agent is in use here
        self.form = form
        self.user = user
        self.project = project
        self.variable = variable  # an environment variable, and the folder that it replaces
        self.moves = moves  # a file of the home folder that is in that folder instead, if it is set
        self.mcp = mcp  # the files of the user and of a project with the MCP servers
        self.mcp_key = mcp_key
        self.mcp_entry = mcp_entry or {}
        self.seconds = seconds  # the time limit of a hook, in the agent's unit
        self.head = head or {}  # members that a new file needs
        self.plugin = plugin
        self.extra = extra or {}  # further files of ours beside the hooks, by their path
        self.hint = hint  # the last step, which only the user can take


class Plugin:
    """An agent that loads a file of ours in place of hooks: it has settings, and no events."""

    def __init__(self, name: str, title: str, settings: Settings) -> None:
        self.name = name
        self.title = title
        self.settings = settings


def hook_specific(event: str, reason: str) -> Json:
    """Return the refusal in the form of Claude Code, which Codex shares."""
    answer: Json = {
        "hookEventName": event,
        "permissionDecision": "deny",
        "permissionDecisionReason": reason,
    }
    return {"hookSpecificOutput": answer}


def decision(word: str) -> Deny:
    """Return the function that makes a refusal of the form `{"decision": word, "reason": …}`."""

    def deny(event: str, reason: str) -> Json:
        del event
        return {"decision": word, "reason": reason}

    return deny
