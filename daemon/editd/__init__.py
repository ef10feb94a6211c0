"""editd: a daemon that owns a workspace and applies edits as durable, undoable transactions."""

__version__ = "0.1.0"
