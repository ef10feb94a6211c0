"""Hunks of a transaction: their names on the command line, and the choice among them on a terminal."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from editd_client.cli import output
from editd_client.errors import EditdError, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import Change, ShowResult, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client

NUMBERS = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
KEYS = {
    "y": "undo this hunk",
    "n": "do not undo this hunk",
    "q": "quit; undo neither this hunk nor the remaining ones",
    "a": "undo this hunk and all later hunks of the file",
    "d": "undo neither this hunk nor any of the later hunks of the file",
    "j": "leave this hunk undecided, and show the next undecided one",
    "k": "leave this hunk undecided, and show the previous undecided one",
    "?": "print this help",
}
DECIDING = frozenset("ynqad")


@dataclass(frozen=True, slots=True)
class HunkSelection:
    """The parts of a transaction to undo: whole paths, and hunks of other files."""

    paths: list[str] = field(default_factory=list)
    hunks: dict[str, list[int]] = field(default_factory=dict)


@dataclass(slots=True)
class Piece:
    """One question: a hunk, or a file without hunks as a whole."""

    file: Change
    number: int | None  # from 1; None for the whole file
    diff: str = ""
    is_chosen: bool | None = None  # None: undecided
    is_gone: bool = False  # undoing it would change nothing


def hunks_named(invocation: Invocation, given: Sequence[str]) -> dict[str, list[int]]:
    """Return the hunks that `--hunk PATH:K` names, by path."""
    named: dict[str, list[int]] = {}
    for text in given:
        path, _, numbers = text.rpartition(":")
        if not path or not NUMBERS.fullmatch(numbers):
            raise click.BadParameter(f"{text!r} is not PATH:K, such as src/app.py:2.", param_hint="'--hunk'")
        named.setdefault(invocation.path(path), []).extend(map(int, numbers.split(",")))
    return named


def hunk_lines(invocation: Invocation, result: ShowResult) -> Iterator[str]:
    """Yield each hunk of a transaction, under the name by which `undo --hunk` takes it."""
    hunks = result.hunks if isinstance(result.hunks, list) else []
    for hunk in hunks:
        yield ""
        yield output.paint(f"{output.plain(invocation.from_here(hunk.path))}:{hunk.hunk}", None, bold=True)
        yield from output.diff_lines(hunk.diff)
    whole = {hunk.path for hunk in hunks}
    rest = [file for file in result.transaction.files if file.path not in whole]
    if rest:
        yield ""
        yield "without hunks, for --path:"
        yield from output.file_lines(rest)


def check_terminal(transaction: str | None) -> None:
    """Refuse `-i` without a terminal to answer on."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        return
    tx = transaction or "TX"
    raise refusal(
        "invalid_params",
        "-i needs a terminal.",
        hint=f"Name the hunks: `editctl show {tx} --hunks` lists them, `editctl undo {tx} --hunk PATH:K` "
        "undoes one.",
    )


def choose(client: Client, tx: Tx, paths: Sequence[str] | None) -> HunkSelection:
    """Ask for each hunk of a transaction, or of `paths` in it, whether to undo it."""
    result = client.show(tx, diff=False, hunks=True)
    pieces = list(_pieces(result, paths))
    _ask(client, result.transaction.seq, pieces)
    return _chosen(pieces)


def _pieces(result: ShowResult, paths: Sequence[str] | None) -> Iterator[Piece]:
    for file in result.transaction.files:
        is_wanted = paths is None or any(
            file.path == path or file.path.startswith(f"{path}/") for path in paths
        )
        if not is_wanted or isinstance(file.undone_by, int):
            continue
        hunks = [hunk for hunk in result.hunks or () if hunk.path == file.path]
        if not hunks or file.change == "renamed":
            yield Piece(file, None)
        for hunk in hunks:
            yield Piece(file, hunk.hunk, hunk.diff)


def _folders(path: str) -> list[str]:
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(1, len(names))]


