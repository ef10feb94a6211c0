"""All keys of the configuration, with their types, defaults and effects.

A key is a field. `reference` prints its description, and `load` checks its value. `extra` has `form` if the
file's word is not the value (`value_parsers`), and `restart` if a reload is not enough.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from editd.config.value_parsers import COMMAND, DURATION, ENCODING, GLOBS, PATHS, SIZE, Extra

RESTART = Extra(restart=True)


class ConfigSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Serena(ConfigSection, frozen=True, kw_only=True):
    """Of the dialect of that name."""

    ignored_paths: Annotated[
        tuple[str, ...],
        Meta(
            description="Patterns as in .gitignore, beside those of the workspace.",
            examples=[["gen/", "*.min.js"]],
            extra=RESTART,
        ),
    ] = ()


class Wcgw(ConfigSection, frozen=True, kw_only=True):
    """Of the dialect of that name: what its tool may edit and write whole."""

    edit_globs: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="What it may edit, as globs of absolute paths; without the key, anything.",
            examples=[["/home/me/work/src/**"]],
            extra=RESTART,
        ),
    ] = None
    write_globs: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="What it may write whole, likewise.",
            examples=[["/home/me/work/src/**"]],
            extra=RESTART,
        ),
    ] = None


class Keep(ConfigSection, frozen=True, kw_only=True):
    """How much of the past is kept: what goes beyond any of these is compacted, oldest first."""

    age: Annotated[
        float | None,
        Meta(
            description="Transactions older than this are compacted; without the key, none for their age.",
            examples=["90d"],
            extra=DURATION,
        ),
    ] = None
    count: Annotated[
        int | None,
        Meta(
            ge=1,
            description="So many of the newest transactions are kept; without the key, all.",
            examples=[10_000],
        ),
    ] = None
    bytes: Annotated[
        int | None,
        Meta(
            description="So much of the disk the history may take before its oldest part is compacted.",
            examples=["2GiB"],
            extra=SIZE,
        ),
    ] = None


class HistoryKeys(ConfigSection, frozen=True, kw_only=True):
    """Of the history."""

    quota: Annotated[
        int | None,
        Meta(
            description=(
                "When the history takes this much of the disk, edits are refused, rather than history "
                "dropped. Undo, reading, and recording what others change go on. Without the key, no limit."
            ),
            examples=["10GiB"],
            extra=SIZE,
        ),
    ] = None
    keep: Annotated[
        Keep,
        Meta(
            description=(
                "`{ age = …, count = …, bytes = … }`: what goes beyond any of them is compacted, oldest "
                "first, and cannot be undone or read any more. The daemon does so by itself, as does "
                "`editctl gc`. Without the key everything is kept."
            )
        ),
    ] = Keep()


class HookKeys(ConfigSection, frozen=True, kw_only=True):
    """A command for the files that an edit writes, before it takes effect: see docs/hooks.md."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$",
            description="What it is called in answers, in the history and by `editctl hooks`.",
            examples=["ruff"],
        ),
    ]
    glob: Annotated[
        tuple[str, ...],
        Meta(
            description="Which files it is for, held against the file's own path.",
            examples=[["**/*.py"]],
            extra=GLOBS,
        ),
    ]
    command: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The program and its arguments; no shell reads them. `{file}` is the file's path in the "
                "scratch folder, `{files}` those of all files. Without either the content is on standard "
                "input, and `{path}` is what it is called."
            ),
            examples=[["ruff", "format", "--stdin-filename", "{path}", "-"]],
            extra=COMMAND,
        ),
    ]
    kind: Annotated[
        Literal["format", "check"],
        Meta(
            description=(
                "`format`: what it makes of the content, on standard output or in the file, is what the edit "
                "writes. `check`: with an exit status other than 0 the edit is refused (`rejected`)."
            )
        ),
    ] = "format"
    seconds: Annotated[
        float, Meta(gt=0, le=600, description="For one run; then it is killed with all that it started.")
    ] = 10.0
    on_error: Annotated[
        Literal["refuse", "skip"],
        Meta(
            description=(
                "What becomes of the edit where the hook cannot do its work: it is not there, runs out of "
                "time, is killed, or as a formatter fails. `skip` goes on without it, with a warning."
            )
        ),
    ] = "refuse"
    with_files: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Files of the workspace that are there too, such as the settings of the tool. What they may "
                "have the tool do, whoever may edit them can have it do."
            ),
            examples=[["pyproject.toml"]],
            extra=PATHS,
        ),
    ] = ()


class Config(ConfigSection, frozen=True, kw_only=True):
    """The top of the file; every key may be left out."""

    publish: Annotated[
        Literal["exchange", "rename"],
        Meta(
            description=(
                "How a file gets its new content. `rename` makes fewer events for programs that watch raw "
                "inotify, and may lose what another program writes in the same moment (docs/commit.md, C4)."
            ),
            extra=RESTART,
        ),
    ] = "exchange"
    durability: Annotated[
        Literal["full", "relaxed"],
        Meta(
            description=(
                "`relaxed` answers an edit before it is synced, which follows within a second: a crash of "
                "the daemon costs nothing, a power cut the edits of that second, and the files that they "
                "touched may be torn then. `status` has a line in `weaker`."
            )
        ),
    ] = "full"
    protect: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Globs of paths that no client may change (`path_protected`), whatever its session may. "
                "What other programs do to them is recorded as always."
            ),
            examples=[[".github/workflows/**", "**/*.pem"]],
            extra=GLOBS,
        ),
    ] = ()
    encoding: Annotated[
        str | None,
        Meta(
            description='Of text that is not UTF-8, such as "latin-1"; without the key it is `not_text`.',
            examples=["latin-1"],
            extra=ENCODING | RESTART,
        ),
    ] = None
    idle_seconds: Annotated[
        float,
        Meta(ge=0, description="The daemon ends by itself after so long without a client; 0 is never."),
    ] = 0
    regex_seconds: Annotated[
        float, Meta(gt=0, le=60, description="For one regular expression of a dialect's tool.")
    ] = 2.0
    file_bytes_max: Annotated[
        int,
        Meta(
            ge=1,
            description="A larger file is neither read nor written, since it is held in memory.",
            examples=["64MiB"],
            extra=SIZE | RESTART,
        ),
    ] = 64 * 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="What is written to the daemon's log: this and what is worse."),
    ] = "info"
    hook: Annotated[
        tuple[HookKeys, ...],
        Meta(
            description=(
                "Formatters and checks, a table `[[hook]]` for each, which run in their order on what an "
                "edit writes, before it takes effect (docs/hooks.md)."
            ),
            examples=[[{"name": "ruff", "glob": ["**/*.py"], "command": ["ruff", "format", "-"]}]],
        ),
    ] = ()
    history: Annotated[HistoryKeys, Meta(description="")] = HistoryKeys()
    serena: Annotated[Serena, Meta(description="")] = Serena()
    wcgw: Annotated[Wcgw, Meta(description="")] = Wcgw()
