"""The changes of an agent's settings: editd's own file, hooks among other hooks, an MCP server.

Each of them is added once and replaced if it is old. What is editd's runs `editd-hook`, or is the MCP
server of the name `editd` in the form that is written here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING, Any, Literal, Protocol

from editd_client.agents import jsonc, toml_table
from editd_client.agents.adapter import AFTER, BEFORE, FAILED, START, Adapter
from editd_client.agents.jsonc import Splice, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from editd_client.agents.settings_file import Draft

NAME = "editd"  # of the entry among the MCP servers
State = Literal["yes", "no", "old", "unreadable"]


def is_ours(command: object) -> bool:
    """Whether the command of a hook runs `editd-hook`."""
    return (
        isinstance(command, str) and re.search(r"(?:^|[\s/'\"])editd-hook(?=['\"\s]|$)", command) is not None
    )


class SettingsEdit(Protocol):
    """A change of one file: it is added, or removed without the record, or looked for.

    Each method raises UnreadableError for a file that it cannot understand.
    """

    def add(self, draft: Draft) -> None: ...
    def remove(self, draft: Draft) -> None: ...
    def state(self, draft: Draft) -> State: ...


class OwnFile:
    """A file that is editd's alone, such as a plugin. A file of others at its place is left alone."""

    def __init__(self, text: str, mode: int) -> None:
        self._text = text
        self._mode = mode

    def add(self, draft: Draft) -> None:
        if draft.original is not None and not self._is_ours(draft.text):
            raise UnreadableError("another program's file is there")
        if draft.text != self._text:
            draft.splice(Splice(0, len(draft.text), self._text))
            draft.mode = self._mode

    def remove(self, draft: Draft) -> None:
        draft.is_gone = draft.original is not None and self._is_ours(draft.text)

    def state(self, draft: Draft) -> State:
        if draft.original is None or not self._is_ours(draft.text):
            return "no"
        choices = r"const (?:EDITCTL|STRICT) = \S*"
        return "yes" if re.sub(choices, "", draft.text) == re.sub(choices, "", self._text) else "old"

    def _is_ours(self, text: str) -> bool:
        return "editd" in text.partition("\n\n")[0]


class Hooks:
    """The hooks in a file of JSON: one group, or one object, at the end of each event's list."""

    def __init__(self, agent: Adapter, command: str, *, start: bool) -> None:
        self._agent = agent
        self._command = command
        self._start = start

    def add(self, draft: Draft) -> None:
        if draft.original is None or not draft.text.strip():
            draft.splice(Splice(0, len(draft.text), _new_document(self._agent.settings.head)))
        for event, value in self._values():
            index = self._index(draft.text, event)
            if index is None:
                draft.splice(jsonc.add_element(draft.text, ("hooks", event), value))
            elif self._entries(draft.text, event)[index] != value:
                draft.splice(jsonc.replace_element(draft.text, ("hooks", event), index, value))
        if not self._start:
            for event, moment in self._agent.events.items():
                if moment == START:
                    self._remove_event(draft, event)

    def remove(self, draft: Draft) -> None:
        if draft.original is None:
            return
        for event in self._agent.events:
            self._remove_event(draft, event)

    def state(self, draft: Draft) -> State:
        states: list[State] = []
        for event, value in self._values():
            index = self._index(draft.text, event)
            entry = {} if index is None else self._entries(draft.text, event)[index]
            if index is None and self._agent.events[event] != START:
                states.append("no")
            elif isinstance(entry, dict) and entry:
                is_current = entry.get("matcher") == value.get("matcher")
                states.append("yes" if is_current and _runs(_commands(entry)) else "old")
        return "no" if set(states) == {"no"} else "yes" if set(states) == {"yes"} else "old"

    def lines(self) -> str:
        """Return the hooks as text, to be put in by hand."""
        values = {event: [value] for event, value in self._values()}
        return json.dumps({**self._agent.settings.head, "hooks": values}, indent=2)

    def _remove_event(self, draft: Draft, event: str) -> None:
        while (index := self._index(draft.text, event)) is not None:
            is_alone = len(self._entries(draft.text, event)) == 1
            if is_alone:
                draft.splice(*jsonc.remove_member(draft.text, ("hooks",), event))
            else:
                draft.splice(*jsonc.remove_element(draft.text, ("hooks", event), index))

    def _values(self) -> Iterator[tuple[str, dict[str, object]]]:
        agent = self._agent
        tools = [*agent.edits, *agent.shells]
        for event, moment in agent.events.items():
            if moment == START and not self._start:
                continue
            named = {BEFORE: tools, AFTER: [*tools, *agent.reads], FAILED: tools}.get(moment)
            matcher: dict[str, object] = {} if named is None else {"matcher": "|".join(named)}
            hook: dict[str, object] = {"command": self._command, "timeout": agent.settings.seconds}
            if agent.settings.form == "flat":
                yield event, {**matcher, **hook}
            else:
                yield event, {**matcher, "hooks": [{"type": "command", **hook}]}

    def _index(self, text: str, event: str) -> int | None:
        """Return the place of our entry in the event's list."""
        for index, entry in enumerate(self._entries(text, event)):
            if isinstance(entry, dict) and any(map(is_ours, _commands(entry))):
                return index
        return None

    def _entries(self, text: str, event: str) -> list[object]:
        node = jsonc.parse(text).at(("hooks", event)) if text.strip() else None
        if node is None:
            return []
        if not isinstance(node.value, list):
            raise UnreadableError(f"`hooks.{event}` is not a list")
        return node.value


