"""The edit tools of other systems, one module each, with the originals' arguments, results and words."""
