"""The agent's part in a cluster with two heads: a stale leader is stopped, and the other head takes over."""
