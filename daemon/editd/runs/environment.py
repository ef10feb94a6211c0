"""The environment of a hook or a check: few variables of the daemon's, and a PATH without the workspace."""

from __future__ import annotations

import os

PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ")  # of the daemon's environment, and LC_*


def tool_environment(root: str, scratch: str) -> dict[str, str]:
    """Return the environment of a command; its PATH leaves out the folders of the workspace at `root`."""
    environment = os.environ
    kept = {name: value for name, value in environment.items() if name in PASSED_ON or name.startswith("LC_")}
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if _is_elsewhere(folder, root))
    return {**kept, "PATH": path, "TMPDIR": os.path.join(scratch, "tmp"), "NO_COLOR": "1"}


def _is_elsewhere(folder: str, root: str) -> bool:
    real = os.path.realpath(folder)
    return os.path.isabs(folder) and real != root and not real.startswith(root + "/")
