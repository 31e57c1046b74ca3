"""Options and arguments that commands share. What a command does with them is in `commands`."""
