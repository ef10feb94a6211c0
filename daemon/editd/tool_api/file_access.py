"""The files as one call of a tool sees them. Its edits go into the changeset so far.

`ToolApi` enforces the rules of all tools: a path stays inside the workspace, a stale edit is refused, and a
file keeps its encoding, mark and line ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from editd.edits.preconditions import version_at
from editd.edits.search import with_plain_line_ends
from editd.errors import NotAFile, NotText, PathOutside, PermissionDenied
from editd.tool_api.tool_text import ToolText
from editd.values.content import FILE, FileState
from editd.values.path import WorkspacePath
from editd.values.transaction import Base

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.edits.plan import PlanBuilder
    from editd.edits.replace import Replacement
    from editd.edits.search import Match, Search, SearchSource
    from editd.tool_api.tool_paths import ToolPaths
    from editd.tool_api.tool_settings import ToolSettings
    from editd.values.content import Version
    from editd.values.transaction import ReadMark


class ToolApi:
    """Access to the files for one call, whose edits go into `work`, the changeset so far.

    Raises only Refused: PathOutside, NotAFile, TooLarge, Stale …
    """

    def __init__(
        self,
        work: PlanBuilder,
        paths: ToolPaths,
        settings: ToolSettings,
        expressions: SearchSource,
        base: Base | None,
    ) -> None:
        self._work = work
        self._paths = paths
        self.settings = settings
        self._expressions = expressions
        self._base = base

    @property
    def root(self) -> str:
        """The workspace's real path, without a final `/`."""
        return self._paths.root

    def path(self, text: str) -> WorkspacePath:
        """Parse the path of a file in the call: relative to the root, or absolute and below it.

        Removes `.`, `..` and empty segments by the text alone. Raises PathOutside, PathProtected and
        InvalidParams.
        """
        return self._paths.parse(text)

    def text_at(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of the file, symlinks followed; None if there is no file."""
        real = self._work.resolve(path)
        state = self._look(real)
        return None if state is None else ToolText(real, self._work.text(real, state).text)

    def peek(self, path: WorkspacePath) -> ToolText | None:
        """Return the text of a file that the call only consults, such as a `.gitignore`; needs no base.

        Returns None if there is no readable text. The result's path has its symlinks followed.
        """
        try:
            real = self._work.overlay.resolve(path)
            state = self._work.overlay.at(real)
            return None if state is None else ToolText(real, self._work.text(real, state).text)
        except (NotAFile, NotText, PathOutside, PermissionDenied):
            return None

    def version(self, path: WorkspacePath) -> Version | None:
        """Return the current version, of text or binary; None if there is no file."""
        return version_at(self._work.overlay.at(self._work.resolve(path)))

    def _look(self, path: WorkspacePath) -> FileState | None:
        """Return the file's state; check its base if the caller gave one or chose `on_stale`.

        Otherwise only the tool's own search guards the file, as in the original system.
        """
        bases = self._work.bases
        is_guarded = path in bases.guarded
        if self._base is None and not self._work.is_on_stale_given and path not in bases.known:
            bases.known[path] = {Base(version_at(self._work.overlay.before(path)))}
            is_guarded = True
        state = bases.look(path, self._base)
        if is_guarded:
            bases.guarded.add(path)
        return state

    def edit(self, page: ToolText, replacements: Sequence[Replacement], warnings: Sequence[str] = ()) -> str:
        """Make the replacements in the file of `page`; return its new text, with LF line ends.

        `warnings` begin with a word for their kind and a colon.
        """
        state = self._work.bases.existing_unjudged(page.path)
        text = self._work.text(page.path, state)
        assert text.text == page.raw, "the file changed after the tool read it"
        raw = page.with_replacements(replacements)
        if raw == page.raw:
            warnings = [*warnings, _no_change_warning(page.path)]
        self._report(page.path, warnings, replacements=len(replacements))
        if raw != page.raw:
            self._work.overlay.put(page.path, state.with_content(text.encode(raw, path=page.path.text)))
        return with_plain_line_ends(raw)

    def write(self, path: WorkspacePath, text: str, warnings: Sequence[str] = ()) -> None:
        """Write the whole `text` to the file; create the file and its folders if missing.

        An existing file keeps its mode and its form, also if an earlier edit of the request has deleted it.
        """
        real = self._work.resolve(path)
        state = self._look(real)
        self._work.bases.guarded.discard(real)
        if state is not None:
            self._work.text(real, state)  # raises NotText: nothing is written over what is no text
        old = self._work.replaced_state(real, state)
        content = self._work.whole(real, text, old)
        if state is None:
            after = FileState(content, FILE if old is None else old.mode)
            self._work.bases.note(real, after.version)
        else:
            after = state.with_content(content)
        self._work.written_whole.add(real)
        is_same = old is not None and (after.content, after.mode) == (old.content, old.mode)
        self._report(real, [*warnings, _no_change_warning(real)] if is_same else warnings)
        self._work.overlay.put(real, after)

    def delete(self, path: WorkspacePath) -> None:
        """Delete the file; FileMissing if there is none."""
        self._work.delete(path, self._base)

    def move(self, path: WorkspacePath, to: WorkspacePath) -> None:
        """Move the file; FileMissing, or FileExists if `to` exists."""
        self._work.move(path, to, self._base)

    def note_of_unsaved(self, path: WorkspacePath) -> str | None:
        """Return a line about what an editor holds of this file unsaved, for the answer to a reader."""
        return self._work.knowledge.note_of_unsaved(self._work.resolve(path))

    def names(self, folder: str) -> list[str] | None:
        """Return the names in a folder on disk, sorted, folders with a final `/`; None if it is no folder.

        Leaves out `.git` and editd's own files.
        """
        names = self._paths.names_of(folder)
        if not names:
            return self._work.overlay.names(None)
        return self._work.overlay.names(self._work.overlay.resolve(WorkspacePath.parse("/".join(names))))

    def matches(self, search: Search) -> tuple[Match, ...]:
        """Return the matches of `search`; raises NeedsSearch if it has no result yet (see `edits.search`)."""
        return self._expressions.matches(search)

    def read_mark(self, reader: str, path: WorkspacePath) -> ReadMark | None:
        """Return the part of the file that `reader` saw last ("": the sender of the request)."""
        real = self._work.resolve(path)
        marks = [mark for name, at, mark in self._work.sights if (name, at) == (reader, real)]
        return marks[-1] if marks else self._work.knowledge.sight(reader, real)

    def note_read(self, reader: str, path: WorkspacePath, mark: ReadMark) -> None:
        """Record what `reader` ("": the sender of the request) has seen, even if the call is refused."""
        self._work.sights.append((reader, self._work.resolve(path), mark))

    def _report(self, path: WorkspacePath, warnings: Sequence[str], *, replacements: int = 0) -> None:
        self._work.report(path, replacements=replacements)
        for warning in warnings:
            self._work.report(path, warning=warning)


def _no_change_warning(path: WorkspacePath) -> str:
    return f"no_change: nothing in {path} changed: the new text is the old one."
