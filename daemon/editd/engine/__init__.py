"""The engine: the one writer. Synchronous, entered from one thread, and the only mutable root."""
