"""The seams to the machine, each a few verbs; nothing here knows what a file is for."""
