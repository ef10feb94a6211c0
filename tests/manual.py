"""The manual pages, made from the text of `--help` and of docs/: they say nothing of their own.

python tests/manual.py            # tell which pages are not up to date
python tests/manual.py --write    # and write them, to docs/man/
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

TOP = Path(__file__).resolve().parents[1]
if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[:0] = [str(TOP / "daemon"), str(TOP / "client")]

import click  # noqa: E402

from editd import __version__  # noqa: E402
from editd.cli import main as editd  # noqa: E402
from editd_client.cli import VERBS, editctl  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = TOP / "docs" / "man"
DATE = "2026-11-21"  # of the form of these pages; what they say is as old as the help
SEE_ALSO = ["editd(1)", "editctl(1)", "editd(7)", "git(1)", "systemd.socket(5)"]
CONCEPTS = [
    # of the glossary's nouns, those that a reader of the other pages meets, each after what it builds on
    "workspace", "transaction", "history", "head", "baseline", "version", "base", "stale", "conflict",
    "session", "actor", "outside", "lease", "bracket",
]  # fmt: skip


def pages() -> dict[str, str]:
    """Each page by its file below docs/man."""
    return {
        "man1/editd.1": "\n".join(_editd()) + "\n",
        "man1/editctl.1": "\n".join(_editctl()) + "\n",
        "man7/editd.7": "\n".join(_concepts()) + "\n",
    }


def stale() -> list[str]:
    """The pages that do not lie in docs/man as they would be made."""
    return [
        name
        for name, text in pages().items()
        if not (PAGES / name).exists() or (PAGES / name).read_text(encoding="utf-8") != text
    ]


# ── the pages ──


def _editd() -> Iterator[str]:
    context = click.Context(editd, info_name="editd")
    yield from _head("editd", 1, "the daemon that owns a workspace")
    yield ".SH SYNOPSIS"
    yield _usage(editd, context, "editd")
    yield ".SH DESCRIPTION"
    yield from _help(editd.help or "")
    yield ".SH OPTIONS"
    yield from _options(editd, context)
    yield from _see_also("editd(1)")


def _editctl() -> Iterator[str]:
    context = click.Context(editctl, info_name="editctl")
    yield from _head("editctl", 1, "edit a workspace through its daemon")
    yield ".SH SYNOPSIS"
    yield _usage(editctl, context, "editctl")
    yield ".SH DESCRIPTION"
    yield from _help(editctl.help or "")
    yield ".SH OPTIONS"
    yield from _options(editctl, context)
    for section, verbs in VERBS.items():
        yield f'.SH "{_escaped(section.upper())}"'
        for verb in verbs:
            command = editctl.get_command(context, verb)
            assert command is not None
            yield from _verb(command, context, f"editctl {verb}")
    for title, text in _sections(editctl.epilog or ""):
        yield f'.SH "{_escaped(title.upper())}"'
        yield from _table(text)
    yield from _see_also("editctl(1)")


def _concepts() -> Iterator[str]:
    yield from _head("editd", 7, "transactions on the files of a workspace")
    yield ".SH DESCRIPTION"
    about = (TOP / "README.md").read_text(encoding="utf-8").split("\n\n")[2]
    yield _markdown(about)
    yield ".SH CONCEPTS"
    meanings = dict(_glossary())
    for word in CONCEPTS:
        yield ".TP"
        yield rf"\fB{_escaped(word)}\fR"
        yield _markdown(meanings[word])
    yield ".SH GUARANTEES"
    for number, item in enumerate(_guarantees()):
        if number:
            yield ".PP"
        yield _markdown(item)
    yield from _see_also("editd(7)")


# ── their parts ──


def _head(name: str, section: int, about: str) -> Iterator[str]:
    yield r".\" Made by tests/manual.py from the text of --help and of docs/: change that, not this."
    yield f'.TH {name.upper()} {section} {DATE} "editd {__version__}" "editd"'
    yield ".SH NAME"
    yield rf"{_escaped(name)} \- {_escaped(about)}"


def _see_also(own: str) -> Iterator[str]:
    yield ".SH SEE ALSO"
    others = [page for page in SEE_ALSO if page != own]
    for page in others:
        name, number = page.rstrip(")").split("(")
        yield f".BR {_escaped(name)} ({number})" + ("," if page != others[-1] else "")


def _usage(command: click.Command, context: click.Context, name: str) -> str:
    pieces = [_escaped(piece) for piece in command.collect_usage_pieces(context)]
    return rf"\fB{_escaped(name)}\fR " + " ".join(rf"\fI{piece}\fR" for piece in pieces)


def _verb(command: click.Command, parent: click.Context, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f'.SS "{_escaped(name)}"'
    yield _usage(command, context, name)
    yield ".PP"
    yield from _help(command.help or "")
    yield from _options(command, context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from _verb(found, context, f"{name} {below}")


def _help(text: str) -> Iterator[str]:
    r"""Paragraphs; one that begins with `\b` is a title and lines that stay as they are."""
    is_first = True
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not is_first:
            yield ".PP"
        is_first = False
        if not paragraph.startswith("\b"):
            yield _line(" ".join(paragraph.split()))
            continue
        title, *lines = paragraph.strip("\b\n").splitlines()
        yield _line(title.strip())
        yield from _verbatim(lines)


def _verbatim(lines: list[str]) -> Iterator[str]:
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    yield from (".RS 4", ".nf")
    yield from (_line(line[margin:]) for line in lines)
    yield from (".fi", ".RE")


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    for param in command.params:
        record = param.get_help_record(context)
        if record is None or isinstance(param, click.Argument):
            continue  # it is hidden, or the usage names it and the help speaks of it
        names, about = record
        yield ".TP"
        yield re.sub(
            r"[^\s,/]+", lambda m: rf"\f{'B' if m[0].startswith('-') else 'I'}{_escaped(m[0])}\fR", names
        )
        if about:
            yield _line(" ".join(about.split()))


def _sections(epilog: str) -> Iterator[tuple[str, list[str]]]:
    for part in epilog.split("\b\n"):
        if part.strip():
            title, *lines = part.strip("\n").splitlines()
            yield title.rstrip(":"), lines


def _table(lines: list[str]) -> Iterator[str]:
    """Lines of `name  what it is`."""
    for line in lines:
        name, about = line.split(None, 1)
        yield ".TP"
        yield rf"\fB{_escaped(name)}\fR"
        yield _line(about)


def _glossary() -> Iterator[tuple[str, str]]:
    for line in (TOP / "docs/glossary.md").read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"\| \*\*(\w+)\*\* \| (.*) \| [^|]* \|", line)
        if found:
            yield found[1], found[2][0].upper() + found[2][1:].rstrip(".") + "."


def _guarantees() -> list[str]:
    text = (TOP / "docs/protocol.md").read_text(encoding="utf-8")
    section = text.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    return re.split(r"\n(?=\d+\. )", section.strip())


def _markdown(text: str) -> str:
    """One paragraph of the documentation's Markdown as one line of roff."""
    bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(text.split()))
    parts = re.split(r"\*\*(.+?)\*\*|`(.+?)`|\*(\w.*?)\*", bare)
    made = ""
    for number, part in enumerate(parts):
        face = ("", "B", "B", "I")[number % 4]
        made += "" if not part else rf"\f{face}{_escaped(part)}\fR" if face else _escaped(part)
    return rf"\&{made}" if made.startswith((".", "'")) else made


def _line(text: str) -> str:
    """A line of text, which is no request even where it begins with a dot."""
    escaped = _escaped(text)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


def _escaped(text: str) -> str:
    """The text as roff prints it: each character as it is, so that commands can be copied."""
    special = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
    return "".join(special.get(character, character) for character in text)


def main() -> int:
    found = stale()
    if "--write" in sys.argv[1:]:
        for name in found:
            (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / name).write_text(pages()[name], encoding="utf-8")
        return 0
    print("\n".join(found) or "all pages are up to date")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
