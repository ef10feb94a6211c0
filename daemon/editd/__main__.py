"""`python -m editd`: the daemon."""

from editd.cli import main
from editd.system.fast_exit import leave

try:
    main()
except SystemExit as end:
    if end.code is None or isinstance(end.code, int):
        leave(end.code or 0)
    raise
