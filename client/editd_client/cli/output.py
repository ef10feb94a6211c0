"""The output of `editctl`: text for people, one JSON document for programs.

Uses colour and a pager on a terminal only. Text from files and other people (paths, messages) is
stripped of control characters before it reaches a terminal: by `plain` where it becomes a line, and once
more where a line is printed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from editd.wire.raw_text import has_bytes
from editd.words import Face, in_the_way, sentence
from editd_client.cli.binary_patch import without_binary_patches
from editd_client.errors import NAMES_MAX, refusal
from editd_client.file_text import INVISIBLE, UNKNOWN, readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from editd.advice import Advice
    from editd.wire.messages import ApplyResult, Change, FileResult, Message, RefusalEntry, Transaction
    from editd_client.errors import EditdError, Unreachable

LETTERS = {"added": "A", "modified": "M", "deleted": "D", "renamed": "R", "mode": "M"}
COLOURS = {"A": "green", "M": "yellow", "D": "red", "R": "cyan"}
DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f{INVISIBLE}]")  # they hide text, or control a terminal


def new_mark() -> str:
    """Return a text for the escape character in our own styles, until they are written.

    Nobody else knows it, so a file or a message cannot colour or hide a text.
    """
    return "\U0010fffd" + secrets.token_hex(8)


MARK = new_mark()
OUTSIDE = "outside"  # the actor of changes by other programs; the kind names it already
ID_DIGITS = 7  # git's length of a short id
COLUMN_WIDTH_MAX = 44  # characters; a longer text pushes its line to the right
SUBJECT_WIDTH_MIN = 20  # characters of kind, author and message; for them, a narrow terminal shows no age


def echo(text: str) -> None:
    """Print a text and a newline. Raises OutputError if it cannot be written."""
    with writing():
        sys.stdout.write(shown(text, sys.stdout) + "\n")


def page(lines: Iterable[str]) -> None:
    """Print the lines; on a terminal through a pager: EDITD_PAGER, then PAGER, then less."""
    pager = _pager() if sys.stdout.isatty() else None
    if pager is None:
        for line in lines:
            echo(line)
        return
    import subprocess

    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    with uninterrupted():
        started = subprocess.Popen(["sh", "-c", pager], stdin=subprocess.PIPE, env=environment)
        assert started.stdin is not None
        with contextlib.suppress(BrokenPipeError), started.stdin as pipe:  # the user may quit the pager early
            for line in lines:
                pipe.write(shown(line, sys.stdout).encode("utf-8", "surrogateescape") + b"\n")
        started.wait()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and Ctrl-\\ in this process while another program has the terminal.

    A program that is started meanwhile still reacts to them: of handlers it inherits only SIG_IGN.
    """
    numbers = [one for one in (signal.SIGINT, signal.SIGQUIT) if signal.getsignal(one) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: None) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            with contextlib.suppress(TypeError):  # it was not set from Python
                signal.signal(number, handler)


def _pager() -> str | None:
    """Return the user's pager, a command for the shell as in git, or None for no pager."""
    import shutil

    named = os.environ.get("EDITD_PAGER", os.environ.get("PAGER"))
    command = "less" if named is None else named.strip()
    if command in ("", "cat") or (named is None and shutil.which(command) is None):
        return None
    return command


def paint(text: str, colour: str | None, *, bold: bool = False, stream: TextIO | None = None) -> str:
    """Return the text in a colour if `stream` (standard output) is a terminal."""
    if (colour is None and not bold) or not is_coloured(stream or sys.stdout):
        return text
    return style(text, fg=colour, bold=bold or None)


def style(text: str, **styles: Any) -> str:
    """Return the text between marked styles of `click.style`, which `shown` makes real."""
    before, after = click.style("\0", **styles).replace("\x1b", MARK).split("\0")
    return before + text + after


