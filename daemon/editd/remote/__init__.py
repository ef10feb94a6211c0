"""One workspace on several hosts: the log of all, and its exchange through a git repository.

Runs in a separate process, so that no edit waits for a server. It never touches the workspace's files.
"""
