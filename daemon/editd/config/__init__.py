"""The configuration: the user's two TOML files, checked as a whole before any value is used."""
