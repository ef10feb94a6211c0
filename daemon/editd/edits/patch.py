"""Patches: unified diffs and git diffs, parsed into the changes of each file.

Patches are parsed as bytes, so that lines keep their encoding and line ends. Text between the files'
diffs (a commit message, `Index:` lines) is skipped. A malformed part of a diff is refused with its line.
A patch that a mailer converted to CRLF is recognized by its headers, and converted back.

Never touches a file: `apply_to` takes the content of the path.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING

from msgspec import Struct, field

from editd.advice import Advice, operation_term
from editd.edits.binary import Binary, apply_delta, parse_binary
from editd.edits.diff import AppliedPatch, PatchHunk, apply_hunks
from editd.errors import MalformedEdit, NoMatch
from editd.values.content import SYMLINK, GitMode, mode_of, version_of
from editd.values.path import WorkspacePath

if TYPE_CHECKING:
    from collections.abc import Sequence


class FilePatch(Struct, frozen=True):
    """The changes of one file in a patch. A new file has no `source`, a deleted one no `target`."""

    line: int  # of its header in the patch, from 1
    source: WorkspacePath | None
    target: WorkspacePath | None
    hunks: tuple[PatchHunk, ...] = ()
    binary: Binary | None = None
    mode: GitMode | None = None  # the new mode, if the patch has one
    is_copy: bool = False
    is_symlink: bool = False  # for the link itself, with its target as content
    base: str = ""  # the version that the patch is for, abbreviated as in the index line

    @property
    def is_utf8(self) -> bool:
        """Whether the lines of its hunks are UTF-8."""
        lines = b"".join(text for hunk in self.hunks for _, text in hunk.lines)
        try:
            lines.decode("utf-8")
        except UnicodeDecodeError:
            return False
        return self.binary is None

    @property
    def is_move(self) -> bool:
        """Whether this is a rename or a copy."""
        return self.source is not None and self.target is not None and self.source != self.target


def parse(patch: str) -> tuple[FilePatch, ...]:
    """Parse `patch` into its files, in their order.

    Raises MalformedEdit with `data.line` for a malformed patch, and the errors of WorkspacePath.parse.
    """
    reader = _Reader.over(patch)
    files: list[FilePatch] = []
    while not reader.is_at_end:
        line = reader.peek()
        if line.startswith(b"diff --git "):
            files.append(_git_diff(reader))
        elif _begins_plain_diff(reader):
            files.append(_plain_diff(reader))
        elif line.startswith((b"diff --cc ", b"diff --combined ")):
            raise reader.refusal("This is a combined diff of a merge", "Make it against one parent.")
        elif line.startswith(b"@@"):
            raise reader.refusal(
                "The hunk has no file header before it",
                "Begin each file with `--- a/path` and `+++ b/path`, each hunk with `@@ -1,3 +1,4 @@`.",
            )
        else:
            reader.take()
    if not files:
        raise MalformedEdit(
            "There is no diff in the patch.",
            hint="Send a unified diff: `--- a/path`, `+++ b/path`, then hunks such as `@@ -1,3 +1,4 @@`.",
            data={"line": 1},
        )
    return tuple(files)


def apply_to(content: bytes, file: FilePatch, *, fuzz: int = 0) -> AppliedPatch:
    """Apply `file` to the content of its source (b"" for a new file).

    Raises NoMatch if a hunk does not match, or if a deleted file has more lines than the patch removes.
    """
    path = (file.source or file.target or WorkspacePath("the file")).text
    if file.binary is not None:
        applied = AppliedPatch(_binary(content, file, file.binary, path), ())
    else:
        applied = apply_hunks(content, file.hunks, fuzz=fuzz, path=path)
    if file.target is None and applied.content:
        raise NoMatch(
            f"{path} has more lines than the patch deletes.",
            hint=Advice("Read the file again, or remove all of it with ", operation_term("delete"), "."),
            data={"path": path, "line": file.line},
        )
    return applied


def _binary(content: bytes, file: FilePatch, binary: Binary, path: str) -> bytes:
    current = version_of(content) if file.source else "0" * 40
    if file.base != current:
        if len(file.base) != 40:
            raise MalformedEdit(
                f"The binary patch of {path} does not name its base version in full.",
                hint="Make the patch with `git diff --binary`.",
                data={"line": file.line},
            )
        raise NoMatch(
            f"The binary patch of {path} is for version {file.base[:12]}, which is not current.",
            hint="Read the file again, and make the patch for its current content.",
            data={"path": path, "line": file.line, "base": file.base, "current": current},
        )
    return apply_delta(content, binary) if binary.is_delta else binary.content


# ── Lines ──────────────────────────────────────────────────────────────────────────────────────


class _Reader(Struct):
    """The patch's lines, each with its line end, and the reading position."""

    lines: Sequence[bytes]
    position: int = 0

    @classmethod
    def over(cls, patch: str) -> _Reader:
        try:
            content = patch.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise MalformedEdit(
                "The patch holds a surrogate that encodes no byte.", data={"line": 1}
            ) from None
        *ended, last = content.split(b"\n")
        return cls([line + b"\n" for line in [*ended, *([last] if last else [])]])

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self.lines)

    @property
    def number(self) -> int:
        """The number of the next line, from 1."""
        return self.position + 1

    def peek(self, ahead: int = 0) -> bytes:
        index = self.position + ahead
        return self.lines[index] if index < len(self.lines) else b""

    def take(self) -> bytes:
        line = self.peek()
        self.position += 1
        return line

    def refusal(self, message: str, hint: str, *, line: int | None = None) -> MalformedEdit:
        number = line or min(self.number, max(len(self.lines), 1))
        return MalformedEdit(f"{message} (line {number} of the patch).", hint=hint, data={"line": number})


