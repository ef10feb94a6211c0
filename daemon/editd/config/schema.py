"""All keys of the configuration, with their types, defaults and effects.

A key is a field. `reference` prints its description, and `load` checks its value. `extra` has `form` if the
file's word is not the value (`value_parsers`), and `restart` if a reload is not enough.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from editd.config.value_parsers import FORMS

Extra = dict[str, object]
DURATION, TERM, SIZE, ENCODING, GLOBS, PATHS, HOOK_COMMAND, CHECK_COMMAND, PLACES = (
    Extra(form=name) for name in FORMS
)


RESTART = Extra(restart=True)


class ConfigSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Serena(ConfigSection, frozen=True, kw_only=True):
    """Settings of the dialect `serena`."""

    ignored_paths: Annotated[
        tuple[str, ...],
        Meta(
            description="Patterns as in .gitignore, in addition to the workspace's.",
            examples=[["gen/", "*.min.js"]],
            extra=RESTART,
        ),
    ] = ()


class Gemini(ConfigSection, frozen=True, kw_only=True):
    """Settings of the dialect `gemini`."""

    generation: Annotated[
        Literal["auto", "classic", "smart", "head"],
        Meta(
            description=(
                "Version of `replace`. `auto` selects it for each call: `head` if the call has "
                "`allow_multiple`, `smart` if it has `instruction`, and otherwise `classic`."
            ),
            extra=RESTART,
        ),
    ] = "auto"


class Wcgw(ConfigSection, frozen=True, kw_only=True):
    """Settings of the dialect `wcgw`: the files that its tool may edit and write whole."""

    edit_globs: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="Files that it may edit, as globs of absolute paths; without the key, all.",
            examples=[["/home/me/work/src/**"]],
            extra=RESTART,
        ),
    ] = None
    write_globs: Annotated[
        tuple[str, ...] | None,
        Meta(
            description="Files that it may write whole, as globs of absolute paths; without the key, all.",
            examples=[["/home/me/work/src/**"]],
            extra=RESTART,
        ),
    ] = None


class Keep(ConfigSection, frozen=True, kw_only=True):
    """Limits on the past that is kept. Transactions beyond any of them are compacted, oldest first."""

    age: Annotated[
        float | None,
        Meta(
            description="Age above which transactions are compacted; without the key, no limit.",
            examples=["90d"],
            extra=DURATION,
        ),
    ] = None
    count: Annotated[
        int | None,
        Meta(
            ge=1,
            description="Number of the newest transactions that are kept; without the key, all.",
            examples=[10_000],
        ),
    ] = None
    bytes: Annotated[
        int | None,
        Meta(
            description="Size of the history on disk above which its oldest part is compacted.",
            examples=["2GiB"],
            extra=SIZE,
        ),
    ] = None


class HistoryKeys(ConfigSection, frozen=True, kw_only=True):
    """Settings of the history."""

    quota: Annotated[
        int | None,
        Meta(
            description=(
                "Size of the history on disk, with its index, proposals, unsaved texts and read marks. From "
                "this size, the daemon refuses edits and proposals, rather than drop history. Undo, reading, "
                "and recording outside changes go on. Without the key, no limit."
            ),
            examples=["10GiB"],
            extra=SIZE,
        ),
    ] = None
    record_interval: Annotated[
        float,
        Meta(
            description=(
                "Time between two records of a file that another program changes without pause, such as a "
                "database or a log; 0 is every change. A file that was saved a few times is recorded at "
                "once, and `settle` and edits do not wait."
            ),
            examples=["10s"],
            extra=TERM,
        ),
    ] = 10.0
    exclude: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Globs of files whose contents the history does not keep, in any letter case and Unicode "
                "form. It names each change of such a file, without the content. Both contents of an edit "
                "can be undone for `exclude_keep`. They reach no proposal and no other host "
                "(docs/security.md)."
            ),
            examples=[["**/.env", "secrets/"]],
            extra=GLOBS,
        ),
    ] = (
        "**/.env", "**/.env.*", "**/*.pem", "**/*.p12", "**/*.key", "**/id_rsa", "**/id_ed25519",
        "**/id_ecdsa", "**/.netrc", "**/.npmrc", "**/.pypirc",
    )  # fmt: skip
    exclude_except: Annotated[
        tuple[str, ...],
        Meta(
            description="Globs of files that are kept although `exclude` has them.",
            examples=[["**/tests/**", "certs/public.pem"]],
            extra=GLOBS,
        ),
    ] = (
        "**/.env.example", "**/.env.sample", "**/.env.template", "**/.env.dist", "**/.env.defaults",
        "**/tests/**",
    )  # fmt: skip
    exclude_keep: Annotated[
        float,
        Meta(
            description=(
                "Time to keep both contents of an edit of an excluded file, so that it can be undone. Then "
                "they are deleted."
            ),
            examples=["1h"],
            extra=DURATION,
        ),
    ] = 86_400.0
    keep: Annotated[
        Keep,
        Meta(
            description=(
                "`{ age = …, count = …, bytes = … }`: transactions beyond any of them are compacted, oldest "
                "first, and cannot be undone or read any more. The daemon does so automatically, as "
                "does `editctl gc`. Without the key everything is kept."
            )
        ),
    ] = Keep()


# The reach of a hook or a check. Any of these keys confines it.

Writable: TypeAlias = Annotated[
    tuple[str, ...] | None,
    Meta(
        description=(
            "Paths that it may write to beside its scratch folder and its overlay: absolute, or below `~/`. "
            "With this key, `network` or `unix_sockets`, it can write nowhere else. Without all three, it "
            "may write wherever you can, and `status` has a line in `weaker`."
        ),
        examples=[["~/.cache/ruff"]],
        extra=PLACES,
    ),
]
Network: TypeAlias = Annotated[
    bool | None,
    Meta(
        description=(
            "Whether it has the network. If it is confined, the default is false: it then has its own "
            "loopback, and nothing else."
        ),
        examples=[False],
    ),
]
UnixSockets: TypeAlias = Annotated[
    bool | None,
    Meta(
        description=(
            "Whether it may make Unix sockets, and so reach your other programs, such as docker, an ssh "
            "agent or systemd. If it is confined, the default is false. Pairs of connected sockets are "
            "always free."
        ),
        examples=[True],
    ),
]


class HookKeys(ConfigSection, frozen=True, kw_only=True):
    """A command for the files that an edit writes, run before the edit takes effect: see docs/hooks.md."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$",
            description="Its name in answers, in the history and in `editctl hooks`.",
            examples=["ruff"],
        ),
    ]
    glob: Annotated[
        tuple[str, ...],
        Meta(
            description="Files that it is for, as globs of paths.",
            examples=[["**/*.py"]],
            extra=GLOBS,
        ),
    ]
    command: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The program and its arguments; no shell reads them. `{file}` is the file's path in the "
                "scratch folder, `{files}` the paths of all files. Without either, the content is on "
                "standard input, and `{path}` is the file's path in the workspace. Each is a whole argument, "
                'or the value of a variable: `["env", "NAME={path}", …]`.'
            ),
            examples=[["ruff", "format", "--stdin-filename", "{path}", "-"]],
            extra=HOOK_COMMAND,
        ),
    ]
    kind: Annotated[
        Literal["format", "check"],
        Meta(
            description=(
                "`format`: its output, on standard output or in the file, is the content that the edit "
                "writes. `check`: an exit status other than 0 refuses the edit (`rejected`)."
            )
        ),
    ] = "format"
    seconds: Annotated[
        float, Meta(gt=0, le=600, description="Time for one run; then it and its children are killed.")
    ] = 10.0
    on_error: Annotated[
        Literal["refuse", "skip"],
        Meta(
            description=(
                "Effect on the edit if the hook is missing, runs out of time, is killed, or fails as a "
                "formatter. `skip` goes on without it, with a warning."
            )
        ),
    ] = "refuse"
    with_files: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Files of the workspace that are copied to the scratch folder too, such as the settings of "
                "the tool. Everybody who may edit them can have the tool do all that they allow."
            ),
            examples=[["pyproject.toml"]],
            extra=PATHS,
        ),
    ] = ()
    writable: Writable = None
    network: Network = None
    unix_sockets: UnixSockets = None


