"""ssh and files, tokens, people, audit trail."""
