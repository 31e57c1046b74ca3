"""Commands for ssh, file copies, tokens, people, and the audit trail.

Not here: secrets of jobs (`cli.commands.jobs`)."""
