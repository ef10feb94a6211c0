"""The verbs that show contents, `read`, `diff` and `blame`, and the parts of a diff that other verbs need.

Those are its counts of lines, and its hunks: by their names on the command line, or chosen on a terminal.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from editd.words import in_the_way
from editd_client.cli import output
from editd_client.cli.binary_patch import binary_change, delta_target
from editd_client.cli.options import as_json, parse_transaction
from editd_client.errors import EditdError
from editd_client.file_text import text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.wire.messages import BlameLine, BlameResult, Change, ShowResult, Tx
    from editd_client.cli.invocation import Invocation
    from editd_client.client import Client


@click.command("read")
@click.argument("path")
@click.option(
    "--at", metavar="TX", help="Transaction after which to read the file (default: now). 0 is the baseline."
)
@as_json
@click.pass_obj
def read_verb(invocation: Invocation, path: str, at: str | None) -> None:
    """Print a file, current or as of a transaction.

    Prints it byte for byte, but on a terminal without control characters. With --json, also prints
    its version (for --base of an edit), its encoding and its line ends.

    \b
    Examples:
      editctl read src/app.py
      editctl read src/app.py --at 12 | diff - src/app.py
      editctl read src/app.py --json | jq -r .version
    """
    with invocation.client() as client:
        result = client.read(invocation.path(path), at=None if at is None else parse_transaction(at))
    if not invocation.say_json(result):
        with output.writing():
            sys.stdout.flush()
            text = text_of(result) if sys.stdout.isatty() else result.content
            content = output.shown(text, sys.stdout)
            sys.stdout.buffer.write(content.encode("utf-8", "surrogateescape"))
            sys.stdout.buffer.flush()


TRANSACTION = r"\d{1,19}|[0-9a-f]{4,40}|@\d{1,15}"
LOG_LIMIT = 1000
RANGE = re.compile(rf"(?P<before>{TRANSACTION})(?:\.\.(?P<after>{TRANSACTION})?)?")
UNTIL = re.compile(rf"\.\.(?P<after>{TRANSACTION})")


@click.command("diff")
@click.argument("words", nargs=-1, metavar="[TX | A..B] [PATH]...")
@as_json
@click.pass_obj
def diff_verb(invocation: Invocation, words: tuple[str, ...]) -> None:
    """Show the changes between transactions, or since the newest.

    A..B is between two transactions, and ..B is from the baseline on. TX alone, or TX.., is from TX
    to the current files. Without either, it is the changes of other programs since the newest
    requested transaction. Off a terminal, the output is a patch for `editctl patch` and `git
    apply`. Write ./12 for a file that is named like a transaction. @17 is entry 17 of the log that
    several hosts share.

    \b
    Examples:
      editctl diff
      editctl diff 12
      editctl diff 12..15 src/
      editctl diff 12 > since.patch
    """
    before, after, paths = _parse(words)
    with invocation.client() as client:
        if before is None:
            before = _newest_asked_for(client)
        decoded = not invocation.json and sys.stdout.isatty()
        result = client.diff(before, after, paths=invocation.paths(paths), decoded=decoded)
        for path in paths:
            invocation.check_known(client, path)
    if not invocation.say_json(result):
        output.page(output.diff_lines(result.diff))


def _newest_asked_for(client: Client) -> int:
    """Return the newest transaction that a client requested; 0, the baseline, if there is none."""
    before: int | None = None
    while True:
        part = client.log(limit=LOG_LIMIT, before=before)
        for transaction in part.transactions:
            if transaction.kind != "outside":
                return transaction.seq
        if not part.more:
            return 0
        before = part.transactions[-1].seq


def _parse(words: tuple[str, ...]) -> tuple[Tx | None, Tx | None, tuple[str, ...]]:
    """Return the first and the last transaction, each None if not named, and the paths."""
    until = UNTIL.fullmatch(words[0]) if words else None
    if until is not None:
        return 0, parse_transaction(until["after"]), words[1:]
    named = RANGE.fullmatch(words[0]) if words else None
    if named is None:
        return None, None, words
    before, after = named["before"], named["after"]
    return parse_transaction(before), None if after is None else parse_transaction(after), words[1:]


TRIES_MAX = 10  # while another program keeps writing the file
WHO_CHARACTERS_MAX = 24


@click.command("blame")
@click.argument("path")
@click.option("-L", "lines", metavar="FROM,TO", help="Only these lines, also as FROM,+COUNT.")
@as_json
@click.pass_obj
def blame_verb(invocation: Invocation, *, path: str, lines: str | None) -> None:
    """Show the author and transaction of each line of a file.

    Follows moves of the file. Transaction 0 is the baseline, the content when editd first scanned the
    workspace. A line that an undo brings back keeps its first author. If several hosts share the workspace,
    @N is the entry of their log, which is the same on all of them.

    \b
    Examples:
      editctl blame src/app.py
      editctl blame -L 10,20 src/app.py
      editctl blame --json src/app.py | jq '.lines[] | select(.actor == "claude") | .line'
    """
    from msgspec.structs import replace

    first, last = (1, None) if lines is None else _range_of(lines)
    with invocation.client() as client:
        if invocation.json:
            result = client.blame(invocation.path(path))
            _check_range(first, result, path)
            invocation.say_json(replace(result, lines=result.lines[first - 1 : last]))
        else:
            result, texts = _with_text(client, invocation.path(path))
            _check_range(first, result, path)
            part = replace(result, lines=result.lines[first - 1 : last])
            output.page(_blame_rows(part, texts[first - 1 : last]))


def _range_of(text: str) -> tuple[int, int | None]:
    """Return the first and the last line of `FROM,TO`, `FROM,+COUNT`, `FROM` or `,TO`."""
    start, _, end = text.partition(",")
    is_count = end.startswith("+")
    numbers = [start or "1", end.removeprefix("+") or "0"]
    if not all(number.isdecimal() for number in numbers) or int(numbers[0]) < 1 or text == ",":
        raise click.BadParameter(f"-L: {text!r} is no range of lines, such as 10,20 or 10,+5.")
    first, second = map(int, numbers)
    last = first + second - 1 if is_count else second or None
    if last is not None and last < first:
        raise click.BadParameter(f"-L: {text!r} ends before it begins.")
    return first, last


def _check_range(first: int, result: BlameResult, path: str) -> None:
    count = len(result.lines)
    if first > max(1, count):
        raise click.BadParameter(f"-L: {path} has {count} line{'s' * (count != 1)}.")


def _with_text(client: Client, path: str) -> tuple[BlameResult, list[str]]:
    """Return the result and the lines of the same version. Ask again if the file changes in between."""
    result, read = client.blame(path), client.read(path)
    for _ in range(TRIES_MAX):
        if read.version == result.version:
            return result, text_of(read).split("\n")
        result, read = client.blame(path), client.read(path)
    return result, ["" for _ in result.lines]


def _blame_rows(result: BlameResult, texts: list[str]) -> Iterator[str]:
    who = [_who(line) for line in result.lines]
    name_width = min(max(map(len, who), default=0), WHO_CHARACTERS_MAX)
    seq_width = max((len(_name(line)) for line in result.lines), default=0)
    number_width = len(str(len(result.lines)))
    for line, name, text in zip(result.lines, who, texts, strict=False):
        seq = output.paint(f"{_name(line):>{seq_width}}", "yellow")
        shown = output.paint(f"{name[:WHO_CHARACTERS_MAX]:<{name_width}}", "cyan")
        yield f"{seq} {shown} {_when(line.time)} {line.line:>{number_width}}) {_on_a_terminal(text)}"
    if isinstance(result.gaps, list):
        gaps = ", ".join(map(str, result.gaps))
        output.print_error(f"A content before {gaps} was forgotten: lines of it may be older than shown.")


def _on_a_terminal(text: str) -> str:
    return output.plain(text, but="\t") if sys.stdout.isatty() else text


def _name(line: BlameLine) -> str:
    """Return the name of a line's transaction: its entry in the log of several hosts, or its number here."""
    return f"@{line.number}" if isinstance(line.number, int) else str(line.seq)


