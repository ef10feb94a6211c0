"""Puts into the console blocks of a page what its commands really print.

python tests/docs/transcripts.py docs/agents.md            # print the page as it is to be
python tests/docs/transcripts.py --write docs/agents.md    # and put it there

What the page says stays where it is true already, `…` and ids of another run included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":  # as a script it finds the others itself
    sys.path[:0] = [str(TOP / "tests"), str(TOP / "daemon"), str(TOP / "client")]

from support.console import carried_out  # noqa: E402
from support.workplace import workplace  # noqa: E402


def rewritten(page: str) -> str:
    """The page with what its commands print, from top to bottom."""
    made, rest = "", page
    with tempfile.TemporaryDirectory() as folder, workplace(Path(folder) / "place") as place:
        for step in carried_out(place, page):
            told = f"$ {step.command}{step.expected}"
            before, _, rest = rest.partition(told)
            made += before + (told if step.is_as_said() else f"$ {step.command}{step.printed}")
    return made + rest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="put it into the page")
    given = parser.parse_args()
    for page in given.pages:
        text = rewritten(page.read_text())
        if given.write:
            page.write_text(text)
        else:
            sys.stdout.write(text)


if __name__ == "__main__":
    main()
