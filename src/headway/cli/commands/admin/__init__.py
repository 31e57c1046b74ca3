"""The server, node images, doctor, version."""
