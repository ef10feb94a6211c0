"""The content of a path: bytes with their version, its change, and text that remembers its encoding."""

from __future__ import annotations

import codecs
import hashlib
import re
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Literal, NewType, TypeVar

from msgspec import Struct

from editd.errors import InvalidParams, NotText
from editd.wire.raw_text import PART, raw_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from editd.values.path import WorkspacePath
    from editd.wire.messages import ChangeKind, LineEnd

Version = NewType("Version", str)
"""Git's blob id of the bytes, 40 hex digits, so that `git hash-object FILE` gives the same."""

GitMode = Literal[0o100644, 0o100755, 0o120000]
FILE: GitMode = 0o100644
EXECUTABLE: GitMode = 0o100755
SYMLINK: GitMode = 0o120000


def version_of(content: bytes) -> Version:
    """Return the version of `content`: the SHA-1 of git's blob header and the bytes."""
    digest = hashlib.sha1(b"blob %d\0" % len(content))
    digest.update(content)  # without a copy of it
    return Version(digest.hexdigest())


def encode_text(text: str) -> bytes:
    """Return the bytes of a text from a client, whose surrogate escapes are bytes. Raises InvalidParams."""
    if len(text) <= PART and text.isascii():
        return text.encode()
    try:
        return raw_of(text)
    except UnicodeEncodeError:
        raise InvalidParams("The content holds a surrogate that encodes no byte.") from None


@dataclass(frozen=True, slots=True)
class FileState:
    """The state of one path: a file's bytes or a symlink's target, and its permission bits.

    `permissions` are the low twelve bits of st_mode, or None if they are unknown (a new file follows the
    umask). Two states are equal when `version` and `mode` are; permissions beyond git's executable bit are
    kept, not compared.

    If the history lacks the content, `missing` is the reason, and `content` is empty.
    """

    content: bytes = field(compare=False)
    mode: GitMode = FILE
    permissions: int | None = field(default=None, compare=False)
    version: Version = Version("")
    missing: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not self.version:
            object.__setattr__(self, "version", version_of(self.content))

    @property
    def is_symlink(self) -> bool:
        return self.mode == SYMLINK

    @property
    def is_executable(self) -> bool:
        return self.mode == EXECUTABLE

    def with_content(self, content: bytes) -> FileState:
        """Return the same file with these bytes. Other ones do not get the privileges of the old ones."""
        bits = self.permissions
        if bits is not None and bits & PRIVILEGE_BITS and content != self.content:
            bits = without_privileges(bits)
        return FileState(content, self.mode, bits)

    def with_mode(self, mode: GitMode) -> FileState:
        """Return the same file with git's `mode`.

        Git records one bit: each user who may read the file may execute it, or no user may. The file's other
        permission bits are kept.
        """
        if mode == self.mode:
            return self
        permissions = self.permissions
        if SYMLINK in (mode, self.mode) or permissions is None:
            permissions = None
        elif mode == EXECUTABLE:
            permissions |= (permissions & 0o444) >> 2
        else:
            permissions &= ~0o111
        return FileState(self.content, mode, permissions, self.version)


PRIVILEGES: Mapping[int, str] = {stat.S_ISUID: "setuid", stat.S_ISGID: "setgid"}
"""The permission bits that let a program run as the file's owner or group. They belong to its content."""

PRIVILEGE_BITS = stat.S_ISUID | stat.S_ISGID


def without_privileges(permissions: int) -> int:
    """Return permission bits without setuid and setgid, as after a write of the content by write(2)."""
    return permissions & ~PRIVILEGE_BITS


class Entry(Struct, frozen=True, gc=False):
    """A file's state by name, without its content: as the history and git's trees have it."""

    mode: GitMode
    version: Version
    permissions: int | None = None  # the low twelve bits of st_mode; None in a tree, and if unknown


State = TypeVar("State", bound="FileState | Entry")


class Change(Struct, Generic[State], frozen=True, gc=False):
    """The effect on one path: its state before and after; None is "no such file".

    A plan has the changes with their contents, a transaction by name only.
    A move is two changes: the old path's after is None, and the new path's `source` is the old path.
    """

    path: WorkspacePath
    before: State | None
    after: State | None
    source: WorkspacePath | None = None
    undone_by: int | None = None  # the transaction in force that undid this path of a transaction

    @property
    def kind(self) -> ChangeKind:
        if self.source is not None:
            return "renamed"
        if self.before is None:
            return "added"
        if self.after is None:
            return "deleted"
        return "mode" if self.before.version == self.after.version else "modified"


