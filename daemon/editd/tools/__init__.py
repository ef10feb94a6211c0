"""The edit tools of other systems, a module for each dialect, which its entry point names."""
