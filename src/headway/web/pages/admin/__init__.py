"""Pages of the server: sign-in, people, tokens, audit trail, settings."""
