"""The socket and the services on it: the only floor that is async. It holds no policy."""
