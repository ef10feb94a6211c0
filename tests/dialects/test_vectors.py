"""Every vector through the real socket: what comes of it is what the vector says, or what its deviation does.

One daemon for each configuration that vectors ask for, its workspace emptied and filled again for each.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from editd.wire.messages import Tool
from editd_client.errors import EditdError
from recorded import TOOLS, Vector, rooted, vectors
from support.seeds import share
from support.workplace import Workplace, workplace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from editd_client.client import Client


class Daemons:
    """The daemon for each configuration, started when a vector first needs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, tuple[Any, Workplace]] = {}

    def place(self, vector: Vector) -> Workplace:
        wanted = {name: vector.state[name] for name in CONFIGURED if name in vector.state}
        key = json.dumps(wanted, sort_keys=True)
        if key not in self._places:
            context = workplace(self._folder / str(len(self._places)))
            place = context.__enter__()
            self._places[key] = context, place
            configure(place, wanted)
            place.start().close()
        return self._places[key][1]

    def end(self) -> None:
        for context, _ in self._places.values():
            context.__exit__(None, None, None)


CONFIGURED = ("encoding", "ignored_paths", "allowed_globs", "home", "generation")


def configure(place: Workplace, wanted: dict[str, Any]) -> None:
    root = str(place.root.resolve())
    lines = []
    if wanted.get("encoding") not in (None, "utf-8", "utf-8-sig"):
        lines.append(f"encoding = {json.dumps(wanted['encoding'])}")
    if "generation" in wanted:
        lines += ["[gemini]", f"generation = {json.dumps(wanted['generation'])}"]
    if "ignored_paths" in wanted:
        lines += ["[serena]", f"ignored_paths = {json.dumps(wanted['ignored_paths'])}"]
    if "allowed_globs" in wanted:
        globs = rooted(wanted["allowed_globs"], root)
        lines += ["[wcgw]", *(f"{kind}_globs = {json.dumps(globs[kind])}" for kind in ("edit", "write"))]
    folder = place.folder / "config" / "editd"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("\n".join(lines) + "\n")
    if "home" in wanted:
        place.variables["HOME"] = rooted(wanted["home"], root)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    found = Daemons(tmp_path_factory.mktemp("vectors"))
    yield found
    found.end()


def fill(place: Workplace, vector: Vector) -> None:
    """Let the workspace, and what lies beside it, be as the vector has it."""
    for entry in os.scandir(place.root):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    shutil.rmtree(place.folder / "outside", ignore_errors=True)
    place.write(vector.files)
    for path, content in vector.outside.items():
        beside = place.folder / path
        beside.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
    if any(target.startswith("../outside") for target in vector.symlinks.values()):
        (place.folder / "outside").mkdir(exist_ok=True)
    for link, target in vector.symlinks.items():
        at = place.root / link
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(target)


def outside(place: Workplace, vector: Vector) -> dict[str, bytes]:
    return {path: (place.folder / path).read_bytes() for path in vector.outside}


def files(place: Workplace) -> dict[str, bytes]:
    return {path: content for path, content in place.files().items() if not (place.root / path).is_symlink()}


def call(
    client: Client, place: Workplace, vector: Vector, args: dict[str, Any]
) -> tuple[str, frozenset[str]]:
    """Make the call; return the error's name, or "" and the kinds of the warnings."""
    args = rooted(args, str(place.root.resolve()))
    if isinstance(args.get("thread_id"), str):  # a thread of each vector's own: it has read nothing yet
        args["thread_id"] = args["thread_id"].replace("t1", f"t1{vector.id}")
    try:
        done = client.apply([Tool(dialect=vector.dialect, tool=vector.tool, args=args)])
    except EditdError as error:
        return error.name if error.hint else f"{error.name} without a hint", frozenset()
    assert isinstance(done.answers, list), f"{vector.id}: no answer of the tool's own"
    assert done.answers[0]
    said = {warning.partition(":")[0] for file in done.files for warning in file.warnings}
    return "", frozenset(kind for kind in said if " " not in kind)


def differs(daemons: Daemons, vector: Vector) -> str:
    """What of the vector comes out otherwise; "" where nothing does."""
    place = daemons.place(vector)
    fill(place, vector)
    with place.client() as client:
        for step in vector.steps:
            match step["op"]:
                case "read":
                    thread = f"t1{vector.id}".replace("-", "")
                    client.read(
                        step["path"], session=thread, start_line=step.get("start"), end_line=step.get("end")
                    )
                case "write_disk":
                    (place.root / step["path"]).write_bytes(step["content"].encode())
                case "delete_disk":
                    (place.root / step["path"]).unlink()
                case "call":
                    call(client, place, vector, step["call"])
        before = files(place), outside(place, vector)
        error, warnings = call(client, place, vector, vector.call)
    if outside(place, vector) != before[1]:
        return "something outside the workspace has changed"
    if vector.expected.files is None:
        if error not in vector.expected.errors:
            return f"{error or files(place)}, not {' or '.join(sorted(vector.expected.errors))}"
        return "" if files(place) == before[0] else f"refused, and the files are {files(place)}"
    if error:
        return f"refused: {error}"
    if files(place) != vector.expected.files:
        return f"the files are {files(place)}"
    if vector.expected.warnings is not None and warnings != vector.expected.warnings:
        return f"the warnings are {sorted(warnings)}, not {sorted(vector.expected.warnings)}"
    return ""


@pytest.mark.parametrize("dialect", TOOLS)
def test_every_vector_comes_out_as_it_says_or_as_its_deviation_does(
    daemons: Daemons, dialect: str, is_long: bool
) -> None:
    """The short form has every second vector, by the seed."""
    chosen = vectors(dialect) if is_long else share(vectors(dialect), 2)
    found = {vector.id: what for vector in chosen if (what := differs(daemons, vector))}
    assert not found, "\n".join(f"{name}: {what}" for name, what in found.items())
