"""The key of a name: no two names that a file system takes for one have two keys."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

import pytest

from editd.values import name_key
from editd.values.name_key import key_of
from support import file_systems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRY_BYTES, UPCASE_TABLE, SKIP = 32, 0x82, 0xFFFF  # of exFAT's root folder, and its compressed table
CHARACTERS = 0x10000  # of the tables, which have 16 bits
SURROGATES = range(0xD800, 0xE000)


@pytest.fixture(autouse=True)
def _unfolded() -> Iterator[None]:
    yield
    name_key.set_folding("")


def test_a_key_is_the_same_for_each_spelling_that_a_folding_takes_for_one() -> None:
    names = ["Straße é", "sTRASSE é", "Straße e\u0301", "Stra\u200bße\ufeff é", "ΣΑΣ", "σας", "σασ"]
    keys = {}
    for folding in ("", "case", "form", "case and form"):
        name_key.set_folding(folding)
        keys[folding] = len({key_of(name) for name in names})
    assert keys == {"": 7, "case": 4, "form": 5, "case and form": 2}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exfat", "ntfs-3g"])
def test_no_two_characters_that_a_table_of_the_file_system_takes_for_one_have_two_keys(
    tmp_path: Path, kind: str
) -> None:
    if (reason := file_systems.missing(kind)) is not None:
        pytest.skip(reason)
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(file_systems.IMAGE_BYTES)
    make, _ = file_systems.COMMANDS[kind]
    subprocess.run(make.format(aside=tmp_path).split(), check=True, capture_output=True)
    table = table_of_exfat(image.read_bytes()) if kind == "exfat" else table_of_ntfs(image)
    name_key.set_folding("case")
    keys: dict[int, set[str]] = {}
    for character, upper in enumerate(table):
        if character not in SURROGATES:
            keys.setdefault(upper, set()).add(key_of(chr(character)))
    assert {chr(upper): found for upper, found in keys.items() if len(found) > 1} == {}
    assert len(keys) < CHARACTERS - len(SURROGATES) - 800, "it folds hardly anything"


def table_of_exfat(image: bytes) -> list[int]:
    """Return the upper case of each character, by the table of an exFAT file system."""
    heap, root = struct.unpack_from("<I", image, 88)[0], struct.unpack_from("<I", image, 96)[0]
    sector, in_a_cluster = 1 << image[108], 1 << image[109]

    def start(cluster: int) -> int:
        return int((heap + (cluster - 2) * in_a_cluster) * sector)

    entry = start(root)
    while image[entry] != UPCASE_TABLE:
        entry += ENTRY_BYTES
    cluster, length = struct.unpack_from("<IQ", image, entry + 20)
    words = iter(struct.unpack_from(f"<{length // 2}H", image, start(cluster)))
    table: list[int] = []
    for word in words:  # SKIP and a number: as many characters are their own upper case
        table += range(len(table), len(table) + next(words, 1)) if word == SKIP else [word]
    return table


def table_of_ntfs(image: Path) -> list[int]:
    """Return the upper case of each character, by the table of an NTFS file system."""
    read = ["ntfscat", "--force", str(image), "$UpCase"]
    table = subprocess.run(read, check=True, capture_output=True).stdout
    return list(struct.unpack(f"<{CHARACTERS}H", table))
