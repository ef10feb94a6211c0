"""The socket and what hangs on it: the only floor that is async. It holds no policy."""
