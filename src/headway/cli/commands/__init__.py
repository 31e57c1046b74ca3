"""The commands, a folder a theme of `headway --help`."""
