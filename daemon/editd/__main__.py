"""`python -m editd`: the daemon."""

import gc

gc.disable()  # until the daemon serves: collections take a tenth of its imports, and free nothing

from editd.cli import main  # noqa: E402
from editd.system.fast_exit import exit_fast  # noqa: E402

try:
    main()
except SystemExit as end:
    if end.code is None or isinstance(end.code, int):
        exit_fast(end.code or 0)
    raise