class AtMost(ConfigSection, frozen=True, kw_only=True):
    """Limits on what a rule lets land; beyond any of them, the edit waits for a reviewer."""

    lines: Annotated[int | None, Meta(ge=0, description="Lines added and deleted, in one edit.")] = None
    files: Annotated[int | None, Meta(ge=0, description="Files, in one edit.")] = None
    new_files: Annotated[int | None, Meta(ge=0, description="New files, in one edit.")] = None
    deletes: Annotated[int | None, Meta(ge=0, description="Deleted files, in one edit.")] = None
    per_hour: Annotated[int | None, Meta(ge=0, description="Edits, within an hour.")] = None


class ReviewRuleKeys(ConfigSection, frozen=True, kw_only=True):
    """What happens to an edit of certain paths. The first rule that fits a path decides for that path."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[^\x00-\x1f]{1,80}$",
            description="Its name in proposals, in transactions and in refusals.",
            examples=["lock files"],
        ),
    ]
    paths: Annotated[
        tuple[str, ...],
        Meta(
            description="Globs of the paths, as they are on the disk; a move is judged at both ends.",
            examples=[["**/*.lock", "migrations/**"]],
            extra=GLOBS,
        ),
    ]
    action: Annotated[
        Literal["ask", "land", "refuse"],
        Meta(
            description=(
                "`ask` makes the edit a proposal, `land` lets it land, `refuse` refuses it "
                "(`permission_denied`). Of all paths of an edit, the strictest action holds."
            )
        ),
    ] = "ask"
    at_most: Annotated[
        AtMost,
        Meta(
            description=(
                "For `land`: `{ lines = …, files = …, new_files = …, deletes = …, per_hour = … }`. An edit "
                "beyond any of these limits waits."
            ),
            examples=[{"lines": 40, "files": 3}],
        ),
    ] = AtMost()
    sessions: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The sessions that it is for, by name, with `*` and `?`; without the key, all. An agent "
                "chooses its own name, so a rule that lets edits land should not rest on this alone."
            ),
            examples=[["claude-*"]],
        ),
    ] = ()
    check: Annotated[
        str | None,
        Meta(
            description=(
                "For `land`: the name of a `[[review.check]]`. The edit waits as a proposal, and lands "
                "once this check has passed on it. If it fails, a reviewer decides."
            ),
            examples=["pytest"],
        ),
    ] = None


class ReviewCheckKeys(ConfigSection, frozen=True, kw_only=True):
    """A command that the daemon runs on each open proposal, two at a time: see docs/reviewing.md."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[^\x00-\x1f]{1,80}$",
            description="Its name in proposals, and for `check` of a rule.",
            examples=["pytest"],
        ),
    ]
    command: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "The program and its arguments; no shell reads them. It runs in the workspace as the "
                "proposal would leave it, and what it writes there is thrown away. The exit status 0 means "
                "that the check has passed."
            ),
            examples=[["pytest", "-q", "-x"]],
            extra=CHECK_COMMAND,
        ),
    ]
    paths: Annotated[
        tuple[str, ...],
        Meta(
            description="Globs: it runs if the proposal changes a matching file.",
            examples=[["**/*.py"]],
            extra=GLOBS,
        ),
    ] = ("**",)
    seconds: Annotated[
        float, Meta(gt=0, le=3600, description="Time for one run; then it and its children are killed.")
    ] = 300.0
    writable: Writable = None
    network: Network = None
    unix_sockets: UnixSockets = None


