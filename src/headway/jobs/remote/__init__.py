"""Requests that the head carries out as a user: `node/user_helper`, pooled helpers, tunnels, interactive commands."""
