"""The names of new files: refused if they are of another world, such as `~/x`, `C:\\x` or `file:///x`.

A tool that takes such a name for a relative path makes a folder `~` or a file `src\\x.py`, and its caller
looks elsewhere. If the first part of the path exists, the name is meant as it is.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from editd.errors import FileExists, InvalidParams
from editd.values.name_key import is_same_form
from editd.values.path import WorkspacePath, is_url

if TYPE_CHECKING:
    from collections.abc import Callable

    Names = Callable[[WorkspacePath | None], list[str] | None]

_HOME = re.compile(
    r"~|\$HOME|\$env:HOME|\$env:USERPROFILE|\$\{HOME\}|%USERPROFILE%|%HOMEPATH%", re.IGNORECASE
)
_OTHERS = (
    (
        re.compile(r"~[A-Za-z_][\w.-]*|\$env:\w+|\$[A-Za-z_]\w*|\$\{\w+\}|%\w+%"),
        "is a name that only a shell replaces",
    ),
    (re.compile(r"[A-Za-z]:"), "is a drive of Windows"),
    (re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:"), "begins a URL"),
)
_PREFIX = re.compile(r"([A-Za-z](?=:.*/)|file|https?|untitled|memfs|vscode[a-z-]*):(?=[^/:])", re.IGNORECASE)
"""A drive or a scheme that no `/` follows, as in `c:src/x` and `untitled:x`. A file may be called `a:b`."""


def refuse_foreign(path: WorkspacePath, names: Names, root: str, home: str) -> None:
    """Raise InvalidParams if the path of a new file is of another world. The hint names the right path.

    `names` lists a folder as it was before the edit, `root` is the workspace, `home` the user's folder.
    """
    text = path.text
    if text.isascii() and not _SUSPICIOUS.search(text):
        return
    first = text.split("/")[0]
    divided = _PREFIX.sub(r"\1:/", text, count=1) if _PREFIX.match(text) else text
    reason = _reason(divided, divided.split("/")[0])
    listed = names(None) if reason else None
    if reason is None or {first, f"{first}/"} & set(listed or ()):
        return
    meant = _guess(divided, names, root, home)
    is_outside = meant.startswith("/")
    hint = (
        f"{meant} is outside of this workspace. "
        if is_outside
        else f"Did you mean {meant}? "
        if meant
        else ""
    )
    way = "make it with another program" if first == text else "make its folder first"
    raise InvalidParams(
        f"{text} would be made, and {reason}.",
        hint=f"{hint}To make a file of this very name, {way}.",
        data={"path": text} | ({"similar": [meant]} if meant and not is_outside else {}),
    )


def with_path_of_url(refusal: InvalidParams, names: Names, root: str, home: str) -> InvalidParams:
    """Return the refusal of a URL with the path that was probably meant. Other refusals stay as they are."""
    text = refusal.data.get("path")
    if not isinstance(text, str) or not is_url(text) or not text.partition("://")[2].strip("/"):
        return refusal
    meant = _guess(unquote(text), names, root, home)
    hint = f"Did you mean {meant}? Paths are relative to the workspace's root."
    return refusal.revise(hint=hint, data={"similar": [meant]})


_SUSPICIOUS = re.compile(r"[\\~$%:]")


def _reason(text: str, first: str) -> str | None:
    if "\\" in text:
        return "a `\\` divides no names here"
    if first == text:  # a name alone, such as `~`, `~backup` or `a:`
        return None
    if _HOME.fullmatch(first):
        return f"`{first}` is not replaced by your home folder"
    return next((f"`{first}` {reason}" for form, reason in _OTHERS if form.fullmatch(first)), None)


def _guess(text: str, names: Names, root: str, home: str) -> str:
    """Return the relative path that was probably meant, or an absolute one outside of the workspace."""
    plain = text.replace("\\", "/")
    first, _, rest = plain.partition("/")
    whole = f"{home}/{rest}" if _HOME.fullmatch(first) and home else f"/{rest}"
    inside = posixpath.normpath(whole)
    if root and inside.startswith(f"{root}/"):
        return inside[len(root) + 1 :]
    if _HOME.fullmatch(first) and home:
        return inside
    parts = [part for part in plain.split("/") if part not in ("", ".", "..")]
    if not any(form.fullmatch(first) for form, _ in _OTHERS):
        return "/".join(parts)
    folders = {name for name in names(None) or () if name.endswith("/")}
    start = next((index for index, part in enumerate(parts) if f"{part}/" in folders), len(parts) - 1)
    return "/".join(parts[start:])


def refuse_twin(path: WorkspacePath, names: Names, gone: Callable[[str], bool]) -> None:
    """Raise FileExists if a file beside the new one has its name in another Unicode form.

    `gone` returns whether the edit removes the file of a name in that folder.
    """
    name = path.name
    if name.isascii():
        return
    for other in names(_folder(path)) or ():
        twin = other.removesuffix("/")
        if twin != name and is_same_form(twin, name) and not gone(twin):
            raise FileExists(
                f"{path} exists already, as a name in another Unicode form: {twin!a}, not {name!a}.",
                hint="Edit the file that exists, or choose another name.",
                data={"path": path.text, "similar": [path.sibling(twin).text]},
            )


def _folder(path: WorkspacePath) -> WorkspacePath | None:
    return WorkspacePath(path.folder) if path.folder else None
