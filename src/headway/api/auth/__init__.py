"""Finds out who sends a request (token, session cookie, OpenID Connect) and signs browsers in.

Not here: what a person may do (`services.access.role_rights`, `services.access.ownership_rights`), stored tokens and
sessions (`store.access`)."""
