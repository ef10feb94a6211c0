"""`python -m tests.bench`: see `command`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from bench.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
