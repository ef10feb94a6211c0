"""What an edit makes of a text, purely: text in, text out. Nothing here reads a file or a clock."""
