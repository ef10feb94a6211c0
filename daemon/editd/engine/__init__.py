"""The engine: the only writer of a workspace. Synchronous, and called from one thread only."""
