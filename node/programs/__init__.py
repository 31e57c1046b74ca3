"""Programs of one file each. The server sends their text to machines (transport/remote_program.py), so none is installed
there."""
