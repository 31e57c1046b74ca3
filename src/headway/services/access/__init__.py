"""Use cases of people and their roles, access tokens, usage of teams, and the audit trail.

Not here: sign-in by browser (`api.auth`), SCIM (`services.provisioning`), Linux users on machines
(`cluster.accounts`)."""
