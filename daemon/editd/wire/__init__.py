"""The contract with clients: messages, their encodings, and the sans-IO connection.

Imports nothing else of editd, and never touches a socket: the client imports it too.
"""
