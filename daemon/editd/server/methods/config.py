"""Configuring: the configuration in force, and taking a new one while the daemon runs.

A wrong file changes nothing: what is in force stays, and `status` says what is wrong.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from editd.config.load import ConfigError, config_path, keys, read_config, value_of, workspace_config_path
from editd.engine.policy import EditPolicy
from editd.values.glob import Glob
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from editd.config.schema import Config
    from editd.server.dispatch import ClientState, MethodCall

log = logging.getLogger(__name__)

RELAXED = (
    'durability = "relaxed": an edit is answered before it is synced, so a power cut may cost the edits of '
    "the last second, and leave the files that they touched torn."
)


class Configuration:
    def __init__(self, config: Config, workspace: str) -> None:
        """`config` is that of the workspace with this id."""
        self.config = config
        self._workspace = workspace
        self._problem: str | None = None
        self._waiting: list[str] = []
        self._takers: list[Callable[[Config], None]] = []
        self.methods: dict[type[messages.Params], Callable[[Any, ClientState, MethodCall], None]] = {
            messages.ConfigReload: self._asked
        }

    def take(self, taker: Callable[[Config], None]) -> None:
        """Call `taker` with the configuration, now and whenever it changes."""
        self._takers.append(taker)
        taker(self.config)

    def reload(self) -> tuple[list[str], list[str]]:
        """Read it anew; which keys are in force by that, and which wait for a restart. Raises WrongConfig."""
        try:
            found = read_config(self._workspace).config
        except ConfigError as wrong:
            self._problem = wrong.message
            log.error("the configuration stays as it was: %s", wrong.message)
            raise
        self._problem = None
        changed = [key for key in keys() if value_of(found, key.name) != value_of(self.config, key.name)]
        applied = [key.name for key in changed if not key.needs_restart]
        # What needs a restart was read at the start, by whom it concerns, and is not asked for again.
        self._waiting = sorted({*self._waiting, *(key.name for key in changed if key.needs_restart)})
        self.config = found
        for taker in self._takers:
            taker(found)
        log.info("the configuration is read anew: %s", ", ".join(key.name for key in changed) or "no change")
        return applied, self._waiting

    def reload_quietly(self) -> None:
        """As a signal asks for it: the log and `status` tell what came of it."""
        try:
            self.reload()
        except ConfigError:
            return  # which is logged

    def weaker(self) -> list[str]:
        """What the configuration gives up."""
        return [RELAXED] if self.config.durability == "relaxed" else []

    def status(self) -> dict[str, Any]:
        return {
            "files": [config_path(), workspace_config_path(self._workspace)],
            "problem": self._problem,
            "restart": self._waiting,
        }

    def _asked(self, params: messages.ConfigReload, caller: ClientState, call: MethodCall) -> None:
        del params, caller
        applied, restart = self.reload()
        call.reply(messages.ConfigReloadResult(applied=applied, restart=restart))


def rules_of(config: Config) -> EditPolicy:
    """What the configuration lets no client do."""
    return EditPolicy(tuple(Glob.parse(text) for text in config.protect), config.history.quota)
