"""Values that are valid because they exist: one door in, named `parse`, no setters, no I/O."""
