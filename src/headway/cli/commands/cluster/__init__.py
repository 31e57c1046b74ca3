"""Commands for a whole cluster: init, plan, apply, scale, roll, ls, status, secrets, down.

Not here: single nodes (`cli.commands.nodes`), datasets and backups (`cli.commands.data`)."""
