"""The paths in a call of a tool: relative to the workspace's root, or absolute and below it."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import NotAFile, PathOutside
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Callable


class ToolPaths(Struct, frozen=True):
    """The parser of the paths in a call."""

    root: str = ""  # the workspace's real path
    real_path: Callable[[str], str] = str  # follows the symlinks among an absolute path's folders

    def parse(self, text: str) -> WorkspacePath:
        """Parse the path of a file.

        Removes `.`, `..` and empty segments by the text alone. Raises PathOutside, PathProtected and
        InvalidParams.
        """
        names = self.names_of(text)
        if not names or text.endswith("/"):
            raise NotAFile(f"{text or 'An empty path'} names a folder.", hint="Name a file.")
        return WorkspacePath.parse("/".join(names))

    def names_of(self, text: str) -> list[str]:
        """Return the names in the path from the root; none for the root itself."""
        inside = text
        if text.startswith("/"):
            whole = posixpath.normpath(text)
            if not self._is_below_root(whole):
                whole = self.real_path(whole)  # a symlink above the workspace gives it another name
            if not self._is_below_root(whole):
                raise _outside(text, f"Paths begin with {self.root}/.")
            inside = whole[len(self.root) + 1 :]
        names: list[str] = []
        for name in inside.split("/"):
            if name == "..":
                if not names:
                    raise _outside(text, "Give a path inside the workspace.")
                names.pop()
            elif name not in ("", "."):
                names.append(name)
        return names

    def _is_below_root(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")


def _outside(text: str, hint: str) -> PathOutside:
    return PathOutside(f"{text} is outside the workspace.", hint=hint, data={"path": text})
