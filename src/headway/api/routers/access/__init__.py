"""Endpoints of people, access tokens, teams, the audit trail, and the server itself.

Not here: secrets of jobs (`api.routers.jobs`), the check of a token (`api.auth`)."""
