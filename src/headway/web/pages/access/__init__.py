"""Pages of access to the server: sign-in, people, tokens, audit trail, and the server's settings."""
