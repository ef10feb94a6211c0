"""The nine edits from parsed values and bytes, for the tests of what is planned for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, UnsetType

from editd.values.content import EXECUTABLE
from editd.wire import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.values.content import GitMode
    from editd.values.path import WorkspacePath
    from editd.values.transaction import Base


def write(
    path: WorkspacePath,
    content: bytes,
    *,
    base: Base | None = None,
    mode: GitMode | None = None,
    force: bool = False,
) -> messages.Write:
    mode_text: Literal["100644", "100755"] = "100755" if mode == EXECUTABLE else "100644"
    return messages.Write(
        path=path.text,
        content=content.decode("utf-8", "surrogateescape"),
        base=_version(base),
        mode=UNSET if mode is None else mode_text,
        force=force,
    )


def replace(
    path: WorkspacePath,
    old: str,
    new: str,
    count: int = 1,
    base: Base | None = None,
    *,
    guard: Literal["version", "text"] = "version",
) -> messages.Replace:
    return messages.Replace(path=path.text, old=old, new=new, count=count, base=_version(base), guard=guard)


def edit_text(path: WorkspacePath, edits: Sequence[messages.TextEdit], base: Base) -> messages.EditText:
    return messages.EditText(path=path.text, base=base.version, edits=list(edits))


def text_edit(start: tuple[int, int], end: tuple[int, int], text: str) -> messages.TextEdit:
    return messages.TextEdit(start=position(*start), end=position(*end), text=text)


def position(line: int, character: int) -> messages.Position:
    return messages.Position(line=line, character=character)


def patch(patch: str, *, fuzz: int = 0) -> messages.Patch:
    return messages.Patch(patch=patch, fuzz=fuzz)


def delete(path: WorkspacePath, *, base: Base | None = None) -> messages.Delete:
    return messages.Delete(path=path.text, base=_version(base))


def move(
    path: WorkspacePath, to: WorkspacePath, base: Base | None = None, *, overwrite: bool = False
) -> messages.Move:
    return messages.Move(path=path.text, to=to.text, base=_version(base), overwrite=overwrite)


def chmod(path: WorkspacePath, *, executable: bool) -> messages.Chmod:
    return messages.Chmod(path=path.text, executable=executable)


def symlink(path: WorkspacePath, target: str, base: Base | None = None) -> messages.Symlink:
    return messages.Symlink(path=path.text, target=target, base=_version(base))


def _version(base: Base | None) -> str | UnsetType | None:
    return UNSET if base is None else base.version
