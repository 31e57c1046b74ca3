"""Who may do what and what is recorded of it: roles, the chain of the audit trail, secrets of jobs.

Not here: storage (`store.access`), decisions about a request (`services.access`)."""
