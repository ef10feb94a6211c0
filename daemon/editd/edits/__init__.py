"""The pure part of an edit: text in, text out. Nothing here reads a file or a clock."""
