"""Options and arguments that several commands share, and how they are parsed.

Not here: what the options do (`cli.commands`)."""
