"""`editctl tour`: what editd does, shown on a throw-away copy with the real daemon.

Every command that is shown is run as it stands, and what the tour says of it is checked: where
something is not as claimed, the tour ends there with exit code 4. The copy, its history and its
daemon are gone afterwards, whichever way it ends.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.cli.throwaway import copy_folder, find_places, make_example
from editd_client.client import Client
from editd_client.locate import Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd_client.cli.throwaway import Place

NOT_AS_CLAIMED = 4
COMMAND_SECONDS_MAX = 30.0
WIDTH_MAX = 88
BY_ALICE, BY_BOB, OUTSIDE = "  (by alice)", "  (by bob)", "a line that some other program wrote"


@click.command()
@click.option("--pause", is_flag=True, help="Wait for Enter before each step.")
def verb(pause: bool) -> int:
    """See what editd does, on a throw-away copy of this folder.

    Some of the folder's files (300 and 20 MB at most, no hidden ones) are copied, and a daemon of
    the copy's own shows: an edit of two files that is one transaction; an edit refused because the
    file has changed since it was read, and then merged; a change from outside taken into the
    history; and the undo of a transaction in the middle that keeps what came later. In an empty
    folder it makes a small example. Each command is printed, so that you can type it in a project
    of yours. It takes some seconds, and leaves nothing behind.

    \b
    Examples:
      editctl tour
      editctl tour --pause
    """
    temporary = tempfile.mkdtemp(prefix="editd-tour-")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # a KeyboardInterrupt, so that we clean up
    scene = Scene(temporary, os.path.basename(os.getcwd()) or "folder", pause=pause)
    try:
        _play(scene, os.getcwd())
    except NotAsClaimed as error:
        output.say(output.paint(f"\n✗ {error}", "red", bold=True))
        return NOT_AS_CLAIMED
    finally:
        scene.strike()
    return 0


class NotAsClaimed(Exception):
    """Something that the tour said is not so."""


class Scene:
    """A throw-away workspace, what is said about it and what is done in it."""

    def __init__(self, temporary: str, name: str, *, pause: bool) -> None:
        self.temporary = temporary
        self.root = os.path.join(os.path.realpath(temporary), name)
        self._pause = pause
        self._steps = 0
        self._is_running = False
        self._has_run = False  # since something was last said
        self._runtime = os.path.join(temporary, "run")
        os.makedirs(self.root)
        os.mkdir(self._runtime, 0o700)
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "EDITD_SOCKET"},
            "EDITD_WORKSPACE": self.root,
            "EDITD_PAGER": "cat",
            "XDG_STATE_HOME": os.path.join(temporary, "state"),
            "XDG_RUNTIME_DIR": self._runtime,
        }
        if path := os.environ.get("PYTHONPATH"):  # relative entries mean another folder over there
            absolute = (os.path.abspath(entry) for entry in path.split(os.pathsep) if entry)
            self._environment["PYTHONPATH"] = os.pathsep.join(absolute)

    @property
    def client(self) -> Client:
        """A client of the scene's own daemon."""
        return Client(os.path.join(self._runtime, "editd", f"{Workspace(self.root, 'named').id}.sock"))

    def step(self, title: str, text: str) -> None:
        """Say what comes next."""
        self._steps += 1
        if self._pause:
            click.pause("\n(Enter goes on)")
        output.say(output.paint(f"\n{self._steps}. {title}", None, bold=True))
        self.tell(text)

    def tell(self, text: str) -> None:
        """Say something, at a width that can be read."""
        self._has_run = False
        width = min(WIDTH_MAX, shutil.get_terminal_size().columns)
        output.say(textwrap.fill(text, width, initial_indent="   ", subsequent_indent="   "))

    def editctl(self, *words: str, expected: int = 0) -> None:
        """Print a command and run it, as a shell would."""
        self._is_running = self._has_run = True
        self._print(["editctl", *words])
        code = self._run(words).returncode
        if code != expected:
            raise NotAsClaimed(f"that command's exit code should be {expected}, and is {code}")

    def cat(self, path: str) -> None:
        """Print a text file as a shell would."""
        self._print(["cat", path])
        output.say(self.text(path).rstrip("\n"))

    def append(self, line: str, path: str) -> None:
        """Change a file behind editd's back, as an editor or a script would."""
        output.say(output.paint(f"\n   $ echo {shlex.quote(line)} >> {shlex.quote(path)}", "green"))
        with open(os.path.join(self.root, path), "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def claim(self, sentence: str, holds: bool) -> None:
        """Say what is so, and end the tour if it is not."""
        if not holds:
            raise NotAsClaimed(f"this should be so, and is not: {sentence}")
        if self._has_run:
            output.say("")
        self._has_run = False
        output.say(output.paint("   ✓ ", "green") + sentence)

    def text(self, path: str) -> str:
        """What a file of the workspace holds."""
        with open(os.path.join(self.root, path), encoding="utf-8", newline="") as file:
            return file.read()

    def strike(self) -> None:
        """End the daemon and remove everything, whatever state they are in."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if self._is_running:
            # `start` first: a daemon that was only just being started is waited for, so that it can be ended.
            for word in ("start", "stop"):
                self._run([word], stdout=subprocess.DEVNULL)
        shutil.rmtree(self.temporary, ignore_errors=True)

    def _print(self, command: Sequence[str]) -> None:
        output.say(output.paint(f"\n   $ {shlex.join(command)}", "green"))

    def _run(self, words: Sequence[str], stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
        sys.stdout.flush()
        return subprocess.run(
            [sys.executable, "-P", "-m", "editd_client", *words],
            cwd=self.root, env=self._environment, timeout=COMMAND_SECONDS_MAX, check=False,
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.STDOUT,
        )  # fmt: skip


def _play(scene: Scene, source: str) -> None:
    """The whole tour, from the first sentence to the last."""
    first, second = _set_up(scene, source)
    read_by_bob = _start(scene, first)
    _edit_two_files(scene, first, second)
    _edit_stale(scene, first, read_by_bob)
    _change_from_outside(scene, second)
    _undo_the_first(scene, first, second)
    _look_back(scene)


def _set_up(scene: Scene, source: str) -> tuple[Place, Place]:
    """Fill the workspace, and return two files of it to show edits on."""
    output.say(output.paint("A tour of editd", None, bold=True))
    copied = copy_folder(source, scene.root)
    places = find_places(scene.root)
    if len(places) >= 2:
        some = "" if copied.is_whole else "some "
        scene.tell(f"It plays on {scene.root}, a copy of {some}{copied.files} files of {source}.")
    else:
        make_example(scene.root)
        places = find_places(scene.root)
        scene.tell(f"It plays on {scene.root}, a small example, for {source} has no two text files to show.")
    scene.tell(
        "The copy and its daemon are gone when it ends. The commands do the same in a project of yours."
    )
    return places[0], places[1]


def _start(scene: Scene, first: Place) -> str:
    """Start the daemon, and return the version of the first file that Bob reads."""
    scene.step(
        "A daemon owns the folder",
        "Any command starts it where none runs. `settle` waits until it has seen all there is.",
    )
    scene.editctl("start")
    scene.editctl("settle")
    with scene.client as client:
        scene.claim(
            "nothing was changed yet: the history holds the baseline alone", client.status().head == 0
        )
        return client.read(first.path).version


def _edit_two_files(scene: Scene, first: Place, second: Place) -> None:
    scene.step(
        "Two files, one transaction",
        "Alice edits two files at once: both edits take effect, or neither does.",
    )
    edits = [
        {"op": "replace", "path": place.path, "old": place.top, "new": place.top + BY_ALICE}
        for place in (first, second)
    ]
    with open(os.path.join(scene.temporary, "edits.json"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(edit, ensure_ascii=False) + "\n" for edit in edits)
    scene.cat(os.path.join("..", "edits.json"))
    scene.editctl("apply", "../edits.json", "--actor", "alice", "-m", "Two files in one go")
    scene.editctl("show", "1")
    with scene.client as client:
        made = client.show(1).transaction
    scene.claim("one transaction changed both files", len(made.files) == 2 and made.kind == "edit")
    scene.claim("and it is on stable storage already: the answer waits for that", made.seq == 1)


def _edit_stale(scene: Scene, first: Place, read_by_bob: str) -> None:
    scene.step(
        "No lost update",
        f"Bob read {first.path} before Alice's edit: version {read_by_bob[:12]}, git's own name for that "
        "content. His edit is for what is no longer there: it is refused, with what happened since.",
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
    scene.tell("His line is not one that Alice changed, so he may ask for a merge.")
    scene.editctl(*edit, "--merge", "-m", "Another line of the same file")
    text = scene.text(first.path)
    scene.claim("both edits are in the file", first.top + BY_ALICE in text and first.bottom + BY_BOB in text)


def _change_from_outside(scene: Scene, second: Place) -> None:
    scene.step(
        "Nobody has to ask",
        "Other programs go on as ever. What they change is taken into the history, a transaction of its own.",
    )
    scene.append(OUTSIDE, second.path)
    scene.editctl("settle")
    scene.editctl("log", "--oneline", "-n", "1")
    with scene.client as client:
        newest = client.log(limit=1).transactions[0]
    paths = [change.path for change in newest.files]
    scene.claim("the change from outside is transaction 3", newest.seq == 3 and newest.kind == "outside")
    scene.claim(f"and it is of {second.path} alone", paths == [second.path])


def _undo_the_first(scene: Scene, first: Place, second: Place) -> None:
    scene.step(
        "Undo one in the middle",
        "Both files have changed since Alice's transaction, the first. It alone is taken back.",
    )
    scene.editctl("undo", "1", "--actor", "alice")
    scene.editctl("show")
    bobs = first.text.replace(first.bottom, first.bottom + BY_BOB)
    scene.claim(f"{first.path} has Bob's edit, and nothing of Alice's", scene.text(first.path) == bobs)
    outside = f"{second.text}{OUTSIDE}\n"
    scene.claim(f"{second.path} has the line from outside", scene.text(second.path) == outside)


def _look_back(scene: Scene) -> None:
    scene.step(
        "All of it is kept", "Nothing is rewritten: an undo is a transaction, and can be undone in its turn."
    )
    scene.editctl("log", "--oneline")
    scene.editctl("check")
    scene.editctl("stop")
    output.say(output.paint("\nThat was all of it.", None, bold=True))
    scene.tell("Next: `editctl start` in a project of yours, and `editctl --help`.")
