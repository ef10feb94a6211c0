"""The copy of the log on a host is all that the exchange writes itself, and a fetch makes it again (L7)."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from support.hosts import exchange, hosts
from support.workplace import replace

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"a.txt": "".join(f"line {number}\n" for number in range(1, 10))}


def test_a_copy_of_the_log_that_is_deleted_costs_a_fetch(tmp_path: Path) -> None:
    with hosts(tmp_path, 2, FILES) as (places, (one, other), _):
        one.apply([replace("a.txt", "line 1\n", "1\n")])
        exchange(one, other)
        other.remote_pause()
        other.apply([replace("a.txt", "line 9\n", "9\n")])
        other.close()
        places[1].kill()
        shutil.rmtree(places[1].state / "remote" / "log.git")
        one.apply([replace("a.txt", "line 5\n", "5\n")])
        exchange(one)
        with places[1].start() as again:
            again.remote_resume()
            exchange(one, again)
            expected = FILES["a.txt"].replace("line 1", "1").replace("line 5", "5").replace("line 9", "9")
            assert [place.files()["a.txt"].decode() for place in places] == [expected] * 2
            assert again.check().problems == []
