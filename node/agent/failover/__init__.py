"""The agent's part in a cluster with two heads: a stale leader is stopped, and the other head takes over.

Not here: a node without contact to any head (`node/agent/lost_contact`), the files of a second head (`render.ha`)."""
