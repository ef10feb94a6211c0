"""The options in the configuration that the tools of a dialect read."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class ToolSettings(Struct, frozen=True):
    """The dialects' options in the configuration."""

    ignored_paths: tuple[str, ...] = ()  # serena: gitignore patterns beside the workspace's
    edit_globs: tuple[str, ...] | None = None  # wcgw: files that `code_writer` mode may edit; None: any
    write_globs: tuple[str, ...] | None = None  # wcgw: files that it may write whole; None: any
    generation: Literal["auto", "classic", "smart", "head"] = "auto"  # gemini: the version of `replace`
    home: str = ""  # the folder that `~` names
