"""Commands for the server, node images, `doctor` and `version`."""
