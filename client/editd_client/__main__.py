"""`python -m editd_client`: the command `editctl`, if no script of that name is installed."""

from editd_client.cli import main

main()
