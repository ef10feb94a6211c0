"""The simulated world: see `world`, and `python -m tests.simulation --help`."""
