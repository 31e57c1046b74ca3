"""Programs of one file each. The server sends their text to machines (`transport.remote_program`), so none is installed
there.

Not here: daemons (`node/agent`), observing and changing a machine (`node/ops`), work as a user (`node/user_helper`)."""
