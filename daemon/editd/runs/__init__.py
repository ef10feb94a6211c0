"""The user's commands: hooks, checks, trials of proposals, isolated commands. This floor decides nothing."""
