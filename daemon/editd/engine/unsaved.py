"""Unsaved text that editors hold, and the trial of an edit against it.

An edit of a file that an editor has changed and not saved takes effect if it merges with that text: the
editor then takes the new file into its buffer. Otherwise it is refused, with the lines that collide.

All of this is in memory only. It belongs to a connection, and ends with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from editd.advice import Advice, argument_term, step_term
from editd.edits.comparison import charge
from editd.edits.line_changes import hunks_between
from editd.edits.merge import Merged, merge_lines
from editd.edits.replace import describe_lines
from editd.errors import Overloaded, TooLarge, Unsaved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from editd.values.content import Change, FileState, Version
    from editd.values.path import WorkspacePath
    from editd.wire.messages import OnUnsaved

DOCUMENTS_MAX = 1000
BYTES_MAX = 64 * 1024 * 1024  # of all texts together
NOBODY = 0  # the connection of requests that no connection sent


class HeldDocument(Struct, frozen=True):
    """The text of a file that an editor holds unsaved. Without `content` it only says that there is some."""

    path: WorkspacePath
    owner: int  # the connection
    client: str
    session: str | None
    base: Version | None  # of the file that the text was made from; None for a new file
    content: bytes | None
    version: Version | None  # of the content
    since_us: int


class UnsavedRule(Struct, frozen=True):
    """What a request does where another connection than its `owner` holds a file unsaved."""

    owner: int = NOBODY
    action: OnUnsaved = "merge"


MERGE = UnsavedRule()


class UnsavedTrial(Struct, frozen=True):
    """The result of a trial: the changed files that others hold, and warnings."""

    merged: frozenset[WorkspacePath]
    warnings: tuple[str, ...]


class HeldDocuments:
    """All held documents."""

    def __init__(self) -> None:
        self.by_path: dict[WorkspacePath, dict[int, HeldDocument]] = {}  # empty if no client holds any
        self.on_change: list[Callable[[str, HeldDocument], None]] = []
        """Each gets `held` at the first hold of a document, and `released`."""
        self.bytes = 0
        """The bytes of all texts."""

    def __len__(self) -> int:
        return sum(map(len, self.by_path.values()))

    def hold(self, document: HeldDocument) -> None:
        """Add a document, in place of what its owner held at this path. Raises Overloaded, TooLarge."""
        held = self.by_path.get(document.path, {})
        before = held.get(document.owner)
        more = self.growth(document)
        if before is None and len(self) >= DOCUMENTS_MAX:
            raise Overloaded(f"{DOCUMENTS_MAX} documents are held unsaved.", hint="Save some of them.")
        if self.bytes + more > BYTES_MAX:
            raise TooLarge(
                f"The texts that are held unsaved have at most {BYTES_MAX} bytes together.",
                hint=Advice("Hold this one without its ", argument_term("content"), "."),
                data={"limit": BYTES_MAX},
            )
        self.bytes += more
        self.by_path.setdefault(document.path, held)[document.owner] = document
        if before is None:
            self._tell("held", document)

    def _tell(self, event: str, document: HeldDocument) -> None:
        for listener in self.on_change:
            listener(event, document)

    def growth(self, document: HeldDocument) -> int:
        """Return the bytes that a hold of the document adds; negative if its owner held a longer text."""
        before = self.by_path.get(document.path, {}).get(document.owner)
        return _size(document) - (0 if before is None else _size(before))

    def release(self, path: WorkspacePath, owner: int) -> bool:
        """Forget what a connection holds at a path. Return whether it held it."""
        held = self.by_path.get(path, {})
        document = held.pop(owner, None)
        if document is None:
            return False
        self.bytes -= _size(document)
        if not held:
            del self.by_path[path]
        self._tell("released", document)
        return True

    def leave(self, owner: int) -> None:
        """Forget everything that a closed connection held."""
        for path in [path for path, held in self.by_path.items() if owner in held]:
            self.release(path, owner)

    def saved(self, changes: Iterable[Change[FileState]], owner: int) -> None:
        """Forget the documents that their own editor has saved by these changes."""
        for change in changes:
            document = self.by_path.get(change.path, {}).get(owner)
            if document is not None and change.after is not None and document.version == change.after.version:
                self.release(change.path, owner)

    def others(self, path: WorkspacePath, owner: int) -> list[HeldDocument]:
        """Return what other connections hold at a path, the newest last."""
        held = self.by_path.get(path)
        return [] if held is None else sorted((d for d in held.values() if d.owner != owner), key=_age)

    def text(self, version: Version) -> bytes | None:
        """Return the content that a client holds in this version, or None."""
        for held in self.by_path.values():
            for document in held.values():
                if document.version == version:
                    return document.content
        return None

    def try_changes(
        self,
        changes: Iterable[Change[FileState]],
        rule: UnsavedRule,
        content_of: Callable[[Version], bytes | None],
    ) -> UnsavedTrial | None:
        """Merge each changed file with the text that others hold of it. Return None if they hold none.

        `content_of` returns a recorded content. Raises Unsaved if a merge would collide.
        """
        merged: set[WorkspacePath] = set()
        warnings: list[str] = []
        refused: list[Unsaved] = []
        for change in changes:
            documents = self.others(change.path, rule.owner)
            if not documents or rule.action == "ignore":
                continue
            merged.add(change.path)
            if rule.action == "reject":
                refused.append(refusal_of(change.path, documents))
            elif (refusal := _try_change(change, documents, content_of, warnings)) is not None:
                refused.append(refusal)
        if len(refused) > 1:
            refused[0].data["files"] = [dict(one.data) for one in refused]
        if refused:
            raise refused[0]
        return UnsavedTrial(frozenset(merged), tuple(warnings)) if merged else None


def _try_change(
    change: Change[FileState],
    documents: Sequence[HeldDocument],
    content_of: Callable[[Version], bytes | None],
    warnings: list[str],
) -> Unsaved | None:
    """Return the refusal of a change that collides with some of the documents, or None.

    Adds to `warnings` the documents whose text is not known.
    """
    colliding: list[HeldDocument] = []
    lines: set[int] = set()
    for document in documents:
        base = _base_of(document, change, content_of)
        if document.content is None or base is None:
            warnings.append(
                f"{change.path} has unsaved changes in {document.client}. "
                "It is not known whether this edit runs into them."
            )
            continue
        collisions = _new_collisions(base, document.content, change)
        if collisions is not None:
            colliding.append(document)
            lines |= collisions
    return refusal_of(change.path, colliding, sorted(lines)) if colliding else None


def _base_of(
    document: HeldDocument, change: Change[FileState], content_of: Callable[[Version], bytes | None]
) -> bytes | None:
    """Return the base of a text: the file may have this content, although the history does not."""
    if document.base is None:
        return b""
    if change.before is not None and change.before.version == document.base:
        return change.before.content
    return content_of(document.base)


def refusal_of(path: WorkspacePath, documents: Sequence[HeldDocument], lines: Sequence[int] = ()) -> Unsaved:
    """Return the refusal of an edit that would run into these documents, in these lines of them."""
    ranges = _ranges(lines)
    who = " and ".join(dict.fromkeys(document.client for document in documents))
    where = f", in {describe_lines(*ranges[:10])}," if ranges else ""
    return Unsaved(
        f"{path} has unsaved changes in {who}{where} that this edit would run into.",
        hint=Advice(step_term("edit_the_unsaved"), "."),
        data={
            "path": path.text,
            "held_by": [
                {"client": one.client, "session": one.session, "base": one.base, "version": one.version}
                for one in documents
            ],
            "lines": [{"start_line": start, "end_line": end} for start, end in ranges],
        },
    )


def changed_lines(
    document: HeldDocument, content_of: Callable[[Version], bytes | None]
) -> list[tuple[int, int]]:
    """Return the lines of a held text that differ from its base, as their first and last, both included.

    For deleted lines it is the line before. Returns none if a text is not known.
    """
    base = b"" if document.base is None else content_of(document.base)
    return [] if base is None or document.content is None else _ranges(_unsaved_lines(base, document.content))


def note_of(documents: Sequence[HeldDocument], content_of: Callable[[Version], bytes | None]) -> str | None:
    """Return a line for the reader of a file that others hold unsaved, or None if no client does."""
    if not documents:
        return None
    ranges = [changed_lines(document, content_of)[:10] for document in documents]
    holders = [
        f"{document.client} ({describe_lines(*lines)})" if lines else document.client
        for document, lines in zip(documents, ranges, strict=True)
    ]
    return f"There are unsaved changes in {' and '.join(holders)}; this is the file."


def _new_collisions(base: bytes, held: bytes, change: Change[FileState]) -> set[int] | None:
    """Return the held lines that the edit collides with and the file before it did not, or None."""
    after = change.after
    if after is None or after.is_symlink:
        return None if held == base else set()
    lines = _collisions(base, held, after.content)
    if lines is None or change.before is None or change.before.is_symlink:
        return lines
    before = _collisions(base, held, change.before.content)
    if before is None:
        return lines
    return (lines - before) or None


def _collisions(base: bytes, held: bytes, content: bytes) -> set[int] | None:
    """Return the unsaved lines that `content` changes too: None if they merge, no lines if they have none."""
    result = merge_lines(base, held, content)
    if isinstance(result, Merged):
        return None
    lines = {line for one in result.regions for line in range(one.start_line, one.end_line + 1)}
    return (
        lines.intersection(_unsaved_lines(base, held)) or lines
    )  # a region may have saved lines beside them


def _unsaved_lines(base: bytes, held: bytes) -> list[int]:
    """Return the lines of `held`, from 1, that differ from the base."""
    if b"\0" in base + held:
        return []
    charge(base, held)
    return sorted(
        {
            line
            for change in hunks_between(base, held)
            for line in range(max(change.first_line, 1), change.first_line + max(len(change.lines), 1))
        }
    )


def _ranges(lines: Sequence[int]) -> list[tuple[int, int]]:
    """Return runs of line numbers as their first and last, both included."""
    ranges: list[tuple[int, int]] = []
    for line in lines:
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
    return ranges


def _size(document: HeldDocument) -> int:
    return 0 if document.content is None else len(document.content)


def _age(document: HeldDocument) -> int:
    return document.since_us
