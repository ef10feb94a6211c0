"""The edit tools of other systems, one module each: the originals' arguments, results and words."""
