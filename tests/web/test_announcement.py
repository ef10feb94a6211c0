"""The address of a running page, for programs of the user: without the token, and gone with the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from editd_client.announcement import announced, web_address
from support.web_page import web_page

if TYPE_CHECKING:
    from pathlib import Path

    from support.workplace import Workplace


def test_a_running_page_is_announced_without_its_token(place: Workplace) -> None:
    place.write({"a": "x\n"})
    with place.start():
        assert web_address(str(place.state)) is None
        with web_page(place, is_forked=False) as page:
            assert web_address(str(place.state)) == page.address
            assert page.token not in (place.state / "web").read_text()
            assert (place.state / "web").stat().st_mode & 0o777 == 0o600
        assert web_address(str(place.state)) is None
    place.stop()


def test_of_two_pages_the_first_is_announced(tmp_path: Path) -> None:
    with announced(str(tmp_path), "http://127.0.0.1:1"):
        with announced(str(tmp_path), "http://127.0.0.1:2"):
            assert web_address(str(tmp_path)) == "http://127.0.0.1:1"
        assert web_address(str(tmp_path)) == "http://127.0.0.1:1"
    assert web_address(str(tmp_path)) is None


def test_a_killed_page_is_not_announced(tmp_path: Path) -> None:
    code = (
        "import sys, time; from editd_client.announcement import announced\n"
        f"with announced({str(tmp_path)!r}, 'http://127.0.0.1:1'): print('ready', flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert web_address(str(tmp_path)) == "http://127.0.0.1:1"
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "web").read_text()
    assert web_address(str(tmp_path)) is None


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("http://evil.example")
    (tmp_path / "web").symlink_to(tmp_path / "other")
    assert web_address(str(tmp_path)) is None