def _ask(client: Client, seq: int, pieces: list[Piece]) -> None:
    """Ask until each piece is decided. Skip a piece without effect when its turn comes."""
    at = 0
    shown: Piece | None = None
    while undecided := [index for index, piece in enumerate(pieces) if piece.is_chosen is None]:
        at = next((index for index in undecided if index >= at), undecided[0])
        piece = pieces[at]
        if piece is not shown:
            in_the_way = _in_the_way(client, seq, piece)
            if in_the_way is None:
                piece.is_chosen, piece.is_gone = False, True
                continue
            for line in (*_shown(piece, shown), *in_the_way):
                output.echo(line)
            shown = piece
        following = next((index for index in undecided if index > at), None)
        previous = max((index for index in undecided if index < at), default=None)
        answer = _answer(pieces, at, has_next=following is not None, has_previous=previous is not None)
        if answer in ("j", "k"):
            target = following if answer == "j" else previous
            if target is None:
                output.echo(f"There is no {'next' if answer == 'j' else 'previous'} undecided hunk.")
            else:
                at = target
        elif answer in DECIDING:
            _decide(pieces, at, answer)
        elif answer:
            for key, meaning in KEYS.items():
                output.echo(output.paint(f"{key} - {meaning}", "red"))


def _decide(pieces: Sequence[Piece], at: int, answer: str) -> None:
    """Apply the answer to the undecided pieces that it covers."""
    piece = pieces[at]
    covered: Sequence[Piece] = [piece]
    if answer == "q":
        covered = pieces
    elif answer in "ad":
        covered = [other for other in pieces[at:] if other.file is piece.file]
    for other in covered:
        if other.is_chosen is None:
            other.is_chosen = answer in "ya"


def _in_the_way(client: Client, seq: int, piece: Piece) -> list[str] | None:
    """Return the lines with the conflicts of the piece alone, or None if undoing it changes nothing."""
    named = [piece.file.path] if piece.number is None else None
    hunks = None if piece.number is None else {piece.file.path: [piece.number]}
    try:
        result = client.undo(seq, paths=named, hunks=hunks, dry_run=True)
    except EditdError as error:
        if error.name == "nothing_to_undo":
            return None
        raise
    return [
        output.paint(
            f"does not merge: changed since by {', '.join(map(str, one.blocking)) or 'others'}", "red"
        )
        for one in result.conflicts or ()
    ]


def _shown(piece: Piece, before: Piece | None) -> Iterator[str]:
    if before is None or before.file is not piece.file:
        yield from output.file_lines([piece.file])
    yield from output.diff_lines(piece.diff)


def _answer(pieces: list[Piece], at: int, *, has_next: bool, has_previous: bool) -> str:
    """Prompt once, and return the key, empty for an empty line. The end of the input quits."""
    keys = ",".join(key for key in KEYS if (key != "j" or has_next) and (key != "k" or has_previous))
    what = "this hunk" if pieces[at].number is not None else "all changes of this file"
    prompt = output.paint(f"({at + 1}/{len(pieces)}) Undo {what} [{keys}]? ", "blue", bold=True)
    sys.stdout.write(prompt)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        output.echo("")
        return "q"
    return line.strip()[:1].lower()


def _chosen(pieces: Sequence[Piece]) -> HunkSelection:
    """Return the chosen paths and hunks. A file whose effective hunks are all chosen is undone whole."""
    chosen = HunkSelection()
    for file in dict.fromkeys(piece.file.path for piece in pieces):
        here = [piece for piece in pieces if piece.file.path == file]
        taken = [piece for piece in here if piece.is_chosen]
        is_rest = (
            all(piece.is_chosen or piece.is_gone for piece in here) and here[0].file.change == "modified"
        )
        if any(piece.number is None for piece in taken) or (taken and is_rest):
            chosen.paths.append(file)
        elif taken:
            chosen.hunks[file] = [piece.number for piece in taken if piece.number is not None]
    return chosen
