"""Who may do what and what is recorded of it: roles, the chain of the audit trail, secrets of jobs. No storage and no HTTP."""
