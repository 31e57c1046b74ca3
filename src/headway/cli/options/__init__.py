"""Options and arguments that several commands share, and how they are parsed. `cli.commands` decides what they do."""
