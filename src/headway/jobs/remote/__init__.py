"""Requests that run on the head as a user: calls of `node/user_helper`, the pool of helper processes, tunnels,
interactive commands.

Not here: SSH connections (`headway.transport`), work as root (`headway.cluster`)."""
