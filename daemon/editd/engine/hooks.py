"""Hooks: the user's own commands, which format or check the planned content before an edit takes effect.

If hooks match the files of a plan, the plan becomes a `HookJob`, and planning stops with `HooksNotRun`. The
caller runs the job in a process (`runs.hook_worker`) and plans again with the result. A result is valid
for exactly the same planned files: if another edit changed the plan meanwhile, the hooks run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from editd.errors import Refused
from editd.runs.reach import CommandReach
from editd.values.content import Change
from editd.values.glob import Glob
from editd.values.path import WorkspacePath
from editd.values.transaction import FileReport, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.config.schema import Config
    from editd.values.content import FileState


class Hook(Struct, frozen=True):
    """A configured command. Its scratch folder also gets the files of `with_files`."""

    name: str
    globs: tuple[Glob, ...]
    command: tuple[str, ...]
    kind: Literal["format", "check"] = "format"
    seconds: float = 10.0
    on_error: Literal["refuse", "skip"] = "refuse"
    with_files: tuple[WorkspacePath, ...] = ()
    reach: CommandReach | None = None  # None for an old entry, which may write and connect as the user can

    def is_for(self, file: PlannedFile) -> bool:
        """Return whether the hook runs on a file. A formatter skips a file that is only moved."""
        is_wanted = self.kind == "check" or not file.is_moved
        return is_wanted and any(glob.matches(file.path) for glob in self.globs)


def hooks_of(config: Config) -> tuple[Hook, ...]:
    """Return the hooks of the configuration."""
    return tuple(
        Hook(
            keys.name, tuple(map(Glob.parse, keys.glob)), keys.command, keys.kind, keys.seconds,
            keys.on_error, tuple(map(WorkspacePath.parse, keys.with_files)),
            CommandReach.of(keys.writable, keys.network, keys.unix_sockets),
        )
        for keys in config.hook
    )  # fmt: skip


class PlannedFile(Struct, frozen=True):
    """A file with its planned content."""

    path: WorkspacePath
    content: bytes
    is_executable: bool = False
    is_moved: bool = False  # the same content had another path before


class HookJob(Struct, frozen=True):
    """Planned files with their hooks. Equal jobs have equal results."""

    hooks: tuple[Hook, ...]
    files: tuple[PlannedFile, ...]
    beside: tuple[PlannedFile, ...] = ()


class HookResult(Struct, frozen=True):
    """The result of a job: the new content of each changed file, and the hooks that changed it."""

    contents: Mapping[WorkspacePath, bytes] = field(default_factory=dict)
    by: Mapping[WorkspacePath, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # about failed hooks that were skipped

    def changes(self, before: Mapping[WorkspacePath, FileState]) -> list[Change[FileState]]:
        """Return the changes of the files, which were as `before`."""
        return [
            Change(path, before[path], before[path].with_content(content))
            for path, content in self.contents.items()
        ]


Hooked = tuple[HookJob, HookResult | Refused]


class HooksNotRun(Exception):
    """Planning needs the result of these hooks. Never sent to a client."""

    def __init__(self, job: HookJob) -> None:
        super().__init__(", ".join(hook.name for hook in job.hooks))
        self.job = job


def apply_hooks(
    outcome: Outcome,
    hooks: Sequence[Hook],
    earlier: Hooked | None,
    look: Callable[[WorkspacePath], FileState | None],
) -> Outcome:
    """Return the outcome with the changes of the hooks. `look` reads a file that no change is planned for.

    `earlier` is the last job with its result. Raises HooksNotRun if it is a different job, and the refusal of
    the hooks if its result is one.
    """
    job = job_for(planned_files(outcome.changes), hooks, _after(outcome, look))
    if job is None:
        return outcome
    if earlier is None or earlier[0] != job:
        raise HooksNotRun(job)
    result = earlier[1]
    if isinstance(result, Refused):
        raise result
    return _apply(outcome, job, result)


def planned_files(changes: Iterable[Change[FileState]]) -> tuple[PlannedFile, ...]:
    """Return the files that changes write or move. Links, deletions and mode changes have no hooks."""
    before = {change.path: change.before for change in changes}
    planned: list[PlannedFile] = []
    for change in changes:
        after = change.after
        if after is None or after.is_symlink or change.kind == "mode":
            continue
        source = None if change.source is None else before.get(change.source)
        is_moved = source is not None and source.version == after.version
        planned.append(PlannedFile(change.path, after.content, after.is_executable, is_moved))
    return tuple(planned)


def job_for(
    files: Sequence[PlannedFile], hooks: Sequence[Hook], look: Callable[[WorkspacePath], FileState | None]
) -> HookJob | None:
    """Return the job of these files and their matching hooks, or None if no hook matches."""
    wanted = tuple(hook for hook in hooks if any(hook.is_for(file) for file in files))
    if not wanted:
        return None
    concerned = tuple(file for file in files if any(hook.is_for(file) for hook in wanted))
    beside: list[PlannedFile] = []
    for path in dict.fromkeys(path for hook in wanted for path in hook.with_files):
        state = look(path)
        if state is not None and not state.is_symlink:
            beside.append(PlannedFile(path, state.content, state.is_executable))
    return HookJob(wanted, concerned, tuple(beside))


def _after(
    outcome: Outcome, look: Callable[[WorkspacePath], FileState | None]
) -> Callable[[WorkspacePath], FileState | None]:
    planned = {change.path: change.after for change in outcome.changes}
    return lambda path: planned[path] if path in planned else look(path)


def _apply(outcome: Outcome, job: HookJob, result: HookResult) -> Outcome:
    changes: list[Change[FileState]] = []
    unchanged = list(outcome.unchanged)
    reports = dict(outcome.reports)
    for change in outcome.changes:
        content = result.contents.get(change.path)
        if content is None or change.after is None:
            changes.append(change)
            continue
        made = replace(change, after=change.after.with_content(content))
        warning = f"formatted by {', '.join(result.by[change.path])}"
        if made.before == made.after:
            warning += ", and the file is unchanged as a result"
            unchanged.append(replace(made, source=None))
        else:
            changes.append(made)
        report = reports.get(change.path, FileReport())
        reports[change.path] = replace(report, warnings=(*report.warnings, warning))
    answers = outcome.answers
    if result.contents:
        answers = tuple(
            None if answer is None else f"{answer}\n\n{_format_note(result)}" for answer in answers
        )
    names = {name for by in result.by.values() for name in by}
    return replace(
        outcome, changes=tuple(changes), unchanged=tuple(sorted(unchanged, key=_path_of)), reports=reports,
        answers=answers, warnings=result.warnings,
        formatted_by=tuple(hook.name for hook in job.hooks if hook.name in names),
    )  # fmt: skip


def _path_of(change: Change[FileState]) -> WorkspacePath:
    return change.path


def _format_note(result: HookResult) -> str:
    """Return a note about formatted files, to append to a tool's own answer."""
    files = [f"{path} was then formatted by {', '.join(by)}." for path, by in result.by.items()]
    return " ".join([*files, "Read a file again before the next edit: its text may differ from yours."])
