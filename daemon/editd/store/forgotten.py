"""The record of forgotten contents: each version that a person had removed, with its size, author and time.

The commits and the trees still name such a version, so the chain of transactions stays as it is. The record
distinguishes this gap from damage. It is written before the first object is removed, and that is the point of
no return: from then on the content is not served any more, and a start after a crash removes the rest.

It is one file of `checked_lines` in the store, with the number of versions first, and a line for each:

    editd forgotten 2 NUMBER
    forgetting|forgotten VERSION SIZE SEQ TIME ACTOR     time in microseconds, actor as JSON

An earlier form, without a checksum in each line, is still read.
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

from editd.store.checked_lines import checked_line, damage_refusal, read_lines, whole_lines_of
from editd.system.files import read_or_empty, replace_file_durably
from editd.values.content import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORGOTTEN = "forgotten"
_FIRST_FORM = b"editd forgotten 1\n"
_BODY = re.compile(r"(forgetting|forgotten) ([0-9a-f]{40}) (\d+) (\d+) (\d+) (\".*\")")
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
    path = os.path.join(store, FORGOTTEN)
    content = read_or_empty(path)
    if content.startswith(_FIRST_FORM):
        return _by_version(_first_form(path, content))
    bodies, _ = read_lines(path)
    if content and (not bodies or bodies[0] != _head(len(bodies) - 1)):
        raise damage_refusal(path, "it lacks lines")
    return _by_version(bodies[1:])


def whole_lines(store: str) -> dict[Version, ForgottenContent]:
    """Return the forgotten contents that whole lines name, despite damage around them."""
    path = os.path.join(store, FORGOTTEN)
    with contextlib.suppress(OSError):
        content = read_or_empty(path)
        is_first = content.startswith(_FIRST_FORM)
        return _by_version(
            content.decode("ascii", "replace").splitlines() if is_first else whole_lines_of(path)
        )
    return {}


def write_forgotten(store: str, contents: Mapping[Version, ForgottenContent]) -> None:
    """Replace the record; durable on return. Raises OSError."""
    bodies = [_head(len(contents)), *map(_body, contents.values())]
    replace_file_durably(os.path.join(store, FORGOTTEN), b"".join(map(checked_line, bodies)))


def _first_form(path: str, content: bytes) -> list[str]:
    """Return the lines of a record that an earlier editd wrote, with one SHA-1 at its end."""
    body, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if hashlib.sha1(body).hexdigest().encode() + b"\n" != checksum:
        raise damage_refusal(path, "its checksum is wrong")
    return body.decode("ascii", "replace").splitlines()


def _head(number: int) -> str:
    return f"editd forgotten 2 {number}"


def _by_version(bodies: Iterable[str]) -> dict[Version, ForgottenContent]:
    return {one.version: one for one in _contents(bodies)}


def _contents(bodies: Iterable[str]) -> Iterable[ForgottenContent]:
    for body in bodies:
        match = _BODY.fullmatch(body)
        if match is not None:
            state, version, size, seq, time_us, actor = match.groups()
            with contextlib.suppress(ValueError):  # a damaged actor
                yield ForgottenContent(
                    Version(version), int(size), int(seq), int(time_us), str(json.loads(actor)),
                    state == "forgotten",
                )  # fmt: skip


def _body(content: ForgottenContent) -> str:
    state = "forgotten" if content.is_gone else "forgetting"
    actor = json.dumps(content.actor)
    return f"{state} {content.version} {content.size} {content.seq} {content.time_us} {actor}"
