"""Writes that write half of what they are given, as write(2) may: nothing is torn, in any process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.crash_checks import fsck, packer, transactions
from support.kill_chain import Chain, verify_whole
from support.scenarios import LARGE, SCENARIOS
from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator

HALVING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static size_t half(int file, size_t size) {
    struct stat found;
    return size < 2 || fstat(file, &found) || !S_ISREG(found.st_mode) ? size : size / 2;
}

ssize_t write(int file, const void *from, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return real(file, from, half(file, size));
}

ssize_t pwrite(int file, const void *from, size_t size, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    return real(file, from, half(file, size), at);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t at) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return real(file, from, half(file, size), at);
}

static ssize_t halves(int file, const struct iovec *parts, off64_t at, int flags, const char *name) {
    ssize_t (*real)(int, const struct iovec *, int, off64_t, int) = dlsym(RTLD_NEXT, name);
    struct iovec first = parts[0];
    first.iov_len = half(file, first.iov_len);
    return real(file, &first, 1, at, flags);
}

ssize_t pwritev2(int file, const struct iovec *parts, int count, off_t at, int flags) {
    return halves(file, parts, at, flags, "pwritev2");
}

ssize_t pwritev64v2(int file, const struct iovec *parts, int count, off64_t at, int flags) {
    return halves(file, parts, at, flags, "pwritev64v2");
}
"""
WRITES = """
import os, sys
assert sys.dont_write_bytecode
file = os.open("written", os.O_CREAT | os.O_RDWR)
print(os.write(file, b"1234"), os.pwrite(file, b"1234", 0), os.pwritev(file, [b"1234"], 0, os.RWF_DSYNC))
"""
# Python writes its .pyc files without a look at how much was written: cut off, they would stay in the tree,
# and break whatever runs there next.
NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    """A daemon that writes halves, and so do its children."""
    library = built(tmp_path)
    with workplace(tmp_path / "place") as place:
        place.is_forked = False
        place.variables |= {"LD_PRELOAD": str(library), **NO_BYTECODE}
        made = Chain(place, is_long=False)
        yield made
        made.close()


def built(folder: Path) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    source, library = folder / "halving.c", folder / "halving.so"
    source.write_text(HALVING)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), **NO_BYTECODE}
    written = subprocess.run(
        [sys.executable, "-c", WRITES], env=environment, cwd=folder, check=True, capture_output=True
    )
    assert written.stdout.split() == [b"2", b"2", b"2"], "writes are not halved"
    return library


def test_what_is_written_by_halves_is_whole(chain: Chain, is_long: bool) -> None:
    for scenario in (*SCENARIOS, LARGE) if is_long else SCENARIOS[1:2]:
        client, tag, expected, head = chain.begin(scenario)
        scenario.meddle(chain.place, tag)
        scenario.ask(client, tag)
        verify_whole(chain, scenario, tag, expected, head)
    packing = Path(f"/proc/{packer(chain.place)}")
    assert "halving" in (packing / "maps").read_text()
    assert "PYTHONDONTWRITEBYTECODE=1" in (packing / "environ").read_text()
    made = transactions(chain.start())
    chain.place.kill()
    assert transactions(chain.start()) == made
    client = chain.restart()
    client.settle()
    assert transactions(client) == made
    assert client.check().problems == []
    fsck(chain.place)
