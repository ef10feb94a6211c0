"""`editctl tour`: a demonstration of editd on a throw-away copy, with the real daemon.

Runs every command as it is printed, and verifies every claim. If a claim fails, the tour ends with
exit code 4. Removes the copy, its history and its daemon at the end, also after a failure.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import stat
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from editd_client.cli import output
from editd_client.cli.tour_hosts import HOSTS, HostsTour
from editd_client.cli.tour_workspace import TourFailed, TourWorkspace
from editd_client.locate import current_folder

if TYPE_CHECKING:
    from collections.abc import Iterator


# A throw-away copy of a folder, and places in it for an example edit.
#
# Copies only ordinary, visible files up to a limit, and never writes to the folder itself.

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
        copy = os.path.join(target, name)
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        shutil.copy(os.path.join(source, name), copy)
        files, size = files + 1, size + length
    return CopiedFolder(files, size, is_whole=True)


def find_places(folder: str) -> list[ExamplePlace]:
    """Return the files for an example edit, those nearest to the top first."""
    names = sorted(_ordinary_files(folder), key=lambda name: (name.count("/"), name))
    places = (_place(folder, name) for name in names if name.isascii() and name.isprintable())
    return [example for example in places if example is not None]


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


NOT_AS_CLAIMED = 4
BY_ALICE, BY_BOB, OUTSIDE = "  (by alice)", "  (by bob)", "a line that some other program wrote"


@click.command("tour")
@click.option("--pause", is_flag=True, help="Wait for Enter before each step.")
@click.option("--hosts", is_flag=True, help="Show one workspace on three hosts, which are folders here.")
def tour_verb(pause: bool, hosts: bool) -> int:
    """See what editd does, on a throw-away copy of this folder.

    Copies some of the folder's files (300 and 20 MB at most, no hidden ones), and starts a daemon
    for the copy. Shows an edit of two files as one transaction, and an edit that is refused because
    the file has changed since it was read, and then merged. Then a change by another program enters
    the history, and an undo of an earlier transaction keeps the later changes. In an empty folder,
    the tour makes a small example. Prints each command, so that you can use it in your own project.
    Takes a few seconds, and leaves nothing behind.

    With `--hosts`, three daemons share a small example through a git repository.

    \b
    Examples:
      editctl tour
      editctl tour --hosts
      editctl tour --pause
    """
    source = current_folder()
    name = HOSTS[0] if hosts else os.path.basename(source) or "folder"
    scene = TourWorkspace(name, pause=pause)
    try:
        if hosts:
            output.echo(output.paint("A tour of editd on three hosts", None, bold=True))
            make_example(scene.root)
            HostsTour(scene).play()
        else:
            _play(scene, source)
    except TourFailed as error:
        output.echo(output.paint(f"\n✗ {error}", "red", bold=True))
        return NOT_AS_CLAIMED
    finally:
        scene.remove()
    return 0


def _play(scene: TourWorkspace, source: str) -> None:
    """Run the whole tour, from the first sentence to the last."""
    first, second = _set_up(scene, source)
    read_by_bob = _start(scene, first)
    _edit_two_files(scene, first, second)
    _edit_stale(scene, first, read_by_bob)
    _change_from_outside(scene, second)
    _undo_the_first(scene, first, second)
    _look_back(scene)


def _set_up(scene: TourWorkspace, source: str) -> tuple[ExamplePlace, ExamplePlace]:
    """Fill the workspace, and return two of its files for the edits."""
    output.echo(output.paint("A tour of editd", None, bold=True))
    copied = copy_folder(source, scene.root)
    places = find_places(scene.root)
    if len(places) >= 2:
        some = "" if copied.is_whole else "some "
        scene.tell(f"It runs in {scene.root}, a copy of {some}{copied.files} files of {source}.")
    else:
        make_example(scene.root)
        places = find_places(scene.root)
        scene.tell(f"It runs in {scene.root}, a small example: {source} has no two text files for it.")
    scene.tell(
        "The copy and its daemon are removed at the end. The commands do the same in your own project."
    )
    return places[0], places[1]


def _start(scene: TourWorkspace, first: ExamplePlace) -> str:
    """Start the daemon, and return the version of the first file that Bob reads."""
    scene.step(
        "A daemon owns the folder",
        "Any command starts it if none runs. `settle` waits until it has read all files.",
    )
    scene.editctl("start")
    scene.editctl("settle")
    with scene.client as client:
        scene.claim("no changes yet: the history holds only the baseline", client.status().head == 0)
        return client.read(first.path).version


def _edit_two_files(scene: TourWorkspace, first: ExamplePlace, second: ExamplePlace) -> None:
    scene.step(
        "Two files, one transaction",
        "Alice edits two files at once: both edits take effect, or neither does. The answer comes when "
        "they are on stable storage.",
    )
    edits = [
        {"op": "replace", "path": example.path, "old": example.top, "new": example.top + BY_ALICE}
        for example in (first, second)
    ]
    with open(os.path.join(scene.temporary, "edits.json"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(edit, ensure_ascii=False) + "\n" for edit in edits)
    scene.cat(os.path.join("..", "edits.json"))
    scene.editctl("apply", "../edits.json", "--actor", "alice", "-m", "Two files in one go")
    scene.editctl("show", "1")
    with scene.client as client:
        made = client.show(1).transaction
    paths = {change.path for change in made.files}
    scene.claim("one transaction changed both files", paths == {first.path, second.path})


def _edit_stale(scene: TourWorkspace, first: ExamplePlace, read_by_bob: str) -> None:
    scene.step(
        "No lost update",
        f"Bob read {first.path} before Alice's edit: version {read_by_bob[:12]}, git's own name for that "
        "content. His edit is for that old content: it is refused, and the refusal shows the later changes.",
    )
    before = scene.text(first.path)
    edit = [
        "replace",
        first.path,
        first.bottom,
        first.bottom + BY_BOB,
        "--base",
        read_by_bob,
        "--actor",
        "bob",
    ]
    scene.editctl(*edit, expected=1)
    scene.claim("nothing was changed", scene.text(first.path) == before)
    scene.tell("Alice did not change his line, so he can merge.")
    scene.editctl(*edit, "--merge", "-m", "Another line of the same file")
    text = scene.text(first.path)
    scene.claim("both edits are in the file", first.top + BY_ALICE in text and first.bottom + BY_BOB in text)


def _change_from_outside(scene: TourWorkspace, second: ExamplePlace) -> None:
    scene.step(
        "Other programs need not ask",
        "Other programs work as usual. Their changes enter the history, as separate transactions.",
    )
    scene.append(OUTSIDE, second.path)
    scene.editctl("settle")
    scene.editctl("log", "--oneline", "-n", "1")
    with scene.client as client:
        newest = client.log(limit=1).transactions[0]
    paths = [change.path for change in newest.files]
    scene.claim("the change from outside is transaction 3", newest.seq == 3 and newest.kind == "outside")
    scene.claim(f"and it changed only {second.path}", paths == [second.path])


def _undo_the_first(scene: TourWorkspace, first: ExamplePlace, second: ExamplePlace) -> None:
    scene.step(
        "Undo one in the middle",
        "Both files have changed since Alice's transaction, the first. Take back only that one.",
    )
    scene.editctl("undo", "1", "--actor", "alice")
    scene.editctl("show")
    bobs = first.text.replace(first.bottom, first.bottom + BY_BOB)
    scene.claim(f"{first.path} has Bob's edit, and nothing of Alice's", scene.text(first.path) == bobs)
    outside = f"{second.text}{OUTSIDE}\n"
    scene.claim(f"{second.path} has the line from outside", scene.text(second.path) == outside)


def _look_back(scene: TourWorkspace) -> None:
    scene.step(
        "Everything is kept", "Nothing is rewritten: an undo is a transaction, and can itself be undone."
    )
    scene.editctl("log", "--oneline")
    scene.editctl("check")
    scene.editctl("stop")
    output.echo(output.paint("\nThat was the tour.", None, bold=True))
    scene.tell("Next: `editctl start` in your own project, and `editctl --help`.")
