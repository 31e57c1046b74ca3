"""The dashboard: routes of its pages, templates, static files, live updates.

Not here: use cases (`headway.services`), endpoints (`headway.api`), which pages never call."""
