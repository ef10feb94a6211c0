"""A throw-away copy of a folder, and places in it for an example edit.

Copies only ordinary, visible files up to a limit, and never writes to the folder itself.
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES_MAX = 300
BYTES_MAX = 20_000_000
FILE_BYTES_MAX = 1_000_000
FOLDERS_MAX = 2_000  # read at most, so that a huge tree costs little time
SKIPPED = {
    "node_modules",
    "__pycache__",
    "target",
    "venv",
    "dist",
    "build",
}  # and names with a dot at the beginning

SHOWN_BYTES_MAX = 100_000  # of a file that the tour edits
LINE_LENGTHS = range(8, 56)  # of a line that fits on a terminal with the command around it
LINES_APART = 6  # more than the context of a hunk, so that two edits never touch


class CopiedFolder(Struct, frozen=True):
    files: int
    bytes: int
    is_whole: bool


class ExamplePlace(Struct, frozen=True):
    """A text file with two lines to change, far from each other, each unique in the file."""

    path: str
    text: str
    top: str
    bottom: str


def copy_folder(source: str, target: str) -> CopiedFolder:
    """Copy the ordinary, visible files of `source` into `target`, until the limits are reached."""
    files = size = 0
    for name in _ordinary_files(source):
        length = os.path.getsize(os.path.join(source, name))
        if files == FILES_MAX or size + length > BYTES_MAX:
            return CopiedFolder(files, size, is_whole=False)
        place = os.path.join(target, name)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        shutil.copy(os.path.join(source, name), place)
        files, size = files + 1, size + length
    return CopiedFolder(files, size, is_whole=True)


def find_places(folder: str) -> list[ExamplePlace]:
    """Return the files for an example edit, those nearest to the top first."""
    names = sorted(_ordinary_files(folder), key=lambda name: (name.count("/"), name))
    places = (_place(folder, name) for name in names if name.isascii() and name.isprintable())
    return [place for place in places if place is not None]


def make_example(folder: str) -> None:
    """Write two small files for example edits."""
    for name, text in EXAMPLE.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)


def _ordinary_files(folder: str) -> Iterator[str]:
    """Yield paths, relative to `folder`, of readable files that are not hidden, generated or large."""
    for at, folders, names in itertools.islice(os.walk(folder), FOLDERS_MAX):
        folders[:] = sorted(name for name in folders if name not in SKIPPED and not name.startswith("."))
        for name in sorted(names):
            path = os.path.join(at, name)
            if not name.startswith(".") and _is_ordinary(path):
                yield os.path.relpath(path, folder)


def _is_ordinary(path: str) -> bool:
    try:
        facts = os.lstat(path)
    except OSError:  # deleted since it was listed
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_size <= FILE_BYTES_MAX and os.access(path, os.R_OK)


def _place(folder: str, path: str) -> ExamplePlace | None:
    """Return the file as a place, if it is text with line feeds and has two lines that fit."""
    with open(os.path.join(folder, path), "rb") as file:
        content = file.read(SHOWN_BYTES_MAX + 1)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    lines = text.split("\n")
    if len(content) > SHOWN_BYTES_MAX or "\r" in text or "\0" in text or lines[-1]:
        return None
    serve = [
        number
        for number, line in enumerate(lines)
        if len(line) in LINE_LENGTHS and line.isprintable() and line[0] not in " -" and text.count(line) == 1
    ]
    if not serve or serve[-1] - serve[0] < LINES_APART or len(lines) - serve[0] < 2 * LINES_APART:
        return None
    return ExamplePlace(path, text, lines[serve[0]], lines[serve[-1]])


EXAMPLE = {
    "recipe.md": """\
# Pancakes, for four people

- 250 g flour
- 500 ml milk
- 3 eggs
- a pinch of salt
- butter for the pan

Whisk the eggs into the flour, then add the milk bit by bit.
Let it rest for half an hour.
Bake one ladle at a time, in a very hot pan.
Serve them with sugar and lemon.
""",
    "shopping.py": '''\
"""What to buy for so many people."""

FOR_FOUR = {"flour": 250, "milk": 500, "eggs": 3}
PEOPLE = 4


def amounts(people: int) -> dict[str, float]:
    return {what: much * people / PEOPLE for what, much in FOR_FOUR.items()}


if __name__ == "__main__":
    for what, much in amounts(6).items():
        print(f"{what}: {much:g}")
    print("and butter for the pan")
''',
}
