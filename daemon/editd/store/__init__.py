"""The history on disk: a journal of the newest transactions, and a bare git repository of the others.

Never touches the workspace's files.
"""
