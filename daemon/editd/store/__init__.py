"""The history on disk: a journal of what is new, and a bare git repository of all the rest.

Knows nothing of the workspace's files.
"""