class ReviewKeys(ConfigSection, frozen=True, kw_only=True):
    """Settings of proposals: which edits wait for a reviewer, see docs/reviewing.md."""

    default: Annotated[
        Literal["land", "ask"],
        Meta(description="What happens to an edit that no rule is about: it lands, or it waits."),
    ] = "land"
    expire: Annotated[
        float,
        Meta(
            description="Time after which an open proposal expires; 0 is never.",
            examples=["14d"],
            extra=TERM,
        ),
    ] = 14 * 86400.0
    keep: Annotated[
        float,
        Meta(
            description="Time to keep a decided proposal.",
            examples=["30d"],
            extra=DURATION,
        ),
    ] = 30 * 86400.0
    rule: Annotated[
        tuple[ReviewRuleKeys, ...],
        Meta(
            description="Rules by path, a table `[[review.rule]]` for each.",
            examples=[[{"name": "lock files", "paths": ["**/*.lock"], "action": "ask"}]],
        ),
    ] = ()
    check: Annotated[
        tuple[ReviewCheckKeys, ...],
        Meta(
            description="Commands that are run on open proposals, a table `[[review.check]]` for each.",
            examples=[[{"name": "pytest", "command": ["pytest", "-q"], "paths": ["**/*.py"]}]],
        ),
    ] = ()
    socket: Annotated[
        Literal["shared", "own"],
        Meta(
            description=(
                "`own`: decisions and grants are taken on a second socket only, `<id>.review.sock` beside "
                "the first, and an edit that comes in there lands at once. An agent in a sandbox without "
                "this socket cannot decide."
            ),
            extra=RESTART,
        ),
    ] = "shared"
    elicitation: Annotated[
        Literal["ignored", "trusted"],
        Meta(
            description=(
                "`trusted`: an MCP client may ask you with its own form whether an edit lands, and your "
                "answer decides. Then any program that can reach the socket can claim such an answer."
            ),
        ),
    ] = "ignored"


