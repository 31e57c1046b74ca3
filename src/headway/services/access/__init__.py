"""Use cases of people and their roles, access tokens, usage of teams, and the audit trail.

Not here: sign-in by browser (`api.auth`), SCIM (`services.scim`), Linux users on machines
(`cluster.accounts`)."""
