"""Endpoints of people, tokens, teams and the audit log."""
