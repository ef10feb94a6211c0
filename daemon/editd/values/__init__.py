"""Values that are valid because they exist: one constructor, named `parse`, no setters, no I/O."""
