"""Finds out who sends a request (token, session cookie, OpenID Connect) and signs browsers in. What a person may do is
decided in `services.access.ownership_rights`."""
