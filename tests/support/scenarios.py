"""Scenarios of the torture tests: transactions of every kind, with the files before and after each."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from editd.values.content import version_of
from editd.wire.messages import Chmod, Delete, Move, Symlink
from support.workplace import write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from editd.wire.messages import AnyEdit, ApplyResult, UndoResult
    from editd_client.client import Client
    from support.workplace import Workplace

Standing = dict[str, tuple[str, bytes]]  # path → permissions, or "link", and bytes; a folder's path ends in /
FILE, SCRIPT, LINK, FOLDER = "644", "755", "link", "folder"


@dataclass(frozen=True, slots=True)
class Expected:
    """The files and the kinds of transactions, without and with the transaction in question."""

    before: Standing
    after: Standing
    kinds_before: tuple[str, ...]
    kinds_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A transaction to request. `tag` differs each time, and is part of the contents and of the request's id.

    `prepare` makes the initial files. `meddle` makes outside changes just before the request.
    """

    name: str
    prepare: Callable[[Workplace, Client, str], Expected]
    ask: Callable[[Client, str], ApplyResult | UndoResult]
    meddle: Callable[[Workplace, str], None] = lambda _place, _tag: None


def standing(place: Workplace) -> Standing:
    """Return all files and folders of the workspace."""
    found: Standing = {}
    for path in place.root.rglob("*"):
        name, status = str(path.relative_to(place.root)), path.lstat()
        if stat.S_ISDIR(status.st_mode):
            found[name + "/"] = FOLDER, b""
        elif stat.S_ISLNK(status.st_mode):
            found[name] = LINK, os.fsencode(path.readlink())
        else:
            found[name] = f"{stat.S_IMODE(status.st_mode):o}", path.read_bytes()
    return found


def differing(found: Standing, expected: Standing) -> str:
    """Return the differences from the expected files as text, or an empty text."""
    paths = sorted(path for path in found.keys() | expected.keys() if found.get(path) != expected.get(path))
    return "\n".join(f"{path}: {found.get(path)} instead of {expected.get(path)}"[:300] for path in paths)


def with_folders(files: Standing) -> Standing:
    """Return the files together with their folders."""
    above = {
        "/".join(path.split("/")[:depth]) + "/" for path in files for depth in range(1, path.count("/") + 1)
    }
    return files | dict.fromkeys(above, (FOLDER, b""))


def empty(place: Workplace, client: Client) -> None:
    """Delete all files and folders of the workspace."""
    files = [path for path, (kind, _) in standing(place).items() if kind != FOLDER]
    if files:
        client.apply([Delete(path=path) for path in files])


# ── One file ──


def _prepare_one(place: Workplace, _client: Client, tag: str) -> Expected:
    before = standing(place)
    return Expected(before, with_folders(before | {"one": (FILE, tag.encode())}), (), ("edit",))


def _ask_one(client: Client, tag: str) -> ApplyResult:
    return client.apply([write("one", tag)], request_id=tag)


# ── Ten files: changed, created, deleted, moved, made executable, a symlink ──


def _ten_before(tag: str) -> Standing:
    changed = {f"folder/{number}": (FILE, f"{number} before {tag}\n".encode()) for number in range(4)}
    return with_folders(
        changed
        | {
            "emptied/gone": (FILE, f"gone {tag}\n".encode()),
            "from/here/moved": (FILE, f"moved {tag}\n".encode()),
            "script": (FILE, f"script {tag}\n".encode()),
            "tool": (SCRIPT, f"tool {tag}\n".encode()),
            "link": (LINK, f"before-{tag}".encode()),
        }
    )


def _ten_after(tag: str) -> Standing:
    changed = {f"folder/{number}": (FILE, f"{number} after {tag}, longer\n".encode()) for number in range(4)}
    return with_folders(
        changed
        | {
            "to/there/moved": (FILE, f"moved {tag}\n".encode()),
            "made/deep/added": (FILE, f"added {tag}\n".encode()),
            "script": (SCRIPT, f"script {tag}\n".encode()),
            "tool": (SCRIPT, f"tool, changed {tag}\n".encode()),
            "link": (LINK, f"after-{tag}".encode()),
        }
    )


def _ten_edits(tag: str) -> list[AnyEdit]:
    after = _ten_after(tag)
    written = [f"folder/{number}" for number in range(4)] + ["made/deep/added", "tool"]
    return [
        *(write(path, after[path][1].decode()) for path in written),
        Delete(path="emptied/gone"),
        Move(path="from/here/moved", to="to/there/moved"),
        Chmod(path="script", executable=True),
        Symlink(path="link", target=f"after-{tag}", base=version_of(f"before-{tag}".encode())),
    ]


def _put(place: Workplace, client: Client, files: Standing) -> None:
    empty(place, client)
    edits: list[AnyEdit] = []
    for path, (kind, content) in files.items():
        if kind == LINK:
            edits.append(Symlink(path=path, target=content.decode()))
        elif kind != FOLDER:
            edits.append(write(path, content.decode(), mode="100755" if kind == SCRIPT else "100644"))
    client.apply(edits)


def _prepare_ten(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, _ten_before(tag))
    return Expected(_ten_before(tag), _ten_after(tag), (), ("edit",))


def _ask_ten(client: Client, tag: str) -> ApplyResult:
    return client.apply(_ten_edits(tag), request_id=tag)


