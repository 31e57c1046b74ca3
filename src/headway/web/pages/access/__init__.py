"""Pages of sign-in, people, tokens, audit log, and settings."""
