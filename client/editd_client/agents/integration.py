"""Integrations: the changes of an agent's settings that make it call `editd-hook`, and their removal.

A plan has every changed file with its text before and after, so that it can be shown first. Nothing is
written before `apply`, which replaces each file whole and only if it still is as it was read. A file that
cannot be read as its format says, or that is write-protected, is left alone and named as a problem.

A record in the state folder keeps the splices of each file, so that a removal restores every byte. Without
it, or after changes by others, a removal takes out only entries that are editd's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Literal

from editd_client.agents import toml_table
from editd_client.agents.adapter import START, Adapter, Plugin
from editd_client.agents.jsonc import UnreadableError
from editd_client.agents.settings_edit import Hooks, OwnFile, ServerEntry
from editd_client.agents.settings_file import Draft, FileChange, Records, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from editd_client.agents.settings_edit import SettingsEdit, State

Agent = Adapter | Plugin


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of `editctl integrate`."""

    mcp: bool = True
    hooks: bool = True
    start: bool = True
    strict: bool = False
    dialect: str | None = None


@dataclass(slots=True)
class Plan:
    """The changes for one agent, and for each file that is left alone its path, the reason and the lines."""

    agent: Agent
    changes: list[FileChange] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)


class Integrator:
    """The settings files of the agents of a user, or of one project."""

    def __init__(self, home: str, project: str | None, choices: Choices | None = None) -> None:
        self._home = home
        self._project = project
        self._choices = choices or Choices()
        self._records = Records()

    def plan(self, agent: Agent, *, remove: bool = False) -> Plan:
        """Return the changes that add the agent's integration, or remove all of it."""
        plan = Plan(agent)
        if agent.name == "codex" and self._project is not None and not remove and not self._is_trusted():
            reason = "Codex does not trust this project, so it would ignore the file"
            plan.problems.append((os.path.join(self._project, agent.settings.project), reason, ""))
            return plan
        texts: dict[str, Draft] = {}
        for path, edit, lines in self._edits(agent, remove=remove):
            try:
                draft = texts.get(path) or texts.setdefault(path, Draft.read(path, self._records.of(path)))
                if not remove:
                    draft.had_ours |= not draft.record and edit.state(draft) != "no"
                    edit.add(draft)
                elif not draft.restore():
                    edit.remove(draft)
            except (UnreadableError, OSError, UnicodeError) as error:
                texts.pop(path, None)
                plan.problems.append((path, _reason(error), "" if remove else lines))
        refused = {path for path, _, _ in plan.problems}
        for path, draft in texts.items():
            if path in refused:
                continue
            if draft.is_changed:
                plan.changes.append(draft.change(remove=remove))
        return plan

    def state(self, agent: Agent, part: Literal["hooks", "mcp"]) -> State:
        """Return whether a part of the integration is there; `old` if it needs an update."""
        only = Integrator(self._home, self._project, Choices(mcp=part == "mcp", hooks=part == "hooks"))
        states: list[State] = []
        for path, edit, _ in only._edits(agent, remove=False):
            try:
                states.append(edit.state(Draft.read(path, [], is_to_change=False)))
            except (UnreadableError, OSError, UnicodeError):
                states.append("unreadable")
        order: list[State] = ["unreadable", "old", "no", "yes"]
        for state in order:
            if state in states:
                return state
        return "no"

    def apply(self, plan: Plan) -> None:
        """Write the files of the plan. Raises OSError for a file that changed since, or cannot be written."""
        for change in plan.changes:
            replace_file(change)
            self._records.set(change.path, change.record)

    def _is_trusted(self) -> bool:
        """Whether the user has told Codex to trust the project."""
        folder = os.environ.get("CODEX_HOME") or os.path.join(self._home, ".codex")
        try:
            with open(os.path.join(folder, "config.toml"), encoding="utf-8") as file:
                projects = toml_table.load(file.read()).get("projects", {})
            return bool(projects[self._project]["trust_level"] == "trusted")
        except (OSError, UnicodeError, UnreadableError, KeyError, TypeError):
            return False

    # ── The edits of one agent ──

    def _edits(self, agent: Agent, *, remove: bool) -> Iterator[tuple[str, SettingsEdit, str]]:
        settings = agent.settings
        if self._choices.hooks or remove:
            if isinstance(agent, Plugin):
                command = self._program("editctl") if self._choices.start else ""
                text = _plugin_text(settings.plugin, command, strict=self._choices.strict)
                yield self._path(settings.user, settings.project, agent), OwnFile(text, 0o644), ""
            elif settings.form == "files":
                yield from self._executables(agent)
            else:
                hooks = Hooks(agent, self._command(agent), start=self._choices.start)
                yield self._path(settings.user, settings.project, agent), hooks, hooks.lines()
            for path, text in settings.extra.items():
                yield self._path(path, path, agent), OwnFile(text, 0o644), ""
        if settings.mcp is not None and (self._choices.mcp or remove):
            server = ServerEntry(settings.mcp_key, self._server(agent))
            path = _present(self._path(*settings.mcp, agent))
            yield path, server, server.lines(path)

    def _executables(self, agent: Adapter) -> Iterator[tuple[str, SettingsEdit, str]]:
        folder = self._path(agent.settings.user, agent.settings.project, agent)
        script = (
            f"#!/bin/sh\n# editd: an agent's own edits and commands are its own.\n{self._command(agent)}\n"
        )
        for event, moment in agent.events.items():
            if moment != START or self._choices.start:
                yield os.path.join(folder, event), OwnFile(script, 0o755), f"{self._command(agent)}\n"

    def _path(self, user: str, project: str, agent: Agent) -> str:
        if self._project is not None:
            return os.path.join(self._project, project)
        if agent.settings.variable is not None:
            name, folder = agent.settings.variable
            value = os.environ.get(name, "")
            if os.path.isabs(value) and (user.startswith(f"{folder}/") or user == agent.settings.moves):
                return os.path.join(value, user.removeprefix(f"{folder}/"))
        return os.path.join(self._home, user)

    def _command(self, agent: Adapter) -> str:
        """Return the hook's command: with the absolute path, but in a project one that all may run."""
        words = agent.name + (" --strict" if self._choices.strict else "")
        if self._project is not None:
            return f"command -v editd-hook >/dev/null || exit 0; exec editd-hook {words}"
        return f"{shlex.quote(program('editd-hook'))} {words}"

    def _program(self, name: str) -> str:
        return name if self._project is not None else program(name)

    def _server(self, agent: Agent) -> dict[str, object]:
        command = self._program("editctl")
        words = ["mcp", *(["--dialect", self._choices.dialect] if self._choices.dialect else [])]
        extra = dict(agent.settings.mcp_entry)
        if extra.get("type") == "local":
            return {"type": extra.pop("type"), "command": [command, *words], **extra}
        kind = {"type": extra.pop("type")} if "type" in extra else {}
        return {**kind, "command": command, "args": words, **extra}


def program(name: str) -> str:
    """Return the absolute path of a command of this installation."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name) or beside


def _plugin_text(name: str, command: str, *, strict: bool) -> str:
    """Return the plugin of an agent below the part that all share, with the user's choices."""
    folder = resources.files("editd_client").joinpath("agents", "plugins")
    core, own = (folder.joinpath(one).read_text(encoding="utf-8") for one in ("core.js", name))
    core = core.replace('const EDITCTL = ""', f"const EDITCTL = {json.dumps(command)}")
    return core.replace("const STRICT = false", f"const STRICT = {json.dumps(strict)}") + own


def _present(path: str) -> str:
    """Return the path with `.jsonc` if only that exists, which some agents read as well."""
    other = f"{path}c"
    return other if path.endswith(".json") and os.path.exists(other) and not os.path.exists(path) else path


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeError):
        return "it is not UTF-8"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
