"""Commands for nodes, incidents and injected faults.

Not here: the number of nodes (`cli.commands.cluster`)."""
