"""`python -m editd`: the daemon."""

from editd.cli import main

main()
