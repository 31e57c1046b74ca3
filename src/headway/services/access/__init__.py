"""People and their roles, access tokens, teams, and the audit log."""
