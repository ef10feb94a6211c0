"""The plan: a changeset computed against a snapshot, before any file is touched.

Edits are applied in order, each to the result of the edits before it (the overlay). So a later edit may
move a file that an earlier one wrote. Every refusal is raised here: a stale base, a text without a
match, an obstructed path. The first refusal ends the plan, because a changeset is all or nothing.

An edit is the author's message. Its path, base and content are parsed here, when the edit is applied, as are
the paths in a patch and in a tool's arguments. `edits.preconditions` checks bases and resolves paths.

Reads no file and no history: both are arguments.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol, assert_never

from msgspec import Struct, UnsetType

from editd.advice import Advice, option_term, step_term
from editd.edits.diff import AppliedPatch
from editd.edits.new_names import refuse_foreign, refuse_twin, with_path_of_url
from editd.edits.overlay import Overlay
from editd.edits.patch import FilePatch, apply_to, parse
from editd.edits.preconditions import BaseChecker, version_at
from editd.edits.replace import edit_text, replace_exactly
from editd.edits.text_form import check_form, form_changes, in_form_of
from editd.errors import (
    BaseRequired,
    FileExists,
    InvalidParams,
    NoMatch,
    NotAFile,
    Stale,
    TooLarge,
)
from editd.values.content import (
    EXECUTABLE,
    FILE,
    SYMLINK,
    Change,
    FileState,
    GitMode,
    Text,
    encode_text,
    is_plain_as_before,
)
from editd.values.name_key import is_same_form, key_of
from editd.values.path import PATH_BYTES_MAX, WorkspacePath, folders_of, is_link_target
from editd.values.transaction import Base, FileReport, Outcome, ReadMark
from editd.wire.messages import (
    Chmod,
    Delete,
    EditText,
    Move,
    OnStale,
    Patch,
    Replace,
    Symlink,
    Tool,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from editd.edits.overlay import Snapshot
    from editd.edits.preconditions import BaseSource
    from editd.wire.messages import AnyEdit, FileEdit


class ToolRunner(Protocol):
    """The edit tools of other systems, and the workspace that they know."""

    @property
    def root(self) -> str:
        """The workspace's real path."""
        ...

    @property
    def home(self) -> str:
        """The user's home folder; empty if it is not known."""
        ...

    def run(self, work: PlanBuilder, edit: Tool) -> str:
        """Execute one call on the changeset so far; return the tool's own answer."""
        ...


def plan(
    edits: Sequence[AnyEdit],
    snapshot: Snapshot,
    knowledge: BaseSource,
    *,
    on_stale: OnStale | None = None,
    fallback_encoding: str | None = None,
    tools: ToolRunner | None = None,
) -> Outcome:
    """Return the changes that `edits` make to `snapshot`, sorted by path, without empty ones.

    Raises a Refused if the changeset cannot be made (see `editd.errors`). If several paths do not merge,
    one Conflict names them all. `on_stale` None means "reject", except that a tool's call without a base
    applies to the current file. Raises NeedsSearch if a tool needs the result of a regular expression.
    """
    work = PlanBuilder(snapshot, knowledge, on_stale, fallback_encoding)
    try:
        for edit in edits:
            if isinstance(edit, Tool):
                assert tools is not None, "a call of a tool needs tools"
                work.answers.append(tools.run(work, edit))
            else:
                work.apply(edit)
                work.answers.append(None)
    except NoMatch as refusal:
        raise refusal.revise(path=work.searched) from None
    except InvalidParams as refusal:
        raise with_path_of_url(refusal, work.overlay.names, *_folders_known_to(tools)) from None
    outcome = work.plan()
    for change in outcome.changes:
        if change.before is None and change.path in work.overlay.after:
            work.refuse_name(change.path, *_folders_known_to(tools))
    return outcome


def _folders_known_to(tools: ToolRunner | None) -> tuple[str, str]:
    """Return the workspace's path and the user's home folder, as far as they are known."""
    return ("", "") if tools is None else (tools.root, tools.home)