def _who(line: BlameLine) -> str:
    if (line.number if isinstance(line.number, int) else line.seq) == 0:
        return "baseline"
    if line.session is not None:  # it has the host
        return output.plain(f"{line.actor} in {line.session}")
    return output.plain(f"{line.actor} on {line.host}" if isinstance(line.host, str) else line.actor)


def _when(time: str) -> str:
    from datetime import datetime

    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M}"


# The choice among the hunks of a transaction.

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


def parse_hunks(invocation: Invocation, texts: Sequence[str]) -> dict[str, list[int]]:
    """Return the hunks that `--hunk PATH:K` names, by path."""
    named: dict[str, list[int]] = {}
    for text in texts:
        path, _, numbers = text.rpartition(":")
        if not path or not NUMBERS.fullmatch(numbers):
            raise click.BadParameter(f"{text!r} is not PATH:K, such as src/app.py:2.", param_hint="'--hunk'")
        named.setdefault(invocation.path(path), []).extend(map(int, numbers.split(",")))
    return named


def hunk_lines(invocation: Invocation, result: ShowResult) -> Iterator[str]:
    """Yield each hunk of a transaction, under its name for `undo --hunk`."""
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
    tx = transaction or "TX"
    output.check_terminal(
        "-i",
        f"Name the hunks: `editctl show {tx} --hunks` lists them, `editctl undo {tx} --hunk PATH:K` undoes "
        "one.",
    )


