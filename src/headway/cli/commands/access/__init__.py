"""ssh and files, people, tokens."""