# ── The diff of one file ───────────────────────────────────────────────────────────────────────

_EXTENDED = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index|encoding) (.*?)\r?\n"
)
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.[0-9a-f]{4,64}(?: ([0-7]{6}))?")


def _git_diff(reader: _Reader) -> FilePatch:
    first = reader.number
    header = reader.take()
    is_prefixed, named = _header_names(header.removeprefix(b"diff --git ").rstrip(b"\r\n"), reader)
    headers: dict[bytes, bytes] = {}
    while match := _EXTENDED.fullmatch(reader.peek()):
        headers[match[1]] = match[2]
        reader.take()
    source = target = named
    if _begins_plain_diff(reader):
        source, target = (_without_prefix(name.path, is_prefixed) for name in _plain_names(reader))
    is_moved = b"rename from" in headers or b"copy from" in headers
    if is_moved:
        source, target = (_moved_name(headers, side, reader) for side in (b"from", b"to"))
    source = None if b"new file mode" in headers else source
    target = None if b"deleted file mode" in headers else target
    if (source is None and target is None) or (not is_moved and source and target and source != target):
        raise reader.refusal(
            "The diff's header does not name exactly one file",
            "Name the same file twice, or add `rename from` and `rename to`.",
            line=first,
        )
    index = _INDEX.fullmatch(headers.get(b"index", b""))
    old_mode, mode = _modes(headers, index[2] if index else None, reader, first)
    binary = _binary_part(reader)
    hunks = () if binary else _hunks(reader, is_crlf=header.endswith(b"\r\n"))
    if not (binary or hunks or is_moved or mode or b"deleted file mode" in headers):
        hint = "Leave the file out, or add its hunks."
        raise reader.refusal("The diff changes nothing", hint, line=first)
    return FilePatch(
        line=first,
        source=_parse_path(source),
        target=_parse_path(target),
        hunks=hunks,
        binary=binary,
        mode=mode,
        is_copy=b"copy from" in headers,
        is_symlink=(old_mode or mode) == SYMLINK,
        base=index[1].decode() if index else "",
    )


def _modes(
    headers: dict[bytes, bytes], indexed: bytes | None, reader: _Reader, line: int
) -> tuple[GitMode | None, GitMode | None]:
    """Return the old and the new mode of a git diff; `indexed` is from its line `index`."""
    old = headers.get(b"old mode", headers.get(b"deleted file mode", indexed))
    new = headers.get(b"new file mode", headers.get(b"new mode"))
    old_mode = _mode(old, reader, line) if old else None
    return old_mode, _mode(new, reader, line) if new else None


