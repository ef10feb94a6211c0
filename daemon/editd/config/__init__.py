"""The configuration: two TOML files of the user's, checked whole before anything is done with them."""