def choose(client: Client, tx: Tx, paths: Sequence[str] | None) -> HunkSelection:
    """Ask for each hunk of a transaction, or of `paths` in it, whether to undo it."""
    result = client.show(tx, diff=False, hunks=True, decoded=True)
    pieces = list(_pieces(result, paths))
    _ask(client, result.transaction.seq, pieces)
    return _selection(pieces)


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
            for line in (*_shown_piece(piece, shown), *in_the_way):
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
            output.print_keys(KEYS)


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
        output.paint(f"does not merge, {in_the_way(one.blocking)}", "red") for one in result.conflicts or ()
    ]


def _shown_piece(piece: Piece, before: Piece | None) -> Iterator[str]:
    if before is None or before.file is not piece.file:
        yield from output.file_lines([piece.file])
    yield from output.diff_lines(piece.diff)


def _answer(pieces: list[Piece], at: int, *, has_next: bool, has_previous: bool) -> str:
    """Ask once, and return the key as `output.ask_key` does."""
    keys = ",".join(key for key in KEYS if (key != "j" or has_next) and (key != "k" or has_previous))
    subject = "this hunk" if pieces[at].number is not None else "all changes of this file"
    return output.ask_key(f"({at + 1}/{len(pieces)}) Undo {subject} [{keys}]? ")


def _selection(pieces: Sequence[Piece]) -> HunkSelection:
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


# Counts of added and removed lines, made from a diff as the daemon prints it.

GRAPH_WIDTH = 40  # characters for `+++--` of the file with the most changes
_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class DiffStat:
    """The changed lines of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.added = 0
        self.removed = 0
        self.is_binary = False
        self.sizes: list[int] = []  # of a binary file, in bytes: the new one, then the old one

    @property
    def binary_text(self) -> str:
        """The change of a binary file in words."""
        return binary_change(self.sizes)


def stats_of(diff: str) -> list[DiffStat]:
    """Return the counts of each file in a diff.

    A line counts only inside a hunk, whose header says how long it is: content may look like a header.
    """
    stats: list[DiffStat] = []
    old = new = 0  # lines of the hunk that are still to come
    is_delta = False  # the line is the first one of a binary delta
    for line in diff.split("\n"):
        if is_delta:
            stats[-1].sizes.append(delta_target(line))
            is_delta = False
        elif old > 0 or new > 0:
            stats[-1].removed += line[:1] == "-"
            stats[-1].added += line[:1] == "+"
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
        elif line.startswith("diff --git "):
            stats.append(DiffStat(_name_in(line)))
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1] or 1), int(hunk[2] or 1)
        elif line.startswith("rename from ") and stats:
            stats[-1].name = line.removeprefix("rename from ")
        elif line.startswith("rename to ") and stats:
            stats[-1].name += " => " + line.removeprefix("rename to ")
        elif line.startswith(("Binary files ", "GIT binary patch")) and stats:
            stats[-1].is_binary = True
        elif stats and stats[-1].is_binary and line.startswith("literal "):
            stats[-1].sizes.append(int(line.removeprefix("literal ")))
        elif stats and stats[-1].is_binary and line.startswith("delta "):
            is_delta = True
    return stats


def stat_lines(diff: str) -> Iterator[str]:
    """Yield the lines of `--stat`: one for each file, and the sum."""
    stats = stats_of(diff)
    if not stats:
        return
    width = max(len(output.plain(stat.name)) for stat in stats)
    most = max(stat.added + stat.removed for stat in stats)
    digits = len(str(most))
    for stat in stats:
        name = output.plain(stat.name).ljust(width)
        if stat.is_binary:
            yield f" {name} | {stat.binary_text}"
            continue
        scale = min(1.0, GRAPH_WIDTH / most) if most else 1.0
        plus, minus = (-(-int(count * scale * 1000) // 1000) for count in (stat.added, stat.removed))
        graph = output.paint("+" * plus, "green") + output.paint("-" * minus, "red")
        yield f" {name} | {stat.added + stat.removed:>{digits}} {graph}".rstrip()
    yield " " + summary(len(stats), sum(s.added for s in stats), sum(s.removed for s in stats))


def summary(files: int, added: int, removed: int) -> str:
    """Return the sum of a change, as git words it."""
    parts = [f"{files} file{'' if files == 1 else 's'} changed"]
    if added or not removed:
        parts.append(f"{added} insertion{'' if added == 1 else 's'}(+)")
    if removed or not added:
        parts.append(f"{removed} deletion{'' if removed == 1 else 's'}(-)")
    return ", ".join(parts)


def _name_in(header: str) -> str:
    """Return the file's new name in `diff --git a/NAME b/NAME`, whose halves are alike but for a rename."""
    names = header.removeprefix("diff --git ")
    if names.startswith('"'):
        return names[: len(names) // 2].strip('"').removeprefix("a/")
    return names[: len(names) // 2].removeprefix("a/")
