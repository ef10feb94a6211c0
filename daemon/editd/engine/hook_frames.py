"""The frames between the daemon and the process that runs the hooks of a job (`runs.hook_worker`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from editd.engine.hooks import HookResult
from editd.errors import Refused, Rejected, Timeout
from editd.runs.reach import reach_frame

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.engine.hooks import HookJob
    from editd.system.frames import Frame
    from editd.values.path import WorkspacePath

_KINDS: dict[str, type[Refused]] = {kind.code: kind for kind in (Rejected, Timeout)}


def requests_of(job: HookJob, folder: str, environment: Mapping[str, str], bytes_max: int) -> list[Frame]:
    """Return the frames of a request: the hooks with the numbers of their files, then the files."""
    hooks = [
        {
            "name": hook.name,
            "command": list(hook.command),
            "kind": hook.kind,
            "seconds": hook.seconds,
            "on_error": hook.on_error,
            "reach": reach_frame(hook.reach),
            "files": [number for number, file in enumerate(job.files) if hook.is_for(file)],
        }
        for hook in job.hooks
    ]
    begin: dict[str, Any] = {
        "folder": folder, "environment": dict(environment), "bytes_max": bytes_max, "hooks": hooks,
        "files": len(job.files), "beside": len(job.beside),
    }  # fmt: skip
    files = [
        {"path": file.path.text, "content": file.content, "executable": file.is_executable}
        for file in (*job.files, *job.beside)
    ]
    return [begin, *files]


class HookAnswers(Struct):
    """Collects the frames of an answer. `result` is set by the last one."""

    job: HookJob
    contents: dict[WorkspacePath, bytes] = field(default_factory=dict)
    by: dict[WorkspacePath, tuple[str, ...]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)  # the problem, by the hook's name
    unheld: dict[str, list[str]] = field(default_factory=dict)  # what could not be kept from a hook
    result: HookResult | Refused | None = None

    def add_frame(self, frame: Frame) -> None:
        """Add the next frame of the answer."""
        if "warning" in frame:
            self.warnings.append(frame["warning"])
        if "hook" in frame:
            self.failures[frame["hook"]] = frame["problem"]
        if "unheld" in frame:
            self.unheld[frame["of"]] = frame["unheld"]
        if "refused" in frame:
            kind = _KINDS[frame["refused"]]
            self.result = kind(frame["message"], hint=frame["hint"], data=frame["data"])
        if "file" in frame:
            path = self.job.files[frame["file"]].path
            self.contents[path] = frame["content"]
            self.by[path] = tuple(frame["by"])
        if "done" in frame:
            self.result = HookResult(self.contents, self.by, tuple(self.warnings))
