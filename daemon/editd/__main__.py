"""`python -m editd`: the daemon."""

from editd.cli import main
from editd.system.process import exit_fast

try:
    main()
except SystemExit as end:
    if end.code is None or isinstance(end.code, int):
        exit_fast(end.code or 0)
    raise
