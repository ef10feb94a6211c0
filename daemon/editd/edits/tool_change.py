"""Whether the change of a file is the change that an agent's tool was called for.

Line ends, the byte-order mark and the newline at the end of the file do not count, because tools write them
in their own way.
A content that the history lacks (`editd.store.excluded`) is compared by its version alone.
Pure: texts in, an answer out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.values.content import Text, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from editd.values.content import Version

PLACES_MAX = 100  # of the old text, each a possible place of a single edit


class CallText(Struct, frozen=True):
    """A part of a tool's call: `new` in the place of `old`, or the whole file if `old` is None.

    `new` is None for a deletion.
    """

    new: str | None
    old: str | None = None


def is_called_for(
    before: bytes | None, after: bytes | None, texts: Sequence[CallText], fallback: str | None = None
) -> bool:
    """Return whether a file became `after` by these texts alone. `fallback` is the encoding beside UTF-8."""
    if not texts:
        return False
    if after is None or any(text.new is None for text in texts):
        return after is None and texts[-1].new is None
    result = _plain(after, fallback)
    if (whole := texts[-1]).old is None:
        return result == _normalize(whole.new).removeprefix("\ufeff").rstrip("\n")
    text = _plain(before or b"", fallback)
    return any(result == one.rstrip("\n") for one in _results(f"{text}\n" if text else "", texts))


def is_written(version: Version, texts: Sequence[CallText], fallback: str | None = None) -> bool:
    """Return whether the last of the texts is the whole of a file with this version, in any form of tools."""
    if not texts or texts[-1].old is not None or texts[-1].new is None:
        return False
    return any(version_of(form) == version for form in _forms(texts[-1].new, fallback))


def _forms(whole: str, fallback: str | None) -> Iterator[bytes]:
    """Yield the contents that a tool may have written for a text."""
    text = _normalize(whole).removeprefix("\ufeff")
    body = text.rstrip("\n")
    for form in {text, body, f"{body}\n"}:
        for ended in (form, form.replace("\n", "\r\n")):
            yield ended.encode("utf-8", "surrogatepass")
            yield f"\ufeff{ended}".encode("utf-8", "surrogatepass")
            if fallback is not None:
                yield ended.encode(fallback, "replace")


def _plain(content: bytes, fallback: str | None) -> str:
    known = Text.decode_if_text(content, fallback)
    text = content.decode("utf-8", "surrogateescape") if known is None else known.text
    return text.replace("\r\n", "\n").rstrip("\n")


def _results(text: str, texts: Sequence[CallText]) -> Iterator[str]:
    """Yield the texts that the calls may have made of a text."""
    pairs = [(_normalize(one.old), _normalize(one.new)) for one in texts if one.old or one.new]
    first = every = text
    for old, new in pairs:
        first, every = first.replace(old, new, 1), every.replace(old, new)
    yield first
    yield every
    if len(pairs) != 1:
        return
    ((old, new),) = pairs
    at = text.find(old)
    for _ in range(PLACES_MAX):
        if at < 0 or not old:
            return
        yield text[:at] + new + text[at + len(old) :]
        at = text.find(old, at + 1)


def _normalize(text: str | None) -> str:
    return (text or "").replace("\r\n", "\n")
