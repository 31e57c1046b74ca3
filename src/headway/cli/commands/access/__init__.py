"""Commands for ssh, file copies, tokens, people, and the audit log."""