def is_plain_as_before(change: Change[FileState]) -> bool:
    """Return whether a file keeps its mode, and has ASCII text with LF alone before and after.

    Then it keeps its form, which no encoding and no line end need be decided for.
    """
    before, after = change.before, change.after
    if before is None or after is None or before.mode != after.mode:
        return False
    for content in (before.content, after.content):
        if not content.isascii() or b"\r" in content or b"\0" in content:
            return False
    return True


def mode_of(st_mode: int) -> GitMode:
    """Return git's mode for a regular file or symlink (the owner's x bit decides, as in git)."""
    if stat.S_ISLNK(st_mode):
        return SYMLINK
    return EXECUTABLE if st_mode & stat.S_IXUSR else FILE


class Text(Struct, frozen=True, gc=False):
    """Content that decodes, with its encoding, byte-order mark and line ends.

    `text` has the line ends of the file and no byte-order mark. `encode` turns a text back into bytes in
    the same encoding with the same mark, so `Text.decode(b).encode() == b`.
    """

    text: str
    encoding: str  # "utf-8", "utf-16-le", "utf-16-be" or the configured fallback
    bom: bytes

    @classmethod
    def decode(cls, content: bytes, *, path: str = "", fallback: str | None = None) -> Text:
        """Decode by byte-order mark, then as UTF-8, then by `fallback`. Raises NotText if all fail."""
        text = cls.decode_if_text(content, fallback)
        if text is None:
            raise not_text(content, fallback, path=path, also=ANEW)
        return text

    @classmethod
    def decode_if_text(cls, content: bytes, fallback: str | None) -> Text | None:
        """Return the decoded content, or None if no known encoding fits it."""
        bom, encoding = _mark_of(content)
        if bom:
            return cls._strictly(content, bom, encoding)
        if _has_many_nuls(content):
            return None
        try:
            return cls(content.decode("utf-8"), "utf-8", b"")
        except UnicodeDecodeError:
            if fallback is None or 0 in content:
                return None
            return cls._strictly(content, b"", fallback)

    @classmethod
    def _strictly(cls, content: bytes, bom: bytes, encoding: str) -> Text | None:
        try:
            text = content[len(bom) :].decode(encoding)
            return cls(text, encoding, bom) if text.encode(encoding) == content[len(bom) :] else None
        except UnicodeError:
            return None

    def lines_between(self, first: int, last: int) -> tuple[bytes, int]:
        """Return the bytes of lines as `lines_between` does; the first line has the byte-order mark."""
        if self.encoding == "utf-8":
            return lines_between(self.bom + self.text.encode(), first, last)
        wanted, number = [self.bom] if first == 1 else [], 0
        for number, line in enumerate(_LINE.finditer(self.text), 1):
            if first <= number <= last:
                wanted.append(line[0].encode(self.encoding))
        return b"".join(wanted), number or bool(self.bom)

    def encode(self, text: str | None = None, *, path: str = "") -> bytes:
        """Encode `text` (default: this one). Raises NotText if the encoding cannot hold it."""
        whole = self.text if text is None else text
        try:
            return self.bom + whole.encode(self.encoding)
        except UnicodeEncodeError as error:
            raise NotText(
                f"{path or 'The file'} is {self.encoding}, which cannot hold {error.object[error.start]!r}.",
                hint=f"Leave that character out. {ANEW}",
                data={"path": path, "encoding": self.encoding},
            ) from None


ANEW = "To replace the file, delete it in a separate request, and write it anew."


def not_text(content: bytes, fallback: str | None, *, path: str = "", also: str = "") -> NotText:
    """Return the refusal of a content that no known encoding decodes. The hint names the cause.

    `also` is the end of the hint.
    """
    file, data = path or "The file", {"path": path}
    bom, encoding = _mark_of(content)
    if bom:
        message = f"{file} has the byte-order mark of {encoding}, but is not {encoding} text."
        hint = "Repair it with another program: the key `encoding` does not apply to a file with a mark."
        data["encoding"] = encoding
    elif 0 in content:
        message = f"{file} is not text in any known encoding."
        hint = "It has NUL bytes, so no value of the key `encoding` makes it text."
    elif fallback is None:
        message = f"{file} is not text in any known encoding."
        hint = "If it is text, ask the user to set the key `encoding` of the configuration."
    else:
        message = f"{file} does not decode as {fallback}."
        hint = "If it is text, ask the user to correct the key `encoding` of the configuration."
        data["encoding"] = fallback
    return NotText(message, hint=f"{hint} {also}".rstrip(), data=data)


