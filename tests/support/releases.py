"""Successive releases of a real project, as the package registry has them: by path, the bytes and the mode.

The archives are source distributions, kept in `.pytest_cache`, so that one checkout fetches each of them
once: from the registry itself, or by pip where only pip knows the way there. Pip asks an archive's build
backend for its metadata even where it only downloads; the backends are installed once, beside the archives.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    from pathlib import Path

CLICK = (
    "7.0", "7.1", "7.1.1", "7.1.2",
    "8.0.0", "8.0.1", "8.0.2", "8.0.3", "8.0.4",
    "8.1.0", "8.1.1", "8.1.2", "8.1.3", "8.1.4", "8.1.5", "8.1.6", "8.1.7", "8.1.8",
    "8.2.0", "8.2.1",
)  # fmt: skip
SWITCHED = "docs/conf.py"  # in every release of click
REGISTRY = "https://pypi.org/pypi/click/json"
SECONDS_MAX = 30
DOWNLOADS_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Held:
    """What a path holds."""

    content: bytes
    is_executable: bool = False


Release = dict[str, Held]


def releases(cache: Path) -> list[Release]:
    """The releases of `CLICK`, oldest first; what is not in `cache` yet is downloaded.

    None of the archives has an executable file, so one file is made executable in every other release:
    all else is byte for byte what was published.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / "being-filled", "w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)  # several test processes may want them at once
        missing = [version for version in CLICK if archive(cache, version) is None]
        listed = registry() if missing else {}
        with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
            done = list(pool.map(lambda version: download(cache, listed, version), missing))
        for version in [version for version, is_there in zip(missing, done, strict=True) if not is_there]:
            download_by_pip(cache, version)
    found: list[Release] = []
    for number, version in enumerate(CLICK):
        path = archive(cache, version)
        assert path is not None, f"pip has not downloaded click {version}"
        release = unpacked(path)
        release[SWITCHED] = Held(release[SWITCHED].content, is_executable=number % 2 == 1)
        found.append(release)
    return found


def archive(cache: Path, version: str) -> Path | None:
    """Where the archive of one release lies; the project's name was once written with a capital."""
    paths = (cache / f"{name}-{version}.tar.gz" for name in ("click", "Click"))
    return next((path for path in paths if path.exists()), None)


def download(cache: Path, listed: dict[str, list[dict[str, Any]]], version: str) -> bool:
    """Fetch one release from the registry; False where only pip knows the way there."""
    try:
        file = next(file for file in listed[version] if file["packagetype"] == "sdist")
        with urllib.request.urlopen(urljoin(REGISTRY, file["url"]), timeout=SECONDS_MAX) as answer:
            content = answer.read()
    except (OSError, ValueError, KeyError, StopIteration):
        return False
    assert hashlib.sha256(content).hexdigest() == file["digests"]["sha256"], file["url"]
    partial = cache / f"{version}.partial"
    partial.write_bytes(content)
    partial.rename(cache / file["filename"])
    return True


def registry() -> dict[str, Any]:
    """What the registry has of each release; nothing where it cannot be asked."""
    try:
        with urllib.request.urlopen(REGISTRY, timeout=SECONDS_MAX) as answer:
            found: dict[str, Any] = json.load(answer)["releases"]
            return found
    except (OSError, ValueError, KeyError):
        return {}


def download_by_pip(cache: Path, version: str) -> None:
    """The same by pip, which builds each archive's metadata: some two seconds each."""
    backends = cache / "backends"
    if not backends.exists():
        pip("install", "--target", str(backends), "setuptools", "wheel", "flit_core")
    pip(
        "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", str(cache),
        f"click=={version}", PYTHONPATH=str(backends),
    )  # fmt: skip


def pip(*argv: str, **variables: str) -> None:
    quiet = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *argv]
    done = subprocess.run(quiet, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def unpacked(path: Path) -> Release:
    """The files of an archive, without the folder that they are all in."""
    files: Release = {}
    with tarfile.open(path) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                name = member.name.partition("/")[2]
                files[name] = Held(content.read(), bool(member.mode & 0o100))
    return files
