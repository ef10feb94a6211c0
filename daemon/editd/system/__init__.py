"""The seams to the machine, each a few verbs. This floor does not know the purpose of a file."""
