"""`python -m editd_client` is `editctl`, for where no script of that name is installed."""

from editd_client.cli import main

main()
