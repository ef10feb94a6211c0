"""A daemon for all tests of a module. Each test finds the module's files and no session."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support.workplace import workplace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from support.workplace import Workplace


@contextmanager
def shared_workplace(folder: Path) -> Iterator[Workplace]:
    """Run a daemon on an empty workspace. `renewed` gives it the files."""
    with workplace(folder / "place") as place:
        place.start().close()
        yield place
        place.stop()


def renewed(place: Workplace, files: Mapping[str, bytes | str]) -> Workplace:
    """Give the workspace these files alone, end all sessions, and return the workspace."""
    with place.unnoticed():
        for path in place.root.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        place.write(files)
    with place.client() as client:
        for session in client.session_list().sessions:
            client.session_close(session.session, force=True)
        client.settle()
    return place
