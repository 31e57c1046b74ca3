"""Commands for the server, node images, `doctor` and `version`. They may act on the machine where they run.

Not here: commands for a cluster (`cli.commands.cluster`)."""
