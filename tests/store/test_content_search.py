"""store.content_search: whatever holds a content or a text, in whatever form, is named."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from editd.store import sqlite
from editd.store.content_search import ContentSearch, Sought
from editd.store.git_objects import object_id
from editd.store.journal import Journal
from editd.store.journal_record import ChangeRecord, Committed, EntryRecord
from editd.store.pack_writer import PackWriter
from editd.values.content import version_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = 'correct "horse" bättery staple'
CONTENT = f"{os.urandom(300).hex()}\npassword = {SECRET}\n".encode()
OLDER = CONTENT.replace(SECRET.encode(), b"$PASSWORD")


def in_a_pack(folder: Path) -> None:
    with PackWriter(str(folder / "store.git" / "objects" / "pack")) as writer:
        writer.add("blob", CONTENT)
        writer.finish()


def in_a_delta(folder: Path) -> None:
    with PackWriter(str(folder / "store.git" / "objects" / "pack")) as writer:
        base = writer.add("blob", OLDER)
        writer.add("blob", CONTENT, None, (base, OLDER))
        writer.finish()


def in_a_commit(folder: Path) -> None:
    with PackWriter(str(folder / "store.git" / "objects" / "pack")) as writer:
        writer.add("commit", CONTENT)
        writer.finish()


def in_the_journal(folder: Path) -> None:
    change = ChangeRecord(b"a", None, EntryRecord(0o100644, object_id("blob", CONTENT), None, CONTENT))
    journal = Journal(str(folder / "journal"))
    journal.append([Committed(1, bytes(20), "edit", "me", None, "", None, 1, (), (change,))])
    journal.close()


def in_a_segment_that_waits_for_its_next_use(folder: Path) -> None:
    in_the_journal(folder)
    (segment,) = (folder / "journal").glob("*.segment")
    segment.rename(segment.with_name(f"{99:016x}.segment"))


def in_a_row(folder: Path) -> None:
    database = sqlite.connect(
        str(folder / "a.db"), journal="delete", synchronous="off", tables="create table content (bytes blob);"
    )
    database.execute("insert into content values (?)", (CONTENT,))
    database.close()


def in_a_freed_page(folder: Path) -> None:
    in_a_row(folder)
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as database:
        database.execute("pragma secure_delete = off")  # some builds overwrite by themselves
        database.execute("delete from content")
        database.commit()


def in_json(folder: Path) -> None:
    (folder / "answers.json").write_text(json.dumps({"output": SECRET}))


def in_lost_and_found(folder: Path) -> None:
    (folder / "strays").mkdir()
    (folder / "strays" / "1").write_bytes(CONTENT)


def in_the_log(folder: Path) -> None:
    (folder / "log.2").write_text(f"INFO something: {SECRET}\n")


BY_VERSION = (
    in_a_pack, in_a_delta, in_the_journal, in_a_segment_that_waits_for_its_next_use, in_a_row,
    in_lost_and_found,
)  # fmt: skip
BY_TEXT = (*BY_VERSION, in_a_commit, in_a_freed_page, in_json, in_the_log)


def found(folder: Path, sought: Sought) -> list[str]:
    return [holder.file for holder in ContentSearch(str(folder), sought).holders()]


@pytest.mark.parametrize("put", BY_TEXT)
def test_a_text_is_found_wherever_it_is(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path)
    assert len(set(found(tmp_path, Sought.of([], SECRET)))) == 1
    assert found(tmp_path, Sought.of([], SECRET[::-1])) == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_text_is_found_in_each_encoding_with_each_kind_of_line_end(
    encoding: str, end: str, tmp_path: Path
) -> None:
    """The attack: a key in a file of Windows, which is UTF-16 with CR LF, and is given as UTF-8 with LF."""
    text = f"-----BEGIN KEY-----\n{SECRET}\n-----END KEY-----"
    (tmp_path / "key").write_bytes(f"before\n{text}\nafter\n".replace("\n", end).encode(encoding))
    assert found(tmp_path, Sought.of([], text)) == ["key"]
    assert found(tmp_path, Sought.of([], text.replace("\n", "\r\n"))) == ["key"]
    assert found(tmp_path, Sought.of([], text[::-1])) == []


@pytest.mark.parametrize("put", BY_VERSION)
def test_a_content_is_found_by_its_version(put: Callable[[Path], None], tmp_path: Path) -> None:
    put(tmp_path)
    assert len(set(found(tmp_path, Sought.of([version_of(CONTENT)], None)))) == 1
    assert found(tmp_path, Sought.of([version_of(b"another")], None)) == []


def test_the_search_of_an_empty_folder_finds_nothing(tmp_path: Path) -> None:
    search = ContentSearch(str(tmp_path), Sought.of([version_of(CONTENT)], SECRET))
    assert list(search.holders()) == []
    assert search.looked_at == 0
