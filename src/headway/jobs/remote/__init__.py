"""Requests that the head carries out as a user: `node/user_helper`, its helpers that stay, tunnels, interactive commands."""