def _plain_diff(reader: _Reader) -> FilePatch:
    """Parse a diff without git's header; its two names mean one file, possibly missing before or after."""
    first = reader.number
    is_crlf = reader.peek().endswith(b"\r\n")
    old, new = _plain_names(reader)
    # One name is enough if the other is /dev/null.
    is_prefixed = (old.path or b"a/").startswith(b"a/") and (new.path or b"b/").startswith(b"b/")
    source, target = (_without_prefix(name.path, is_prefixed) for name in (old, new))
    if source is not None and target is not None:
        # Like patch(1), take the plain name of `x.orig` and `x`.
        source = target = min(target, source, key=lambda name: (name.count(b"/"), len(name)))
    source, target = (None if old.is_missing else source), (None if new.is_missing else target)
    hunks = _hunks(reader, is_crlf=is_crlf)
    if not hunks or (source is None and target is None):
        raise reader.refusal(
            "The diff names files and has no hunk"
            if not hunks
            else "The diff is between no file and no file",
            "Follow `--- a/path` and `+++ b/path` with hunks that begin with `@@ -1,3 +1,4 @@`.",
            line=first,
        )
    return FilePatch(line=first, source=_parse_path(source), target=_parse_path(target), hunks=hunks)


def _mode(raw: bytes, reader: _Reader, line: int) -> GitMode:
    try:
        mode = int(raw, 8)
    except ValueError:
        mode = 0
    if not (stat.S_ISREG(mode) or mode == SYMLINK):
        shown = raw.decode("utf-8", "replace")
        raise reader.refusal(f"{shown} is not the mode of a file", "Leave submodules out.", line=line)
    return mode_of(mode)


def _binary_part(reader: _Reader) -> Binary | None:
    line = reader.peek()
    if line.startswith((b"Binary files ", b"Files ")) and line.rstrip().endswith(b"differ"):
        raise reader.refusal(
            "The patch has no content for a binary file",
            "Make it with `git diff --binary`, or use `write`.",
        )
    if line.rstrip() != b"GIT binary patch":
        return None
    reader.take()
    binary, count = parse_binary(reader.lines[reader.position :], reader.number)
    reader.position += count
    return binary


# ── Names ──────────────────────────────────────────────────────────────────────────────────────

