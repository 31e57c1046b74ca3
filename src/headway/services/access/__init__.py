"""Use cases of people and their roles, access tokens, teams, and the audit log."""
