"""Use cases of people and their roles, access tokens, usage of teams, and the audit log."""
