"""Shell commands that only read, and shell commands that are a patch."""

from __future__ import annotations

import re

_READERS = """
basename cat cd cmp cut date df diff dirname du echo false grep head id jq ls md5sum nl printf ps pwd readlink
realpath rg sha1sum sha256sum stat tail test tr true type uname wc which whoami
"""
_GIT_READERS = """
blame cat-file describe diff for-each-ref grep log ls-files ls-tree merge-base rev-list rev-parse shortlog
show show-ref status
"""
READERS, GIT_READERS = frozenset(_READERS.split()), frozenset(_GIT_READERS.split())
# With a redirection, a substitution or a command in the background, any words may write.
_WRITES = re.compile(r"[<>`]|\$\(|(?<!&)&(?!&)")
_QUOTED = re.compile(r"""'[^'\\]*'|"[^"$`\\]*\"""")  # taken literally by a shell
_PARTS = re.compile(r"&&|\|\||[;|\n]")  # a part inside quotes is one more to check, so never a gap
_OUTPUT = re.compile(r"\s(?:-o|--output|--pre)")  # options that name a file to write, or a program
_LINES = re.compile(r"sed -n\s+(['\"]?)[\d,$]+p\1(?:\s+[^-\s]\S*)*")
_HEREDOC = re.compile(
    r"""\s*(?:cd\s+(?P<folder>'[^']*'|"[^"]*"|\S+)\s*(?:&&|;)\s*)?(?:apply_patch|applypatch)\b"""
)
_NAMED = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+?)\s*$|^\*\*\* Move to: (.+?)\s*$", re.MULTILINE)


def only_reads(command: str) -> bool:
    """Whether the command cannot write a file, by its words alone; False if in doubt."""
    if "\\" not in command:  # which may quote a quote
        command = _QUOTED.sub(_without_marks, command)
    return not _WRITES.search(command) and all(map(_part_reads, _PARTS.split(command)))


def _without_marks(quoted: re.Match[str]) -> str:
    """Return the quoted text without characters that mean something outside of quotes only."""
    return re.sub(r"[|;&<>()\n`$]", "_", quoted[0]) if not _LINES.search(f"sed -n {quoted[0]}") else quoted[0]


def _part_reads(part: str) -> bool:
    words = part.split()
    if not words or _LINES.fullmatch(part.strip()):
        return True
    if _OUTPUT.search(part):
        return False
    return words[0] in READERS or (words[0] == "git" and len(words) > 1 and words[1] in GIT_READERS)


def shown_files(command: str) -> list[str]:
    """Return the files that a command of readers prints whole, by `cat`."""
    shown: list[str] = []
    for part in _PARTS.split(command):
        words = part.split()
        if words[:1] == ["cat"] and not re.search(r"[*?\[$~'\"\\]", part):
            shown += [word for word in words[1:] if not word.startswith("-")]
    return shown


def patch_folder(command: str) -> str | None:
    """Return the folder where a shell command applies a patch, `` for its own; None if it is no patch."""
    match = _HEREDOC.match(command)
    if match is None or "*** Begin Patch" not in command:
        return None
    return (match["folder"] or "").strip("'\"")


def patched_paths(patch: str) -> tuple[list[str], list[str]]:
    """Return the paths that a patch names, and which of them it writes whole or deletes."""
    named, whole = [], []
    for verb, path, target in _NAMED.findall(patch):
        named.append(path or target)
        if verb != "Update":
            whole.append(path or target)
    return named, whole


_MOVE = "*** Move to: "


def patched_texts(patch: str) -> list[tuple[str, str | None, str | None]]:
    """Return each part of a patch as its path with the old and the new text.

    Without an old text it is the whole file, and without a new one a deletion. A move is the deletion of its
    source, and the hunks at its target. The first of these hunks changes nothing.
    """
    texts: list[tuple[str, str | None, str | None]] = []
    verb, path = "", ""
    old: list[str] = []
    new: list[str] = []

    def end_hunk() -> None:
        if verb == "Update" and (old or new):
            texts.append((path, "".join(old), "".join(new)))
        elif verb == "Add":
            texts.append((path, None, "".join(new)))
        elif verb == "Delete":
            texts.append((path, None, None))
        old.clear()
        new.clear()

    for line in patch.splitlines():
        if line.startswith("*** "):
            end_hunk()
            if verb == "Update" and line.startswith(_MOVE):
                texts.append((path, None, None))
                path = line.removeprefix(_MOVE).strip()
                texts.append((path, "", ""))
                continue
            named = _NAMED.match(line)
            verb, path = (named[1], named[2]) if named is not None and named[1] else ("", "")
        elif line.startswith("@@"):
            end_hunk()
        elif verb:
            if line[:1] in ("-", " ", ""):
                old.append(f"{line[1:]}\n")
            if line[:1] in ("+", " ", ""):
                new.append(f"{line[1:]}\n")
    return texts
