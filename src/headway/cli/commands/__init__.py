"""The commands, a folder for each theme of `headway --help`."""
