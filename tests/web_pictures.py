"""The pictures of the review page in the README and the docs, made by Chromium.

python tests/web_pictures.py --write    # docs/images/web.png, web-dark.png and web-narrow.png
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

from support.chromium import Chromium, Tab
from support.reviewers import reviewer_of
from support.shop import shop
from support.web_page import web_page
from support.workplace import TOP

FOLDER = TOP / "docs/images"
SIZES = {"web": (1200, 860), "web-dark": (1200, 860), "web-narrow": (400, 860)}
LATER = "Date.now = (now => () => now() + 150_000)(Date.now);"  # everything is 2 minutes old


def picture(browser: Chromium, address: str, name: str) -> bytes:
    """Return a picture of the first proposal: its last hunk is to be rejected, and is the current one.

    `address` is the printed one, with its token.
    """
    width, height = SIZES[name]
    with closing(Tab(browser, width=width, is_dark=name == "web-dark")) as tab:
        tab.call("Page.addScriptToEvaluateOnNewDocument", {"source": LATER})
        tab.resize(width, height)
        tab.go(address)
        tab.go(f"{tab.run('location.origin')}/proposals/1")
        tab.until_text("min ago", "h2 + p")
        for key in "]]]":
            tab.key(key)
        tab.key(" ")
        return tab.screenshot()


def write_all() -> None:
    """Write every picture."""
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        shop(Path(folder)) as place,
        reviewer_of(place) as reviewer,
        closing(Chromium()) as browser,
        web_page(place) as page,
    ):
        shown = reviewer.proposal_get(1)
        hunk = shown.files[-1].hunks[-1].hunk
        reviewer.proposal_comment(1, "callers rely on None here, see cart.py", hunk=hunk)
        reviewer.proposal_check(1, shown.view, "pytest -q", exit=0, seconds=12.0, output="31 passed")
        for name in SIZES:
            (FOLDER / f"{name}.png").write_bytes(picture(browser, f"{page.address}/?t={page.token}", name))


if __name__ == "__main__":
    assert sys.argv[1:] == ["--write"], "usage: python tests/web_pictures.py --write"
    write_all()