class PermissionKeys(ConfigSection, frozen=True, kw_only=True):
    """Rights of agents' sessions, see docs/security.md."""

    agents: Annotated[
        tuple[Literal["publish", "undo_others", "review"], ...],
        Meta(
            description=(
                "What agents' sessions may do like the owner: `publish` their own work to git, take back the "
                "work of others (`undo_others`), and decide about the proposals of others (`review`). "
                "Beside a reviewers' socket (`review.socket`) they need that socket for it."
            ),
            examples=[["publish"]],
        ),
    ] = ()


class AgentKeys(ConfigSection, frozen=True, kw_only=True):
    """Settings for agents that change files with their own tools and commands."""

    serial: Annotated[
        float | None,
        Meta(
            description=(
                "Time that a command waits for the commands of other sessions to end, so that the "
                "changes of both can be told apart. Without the key, it does not wait."
            ),
            examples=["2s"],
            extra=DURATION,
        ),
    ] = None


class TurnKeys(ConfigSection, frozen=True, kw_only=True):
    """Settings of the turns of agents, each with its prompt: see docs/privacy.md."""

    prompts: Annotated[
        Literal["text", "digest", "off"],
        Meta(
            description=(
                "Part of a prompt that is kept: its `text` without secrets, 8,000 characters at most, or "
                "only a `digest` with the length, or nothing (`off`). It applies to later prompts. "
                "`editctl forget --prompts` removes earlier ones."
            )
        ),
    ] = "text"
    keep: Annotated[
        float,
        Meta(
            description="Time to keep the text of a prompt. Then only its digest and its length stay.",
            examples=["7d"],
            extra=DURATION,
        ),
    ] = 30 * 86_400.0


class RemoteKeys(ConfigSection, frozen=True, kw_only=True):
    """Settings of the exchange with other hosts: see docs/hosts.md."""

    host: Annotated[
        str | None,
        Meta(
            description=(
                "Name of this host in a log that it joins later, of at most 60 characters. Without the key, "
                "the name of the machine."
            ),
            examples=["laptop"],
            max_length=60,
        ),
    ] = None
    poll: Annotated[
        float,
        Meta(
            description=(
                "Seconds between two looks at the server while there are edits, at most. After a minute "
                "without an edit they become longer, up to 20 seconds."
            ),
            ge=0.05,
            le=20,
        ),
    ] = 0.25
    pushes_per_minute: Annotated[
        int,
        Meta(
            description=(
                "Pushes of this host to the server of its log in a minute, because a forge limits them. "
                "Edits wait for the next push and go together. 0 is no limit."
            ),
            ge=0,
            le=6000,
        ),
    ] = 0
    exclude: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Globs of paths that never leave this host, in addition to `history.exclude`. They are in "
                "force for a log that it begins or joins later."
            ),
            examples=[["secrets/"]],
            extra=GLOBS,
        ),
    ] = ()


