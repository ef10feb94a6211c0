"""Hooks: the user's own commands, which see what an edit would write before anything of it takes effect.

A planned changeset whose files hooks are for becomes a `HookJob`. Planning ends there with `HooksNotRun`; who
called it has the commands run by a process (`engine.hook_worker`), and plans again with what came of it.
That holds for exactly these bytes: where somebody else has edited meanwhile, the plan is another one,
whatever is stale is refused as always, and the hooks run anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from editd.errors import Refused, Rejected, Timeout
from editd.values.changeset import Change, FileReport, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from editd.system.frames import Frame
    from editd.values.content import FileState
    from editd.values.glob import Glob
    from editd.values.path import WorkspacePath


class Hook(Struct, frozen=True):
    """One command of the configuration; `with_files` are laid out beside the planned files."""

    name: str
    globs: tuple[Glob, ...]
    command: tuple[str, ...]
    kind: Literal["format", "check"] = "format"
    seconds: float = 10.0
    on_error: Literal["refuse", "skip"] = "refuse"
    with_files: tuple[WorkspacePath, ...] = ()

    def is_for(self, file: PlannedFile) -> bool:
        """A formatter leaves alone what is only moved."""
        is_wanted = self.kind == "check" or not file.is_moved
        return is_wanted and any(glob.matches(file.path) for glob in self.globs)


class PlannedFile(Struct, frozen=True):
    """A file as it is to be."""

    path: WorkspacePath
    content: bytes
    is_executable: bool = False
    is_moved: bool = False  # its content was elsewhere before, and is the same


class HookJob(Struct, frozen=True):
    """What hooks are to look at: the same trial has the same answer."""

    hooks: tuple[Hook, ...]
    files: tuple[PlannedFile, ...]
    beside: tuple[PlannedFile, ...] = ()


class HookResult(Struct, frozen=True):
    """What the hooks have made of a trial: of each file that they changed its content, and who did."""

    contents: Mapping[WorkspacePath, bytes] = field(default_factory=dict)
    by: Mapping[WorkspacePath, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # of hooks that were left out


Hooked = tuple[HookJob, HookResult | Refused]


class HooksNotRun(Exception):
    """Planning cannot go on before these hooks have run. No refusal: nobody is told."""

    def __init__(self, trial: HookJob) -> None:
        super().__init__(", ".join(hook.name for hook in trial.hooks))
        self.trial = trial


def hooked(
    worked_out: Plan,
    hooks: Sequence[Hook],
    found: Hooked | None,
    look: Callable[[WorkspacePath], FileState | None],
) -> Plan:
    """The plan as the hooks leave it. Raises Unhooked where they have not seen it yet, and what they refuse.

    `look` tells what a path holds that the plan does not change.
    """
    trial = trial_of(planned_of(worked_out.changes), hooks, _after(worked_out, look))
    if trial is None:
        return worked_out
    if found is None or found[0] != trial:
        raise HooksNotRun(trial)
    result = found[1]
    if isinstance(result, Refused):
        raise result
    return _formatted(worked_out, trial, result)


def planned_of(changes: Iterable[Change]) -> tuple[PlannedFile, ...]:
    """The files that changes write or move; links, deletions and modes are nobody's to format."""
    before = {change.path: change.before for change in changes}
    found: list[PlannedFile] = []
    for change in changes:
        after = change.after
        if after is None or after.is_symlink or change.kind == "mode":
            continue
        source = None if change.source is None else before.get(change.source)
        is_moved = source is not None and source.version == after.version
        found.append(PlannedFile(change.path, after.content, after.is_executable, is_moved))
    return tuple(found)


def trial_of(
    files: Sequence[PlannedFile], hooks: Sequence[Hook], look: Callable[[WorkspacePath], FileState | None]
) -> HookJob | None:
    """These files with the hooks that are for any of them; None where there is no such hook."""
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
    worked_out: Plan, look: Callable[[WorkspacePath], FileState | None]
) -> Callable[[WorkspacePath], FileState | None]:
    planned = {change.path: change.after for change in worked_out.changes}
    return lambda path: planned[path] if path in planned else look(path)


def _formatted(worked_out: Plan, trial: HookJob, result: HookResult) -> Plan:
    changes: list[Change] = []
    reports = dict(worked_out.reports)
    for change in worked_out.changes:
        content = result.contents.get(change.path)
        if content is None or change.after is None:
            changes.append(change)
            continue
        made = replace(change, after=change.after.with_content(content))
        said = f"formatted by {', '.join(result.by[change.path])}"
        if made.before == made.after:
            said += ", which leaves nothing of the change"
        else:
            changes.append(made)
        report = reports.get(change.path, FileReport())
        reports[change.path] = replace(report, warnings=(*report.warnings, said))
    answers = worked_out.answers
    if result.contents:
        answers = tuple(None if answer is None else f"{answer}\n\n{_told(result)}" for answer in answers)
    names = {name for by in result.by.values() for name in by}
    return replace(
        worked_out, changes=tuple(changes), reports=reports, answers=answers, warnings=result.warnings,
        formatted_by=tuple(hook.name for hook in trial.hooks if hook.name in names),
    )  # fmt: skip


def _told(result: HookResult) -> str:
    """What a tool's own answer does not know."""
    files = [f"{path} was then formatted by {', '.join(by)}." for path, by in result.by.items()]
    return " ".join([*files, "Read what you edit next again: it may not stand there as you wrote it."])


# ── What the process is asked, and what it answers ────────────────────────────────────────────────

_KINDS: dict[str, type[Refused]] = {kind.code: kind for kind in (Rejected, Timeout)}


def requests_of(trial: HookJob, folder: str, environment: Mapping[str, str], bytes_max: int) -> list[Frame]:
    """The frames that ask the process: the hooks, each with the numbers of its files, and the files."""
    hooks = [
        {
            "name": hook.name,
            "command": list(hook.command),
            "kind": hook.kind,
            "seconds": hook.seconds,
            "on_error": hook.on_error,
            "files": [number for number, file in enumerate(trial.files) if hook.is_for(file)],
        }
        for hook in trial.hooks
    ]
    begin: dict[str, Any] = {
        "folder": folder, "environment": dict(environment), "bytes_max": bytes_max, "hooks": hooks,
        "files": len(trial.files), "beside": len(trial.beside),
    }  # fmt: skip
    files = [
        {"path": file.path.text, "content": file.content, "executable": file.is_executable}
        for file in (*trial.files, *trial.beside)
    ]
    return [begin, *files]


class HookAnswers(Struct):
    """Puts the frames of the process's answer together; `result` is there once all have come."""

    trial: HookJob
    contents: dict[WorkspacePath, bytes] = field(default_factory=dict)
    by: dict[WorkspacePath, tuple[str, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # by the hook's name: what went wrong
    result: HookResult | Refused | None = None

    def hear(self, frame: Frame) -> None:
        if "warning" in frame:
            self.warnings.append(frame["warning"])
        if "hook" in frame:
            self.failures[frame["hook"]] = frame["problem"]
        if "refused" in frame:
            kind = _KINDS[frame["refused"]]
            self.result = kind(frame["message"], hint=frame["hint"], data=frame["data"])
        if "file" in frame:
            path = self.trial.files[frame["file"]].path
            self.contents[path] = frame["content"]
            self.by[path] = tuple(frame["by"])
        if "done" in frame:
            self.result = HookResult(self.contents, self.by, tuple(self.warnings))
