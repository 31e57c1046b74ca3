"""The dashboard: routes of its pages, templates, static files, live updates. Pages call `headway.services`, never the
endpoints of `headway.api`."""