WORK_BYTES_MAX = 512 * 1024 * 1024


class _Moving(Struct, frozen=True):
    """A file state that has left a path and has not arrived at another."""

    state: FileState
    origin: WorkspacePath | None  # its path in the snapshot; None for a copy or a new file
    known: frozenset[Base]
    report: FileReport
    carried_from: WorkspacePath | None  # the path in the snapshot that the content comes from, also of a copy
    is_merged: bool = False


class PlanBuilder:
    """The changeset under construction: the overlay, the bases and the reports."""

    def __init__(
        self,
        snapshot: Snapshot,
        knowledge: BaseSource,
        on_stale: OnStale | None,
        fallback_encoding: str | None,
    ) -> None:
        self.overlay = Overlay(snapshot)
        self.knowledge = knowledge
        self.bases = BaseChecker(self.overlay, knowledge, on_stale or "reject")
        self.is_on_stale_given = on_stale is not None
        self.answers: list[str | None] = []  # for each edit, its tool's answer
        self.sights: list[tuple[str, WorkspacePath, ReadMark]] = []
        self.fallback_encoding = fallback_encoding
        self.removed: set[WorkspacePath] = set()  # the paths whose snapshot content was removed
        self.written_whole: set[WorkspacePath] = set()  # whose form is compared with that before
        self.sources: dict[WorkspacePath, WorkspacePath] = {}
        self.carried: dict[WorkspacePath, WorkspacePath] = {}  # also by a copy, or from a path used again
        self.reports: dict[WorkspacePath, FileReport] = {}
        self.worked = 0  # bytes of the files that the edits have read, each time
        self.searched: WorkspacePath | None = None  # the file whose text was read last

    def apply(self, edit: FileEdit) -> None:
        """Apply one edit to the result of the edits before it."""
        match edit:
            case Write():
                self._write(edit)
            case Replace():
                self._replace(edit)
            case EditText():
                self._edit_text(edit)
            case Patch():
                self._patch(edit)
            case Delete():
                self.delete(WorkspacePath.parse(edit.path), base_of(edit))
            case Move():
                path, to = WorkspacePath.parse(edit.path), WorkspacePath.parse(edit.to)
                self.move(path, to, base_of(edit), overwrite=edit.overwrite)
            case Chmod():
                self._chmod(edit)
            case Symlink():
                self._symlink(edit)
            case _:
                assert_never(edit)

    # ── The result ─────────────────────────────────────────────────────────────────────────────

    def plan(self) -> Outcome:
        """Return the outcome of the edits so far. Raises Conflict, and NotAFile."""
        self.bases.merge_all()
        touched = sorted({*self.bases.known, *self.overlay.after})
        changes: list[Change[FileState]] = []
        unchanged: list[Change[FileState]] = []
        reports: dict[WorkspacePath, FileReport] = {}
        for path in touched:
            reports[path] = self.reports.get(path, FileReport())
            change = self.change_of(path)
            if path in self.written_whole and not is_plain_as_before(change):
                changed = "; ".join(form_changes(change.before, change.after, self.fallback_encoding))
                if changed:
                    self.report(path, warning=f"form: {path} was written whole, and {changed}.")
                    reports[path] = self.reports[path]
            (unchanged if change.before == change.after else changes).append(change)
        if len(touched) > 1 or (changes and changes[0].before is None):
            self.refuse_files_in_files(touched)
        return Outcome(
            changes=tuple(changes),
            reports=reports,
            unchanged=tuple(unchanged),
            merged=tuple(sorted(self.bases.merged)),
            based=frozenset(self.bases.based),
            guarded=frozenset(self.bases.guarded),
            answers=tuple(self.answers),
            sights=tuple(self.sights),
            carried=tuple(
                (source, path) for path, source in self.carried.items() if self.overlay.at(path) is not None
            )
            if self.carried
            else (),
        )

    def refuse_name(self, path: WorkspacePath, root: str, home: str) -> None:
        """Raise InvalidParams or FileExists if the name of a new file is probably not the one meant."""
        refuse_foreign(path, self.overlay.names, root, home)
        refuse_twin(path, self.overlay.names, lambda name: self.overlay.at(path.sibling(name)) is None)

    def change_of(self, path: WorkspacePath) -> Change[FileState]:
        """Return the change of `path`, whose states may be equal."""
        before, after = self.overlay.before(path), self.overlay.at(path)
        source = None if before == after else self.sources.get(path)
        if source is None or self.overlay.before(source) is None or self.overlay.at(source) is not None:
            return Change(path, before, after)  # No move if the source path holds a new file.
        return Change(path, before, after, source)

    def refuse_files_in_files(self, touched: Sequence[WorkspacePath]) -> None:
        """Raise NotAFile if a path would be both a file and a folder afterwards."""
        named, folders = set(touched), set[WorkspacePath]()
        for path in touched:
            if self.overlay.at(path) is None:
                continue
            is_new = self.overlay.before(path) is None
            for folder in folders_of(path):
                if folder in folders or not (is_new or folder in named):
                    continue  # Checked before, or a folder because `path` existed before.
                try:
                    holds_file = self.overlay.at(folder) is not None
                except NotAFile:
                    folders.add(folder)
                    break  # So are those above it.
                if holds_file:
                    raise NotAFile(
                        f"{path} cannot be made: {folder} is a file.",
                        hint=f"Choose another name, or delete {folder} in the same changeset.",
                        data={"path": path.text, "file": folder.text},
                    )
                folders.add(folder)

    # ── The edits, one by one ──────────────────────────────────────────────────────────────────

    def resolve(self, path: WorkspacePath) -> WorkspacePath:
        """Return the path that an edit of content applies to, every symlink followed."""
        resolved = self.overlay.resolve(path)
        if resolved != path:
            is_named = key_of(resolved.text) == key_of(path.text) or is_same_form(resolved.text, path.text)
            reason = "is named" if is_named else "leads by a symbolic link to"
            self.report(resolved, warning=f"{path} {reason} {resolved}: edited there.")
        return resolved

    def report(self, path: WorkspacePath, *, replacements: int = 0, warning: str = "") -> None:
        report = self.reports.get(path, FileReport())
        new = (warning,) if warning and warning not in report.warnings else ()
        total = (report.replacements or 0) + replacements or None
        self.reports[path] = FileReport(total, report.warnings + new)

    def _write(self, edit: Write) -> None:
        path, base = self.resolve(WorkspacePath.parse(edit.path)), base_of(edit)
        state = self.overlay.at(path)
        replaced = self.replaced_state(path, state)
        content = encode_text(edit.content)
        if edit.keep_form and _is_unicode(edit.content):
            check_form(replaced, self.fallback_encoding, path=path.text)
            content = self.whole(path, edit.content, replaced)
        if isinstance(edit.mode, UnsetType):
            mode = FILE if replaced is None else replaced.mode
        else:
            mode = _MODES[edit.mode]
        if state is not None and base is None and (state.content, state.mode) == (content, mode):
            self.bases.note(path, state.version)
            return
        if edit.force and base is None:
            self.bases.forget_base(path)
        elif state is not None and base == Base(None):
            raise _exists(path, Advice(step_term("read_first"), ", or edit it."))
        elif state is not None and base is None and not self.bases.is_known(path):
            raise BaseRequired(
                f"{path} exists, and this session has not read it.",
                hint=Advice(
                    step_term("read_first"),
                    option_term("force", lead=", or use ", purpose=" to overwrite any content"),
                    ".",
                ),
                data={"path": path.text, "current": state.version},
            )
        else:
            state = self.bases.look(path, base)
        after = FileState(content, mode) if state is None else state.with_mode(mode).with_content(content)
        self.bases.note(path, after.version)
        self.overlay.put(path, after)
        self.written_whole.add(path)

    def replaced_state(self, path: WorkspacePath, state: FileState | None) -> FileState | None:
        """Return the file that a whole write replaces, also one that an earlier edit of these has deleted."""
        before = self.overlay.before(path) if state is None and path in self.removed else state
        return None if before is None or before.is_symlink else before

    def whole(self, path: WorkspacePath, text: str, old: FileState | None) -> bytes:
        """Return the bytes of a whole new text, in the form of the file that it replaces."""
        form = None if old is None else Text.decode_if_text(old.content, self.fallback_encoding)
        if form is None:
            return Text("", "utf-8", b"").encode(text, path=path.text)
        return in_form_of(form, text, path=path.text)

    def _replace(self, edit: Replace) -> None:
        if edit.count < 1:
            raise InvalidParams("`count` is the number of occurrences expected, 1 or more.")
        path, base = WorkspacePath.parse(edit.path), base_of(edit)
        path = self.resolve(path)
        if edit.guard == "text" and base is None and not self.is_on_stale_given:
            state = self.bases.existing_unjudged(path)
        else:
            state = self.bases.existing(path, base)
        text = self.text(path, state)
        result = replace_exactly(text.text, edit.old, edit.new, edit.count, path=path.text)
        self.report(path, replacements=edit.count)
        self.overlay.put(path, state.with_content(text.encode(result, path=path.text)))

    def _edit_text(self, edit: EditText) -> None:
        path, base = WorkspacePath.parse(edit.path), Base.parse(edit.base)
        path = self.resolve(path)
        state = self.bases.existing(path, base)
        if base.version != version_at(state):
            # The base was valid for the edits before this one, but those have moved its positions.
            raise Stale(path.text, base.version, version_at(state))
        text = self.text(path, state)
        result = edit_text(text.text, edit.edits, edit.position_encoding)
        self.overlay.put(path, state.with_content(text.encode(result, path=path.text)))

    def text(self, path: WorkspacePath, state: FileState) -> Text:
        self._count_work(path, state)
        self.searched = path
        return Text.decode(state.content, path=path.text, fallback=self.fallback_encoding)

    def _count_work(self, path: WorkspacePath, state: FileState) -> None:
        """Raise TooLarge if the edits so far read too much: other edits wait for them."""
        self.worked += len(state.content)
        if self.worked > WORK_BYTES_MAX:
            raise TooLarge(
                f"The edits read {self.worked} bytes of files, some of them again and again, such as {path}. "
                f"The edits of one request or changeset read at most {WORK_BYTES_MAX}.",
                hint="Make the changes of a file in one edit, such as a patch, or in several requests.",
                data={"path": path.text, "bytes": self.worked, "bytes_max": WORK_BYTES_MAX},
            )

    def delete(self, path: WorkspacePath, base: Base | None) -> None:
        """Delete a file."""
        path = self.overlay.resolve_folder(path)
        self.bases.existing(path, base)
        self._remove(path)

    def _remove(self, path: WorkspacePath) -> None:
        self.overlay.put(path, None)
        self.sources.pop(path, None)
        self.carried.pop(path, None)
        self.removed.add(path)

    def move(
        self, path: WorkspacePath, to: WorkspacePath, base: Base | None, *, overwrite: bool = False
    ) -> None:
        """Move a file to another path."""
        name = to.name
        path, to = self.overlay.resolve_folder(path), self.overlay.resolve_folder(to)
        if path == to:  # also if only the spelling of the name is new
            to = to.sibling(name)
        if path == to:
            raise InvalidParams(f"{path} cannot be moved onto itself.", hint="Move it to another path.")
        # A deleted file cannot be merged, and `stale` says more than `file_missing`.
        self.bases.look(path, base, may_merge=self.overlay.before(path) is not None)
        self._arrive(to, self._leave(path), overwrite=overwrite)

    def _leave(self, path: WorkspacePath) -> _Moving:
        """Remove `path`, whose base was checked, and return its state for another path."""
        self.bases.merge(path)  # The current file moves, with the edits applied.
        state = self.bases.existing(path, None)
        moving = _Moving(
            state=state,
            origin=self.sources.get(path, None if path in self.removed else path),
            known=frozenset({*self.bases.known[path], Base(state.version)}),
            report=self.reports.pop(path, FileReport()),
            carried_from=self._source_of(path),
            is_merged=path in self.bases.merged,
        )
        self.bases.merged.discard(path)
        self._remove(path)
        return moving

    def _source_of(self, path: WorkspacePath) -> WorkspacePath | None:
        """Return the snapshot's path whose content moves and copies have brought to `path`."""
        own = None if path in self.removed or self.overlay.before(path) is None else path
        return self.carried.get(path, own)

    def _arrive(self, to: WorkspacePath, moving: _Moving, *, overwrite: bool = False) -> None:
        if self.overlay.at(to) is not None:
            if not overwrite:
                raise _exists(to, Advice("Choose another path, ", step_term("overwrite"), "."))
            self.bases.look(to, None, may_merge=False)
        self.bases.forget_base(to)
        self.overlay.put(to, moving.state)
        self.bases.known[to] = set(moving.known)
        if moving.origin is not None:
            self.sources[to] = moving.origin
        if moving.carried_from is not None:
            self.carried[to] = moving.carried_from
        self.reports[to] = moving.report
        if moving.is_merged:
            self.bases.merged.add(to)

    def _chmod(self, edit: Chmod) -> None:
        path = self.resolve(WorkspacePath.parse(edit.path))
        state = self.bases.existing(path, None)
        self.overlay.put(path, state.with_mode(EXECUTABLE if edit.executable else FILE))

    def _symlink(self, edit: Symlink) -> None:
        path, base = WorkspacePath.parse(edit.path), base_of(edit)
        path = self.overlay.resolve_folder(path)
        link = FileState(_target(edit.target), SYMLINK)
        state = self.overlay.at(path)
        if state is not None and (base is None or base.version is None):
            if base is None and state == link:
                self.bases.note(path)
                return
            raise _exists(path, Advice(step_term("give_base"), " to put the link in its place."))
        self.bases.look(path, base)
        self.overlay.put(path, link)

    # ── Patches ────────────────────────────────────────────────────────────────────────────────

    def _patch(self, edit: Patch) -> None:
        if edit.fuzz < 0:
            raise InvalidParams("`fuzz` is the number of context lines that may differ, 0 or more.")
        files = parse(edit.patch)
        for file in files:
            if file.source is not None and file.target is None:
                self.overlay.expect_removal(self.overlay.resolve_folder(file.source))
        # As in git, a rename or copy takes the file from before the patch, even if the patch also changes
        # that file. Order matters only if the patch itself creates the source.
        moves = [file for file in files if file.is_move and self._is_there(file)]
        moving = {file.line: self._patch_away(file, edit.fuzz) for file in sorted(moves, key=_copies_first)}
        for file in files:
            if file.is_move:
                assert file.target is not None
                gone = moving.get(file.line) or self._patch_away(file, edit.fuzz)
                self._arrive(self.overlay.resolve_folder(file.target), gone)
            elif file.source is None:
                self._patch_new(file, edit.fuzz)
            else:
                self._patch_here(file, file.source, edit.fuzz)

    def _is_there(self, file: FilePatch) -> bool:
        assert file.source is not None
        return self.overlay.at(self.overlay.resolve_folder(file.source)) is not None

    def _patch_here(self, file: FilePatch, source: WorkspacePath, fuzz: int) -> None:
        """Apply a modification or deletion of a file."""
        is_followed = file.target is not None and not file.is_symlink
        path = self.resolve(source) if is_followed else self.overlay.resolve_folder(source)
        state = self._patched(path, self.bases.existing(path, None), file, fuzz)
        if file.target is None:
            self._remove(path)
        else:
            self.overlay.put(path, state)

    def _patch_new(self, file: FilePatch, fuzz: int) -> None:
        assert file.target is not None
        path = self.overlay.resolve_folder(file.target) if file.is_symlink else self.resolve(file.target)
        if self.overlay.at(path) is not None:
            raise _exists(path, "Check if the patch, which makes it as a new file, is applied already.")
        self.bases.look(path, Base(None))
        self.written_whole.add(path)
        state = self._patched(path, FileState(b""), file, fuzz)
        self.bases.note(path, state.version)
        self.overlay.put(path, state)

    def _patch_away(self, file: FilePatch, fuzz: int) -> _Moving:
        """Return the patched state that a rename or copy puts at its new path."""
        assert file.source is not None
        path = self.overlay.resolve_folder(file.source)
        state = self._patched(path, self.bases.existing(path, None), file, fuzz)
        if file.is_copy:
            new = FileState(state.content, state.mode)
            return _Moving(
                new, origin=None, known=frozenset({Base(new.version)}), report=FileReport(),
                carried_from=self._source_of(path),
            )  # fmt: skip
        self.overlay.put(path, state)
        return self._leave(path)

    def _patched(self, path: WorkspacePath, state: FileState, file: FilePatch, fuzz: int) -> FileState:
        """Apply `file` to the bytes of `state`, or to its text in its own encoding.

        Text in UTF-8 is first tried on the text: its new lines are never put into a file of another encoding.
        """
        self._count_work(path, state)
        self.searched = path
        text = None if state.is_symlink else Text.decode_if_text(state.content, self.fallback_encoding)
        if text is not None and text.encoding != "utf-8" and file.is_utf8:
            try:
                applied = self._patched_text(path, text, file, fuzz)
            except NoMatch:
                applied = apply_to(state.content, file, fuzz=fuzz)
        else:
            try:
                applied = apply_to(state.content, file, fuzz=fuzz)
            except NoMatch:
                if text is None or (text.encoding == "utf-8" and not text.bom):
                    raise
                applied = self._patched_text(path, text, file, fuzz)
        for warning in applied.warnings:
            self.report(path, warning=warning)
        mode = file.mode or state.mode
        if mode == SYMLINK and file.target is not None:
            _check_target(applied.content)
        return state.with_mode(mode).with_content(applied.content)

    def _patched_text(self, path: WorkspacePath, text: Text, file: FilePatch, fuzz: int) -> AppliedPatch:
        applied = apply_to(text.text.encode(), file, fuzz=fuzz)
        content = text.encode(applied.content.decode("utf-8", "surrogateescape"), path=path.text)
        return AppliedPatch(content, applied.warnings)


def _is_unicode(text: str) -> bool:
    """Return whether the text is no bytes in the form of surrogate escapes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


_MODES: dict[str, GitMode] = {"100644": FILE, "100755": EXECUTABLE}


def base_of(edit: Write | Replace | Delete | Move | Symlink | Tool) -> Base | None:
    """Return the base that an edit gives, or None. Raises InvalidParams."""
    return None if isinstance(edit.base, UnsetType) else Base.parse(edit.base)


def _copies_first(file: FilePatch) -> bool:
    return not file.is_copy


def _exists(path: WorkspacePath, hint: str | Advice) -> FileExists:
    return FileExists(f"{path} exists already.", hint=hint, data={"path": path.text})


def _target(text: str) -> bytes:
    try:
        target = os.fsencode(text)
    except UnicodeEncodeError:
        target = b""
    _check_target(target)
    return target


def _check_target(target: bytes) -> None:
    if not is_link_target(target):
        raise InvalidParams(
            "The target of a symbolic link is empty, holds a NUL, or is too long.",
            hint=f"Give a path of 1 to {PATH_BYTES_MAX} bytes.",
        )
