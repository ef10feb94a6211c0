"""`python -m tests`: the tests of what a change touches."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # as pytest finds the helpers of the tests

from support.selection import main

sys.exit(main())
