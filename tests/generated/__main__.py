"""What is made from the messages of the protocol and from tables of the code.

python tests/generated            # tell which files are not up to date
python tests/generated --write    # and write them
"""

from __future__ import annotations

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[0:1] = [str(TOP / name) for name in ("tests", "daemon", "client")]  # it runs as a script

from generated import stale_files  # noqa: E402


def main() -> None:
    is_written = "--write" in sys.argv[1:]
    for path, text in stale_files().items():
        print(path.relative_to(TOP), "is written" if is_written else "is not up to date")
        if is_written:
            path.write_text(text)


if __name__ == "__main__":
    main()