# ── A file becomes a folder, and a folder becomes a file or a symlink ──


def _flat(tag: str) -> Standing:
    return with_folders(
        {
            "above/thing": (FILE, f"moved {tag}\n".encode()),
            "link": (LINK, f"to-{tag}".encode()),
            "replaced": (FILE, f"replaced {tag}\n".encode()),
        }
    )


def _nested(tag: str) -> Standing:
    return with_folders(
        {
            "above/thing/inner": (FILE, f"moved {tag}\n".encode()),
            "above/thing/deep/other": (FILE, f"other {tag}\n".encode()),
            "link/inner": (FILE, f"behind the link {tag}\n".encode()),
            "replaced/inner": (FILE, f"inner {tag}\n".encode()),
        }
    )


def _prepare_to_folder(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, _flat(tag))
    return Expected(_flat(tag), _nested(tag), (), ("edit",))


def _ask_to_folder(client: Client, tag: str) -> ApplyResult:
    written = ["above/thing/deep/other", "link/inner", "replaced/inner"]
    return client.apply(
        [
            Move(path="above/thing", to="above/thing/inner"),
            Delete(path="link"),
            Delete(path="replaced"),
            *(write(path, _nested(tag)[path][1].decode()) for path in written),
        ],
        request_id=tag,
    )


def _prepare_to_file(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, _nested(tag))
    return Expected(_nested(tag), _flat(tag), (), ("edit",))


def _ask_to_file(client: Client, tag: str) -> ApplyResult:
    return client.apply(
        [
            *(Delete(path=path) for path in ("above/thing/deep/other", "link/inner", "replaced/inner")),
            Move(path="above/thing/inner", to="above/thing"),
            Symlink(path="link", target=f"to-{tag}"),
            write("replaced", f"replaced {tag}\n"),
        ],
        request_id=tag,
    )


# ── Undo ──


def _prepare_undo(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, _ten_before(tag))
    client.apply(_ten_edits(tag))
    return Expected(_ten_after(tag), _ten_before(tag), (), ("undo",))


def _ask_undo(client: Client, tag: str) -> UndoResult:
    return client.undo(request_id=tag)


def _prepare_rollback(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, _ten_before(tag))
    client.apply([write("folder/0", f"in between {tag}\n"), write("new", tag)], session=tag)
    client.apply([write("others", tag)])
    client.apply(_ten_edits(tag), session=tag)
    others: Standing = {"others": (FILE, tag.encode())}
    made: Standing = others | {"new": (FILE, tag.encode())}
    return Expected(_ten_after(tag) | made, _ten_before(tag) | others, (), ("rollback",))


def _ask_rollback(client: Client, tag: str) -> UndoResult:
    return client.rollback(tag, request_id=tag)


# ── Outside changes that an edit adopts ──


def _prepare_adoption(place: Workplace, client: Client, tag: str) -> Expected:
    empty(place, client)
    client.apply([write("theirs", f"one\ntwo {tag}\n"), write("ours", "ours\n")])
    changed: Standing = {"theirs": (FILE, f"ONE\ntwo {tag}\n".encode()), "ours": (FILE, b"ours\n")}
    after: Standing = {"theirs": (FILE, f"{tag}\n".encode()), "ours": (FILE, f"ours {tag}\n".encode())}
    return Expected(changed, after, ("outside",), ("outside", "edit"))


def _meddle(place: Workplace, tag: str) -> None:
    place.write({"theirs": f"ONE\ntwo {tag}\n"})


def _ask_adoption(client: Client, tag: str) -> ApplyResult:
    return client.apply([write("theirs", f"{tag}\n"), write("ours", f"ours {tag}\n")], request_id=tag)


# ── An edit so large that the engine works in a thread ──


def _prepare_large(place: Workplace, client: Client, tag: str) -> Expected:
    _put(place, client, {"large": (FILE, tag.encode()), "small": (FILE, tag.encode())})
    before: Standing = {"large": (FILE, tag.encode()), "small": (FILE, tag.encode())}
    after: Standing = {"large": (FILE, _large(tag).encode()), "small": (FILE, f"small {tag}".encode())}
    return Expected(before, after, (), ("edit",))


def _ask_large(client: Client, tag: str) -> ApplyResult:
    return client.apply([write("large", _large(tag)), write("small", f"small {tag}")], request_id=tag)


def _large(tag: str) -> str:
    return f"{tag}\n" * (1_000_000 // (len(tag) + 1))


ONE = Scenario("one file", _prepare_one, _ask_one)
TEN = Scenario("ten files", _prepare_ten, _ask_ten)
UNDO = Scenario("undo", _prepare_undo, _ask_undo)
ROLLBACK = Scenario("rollback", _prepare_rollback, _ask_rollback)
ADOPTION = Scenario("adoption", _prepare_adoption, _ask_adoption, _meddle)
LARGE = Scenario("large", _prepare_large, _ask_large)
TO_FOLDER = Scenario("file to folder", _prepare_to_folder, _ask_to_folder)
TO_FILE = Scenario("folder to file", _prepare_to_file, _ask_to_file)
SCENARIOS: Sequence[Scenario] = (ONE, TEN, TO_FOLDER, TO_FILE, UNDO, ROLLBACK, ADOPTION)
