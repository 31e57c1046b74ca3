"""Endpoints of people, access tokens, teams, the audit log, and the server itself."""