class Config(ConfigSection, frozen=True, kw_only=True):
    """The top of the file; every key may be left out."""

    publish: Annotated[
        Literal["exchange", "rename"],
        Meta(
            description=(
                "Way of replacing a file. `rename` makes fewer events for programs that watch raw inotify, "
                "and may lose content that another program writes in the same moment (docs/commit.md, C4)."
            ),
            extra=RESTART,
        ),
    ] = "exchange"
    durability: Annotated[
        Literal["full", "relaxed"],
        Meta(
            description=(
                "`relaxed` answers an edit before its sync, which follows within a second. A crash of the "
                "daemon then costs nothing. A power cut costs the edits of that second, each of them whole. "
                "`status` has a line in `weaker`."
            )
        ),
    ] = "full"
    protect: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Globs of paths that no client may change (`path_protected`), whatever its session allows. "
                "Changes by other programs are recorded as always. "
                "A rollback or undo of a session's change to such a path is allowed."
            ),
            examples=[[".github/workflows/**", "**/*.pem"]],
            extra=GLOBS,
        ),
    ] = ()
    in_place: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Globs of files that are written in place: a file that is itself a mount, that is mounted "
                "alone into a container, or that has several names (hard links). A reader may see half of an "
                "edit, a power cut may leave one, and a write of another program in the same moment may be "
                "lost. `status` has a line in `weaker`."
            ),
            examples=[["deploy/nginx.conf"]],
            extra=GLOBS | RESTART,
        ),
    ] = ()
    encoding: Annotated[
        str | None,
        Meta(
            description='Encoding of text that is not UTF-8, such as "latin-1"; without the key, `not_text`.',
            examples=["latin-1"],
            extra=ENCODING | RESTART,
        ),
    ] = None
    idle_seconds: Annotated[
        float,
        Meta(ge=0, description="Seconds without a client after which the daemon ends; 0 is never."),
    ] = 0
    regex_seconds: Annotated[
        float, Meta(gt=0, le=60, description="Time for one regular expression of a dialect's tool.")
    ] = 2.0
    file_bytes_max: Annotated[
        int,
        Meta(
            ge=1,
            description="Size above which a file is neither read nor written, because it is held in memory.",
            examples=["64MiB"],
            extra=SIZE | RESTART,
        ),
    ] = 64 * 1024 * 1024
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="The lowest level that is written to the daemon's log."),
    ] = "info"
    hook: Annotated[
        tuple[HookKeys, ...],
        Meta(
            description=(
                "Formatters and checks, a table `[[hook]]` for each. They run in their order on the content "
                "that an edit writes, before it takes effect (docs/hooks.md)."
            ),
            examples=[[{"name": "ruff", "glob": ["**/*.py"], "command": ["ruff", "format", "-"]}]],
        ),
    ] = ()
    agents: Annotated[AgentKeys, Meta(description="")] = AgentKeys()
    history: Annotated[HistoryKeys, Meta(description="")] = HistoryKeys()
    permissions: Annotated[PermissionKeys, Meta(description="")] = PermissionKeys()
    remote: Annotated[RemoteKeys, Meta(description="")] = RemoteKeys()
    review: Annotated[ReviewKeys, Meta(description="")] = ReviewKeys()
    turns: Annotated[TurnKeys, Meta(description="")] = TurnKeys()
    serena: Annotated[Serena, Meta(description="")] = Serena()
    gemini: Annotated[Gemini, Meta(description="")] = Gemini()
    wcgw: Annotated[Wcgw, Meta(description="")] = Wcgw()
