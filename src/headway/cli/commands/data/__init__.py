"""Commands for volumes, datasets, container images and backups.

Not here: node images (`cli.commands.admin`), file copies by SSH (`cli.commands.access`)."""
