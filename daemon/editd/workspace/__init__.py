"""The workspace's files: reading, watching and publishing them. Nothing here depends on the history."""
