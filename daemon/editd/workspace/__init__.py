"""The workspace's files: read, watched over, and published; nothing here knows the history."""