def _commands(entry: Mapping[str, Any]) -> list[object]:
    """Return the commands of a hook, or of a group of hooks."""
    inner = entry.get("hooks", [])
    hooks = inner if isinstance(inner, list) else []
    return [one.get("command") for one in [entry, *hooks] if isinstance(one, dict)]


def _runs(commands: Sequence[object]) -> bool:
    """Whether our command among these names a program that exists."""
    ours = next((one for one in commands if isinstance(one, str) and is_ours(one)), "")
    try:
        first = shlex.split(ours)[0]
    except (ValueError, IndexError):
        return False
    return not os.path.isabs(first) or os.access(first, os.X_OK)


class ServerEntry:
    """The MCP server in the agent's settings: an entry of JSON or a table of TOML, named `editd`.

    An entry of that name that the user has written keeps its form.
    """

    def __init__(self, key: Sequence[str], entry: Mapping[str, object]) -> None:
        self._key = tuple(key)
        self._entry = dict(entry)

    def add(self, draft: Draft) -> None:
        known = self._current_value(draft)
        if known is not None and not self._is_old(known):
            return
        if draft.path.endswith(".toml"):
            path = (*self._key, NAME)
            edit = toml_table.add_table if known is None else toml_table.replace_table
            draft.splice(edit(draft.text, path, self._entry))
            return
        if not draft.text.strip():
            draft.splice(Splice(0, len(draft.text), _new_document({})))
        draft.splice(jsonc.set_member(draft.text, self._key, NAME, self._entry))

    def remove(self, draft: Draft) -> None:
        known = self._current_value(draft)
        if known is None or not self._is_made(known):
            return
        if draft.path.endswith(".toml"):
            draft.splice(toml_table.remove_table(draft.text, (*self._key, NAME)))
        else:
            draft.splice(*jsonc.remove_member(draft.text, self._key, NAME))

    def state(self, draft: Draft) -> State:
        known = self._current_value(draft)
        if known is None:
            return "no"
        command = known.get("command") if isinstance(known, dict) else None
        first = command[0] if isinstance(command, list) and command else command
        is_gone = isinstance(first, str) and os.path.isabs(first) and not os.access(first, os.X_OK)
        return "old" if is_gone else "yes"

    def lines(self, path: str) -> str:
        """Return the entry as text, to be put in by hand."""
        if path.endswith(".toml"):
            return toml_table.add_table("", (*self._key, NAME), self._entry).new
        value: object = {NAME: self._entry}
        for key in reversed(self._key):
            value = {key: value}
        return json.dumps(value, indent=2)

    def _current_value(self, draft: Draft) -> object:
        if draft.path.endswith(".toml"):
            value: object = toml_table.load(draft.text)
            for key in (*self._key, NAME):
                value = value.get(key) if isinstance(value, dict) else None
            return value
        if not draft.text.strip():
            return None
        node = jsonc.parse(draft.text).at((*self._key, NAME))
        return None if node is None else node.value

    def _is_made(self, known: object) -> bool:
        """Whether the entry is one that `integrate` writes, of this version or with another path."""
        if not isinstance(known, dict):
            return False
        command = known.get("command")
        first = command[0] if isinstance(command, list) and command else command
        is_absolute = isinstance(first, str) and os.path.isabs(first) and os.path.basename(first) == "editctl"
        return known == self._entry or (is_absolute and set(known) == set(self._entry))

    def _is_old(self, known: object) -> bool:
        return self._is_made(known) and known != self._entry


def _new_document(head: Mapping[str, object]) -> str:
    return json.dumps(dict(head), indent=2) + "\n"
