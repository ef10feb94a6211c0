"""The record of forgotten contents: each version that a person had removed, with its size, author and time.

The commits and the trees still name such a version, so the chain of transactions stays as it is. The record
distinguishes this gap from damage. It is written before the first object is removed, and that is the point of
no return: from then on the content is not served any more, and a start after a crash removes the rest.

It is one text file in the store, with a line for each version:

    forgetting|forgotten VERSION SIZE SEQ TIME ACTOR     time in microseconds, actor as JSON

SEQ is the newest transaction at that time. A later one may have written the same content again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from editd.errors import HistoryDamaged
from editd.system.files import read_or_empty, replace_file_durably
from editd.values.content import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORGOTTEN = "forgotten"
_HEAD = b"editd forgotten 1\n"
_LINE = re.compile(r"(forgetting|forgotten) ([0-9a-f]{40}) (\d+) (\d+) (\d+) (\".*\")")
_CHECKSUM_BYTES = 41  # 40 hex digits and the end of the line


class ForgottenContent(Struct, frozen=True):
    """A version whose content was removed on request. `is_gone`: nothing is left to remove."""

    version: Version
    size: int
    seq: int
    time_us: int
    actor: str
    is_gone: bool = False


def read_forgotten(store: str) -> dict[Version, ForgottenContent]:
    """Return the forgotten contents of a store by their versions. Raises HistoryDamaged."""
    content = read_or_empty(os.path.join(store, FORGOTTEN))
    body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    is_whole = hashlib.sha1(body).hexdigest().encode() + b"\n" == checksum and body.startswith(_HEAD)
    if content and not is_whole:
        path = os.path.join(store, FORGOTTEN)
        raise HistoryDamaged(
            f"The history is damaged: {path}: its checksum is wrong, so a gap looks like damage.",
            hint="No transaction is lost by this. `editctl check --repair` keeps its whole lines.",
            data={"file": path},
        )
    return _parsed(body)


def whole_lines(store: str) -> dict[Version, ForgottenContent]:
    """Return the forgotten contents that whole lines name, despite damage around them."""
    with contextlib.suppress(OSError):
        return _parsed(read_or_empty(os.path.join(store, FORGOTTEN)))
    return {}


def write_forgotten(store: str, contents: Mapping[Version, ForgottenContent]) -> None:
    """Replace the record; durable on return. Raises OSError."""
    body = _HEAD + "".join(map(_line, contents.values())).encode()
    replace_file_durably(
        os.path.join(store, FORGOTTEN), body + hashlib.sha1(body).hexdigest().encode() + b"\n"
    )


def _parsed(body: bytes) -> dict[Version, ForgottenContent]:
    return {one.version: one for one in _contents(body.decode("ascii", "replace").splitlines())}


def _contents(lines: Iterable[str]) -> Iterable[ForgottenContent]:
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is not None:
            state, version, size, seq, time_us, actor = match.groups()
            with contextlib.suppress(ValueError):  # a damaged actor
                yield ForgottenContent(
                    Version(version), int(size), int(seq), int(time_us), str(json.loads(actor)),
                    state == "forgotten",
                )  # fmt: skip


def _line(content: ForgottenContent) -> str:
    state = "forgotten" if content.is_gone else "forgetting"
    actor = json.dumps(content.actor)
    return f"{state} {content.version} {content.size} {content.seq} {content.time_us} {actor}\n"
