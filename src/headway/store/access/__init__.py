"""What the server remembers of people, their tokens, sessions and Linux users, and the audit trail."""