# The time in diff's `--- name<tab>time` for a missing file (diff -N): the epoch, in any time zone.
_EPOCH = re.compile(rb"(1970-01-01|1969-12-31) ")
_QUOTED = re.compile(rb'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb'\\([abtnvfr"\\]|[0-3][0-7]{2}|.)', re.DOTALL)
_ESCAPED = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))
_PREFIXES = b"abciow12"  # a/ and b/, and the prefixes of diff.mnemonicPrefix


class _Name(Struct, frozen=True):
    """The content of a `---` or `+++` line: a name, None for /dev/null, and the time after it."""

    path: bytes | None
    time: bytes = field(default=b"")

    @property
    def is_missing(self) -> bool:
        return self.path is None or _EPOCH.match(self.time) is not None


def _begins_plain_diff(reader: _Reader) -> bool:
    return reader.peek().startswith(b"--- ") and reader.peek(1).startswith(b"+++ ")


def _plain_names(reader: _Reader) -> tuple[_Name, _Name]:
    return _plain_name(reader), _plain_name(reader)


def _plain_name(reader: _Reader) -> _Name:
    rest = reader.peek()[4:].rstrip(b"\r\n")
    if quoted := _QUOTED.match(rest):
        name, time = _unquote(quoted[1], reader), rest[quoted.end() :].strip()
    else:
        name, _, time = rest.partition(b"\t")
    reader.take()
    return _Name(None if name == b"/dev/null" else name, time)


def _header_names(rest: bytes, reader: _Reader) -> tuple[bool, bytes | None]:
    """Parse the names in `diff --git X Y`: whether they have prefixes, and the name if both are the same.

    Spaces in unquoted names make the split ambiguous. So only two equal names can be read, split in the
    middle (git's apply.c, `git_header_name`).
    """
    if quoted := _QUOTED.match(rest):
        left, right = _unquote(quoted[1], reader), rest[quoted.end() + 1 :]
    elif rest.endswith(b'"') and (at := rest.find(b' "')) > 0:
        left, right = rest[:at], rest[at + 1 :]
    else:
        middle = len(rest) // 2
        left, right = rest[:middle], rest[middle + 1 :]
    if quoted := _QUOTED.fullmatch(right):
        right = _unquote(quoted[1], reader)
    if left == right:
        return False, left
    if left[1:] == right[1:] and left[1:2] == b"/" and left[0] in _PREFIXES and right[0] in _PREFIXES:
        return True, left[2:]
    return rest.lstrip(b'"').startswith(b"a/") and (b" b/" in rest or b' "b/' in rest), None


def _moved_name(headers: dict[bytes, bytes], side: bytes, reader: _Reader) -> bytes:
    name = headers.get(b"rename " + side, headers.get(b"copy " + side))
    if name is None:
        raise reader.refusal("A rename or copy needs both `from` and `to`", "Add the missing line.")
    quoted = _QUOTED.fullmatch(name)
    return _unquote(quoted[1], reader) if quoted else name


def _unquote(name: bytes, reader: _Reader) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if len(escape) == 3:
            return bytes([int(escape, 8)])
        if escape[0] not in _ESCAPED:
            raise reader.refusal("A quoted name holds an unknown escape", "Quote names as git does.")
        return bytes([_ESCAPED[escape[0]]])

    return _ESCAPE.sub(plain, name)


def _without_prefix(name: bytes | None, is_prefixed: bool) -> bytes | None:
    return name[2:] if name is not None and is_prefixed and name[1:2] == b"/" else name


def _parse_path(name: bytes | None) -> WorkspacePath | None:
    return None if name is None else WorkspacePath.parse(name.decode("utf-8", "surrogateescape"))


# ── Hunks ──────────────────────────────────────────────────────────────────────────────────────

_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")


def _hunks(reader: _Reader, *, is_crlf: bool) -> tuple[PatchHunk, ...]:
    hunks: list[PatchHunk] = []
    while match := _HUNK.match(reader.peek()):
        hunks.append(_hunk(reader, match, len(hunks) + 1, is_crlf))
    if reader.peek().startswith(b"@@"):
        raise reader.refusal("A hunk's header has no line numbers", "Write it as `@@ -1,3 +1,4 @@`.")
    # Without this check, a line beyond the header's counts would be dropped silently.
    is_left_over = reader.peek()[:1] in (b"+", b"-", b" ") and reader.peek().rstrip() != b"--"
    if hunks and is_left_over and not _begins_plain_diff(reader):
        raise reader.refusal(
            f"Hunk {len(hunks)} has more lines than its header counts",
            "Correct the counts in `@@ -start,count +start,count @@`.",
        )
    return tuple(hunks)


def _hunk(reader: _Reader, match: re.Match[bytes], number: int, is_crlf: bool) -> PatchHunk:
    first = reader.number
    old, new = (1 if match[group] is None else int(match[group]) for group in (2, 4))
    reader.take()
    lines: list[tuple[bytes, bytes]] = []
    while old > 0 or new > 0:
        sign, text = _hunk_line(reader, number)
        old -= sign != b"+"
        new -= sign != b"-"
        if old < 0 or new < 0:
            reader.position -= 1
            raise reader.refusal(
                f"Hunk {number} has other lines than its header counts",
                "Correct the counts in `@@ -start,count +start,count @@`.",
            )
        if is_crlf and text.endswith(b"\r\n"):
            text = text[:-2] + b"\n"
        if reader.peek().startswith(b"\\ "):  # \ No newline at end of file
            text = text.removesuffix(b"\n")
            reader.take()
        lines.append((sign, text))
    return PatchHunk(number, first, int(match[1]), tuple(lines))


def _hunk_line(reader: _Reader, number: int) -> tuple[bytes, bytes]:
    line = reader.peek()
    if line in (b"\n", b"\r\n"):
        sign, text = b" ", line  # an empty context line whose space was trimmed away
    elif line[:1] in (b" ", b"-", b"+"):
        sign, text = line[:1], line[1:]
    else:
        raise reader.refusal(
            f"Hunk {number} ends here, but its header counts more lines",
            "Begin each line with a space, `-` or `+`, and correct the counts in the header.",
        )
    reader.take()
    return sign, text