class Decoder(Struct, frozen=True, gc=False):
    """The decoding of files that are not UTF-8, for everything that people and models read of them.

    `fallback` is the configured encoding, or None.
    """

    fallback: str | None = None

    def encoding(self, *states: FileState | None) -> str | None:
        """Return the encoding of these states of one file if it is not UTF-8, otherwise None."""
        files = [state for state in states if state is not None and not state.is_symlink]
        texts = [Text.decode_if_text(state.content, self.fallback) for state in files]
        others = [text.encoding for text in texts if text is not None and text.encoding != "utf-8"]
        return others[0] if others and None not in texts else None

    def name(self, state: FileState | None) -> str | None:
        """Return the encoding of a file, or None if it is no text."""
        text = None if state is None else Text.decode_if_text(state.content, self.fallback)
        return None if text is None else text.encoding

    def not_text(self, state: FileState, path: str) -> NotText:
        """Return the refusal for the reader of a file that is no text, with its size."""
        refusal = not_text(state.content, self.fallback, path=path)
        return refusal.revise(data={"size": len(state.content)})

    def as_in(self, state: FileState | None, written: bytes) -> bytes:
        """Return a text in UTF-8 in the encoding of a file, whose text a person has read as UTF-8.

        Other bytes are returned unchanged. Raises NotText if the encoding lacks a character.
        """
        text = None if state is None else Text.decode_if_text(state.content, self.fallback)
        if text is None or text.encoding == "utf-8":
            return written
        try:
            return text.encode(written.decode())
        except UnicodeDecodeError:
            return written

    def in_utf8(self, state: FileState | None) -> FileState | None:
        """Return the file with its text as UTF-8 and its own version; unchanged if it is not text."""
        if state is None or state.is_symlink:
            return state
        text = Text.decode_if_text(state.content, self.fallback)
        if text is None or text.encoding == "utf-8":
            return state
        return FileState(text.text.encode(), state.mode, state.permissions, state.version)

    def lines(self, shown: str, *states: FileState | None) -> str:
        """Return a diff of lines of these states, which has bytes as surrogate escapes, as text."""
        encoding = None if shown.isascii() else self.encoding(*states)
        if encoding is None or encoding in _WIDE:
            return shown
        return "".join(
            line.encode("utf-8", "surrogateescape").decode(encoding, "surrogateescape")
            for line in shown.splitlines(keepends=True)
        )


_WIDE = frozenset({"utf-16-le", "utf-16-be"})  # whose lines are no lines of bytes
NO_FALLBACK = Decoder()


def lines_between(content: bytes, first: int, last: int) -> tuple[bytes, int]:
    """Return the lines from `first`, which counts from 1, to `last`, and the number of all lines.

    The content is divided in parts, because Python keeps its lock while it divides one.
    """
    wanted: list[bytes] = []
    number = start = 0
    while start < len(content):
        end = _LINE_END.search(content, start + _PART)
        part = content[start : len(content) if end is None else end.end()]
        lines = part.splitlines(keepends=True)
        wanted += lines[max(first - 1 - number, 0) : max(last - number, 0)]
        number, start = number + len(lines), start + len(part)
    return b"".join(wanted), number


_PART = 64 * 1024  # bytes
_LINE_END = re.compile(rb"\r\n|\r|\n")  # as bytes.splitlines knows them


def with_lines(content: bytes) -> bytes:
    """Return UTF-16 as UTF-8, so that its lines are lines of bytes. Return other content unchanged."""
    if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content
    text = Text.decode_if_text(content, None)
    return content if text is None else text.text.encode()


def _mark_of(content: bytes) -> tuple[bytes, str]:
    """Return the byte-order mark and the encoding that it names. Both are empty without a known mark."""
    if content.startswith(codecs.BOM_UTF32_LE):
        return b"", ""
    return next((mark for mark in _MARKS if content.startswith(mark[0])), (b"", ""))


def _has_many_nuls(content: bytes) -> bool:
    """Return whether the content is UTF-16 or UTF-32 without a mark, or no text at all."""
    return content.count(0) * 3 > len(content)


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # as bytes.splitlines divides a text
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def line_end_of(text: str) -> LineEnd:
    """Return the line ends of `text`: one kind, `mixed`, or `none`."""
    returns = text.count("\r")
    crlf = text.count("\r\n") if returns else 0  # the search for two characters takes long
    lf, cr = text.count("\n") - crlf, returns - crlf
    kinds: list[LineEnd] = [kind for kind, count in _by_line_end(lf, crlf, cr) if count]
    if len(kinds) > 1:
        return "mixed"
    return kinds[0] if kinds else "none"


def _by_line_end(lf: int, crlf: int, cr: int) -> tuple[tuple[LineEnd, int], ...]:
    return (("lf", lf), ("crlf", crlf), ("cr", cr))
