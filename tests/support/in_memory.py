"""A snapshot and what is known of it, in memory: what `edits.plan` is given in its tests."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from editd.errors import NotAFile, PathOutside, Refused
from editd.values.content import SYMLINK, FileState, Version, version_of
from editd.values.path import WorkspacePath
from editd.values.transaction import Base, ReadMark


def path_of(text: str) -> WorkspacePath:
    return WorkspacePath.parse(text)


def link_to(target: str) -> FileState:
    return FileState(os.fsencode(target), SYMLINK)


@dataclass
class InMemory:
    """Files by path, folders where files lie in them, symlinks as the kernel follows them."""

    files: dict[str, FileState]

    def at(self, path: WorkspacePath) -> FileState | None:
        if any(held.startswith(path.text + "/") for held in self.files):
            raise NotAFile(f"{path} is a folder.", hint="Name a file.")
        return self.files.get(path.text)

    def names(self, folder: WorkspacePath | None) -> list[str] | None:
        above = "" if folder is None else folder.text + "/"
        inside = [held.removeprefix(above) for held in self.files if held.startswith(above)]
        if not inside and folder is not None:
            return None
        return sorted({name + slash for name, slash, _ in (held.partition("/") for held in inside)})

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        return path_of("/".join(self._walk(path.text.split("/"), 0)))

    def resolve_folder(self, path: WorkspacePath) -> WorkspacePath:
        return path_of("/".join([*self._walk(path.text.split("/")[:-1], 0), path.text.rpartition("/")[2]]))

    def link(self, path: WorkspacePath) -> str | None:
        state = self.files.get(path.text)
        return os.fsdecode(state.content) if state is not None and state.is_symlink else None

    def _walk(self, names: list[str], links: int) -> list[str]:
        done: list[str] = []
        for index, name in enumerate(names):
            if name == "..":
                if not done:
                    raise PathOutside("outside", hint="Stay inside.")
                done.pop()
                continue
            state = self.files.get("/".join([*done, name]))
            if state is None or not state.is_symlink:
                done.append(name)
                continue
            target = os.fsdecode(state.content)
            if links > 40 or target.startswith("/"):
                raise PathOutside("outside", hint="Stay inside.")
            return self._walk([*done, *target.split("/"), *names[index + 1 :]], links + 1)
        return done


@dataclass
class Told:
    """What the history and the session know, told outright."""

    contents: list[bytes] = field(default_factory=list)
    read: dict[str, bytes | None] = field(default_factory=dict)
    sights: dict[tuple[str, str], ReadMark] = field(default_factory=dict)

    def content(self, version: Version) -> bytes | None:
        return {version_of(content): content for content in self.contents}.get(version)

    def base_of(self, path: WorkspacePath) -> Base | None:
        if path.text not in self.read:
            return None
        return base_of(self.read[path.text])

    def sight(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        return self.sights.get((reader, path.text))

    def unsaved_refusal(self, path: WorkspacePath, version: Version) -> Refused | None:
        del path, version  # nobody holds anything
        return None

    def is_held_by_sender(self, path: WorkspacePath) -> bool:
        del path
        return False

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        del path
        return None


def base_of(content: bytes | None) -> Base:
    return Base(None if content is None else version_of(content))
