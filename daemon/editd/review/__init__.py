"""The review of edits: proposals, their decisions, and the policy. No file changes here."""
