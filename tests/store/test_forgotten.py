"""store.forgotten: the record in its present form and in the first one, and damage to it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from editd.errors import HistoryDamaged
from editd.store.forgotten import FORGOTTEN, ForgottenContent, read_forgotten, whole_lines, write_forgotten
from editd.values.content import version_of

if TYPE_CHECKING:
    from pathlib import Path

ONE = ForgottenContent(version_of(b"one"), 3, 7, 1_000_000, 'Ann "A" Ä', is_gone=True)
TWO = ForgottenContent(version_of(b"two"), 3, 8, 2_000_000, "Bob")
BOTH = {content.version: content for content in (ONE, TWO)}


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert read_forgotten(str(tmp_path)) == {}
    write_forgotten(str(tmp_path), BOTH)
    assert read_forgotten(str(tmp_path)) == whole_lines(str(tmp_path)) == BOTH


def test_the_first_form_is_read_and_replaced_by_the_present_one(tmp_path: Path) -> None:
    body = (
        "editd forgotten 1\n"
        f'forgotten {ONE.version} 3 7 1000000 "Ann \\"A\\" \\u00c4"\n'
        f'forgetting {TWO.version} 3 8 2000000 "Bob"\n'
    ).encode()
    file = tmp_path / FORGOTTEN
    file.write_bytes(body + hashlib.sha1(body).hexdigest().encode() + b"\n")
    assert read_forgotten(str(tmp_path)) == whole_lines(str(tmp_path)) == BOTH
    file.write_bytes(file.read_bytes().replace(b" 3 7 ", b" 3 9 "))
    with pytest.raises(HistoryDamaged, match="checksum"):
        read_forgotten(str(tmp_path))
    write_forgotten(str(tmp_path), BOTH)
    assert not file.read_bytes().startswith(b"editd")
    assert read_forgotten(str(tmp_path)) == BOTH


def test_each_flipped_byte_and_each_cut_is_damage_and_costs_no_other_line(tmp_path: Path) -> None:
    write_forgotten(str(tmp_path), BOTH)
    file = tmp_path / FORGOTTEN
    whole = file.read_bytes()
    for at in range(len(whole)):
        for damage in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at] if at else b"x"):
            file.write_bytes(damage)
            with pytest.raises(HistoryDamaged):
                read_forgotten(str(tmp_path))
            assert whole_lines(str(tmp_path)).items() <= BOTH.items()
    file.write_bytes(whole.replace(b"Bob", b"Rob"))
    assert whole_lines(str(tmp_path)) == {ONE.version: ONE}