def is_coloured(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that supports colour, and the user has not disabled it."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def plain(text: str, *, but: str = "") -> str:
    """Return the text with control and invisible characters shown as `\\x1b`; those in `but` stay."""
    return CONTROL.sub(lambda match: match[0] if match[0] in but else _escape(ord(match[0])), text)


def shown(text: str, stream: TextIO) -> str:
    """Return a text as `stream` gets it: a terminal without a control character but our own styles.

    A terminal gets a byte that is not UTF-8 as `\\xff`. A pipe or a file gets each byte as it is.
    """
    safe = readable(plain(text, but="\n\t")) if stream.isatty() else text
    return safe.replace(MARK, "\x1b")


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def has_terminal() -> bool:
    """Whether a person can be asked: standard input and output are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def check_terminal(what: str, hint: str = "") -> None:
    """Raise EditdError (`invalid_params`) if there is no person to answer."""
    if not has_terminal():
        raise refusal("invalid_params", f"{what} needs a terminal.", hint=hint)


def ask_key(prompt: str) -> str:
    """Ask for a key, and return it in lower case; empty for an empty line. The end of the input is `q`."""
    sys.stdout.write(shown(paint(prompt, "blue", bold=True), sys.stdout))
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        echo("")
        return "q"
    return line.strip()[:1].lower()


def print_keys(meanings: Mapping[str, str]) -> None:
    """Print the keys that answer a question."""
    for key, meaning in meanings.items():
        echo(paint(f"{key} - {meaning}", "red"))


# ── Transactions ──────────────────────────────────────────────────────────────────────────────


def _waits(proposal: Any) -> str:
    """Return the line of an edit that has become a proposal."""
    name, rule = paint(f"P{proposal.proposal}", "yellow"), plain(proposal.rule)
    if proposal.state == "draft":
        submit = f"`editctl proposal submit {proposal.proposal}` opens it for review"
        return f"[{name}] is a draft; nothing was changed. {submit}."
    if proposal.lands_after:
        checks = plain(", ".join(proposal.lands_after))
        return f"[{name}] lands by itself once {checks} has passed (rule: {rule}); nothing was changed yet"
    return f"[{name}] waits for a reviewer (rule: {rule}); nothing was changed"


def applied(result: ApplyResult, *, dry_run: bool) -> Iterator[str]:
    """Yield the report of an edit: the transaction, then one line a file."""
    if dry_run:
        yield paint("dry run: nothing was changed", None, bold=True)
        if rule := getattr(result.would_propose, "rule", None):
            yield f"This would wait for a reviewer (rule: {plain(rule)})."
    elif getattr(result.proposal, "state", None) in ("draft", "open") and result.transaction is None:
        yield _waits(result.proposal)
    elif result.transaction is None:
        yield "nothing to change"
    else:
        made = result.transaction
        yield f"[{_name(made)}] {_first_line(made.message) or _about(made)}"
    yield from file_lines(result.files)
    for path in result.merged:
        yield f"merged with the current content: {plain(path)}"
    for file in result.files:
        for other in file.changed_by if isinstance(file.changed_by, list) else ():
            yield f"{plain(file.path)} was changed since this session read it, by {one_line(other)}"
    yield from warning_lines(result)
    if dry_run:
        for file in result.files:
            yield from diff_lines(file.diff if isinstance(file.diff, str) else "")


def warning_lines(result: ApplyResult) -> Iterator[str]:
    """Yield the warnings of an edit and of its files."""
    for warning in [*result.warnings, *(warning for file in result.files for warning in file.warnings)]:
        yield paint(f"warning: {plain(warning)}", "magenta")


def file_lines(files: Sequence[FileResult] | Sequence[Change]) -> Iterator[str]:
    """Yield one line a file, as git does: ` M path`."""
    for file in files:
        if file.change is None:
            continue  # It was named, but is unchanged.
        letter = LETTERS[file.change]
        path = plain(file.path)
        if isinstance(file.from_, str):
            path = f"{plain(file.from_)} -> {path}"
        if file.change == "mode":
            path += " (executable)" if file.mode == "100755" else " (not executable)"
        yield f" {paint(letter, COLOURS[letter])} {path}"


def refused(entry: RefusalEntry) -> str:
    """Return a refused edit as a line of `log --refused`."""
    who = plain(entry.actor or "unknown") + (f" in {plain(entry.session)}" if entry.session else "")
    where = f", {plain(' '.join(entry.paths))}" if entry.paths else ""
    what = paint(f"refused {entry.method} by {who}", "red")
    return f"{what}{where}: {plain(entry.message.partition(chr(10))[0])}"


def one_line(transaction: Transaction, stream: TextIO | None = None) -> str:
    """Return a transaction as a line of `log --oneline`, for `stream` (standard output)."""
    message = _subject(transaction)
    about = f"{_name(transaction, stream)} {_about(transaction, stream)}"
    return f"{about}: {message}" if message else about


def columns(transactions: Sequence[Transaction]) -> Iterator[str]:
    """Yield the lines of `log --oneline` on a terminal: number and id, age, author, and message, aligned."""
    rows = [
        (str(one.seq), one.id[:ID_DIGITS], age(one.time), _about_plainly(one), _subject(one))
        for one in transactions
    ]
    widths = [min(max(map(len, column)), COLUMN_WIDTH_MAX) for column in zip(*rows, strict=True)]
    room = shutil.get_terminal_size().columns - (widths[0] + 1 + ID_DIGITS + 2)
    has_age = room - (widths[2] + 2) >= SUBJECT_WIDTH_MIN
    room = max(SUBJECT_WIDTH_MIN, room - (widths[2] + 2) * has_age)
    for seq, name, when, about, subject in rows:
        shown = _cut(about, room)
        gap = " " * max(2, widths[3] - len(about) + 2)
        yield (
            paint(f"{seq:>{widths[0]}} {name}", "yellow")
            + (f"  {when:<{widths[2]}}  " if has_age else "  ")
            + paint(shown, "cyan")
            + gap
            + _cut(subject, room - len(shown) - len(gap))
        ).rstrip()


def _cut(text: str, width: int) -> str:
    """Return the text, or its beginning and an ellipsis if it is wider; nothing without any room."""
    return text if len(text) <= width else f"{text[: width - 1]}…" if width > 0 else ""


def paragraph(transaction: Transaction, *, files: bool = True) -> Iterator[str]:
    """Yield a transaction in the form of `log`: author, time, message and files."""
    from datetime import datetime

    yield paint(f"transaction {transaction.seq}", "yellow") + f" {transaction.id}"
    when = f"{datetime.fromisoformat(transaction.time).astimezone():%a %Y-%m-%d %H:%M:%S %z}"
    if sys.stdout.isatty():
        when = f"{age(transaction.time)} ({when})"
    yield f"{_about(transaction)}, {when}"
    if transaction.message:
        yield ""
        yield from (f"    {plain(line)}" for line in transaction.message.splitlines())
    if transaction.files and files:
        yield ""
        yield from _touched_lines(transaction)
    if transaction.excluded:
        yield plain(f" contents not kept (history.exclude): {', '.join(transaction.excluded)}")
    if transaction.stays:
        yield plain(f" not sent to other hosts: {', '.join(transaction.stays)}")
    if transaction.kept_back:
        yield plain(f" not sent to other hosts: {transaction.kept_back}")
    for gap in transaction.forgotten or ():
        yield plain(f" {gap.version[:12]} ({gap.size:,} bytes) was forgotten at {gap.time} by {gap.actor}")


def diff_lines(diff: str, stream: TextIO | None = None) -> Iterator[str]:
    """Yield a diff's lines for `stream` (standard output): coloured, or unchanged off a terminal.

    On a terminal, one line stands for a binary patch.
    """
    is_terminal = (stream or sys.stdout).isatty()
    in_header = False
    lines: Iterable[str] = diff.removesuffix("\n").split("\n") if diff else ()
    if is_terminal and has_bytes(diff):
        yield UNKNOWN
    for line in without_binary_patches(lines) if is_terminal else lines:
        in_header = line.startswith("diff ") or (in_header and not line.startswith("@@"))
        colour = None if in_header else DIFF_COLOURS.get(line[:1])
        shown = plain(line, but="\t") if is_terminal else line
        yield paint(shown, colour, bold=in_header, stream=stream) if in_header or colour else shown


def _name(transaction: Transaction, stream: TextIO | None = None) -> str:
    return paint(f"{transaction.seq} {transaction.id[:ID_DIGITS]}", "yellow", stream=stream)


def _about(transaction: Transaction, stream: TextIO | None = None) -> str:
    return paint(_about_plainly(transaction), "cyan", stream=stream)


def _about_plainly(transaction: Transaction) -> str:
    """Return the kind and the actor, the transactions that it undoes, and the undo of this one."""
    about: str = transaction.kind
    if transaction.actor != OUTSIDE:
        about += f" by {plain(transaction.actor)}"
    if transaction.session:
        about += f" in {plain(transaction.session)}"
    if transaction.kind == "exec" and isinstance(transaction.candidates, list):
        about += ", in doubt"
    if transaction.undoes:
        about += f", of {', '.join(_undone(transaction))}"
    if isinstance(transaction.claims, list):
        about += f", of {', '.join(map(str, transaction.claims))}"
    if isinstance(transaction.claimed_by, int):
        about += f", claimed by {transaction.claimed_by}"
    if transaction.undone_by is not None:
        in_part = " in part" if isinstance(transaction.rest_on, str) else ""
        about += f", undone{in_part} by {transaction.undone_by}"
    elif by := sorted({file.undone_by for file in transaction.files if isinstance(file.undone_by, int)}):
        about += f", undone in part by {', '.join(map(str, by))}"
    if isinstance(transaction.number, int):
        about += f", @{transaction.number}"
        if isinstance(transaction.host, str):
            about += f" of {plain(transaction.host)}"
        if isinstance(transaction.rest_on, str):
            about += ", which keeps further files of it"
    if commit := getattr(transaction.published, "commit", ""):
        about += f", published as {commit[:ID_DIGITS]}"
    return about


def _undone(transaction: Transaction) -> Iterator[str]:
    """Yield the numbers of the transactions that an undo undid, with a mark if it was only in part."""
    parts = transaction.parts if isinstance(transaction.parts, list) else []
    in_part = {part.seq for part in parts}
    yield from (f"{seq} in part" if seq in in_part else str(seq) for seq in transaction.undoes)


def _touched_lines(transaction: Transaction) -> Iterator[str]:
    """Yield the files of a transaction; in one that is undone in part, with the undo of each."""
    for file in transaction.files:
        for line in file_lines([file]):
            is_part = transaction.undone_by is None and isinstance(file.undone_by, int)
            yield f"{line} (undone by {file.undone_by})" if is_part else line


def _subject(transaction: Transaction) -> str:
    return _first_line(transaction.message) or _paths(transaction)


def _paths(transaction: Transaction) -> str:
    """Return the touched paths, in place of a message. Empty for an undo, whose number is enough."""
    if transaction.undoes or not transaction.files:
        return ""
    more = len(transaction.files) - 1
    return plain(transaction.files[0].path) + (f" and {more} more" if more else "")


def _first_line(message: str) -> str:
    return plain(message.partition("\n")[0])


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────


def json_text(result: Message | dict[str, Any]) -> str:
    """Return the result as one JSON document: indented on a terminal, otherwise on one line.

    Text with bytes that are not UTF-8 is `{"base64": …}`, as in the protocol.
    """
    import msgspec

    from editd.wire.codec import encode_json

    document = encode_json(result)
    if not sys.stdout.isatty():
        return document.decode()
    text = msgspec.json.format(document).decode()
    return re.sub("[\x7f-\x9f]", lambda match: f"\\u{ord(match[0]):04x}", text)


def local_time(time: str) -> str:
    """Return a time of the protocol in the local zone, to the second."""
    from datetime import datetime

    return f"{datetime.fromisoformat(time).astimezone():%Y-%m-%d %H:%M:%S}"


def age(time: str) -> str:
    """Return the age of a time of the protocol, as in `5 minutes ago`."""
    from datetime import UTC, datetime

    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())
    unit, length = max(
        (unit for unit in _UNITS if unit[1] == 1 or seconds >= 2 * unit[1]), key=lambda unit: unit[1]
    )
    number = int(seconds // length)
    return f"{number} {unit}{'' if number == 1 else 's'} ago"


_UNITS = (  # an age is given in the largest unit that fits twice or more
    ("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 604_800), ("month", 2_592_000),
    ("year", 31_536_000),
)  # fmt: skip


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────


def print_refusal(error: EditdError, *, as_json: bool) -> None:
    """Print the refusal and the next step on standard error, or as a JSON document."""
    if as_json:
        _say_json_error(error.code, error.name, error.message, error.data)
        return
    print_error(_title("editctl: ", "red") + plain(error.fact, but="\n\t"))
    _print_advice(error.advice)
    for line in _particulars(error):
        print_error(line)


def print_unreachable(error: Unreachable, *, as_json: bool) -> None:
    """Print that there is no daemon, in the same two forms."""
    if as_json:
        _say_json_error(None, "unreachable", f"{error.message} {error.hint}".strip(), {})
        return
    print_error(_title("editctl: ", "red") + plain(error.message))
    _print_advice(error.advice)


def _print_advice(advice: Advice) -> None:
    hint = sentence(advice, Face.COMMAND_LINE)
    if hint:
        print_error(_title("hint: ", "yellow") + plain(hint, but="\n\t"))


def _particulars(error: EditdError) -> Iterator[str]:
    """Yield the part of a refusal's data for a person."""
    data = error.data
    if error.name == "stale":
        yield from _changes_since(data)
    if error.name == "conflict":
        files = data.get("files", ())
        for file in files[:NAMES_MAX]:
            yield from _collisions(file)
        if len(files) > NAMES_MAX:
            yield f"  and {len(files) - NAMES_MAX} more (--json has all)"
    nearest = data.get("nearest")
    if isinstance(nearest, dict):
        yield f"nearest passage, line {nearest.get('start_line')}:"
        yield from ("  " + plain(line, but="\t") for line in str(nearest.get("text", "")).splitlines())


def _collisions(file: dict[str, Any]) -> Iterator[str]:
    """Yield the blocking transactions of a file, and the lines in conflict."""
    blocking = file.get("blocking", ())
    yield f"  {plain(str(file.get('path')))}" + (f", {in_the_way(blocking)}" if blocking else "")
    for hunk in file.get("hunks", ()):
        yield from diff_lines(hunk, sys.stderr)


def _changes_since(data: dict[str, Any]) -> Iterator[str]:
    """Yield the transactions since the base of a stale edit, and their diff."""
    from editd.wire.codec import convert
    from editd.wire.messages import Transaction

    for transaction in convert(data.get("changed_by", []), list[Transaction]):
        yield f"changed by {one_line(transaction, sys.stderr)}"
    yield from diff_lines(data.get("diff") or "", sys.stderr)


def _title(word: str, colour: str) -> str:
    return paint(word, colour, bold=True, stream=sys.stderr)


def _say_json_error(code: int | None, name: str, message: str, data: dict[str, Any]) -> None:
    echo(json_text({"error": {"code": code, "name": name, "message": message, "data": data}}))


# Standard input, output and error: closed descriptors, a full disk, a reader that left.


class OutputError(Exception):
    """The answer could not be written, although the request was carried out."""


def open_closed_descriptors() -> None:
    """Open /dev/null on each closed descriptor of 0, 1 and 2, so that no other file gets its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Convert an error of writing standard output during the block to an OutputError."""
    try:
        yield
    except OSError as error:
        # A reader that stops early is no failure. An error with a file name comes from another file.
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise
        raise OutputError(error.strerror) from error


def flush() -> None:
    """Flush standard output. Raises OutputError if it cannot be written."""
    with writing():
        sys.stdout.flush()


def print_error(line: str) -> None:
    """Print a line on standard error, and ignore failure: the request was carried out anyway."""
    with contextlib.suppress(OSError):
        sys.stderr.write(shown(line, sys.stderr) + "\n")
        sys.stderr.flush()


def abandon() -> None:
    """Keep Python from flushing unwritable output once more at its exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
